"""The measures of the benchmark: satisfaction, pass@k, perplexity, diversity, overhead, with confidence intervals.

All functions take plain sequences or arrays and do not depend on models or files. The result is NaN if nothing was
measured.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffinity.errors import InvalidArgument

WORD = re.compile(r"\w+|[^\w\s]")
BLEU_ORDER = 4
BLEU_EPSILON = 0.1
RESAMPLES = 10_000
CHUNK = 4_000_000  # weights drawn at a time in a bootstrap

Gram = tuple[str, ...]


def satisfaction(valid: Sequence[Sequence[bool]]) -> float:
    """The share of valid samples; constraints have equal weight, and those without samples do not count.

    >>> satisfaction([[True, True], [True, False]])
    0.75
    """
    shares = [sum(flags) / len(flags) for flags in valid if len(flags)]
    return sum(shares) / len(shares) if shares else math.nan


def pass_at_k(n: int, c: int, k: int) -> float:
    """The unbiased estimate of the probability that at least one of k samples is valid, given c valid of n.

    1 − C(n−c, k)/C(n, k): the share of the k-subsets of the samples that contain a valid sample.

    >>> pass_at_k(4, 1, 2), pass_at_k(20, 0, 10)
    (0.5, 0.0)
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise InvalidArgument(f"pass@k needs 0 ≤ c ≤ n and 1 ≤ k ≤ n, but n = {n}, c = {c}, k = {k}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def mean_pass_at_k(valid: Sequence[Sequence[bool]], k: int) -> float:
    """pass@k averaged over constraints; NaN without constraints or if a constraint has fewer than k samples.

    >>> mean_pass_at_k([[True, False, False, False], [True, True, True, True]], 2)
    0.75
    """
    if not valid or any(len(flags) < k for flags in valid):
        return math.nan
    return sum(pass_at_k(len(flags), sum(flags), k) for flags in valid) / len(valid)


def perplexity(nats: ArrayLike, tokens: ArrayLike) -> float:
    """The geometric mean of the texts' perplexities exp(nats/tokens); all texts have the same weight.

    `nats` (N,) are negative log-likelihoods of whole texts and `tokens` (N,) their numbers of scored tokens.

    >>> perplexity([0.0, math.log(4.0)], [3, 1])
    2.0
    """
    scores = log_perplexities(nats, tokens)
    return float(np.exp(scores.mean())) if scores.size else math.nan


def log_perplexities(nats: ArrayLike, tokens: ArrayLike) -> NDArray[np.float64]:
    """nats/tokens of each text, (N,): `perplexity` averages these values, and a bootstrap resamples them.

    >>> log_perplexities([6.0], [3]).tolist()
    [2.0]
    """
    total, count = np.asarray(nats, np.float64), np.asarray(tokens, np.float64)
    if total.shape != count.shape or total.ndim != 1:
        raise InvalidArgument(f"nats {total.shape} and tokens {count.shape} must be two equal lists")
    if not bool((count > 0).all()) or not bool(np.isfinite(total).all()):
        raise InvalidArgument("every text must have finite nats and at least one token")
    return np.asarray(total / count)


def words_of(text: str) -> list[str]:
    """The words and punctuation marks of a text, for the measures of diversity.

    >>> words_of("Don't stop.")
    ['Don', "'", 't', 'stop', '.']
    """
    return WORD.findall(text)


def distinct_n(texts: Sequence[str], n: int) -> float:
    """The share of distinct n-grams among all n-grams of words, over all texts together; NaN if there are none.

    >>> distinct_n(["a b a b", "a b"], 2)
    0.5
    """
    if n < 1:
        raise InvalidArgument(f"n must be at least 1, not {n}")
    grams = [gram for text in texts for gram in _grams(words_of(text), n)]
    return len(set(grams)) / len(grams) if grams else math.nan


def bleu(text: str, references: Sequence[str]) -> float:
    """BLEU-4 of one text against references, smoothed for sentences.

    Geometric mean of the clipped n-gram precisions for n = 1 … 4, times the brevity penalty against the reference
    of the closest length (the shorter of two as close). Smoothing: a precision without any match counts 0.1
    matches (method 1 of Chen and Cherry, 2014), and orders longer than the text itself are left out.

    >>> bleu("the cat sat on the mat", ["the cat sat on the mat", "a dog"])
    1.0
    """
    if not references:
        return math.nan
    hypothesis = words_of(text)
    reference_words = [words_of(reference) for reference in references]

    def largest(n: int) -> Counter[Gram]:
        largest_counts: Counter[Gram] = Counter()
        for other in reference_words:
            largest_counts |= Counter(_grams(other, n))
        return largest_counts

    return _bleu(hypothesis, largest, [len(other) for other in reference_words])


def self_bleu(texts: Sequence[str]) -> float:
    """The mean BLEU-4 of each text against all other texts: 1 if all are equal, low if they differ.

    It takes one pass over the texts, which stores the two highest counts of every n-gram.

    >>> self_bleu(["the old mill stands", "the old mill stands"])
    1.0
    """
    if len(texts) < 2:
        return math.nan
    words = [words_of(text) for text in texts]
    counted = {n: [Counter(_grams(text_words, n)) for text_words in words] for n in range(1, BLEU_ORDER + 1)}
    highest = {n: _two_highest(counts) for n, counts in counted.items()}
    lengths = [len(text_words) for text_words in words]

    def score(i: int) -> float:
        def largest(n: int) -> Counter[Gram]:
            allowed: Counter[Gram] = Counter()
            for gram, count in counted[n][i].items():
                first, second = highest[n][gram]
                allowed[gram] = second if count == first else first
            return allowed

        return _bleu(words[i], largest, lengths[:i] + lengths[i + 1 :])

    return sum(score(i) for i in range(len(texts))) / len(texts)


def overhead(seconds: Sequence[float], baseline: Sequence[float]) -> float:
    """The median time divided by the median time without the constraint.

    >>> overhead([3.0, 2.0, 9.0], [1.5, 1.5])
    2.0
    """
    if not len(seconds) or not len(baseline):
        return math.nan
    return float(np.median(np.asarray(seconds)) / np.median(np.asarray(baseline)))


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its confidence interval.

    >>> f"{Interval(0.9, 0.85, 0.94):.2f}"
    '0.90 [0.85, 0.94]'
    """

    estimate: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        return f"{self.estimate:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


def bootstrap(
    totals: ArrayLike,
    counts: ArrayLike | None = None,
    *,
    transform: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """A percentile bootstrap over constraints of Σ totals / Σ counts; without counts, of the mean of `totals`.

    `totals` (C,) and `counts` (C,) have one entry per constraint, because the samples of one constraint are
    correlated and must be resampled together. `transform`, a non-decreasing function, is applied to the ratio:
    `np.exp` turns mean log-perplexities into a perplexity.

    >>> bootstrap([1.0, 1.0, 1.0])
    Interval(estimate=1.0, low=1.0, high=1.0)
    """
    numerators = np.asarray(totals, np.float64)
    denominators = np.ones_like(numerators) if counts is None else np.asarray(counts, np.float64)
    if numerators.ndim != 1 or numerators.shape != denominators.shape:
        raise InvalidArgument(f"totals {numerators.shape} and counts {denominators.shape} must be two equal lists")
    if not 0 < confidence < 1 or resamples < 1:
        raise InvalidArgument(f"confidence must lie between 0 and 1 and resamples be positive, not {confidence}")
    if not numerators.size or denominators.sum() <= 0:
        return Interval(math.nan, math.nan, math.nan)
    ratios = _resampled(numerators, denominators, resamples, seed)
    ratios = ratios[np.isfinite(ratios)]  # a resample may contain no matching sample
    ends = np.quantile(ratios, [(1 - confidence) / 2, (1 + confidence) / 2])
    values = np.concatenate([[numerators.sum() / denominators.sum()], ends])
    estimate, low, high = (values if transform is None else transform(values)).tolist()
    return Interval(estimate, low, high)


def _resampled(
    numerators: NDArray[np.float64], denominators: NDArray[np.float64], n: int, seed: int
) -> NDArray[np.float64]:
    """The ratio in each of n resamples, (n,); the counts of the constraints are multinomial."""
    rng = np.random.default_rng(seed)
    size = numerators.size
    ratios = []
    for start in range(0, n, step := max(1, CHUNK // size)):
        weights = rng.multinomial(size, np.full(size, 1 / size), min(step, n - start)).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios.append((weights @ numerators) / (weights @ denominators))
    return np.concatenate(ratios)


def _grams(words: Sequence[str], n: int) -> list[Gram]:
    return [tuple(words[k : k + n]) for k in range(len(words) - n + 1)]


def _two_highest(counts: Sequence[Counter[Gram]]) -> dict[Gram, tuple[int, int]]:
    """For every n-gram its highest and second highest count in the texts (which may be equal)."""
    highest: dict[Gram, tuple[int, int]] = {}
    for counter in counts:
        for gram, count in counter.items():
            first, second = highest.get(gram, (0, 0))
            if count > first:
                highest[gram] = (count, first)
            elif count > second:
                highest[gram] = (first, count)
    return highest


def _bleu(hypothesis: list[str], largest_counts: Callable[[int], Counter[Gram]], lengths: Sequence[int]) -> float:
    """BLEU of a hypothesis, given the maximum count of each n-gram in a reference, and the reference lengths."""
    if not hypothesis:
        return 0.0
    logs = []
    for n in range(1, min(BLEU_ORDER, len(hypothesis)) + 1):
        counts, allowed = Counter(_grams(hypothesis, n)), largest_counts(n)
        matches = sum(min(count, allowed[gram]) for gram, count in counts.items())
        logs.append(math.log((matches or BLEU_EPSILON) / counts.total()))
    length = len(hypothesis)
    closest = min(lengths, key=lambda other: (abs(other - length), other))
    brevity = min(0.0, 1 - closest / length)
    return math.exp(brevity + sum(logs) / len(logs))

"""The measures, against brute force, numbers worked out by hand and distributions that are known."""

from __future__ import annotations

import math
from itertools import combinations
from statistics import geometric_mean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diffinity.bench.measures import (
    Interval,
    bleu,
    bootstrap,
    distinct_n,
    log_perplexities,
    mean_pass_at_k,
    overhead,
    pass_at_k,
    perplexity,
    satisfaction,
    self_bleu,
)
from diffinity.errors import InvalidArgument


def test_satisfaction_counts_each_constraint_the_same() -> None:
    assert satisfaction([[True], [False, False, True, True]]) == 0.75
    assert satisfaction([[True], []]) == 1.0
    assert math.isnan(satisfaction([]))


@pytest.mark.parametrize("n", range(1, 7))
def test_pass_at_k_is_the_share_of_subsets_with_a_valid_sample(n: int) -> None:
    for c in range(n + 1):
        flags = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            subsets = list(combinations(flags, k))
            assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_k_is_refused_for_more_samples_than_there_are() -> None:
    with pytest.raises(InvalidArgument, match="n = 5, c = 1, k = 10"):
        pass_at_k(5, 1, 10)
    assert math.isnan(mean_pass_at_k([[True] * 5], 10))


def test_perplexity_is_the_geometric_mean_over_texts() -> None:
    nats, tokens = [12.0, 30.0, 4.0], [6, 10, 8]
    assert perplexity(nats, tokens) == pytest.approx(geometric_mean([math.exp(2), math.exp(3), math.exp(0.5)]))
    assert math.isnan(perplexity([], []))


@pytest.mark.parametrize(("nats", "tokens"), [([1.0], [1, 2]), ([1.0], [0]), ([math.inf], [3])])
def test_perplexity_refuses_what_makes_no_sense(nats: list[float], tokens: list[int]) -> None:
    with pytest.raises(InvalidArgument):
        log_perplexities(nats, tokens)


def test_distinct_n_counts_n_grams_of_words_within_texts() -> None:
    texts = ["The cat sat.", "The cat ran."]  # 8 words of which 5 differ; 6 pairs of which 5 differ
    assert distinct_n(texts, 1) == 5 / 8
    assert distinct_n(texts, 2) == 5 / 6
    assert math.isnan(distinct_n(["one"], 2))


@pytest.mark.parametrize(
    ("text", "references", "expected"),
    [
        # 4 of 5 words, 3 of 4 pairs, 2 of 3 triples, 1 of 2: the fourth root of 1/5.
        ("a b c d e", ["a b c d f"], 0.2**0.25),
        # Papineni's example: "the" counts twice at most; no pair, so 0.1 of 6, of 5, of 4.
        (
            "the the the the the the the",
            ["the cat is on the mat", "there is a cat on the mat"],
            (2 / 7 * 0.1 / 6 * 0.1 / 5 * 0.1 / 4) ** 0.25,
        ),
        # Two words of four: all match, of orders 1 and 2 only; brevity exp(1 − 4/2).
        ("a b", ["a b c d"], math.exp(-1)),
        # As close to 3 words as to 5: the shorter reference, so no penalty.
        ("a b c d", ["a b c", "a b c d e"], 1.0),
        # Words of different references count together.
        ("a b", ["a x", "y b"], (1 * 0.1 / 1) ** 0.5),
        ("", ["a"], 0.0),
    ],
)
def test_bleu_by_hand(text: str, references: list[str], expected: float) -> None:
    assert bleu(text, references) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abc"), max_size=7).map(" ".join), min_size=2, max_size=6))
def test_self_bleu_is_the_mean_of_bleu_against_the_others(texts: list[str]) -> None:
    one_by_one = [bleu(text, texts[:i] + texts[i + 1 :]) for i, text in enumerate(texts)]
    assert self_bleu(texts) == pytest.approx(sum(one_by_one) / len(texts))


def test_self_bleu_of_one_text_is_not_a_number() -> None:
    assert math.isnan(self_bleu(["alone"]))


def test_overhead_is_a_ratio_of_medians() -> None:
    assert overhead([4.0, 1.0, 100.0], [2.0, 2.0, 50.0]) == 2.0
    assert math.isnan(overhead([1.0], []))


def test_the_bootstrap_of_two_constraints_has_three_outcomes() -> None:
    # The mean of two draws from {0, 1} is 0, ½ or 1 with chances ¼, ½, ¼.
    assert bootstrap([0.0, 1.0], confidence=0.4) == Interval(0.5, 0.5, 0.5)
    assert bootstrap([0.0, 1.0], confidence=0.6) == Interval(0.5, 0.0, 1.0)


def test_the_bootstrap_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    draws = rng.exponential(size=(400, 60))
    covered = 0
    for k, values in enumerate(draws):
        interval = bootstrap(values, resamples=400, seed=k)
        covered += interval.low <= 1.0 <= interval.high
    assert 0.89 <= covered / 400 <= 0.97  # percentile intervals of a skewed mean of 60 fall a little short of 0.95


def test_the_bootstrap_of_a_ratio_draws_the_samples_of_a_constraint_together() -> None:
    rng = np.random.default_rng(2)
    counts = rng.integers(0, 20, 30).astype(float)
    totals = counts * rng.normal(2.0, 0.5, 30)
    interval = bootstrap(totals, counts, transform=np.exp, seed=3)
    plain = np.random.default_rng(4)
    ratios = []
    for _ in range(3000):
        chosen = plain.integers(0, 30, 30)
        ratios.append(math.exp(totals[chosen].sum() / counts[chosen].sum()))
    assert interval.estimate == pytest.approx(math.exp(totals.sum() / counts.sum()))
    assert interval.low == pytest.approx(np.quantile(ratios, 0.025), rel=0.02)
    assert interval.high == pytest.approx(np.quantile(ratios, 0.975), rel=0.02)


def test_the_bootstrap_is_repeatable_and_passes_over_empty_resamples() -> None:
    totals, counts = [1.0, 0.0, 0.0], [2.0, 0.0, 0.0]  # most resamples of these hold the first, some do not
    assert bootstrap(totals, counts, seed=5) == Interval(0.5, 0.5, 0.5)
    values = list(range(20))
    assert bootstrap(values, seed=5) == bootstrap(values, seed=5) != bootstrap(values, seed=6)


def test_the_bootstrap_of_nothing_is_not_a_number() -> None:
    assert math.isnan(bootstrap([]).estimate)
    assert math.isnan(bootstrap([0.0], [0.0]).low)
    with pytest.raises(InvalidArgument, match="two equal lists"):
        bootstrap([1.0], [1.0, 2.0])

"""The exact denoiser against enumeration of all texts, and the samplers against the chain's own statistics."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from tokenizers import Tokenizer, models, pre_tokenizers

import diffinity as dy
from diffinity.models.markov import MarkovLM
from diffinity.models.schedule import NoiseLevel
from diffinity.sampling import Method

WORDS = {"<|endoftext|>": 0, "a": 1, "b": 2, "c": 3}
TEXTS = ["a b c", "a b", "b c a", "c", "b b c", "a c b"]
LENGTH = 4


def word_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def small_model(order: int = 2, restart: float = 0.05) -> MarkovLM:
    return dy.fit_markov(TEXTS, order=order, tokenizer=word_tokenizer(), restart=restart, embed_dim=8)


def all_texts() -> list[tuple[int, ...]]:
    return list(itertools.product(range(len(WORDS)), repeat=LENGTH))


def prior(model: MarkovLM) -> NDArray[np.float64]:
    return np.exp([model.log_p_text(text) for text in all_texts()])


def chain_log_p_text_by_hand(tokens: tuple[int, ...], order: int, restart: float) -> float:
    """P(text) from the definition, with contexts as tuples: no arrays, no sparse rows."""
    contexts: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
    starts: dict[tuple[int, ...], float] = {}
    visits: dict[tuple[int, ...], float] = {}
    encode = WORDS
    for text in TEXTS:
        here: tuple[int, ...] | None = None
        seen: tuple[int, ...] = ()
        for token in [encode[word] for word in text.split()] + [0]:
            seen = (0,) if token == 0 else (*seen, token)[-order:]
            visits[seen] = visits.get(seen, 0) + 1
            table = starts if here is None else contexts.setdefault(here, {})
            table[seen] = table.get(seen, 0) + 1
            here = seen
    jump = {context: count / sum(visits.values()) for context, count in visits.items()}

    def moves(here: tuple[int, ...] | None) -> dict[tuple[int, ...], float]:
        if here == (0,):
            return {(0,): 1.0}
        counts = starts if here is None else contexts[here]
        total = sum(counts.values())
        out = {context: restart * share for context, share in jump.items()}
        for context, count in counts.items():
            out[context] += (1 - restart) * count / total
        return out

    mass: dict[tuple[int, ...] | None, float] = {None: 1.0}
    for token in tokens:
        after: dict[tuple[int, ...] | None, float] = {}
        for here, weight in mass.items():
            for there, share in moves(here).items():
                if there[-1] == token:
                    after[there] = after.get(there, 0.0) + weight * share
        mass = after
    return sum(mass.values())


@pytest.mark.parametrize("order", [1, 2, 3])
def test_probability_of_a_text_is_that_of_the_definition(order: int) -> None:
    model = small_model(order)
    for text in all_texts():
        wanted = chain_log_p_text_by_hand(text, order, 0.05)
        assert np.exp(model.log_p_text(text)) == pytest.approx(wanted, abs=1e-12)


def test_probabilities_of_all_texts_sum_to_one() -> None:
    assert prior(small_model()).sum() == pytest.approx(1.0, abs=1e-12)


def posterior(model: MarkovLM, z: torch.Tensor, noise_level: float) -> NDArray[np.float64]:
    """p(text | z) for every text, by Bayes' rule on N(z; α·e, σ²)."""
    level = NoiseLevel(torch.tensor(noise_level, dtype=torch.float64))
    embedded = model.embedding[torch.tensor(all_texts())]  # (T, L, d)
    log_likelihood = -((z - level.alpha * embedded) ** 2).sum((1, 2)) / (2 * level.sigma_squared)
    weights = np.log(np.maximum(prior(model), 1e-300)) + log_likelihood.numpy()
    weights = np.exp(weights - weights.max())
    return weights / weights.sum()


@pytest.mark.parametrize("noise_level", [-2.0, 0.0, 1.5, 4.0])
def test_denoiser_is_the_exact_posterior(noise_level: float) -> None:
    model = small_model()
    z = torch.randn(1, LENGTH, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = model.denoise(z, torch.tensor([noise_level]), torch.zeros_like(z)).exp()[0]
    texts = np.array(all_texts())
    weights = posterior(model, z[0], noise_level)
    for k, v in itertools.product(range(LENGTH), range(len(WORDS))):
        assert float(found[k, v]) == pytest.approx(weights[texts[:, k] == v].sum(), abs=1e-9)


def test_gradient_of_the_denoiser_is_that_of_finite_differences() -> None:
    model = small_model()
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(2, LENGTH, 8, dtype=torch.float64, generator=generator).requires_grad_()
    noise_level = torch.tensor([0.3, 1.0], dtype=torch.float64)

    def denoise(latent: torch.Tensor) -> torch.Tensor:
        return model.denoise(latent, noise_level, torch.zeros_like(latent))

    assert torch.autograd.gradcheck(denoise, (z,), eps=1e-6, atol=1e-6)


@dataclass(frozen=True)
class Contains:
    """The texts in which token `wanted` occurs: two states, one class a token."""

    wanted: int
    start: int = 0

    @property
    def class_of(self) -> NDArray[np.int64]:
        return np.arange(len(WORDS))

    @property
    def next(self) -> NDArray[np.int64]:
        table = np.array([[0] * len(WORDS), [1] * len(WORDS)])
        table[0, self.wanted] = 1
        return table

    @property
    def accepting(self) -> NDArray[np.bool_]:
        return np.array([False, True])


@dataclass(frozen=True)
class OnlyToken:
    """The texts of nothing but token `only`; every other transition is missing."""

    only: int
    start: int = 0

    @property
    def class_of(self) -> NDArray[np.int64]:
        return (np.arange(len(WORDS)) == self.only).astype(np.int64)

    @property
    def next(self) -> NDArray[np.int64]:
        return np.array([[-1, 0]])

    @property
    def accepting(self) -> NDArray[np.bool_]:
        return np.array([True])


def test_acceptance_given_a_latent_is_the_sum_over_accepted_texts() -> None:
    model = small_model()
    z = torch.randn(1, LENGTH, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    weights = posterior(model, z[0], 0.5)
    for token in range(len(WORDS)):
        wanted = sum(w for text, w in zip(all_texts(), weights, strict=True) if token in text)
        found = model.log_acceptance(Contains(token), z, 0.5).exp()
        assert float(found) == pytest.approx(wanted, rel=1e-9)


def test_prior_acceptance_is_the_sum_over_accepted_texts() -> None:
    model = small_model()
    wanted = sum(p for text, p in zip(all_texts(), prior(model), strict=True) if 3 in text)
    assert float(model.log_acceptance(Contains(3), length=LENGTH).exp()) == pytest.approx(wanted, rel=1e-9)


def test_impossible_language_has_probability_zero() -> None:
    model = dy.fit_markov(["a b"], order=1, tokenizer=word_tokenizer(), restart=0.0)
    assert float(model.log_acceptance(OnlyToken(3), length=2)) == -np.inf


@pytest.fixture(scope="module")
def drawn() -> dict[str, NDArray[np.int64]]:
    model = small_model()
    return {
        "ancestral": _draw(model, "ancestral"),
        "ddim": _draw(model, "ddim"),
    }


def _draw(model: MarkovLM, method: Method) -> NDArray[np.int64]:
    samples = dy.sample(
        model, n=2000, length=LENGTH, num_inference_steps=250, seed=3, method=method, score_temp=1.0
    )
    tokens: NDArray[np.int64] = samples.tokens.numpy()
    return tokens


def chi_square_p(counts: NDArray[Any], expected: NDArray[Any]) -> float:
    """The p-value, with cells of fewer than five expected draws put together."""
    small = expected < 5
    counts = np.append(counts[~small], counts[small].sum())
    expected = np.append(expected[~small], max(expected[small].sum(), 1e-9))
    if expected[-1] < 5:
        assert counts[-1] < 20
        counts, expected = counts[:-1], expected[:-1]
    return float(stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue)


@pytest.mark.parametrize("method", ["ancestral", "ddim"])
def test_samples_have_the_chain_s_distribution_of_whole_texts(
    drawn: dict[str, NDArray[np.int64]], method: str
) -> None:
    tokens = drawn[method]
    index = {text: i for i, text in enumerate(all_texts())}
    counts = np.bincount([index[tuple(row)] for row in tokens.tolist()], minlength=len(index))
    assert chi_square_p(counts, prior(small_model()) * len(tokens)) > 1e-3


@pytest.mark.parametrize("method", ["ancestral", "ddim"])
def test_samples_have_the_chain_s_bigrams(drawn: dict[str, NDArray[np.int64]], method: str) -> None:
    tokens = drawn[method]
    texts, weights = np.array(all_texts()), prior(small_model())
    for k in range(LENGTH - 1):
        pairs = texts[:, k] * len(WORDS) + texts[:, k + 1]
        expected = np.bincount(pairs, weights=weights, minlength=len(WORDS) ** 2) * len(tokens)
        found = np.bincount(tokens[:, k] * len(WORDS) + tokens[:, k + 1], minlength=len(WORDS) ** 2)
        assert chi_square_p(found, expected) > 1e-3


def test_too_few_steps_are_told_from_the_truth_by_the_same_test() -> None:
    """The chi-square test has the power to fail: three steps are not enough."""
    model = small_model()
    samples = dy.sample(model, n=2000, length=LENGTH, num_inference_steps=3, seed=3, score_temp=1.0)
    index = {text: i for i, text in enumerate(all_texts())}
    counts = np.bincount([index[tuple(row)] for row in samples.tokens.tolist()], minlength=len(index))
    assert chi_square_p(counts, prior(model) * 2000) < 1e-6


def test_latents_far_from_all_known_tokens_give_distributions_all_the_same() -> None:
    model = dy.fit_markov(["a plain text.", "another plain text, and longer."], order=1, vocab_size=300)
    wanted = [dy.Text("</script> & it is € long\nsecond line"), dy.Regex("x{3}")]
    for sample in dy.generate(model, wanted, length=80, num_inference_steps=6, guidance="path"):
        assert sample.satisfied

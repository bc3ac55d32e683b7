"""Acceptance with neighbours that depend on each other, against enumeration of all strings of the chain."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Regex as Pattern
from tokenizers import Tokenizer, pre_tokenizers
from torch import Tensor

import diffinity as dy
from diffinity.acceptance import acceptance, chain_kernels
from diffinity.acceptance.chain import ROUNDS, chain_acceptance
from diffinity.alignment import Bigrams, Framing, TokenAutomaton
from diffinity.bench.draws import transition_matrix, word_tokenizer
from diffinity.errors import CheckpointError, InvalidArgument
from diffinity.models.schedule import NoiseLevel
from tests.acceptance.laws import CASES, TOKENS, automaton_of, random_logits

V = len(TOKENS)


def bigrams_of(ratio: NDArray[np.float64]) -> Bigrams:
    """Bigrams with every pair of tokens seen."""
    size = ratio.shape[0]
    return Bigrams(
        np.arange(size + 1) * size,
        np.tile(np.arange(size, dtype=np.int32), size),
        ratio.flatten().astype(np.float32),
        np.ones(size, np.float32),
    )


def random_ratio(seed: int, size: int = V) -> NDArray[np.float64]:
    values: NDArray[np.float64] = np.exp(np.random.default_rng(seed).normal(0.0, 1.5, (size, size)))
    return values


def coupled(before: Tensor, after: Tensor, ratio: NDArray[np.float64], rounds: int) -> Tensor:
    """Sinkhorn's iteration in the plainest form: P(next | this), (V, V)."""
    table = torch.from_numpy(ratio.astype(np.float32)).double()
    right = after.clone()
    for _ in range(rounds):
        left = before / (table @ right)
        right = after / (table.T @ left)
    table = table * right
    return table / table.sum(dim=1, keepdim=True)


def enumerated(probs: Tensor, automaton: TokenAutomaton, ratio: NDArray[np.float64]) -> tuple[float, Tensor]:
    """P(L) and the marginals given L of one sample's chain (L, V), string by string."""
    length = probs.shape[0]
    moves = [coupled(probs[k], probs[k + 1], ratio, ROUNDS) for k in range(length - 1)]
    total, marginals = 0.0, torch.zeros_like(probs)
    for ids in itertools.product(range(V), repeat=length):
        if automaton.accepts(ids):
            p = float(probs[0, ids[0]]) * float(
                np.prod([float(moves[k][ids[k], ids[k + 1]]) for k in range(length - 1)])
            )
            total += p
            for k, v in enumerate(ids):
                marginals[k, v] += p
    return total, marginals / max(total, 1e-300)


@pytest.mark.parametrize(("pattern", "framing"), CASES)
def test_without_dependence_it_is_plain_acceptance(pattern: str, framing: Framing) -> None:
    automaton = automaton_of(pattern, framing)
    logits = random_logits(0, 2, 3)
    flat = Bigrams(
        np.zeros(V + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), np.ones(V, np.float32)
    )
    wanted = acceptance(logits, automaton, logits=True)
    chained = chain_acceptance(logits, [automaton, automaton], flat)
    assert torch.allclose(chained.log_p_language.exp(), wanted.log_p_language.exp(), atol=1e-6)
    assert torch.allclose(chained.marginals, wanted.marginals, atol=1e-6)


@pytest.mark.parametrize(("pattern", "framing"), CASES[::2])
def test_value_and_marginals_are_those_of_enumeration(pattern: str, framing: Framing) -> None:
    automaton = automaton_of(pattern, framing)
    logits, ratio = random_logits(1, 2, 3), random_ratio(2)
    chained = chain_acceptance(logits, [automaton, automaton], bigrams_of(ratio))
    for i, probs in enumerate(logits.softmax(-1)):
        total, marginals = enumerated(probs, automaton, ratio)
        if total < 1e-9:
            continue
        assert float(chained.log_p_language[i].exp()) == pytest.approx(total, rel=1e-4)
        assert torch.allclose(chained.marginals[i], marginals, atol=1e-4)


def test_a_chain_of_order_one_is_conditioned_exactly() -> None:
    """Under an order-1 model the positions given z are such a chain: its marginals given L are the truth."""
    texts = ["ab", "ab", "abc", "ba", "bca", "c"]
    model = dy.fit_markov(texts, order=1, tokenizer=_letters(), embed_dim=4)
    length, size = 4, model.embedding.shape[0]
    ratio = np.zeros((size, size))
    ratio[np.ix_(model.chain.token, model.chain.token)] = transition_matrix(model)  # contexts are tokens here
    automaton = dy.align(dy.Regex(".*b.*c?"), dy.Vocabulary.from_tokenizer(model.tokenizer))
    z = torch.randn(1, length, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    noise_level = torch.tensor([1.0], dtype=torch.float64)
    logits = model.denoise(z, noise_level, torch.zeros_like(z))
    level = NoiseLevel(noise_level)
    emission = (float(level.alpha / level.sigma_squared) * z[0] @ model.embedding.T).numpy()
    total, wanted = 0.0, np.zeros((length, size))
    for ids in itertools.product(range(size), repeat=length):
        if automaton.accepts(ids):
            p = np.exp(model.log_p_text(ids) + sum(emission[k, v] for k, v in enumerate(ids)))
            total += p
            for k, v in enumerate(ids):
                wanted[k, v] += p
    probs = logits.softmax(-1)[0]
    mass, token = probs.numpy(), np.tile(np.arange(size, dtype=np.int32), (length, 1))
    sizes, moves = np.full(length, size, np.int32), np.empty((length - 1, size, size))
    pairs = bigrams_of(np.maximum(ratio, 1e-12))
    chain_kernels.couplings(
        mass, token, sizes, pairs.first, pairs.successor, pairs.ratio, pairs.unseen, 2000, moves
    )
    given = np.empty((length, size))
    chain_kernels.chain_marginals(
        mass,
        automaton.class_of[token],
        sizes,
        moves,
        automaton.next,
        0,
        automaton.accepting,
        automaton.live(length),
        given,
    )
    assert np.allclose(given, wanted / total, atol=1e-4)
    independent = acceptance(logits, automaton, logits=True).marginals[0].numpy()
    assert not np.allclose(independent, wanted / total, atol=1e-2)  # what the chain repairs


def _letters() -> Tokenizer:

    tokenizer = word_tokenizer(["a", "b", "c"])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Pattern("."), "isolated")
    return tokenizer


def test_couplings_have_the_model_s_marginals() -> None:
    probs = random_logits(5, 1, 6).softmax(-1)[0].numpy()
    token = np.tile(np.arange(V, dtype=np.int32), (6, 1))
    pairs, moves = bigrams_of(random_ratio(6)), np.empty((5, V, V))
    chain_kernels.couplings(
        probs, token, np.full(6, V, np.int32), pairs.first, pairs.successor, pairs.ratio, pairs.unseen, 300, moves
    )
    for k in range(5):
        assert np.allclose(moves[k].sum(axis=1), 1.0)
        assert np.allclose(probs[k] @ moves[k], probs[k + 1], atol=1e-6)


def test_the_rest_of_a_class_stands_for_its_tokens() -> None:
    """With few candidates the others of a class share its marginal in proportion to their probability."""
    automaton = automaton_of("(a|b)*ab", "eos")
    logits = random_logits(7, 1, 4)
    few = chain_acceptance(logits, [automaton], bigrams_of(np.ones((V, V))), candidates=1)
    wanted = acceptance(logits, automaton, logits=True).marginals
    assert torch.allclose(few.marginals, wanted, atol=1e-3)


def test_counts_are_discounted_and_go_to_pairs_that_were_not_seen() -> None:
    documents = [[1, 2], [1, 2], [1, 3], [2]]
    pairs = Bigrams.count(documents, vocab_size=4, eos=0)
    follows = {(1, 2): 2, (1, 3): 1}
    after = {0: 8, 2: 2, 3: 1}  # eos follows every document, and itself
    share = np.array([after.get(v, 0) + 0.75 for v in range(4)])
    share /= share.sum()
    for (a, b), count in follows.items():
        assert pairs.of(a, b) == pytest.approx((count - 0.75) / (3 * share[b]) + 2 * 0.75 / 3)
    assert pairs.of(1, 1) == pytest.approx(2 * 0.75 / 3)
    rare = Bigrams.count(documents, vocab_size=4, eos=0, smallest=2)
    assert rare.of(1, 3) == rare.of(1, 1)


def test_arrays_that_do_not_fit_are_refused() -> None:
    pairs = Bigrams.count([[1, 2], [2, 1]], vocab_size=3, eos=0)
    first = pairs.first.copy()
    first[1:] += 1
    with pytest.raises(InvalidArgument, match="do not fit"):
        Bigrams(first, pairs.successor, pairs.ratio, pairs.unseen)
    tensors = pairs.tensors()
    tensors["bigrams.successor"][:] = 7
    with pytest.raises(CheckpointError, match="bigrams"):
        Bigrams.from_tensors(tensors)


def test_a_model_s_file_has_its_bigrams(tmp_path: Path) -> None:
    model = dy.fit_markov(["the cat sat.", "the dog ran."])
    model.save_pretrained(tmp_path)
    again = dy.load(tmp_path)
    assert isinstance(again, dy.MarkovLM)
    assert again.bigrams is not None
    assert model.bigrams is not None
    assert np.array_equal(again.bigrams.successor, model.bigrams.successor)
    assert np.allclose(again.bigrams.ratio, model.bigrams.ratio, rtol=1e-2)


def test_chain_guidance_writes_what_is_asked_for_with_particles_too() -> None:
    model = dy.fit_markov(["the cat sat on the mat.", "the dog sat on the rug.", "a dog ran home."])
    constraint = dy.Regex(".*dog.*") & ~dy.Regex(".*rug.*")
    for particles in (None, 2):
        texts = dy.generate(
            model, constraint, n=3, length=12, num_inference_steps=8, guidance="chain", particles=particles
        )
        assert all("dog" in generated.text and "rug" not in generated.text for generated in texts)


def test_a_sample_does_not_depend_on_its_batch() -> None:
    model = dy.fit_markov(["the cat sat on the mat.", "the dog sat on the rug.", "a dog ran home."])
    write = dy.Generator(model, dy.Regex(".*dog.*"), length=12, num_inference_steps=8, guidance="chain")
    assert [generated.text for generated in write(4, seed=3)][:1] == [
        generated.text for generated in write(1, seed=3)
    ]


def test_a_model_without_bigrams_is_refused_by_name() -> None:
    model = dy.fit_markov(["the cat sat."])
    model.bigrams = None
    with pytest.raises(
        InvalidArgument, match=r"MarkovLM has none: count them with model\.bigrams = dy\.fit_bigrams"
    ):
        dy.Generator(model, dy.Regex("the.*"), guidance="chain")

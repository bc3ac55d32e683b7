"""Strings that are decided in part, against enumeration."""

from __future__ import annotations

from collections import Counter
from itertools import product
from unittest import mock

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import diffinity as dy
from diffinity.acceptance import classes
from diffinity.acceptance.partial import OPEN, PartialString
from diffinity.alignment import TokenAutomaton

VOCABULARY = dy.Vocabulary([b"a", b"b", b"c", b"ab", None], eos_id=4)
PATTERNS = ["ab|ba", "a*b", "(ab|c)*", "[ab]*c[ab]*", "a?b?c?"]
LENGTH, SIZE = 4, 5
Masses = dict[tuple[int, ...], float]


class Case:
    """Random logits, some positions decided, and the mass of every accepted string that agrees with these."""

    def __init__(self, pattern: str, seed: int, scale: float = 2.0) -> None:
        rng = np.random.default_rng(seed)
        self.automaton: TokenAutomaton = dy.align(dy.Regex(pattern), VOCABULARY)
        accepted = [ids for ids in product(range(SIZE), repeat=LENGTH) if self.automaton.accepts(ids)]
        self.logits = torch.from_numpy(scale * rng.standard_normal((LENGTH, SIZE)))
        self.tokens = torch.full((LENGTH,), OPEN)
        decided = rng.permutation(LENGTH)[: rng.integers(0, 3)]
        example = accepted[rng.integers(len(accepted))]
        for k in decided:
            self.tokens[k] = example[k]
        self.string = PartialString.of(self.logits[self.tokens == OPEN], self.tokens, self.automaton)
        self.probs = self.logits.softmax(-1)
        self.masses: Masses = {
            ids: float(np.prod([float(self.probs[k, ids[k]]) for k in self.string.at]))
            for ids in accepted
            if all(t in (OPEN, ids[k]) for k, t in enumerate(self.tokens.tolist()))
        }
        self.total = sum(self.masses.values())

    def marginals(self) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        q = np.zeros((LENGTH, SIZE))
        for ids, mass in self.masses.items():
            q[range(LENGTH), ids] += mass / self.total
        return q[self.string.at]


CASES = [(pattern, seed) for pattern in PATTERNS for seed in range(4)]


@pytest.mark.parametrize(("pattern", "seed"), CASES)
def test_probability_marginals_and_best_string_are_those_of_enumeration(pattern: str, seed: int) -> None:
    case = Case(pattern, seed)
    assert case.string.log_p_language == pytest.approx(np.log(case.total), abs=1e-9)
    np.testing.assert_allclose(case.string.marginals(), case.marginals(), atol=1e-9)
    np.testing.assert_allclose(case.string.confidence, case.marginals().max(axis=1), atol=1e-9)
    best = max(case.masses, key=lambda ids: case.masses[ids])
    assert case.string.best().tolist() == [best[k] for k in case.string.at]


@pytest.mark.parametrize(("pattern", "seed"), CASES)
def test_what_tokens_leave_of_the_probability(pattern: str, seed: int) -> None:
    case = Case(pattern, seed)
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(case.string.at))[:2]
    example = list(case.masses)[rng.integers(len(case.masses))]
    ids = np.array([example[case.string.at[m]] for m in chosen])
    agreeing = sum(
        mass
        for other, mass in case.masses.items()
        if all(other[case.string.at[m]] == i for m, i in zip(chosen, ids, strict=True))
    )
    own = np.prod([float(case.probs[case.string.at[m], i]) for m, i in zip(chosen, ids, strict=True)])
    assert case.string.log_p_language_given(chosen, ids) == pytest.approx(np.log(agreeing / own), abs=1e-9)
    assert case.string.can_complete(chosen, ids)


@pytest.mark.parametrize(("pattern", "seed"), CASES[::4])
def test_whether_tokens_can_be_completed(pattern: str, seed: int) -> None:
    case = Case(pattern, seed)
    chosen = np.arange(min(2, len(case.string.at)))
    for ids in product(range(SIZE), repeat=len(chosen)):
        possible = any(
            all(other[case.string.at[m]] == i for m, i in zip(chosen, ids, strict=True)) for other in case.masses
        )
        assert case.string.can_complete(chosen, np.array(ids, np.int64)) == possible


@pytest.mark.parametrize(("pattern", "seed"), [("(ab|c)*", 3), ("[ab]*c[ab]*", 1), ("a*b", 0)])
def test_joint_draws_have_the_distribution_given_acceptance(pattern: str, seed: int) -> None:
    case = Case(pattern, seed, scale=1.0)
    everywhere = np.arange(len(case.string.at))
    numbers = np.random.default_rng(seed).random((4000, 3 * LENGTH + 1))
    seen = Counter(tuple(case.string.draw(everywhere, row).tolist()) for row in numbers)
    expected = {tuple(ids[k] for k in case.string.at): mass / case.total for ids, mass in case.masses.items()}
    assert set(seen) <= set(expected)
    likely = {ids: share for ids, share in expected.items() if share * 4000 >= 5}
    counts = [seen[ids] for ids in likely]
    shares = np.array(list(likely.values()))
    assert chisquare(counts, shares / shares.sum() * sum(counts)).pvalue > 1e-3


def test_tokens_whose_probabilities_have_vanished_are_drawn_from_their_logits() -> None:
    automaton = dy.align(dy.Regex("[bc]"), dy.Vocabulary([b"a", b"b", b"c"]), "exact")
    string = PartialString.of(torch.tensor([[0.0, -300.0, -301.0]]), torch.tensor([OPEN]), automaton)
    assert string.log_p_language == pytest.approx(-300 + np.log1p(np.exp(-1)))
    draws = np.random.default_rng(0).random((2000, 4))
    share = np.mean([string.draw(np.array([0]), row)[0] == 1 for row in draws])
    assert share == pytest.approx(1 / (1 + np.exp(-1)), abs=0.04)


@pytest.mark.parametrize(("pattern", "seed"), CASES[::5])
def test_on_a_device_everything_is_that_of_enumeration_too(pattern: str, seed: int) -> None:
    case, compiled = Case(pattern, seed), Case(pattern, seed).string.best()
    with mock.patch.object(classes, "_reduce", classes._reduce_on_device):
        assert case.string.log_p_language == pytest.approx(np.log(case.total), abs=1e-9)
        np.testing.assert_allclose(case.string.marginals(), case.marginals(), atol=1e-9)
        np.testing.assert_allclose(case.string.confidence, case.marginals().max(axis=1), atol=1e-9)
        assert case.string.best().tolist() == compiled.tolist()

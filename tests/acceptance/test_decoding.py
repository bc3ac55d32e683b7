"""Decoding against enumeration: the best string, the k best, and the frequencies of draws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import diffinity as dy
from diffinity.acceptance import acceptance, decode, path_acceptance, top
from diffinity.alignment import Framing, align
from diffinity.constraints import Regex
from diffinity.errors import InfeasibleConstraint
from tests.acceptance.laws import CASES, VOCABULARY, automaton_of, enumerate_strings, random_logits

FEASIBLE = [case for case in CASES if automaton_of(*case).feasible(4)]


@pytest.mark.parametrize(("pattern", "framing"), FEASIBLE)
def test_the_best_string_is_the_maximum_over_all(pattern: str, framing: Framing) -> None:
    automaton = automaton_of(pattern, framing)
    logits = random_logits(11, 3, 4)
    found = decode(logits, automaton, "best", logits=True)
    for i, probs in enumerate(logits.softmax(-1)):
        ids, p = max(enumerate_strings(probs, automaton), key=lambda item: item[1])
        assert tuple(found.tokens[i].tolist()) == ids
        assert float(found.log_p_text[i].exp()) == pytest.approx(p, rel=1e-9)


@pytest.mark.parametrize(("pattern", "framing"), FEASIBLE)
def test_the_k_best_are_those_of_sorting_all(pattern: str, framing: Framing) -> None:
    automaton = automaton_of(pattern, framing)
    logits = random_logits(12, 1, 4)
    wanted = sorted(enumerate_strings(logits.softmax(-1)[0], automaton), key=lambda item: -item[1])[:7]
    found = top(logits, automaton, 7, logits=True)[0]
    assert [tuple(ids) for _, ids in found] == [ids for ids, _ in wanted]
    assert np.exp([value for value, _ in found]) == pytest.approx([p for _, p in wanted], rel=1e-9)


@pytest.mark.parametrize(("pattern", "framing"), [("[ab]*c", "eos"), ("a|ab|abc", "eos"), ("(ab)+", "search")])
def test_draws_have_the_posterior_s_frequencies(pattern: str, framing: Framing) -> None:
    automaton = automaton_of(pattern, framing)
    logits = random_logits(13, 1, 4, spread=1.0)
    strings = dict(enumerate_strings(logits.softmax(-1)[0], automaton))
    total = sum(strings.values())
    n = 4000
    drawn = decode(logits.expand(n, -1, -1), automaton, "sample", logits=True, seed=1).tokens
    counts = dict.fromkeys(strings, 0)
    for ids in drawn.tolist():
        counts[tuple(ids)] += 1
    expected = np.array([strings[ids] / total * n for ids in strings])
    observed = np.array([counts[ids] for ids in strings])
    large = expected >= 5
    observed = np.append(observed[large], observed[~large].sum())
    expected = np.append(expected[large], expected[~large].sum() + 1e-9)
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3


def test_a_draw_does_not_depend_on_its_neighbours() -> None:
    automaton = automaton_of("[ab]*c", "eos")
    logits = random_logits(14, 4, 5)
    whole = decode(logits, automaton, "sample", logits=True, seed=3).tokens
    assert torch.equal(decode(logits[:2], automaton, "sample", logits=True, seed=3).tokens, whole[:2])


def test_every_decoded_string_is_in_the_language_even_against_certainty() -> None:
    """Distributions that are sure of something else entirely."""
    automaton = automaton_of("(ab)+", "eos_strict")
    probs = torch.zeros(1, 4, 6)
    probs[:, :, 4] = 1.0
    for how in ("best", "sample"):
        assert automaton.accepts(decode(probs, automaton, how).tokens[0].tolist())


def test_argmax_is_argmax() -> None:
    logits = random_logits(15, 2, 5)
    assert torch.equal(
        decode(logits, automaton_of("a*", "exact"), "argmax", logits=True).tokens, logits.argmax(-1)
    )


def test_an_impossible_length_names_the_shortest_that_would_do() -> None:
    with pytest.raises(
        InfeasibleConstraint, match="no sequence of 2 tokens satisfies the constraint: the shortest has 3"
    ):
        decode(random_logits(0, 1, 2), align(Regex("ccc"), VOCABULARY, "exact"), logits=True)


def test_an_unknown_way_to_decode_is_refused() -> None:
    with pytest.raises(dy.InvalidArgument, match="how must be"):
        decode(random_logits(0, 1, 2), automaton_of("a*", "exact"), "beam")  # type: ignore[arg-type]


def state_paths(pattern: str, framing: Framing, probs: torch.Tensor) -> dict[tuple[int, ...], float]:
    """The probability of every accepted path of states, by enumeration of strings."""
    automaton = automaton_of(pattern, framing)
    paths: dict[tuple[int, ...], float] = {}
    for ids, p in enumerate_strings(probs, automaton):
        state, path = 0, [0]
        for v in ids:
            state = int(automaton.next[state, automaton.class_of[v]])
            path.append(state)
        paths[tuple(path)] = paths.get(tuple(path), 0.0) + p
    return paths


@pytest.mark.parametrize(("pattern", "framing"), FEASIBLE)
def test_path_marginals_are_p_along_the_most_probable_path_of_states(pattern: str, framing: Framing) -> None:
    automaton = automaton_of(pattern, framing)
    logits = random_logits(16, 1, 4)
    probs = logits.softmax(-1)[0]
    path, share = max(state_paths(pattern, framing, probs).items(), key=lambda item: item[1])
    found = path_acceptance(logits, automaton, logits=True)
    assert float(found.log_p_language.exp()) == pytest.approx(share, rel=1e-9)
    for k in range(4):
        moves = torch.tensor([int(automaton.next[path[k], c]) == path[k + 1] for c in automaton.class_of])
        wanted = probs[k] * moves
        assert torch.allclose(found.marginals[0, k], wanted / wanted.sum(), atol=1e-12)


def test_sampled_paths_average_to_the_marginals() -> None:
    automaton = automaton_of("[ab]*c", "eos")
    logits = random_logits(17, 1, 4, spread=1.0)
    wanted = acceptance(logits, automaton, logits=True).marginals[0]
    drawn = path_acceptance(logits.expand(4000, -1, -1), automaton, logits=True, seed=0).marginals.mean(0)
    assert torch.allclose(drawn, wanted, atol=0.03)

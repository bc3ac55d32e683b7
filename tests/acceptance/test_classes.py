"""Logits by class against the programme over tokens: the same probabilities, strings and draws."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from scipy import stats

from diffinity.acceptance import acceptance, classes, decode
from diffinity.acceptance.classes import Choice, best_string, class_scores, draw_string, log_ratios, shift_tokens
from diffinity.alignment import Framing, TokenAutomaton
from diffinity.constraints import Regex
from diffinity.integrations.texts import generation_automaton
from tests.acceptance.laws import CASES, VOCABULARY, automaton_of, enumerate_strings, random_logits

FEASIBLE = [case for case in CASES if automaton_of(*case).feasible(4)]


@pytest.fixture(params=["compiled", "torch"])
def device_code(request: pytest.FixtureRequest) -> Any:
    """The code for other devices, run on the CPU, beside the compiled loops."""
    if request.param == "compiled":
        yield
    else:
        with mock.patch.object(classes, "_reduce", classes._reduce_on_device):
            yield


@pytest.mark.usefixtures("device_code")
@pytest.mark.parametrize(("pattern", "framing"), FEASIBLE)
@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_probability_marginals_and_best_string_are_those_over_tokens(
    pattern: str, framing: Framing, temperature: float
) -> None:
    automaton, logits = automaton_of(pattern, framing), random_logits(31, 1, 4)[0]
    scores = class_scores(logits, automaton, temperature=temperature)
    log_p_language, ratios = log_ratios(scores, automaton)
    wanted = acceptance(logits[None] / temperature, automaton, logits=True)
    assert log_p_language == pytest.approx(float(wanted.log_p_language), rel=1e-9)
    assert ratios is not None
    out = torch.empty_like(logits)
    shift_tokens(logits, automaton, temperature * ratios, out)
    assert torch.allclose((out / temperature).softmax(-1), wanted.marginals[0], atol=1e-12)
    best = decode(logits[None] / temperature, automaton, logits=True).tokens[0]
    assert best_string(scores, automaton).tolist() == best.tolist()


@pytest.mark.usefixtures("device_code")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_underflows_and_impossible_tokens_are_taken_only_as_the_last_resort(dtype: torch.dtype) -> None:
    automaton = automaton_of("[ab]*c", "eos")
    logits = random_logits(32, 1, 4, spread=300.0)[0].to(dtype)
    logits[1, 2] = -torch.inf
    scores = class_scores(logits, automaton, temperature=0.4)
    wanted = acceptance(logits[None].double() / 0.4, automaton, logits=True)
    assert log_ratios(scores, automaton)[0] == pytest.approx(float(wanted.log_p_language), rel=1e-6)
    logits[:, :] = -torch.inf
    logits[:, 5] = 0.0  # sure of nothing but end tokens, which alone are no text of the language
    scores = class_scores(logits, automaton)
    assert log_ratios(scores, automaton) == (-np.inf, None)
    assert automaton.accepts(best_string(scores, automaton).tolist())
    assert automaton.accepts(draw_string(scores, automaton, logits, np.random.default_rng(0)).tolist())


def settled(
    probs: torch.Tensor, automaton: TokenAutomaton, choices: dict[int, Choice]
) -> dict[tuple[int, ...], float]:
    """The accepted strings of probs (L, V) that hold only chosen tokens at the settled positions."""
    strings = {}
    for ids, p in enumerate_strings(torch.ones_like(probs), automaton):
        p = 1.0
        for k, v in enumerate(ids):
            if k in choices:
                at = np.flatnonzero(choices[k].tokens == v)
                p *= float(np.exp(choices[k].log_weights[at[0]])) if len(at) else 0.0
            else:
                p *= float(probs[k, v])
        if p:
            strings[ids] = p
    return strings


@pytest.mark.parametrize(("pattern", "framing"), [("[ab]*c", "eos"), ("(a|b)*ab", "search"), ("(ab)+", "eos")])
def test_settled_positions_hold_their_tokens(pattern: str, framing: Framing) -> None:
    automaton, logits = automaton_of(pattern, framing), random_logits(33, 1, 4, spread=1.0)[0]
    choices = {1: Choice(np.array([1, 2, 5]), np.log([0.5, 0.2, 0.3])), 3: Choice.of(5)}
    strings = settled(logits.softmax(-1), automaton, choices)
    scores = class_scores(logits, automaton, choices=choices)
    assert log_ratios(scores, automaton)[0] == pytest.approx(np.log(sum(strings.values())), rel=1e-9)
    assert tuple(best_string(scores, automaton)) == max(strings, key=strings.__getitem__)
    n, rng = 3000, np.random.default_rng(0)
    counts = dict.fromkeys(strings, 0)
    for _ in range(n):
        counts[tuple(draw_string(scores, automaton, logits, rng).tolist())] += 1
    expected = np.array([p / sum(strings.values()) * n for p in strings.values()])
    observed, large = np.array(list(counts.values())), expected >= 5
    observed = np.append(observed[large], observed[~large].sum())
    expected = np.append(expected[large], expected[~large].sum() + 1e-9)
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3


@pytest.mark.usefixtures("device_code")
def test_tokens_that_stand_only_after_the_end_need_not_be_looked_at() -> None:
    """With many such tokens their class is what the others leave; the programme gives the same."""
    exact = automaton_of("a|ab|abc", "exact")
    automaton = generation_automaton(exact, 40, ends=(5,))
    assert automaton.outside not in automaton.segments[2]
    assert automaton.outside >= 0
    logits = 3 * torch.randn(6, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for k in range(6):
        logits[k, 10 + k] = 5.0 * (k % 2)
    scores = class_scores(logits, automaton)
    wanted = acceptance(logits[None], automaton, logits=True)
    log_p_language, ratios = log_ratios(scores, automaton)
    assert log_p_language == pytest.approx(float(wanted.log_p_language), rel=1e-9)
    assert ratios is not None
    out = torch.empty_like(logits)
    shift_tokens(logits, automaton, ratios, out)
    assert torch.allclose(out.softmax(-1), wanted.marginals[0], atol=1e-9)
    best = decode(logits[None], automaton, logits=True).tokens[0]
    assert best_string(scores, automaton).tolist() == best.tolist()


def test_states_that_accept_whatever_comes_are_found() -> None:
    automaton = generation_automaton(automaton_of("[ab]*c", "exact"), 7, ends=(5,))
    done = automaton.state_after([4, 5])
    assert automaton.free.tolist() == [s == done for s in range(automaton.n_states)]
    everything = generation_automaton(automaton_of(".*", "exact"), 6, ends=(5,))
    assert everything.free.all()
    assert not generation_automaton(automaton_of(".*", "exact"), 7, ends=(5,)).free[0]  # token 6 spells nothing
    assert Regex(".*").accepts("abc")
    assert len(VOCABULARY) == 6

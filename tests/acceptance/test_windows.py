"""Windows: a stretch of a text from one state to those that can still finish, against enumeration."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import diffinity as dy
from diffinity.acceptance import Backend, acceptance, decode, mean_acceptance, path_acceptance, top
from diffinity.alignment import Framing, TokenAutomaton
from tests.acceptance.laws import CASES, VOCABULARY, automaton_of, random_logits

BACKENDS: tuple[Backend, ...] = ("numba", "torch")
LENGTH = 3  # of the window
Strings = dict[tuple[int, ...], float]


def fits(automaton: TokenAutomaton, before: tuple[int, ...], ids: tuple[int, ...], after: int) -> bool:
    """Whether before + ids can be completed to an accepted string by exactly `after` tokens."""
    endings = itertools.product(range(automaton.vocab_size), repeat=after)
    return any(automaton.accepts((*before, *ids, *ending)) for ending in endings)


def windows_of(pattern: str, framing: Framing) -> list[tuple[tuple[int, ...], int]]:
    """What stands before the window and how many tokens come after it: for every state the first string to it."""
    automaton = automaton_of(pattern, framing)
    seen: dict[int, tuple[int, ...]] = {}
    for n in range(3):
        for before in itertools.product(range(automaton.vocab_size), repeat=n):
            seen.setdefault(automaton.state_after(before), before)
    seen.pop(-1, None)
    return [(before, after) for before in seen.values() for after in (0, 1, 2)]


def accepted(probs: torch.Tensor, automaton: TokenAutomaton, before: tuple[int, ...], after: int) -> Strings:
    return {
        ids: float(torch.stack([probs[k, v] for k, v in enumerate(ids)]).prod())
        for ids in itertools.product(range(automaton.vocab_size), repeat=LENGTH)
        if fits(automaton, before, ids, after)
    }


@pytest.mark.parametrize(("pattern", "framing"), [case for case in CASES if case[1] in ("exact", "eos")])
def test_probability_marginals_and_best_string_of_a_window_are_those_of_enumeration(
    pattern: str, framing: Framing
) -> None:
    automaton, cases = automaton_of(pattern, framing), windows_of(pattern, framing)
    windows = [automaton.window(automaton.state_after(before), after) for before, after in cases]
    logits = random_logits(21, len(cases), LENGTH)
    strings = [accepted(probs, automaton, *case) for probs, case in zip(logits.softmax(-1), cases, strict=True)]
    some = [i for i, texts in enumerate(strings) if texts]
    for backend in BACKENDS:
        together = acceptance(logits, windows, logits=True, backend=backend)
        best = decode(logits[some], [windows[i] for i in some], logits=True, backend=backend)
        for i, texts in enumerate(strings):
            total = sum(texts.values())
            assert float(together.log_p_language[i].exp()) == pytest.approx(total, rel=1e-9, abs=1e-300)
            assert windows[i].feasible(LENGTH) == bool(texts)
            wanted = torch.zeros(LENGTH, automaton.vocab_size, dtype=torch.float64)
            for ids, p in texts.items():
                wanted[torch.arange(LENGTH), torch.tensor(ids)] += p / total
            if texts:
                assert torch.allclose(together.marginals[i], wanted, rtol=1e-9, atol=1e-12)
        for i, ids in zip(some, best.tokens.tolist(), strict=True):
            assert tuple(ids) == max(strings[i], key=strings[i].__getitem__)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("pattern", "framing"), [("[ab]*c", "eos"), ("(ab)+", "exact"), ("(aa|b)*", "eos_strict")]
)
def test_joint_draws_in_a_window_have_the_frequencies_of_enumeration(
    backend: Backend, pattern: str, framing: Framing
) -> None:
    automaton = automaton_of(pattern, framing)
    before, after, n = (0,), 2, 3000
    logits = random_logits(22, 1, LENGTH, spread=1.0)
    strings = accepted(logits.softmax(-1)[0], automaton, before, after)
    window = automaton.window(automaton.state_after(before), after)
    drawn = decode(logits.expand(n, -1, -1), window, "sample", logits=True, seed=4, backend=backend)
    counts = dict.fromkeys(strings, 0)
    for ids in drawn.tokens.tolist():
        counts[tuple(ids)] += 1
    expected = np.array([p / sum(strings.values()) * n for p in strings.values()])
    large = expected >= 5
    observed = np.array(list(counts.values()))
    observed = np.append(observed[large], observed[~large].sum())
    expected = np.append(expected[large], expected[~large].sum() + 1e-9)
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3
    log_p = logits.log_softmax(-1)[0]
    assert float(drawn.log_p_text[0]) == pytest.approx(
        float(log_p[torch.arange(LENGTH), drawn.tokens[0]].sum()), rel=1e-9
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_a_batch_may_be_windows_in_different_states(backend: Backend) -> None:
    automaton = automaton_of("(a|b)*ab", "eos")
    windows = [automaton.window(s, t) for s in range(automaton.n_states) for t in (0, 3)]
    logits = random_logits(23, len(windows), 4)
    together = acceptance(logits, windows, logits=True, backend=backend)
    for i, window in enumerate(windows):
        alone = acceptance(logits[i : i + 1], window, logits=True, backend=backend)
        assert torch.equal(together.log_p_language[i : i + 1], alone.log_p_language)
        assert torch.equal(together.marginals[i : i + 1], alone.marginals)


@pytest.mark.parametrize("backend", BACKENDS)
def test_blocks_drawn_one_after_the_other_make_an_accepted_text(backend: Backend) -> None:
    automaton = automaton_of("(aa|b)*", "eos_strict")
    for seed in range(20):
        text: list[int] = []
        for left in (4, 2, 0):
            window = automaton.window(automaton.state_after(text), left)
            logits = random_logits(100 * seed + left, 1, 2)
            text += decode(logits, window, "sample", logits=True, seed=seed, backend=backend).tokens[0].tolist()
        assert automaton.accepts(text)


def test_the_k_best_strings_of_a_window_are_those_of_sorting_all() -> None:
    automaton = automaton_of("[ab]*c", "eos")
    logits = random_logits(24, 1, LENGTH)
    strings = accepted(logits.softmax(-1)[0], automaton, (1,), 1)
    found = top(logits, automaton.window(automaton.state_after([1]), 1), 5, logits=True)[0]
    assert [tuple(ids) for _, ids in found] == sorted(strings, key=strings.__getitem__, reverse=True)[:5]


def test_the_mean_and_the_path_of_a_window_start_in_its_state() -> None:
    automaton = automaton_of("a|ab|abc", "exact")
    window = automaton.window(automaton.state_after([0]), 0)  # after "a"
    logits = random_logits(25, 1, 2)
    p, embedding = logits.softmax(-1), torch.eye(6, dtype=torch.float64)
    mean = mean_acceptance(logits, window, p.clone(), p @ embedding, embedding).mean
    assert torch.allclose(mean, acceptance(logits, window, logits=True).marginals)
    tokens = path_acceptance(logits, window, logits=True).marginals[0].argmax(-1).tolist()
    assert automaton.accepts([0, *tokens])


def test_a_window_with_accepting_states_of_the_caller_s_ends_in_them() -> None:
    automaton = automaton_of("(ab)+", "exact")
    after_a = automaton.state_after([0])
    accepting = np.zeros(automaton.n_states, np.bool_)
    accepting[after_a] = True
    window = automaton.window(0, accepting=accepting)
    for ids in itertools.product(range(5), repeat=3):
        assert window.accepts(ids) == bool(re.fullmatch(b"(ab)*a", VOCABULARY.spell(ids)))
    assert window.shortest() == [0]


def test_the_states_that_can_finish_are_those_of_enumeration() -> None:
    for pattern, framing in CASES:
        automaton = automaton_of(pattern, framing)
        for n in (0, 1, 2, 3, 200):
            found = automaton.finishing(n)
            for s in range(automaton.n_states):
                if n < 4:
                    strings = itertools.product(range(len(VOCABULARY)), repeat=n)
                    assert found[s] == any(automaton.window(s).accepts(ids) for ids in strings)
                else:
                    assert found[s] == bool(automaton.window(s).live(n)[0, s])


def test_a_window_out_of_reach_of_its_accepting_states_is_empty() -> None:
    automaton = automaton_of("a|ab|abc", "exact")
    end = automaton.state_after([0, 1, 4])
    assert end >= 0
    only_start = np.zeros(automaton.n_states, np.bool_)
    only_start[0] = True
    window = automaton.window(end, accepting=only_start)
    assert window.is_empty
    assert window.shortest() is None
    with pytest.raises(dy.InfeasibleConstraint, match="no token sequence of any length"):
        window.check_feasible(3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": -1}, "a window starts in a state from 0 to"),
        ({"start": 99}, "a window starts in a state from 0 to"),
        ({"start": 0, "tokens_after": -1}, "must not be negative"),
        ({"start": 0, "accepting": np.zeros(99, np.bool_)}, "accepting must be bool of shape"),
        ({"start": 0, "tokens_after": 1, "accepting": np.zeros(3, np.bool_)}, "not both"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(dy.InvalidArgument, match=message):
        automaton_of("(ab)+", "exact").window(**arguments)

"""What a loop is given: marginals given acceptance, an accepted argmax, tokens that can be completed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

import diffinity as dy
from diffinity.acceptance import acceptance
from diffinity.alignment import Framing, TokenAutomaton
from diffinity.integrations.canvas import constrain_logits
from diffinity.integrations.joint import Proposal, Settled, joint_tokens
from diffinity.integrations.texts import Texts, generation_automaton
from tests.acceptance.laws import PATTERNS, VOCABULARY, automaton_of, enumerate_strings, random_logits

WINDOWS: list[tuple[str, Framing]] = [(pattern, "exact") for pattern in PATTERNS]


def window_of(pattern: str, tokens_after: int = 0) -> TokenAutomaton:
    automaton = generation_automaton(automaton_of(pattern, "exact"), len(VOCABULARY), ends=(5,))
    return automaton.window(0, tokens_after)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_automaton_of_a_loop_is_the_text_up_to_an_end_token_or_the_limit(pattern: str) -> None:
    exact = automaton_of(pattern, "exact")
    automaton = generation_automaton(exact, 8, ends=(5, 6))  # token 7 is nothing
    for ids in itertools.product(range(8), repeat=3):
        ended = [i for i, v in enumerate(ids) if v in (5, 6)]
        text = ids[: ended[0]] if ended else ids
        assert automaton.accepts(ids) == (7 not in text and exact.accepts(text))


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_logits_are_the_log_marginals_of_the_tempered_model_but_for_the_raised_tokens(
    pattern: str, temperature: float
) -> None:
    window, logits = window_of(pattern, 1), random_logits(41, 2, 4)
    out = constrain_logits(logits, [window, None], temperature=temperature)
    assert torch.equal(out[1], logits[1])
    if torch.equal(out[0], logits[0]):  # accepted as it is
        return
    wanted = acceptance(logits[:1] / temperature, window, logits=True).marginals[0]
    ids = out[0].argmax(-1)
    rest = torch.ones_like(wanted, dtype=torch.bool).scatter_(1, ids[:, None], False)
    given_logits = (out[0] / temperature).masked_fill(~rest, -torch.inf).softmax(-1).nan_to_num()
    others = (wanted * rest) / (wanted * rest).sum(-1, keepdim=True)
    assert torch.allclose(given_logits, others.nan_to_num(), atol=1e-9)


@given(
    seed=st.integers(0, 10**6),
    length=st.integers(1, 9),
    pattern=st.sampled_from(PATTERNS),
    after=st.integers(0, 4),
    spread=st.sampled_from([0.0, 0.1, 2.0, 60.0]),
    temperature=st.sampled_from([0.01, 0.3, 1.0, 7.0]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
def test_the_argmax_is_accepted_also_after_a_division(
    seed: int, length: int, pattern: str, after: int, spread: float, temperature: float, dtype: torch.dtype
) -> None:
    window = window_of(pattern, after)
    if not window.feasible(length):
        return
    logits = random_logits(seed, 1, length, spread).to(dtype)
    out = constrain_logits(logits, [window], temperature=temperature)
    for divisor in (1.0, temperature, 0.4, 1.7):
        assert window.accepts((out[0] / divisor).argmax(-1).tolist())


def test_logits_that_allow_nothing_give_way_to_the_constraint() -> None:
    window = window_of("(ab)+")
    logits = torch.full((1, 4, 6), -torch.inf)
    logits[:, :, 4] = 0.0
    out = constrain_logits(logits, [window])
    assert window.accepts(out[0].argmax(-1).tolist())
    assert not out.isnan().any()


def test_rows_that_are_accepted_as_they_are_come_back_untouched() -> None:
    logits = torch.full((1, 3, 6), -30.0)
    logits[0, [0, 1, 2], [0, 1, 5]] = 0.0  # "a", "b", the end: sure of it
    assert constrain_logits(logits, [window_of("(a|b)*ab")]) is logits
    assert constrain_logits(logits, [window_of("(a|b){2,3}c")]) is not logits


# ---- joint draws


def draws(
    n: int, seed: int, greedy: bool, settled: Settled | None = None
) -> tuple[torch.Tensor, TokenAutomaton, torch.Tensor]:
    """n rows of tokens that were drawn independently, made joint ones."""
    window, logits = window_of("[ab]*c"), random_logits(42, 1, 4, spread=1.0)[0]
    probs = logits.softmax(-1)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.multinomial(probs.repeat(n, 1), 1, generator=generator).view(n, 4)
    confidence = probs[torch.arange(4), tokens]
    rng = np.random.default_rng(seed)
    free = Settled(tokens.numpy(), np.zeros((n, 4), np.bool_), np.zeros((n, 4), np.bool_))
    joint_tokens(
        lambda _: [Proposal(logits)],
        [window] * n,
        settled or free,
        tokens,
        confidence,
        None if greedy else lambda: rng,
    )
    return tokens, window, probs


def test_own_tokens_or_a_draw_are_together_a_draw_given_acceptance() -> None:
    """The model's tokens where they are accepted, a joint draw where not: frequencies are those of p given L."""
    n = 2500
    tokens, window, probs = draws(n, seed=1, greedy=False)
    strings = dict(enumerate_strings(probs, window))
    counts = dict.fromkeys(strings, 0)
    for ids in tokens.tolist():
        counts[tuple(ids)] += 1
    expected = np.array([p / sum(strings.values()) * n for p in strings.values()])
    observed, large = np.array(list(counts.values())), expected >= 5
    observed = np.append(observed[large], observed[~large].sum())
    expected = np.append(expected[large], expected[~large].sum() + 1e-9)
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3


def test_greedy_rows_become_the_best_string() -> None:
    tokens, window, probs = draws(50, seed=2, greedy=True)
    best = max(enumerate_strings(probs, window), key=lambda item: item[1])[0]
    own = [ids for ids in tokens.tolist() if tuple(ids) != best]
    assert all(window.accepts(ids) for ids in own)
    assert len(own) < 50


def test_settled_tokens_stay_unless_a_confident_edit_is_allowed() -> None:
    n, current = 200, [0, 1, 4, 5]  # "a", "b", "c", the end
    everywhere = np.ones((n, 4), np.bool_)
    tokens = np.tile(np.array(current), (n, 1))
    kept, _, _ = draws(n, 3, False, Settled(tokens, everywhere, everywhere, edit_above=1.0))
    changed, _, _ = draws(n, 3, False, Settled(tokens, everywhere, everywhere, edit_above=0.2))
    as_kept = np.where(kept.numpy() == tokens, kept.numpy(), tokens)
    assert (as_kept == tokens).all()
    effective = [row for row in changed.tolist() if row != current]
    assert len(effective) > 0


# ---- rows


def test_constraints_of_rows_and_their_copies() -> None:
    texts = Texts([dy.Regex("a+"), dy.Regex("b+")], VOCABULARY)
    rows = texts.rows(6, 6, None)
    assert [rows.window(i, [], 0).accepts([0]) for i in range(6)] == [True] * 3 + [False] * 3
    assert texts.rows(6, 6, None) is rows


@pytest.mark.parametrize(
    ("vocab_size", "ends", "message"),
    [(4, (3,), "the tokenizer has 6: they do not belong together"), (6, (9,), "the end token 9 is not a token")],
)
def test_logits_of_another_tokenizer_are_refused(vocab_size: int, ends: tuple[int, ...], message: str) -> None:
    with pytest.raises(dy.InvalidArgument, match=message):
        Texts(dy.Regex("[abc]+"), VOCABULARY).rows(1, vocab_size, ends)


def test_a_constraint_that_the_tokens_cannot_spell_is_refused_at_once() -> None:
    with pytest.raises(
        dy.InfeasibleConstraint, match="no sequence of this tokenizer's tokens satisfies constraint 1"
    ):
        Texts([dy.Regex("a"), dy.Regex("x")], VOCABULARY)


def test_a_row_that_left_its_constraint_is_reported() -> None:
    rows = Texts(dy.Regex("a+"), VOCABULARY).rows(1, 6, None)
    with pytest.raises(dy.InvalidArgument, match="row 0 has left its constraint after 2 tokens"):
        rows.window(0, [0, 1], 0)
    with pytest.raises(dy.InvalidArgument, match="row 0 holds a token outside the vocabulary of 6"):
        rows.window(0, [0, 17], 0)

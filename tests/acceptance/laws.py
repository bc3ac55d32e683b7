"""The laws that every backend of the dynamic programme must satisfy, against enumeration of all strings."""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from diffinity.acceptance import Backend, acceptance, log_acceptance
from diffinity.alignment import Framing, TokenAutomaton, Vocabulary, align
from diffinity.constraints import Regex

TOKENS = [b"a", b"b", b"ab", b"ba", b"c", None]
VOCABULARY = Vocabulary(TOKENS, eos_id=5)
PATTERNS = ["a*", "(ab)+", "[ab]*c", "a|ab|abc", "(a|b){2,3}", ".*", "b?a?b?", "(aa|b)*", "(a|b)*ab"]
CASES = [(pattern, framing) for pattern in PATTERNS for framing in ("exact", "eos", "eos_strict", "search")]


@lru_cache
def automaton_of(pattern: str, framing: Framing) -> TokenAutomaton:
    return align(Regex(pattern), VOCABULARY, framing)


def random_logits(seed: int, batch: int, length: int, spread: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(batch, length, len(TOKENS), generator=generator, dtype=torch.float64)


def enumerate_strings(probs: Tensor, automaton: TokenAutomaton) -> list[tuple[tuple[int, ...], float]]:
    """All accepted strings of one sample (L, V) with their probabilities."""
    length, vocab = probs.shape
    return [
        (ids, float(torch.stack([probs[k, v] for k, v in enumerate(ids)]).prod()))
        for ids in itertools.product(range(vocab), repeat=length)
        if automaton.accepts(ids)
    ]


class AcceptanceLaws:
    """Inherit with a `backend` and every law is checked for it."""

    backend: Backend

    @pytest.mark.parametrize(("pattern", "framing"), CASES)
    @pytest.mark.parametrize("length", [1, 3])
    def test_value_and_marginals_are_those_of_enumeration(
        self, pattern: str, framing: Framing, length: int
    ) -> None:
        automaton = automaton_of(pattern, framing)
        logits = random_logits(length, 2, length)
        found = acceptance(logits, automaton, logits=True, backend=self.backend)
        for i, probs in enumerate(logits.softmax(-1)):
            accepted = enumerate_strings(probs, automaton)
            total = sum(p for _, p in accepted)
            assert float(found.log_p_language[i].exp()) == pytest.approx(total, rel=1e-9, abs=1e-300)
            if total == 0:
                assert torch.allclose(found.marginals[i], probs)
                continue
            wanted = torch.zeros_like(probs)
            for ids, p in accepted:
                for k, v in enumerate(ids):
                    wanted[k, v] += p / total
            assert torch.allclose(found.marginals[i], wanted, rtol=1e-9, atol=1e-12)

    @given(seed=st.integers(0, 10**6), length=st.integers(1, 12), case=st.sampled_from(CASES))
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    def test_marginals_sum_to_one(self, seed: int, length: int, case: tuple[str, Framing]) -> None:
        found = acceptance(random_logits(seed, 1, length), automaton_of(*case), logits=True, backend=self.backend)
        assert torch.allclose(found.marginals.sum(-1), torch.ones(1, length, dtype=torch.float64), atol=1e-9)

    @given(seed=st.integers(0, 10**6), length=st.integers(1, 10), pattern=st.sampled_from(PATTERNS))
    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    def test_a_language_and_its_complement_share_all_the_mass(self, seed: int, length: int, pattern: str) -> None:
        logits = random_logits(seed, 1, length)
        logits[:, :, 5] = -torch.inf  # no end tokens: every other sequence spells some text
        inside, outside = (
            acceptance(
                logits, align(c, VOCABULARY, "exact"), logits=True, backend=self.backend
            ).log_p_language.exp()
            for c in (Regex(pattern), ~Regex(pattern))
        )
        assert float(inside + outside) == pytest.approx(1.0, abs=1e-9)

    @pytest.mark.parametrize(("pattern", "framing"), [case for case in CASES if automaton_of(*case).feasible(4)])
    def test_gradient_is_that_of_autograd_through_log_space_sums(self, pattern: str, framing: Framing) -> None:
        automaton = automaton_of(pattern, framing)
        logits = random_logits(7, 2, 4).requires_grad_()
        log_acceptance(logits, automaton, backend=self.backend).sum().backward()  # type: ignore[no-untyped-call]
        ours = logits.grad
        again = logits.detach().clone().requires_grad_()
        plain_log_space(again, automaton).sum().backward()  # type: ignore[no-untyped-call]
        assert ours is not None
        assert again.grad is not None
        assert torch.allclose(ours, again.grad, rtol=1e-9, atol=1e-9)

    def test_gradient_is_that_of_finite_differences(self) -> None:
        automaton = automaton_of("[ab]*c", "eos")
        logits = random_logits(3, 1, 4).requires_grad_()
        assert torch.autograd.gradcheck(
            lambda x: log_acceptance(x, automaton, backend=self.backend), (logits,), eps=1e-6, atol=1e-8
        )

    def test_samples_do_not_depend_on_their_batch(self) -> None:
        automaton = automaton_of("(ab)+", "eos")
        logits = random_logits(1, 5, 6)
        whole = acceptance(logits, automaton, logits=True, backend=self.backend)
        for i in range(5):
            alone = acceptance(logits[i : i + 1], automaton, logits=True, backend=self.backend)
            assert torch.equal(alone.log_p_language, whole.log_p_language[i : i + 1])
            assert torch.equal(alone.marginals, whole.marginals[i : i + 1])

    def test_different_automata_in_one_batch_are_as_one_by_one(self) -> None:
        automata = [automaton_of(pattern, "eos") for pattern in PATTERNS]
        logits = random_logits(2, len(automata), 6)
        together = acceptance(logits, automata, logits=True, backend=self.backend)
        for i, automaton in enumerate(automata):
            alone = acceptance(logits[i : i + 1], automaton, logits=True, backend=self.backend)
            assert torch.equal(together.log_p_language[i : i + 1], alone.log_p_language)
            assert torch.equal(together.marginals[i : i + 1], alone.marginals)

    def test_probabilities_give_what_their_logits_give(self) -> None:
        automaton = automaton_of("[ab]*c", "eos")
        logits = random_logits(4, 3, 5)
        by_logits = acceptance(logits, automaton, logits=True, backend=self.backend)
        by_probs = acceptance(logits.softmax(-1), automaton, backend=self.backend)
        assert torch.allclose(by_logits.log_p_language, by_probs.log_p_language, rtol=1e-12)
        assert torch.allclose(by_logits.marginals, by_probs.marginals, rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_log_probability_of_minus_ten_thousand_does_not_underflow(self, dtype: torch.dtype) -> None:
        """Fifty tokens that the model gives e^−200 each, among others that it gives nearly 1."""
        automaton = automaton_of("a*", "exact")
        logits = torch.zeros(1, 50, len(TOKENS), dtype=dtype)
        logits[:, :, 0] = -200.0
        logits[:, :, 1:] = torch.linspace(0, 1, len(TOKENS) - 1, dtype=dtype)
        found = acceptance(logits, automaton, logits=True, backend=self.backend)
        wanted = float(logits.double().log_softmax(-1)[0, :, 0].sum())
        assert wanted < -1e4
        assert float(found.log_p_language) == pytest.approx(wanted, rel=1e-6)
        assert torch.allclose(found.marginals[0, :, 0], torch.ones(50, dtype=dtype))
        assert torch.isfinite(found.marginals).all()

    def test_tokens_of_one_class_share_a_rescued_sum_in_proportion(self) -> None:
        automaton = align(Regex("[ab]*"), VOCABULARY, "exact")
        logits = torch.full((1, 3, len(TOKENS)), 0.0)
        logits[:, :, :4] = torch.tensor([-300.0, -301.0, -302.0, -330.0])
        found = acceptance(logits, automaton, logits=True, backend=self.backend)
        wanted = torch.tensor([-300.0, -301.0, -302.0, -330.0]).softmax(0)
        assert torch.allclose(found.marginals[0, 1, :4], wanted, rtol=1e-5)

    def test_impossible_is_minus_infinity_with_a_flag_and_no_gradient(self) -> None:
        automaton = automaton_of("(ab)+", "exact")
        logits = random_logits(5, 2, 1).requires_grad_()
        logits.data[:, :, 2] = -torch.inf  # one token, and it may not be "ab"
        found = acceptance(logits, automaton, logits=True, backend=self.backend)
        assert found.log_p_language.tolist() == [-np.inf, -np.inf]
        assert found.possible.tolist() == [False, False]
        log_acceptance(logits, automaton, backend=self.backend).exp().sum().backward()  # type: ignore[no-untyped-call]
        assert logits.grad is not None
        assert torch.equal(logits.grad.nan_to_num(nan=9.0), torch.zeros_like(logits.grad))

    def test_an_infeasible_length_is_impossible(self) -> None:
        found = acceptance(
            random_logits(0, 1, 2), align(Regex("c{3}"), VOCABULARY, "exact"), logits=True, backend=self.backend
        )
        assert not found.possible.any()


def plain_log_space(logits: Tensor, automaton: TokenAutomaton) -> Tensor:
    """The paper's Algorithm 1 as written: dense transition matrices in log space, for autograd."""
    log_p = logits.log_softmax(-1)
    states = automaton.n_states
    onto = torch.full((states, states, automaton.vocab_size), -torch.inf, dtype=logits.dtype)
    for s in range(states):
        for v in range(automaton.vocab_size):
            t = int(automaton.next[s, automaton.class_of[v]])
            if t >= 0:
                onto[s, t, v] = 0.0
    results = []
    for sample in log_p:
        alpha = torch.full((states,), -torch.inf, dtype=logits.dtype)
        alpha[0] = 0.0
        for row in sample:
            matrix = _logsumexp(onto + row, 2)
            alpha = _logsumexp(alpha[:, None] + matrix, 0)
        results.append(_logsumexp(alpha[torch.from_numpy(automaton.accepting.copy())], 0))
    return torch.stack(results)


def _logsumexp(x: Tensor, dim: int) -> Tensor:
    """logsumexp with a zero gradient, not NaN, where all is −inf."""
    peak = x.detach().amax(dim, keepdim=True)
    peak = torch.where(peak.isfinite(), peak, torch.zeros_like(peak))
    total = (x - peak).exp().sum(dim)
    return (
        torch.where(total > 0, total, torch.ones_like(total)).log()
        + peak.squeeze(dim)
        + torch.where(total > 0, 0.0, -torch.inf)
    )

"""The mean embedding and the gradient given acceptance, against marginals that the laws hold to enumeration."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import diffinity as dy
from diffinity.acceptance import (
    Acceptance,
    MeanAcceptance,
    acceptance,
    gradient_acceptance,
    mean_acceptance,
    path_acceptance,
)
from diffinity.acceptance.mean import plan_of
from diffinity.alignment import Framing, TokenAutomaton, Vocabulary, align
from diffinity.constraints import Regex
from tests.acceptance.laws import CASES, automaton_of, random_logits

PAIRS = sorted({bytes([65 + i, 65 + j]) for i in range(26) for j in range(26)})
LARGE = Vocabulary([*PAIRS, None], eos_id=len(PAIRS))
MOSTLY_ONE_CLASS = align(Regex("([A-Z][A-Z])*QQ[A-Z]{4,}"), LARGE, "eos")
MANY_CLASSES = align(Regex("(A[A-Z])*(B[A-M]|[C-H][N-Z])*([I-Z][A-Z])*"), LARGE, "eos")


def an_embedding(vocab: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(vocab, 5, generator=torch.Generator().manual_seed(1), dtype=dtype)


def marginals_of(
    logits: Tensor, automaton: TokenAutomaton | list[TokenAutomaton], path: bool, seed: int | None = None
) -> Acceptance:
    if path:
        return path_acceptance(logits, automaton, logits=True, seed=seed)
    return acceptance(logits, automaton, logits=True)


def mean_of(
    logits: Tensor,
    automaton: TokenAutomaton | list[TokenAutomaton],
    *,
    path: bool = False,
    seed: int | None = None,
) -> tuple[MeanAcceptance, Tensor, Tensor]:
    """What is tested, and the log probability and mean from the marginals."""
    embedding = an_embedding(logits.shape[2], logits.dtype)
    p = logits.softmax(dim=-1)
    wanted = marginals_of(logits, automaton, path, seed)
    found = mean_acceptance(logits, automaton, p, p @ embedding, embedding, path=path, seed=seed)
    return found, wanted.log_p_language, wanted.marginals @ embedding


@pytest.mark.parametrize(("pattern", "framing"), CASES)
@pytest.mark.parametrize(("path", "seed"), [(False, None), (True, None), (True, 3)])
@pytest.mark.parametrize("sharpness", [1.0, 20.0])
def test_the_mean_is_that_of_the_marginals(
    pattern: str, framing: Framing, path: bool, seed: int | None, sharpness: float
) -> None:
    logits = sharpness * random_logits(2, 3, 6)
    found, log_p_language, mean = mean_of(logits, automaton_of(pattern, framing), path=path, seed=seed)
    assert torch.allclose(found.log_p_language, log_p_language, rtol=1e-9, atol=1e-12)
    assert torch.allclose(found.mean, mean, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("automaton", [MOSTLY_ONE_CLASS, MANY_CLASSES], ids=["one class", "many classes"])
@pytest.mark.parametrize("sharpness", [0.1, 3.0, 300.0])
@pytest.mark.parametrize("path", [False, True])
def test_in_single_precision_nothing_is_lost(automaton: TokenAutomaton, sharpness: float, path: bool) -> None:
    logits = sharpness * random_logits_over(LARGE, 2, 21)
    found, log_p_language, mean = mean_of(logits, automaton, path=path)
    assert torch.allclose(found.log_p_language, log_p_language, rtol=1e-5, atol=1e-5)
    assert torch.allclose(found.mean, mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("pattern", "framing"), CASES)
@pytest.mark.parametrize(("path", "seed"), [(False, None), (True, None), (True, 3)])
@pytest.mark.parametrize("sharpness", [1.0, 20.0])
def test_the_gradient_is_that_of_the_marginals(
    pattern: str, framing: Framing, path: bool, seed: int | None, sharpness: float
) -> None:
    logits, automaton = sharpness * random_logits(2, 3, 6), automaton_of(pattern, framing)
    wanted = marginals_of(logits, automaton, path, seed)
    p = logits.softmax(dim=-1)
    found = gradient_acceptance(logits, automaton, p.clone(), path=path, seed=seed)
    assert torch.equal(found.log_p_language, wanted.log_p_language)
    assert torch.allclose(found.gradient, wanted.marginals - p, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sharpness", [0.1, 3.0, 300.0])
def test_in_single_precision_the_gradient_loses_nothing(sharpness: float) -> None:
    logits = sharpness * random_logits_over(LARGE, 2, 21)
    wanted = acceptance(logits, MOSTLY_ONE_CLASS, logits=True)
    p = logits.softmax(dim=-1)
    found = gradient_acceptance(logits, MOSTLY_ONE_CLASS, p.clone())
    assert torch.allclose(found.gradient, wanted.marginals - p, rtol=1e-5, atol=1e-6)


def test_where_the_largest_class_is_improbable_but_asked_for_q_is_made() -> None:
    """All of p on one token at places where it is forbidden: q/p of the others is far above any difference."""
    logits = random_logits_over(LARGE, 1, 12)
    logits[:, :4, PAIRS.index(b"QQ")] += 25.0
    automaton = align(Regex("[A-P][A-Z]" * 4 + "([A-Z][A-Z])*"), LARGE, "eos")
    found, log_p_language, mean = mean_of(logits, automaton)
    assert float(log_p_language) < -40
    assert torch.allclose(found.log_p_language, log_p_language, rtol=1e-5)
    assert torch.allclose(found.mean, mean, rtol=1e-4, atol=1e-5)


def test_each_sample_has_its_automaton_and_the_same_digits_in_every_batch() -> None:
    automata = [MOSTLY_ONE_CLASS, MANY_CLASSES, MOSTLY_ONE_CLASS]
    logits = random_logits_over(LARGE, 3, 16)
    together, _, mean = mean_of(logits, automata)
    assert torch.allclose(together.mean, mean, rtol=1e-4, atol=1e-5)
    for i, automaton in enumerate(automata):
        alone, _, _ = mean_of(logits[i : i + 1], automaton)
        assert torch.equal(alone.mean[0], together.mean[i])
        assert torch.equal(alone.log_p_language[0], together.log_p_language[i])


def test_what_is_impossible_leaves_the_mean_alone() -> None:
    found, log_p_language, mean = mean_of(random_logits_over(LARGE, 1, 2), MOSTLY_ONE_CLASS)
    assert float(found.log_p_language) == float(log_p_language) == -torch.inf
    assert torch.allclose(found.mean, mean)


def test_rows_of_another_or_a_changed_embedding_are_taken_anew() -> None:
    one, other = an_embedding(len(LARGE)), an_embedding(len(LARGE)) + 1

    def rows_are_those_of(embedding: Tensor) -> bool:
        plan = plan_of(MOSTLY_ONE_CLASS, embedding, 8)
        return torch.equal(plan.embedding, embedding[torch.from_numpy(plan.tokens.astype(int))])

    assert len(plan_of(MOSTLY_ONE_CLASS, one, 8).tokens) < len(LARGE) / 10
    assert all(rows_are_those_of(embedding) for embedding in (one, other, one))
    one *= 2
    assert rows_are_those_of(one)


@pytest.mark.parametrize("path", [False, True])
def test_half_precision_is_taken_too(path: bool) -> None:
    logits, embedding = random_logits_over(LARGE, 2, 8).bfloat16(), an_embedding(len(LARGE), torch.bfloat16)
    p = logits.softmax(dim=-1)
    wanted = marginals_of(logits, MOSTLY_ONE_CLASS, path)
    mean = mean_acceptance(logits, MOSTLY_ONE_CLASS, p, p @ embedding, embedding, path=path)
    assert torch.allclose(mean.mean.float(), (wanted.marginals.to(p) @ embedding).float(), atol=0.05)
    gradient = gradient_acceptance(logits, MOSTLY_ONE_CLASS, p.clone(), path=path)
    assert torch.allclose(gradient.gradient, wanted.marginals.to(p) - p, atol=0.01)


def test_shapes_that_do_not_go_together_are_refused() -> None:
    logits, embedding = torch.zeros(1, 3, 6), torch.zeros(6, 5)
    p = logits.softmax(-1)
    with pytest.raises(dy.InvalidArgument, match=r"must have the shapes .*\(1, 3, 5\).* but have .*\(1, 2, 5\)"):
        mean_acceptance(logits, automaton_of("a*", "eos"), p, torch.zeros(1, 2, 5), embedding)
    with pytest.raises(dy.InvalidArgument, match=r"must have the logits' shape \(1, 3, 6\), not \(1, 2, 6\)"):
        gradient_acceptance(logits, automaton_of("a*", "eos"), p[:, :2])


def test_a_plan_is_for_one_length() -> None:
    logits = random_logits_over(LARGE, 1, 20)
    for length in (20, 8, 20):
        found, log_p_language, mean = mean_of(logits[:, :length], MOSTLY_ONE_CLASS)
        assert torch.allclose(found.log_p_language, log_p_language, rtol=1e-5)
        assert torch.allclose(found.mean, mean, rtol=1e-4, atol=1e-5)


def test_a_plan_goes_with_its_automaton() -> None:
    automaton = replace(MOSTLY_ONE_CLASS)  # those that were aligned are kept elsewhere
    plan_of(automaton, an_embedding(len(LARGE)), 8)
    gone = weakref.ref(automaton)
    del automaton
    gc.collect()
    assert gone() is None


def test_an_automaton_without_a_large_class_keeps_all_tokens() -> None:
    letters = Vocabulary([bytes([97 + i]) for i in range(8)])
    plan = plan_of(align(Regex("abcdefgh"), letters, "exact"), an_embedding(8), 8)
    assert (plan.label, len(plan.tokens)) == (-1, 8)


@pytest.mark.parametrize(
    ("logits", "automata", "message"),
    [
        (
            torch.zeros(1, 3, 7),
            automaton_of("a*", "eos"),
            "the automaton is over 6 tokens, the distributions over 7",
        ),
        (torch.zeros(3, 6), automaton_of("a*", "eos"), r"expected floating distributions \(B, L, V\)"),
        (torch.zeros(1, 3, 6), [automaton_of("a*", "eos")] * 2, "2 automata for 1 samples"),
    ],
)
def test_what_does_not_fit_is_refused(
    logits: Tensor, automata: TokenAutomaton | list[TokenAutomaton], message: str
) -> None:
    embedding = an_embedding(logits.shape[-1], logits.dtype)
    with pytest.raises(dy.InvalidArgument, match=message):
        mean_acceptance(logits, automata, logits.softmax(-1), logits.softmax(-1) @ embedding, embedding)


def random_logits_over(vocabulary: Vocabulary, batch: int, length: int) -> Tensor:
    return torch.randn(batch, length, len(vocabulary), generator=torch.Generator().manual_seed(0))

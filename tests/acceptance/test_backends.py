"""Each backend under the laws, and the two against each other on a large vocabulary."""

from __future__ import annotations

import pytest
import torch

import diffinity as dy
from diffinity.acceptance import Backend, acceptance
from diffinity.alignment import Vocabulary, align
from diffinity.constraints import Regex
from diffinity.errors import ConstraintTooLarge
from diffinity.limits import use_limits
from tests.acceptance.laws import AcceptanceLaws, automaton_of, random_logits


class TestNumba(AcceptanceLaws):
    backend: Backend = "numba"


class TestTorch(AcceptanceLaws):
    backend: Backend = "torch"


def test_the_paper_s_worked_example() -> None:
    """c(a|u)t over single letters, with the distributions of the paper's figure: 0.7·(0.3 + 0.5)·0.5 = 0.28."""
    vocabulary = Vocabulary([b"c", b"a", b"u", b"t"])
    cat = align(Regex("c(a|u)t"), vocabulary, "exact")
    probs = torch.tensor([[[0.7, 0.1, 0.1, 0.1], [0.1, 0.3, 0.5, 0.1], [0.2, 0.2, 0.1, 0.5]]])
    assert float(acceptance(probs, cat).log_p_language.exp()) == pytest.approx(0.28, abs=1e-7)


def test_the_backends_agree_in_single_precision_on_many_tokens() -> None:
    tokens = sorted({bytes([65 + i % 26, 65 + j % 26]) for i in range(26) for j in range(26)})
    vocabulary = Vocabulary([*tokens, None], eos_id=len(tokens))
    automaton = align(Regex("([A-M][A-Z])*QQ[A-Z]+"), vocabulary, "eos")
    logits = 3 * torch.randn(2, 20, len(vocabulary), generator=torch.Generator().manual_seed(0))
    by_numba, by_torch = (acceptance(logits, automaton, logits=True, backend=b) for b in ("numba", "torch"))
    assert torch.allclose(by_numba.log_p_language, by_torch.log_p_language, rtol=1e-5)
    assert torch.allclose(by_numba.marginals, by_torch.marginals, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        (torch.zeros(3, 6), r"expected floating distributions \(B, L, V\)"),
        (torch.zeros(1, 3, 6, dtype=torch.long), "expected floating distributions"),
        (torch.zeros(1, 3, 7), "the automaton is over 6 tokens, the distributions over 7"),
    ],
)
def test_wrong_shapes_are_refused(probs: torch.Tensor, message: str) -> None:
    with pytest.raises(dy.InvalidArgument, match=message):
        acceptance(probs, automaton_of("a*", "exact"))


def test_a_list_of_another_length_is_refused() -> None:
    with pytest.raises(dy.InvalidArgument, match="2 automata for 3 samples"):
        acceptance(random_logits(0, 3, 2), [automaton_of("a*", "exact")] * 2)


def test_memory_is_foreseen_before_it_is_taken() -> None:
    with use_limits(memory_bytes=1000), pytest.raises(ConstraintTooLarge, match="memory_bytes"):
        acceptance(random_logits(0, 1, 50), automaton_of("(ab)+", "eos"), logits=True)

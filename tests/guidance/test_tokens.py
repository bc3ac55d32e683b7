"""PLAID's token guidance on a model whose conditionals are known."""

from __future__ import annotations

import math

import pytest
import torch

import diffinity as dy
from diffinity.guidance import TokenGuidance, TokenTarget, infill, prefix
from diffinity.guidance.tokens import log1mexp
from tests.models.test_markov import LENGTH, small_model, word_tokenizer


def share(samples: torch.Tensor, position: int, token: int) -> float:
    return float((samples[:, position] == token).float().mean())


def test_a_position_is_steered_to_its_token() -> None:
    model = small_model()
    guidance = TokenGuidance([TokenTarget(3, 2.0, 1)])
    plain, guided = (
        dy.sample(model, n=100, length=LENGTH, num_inference_steps=60, guidance=g).tokens for g in (None, guidance)
    )
    assert share(plain, 1, 3) < 0.6
    assert share(guided, 1, 3) > 0.9


def test_any_brings_the_token_in_somewhere() -> None:
    model = small_model()
    guidance = TokenGuidance([TokenTarget(3, 3.0, "any")])
    plain, guided = (
        dy.sample(model, n=100, length=LENGTH, num_inference_steps=60, guidance=g).tokens for g in (None, guidance)
    )
    assert float((guided == 3).any(dim=1).float().mean()) > float((plain == 3).any(dim=1).float().mean()) + 0.1


def test_complement_at_all_positions_keeps_the_token_out() -> None:
    model = small_model()
    guidance = TokenGuidance([TokenTarget(3, 4.0, "all", complement=True)])
    guided = dy.sample(model, n=100, length=LENGTH, num_inference_steps=60, guidance=guidance).tokens
    assert float((guided == 3).any(dim=1).float().mean()) < 0.1


def test_prefix_and_infill_put_tokens_where_they_belong() -> None:
    tokenizer = word_tokenizer()
    assert [(t.token, t.position) for t in prefix(tokenizer, "a b").targets] == [(1, 0), (2, 1)]
    assert [(t.token, t.position) for t in infill(tokenizer, "a", 2, "c b").targets] == [(1, 0), (3, 3), (2, 4)]


@pytest.mark.parametrize("p", [1e-12, 1e-3, 0.3, 0.5, 0.7, 0.999])
def test_log1mexp_is_log_of_one_minus_p(p: float) -> None:
    found = log1mexp(torch.tensor(math.log(p), dtype=torch.float64))
    assert float(found) == pytest.approx(math.log1p(-p), rel=1e-9)


def test_log1mexp_has_a_finite_gradient_at_both_ends() -> None:
    log_p = torch.tensor([0.0, -1e-9, -0.5, -800.0], requires_grad=True)
    log1mexp(log_p).sum().backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(log_p.grad).all()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (TokenTarget(99, 1.0, 0), "token 99 is not in the vocabulary"),
        (TokenTarget(1, 1.0, 12), "position 12"),
        (TokenTarget(1, 1.0, "some"), "expected 'any', 'all'"),  # type: ignore[arg-type]
    ],
)
def test_a_target_that_does_not_fit_is_refused(target: TokenTarget, message: str) -> None:
    with pytest.raises(dy.InvalidArgument, match=message):
        dy.sample(small_model(), n=1, length=LENGTH, num_inference_steps=2, guidance=TokenGuidance([target]))

"""PLAID's own guidance: raise (or lower) the probability of given tokens at given positions.

The update is the paper's: x̂ ← x̂ + (σ²/α)·∇_z Σ weight·log p(token at its position | z). It covers prefix
completion, infilling, lexical constraints and negation, one token at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from tokenizers import Tokenizer
from torch import Tensor

from diffinity.errors import InvalidArgument
from diffinity.guidance.base import DenoisingStep, Prediction
from diffinity.models.protocol import EmbeddingDiffusion


@dataclass(frozen=True)
class TokenTarget:
    """A token, its weight and its position: an index, 'any' position or 'all' positions.

    With `complement` the target is that the token does *not* occur there.

    >>> TokenTarget(token=5, weight=2.0, position="any")
    TokenTarget(token=5, weight=2.0, position='any', complement=False)
    """

    token: int
    weight: float
    position: int | Literal["any", "all"]
    complement: bool = False


@dataclass(frozen=True)
class TokenGuidance:
    """Guidance by `targets`, the same for every sample of the batch.

    >>> TokenGuidance([TokenTarget(3, 2.0, 0)]).targets[0].position
    0
    """

    targets: Sequence[TokenTarget]

    def predict(self, model: EmbeddingDiffusion, step: DenoisingStep) -> Prediction:
        self._check(vocab_size=model.embedding.shape[0], length=step.z.shape[1])
        with torch.enable_grad():
            z = step.z.detach().requires_grad_()
            logits = step.denoise(model, z)
            (gradient,) = torch.autograd.grad(self.objective(logits), z)
        logits = logits.detach()
        x = logits.softmax(dim=-1) @ model.embedding
        shift = gradient.double() * (step.level.sigma_squared / step.level.alpha)
        return Prediction(logits, x, x_selfcond=x, shift=shift)

    def objective(self, logits: Tensor) -> Tensor:
        """Σ weight·log p(target) over the batch, a scalar, for logits (B, L, V)."""
        log_probs = logits.float().log_softmax(dim=-1)
        total = log_probs.new_zeros(())
        for target in self.targets:
            at_token = log_probs[:, :, target.token]  # (B, L)
            if target.position == "any":
                # The mean over positions. (PLAID subtracts L, not log L: the same gradient without complement.)
                log_p = at_token.logsumexp(dim=1) - math.log(at_token.shape[1])
            elif target.position == "all":
                log_p = at_token
            else:
                log_p = at_token[:, target.position]
            if target.complement:
                log_p = log1mexp(log_p)
            total = total + target.weight * log_p.sum()
        return total

    def _check(self, vocab_size: int, length: int) -> None:
        for target in self.targets:
            if not 0 <= target.token < vocab_size:
                raise InvalidArgument(f"token {target.token} is not in the vocabulary (0 to {vocab_size - 1})")
            if target.position in ("any", "all"):
                continue
            if not isinstance(target.position, int) or not -length <= target.position < length:
                raise InvalidArgument(
                    f"position {target.position!r} of token {target.token}: expected 'any', 'all' "
                    f"or a whole number below the length {length}"
                )


def log1mexp(log_p: Tensor) -> Tensor:
    """log(1 − exp(log_p)) for log_p ≤ 0, with a finite gradient at the ends.

    >>> round(float(log1mexp(torch.tensor(0.25).log()).exp()), 6)
    0.75
    """
    log_p = log_p.clamp(max=-1e-7)
    near_one = log_p > -math.log(2)
    # Each branch gets only arguments with a finite gradient: `where` alone would propagate NaN.
    by_expm1 = torch.log(-torch.expm1(torch.where(near_one, log_p, -1.0)))
    by_log1p = torch.log1p(-torch.exp(torch.where(near_one, -1.0, log_p)))
    return torch.where(near_one, by_expm1, by_log1p)


def prefix(tokenizer: Tokenizer, text: str, weight: float = 2.0) -> TokenGuidance:
    """Guidance towards outputs that start with `text`.

    >>> from tokenizers import Tokenizer, models
    >>> prefix(Tokenizer(models.WordLevel({"a": 0}, unk_token="a")), "a").targets[0].token
    0
    """
    return infill(tokenizer, text, gap=0, after="", weight=weight)


def infill(tokenizer: Tokenizer, before: str, gap: int, after: str, weight: float = 2.0) -> TokenGuidance:
    """Guidance towards `before`, then `gap` free tokens, then `after`.

    >>> from tokenizers import Tokenizer, models
    >>> tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    >>> [target.position for target in infill(tokenizer, "a", gap=3, after="a").targets]
    [0, 4]
    """
    if gap < 0:
        raise InvalidArgument(f"gap must not be negative, but is {gap}")
    head, tail = tokenizer.encode(before).ids, tokenizer.encode(after).ids
    targets = [TokenTarget(token, weight, at) for at, token in enumerate(head)]
    targets += [TokenTarget(token, weight, len(head) + gap + at) for at, token in enumerate(tail)]
    return TokenGuidance(targets)

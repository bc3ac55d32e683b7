"""The interface of a guidance method: `predict`, the clean embeddings at a denoising step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from diffinity.models.plaid import matmul_per_sample
from diffinity.models.protocol import EmbeddingDiffusion, check_logits
from diffinity.models.schedule import NEARLY_CLEAN, NoiseLevel


@dataclass(frozen=True)
class DenoisingStep:
    """The state of the sampler that a guidance method reads."""

    z: Tensor  # (B, L, d), float64
    level: NoiseLevel  # noise level γ of z, the same for the whole batch
    x_selfcond: Tensor  # (B, L, d), model dtype
    index: int  # 0 for the first (noisiest) step
    total: int
    decided: Tensor | None = None  # (B, L), int64: tokens that the constraint decides, −1 at the other positions
    given_level: NoiseLevel | None = None  # noise level of decided tokens; None: computed when needed

    def select(self, rows: Tensor) -> DenoisingStep:
        """The step of some rows."""
        at = rows.to(self.z.device)
        decided = None if self.decided is None else self.decided[at]
        return replace(self, z=self.z[at], x_selfcond=self.x_selfcond[at], decided=decided)

    def noise_level(self, model: EmbeddingDiffusion) -> Tensor:
        """The noise level γ in the form that `model.denoise` takes, (B,)."""
        return self.level.gamma.to(model.dtype).expand(self.z.shape[0])

    def denoise(self, model: EmbeddingDiffusion, z: Tensor | None = None) -> Tensor:
        """The model's logits (B, L, V) at this step; with an autograd graph if a `z` that requires it is given."""
        z = self.z if z is None else z
        shown, level = z.to(model.dtype), self.noise_level(model)
        if self.decided is not None:
            given = given_level(model) if self.given_level is None else self.given_level
            shown, level = show_given(model, shown, level, self.decided, given)
        logits = model.denoise(shown, level, self.x_selfcond)
        if self.index == 0:  # the check reads all logits; later steps check only the estimates
            check_logits(model, logits, z.shape[0], z.shape[1], f"at step 1 of {self.total}")
        return logits


@dataclass(frozen=True)
class Prediction:
    """The prediction of the network and the guidance at one step.

    The sampler applies the score temperature to `x` and then adds `shift`.
    """

    logits: Tensor  # (B, L, V)
    x: Tensor  # (B, L, d): softmax(logits)·E
    x_selfcond: Tensor  # (B, L, d): input of the next step
    shift: Tensor | None = None  # (B, L, d), float64
    log_acceptance: Tensor | None = None  # (B,): log P(L) before the shift, with a constraint
    decided: Tensor | None = None  # (B, L), int64: tokens that the constraint decides, −1 at the other positions

    def select(self, rows: Tensor) -> Prediction:
        """The prediction of some rows."""
        at = rows.to(self.logits.device)
        return Prediction(
            self.logits[at],
            self.x[at],
            self.x_selfcond[at],
            None if self.shift is None else self.shift[at],
            None if self.log_acceptance is None else self.log_acceptance[at],
            None if self.decided is None else self.decided[at],
        )


def given_level(model: EmbeddingDiffusion) -> NoiseLevel:
    """The noise level of given tokens: nearly clean."""
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64, device=model.device)
    low, high = model.noise_level(ends).double()
    return NoiseLevel(low + NEARLY_CLEAN * (high - low))


def show_given(
    model: EmbeddingDiffusion, z: Tensor, noise_level: Tensor, tokens: Tensor, given: NoiseLevel
) -> tuple[Tensor, Tensor]:
    """z (B, L, d) with the given tokens (B, L) at the level `given`, and the noise level of every position (B, L).

    Positions with token −1 are not changed. The model must have been trained with a noise level for each position
    (`position_levels`).
    """
    levels = noise_level[:, None].expand(z.shape[:2])
    is_shown = (tokens >= 0) & (levels > given.gamma)
    clean = (given.alpha * model.embedding[tokens.clamp(min=0)]).to(z.dtype)
    return torch.where(is_shown[..., None], clean, z), torch.where(is_shown, given.gamma.to(levels.dtype), levels)


class Guidance(Protocol):
    """Steers a denoising step."""

    def predict(self, model: EmbeddingDiffusion, step: DenoisingStep) -> Prediction:
        """The prediction at `step`, with at least one network call."""
        ...


class Unguided:
    """The model without guidance."""

    def predict(self, model: EmbeddingDiffusion, step: DenoisingStep) -> Prediction:
        logits = step.denoise(model)
        x = matmul_per_sample(logits.softmax(dim=-1), model.embedding)
        return Prediction(logits, x, x_selfcond=x)

"""The one method that every guidance has: predict the clean embeddings at a denoising step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from diffinity.models.plaid import each
from diffinity.models.protocol import DiffusionLM
from diffinity.models.schedule import NoiseLevel


@dataclass(frozen=True)
class DenoisingStep:
    """Where the sampler stands: what a guidance sees."""

    z: Tensor  # (B, L, d), float64
    level: NoiseLevel  # of z, one γ for the batch
    x_selfcond: Tensor  # (B, L, d), model dtype
    index: int  # 0 for the first (noisiest) step
    total: int

    def gamma(self, model: DiffusionLM) -> Tensor:
        """γ as `model.denoise` takes it, (B,)."""
        return self.level.gamma.to(model.dtype).expand(self.z.shape[0])


@dataclass(frozen=True)
class Prediction:
    """What the network, and a guidance on top of it, say at one step.

    The sampler applies the score temperature to `x` and then adds `shift`.
    """

    logits: Tensor  # (B, L, V)
    x: Tensor  # (B, L, d): softmax(logits)·E
    x_selfcond: Tensor  # (B, L, d): what the next step gets to see
    shift: Tensor | None = None  # (B, L, d), float64
    log_acceptance: Tensor | None = None  # (B,): log P(L) before the shift, where a language guides


class Guidance(Protocol):
    """Steers a denoising step."""

    def predict(self, model: DiffusionLM, step: DenoisingStep) -> Prediction:
        """The prediction at `step`, one network call at least."""
        ...


class Unguided:
    """The model by itself."""

    def predict(self, model: DiffusionLM, step: DenoisingStep) -> Prediction:
        logits = model.denoise(step.z.to(model.dtype), step.gamma(model), step.x_selfcond)
        x = each(logits.softmax(dim=-1), model.embedding)
        return Prediction(logits, x, x_selfcond=x)

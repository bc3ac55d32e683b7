"""The interface of a guidance method: `predict`, the clean embeddings at a denoising step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from diffinity.models.plaid import matmul_per_sample
from diffinity.models.protocol import EmbeddingDiffusion, check_logits
from diffinity.models.schedule import NoiseLevel


@dataclass(frozen=True)
class DenoisingStep:
    """Where the sampler stands: what a guidance sees."""

    z: Tensor  # (B, L, d), float64
    level: NoiseLevel  # of z, one noise level γ for the batch
    x_selfcond: Tensor  # (B, L, d), model dtype
    index: int  # 0 for the first (noisiest) step
    total: int

    def noise_level(self, model: EmbeddingDiffusion) -> Tensor:
        """The noise level γ as `model.denoise` takes it, (B,)."""
        return self.level.gamma.to(model.dtype).expand(self.z.shape[0])

    def denoise(self, model: EmbeddingDiffusion, z: Tensor | None = None) -> Tensor:
        """The model's logits (B, L, V) at this step; with a graph where `z` is given and requires one."""
        z = self.z if z is None else z
        logits = model.denoise(z.to(model.dtype), self.noise_level(model), self.x_selfcond)
        if self.index == 0:  # a pass over all logits; later steps look at the estimates only
            check_logits(model, logits, z.shape[0], z.shape[1], f"at step 1 of {self.total}")
        return logits


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

    def select(self, rows: Tensor) -> Prediction:
        """That of some rows."""
        at = rows.to(self.logits.device)
        return Prediction(
            self.logits[at],
            self.x[at],
            self.x_selfcond[at],
            None if self.shift is None else self.shift[at],
            None if self.log_acceptance is None else self.log_acceptance[at],
        )


class Guidance(Protocol):
    """Steers a denoising step."""

    def predict(self, model: EmbeddingDiffusion, step: DenoisingStep) -> Prediction:
        """The prediction at `step`, one network call at least."""
        ...


class Unguided:
    """The model by itself."""

    def predict(self, model: EmbeddingDiffusion, step: DenoisingStep) -> Prediction:
        logits = step.denoise(model)
        x = matmul_per_sample(logits.softmax(dim=-1), model.embedding)
        return Prediction(logits, x, x_selfcond=x)

"""Guidance of embeddings towards a language: from the marginals given acceptance to a shift of x̂.

`Reading` gives q − p, the difference between the marginals given acceptance and the model's distributions. This
module turns it into a shift, in closed form or through the network's Jacobian. The guided estimate q·E is passed
to the next step as self-conditioning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from diffinity.acceptance import Backend
from diffinity.alignment import TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.guidance.base import DenoisingStep, Prediction, Unguided
from diffinity.guidance.reading import Reading
from diffinity.models.plaid import matmul_per_sample
from diffinity.models.protocol import EmbeddingDiffusion

ALMOST_CERTAIN = 1e-6  # no guidance if 1 − P(L) is smaller than this


@dataclass(frozen=True)
class LanguageGuidance:
    """Steers towards the language of an automaton, or of one automaton per sample.

    `scale` is the guidance scale, or a function of the share of steps done; `start` the share of steps before
    guidance begins; `guided_selfcond` passes q·E to the next step as self-conditioning (the paper's method does
    not).
    """

    automata: TokenAutomaton | Sequence[TokenAutomaton]
    scale: float | Callable[[float], float] = 2.5
    start: float = 0.0
    guided_selfcond: bool = True
    backend: Backend = "auto"

    def __post_init__(self) -> None:
        if not 0.0 <= self.start <= 1.0:
            raise InvalidArgument(f"start must be a share of the steps between 0 and 1, but is {self.start}")
        if isinstance(self.scale, int | float) and not 0 <= self.scale < float("inf"):
            raise InvalidArgument(f"guidance_scale must be a finite number, at least 0, but is {self.scale}")

    def predict(self, model: EmbeddingDiffusion, step: DenoisingStep) -> Prediction:
        share_done = step.index / max(1, step.total)
        if share_done < self.start:
            return Unguided().predict(model, step)
        scale = self.scale(share_done) if callable(self.scale) else self.scale
        return self._guided(model, step, scale)

    def reading(self, logits: Tensor, step: DenoisingStep) -> Reading:
        """The acceptance of the logits (B, L, V)."""
        return Reading(logits, self.automata, backend=self.backend)

    def _guided(self, model: EmbeddingDiffusion, step: DenoisingStep, scale: float) -> Prediction:
        """In closed form: the shift is scale·(q − p)·E, without a backward pass through the network."""
        logits = step.denoise(model)
        p, embedding = logits.softmax(dim=-1), model.embedding
        x = matmul_per_sample(p, embedding)
        conditional = self.reading(logits, step).mean(p, x, embedding, certain=ALMOST_CERTAIN)
        shift = scale * (conditional.mean - x).double()
        guided = conditional.mean if self.guided_selfcond else x
        return Prediction(logits, x, guided, shift, conditional.log_p_language)

    def _through_network(self, model: EmbeddingDiffusion, step: DenoisingStep, scale: float) -> Prediction:
        """By one vector–Jacobian product: the shift is scale·(σ²/α)·Jᵀ(q − p), J = ∂logits/∂z."""
        with torch.enable_grad():
            z = step.z.detach().requires_grad_()
            logits = step.denoise(model, z)
            p = logits.detach().softmax(dim=-1)
            x = matmul_per_sample(p, model.embedding)
            conditional = self.reading(logits.detach(), step).gradient(p)
            guided = x + matmul_per_sample(conditional.gradient, model.embedding) if self.guided_selfcond else x
            (gradient,) = torch.autograd.grad(logits, z, conditional.gradient)
        shift = scale * gradient.double() * (step.level.sigma_squared / step.level.alpha)
        return Prediction(logits.detach(), x, guided, shift, conditional.log_p_language)

"""Gradient guidance, the paper's: x̂ + scale·(σ²/α)·Jᵀ(q − p), one vector–Jacobian product through the network."""

from __future__ import annotations

from dataclasses import dataclass

from diffinity.guidance.base import DenoisingStep, Prediction
from diffinity.guidance.language import LanguageGuidance
from diffinity.models.protocol import EmbeddingDiffusion


@dataclass(frozen=True)
class GradientGuidance(LanguageGuidance):
    """∇_z log P(L), without autograd through the dynamic programme; the paper uses `guided_selfcond=False`."""

    def _guided(self, model: EmbeddingDiffusion, step: DenoisingStep, scale: float) -> Prediction:
        return self._through_network(model, step, scale)

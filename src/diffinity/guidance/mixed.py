"""One guidance for the noisy steps, another for the rest."""

from __future__ import annotations

from dataclasses import dataclass

from diffinity.guidance.base import DenoisingStep, Guidance, Prediction
from diffinity.models.protocol import EmbeddingDiffusion


@dataclass(frozen=True)
class MixedGuidance:
    """`first` for a share `until` of the steps, then `second`.

    >>> from diffinity.guidance.base import Unguided
    >>> MixedGuidance(Unguided(), Unguided()).until
    0.5
    """

    first: Guidance
    second: Guidance
    until: float = 0.5

    def predict(self, model: EmbeddingDiffusion, step: DenoisingStep) -> Prediction:
        chosen = self.first if step.index < self.until * step.total else self.second
        return chosen.predict(model, step)

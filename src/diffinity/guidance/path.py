"""Path guidance: posterior guidance given one path of automaton states instead of all paths.

The average over all paths distributes the shift over every position where the constraint could be satisfied. One
path concentrates the shift, and it remains the best path because the latent follows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from diffinity.guidance.base import DenoisingStep, Prediction
from diffinity.guidance.language import LanguageGuidance
from diffinity.guidance.reading import Reading
from diffinity.models.protocol import EmbeddingDiffusion


@dataclass(frozen=True)
class PathGuidance(LanguageGuidance):
    """Closed form along the most probable path of states; with `jacobian`, through the network instead.

    With `draw`, a path is drawn from the posterior at each step (with this seed) instead of the most probable
    path.
    """

    jacobian: bool = False
    draw: int | None = None

    def reading(self, logits: Tensor, step: DenoisingStep) -> Reading:
        seed = None if self.draw is None else self.draw * 1_000_003 + step.index
        return Reading(logits, self.automata, path=True, path_seed=seed, backend=self.backend)

    def _guided(self, model: EmbeddingDiffusion, step: DenoisingStep, scale: float) -> Prediction:
        guided = self._through_network if self.jacobian else super()._guided
        return guided(model, step, scale)

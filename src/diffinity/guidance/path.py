"""Path guidance: as posterior guidance, given one path of automaton states instead of all of them.

The average over all paths spreads its pull over every place where the constraint could be met; one path
concentrates it, and stays the best one because the latent follows it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from diffinity.acceptance import GradientAcceptance, MeanAcceptance, gradient_acceptance, mean_acceptance
from diffinity.guidance.base import DenoisingStep, Prediction
from diffinity.guidance.language import LanguageGuidance
from diffinity.models.protocol import DiffusionLM


@dataclass(frozen=True)
class PathGuidance(LanguageGuidance):
    """Closed form along the most probable path of states; with `jacobian`, through the network instead.

    `draw` takes a path from the posterior at each step (from that seed) instead of the most probable one.
    """

    jacobian: bool = False
    draw: int | None = None

    def _gradient(self, logits: Tensor, softmax: Tensor) -> GradientAcceptance:
        return gradient_acceptance(logits, self.automata, softmax, path=True, seed=self.draw)

    def _mean(self, logits: Tensor, softmax: Tensor, x: Tensor, embedding: Tensor) -> MeanAcceptance:
        return mean_acceptance(logits, self.automata, softmax, x, embedding, path=True, seed=self.draw)

    def _guided(self, model: DiffusionLM, step: DenoisingStep, gamma: float) -> Prediction:
        here = self if self.draw is None else replace(self, draw=self.draw * 1_000_003 + step.index)
        if self.jacobian:
            return here._through_network(model, step, gamma)
        return super(PathGuidance, here)._guided(model, step, gamma)

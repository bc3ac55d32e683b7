"""What the guidances towards a language share: automata, scale, when to act, and the guided estimate.

Each method gives the difference q − p between what acceptance says of the tokens and what the model says, and a
way to turn it into a shift of x̂. The guided estimate q·E is handed to the next step as self-conditioning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from diffinity.acceptance import GradientAcceptance, MeanAcceptance, gradient_acceptance, mean_acceptance
from diffinity.alignment import TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.guidance.base import DenoisingStep, Prediction, Unguided
from diffinity.models.plaid import each
from diffinity.models.protocol import DiffusionLM

ALMOST_CERTAIN = 1e-6  # a language that has all but this much of the probability needs no steering


@dataclass(frozen=True)
class LanguageGuidance:
    """Steers towards the language of an automaton, or of one automaton per sample.

    `scale` is γ, or a function of the share of steps done; `start` the share of steps before guidance sets in;
    `guided_selfcond` hands q·E to the next step (the paper's own method does not); `on_step` is told log P(L).
    """

    automata: TokenAutomaton | Sequence[TokenAutomaton]
    scale: float | Callable[[float], float] = 2.5
    start: float = 0.0
    guided_selfcond: bool = True
    on_step: Callable[[int, Tensor], None] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not 0.0 <= self.start <= 1.0:
            raise InvalidArgument(f"start must be a share of the steps between 0 and 1, but is {self.start}")
        if isinstance(self.scale, int | float) and not 0 <= self.scale < float("inf"):
            raise InvalidArgument(f"guidance_scale must be a finite number, at least 0, but is {self.scale}")

    def predict(self, model: DiffusionLM, step: DenoisingStep) -> Prediction:
        done = step.index / max(1, step.total)
        if done < self.start:
            return Unguided().predict(model, step)
        gamma = self.scale(done) if callable(self.scale) else self.scale
        return self._guided(model, step, gamma)

    def _guided(self, model: DiffusionLM, step: DenoisingStep, gamma: float) -> Prediction:
        """In closed form: the shift is γ·(q − p)·E, with no pass back through the network."""
        logits = model.denoise(step.z.to(model.dtype), step.gamma(model), step.x_selfcond)
        p, embedding = logits.softmax(dim=-1), model.embedding
        x = each(p, embedding)
        found = self._mean(logits, p, x, embedding)
        self._tell(step, found.log_prob)
        if min(found.log_prob.tolist()) > -ALMOST_CERTAIN:
            return Prediction(logits, x, x_selfcond=x, log_acceptance=found.log_prob)
        shift = gamma * (found.mean - x).double()
        return Prediction(logits, x, found.mean if self.guided_selfcond else x, shift, found.log_prob)

    def _through_network(self, model: DiffusionLM, step: DenoisingStep, gamma: float) -> Prediction:
        """By one vector–Jacobian product: the shift is γ·(σ²/α)·Jᵀ(q − p), J = ∂logits/∂z."""
        with torch.enable_grad():
            z = step.z.detach().requires_grad_()
            logits = model.denoise(z.to(model.dtype), step.gamma(model), step.x_selfcond)
            p = logits.detach().softmax(dim=-1)
            x = each(p, model.embedding)
            found = self._gradient(logits.detach(), p)
            self._tell(step, found.log_prob)
            guided = x + each(found.gradient, model.embedding) if self.guided_selfcond else x
            (gradient,) = torch.autograd.grad(logits, z, found.gradient)
        shift = gamma * gradient.double() * (step.level.sigma_squared / step.level.alpha)
        return Prediction(logits.detach(), x, guided, shift, found.log_prob)

    def _gradient(self, logits: Tensor, softmax: Tensor) -> GradientAcceptance:
        """log P(L) and q − p, which may take the place of the softmax."""
        return gradient_acceptance(logits, self.automata, softmax)

    def _mean(self, logits: Tensor, softmax: Tensor, x: Tensor, embedding: Tensor) -> MeanAcceptance:
        """log P(L) and q·E, where x is p·E."""
        return mean_acceptance(logits, self.automata, softmax, x, embedding)

    def _tell(self, step: DenoisingStep, log_prob: Tensor) -> None:
        if self.on_step is not None:
            self.on_step(step.index, log_prob)

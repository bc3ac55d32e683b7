"""Two guidance methods in one run: one for the noisy steps and one for the rest, or one per part of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

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


@dataclass(frozen=True)
class SplitGuidance:
    """`first` for the samples selected by `in_first` (B,), `second` for the others.

    Each guidance is created for its own samples. Each part has its own network call; the two calls together cost
    as much as one call for the whole batch.

    >>> from diffinity.guidance.base import Unguided
    >>> SplitGuidance(Unguided(), Unguided(), (True, False)).in_first
    (True, False)
    """

    first: Guidance
    second: Guidance
    in_first: Sequence[bool]

    def predict(self, model: EmbeddingDiffusion, step: DenoisingStep) -> Prediction:
        if len(set(self.in_first)) == 1:
            return (self.first if self.in_first[0] else self.second).predict(model, step)
        chosen = torch.tensor(self.in_first)
        parts = (chosen.nonzero()[:, 0], (~chosen).nonzero()[:, 0])
        predictions = [
            guidance.predict(model, step.select(rows))
            for guidance, rows in zip((self.first, self.second), parts, strict=True)
        ]
        order = torch.cat(parts).argsort().to(step.z.device)

        def joined(tensors: Sequence[Tensor | None]) -> Tensor | None:
            present = [tensor for tensor in tensors if tensor is not None]
            return torch.cat(present)[order] if len(present) == len(tensors) else None

        first = predictions[0]
        return replace(
            first,
            logits=torch.cat([part.logits for part in predictions])[order],
            x=torch.cat([part.x for part in predictions])[order],
            x_selfcond=torch.cat([part.x_selfcond for part in predictions])[order],
            shift=joined([part.shift for part in predictions]),
            log_acceptance=joined([part.log_acceptance for part in predictions]),
            decided=_decided(predictions, order),
        )


def _decided(predictions: Sequence[Prediction], order: Tensor) -> Tensor | None:
    """The decided tokens of all parts; parts that decide nothing have −1 everywhere."""
    if all(part.decided is None for part in predictions):
        return None
    length = predictions[0].x.shape[1]
    undecided = [torch.full((len(part.x), length), -1, device=part.x.device) for part in predictions]
    parts = [
        no_tokens if part.decided is None else part.decided
        for part, no_tokens in zip(predictions, undecided, strict=True)
    ]
    return torch.cat(parts)[order]

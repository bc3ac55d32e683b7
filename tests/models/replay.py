"""A sampler run again with somebody else's noise."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from diffinity.generation.loop import Run
from diffinity.processes.base import Draws
from diffinity.processes.gaussian import GaussianProcess, SamplerState
from diffinity.sampling import Samples


class Recorded(Draws):
    """Noise that was drawn before."""

    def __init__(self, noise: Iterable[Tensor] = ()) -> None:
        self._noise = iter(noise)

    def normal(self, length: int, width: int) -> Tensor:
        return next(self._noise)


def replayed(
    process: GaussianProcess, start: Tensor, noise: Iterable[Tensor] = ()
) -> tuple[Samples, list[SamplerState]]:
    """What the process ends in from `start` (B, L, d), and the state after each step."""
    run = Run(process, process.start(start), Recorded(noise))
    states = list(run)
    logits = run.ending().logits
    assert isinstance(logits, torch.Tensor)
    return Samples(logits, run.state, run.finish_reason), states

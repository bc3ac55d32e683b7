"""Which noise levels to train on: more of those where the cross-entropy changes fastest.

Drawn uniformly in γ, almost every level is either hopeless or trivial. Here γ is drawn in proportion to the
slope of the loss over γ (a running mean per bin, made monotone and smoothed), mixed with a uniform share so
that every level stays measured. The same density warps the sampler's time: equal steps of probability.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from diffinity.models.schedule import NoiseSchedule


@dataclass
class AdaptiveNoise:
    """A density over γ in `bins` equal bins that follows the running loss.

    >>> noise = AdaptiveNoise(-4.0, 4.0, bins=4)
    >>> noise.density.tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    gamma_0: float = -4.0
    gamma_1: float = 6.0
    bins: int = 50
    uniform_share: float = 0.3
    memory: float = 0.99  # of a bin's running loss, per sequence seen
    refresh_every: int = 20
    loss: NDArray[np.float64] = field(init=False)
    seen: NDArray[np.float64] = field(init=False)
    density: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self.loss = np.zeros(self.bins)
        self.seen = np.zeros(self.bins)
        self.density = np.full(self.bins, 1.0 / self.bins)

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """n noise levels (n,), stratified: one from each n-th of the probability, in random order."""
        offset = float(torch.rand((), generator=generator, dtype=torch.float64))
        quantiles = (torch.arange(n, dtype=torch.float64) + offset) / n
        gammas = torch.from_numpy(self.gamma_at(quantiles.numpy()))
        return gammas[torch.randperm(n, generator=generator)].float()

    def gamma_at(self, quantile: NDArray[np.float64]) -> NDArray[np.float64]:
        """The level below which a share `quantile` of the draws falls."""
        edges = np.linspace(self.gamma_0, self.gamma_1, self.bins + 1)
        cumulative = np.concatenate([[0.0], np.cumsum(self.density)])
        cumulative /= cumulative[-1]
        return np.interp(quantile, cumulative, edges)

    def record(self, gamma: Tensor, loss: Tensor) -> None:
        """Take note of the loss (n,) that sequences had at levels gamma (n,)."""
        width = (self.gamma_1 - self.gamma_0) / self.bins
        index = ((gamma.double().numpy() - self.gamma_0) / width).astype(int).clip(0, self.bins - 1)
        for i, value in zip(index, loss.double().numpy(), strict=True):
            keep = min(self.memory, self.seen[i] / (self.seen[i] + 1))
            self.loss[i] = keep * self.loss[i] + (1 - keep) * value
            self.seen[i] += 1

    def refresh(self) -> None:
        """Recompute the density from the running losses."""
        known = self.seen > 0
        if known.sum() < 2:
            return
        at = np.arange(self.bins)
        curve = np.maximum.accumulate(np.interp(at, at[known], self.loss[known]))
        slope = np.convolve(np.pad(np.gradient(curve), 2, mode="edge"), np.ones(5) / 5, mode="valid")
        slope = np.maximum(slope, 0.0)
        if slope.sum() > 0:
            self.density = (1 - self.uniform_share) * slope / slope.sum() + self.uniform_share / self.bins

    def tensors(self) -> dict[str, Tensor]:
        return {name: torch.from_numpy(getattr(self, name).copy()) for name in ("loss", "seen", "density")}

    def load(self, tensors: dict[str, Tensor]) -> None:
        for name in ("loss", "seen", "density"):
            setattr(self, name, tensors[name].numpy().copy())


def fit_schedule(noise: AdaptiveNoise, steps: int = 1500) -> NoiseSchedule:
    """PLAID's monotone network fitted to the warped time: γ̃(t) = the t-quantile of the density, in [0, 1].

    >>> schedule = fit_schedule(AdaptiveNoise(), steps=200)
    >>> bool((schedule(torch.tensor([0.0, 1.0])) - torch.tensor([0.0, 1.0])).abs().max() < 1e-9)
    True
    """
    t = torch.linspace(0, 1, 257, dtype=torch.float64)
    wanted = torch.from_numpy(noise.gamma_at(t.numpy()))
    wanted = (wanted - noise.gamma_0) / (noise.gamma_1 - noise.gamma_0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        schedule = NoiseSchedule()
    with torch.no_grad():  # spread the hidden units over [0, 1], steep enough to bend a few times
        schedule.W1.fill_(10.0)
        centres = torch.linspace(-0.6, 0.6, schedule.hidden)
        schedule.b1.copy_(-10.0 * centres)
        schedule.W2.fill_(-2.0)
    optimizer = torch.optim.Adam(schedule.parameters(), lr=0.02)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.02 * (1 - step / steps)
        optimizer.zero_grad()
        nn.functional.mse_loss(schedule(t), wanted).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return schedule.requires_grad_(False)

"""The distribution of training noise levels: most are drawn where the cross-entropy changes fastest.

If γ is drawn uniformly, almost every noise level is either too hard or trivial. The slope of the loss over γ (a
running mean per bin, made monotone and smoothed) shows where tokens become predictable, and every step of the
sampler covers an equal share of it. Training draws γ in proportion to the slope times the gain, which is the loss
at pure noise minus the loss at γ. So high noise levels are drawn as soon as the network can use context there. A
uniform share ensures that the loss is measured at every level.
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

    gamma_0: float = -5.0
    gamma_1: float = 5.0
    bins: int = 50
    uniform_share: float = 0.3
    memory: float = 0.99  # decay of a bin's running loss per sequence
    refresh_every: int = 20
    loss: NDArray[np.float64] = field(init=False)
    seen: NDArray[np.float64] = field(init=False)
    density: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self.loss = np.zeros(self.bins)
        self.seen = np.zeros(self.bins)
        self.density = np.full(self.bins, 1.0 / self.bins)

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """n noise levels (n,), stratified: one from each of n equally probable intervals, in random order."""
        offset = float(torch.rand((), generator=generator, dtype=torch.float64))
        quantiles = (torch.arange(n, dtype=torch.float64) + offset) / n
        gammas = torch.from_numpy(self.gamma_at(quantiles.numpy()))
        return gammas[torch.randperm(n, generator=generator)].float()

    def gamma_at(
        self, quantile: NDArray[np.float64], density: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """The `quantile` of the noise levels under this density, or under another density (bins,)."""
        edges = np.linspace(self.gamma_0, self.gamma_1, self.bins + 1)
        cumulative = np.concatenate([[0.0], np.cumsum(self.density if density is None else density)])
        cumulative /= cumulative[-1]
        return np.interp(quantile, cumulative, edges)

    def record(self, gamma: Tensor, loss: Tensor) -> None:
        """Record the loss (n,) of sequences at noise levels gamma (n,)."""
        width = (self.gamma_1 - self.gamma_0) / self.bins
        index = ((gamma.double().numpy() - self.gamma_0) / width).astype(int).clip(0, self.bins - 1)
        for i, value in zip(index, loss.double().numpy(), strict=True):
            decay = min(self.memory, self.seen[i] / (self.seen[i] + 1))
            self.loss[i] = decay * self.loss[i] + (1 - decay) * value
            self.seen[i] += 1

    def refresh(self) -> None:
        """Recompute the density from the running losses."""
        if (self.seen > 0).sum() >= 2:
            curve = self._curve()
            self.density = self._with_uniform(self._slope() * (curve.max() - curve))

    def sampling_density(self) -> NDArray[np.float64]:
        """The sampler's density of steps over the bins: the slope of the loss."""
        return self._with_uniform(self._slope()) if (self.seen > 0).sum() >= 2 else self.density

    def _curve(self) -> NDArray[np.float64]:
        has_data = self.seen > 0
        bin_index = np.arange(self.bins)
        return np.maximum.accumulate(np.interp(bin_index, bin_index[has_data], self.loss[has_data]))

    def _slope(self) -> NDArray[np.float64]:
        gradient = np.gradient(self._curve())
        return np.maximum(np.convolve(np.pad(gradient, 2, mode="edge"), np.ones(5) / 5, mode="valid"), 0.0)

    def _with_uniform(self, weight: NDArray[np.float64]) -> NDArray[np.float64]:
        if weight.sum() <= 0:
            return np.full(self.bins, 1.0 / self.bins)
        return (1 - self.uniform_share) * weight / weight.sum() + self.uniform_share / self.bins

    def tensors(self) -> dict[str, Tensor]:
        return {name: torch.from_numpy(getattr(self, name).copy()) for name in ("loss", "seen", "density")}

    def load(self, tensors: dict[str, Tensor]) -> None:
        for name in ("loss", "seen", "density"):
            setattr(self, name, tensors[name].numpy().copy())


def fit_schedule(noise: AdaptiveNoise, steps: int = 1500) -> NoiseSchedule:
    """PLAID's monotone network, fitted so that γ̃(t) is the t-quantile of the sampling density, scaled to [0, 1].

    >>> schedule = fit_schedule(AdaptiveNoise(), steps=200)
    >>> bool((schedule(torch.tensor([0.0, 1.0])) - torch.tensor([0.0, 1.0])).abs().max() < 1e-9)
    True
    """
    t = torch.linspace(0, 1, 257, dtype=torch.float64)
    target = torch.from_numpy(noise.gamma_at(t.numpy(), noise.sampling_density()))
    target = (target - noise.gamma_0) / (noise.gamma_1 - noise.gamma_0)
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
        nn.functional.mse_loss(schedule(t), target).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return schedule.requires_grad_(False)

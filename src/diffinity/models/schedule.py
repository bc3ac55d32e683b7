"""Noise levels γ, and the learned monotone schedule γ(t). This module does not depend on a network."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NEARLY_CLEAN = 0.05  # noise level of given positions, as a fraction of the range of noise levels


@dataclass(frozen=True)
class NoiseLevel:
    """One noise level γ in the variance-preserving parametrisation, in float64.

    `z = α·x + σ·ε` with α² = sigmoid(−γ) and σ² = sigmoid(γ), so that the signal-to-noise ratio is e^−γ.

    >>> level = NoiseLevel(torch.tensor(0.0, dtype=torch.float64))
    >>> round(float(level.alpha ** 2 + level.sigma ** 2), 12)
    1.0
    """

    gamma: Tensor  # () or (B,)

    @property
    def alpha(self) -> Tensor:
        return torch.sigmoid(-self.gamma).sqrt()

    @property
    def sigma(self) -> Tensor:
        return torch.sigmoid(self.gamma).sqrt()

    @property
    def alpha_squared(self) -> Tensor:
        return torch.sigmoid(-self.gamma)

    @property
    def sigma_squared(self) -> Tensor:
        return torch.sigmoid(self.gamma)


class NoiseSchedule(nn.Module):
    """PLAID's learned schedule: a monotone network of one hidden layer, scaled so that γ̃(0) = 0 and γ̃(1) = 1.

    Positive weights (softplus) make it monotone. The arithmetic is float64, because the sampler uses differences
    of γ over small steps.
    """

    hidden = 1024

    def __init__(self) -> None:
        super().__init__()
        self.W1 = nn.Parameter(torch.randn(self.hidden, 1))
        self.b1 = nn.Parameter(torch.randn(self.hidden))
        self.W2 = nn.Parameter(torch.randn(1, self.hidden))

    def forward(self, t: Tensor) -> Tensor:
        ends = torch.tensor([0.0, 1.0], dtype=torch.float64, device=t.device)
        low, high = self._raw(ends)
        return (self._raw(t) - low) / (high - low)

    def _raw(self, t: Tensor) -> Tensor:  # (n,) -> (n,)
        inner = F.softplus(self.W1.double())  # (1024, 1)
        outer = 0.01 * F.softplus(self.W2.double())  # (1, 1024)
        hidden = torch.tanh((t.double()[:, None] - 0.5) @ inner.T + self.b1.double())  # (n, 1024)
        return (hidden @ outer.T)[:, 0]


class GammaBounds(nn.Module):
    """The learned ends γ₀ (almost clean) and γ₁ (almost pure noise) of the schedule."""

    def __init__(self, gamma_0: float = -3.0, gamma_1: float = 6.0) -> None:
        super().__init__()
        self.gamma_0 = nn.Parameter(torch.tensor(float(gamma_0)))
        self.gamma_1 = nn.Parameter(torch.tensor(float(gamma_1)))

    def forward(self) -> tuple[Tensor, Tensor]:
        return self.gamma_0.double(), self.gamma_1.double()

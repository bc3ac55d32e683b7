"""Twisted sequential Monte Carlo: K guided trajectories per sample, with weights that cancel the guidance's bias.

The model's own sampler draws a first state, then x_s ~ p(x_s | x_t), and finally tokens from the distributions at
x_0. Given that the tokens are in L, a trajectory has the probability p(x_1)·Π p(x_s | x_t)·ψ(x_0) / P(L), where
ψ(x) is P(L | x), the acceptance probability of the distributions at x. A guided step uses another kernel, r(x_s |
x_t). So the weight of a guided particle changes after each step by

    log w += log p(x_s | x_t) − log r(x_s | x_t) + log ψ(x_s) − log ψ(x_t).

ψ of intermediate states only decides when to resample: it cancels along a trajectory, and the last ψ is exact. In
the limit of large K the chosen particle, decoded by an exact draw, is a draw from the model's own sampler given L,
for any guidance. All processes share this code; `log_ratio` of a state is log p − log r of its last step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from diffinity.acceptance import acceptance
from diffinity.alignment import TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.processes.base import Seeds, StepPrediction

RESAMPLING = 1  # the random stream of resampling, separate from the noise


def effective_size(log_weights: Tensor) -> Tensor:
    """(Σw)² / Σw², (n,), for log weights (n, K); 0 where every weight is 0.

    >>> effective_size(torch.tensor([[0.0, 0.0], [0.0, -torch.inf], [-torch.inf, -torch.inf]])).tolist()
    [2.0, 1.0, 0.0]
    """
    alive = (log_weights > -torch.inf).any(dim=1)
    weights = torch.where(alive[:, None], log_weights, torch.zeros_like(log_weights)).softmax(dim=1)
    return torch.where(alive, 1.0 / weights.square().sum(dim=1), torch.zeros_like(weights[:, 0]))


def systematic(log_weights: Tensor, start: float) -> Tensor:
    """K ancestors (K,) for log weights (K,): one at each point (start + k)/K of the cumulative weights.

    Particle j is taken ⌊K·w_j⌋ or ⌈K·w_j⌉ times, K·w_j times on average over `start` in [0, 1).

    >>> systematic(torch.tensor([0.5, 0.25, 0.25, 0.0]).log(), start=0.5).tolist()
    [0, 0, 1, 2]
    """
    k = log_weights.shape[0]
    cumulated = log_weights.double().softmax(dim=0).cumsum(dim=0)
    points = (torch.arange(k, dtype=torch.float64) + start) / k
    chosen = torch.searchsorted(cumulated, points * cumulated[-1], right=True)
    last = int(torch.nonzero(log_weights > -torch.inf)[-1])  # rounding must not revive a dead particle
    return chosen.clamp(max=last)


class Population:
    """The weights of n groups of K particles, those of sample i in rows i·K to i·K + K − 1.

    A weight is stored as log w = `_log_ratio` + log ψ of the current state. So a particle with ψ = 0 has weight
    zero but may recover later, and −inf is never subtracted from −inf.
    """

    def __init__(
        self, seeds: Seeds, n_particles: int, automata: Sequence[TokenAutomaton] = (), threshold: float = 0.5
    ) -> None:
        if n_particles < 1:
            raise InvalidArgument(f"particles must be at least 1, but is {n_particles}")
        if not 0.0 <= threshold <= 1.0:
            raise InvalidArgument(
                f"threshold must be a share of the particles between 0 and 1, but is {threshold}"
            )
        self.automata = list(automata)  # one for each row
        self.log_evidence = torch.zeros(len(seeds), dtype=torch.float64)
        self.ess: list[Tensor] = []
        self.history = torch.empty(0, len(seeds) * n_particles, dtype=torch.float64)  # (steps, n·K): log ψ
        self._log_ratio = torch.zeros(len(seeds), n_particles, dtype=torch.float64)
        self._threshold = threshold
        self._draws = [np.random.default_rng((*seed, RESAMPLING)) for seed in seeds]

    def weigh(self, prediction: StepPrediction) -> Tensor | None:
        """Update the weights at a step. Returns the rows to continue with, or None for all rows."""
        log_twist = prediction.log_acceptance
        if log_twist is None:  # the guidance computed no log P(L)
            log_twist = acceptance(prediction.logits, self.automata, logits=True).log_p_language
        return self.resample(log_twist.double().cpu())

    def resample(self, log_twist: Tensor) -> Tensor | None:
        """Like `weigh`, for log ψ (n·K,) of all particles."""
        log_weights = self._weights(log_twist)
        n, k = log_weights.shape
        poor = (self.ess[-1] < self._threshold * k) & (self.ess[-1] > 0)
        if not bool(poor.any()):
            return None
        ancestors = torch.arange(n * k).view(n, k)
        for i in poor.nonzero()[:, 0].tolist():
            ancestors[i] = i * k + systematic(log_weights[i], self._draws[i].random())
            self.log_evidence[i] += log_weights[i].logsumexp(dim=0) - np.log(k)
            self._log_ratio[i] = -log_twist[ancestors[i]]  # resampled particles have weight 1
        self.history = self.history[:, ancestors.flatten()]
        return ancestors.flatten()

    def moved(self, log_ratio: Tensor | None) -> None:
        """Add log p/r (n·K,) of a step to the weights."""
        assert log_ratio is not None
        self._log_ratio = self._log_ratio + log_ratio.view_as(self._log_ratio)

    def choose(self, log_twist: Tensor) -> Tensor:
        """One row per sample (n,), drawn by the final weights; an arbitrary row if all weights are 0."""
        log_weights = self._weights(log_twist.double().cpu())
        k = log_weights.shape[1]
        self.log_evidence = self.log_evidence + log_weights.logsumexp(dim=1) - np.log(k)
        chosen = []
        for i, row in enumerate(log_weights):
            alive = row if bool((row > -torch.inf).any()) else torch.zeros_like(row)
            cumulated = alive.softmax(dim=0).cumsum(dim=0)
            at = int(torch.searchsorted(cumulated, self._draws[i].random() * cumulated[-1], right=True))
            chosen.append(i * k + min(at, int(torch.nonzero(alive > -torch.inf)[-1])))
        return torch.tensor(chosen)

    def decoding_seeds(self) -> list[tuple[int, int]]:
        """A seed for the last draw of every sample."""
        return [(int(generator.integers(2**62)), 0) for generator in self._draws]

    def _weights(self, log_twist: Tensor) -> Tensor:
        log_weights = self._log_ratio + log_twist.view_as(self._log_ratio)
        self.ess.append(effective_size(log_weights))
        self.history = torch.cat([self.history, log_twist[None]])
        return log_weights

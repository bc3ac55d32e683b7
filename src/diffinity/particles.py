"""Twisted sequential Monte Carlo: K guided trajectories per sample, weighed so that the guidance's bias cancels.

The model's own sampler draws z_1, then z_s ~ p(z_s | z_t), at last tokens from the distributions at z_0. Given
that the tokens are in L, a trajectory has the probability p(z_1)·Π p(z_s | z_t)·ψ(z_0) / P(L), where ψ(z) is
P(L | z), the acceptance probability of the distributions at z. Guidance moves by another kernel, r(z_s | z_t):
the same Gaussian with its mean shifted. So a guided particle weighs, after each move,

    log w += log p(z_s | z_t) − log r(z_s | z_t) + log ψ(z_s) − log ψ(z_t).

ψ of intermediate states only says when to resample: it cancels along a trajectory, and the last one is exact. As K
grows the chosen particle, decoded by an exact draw, is a draw from the model's own sampler given L, whatever the
guidance was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from diffinity.acceptance import acceptance, decode
from diffinity.alignment import TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.guidance import DenoisingStep, GradientGuidance, Guidance, PosteriorGuidance, Prediction
from diffinity.models.protocol import DiffusionLM
from diffinity.models.schedule import NoiseLevel
from diffinity.sampling import (
    Cancellation,
    FinishReason,
    Sampler,
    SamplerState,
    SeededNoise,
    make_sampler,
    no_denormals,
)

Proposal = Literal["posterior", "gradient"] | Callable[[Sequence[TokenAutomaton]], Guidance]
RESAMPLING = 1  # the stream of a sample's resampling draws, apart from that of its noise


@dataclass(frozen=True)
class ParticleRun:
    """n samples, each chosen from K weighted trajectories."""

    logits: Tensor  # (n, L, V): the last distributions of the chosen particle
    tokens: Tensor  # (n, L): drawn from them given acceptance
    log_prob: Tensor  # (n,), float64: of the tokens under the logits
    log_evidence: Tensor  # (n,), float64: of an unbiased estimate of P(L) under the model's own sampler
    ess: Tensor  # (n, steps + 1), float64: the effective number of particles before resampling
    log_acceptance: Tensor  # (n, steps + 1), float64: log ψ along the chosen trajectory
    state: SamplerState  # of all n·K particles, those of sample i in rows i·K to i·K + K − 1
    finish_reason: FinishReason


def sample_particles(
    model: DiffusionLM,
    automata: Sequence[TokenAutomaton],
    n_particles: int = 16,
    length: int | None = None,
    *,
    num_inference_steps: int | None = None,
    seed: int = 0,
    seeds: Sequence[tuple[int, int]] | None = None,
    guidance: Proposal = "posterior",
    guidance_scale: float = 1.0,
    score_temp: float | None = None,
    threshold: float = 0.5,
    callback_on_step_end: Callable[[int, SamplerState], bool | None] | None = None,
    cancel: Cancellation | None = None,
    deadline: float | None = None,
) -> ParticleRun:
    """One sample for each automaton, chosen from `n_particles` trajectories; one network call a step, n·K rows.

    `guidance` proposes the moves: by name with `guidance_scale` (1 is the first-order optimum), or a function from
    the automata of all rows to a guidance. A group is resampled when its effective number of particles falls below
    `threshold`·K. Sample i has the seed (seed, i), or the i-th of `seeds`, whatever batch it is in.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["a b.", "b a.", "a a."])
    >>> starts = dy.align(dy.Regex("a.*"), dy.Vocabulary.from_tokenizer(model.tokenizer))
    >>> run = sample_particles(model, [starts], n_particles=4, length=5, num_inference_steps=8)
    >>> starts.accepts(run.tokens[0].tolist())
    True
    """
    length = model.sampling_defaults.length if length is None else length
    seeds = [(seed, i) for i in range(len(automata))] if seeds is None else seeds
    _check(automata, seeds, n_particles, length, threshold)
    sampler = make_sampler(model, None, num_inference_steps, score_temp=score_temp)
    rows = [one for one in automata for _ in range(n_particles)]
    proposal = _proposal(guidance, guidance_scale, rows)
    embed_dim = model.embedding.shape[1]
    draws = SeededNoise(seeds, (n_particles * length, embed_dim))  # one generator for all particles of a sample

    def noise() -> Tensor:
        return draws().view(len(rows), length, embed_dim)

    population = _Population(seeds, n_particles, threshold)
    started = time.monotonic()
    reason: FinishReason = "complete"
    with torch.no_grad(), no_denormals():
        state = sampler.start(noise())
        while state.step < sampler.num_inference_steps:
            if cancel is not None and cancel.is_set():
                reason = "cancelled"
                break
            if deadline is not None and time.monotonic() - started >= deadline:
                reason = "deadline"
                break
            here = DenoisingStep(
                state.z, NoiseLevel(state.gamma), state.x_selfcond, state.step, sampler.num_inference_steps
            )
            prediction = proposal.predict(model, here)
            survivors = population.weigh(_log_twist(prediction, rows))
            state, log_ratio = _move(sampler, state, prediction, survivors, noise())
            population.moved(log_ratio)
            if callback_on_step_end is not None and callback_on_step_end(state.step - 1, state):
                reason = "stopped" if state.step < sampler.num_inference_steps else reason
                break
        logits = sampler.finish(state)
        chosen = population.choose(acceptance(logits, rows, logits=True).log_prob)
    logits = logits[chosen.to(logits.device)]
    found = decode(logits, automata, "sample", logits=True, seed=population.decoding_seeds())
    return ParticleRun(
        logits=logits,
        tokens=found.tokens,
        log_prob=found.log_prob,
        log_evidence=population.log_evidence,
        ess=torch.stack(population.ess, dim=1),
        log_acceptance=population.history[:, chosen].T.contiguous(),
        state=state,
        finish_reason=reason,
    )


def log_move_ratio(offset: Tensor, noise: Tensor) -> Tensor:
    """log p(z_s | z_t) − log r(z_s | z_t), (B,), for z_s = mean of p + sd·(offset + noise), both (B, L, d).

    p = N(mean, sd²) and r = N(mean + sd·offset, sd²), so that the quadratic terms leave −offset·noise − offset²/2.

    >>> one = torch.ones(1, 1, 1)
    >>> float(log_move_ratio(-1 * one, one)), float(log_move_ratio(2 * one, one))
    (0.5, -4.0)
    """
    return -(offset * (noise + 0.5 * offset)).flatten(1).sum(dim=1)


def effective_size(log_weights: Tensor) -> Tensor:
    """(Σw)² / Σw², (n,), for log weights (n, K); 0 where every weight is 0.

    >>> effective_size(torch.tensor([[0.0, 0.0], [0.0, -torch.inf], [-torch.inf, -torch.inf]])).tolist()
    [2.0, 1.0, 0.0]
    """
    alive = (log_weights > -torch.inf).any(dim=1)
    weights = torch.where(alive[:, None], log_weights, torch.zeros_like(log_weights)).softmax(dim=1)
    return torch.where(alive, 1.0 / weights.square().sum(dim=1), torch.zeros_like(weights[:, 0]))


def systematic(log_weights: Tensor, start: float) -> Tensor:
    """K ancestors (K,) for log weights (K,): one at each of the points (start + k)/K of the cumulated weights.

    Particle j is taken ⌊K·w_j⌋ or ⌈K·w_j⌉ times, K·w_j times on average over `start` in [0, 1).

    >>> systematic(torch.tensor([0.5, 0.25, 0.25, 0.0]).log(), start=0.5).tolist()
    [0, 0, 1, 2]
    """
    k = log_weights.shape[0]
    cumulated = log_weights.double().softmax(dim=0).cumsum(dim=0)
    points = (torch.arange(k, dtype=torch.float64) + start) / k
    found = torch.searchsorted(cumulated, points * cumulated[-1], right=True)
    last = int(torch.nonzero(log_weights > -torch.inf)[-1])  # rounding must not revive a dead particle
    return found.clamp(max=last)


class _Given:
    """A prediction that was made before: the sampler's own arithmetic then makes the move."""

    def __init__(self, prediction: Prediction) -> None:
        self._prediction = prediction

    def predict(self, model: DiffusionLM, step: DenoisingStep) -> Prediction:
        return self._prediction


def _move(
    sampler: Sampler, state: SamplerState, prediction: Prediction, survivors: Tensor | None, noise: Tensor
) -> tuple[SamplerState, Tensor]:
    """The survivors one step on, and log p/r of each move."""
    # The base process is the model's own: its next step sees the unguided estimate.
    prediction = replace(prediction, x_selfcond=prediction.x)
    if survivors is not None:
        at = survivors.to(state.z.device)
        state = replace(state, z=state.z[at], x_selfcond=state.x_selfcond[at])
        prediction = replace(
            prediction,
            logits=prediction.logits[at],
            x=prediction.x[at],
            x_selfcond=prediction.x_selfcond[at],
            shift=None if prediction.shift is None else prediction.shift[at],
            log_acceptance=None if prediction.log_acceptance is None else prediction.log_acceptance[at],
        )
    after = replace(sampler, guidance=_Given(prediction)).step(state, lambda: noise)
    weightless = torch.zeros(state.z.shape[0], dtype=torch.float64)
    if prediction.shift is None:
        return after, weightless
    then = NoiseLevel(after.gamma)
    share = -torch.expm1(after.gamma - state.gamma)
    if not share * then.sigma_squared > 0:  # a move without noise can't be another one than the model's own
        unguided = replace(prediction, shift=None)
        return replace(sampler, guidance=_Given(unguided)).step(state, lambda: noise), weightless
    # The mean moves by c·α_s·shift and the standard deviation is √c·σ_s.
    offset = share.sqrt() * (then.alpha / then.sigma) * prediction.shift
    return after, log_move_ratio(offset, noise.to(offset)).cpu()


def _log_twist(prediction: Prediction, rows: Sequence[TokenAutomaton]) -> Tensor:
    """log ψ of every row: what the guidance found already, or the programme again where it told nothing."""
    found = prediction.log_acceptance
    if found is None:
        found = acceptance(prediction.logits, rows, logits=True).log_prob
    return found.double().cpu()


class _Population:
    """The weights of n groups of K particles.

    A weight is kept as log w = `_log_ratio` + log ψ of the current state, so that a state with ψ = 0 weighs
    nothing but its trajectory may come back, and −inf is never subtracted from −inf.
    """

    def __init__(self, seeds: Sequence[tuple[int, int]], n_particles: int, threshold: float) -> None:
        self.log_evidence = torch.zeros(len(seeds), dtype=torch.float64)
        self.ess: list[Tensor] = []
        self.history = torch.empty(0, len(seeds) * n_particles, dtype=torch.float64)  # (steps, n·K): log ψ
        self._log_ratio = torch.zeros(len(seeds), n_particles, dtype=torch.float64)
        self._threshold = threshold
        self._draws = [np.random.default_rng((*seed, RESAMPLING)) for seed in seeds]

    def weigh(self, log_twist: Tensor) -> Tensor | None:
        """Weigh the particles (n·K,); the rows that go on, or None if all of them do."""
        log_weights = self._weights(log_twist)
        n, k = log_weights.shape
        poor = (self.ess[-1] < self._threshold * k) & (self.ess[-1] > 0)
        if not bool(poor.any()):
            return None
        ancestors = torch.arange(n * k).view(n, k)
        for i in poor.nonzero()[:, 0].tolist():
            ancestors[i] = i * k + systematic(log_weights[i], self._draws[i].random())
            self.log_evidence[i] += log_weights[i].logsumexp(dim=0) - np.log(k)
            self._log_ratio[i] = -log_twist[ancestors[i]]  # the survivors weigh 1
        self.history = self.history[:, ancestors.flatten()]
        return ancestors.flatten()

    def moved(self, log_ratio: Tensor) -> None:
        """Count log p/r of a move, (n·K,)."""
        self._log_ratio = self._log_ratio + log_ratio.view_as(self._log_ratio)

    def choose(self, log_twist: Tensor) -> Tensor:
        """One row for each sample (n,), by the last weights; any of them where every weight is 0."""
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
        return [(int(one.integers(2**62)), 0) for one in self._draws]

    def _weights(self, log_twist: Tensor) -> Tensor:
        log_weights = self._log_ratio + log_twist.view_as(self._log_ratio)
        self.ess.append(effective_size(log_weights))
        self.history = torch.cat([self.history, log_twist[None]])
        return log_weights


def _proposal(guidance: Proposal, scale: float, rows: Sequence[TokenAutomaton]) -> Guidance:
    if callable(guidance):
        return guidance(rows)
    if guidance == "posterior":
        return PosteriorGuidance(rows, scale)
    if guidance == "gradient":
        return GradientGuidance(rows, scale)
    raise InvalidArgument(f"particles take guidance 'posterior', 'gradient' or a function, but got {guidance!r}")


def _check(
    automata: Sequence[TokenAutomaton],
    seeds: Sequence[tuple[int, int]],
    n_particles: int,
    length: int,
    threshold: float,
) -> None:
    if not automata:
        raise InvalidArgument("there is no automaton: give one for each sample")
    if len(seeds) != len(automata):
        raise InvalidArgument(f"{len(seeds)} seeds for {len(automata)} automata: give one (seed, index) for each")
    if n_particles < 1 or length < 1:
        raise InvalidArgument(f"n_particles and length must be at least 1, but are {n_particles} and {length}")
    if not 0.0 <= threshold <= 1.0:
        raise InvalidArgument(f"threshold must be a share of the particles between 0 and 1, but is {threshold}")
    for one in dict.fromkeys(automata):
        one.check_feasible(length)

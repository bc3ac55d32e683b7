"""Sampling with automata, or without a constraint: `sample`, `sample_particles` and `texts`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from diffinity.alignment import TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.generation.loop import Run, no_denormals
from diffinity.generation.making import check_settings, make_process
from diffinity.generation.particles import Population
from diffinity.generation.settings import GenerationSettings
from diffinity.guidance import Guidance, Unguided
from diffinity.models.protocol import EmbeddingDiffusion, Method, TextModel, check_model, text_of
from diffinity.processes.base import Cancellation, Draws, Ending, FinishReason, Seeds, sample_generator
from diffinity.processes.gaussian import GaussianProcess, Grid, SamplerState

__all__ = [
    "Cancellation",
    "FinishReason",
    "Grid",
    "Method",
    "ParticleRun",
    "Proposal",
    "Sampler",
    "SamplerState",
    "Samples",
    "make_sampler",
    "no_denormals",
    "sample",
    "sample_generator",
    "sample_particles",
    "texts",
]

Sampler = GaussianProcess
Proposal = Literal["auto", "posterior", "gradient"] | str | Callable[[Sequence[TokenAutomaton]], Guidance]
Callback = Callable[[int, Any], bool | None]


@dataclass(frozen=True)
class Samples:
    """The result of a sampler run."""

    logits: Tensor  # (B, L, V)
    state: SamplerState
    finish_reason: FinishReason

    @property
    def tokens(self) -> Tensor:
        """The most probable token at every position, (B, L)."""
        return self.logits.argmax(dim=-1)


def sample(
    model: EmbeddingDiffusion,
    n: int = 1,
    length: int | None = None,
    *,
    num_inference_steps: int | None = None,
    seed: int = 0,
    first_index: int = 0,
    guidance: Guidance | None = None,
    method: Method | None = None,
    grid: Grid = "uniform",
    score_temp: float | None = None,
    callback_on_step_end: Callback | None = None,
    cancel: Cancellation | None = None,
    deadline: float | None = None,
) -> Samples:
    """Draw `n` samples of `length` tokens; the model has defaults for missing arguments.

    Sample i has the seed (seed, first_index + i), in every batch.

    >>> import diffinity as dy
    >>> dy.sample(dy.fit_markov(["a b.", "b a."]), n=2, length=4, num_inference_steps=8).tokens.shape
    torch.Size([2, 4])
    """
    if check_model(model) != "embedding":
        raise InvalidArgument(
            f"dy.sample draws from models of embeddings, but a {type(model).__name__} is a model of tokens: "
            'use dy.generate(model, guidance="none", decode="argmax")'
        )
    length = model.sampling_defaults.length if length is None else length
    if n < 1 or length < 1:
        raise InvalidArgument(f"n and length must be at least 1, but are {n} and {length}")
    process = make_sampler(model, guidance, num_inference_steps, method, grid, score_temp)
    draws = Draws([(seed, first_index + i) for i in range(n)])
    run = Run(process, process.begin(draws, length), draws, cancel=cancel, deadline=deadline)
    for state in run:
        if callback_on_step_end is not None and callback_on_step_end(state.step - 1, state):
            run.stop()
    logits = run.ending().logits
    assert logits is not None
    return Samples(logits, run.state, run.finish_reason)


def make_sampler(
    model: EmbeddingDiffusion,
    guidance: Guidance | None = None,
    num_inference_steps: int | None = None,
    method: Method | None = None,
    grid: Grid = "uniform",
    score_temp: float | None = None,
) -> GaussianProcess:
    """A sampler with the model's own defaults for missing arguments.

    >>> import diffinity as dy
    >>> make_sampler(dy.fit_markov(["a b."]), num_inference_steps=8).num_inference_steps
    8
    """
    defaults = model.sampling_defaults
    return GaussianProcess(
        model,
        guidance or Unguided(),
        defaults.num_inference_steps if num_inference_steps is None else num_inference_steps,
        method or defaults.method,
        grid,
        defaults.score_temp if score_temp is None else score_temp,
    )


def texts(model: TextModel, tokens: Tensor) -> list[str]:
    """The texts of tokens (B, L), each up to its first end-of-sequence token."""
    return [text_of(model, ids) for ids in tokens.tolist()]


@dataclass(frozen=True)
class ParticleRun:
    """n samples, each chosen from K weighted trajectories."""

    ending: Ending  # of the chosen particles
    tokens: Tensor  # (n, L): accepted tokens, drawn from the ending
    log_p_text: Tensor  # (n,), float64: of the tokens under the ending
    log_evidence: Tensor  # (n,), float64: of an unbiased estimate of P(L) under the model's own sampler
    ess: Tensor  # (n, steps + 1), float64: the effective number of particles before resampling
    log_acceptance: Tensor  # (n, steps + 1), float64: log ψ along the chosen trajectory
    state: Any  # of all n·K particles, those of sample i in rows i·K to i·K + K − 1
    finish_reason: FinishReason

    @property
    def logits(self) -> Tensor:
        """(n, L, V): the last distributions of the chosen particles."""
        if self.ending.logits is None:
            raise InvalidArgument("the run ended in tokens, not in distributions")
        return self.ending.logits


def sample_particles(
    model: TextModel,
    automata: Sequence[TokenAutomaton],
    n_particles: int = 16,
    length: int | None = None,
    *,
    num_inference_steps: int | None = None,
    seed: int = 0,
    seeds: Seeds | None = None,
    guidance: Proposal = "auto",
    guidance_scale: float = 1.0,
    score_temp: float | None = None,
    threshold: float = 0.5,
    context: Sequence[int] | None = None,
    callback_on_step_end: Callback | None = None,
    cancel: Cancellation | None = None,
    deadline: float | None = None,
    **options: Any,
) -> ParticleRun:
    """One sample per automaton, chosen from `n_particles` trajectories; one network call per step, with n·K rows.

    `guidance` proposes the steps: a name with `guidance_scale` (1 is the first-order optimum), or a function from
    the automata of all rows to a guidance. A group is resampled when its effective number of particles falls below
    `threshold`·K. Sample i has the seed (seed, i), or the i-th of `seeds`, in every batch. `context` are the
    token ids of a prompt; `options` are further fields of `GenerationSettings`.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["a b.", "b a.", "a a."])
    >>> starts = dy.align(dy.Regex("a.*"), dy.Vocabulary.from_tokenizer(model.tokenizer))
    >>> run = sample_particles(model, [starts], n_particles=4, length=5, num_inference_steps=8)
    >>> starts.accepts(run.tokens[0].tolist())
    True
    """
    length = model.sampling_defaults.length if length is None else length
    seeds = [(seed, i) for i in range(len(automata))] if seeds is None else seeds
    _check(automata, seeds, n_particles, length)
    settings = GenerationSettings.of(
        num_inference_steps=num_inference_steps,
        guidance=guidance,
        guidance_scale=guidance_scale,
        score_temp=score_temp,
        particles=n_particles,
        **options,
    )
    check_settings(model, settings)
    rows = [automaton for automaton in automata for _ in range(n_particles)]
    process = make_process(model, rows, length, settings, weighted=True, context=context)
    population = Population(seeds, n_particles, rows, threshold)
    draws = Draws(seeds, n_particles)
    state = process.begin(draws, length)
    run = Run(process, state, draws, population=population, cancel=cancel, deadline=deadline)
    for state in run:
        if callback_on_step_end is not None and callback_on_step_end(state.step - 1, state):
            run.stop()
    ending = run.ending()
    with torch.no_grad():
        chosen = population.choose(ending.log_acceptance(rows))
    ending = ending.select(chosen)
    decoded = ending.decode(automata, "sample", population.decoding_seeds())
    return ParticleRun(
        ending=ending,
        tokens=decoded.tokens,
        log_p_text=decoded.log_p_text,
        log_evidence=population.log_evidence,
        ess=torch.stack(population.ess, dim=1),
        log_acceptance=population.history[:, chosen].T.contiguous(),
        state=run.state,
        finish_reason=run.finish_reason,
    )


def _check(automata: Sequence[TokenAutomaton], seeds: Seeds, n_particles: int, length: int) -> None:
    if not automata:
        raise InvalidArgument("there is no automaton: give one for each sample")
    if len(seeds) != len(automata):
        raise InvalidArgument(f"{len(seeds)} seeds for {len(automata)} automata: give one (seed, index) for each")
    if n_particles < 1 or length < 1:
        raise InvalidArgument(f"n_particles and length must be at least 1, but are {n_particles} and {length}")
    for automaton in dict.fromkeys(automata):
        automaton.check_feasible(length)

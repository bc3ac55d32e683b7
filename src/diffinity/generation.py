"""`generate`: the one call that users make. Every text that it returns satisfies its constraint."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

from diffinity.acceptance import decode as decode_strings
from diffinity.acceptance import foreseen_bytes
from diffinity.alignment import Framing, TokenAutomaton, Vocabulary, align
from diffinity.constraints.base import Constraint, Regex, Text
from diffinity.constraints.python_types import constraint as as_constraint
from diffinity.constraints.python_types import value_of
from diffinity.errors import InfeasibleConstraint, InvalidArgument
from diffinity.guidance import Guidance
from diffinity.guidance.presets import GuidanceName, named_guidance
from diffinity.limits import current_limits
from diffinity.memory import check_room
from diffinity.models.protocol import DiffusionLM, text_of, without_start
from diffinity.sampling import (
    Cancellation,
    FinishReason,
    Method,
    Sampler,
    SamplerState,
    SeededNoise,
    make_sampler,
    steps,
)

ANY_TEXT = r"(?s).*"
LARGEST_BATCH = 64
Decoding = Literal["best", "sample", "argmax"]


@dataclass(frozen=True)
class Generated:
    """One text and how it came about.

    `value` is what the text stands for: an instance of the Pydantic model or type that was asked for, the data of
    a JSON Schema, and otherwise the text itself; None if the text does not satisfy the constraint.
    """

    text: str
    satisfied: bool
    tokens: tuple[int, ...]
    log_acceptance: tuple[float, ...]  # log P(L) at each guided step
    log_prob: float  # of the text under the last distributions
    seed: tuple[int, int]
    finish_reason: FinishReason
    value: Any = None


@dataclass(frozen=True)
class Draft:
    """A batch half-way: what it would read if it were decoded now, token by token."""

    step: int  # steps done
    steps: int
    texts: tuple[str, ...]
    log_acceptance: tuple[float, ...] | None  # log P(L) of each, where a constraint guides
    seeds: tuple[tuple[int, int], ...]


def generate(
    model: DiffusionLM,
    constraint: object | Sequence[object],
    n: int = 1,
    length: int | Literal["auto"] | None = None,
    *,
    num_inference_steps: int | None = None,
    seed: int = 0,
    seeds: Sequence[tuple[int, int]] | None = None,
    guidance: GuidanceName | Callable[[Sequence[TokenAutomaton]], Guidance] = "auto",
    guidance_scale: float = 2.5,
    decode: Decoding = "best",
    particles: int | None = None,
    framing: Framing = "eos",
    prompt: str = "",
    method: Method = "ancestral",
    score_temp: float | None = None,
    batch_size: int | None = None,
    callback_on_step_end: Callable[[int, SamplerState], bool | None] | None = None,
    cancel: Cancellation | None = None,
    deadline: float | None = None,
) -> list[Generated]:
    """Write `n` texts that satisfy a constraint (or one text for each of a list of constraints).

    A constraint is a `Regex`, `JsonSchema`, `Choice` … or anything that `dy.constraint` takes. With `decode`
    "best" or "sample" every text satisfies it, or `InfeasibleConstraint` is raised before the first step;
    "argmax" takes the most probable tokens as they are, as the paper does. `prompt` is how the output starts.
    `length="auto"` is the shortest comfortable one. Text i has the seed (seed, i), or the i-th of `seeds`, and
    does not depend on what else is asked for; what does not fit `batch_size` (by default what fits
    `limits.memory_bytes`) is written in turns. `particles=K` draws each text from K weighted trajectories: slower,
    and closer to the model's own distribution given the constraint.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["the cat sat.", "the dog ran."])
    >>> dy.generate(model, dy.Regex("the dog [a-z]+."), length=12, num_inference_steps=16)[0].satisfied
    True
    """
    job = _Job.of(model, constraint, n, length, seed, seeds, framing, prompt, decode)
    if particles is not None:
        return _by_particles(
            job,
            particles,
            guidance=guidance,
            scale=guidance_scale,
            num_inference_steps=num_inference_steps,
            score_temp=score_temp,
            method=method,
            batch_size=batch_size,
            callback_on_step_end=callback_on_step_end,
            cancel=cancel,
            deadline=deadline,
        )
    results: list[Generated] = []
    for part in job.parts(batch_size):
        sampler = _sampler(part, guidance, guidance_scale, num_inference_steps, method, score_temp)
        going = _finished(part, sampler, cancel, deadline)
        stop: bool | None = None
        while True:
            try:
                state = going.send(stop)
            except StopIteration as end:
                results += end.value
                break
            stop = callback_on_step_end is not None and callback_on_step_end(state.step - 1, state)
    return results


def stream(
    model: DiffusionLM,
    constraint: object | Sequence[object],
    n: int = 1,
    length: int | Literal["auto"] | None = None,
    *,
    every: int = 1,
    num_inference_steps: int | None = None,
    seed: int = 0,
    seeds: Sequence[tuple[int, int]] | None = None,
    guidance: GuidanceName | Callable[[Sequence[TokenAutomaton]], Guidance] = "auto",
    guidance_scale: float = 2.5,
    decode: Decoding = "best",
    framing: Framing = "eos",
    prompt: str = "",
    method: Method = "ancestral",
    score_temp: float | None = None,
    batch_size: int | None = None,
    cancel: Cancellation | None = None,
    deadline: float | None = None,
) -> Iterator[Draft | Generated]:
    """As `generate`, while it happens: a `Draft` of the batch every so many steps, then its `Generated` texts.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["the cat sat.", "the dog ran."])
    >>> *drafts, last = dy.stream(model, dy.Regex("the dog [a-z]+."), length=12, num_inference_steps=16)
    >>> len(drafts), last.satisfied
    (16, True)
    """
    job = _Job.of(model, constraint, n, length, seed, seeds, framing, prompt, decode)
    if every < 1:
        raise InvalidArgument(f"every must be at least 1 step, but is {every}")
    for part in job.parts(batch_size):
        sampler = _sampler(part, guidance, guidance_scale, num_inference_steps, method, score_temp)
        going = _finished(part, sampler, cancel, deadline)
        while True:
            try:
                state = next(going)
            except StopIteration as end:
                yield from end.value
                break
            if state.step % every == 0 or state.step == sampler.num_inference_steps:
                yield _draft(part, state, sampler.num_inference_steps)


@dataclass(frozen=True)
class _Job:
    """What is to be written: aligned constraints with what they were made from, and a seed for each."""

    model: DiffusionLM
    given: tuple[object, ...]
    automata: tuple[TokenAutomaton, ...]
    seeds: tuple[tuple[int, int], ...]
    length: int
    framing: Framing
    decode: Decoding

    @classmethod
    def of(
        cls,
        model: DiffusionLM,
        constraint: object | Sequence[object],
        n: int,
        length: int | Literal["auto"] | None,
        seed: int,
        seeds: Sequence[tuple[int, int]] | None,
        framing: Framing,
        prompt: str,
        decode: Decoding,
    ) -> _Job:
        """Check the arguments and compile, before anything is denoised."""
        if decode not in ("best", "sample", "argmax"):
            raise InvalidArgument(f"decode must be 'best', 'sample' or 'argmax', but is {decode!r}")
        given = _given(constraint, n)
        wanted = [_with_prompt(as_constraint(one), prompt) for one in given]
        if seeds is None:
            seeds = [(seed, i) for i in range(len(wanted))]
        if len(seeds) != len(wanted):
            raise InvalidArgument(f"{len(seeds)} seeds for {len(wanted)} texts: give one (seed, index) for each")
        vocabulary = _vocabulary(model)
        aligned = {one: align(one, vocabulary, framing) for one in dict.fromkeys(wanted)}
        if length == "auto":
            length = max(comfortable_length(one) for one in aligned.values())
        elif length is None:
            length = model.sampling_defaults.length
        if not isinstance(length, int) or length < 1:
            raise InvalidArgument(
                f"length must be a whole number of tokens, at least 1, or 'auto', not {length!r}"
            )
        check_room(model, len(wanted), length)
        for automaton in aligned.values():
            automaton.check_feasible(length)
        automata = tuple(aligned[one] for one in wanted)
        return cls(model, given, automata, tuple(seeds), length, framing, decode)

    def parts(self, batch_size: int | None, particles: int = 1) -> Iterator[_Job]:
        """The job in pieces that are denoised one after another."""
        if batch_size is not None and batch_size < 1:
            raise InvalidArgument(f"batch_size must be at least 1, but is {batch_size}")
        size = batch_size or self._affordable(particles)
        for first in range(0, len(self.automata), size):
            piece = slice(first, first + size)
            yield _Job(
                self.model,
                self.given[piece],
                self.automata[piece],
                self.seeds[piece],
                self.length,
                self.framing,
                self.decode,
            )

    def _affordable(self, particles: int) -> int:
        """How many texts at once keep a step's arrays within `limits.memory_bytes`; at least one."""
        vocab_size = self.model.embedding.shape[0]
        arrays = 4 * 4 + 8  # logits, probabilities, their difference and a gradient; marginals
        programme = max(foreseen_bytes(one, self.length) for one in set(self.automata))
        each = particles * (arrays * self.length * vocab_size + programme)
        return max(1, min(LARGEST_BATCH, current_limits().memory_bytes // each))


def comfortable_length(automaton: TokenAutomaton) -> int:
    """The length that `length="auto"` takes: half as much again as the shortest text needs, and some, in eights.

    >>> from diffinity.alignment import Vocabulary
    >>> comfortable_length(align(Text("a" * 20), Vocabulary([b"a", b""], eos_id=1)))
    40
    """
    shortest = automaton.shortest()
    if shortest is None:
        raise InfeasibleConstraint("no text satisfies the constraint")
    length = max(24, -(-(len(shortest) * 3 // 2 + 8) // 8) * 8)
    return length if automaton.feasible(length) else len(shortest)


def _given(constraint: object | Sequence[object], n: int) -> tuple[object, ...]:
    if isinstance(constraint, list | tuple):
        if n not in (1, len(constraint)):
            raise InvalidArgument(f"n is {n}, but there are {len(constraint)} constraints: one text for each")
        if not constraint:
            raise InvalidArgument("the list of constraints is empty")
        return tuple(constraint)
    if n < 1:
        raise InvalidArgument(f"n must be at least 1, but is {n}")
    return (constraint,) * n


def _with_prompt(constraint: Constraint, prompt: str) -> Constraint:
    return constraint & (Text(prompt) + Regex(ANY_TEXT)) if prompt else constraint


def _sampler(
    job: _Job,
    guidance: GuidanceName | Callable[[Sequence[TokenAutomaton]], Guidance],
    scale: float,
    num_inference_steps: int | None,
    method: Method,
    score_temp: float | None,
) -> Sampler:
    made = guidance(job.automata) if callable(guidance) else named_guidance(guidance, job.automata, scale)
    return make_sampler(job.model, made, num_inference_steps, method, score_temp=score_temp)


def _finished(
    job: _Job, sampler: Sampler, cancel: Cancellation | None, deadline: float | None
) -> Generator[SamplerState, bool | None, list[Generated]]:
    """Denoise a part, giving the state after every step (sending True stops), and decode it."""
    noise = SeededNoise(job.seeds, (job.length, job.model.embedding.shape[1]))
    going = steps(sampler, noise(), noise, cancel=cancel, deadline=deadline)
    trace: list[Tensor] = []
    stop: bool | None = None
    while True:
        try:
            state = going.send(stop)
        except StopIteration as end:
            samples = end.value
            break
        if state.prediction is not None and state.prediction.log_acceptance is not None:
            trace.append(state.prediction.log_acceptance.detach().cpu())
        stop = yield state
    found = decode_strings(samples.logits, job.automata, job.decode, logits=True, seed=job.seeds)
    history = torch.stack(trace).T if trace else torch.empty(len(job.automata), 0)
    return _results(job, found.tokens, found.log_prob, history, samples.finish_reason)


def _results(
    job: _Job, tokens: Tensor, log_prob: Tensor, history: Tensor, reason: FinishReason
) -> list[Generated]:
    results = []
    for i, ids in enumerate(tokens.tolist()):
        satisfied = job.automata[i].accepts(ids)
        text = _text(job.model, ids, job.framing)
        results.append(
            Generated(
                text=text,
                satisfied=satisfied,
                tokens=tuple(ids),
                log_acceptance=tuple(history[i].tolist()),
                log_prob=float(log_prob[i]),
                seed=job.seeds[i],
                finish_reason=reason,
                value=value_of(job.given[i], text) if satisfied and job.framing != "search" else None,
            )
        )
    return results


def _by_particles(
    job: _Job,
    particles: int,
    *,
    guidance: GuidanceName | Callable[[Sequence[TokenAutomaton]], Guidance],
    scale: float,
    num_inference_steps: int | None,
    score_temp: float | None,
    method: Method,
    batch_size: int | None,
    callback_on_step_end: Callable[[int, SamplerState], bool | None] | None,
    cancel: Cancellation | None,
    deadline: float | None,
) -> list[Generated]:
    from diffinity.particles import sample_particles

    if job.decode == "argmax" or method != "ancestral":
        raise InvalidArgument("particles go with ancestral sampling and exact decoding, not with argmax or ddim")
    if not callable(guidance) and guidance not in ("auto", "posterior", "gradient"):
        raise InvalidArgument(
            f"particles are proposed by 'posterior' (the default) or 'gradient' guidance, not by {guidance!r}"
        )
    results: list[Generated] = []
    for part in job.parts(batch_size, particles):
        run = sample_particles(
            part.model,
            part.automata,
            particles,
            part.length,
            num_inference_steps=num_inference_steps,
            seeds=part.seeds,
            guidance="posterior" if guidance == "auto" else guidance,
            guidance_scale=min(1.0, scale),
            score_temp=score_temp,
            callback_on_step_end=callback_on_step_end,
            cancel=cancel,
            deadline=deadline,
        )
        results += _results(part, run.tokens, run.log_prob, run.log_acceptance, run.finish_reason)
    return results


def _draft(job: _Job, state: SamplerState, total: int) -> Draft:
    assert state.prediction is not None
    tokens = state.prediction.logits.argmax(dim=-1).tolist()
    accepted = state.prediction.log_acceptance
    return Draft(
        state.step,
        total,
        tuple(_text(job.model, ids, job.framing) for ids in tokens),
        None if accepted is None else tuple(accepted.tolist()),
        job.seeds,
    )


def _text(model: DiffusionLM, ids: list[int], framing: Framing) -> str:
    if framing in ("eos", "eos_strict"):
        return text_of(model, ids)
    text: str = model.tokenizer.decode(without_start(model, ids), skip_special_tokens=False)
    return text


@lru_cache(maxsize=8)
def _cached_vocabulary(tokenizer_json: str, eos: int | None, start: int | None) -> Vocabulary:
    from tokenizers import Tokenizer

    return Vocabulary.from_tokenizer(Tokenizer.from_str(tokenizer_json), eos, start)


def _vocabulary(model: DiffusionLM) -> Vocabulary:
    return _cached_vocabulary(model.tokenizer.to_str(), model.eos_token_id, model.start_token_id)

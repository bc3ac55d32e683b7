"""`generate`: the one call that users make. Every text that it returns satisfies its constraint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from diffinity.acceptance import decode as decode_strings
from diffinity.alignment import Framing, TokenAutomaton, Vocabulary, align
from diffinity.constraints.base import Constraint, Regex, Text
from diffinity.constraints.python_types import constraint as as_constraint
from diffinity.errors import InvalidArgument
from diffinity.guidance import (
    GradientGuidance,
    Guidance,
    MixedGuidance,
    PathGuidance,
    PosteriorGuidance,
)
from diffinity.models.protocol import DiffusionLM, text_of
from diffinity.sampling import Cancellation, FinishReason, Method, SamplerState, sample

GuidanceName = Literal["auto", "mixed", "gradient", "posterior", "path", "paper", "none"]
ANY_TEXT = r"(?s).*"


@dataclass(frozen=True)
class Generated:
    """One text and how it came about."""

    text: str
    satisfied: bool
    tokens: tuple[int, ...]
    log_acceptance: tuple[float, ...]  # log P(L) at each guided step
    log_prob: float  # of the text under the last distributions
    seed: tuple[int, int]
    finish_reason: FinishReason


def generate(
    model: DiffusionLM,
    constraint: object | Sequence[object],
    n: int = 1,
    length: int | None = None,
    *,
    num_inference_steps: int | None = None,
    seed: int = 0,
    guidance: GuidanceName | Callable[[Sequence[TokenAutomaton]], Guidance] = "auto",
    guidance_scale: float = 2.5,
    decode: Literal["best", "sample", "argmax"] = "best",
    framing: Framing = "eos",
    prompt: str = "",
    method: Method = "ancestral",
    score_temp: float | None = None,
    batch_size: int = 16,
    callback_on_step_end: Callable[[int, SamplerState], bool | None] | None = None,
    cancel: Cancellation | None = None,
    deadline: float | None = None,
) -> list[Generated]:
    """Write `n` texts that satisfy a constraint (or one text for each of a list of constraints).

    A constraint is a `Regex`, `JsonSchema`, `Choice` … or anything that `dy.constraint` takes. With `decode`
    "best" or "sample" every text satisfies it, or `InfeasibleConstraint` is raised before the first step;
    "argmax" takes the most probable tokens as they are, as the paper does. `prompt` is how the output starts.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["the cat sat.", "the dog ran."])
    >>> dy.generate(model, dy.Regex("the dog [a-z]+."), length=12, num_inference_steps=16)[0].satisfied
    True
    """
    length = model.sampling_defaults.length if length is None else length
    constraints = _constraints(constraint, n, prompt)
    if decode not in ("best", "sample", "argmax"):
        raise InvalidArgument(f"decode must be 'best', 'sample' or 'argmax', but is {decode!r}")
    vocabulary = _vocabulary(model)
    automata = [align(one, vocabulary, framing) for one in constraints]
    for automaton in dict.fromkeys(automata):
        automaton.check_feasible(length)
    make = _guidance_maker(guidance, guidance_scale)
    results: list[Generated] = []
    for first in range(0, len(automata), batch_size):
        part = automata[first : first + batch_size]
        trace: list[Tensor] = []
        samples = sample(
            model,
            len(part),
            length,
            num_inference_steps=num_inference_steps,
            seed=seed,
            first_index=first,
            guidance=make(part, trace),
            method=method,
            score_temp=score_temp,
            callback_on_step_end=callback_on_step_end,
            cancel=cancel,
            deadline=deadline,
        )
        found = decode_strings(samples.logits, part, decode, logits=True, seed=seed + first)
        history = torch.stack(trace).T if trace else torch.empty(len(part), 0)
        for i, ids in enumerate(found.tokens.tolist()):
            results.append(
                Generated(
                    text=_text(model, ids, framing),
                    satisfied=part[i].accepts(ids),
                    tokens=tuple(ids),
                    log_acceptance=tuple(history[i].tolist()),
                    log_prob=float(found.log_prob[i]),
                    seed=(seed, first + i),
                    finish_reason=samples.finish_reason,
                )
            )
    return results


def _constraints(given: object, n: int, prompt: str) -> list[Constraint]:
    if isinstance(given, list | tuple):
        if n not in (1, len(given)):
            raise InvalidArgument(f"n is {n}, but there are {len(given)} constraints: one text for each")
        found = [as_constraint(one) for one in given]
    else:
        if n < 1:
            raise InvalidArgument(f"n must be at least 1, but is {n}")
        found = [as_constraint(given)] * n
    if prompt:
        start = Text(prompt) + Regex(ANY_TEXT)
        found = [one & start for one in found]
    return found


def _text(model: DiffusionLM, ids: list[int], framing: Framing) -> str:
    if framing in ("eos", "eos_strict"):
        return text_of(model, ids)
    text: str = model.tokenizer.decode(ids, skip_special_tokens=False)
    return text


@lru_cache(maxsize=8)
def _cached_vocabulary(tokenizer_json: str, eos: int | None) -> Vocabulary:
    from tokenizers import Tokenizer

    return Vocabulary.from_tokenizer(Tokenizer.from_str(tokenizer_json), eos)


def _vocabulary(model: DiffusionLM) -> Vocabulary:
    return _cached_vocabulary(model.tokenizer.to_str(), model.eos_token_id)


def _guidance_maker(
    guidance: GuidanceName | Callable[[Sequence[TokenAutomaton]], Guidance], scale: float
) -> Callable[[Sequence[TokenAutomaton], list[Tensor]], Guidance | None]:
    """What makes the guidance of a batch; the log P(L) of its steps goes into the list that it is given."""
    if callable(guidance):
        return lambda automata, _: guidance(automata)

    def make(automata: Sequence[TokenAutomaton], trace: list[Tensor]) -> Guidance | None:
        def tell(_step: int, log_prob: Tensor) -> None:
            trace.append(log_prob.detach().cpu())

        gradient = GradientGuidance(automata, scale, on_step=tell)
        path = PathGuidance(automata, scale, on_step=tell)
        made: dict[str, Guidance | None] = {
            "auto": MixedGuidance(gradient, path),
            "mixed": MixedGuidance(gradient, path),
            "gradient": gradient,
            "posterior": PosteriorGuidance(automata, scale, on_step=tell),
            "path": path,
            "paper": GradientGuidance(automata, scale, guided_selfcond=False, on_step=tell),
            "none": None,
        }
        if guidance not in made:
            raise InvalidArgument(f"guidance must be one of {', '.join(made)}, but is {guidance!r}")
        return made[guidance]

    make([], [])
    return make

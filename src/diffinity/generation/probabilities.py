"""`probabilities`: the probability of each of several texts or constraints under a model, with standard errors.

Particles give an unbiased estimate of P(L) under the model's own sampler (`generation/particles.py`); the mean of
several estimates has a standard error. The factorised estimate uses the distributions of the first network call,
in which positions are independent: one call for all choices, biased because it ignores dependence between
positions.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from diffinity.acceptance import acceptance
from diffinity.alignment import TokenAutomaton, align
from diffinity.constraints.base import Constraint, Text
from diffinity.constraints.python_types import constraint as as_constraint
from diffinity.errors import InvalidArgument
from diffinity.generation.lengths import comfortable_length
from diffinity.generation.making import check_settings, make_process, prompt_of
from diffinity.generation.settings import GenerationSettings
from diffinity.models.protocol import Messages, TextModel, check_model, vocabulary_of
from diffinity.processes.base import Draws
from diffinity.sampling import sample_particles

Estimate = Literal["particles", "factorised"]
UNCERTAIN = 0.5  # relative standard error above which the mean depends on a few estimates


@dataclass(frozen=True)
class ChoiceProbability:
    """The probability of one of several choices under a model."""

    choice: object
    probability: float  # probability that the model's text is this choice
    standard_error: float  # of the probability; NaN for a single estimate
    share: float  # probability divided by that of all choices together
    share_error: float  # its standard error


def probabilities(
    model: TextModel,
    choices: Sequence[object],
    *,
    prompt: str | None = None,
    messages: Messages | None = None,
    estimate: Estimate = "particles",
    particles: int = 16,
    repeats: int = 8,
    length: int | None = None,
    seed: int = 0,
    **options: Any,
) -> list[ChoiceProbability]:
    """The probability of each of several texts, or constraints, under the model, after a prompt if it reads one.

    "particles" makes `repeats` unbiased estimates with `particles` trajectories each. "factorised" uses the
    distributions of the first network call (of `repeats` calls for a model that starts from random noise);
    autoregressive models do not have this estimate. `length` is the length of the texts, by default the length
    that the longest choice needs; `options` are fields of `GenerationSettings`. A warning says when the estimates
    of a choice differ so much that its standard error is not reliable.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["yes.", "yes.", "yes.", "no."], restart=0.0).tokens("mask")
    >>> [round(choice.share, 2) for choice in dy.probabilities(model, ["yes.", "no."], num_inference_steps=8)]
    [0.75, 0.25]
    """
    if not choices:
        raise InvalidArgument("there are no choices: give at least one text or constraint")
    if estimate not in ("particles", "factorised"):
        raise InvalidArgument(f"estimate must be 'particles' or 'factorised', but is {estimate!r}")
    if estimate == "factorised" and check_model(model) == "causal":
        raise InvalidArgument(
            f"a {type(model).__name__} does not predict later positions in one network call: only diffusion "
            "models have a factorised estimate"
        )
    if repeats < 1:
        raise InvalidArgument(f"repeats must be at least 1, but is {repeats}")
    settings = GenerationSettings.of(None, prompt=prompt, messages=messages, **options)
    check_settings(model, settings)
    constraints: list[Constraint] = [
        Text(choice) if isinstance(choice, str) else as_constraint(choice) for choice in choices
    ]
    automata = [align(constraint, vocabulary_of(model), settings.framing) for constraint in constraints]
    length = length or max(comfortable_length(automaton) for automaton in automata)
    for automaton in automata:
        automaton.check_feasible(length)
    context = prompt_of(model, settings)
    if estimate == "factorised":
        log_probs = _factorised(model, automata, settings, context, length, repeats, seed)
    else:
        unused = ("guidance_scale", "score_temp")
        particle_options = {name: value for name, value in options.items() if name not in unused}
        log_probs = torch.stack(
            [
                sample_particles(
                    model, [automaton] * repeats, particles, length, seed=seed, context=context, **particle_options
                ).log_evidence
                for automaton in automata
            ]
        )
    summary = _summarised(choices, log_probs)
    uncertain = [c for c in summary if c.standard_error > UNCERTAIN * c.probability]
    if uncertain and estimate == "particles":
        warnings.warn(
            f"the {repeats} estimates differ so much that the standard errors are too small, for "
            f"{len(uncertain)} of {len(choices)} choices, such as {uncertain[0].choice!r}: use more particles "
            f"(now {particles}) or more repeats",
            stacklevel=2,
        )
    return summary


def _factorised(
    model: TextModel,
    automata: Sequence[TokenAutomaton],
    settings: GenerationSettings,
    context: Sequence[int] | None,
    length: int,
    repeats: int,
    seed: int,
) -> Tensor:
    """log P(L) of the distributions of the first step, (choices, repeats); one column for masked noise."""
    free = GenerationSettings.of(settings, guidance="none", decode="argmax")
    rows = 1 if getattr(model, "noise", None) == "mask" else repeats
    draws = Draws([(seed, i) for i in range(rows)])
    process = make_process(model, [automata[0]] * rows, length, free, context=context)
    with torch.no_grad():
        logits = process.predict(process.begin(draws, length)).logits
    return torch.stack(
        [acceptance(logits, automaton, logits=True).log_p_language.double().cpu() for automaton in automata]
    )


def _summarised(choices: Sequence[object], log_probs: Tensor) -> list[ChoiceProbability]:
    """Means and standard errors of estimates whose logarithms are (choices, repeats)."""
    repeats = log_probs.shape[1]
    log_mean = log_probs.logsumexp(dim=1) - math.log(repeats)
    scaled = (log_probs - log_mean[:, None]).exp()  # around 1; NaN where every estimate is 0
    relative = torch.full_like(log_mean, torch.nan)
    if repeats > 1:
        relative = scaled.std(dim=1).nan_to_num() / math.sqrt(repeats)
    shares = log_mean.softmax(dim=0).nan_to_num()
    total = (shares * relative).square().sum()
    errors = shares * (total + (1 - 2 * shares) * relative.square()).clamp(min=0).sqrt()
    mean = log_mean.exp()
    columns = (mean.tolist(), (mean * relative).tolist(), shares.tolist(), errors.tolist())
    return [ChoiceProbability(choice, *numbers) for choice, *numbers in zip(choices, *columns, strict=True)]

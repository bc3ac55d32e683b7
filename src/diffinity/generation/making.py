"""From settings to the process that carries them out, for each kind of model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from diffinity.alignment import TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.generation.settings import GenerationSettings
from diffinity.guidance.base import Guidance, Unguided
from diffinity.guidance.presets import check_name, named_guidance
from diffinity.models.protocol import EmbeddingDiffusion, TextModel, TokenDiffusion, check_model, no_prompt
from diffinity.processes.base import Process
from diffinity.processes.gaussian import GaussianProcess

PROPOSALS = ("auto", "posterior", "gradient")


def check_settings(model: TextModel, settings: GenerationSettings) -> None:
    """Refuse what a model of this kind can't do, by name.

    >>> import diffinity as dy
    >>> check_settings(dy.fit_markov(["a b."]), GenerationSettings(prompt="Hello"))
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: a MarkovLM reads no prompt: prefix= is how the output starts
    """
    check_model(model)
    if settings.prompt is not None or settings.messages is not None:
        raise InvalidArgument(no_prompt(model))
    if callable(settings.guidance):
        return
    check_name(settings.guidance)
    if settings.particles is not None and settings.guidance not in PROPOSALS:
        raise InvalidArgument(
            "particles are proposed by 'posterior' (the default) or 'gradient' guidance, not by "
            f"{settings.guidance!r}"
        )


def prompt_of(model: TextModel, settings: GenerationSettings) -> list[int] | None:
    """The token ids of what the model reads before it writes; None if nothing was asked for."""
    if settings.prompt is None and settings.messages is None:
        return None
    return cast(TokenDiffusion, model).encode_prompt(settings.prompt, settings.messages)


def make_process(
    model: TextModel,
    automata: Sequence[TokenAutomaton],
    settings: GenerationSettings,
    *,
    weighted: bool = False,
    context: Sequence[int] | None = None,
) -> Process[Any, Any]:
    """The process that writes one row for each automaton; `weighted` for particles."""
    assert context is None  # `check_settings` refuses a prompt for a model that reads none
    lm = cast(EmbeddingDiffusion, model)
    defaults, steps, temp = lm.sampling_defaults, settings.num_inference_steps, settings.score_temp
    return GaussianProcess(
        lm,
        _guidance(automata, settings, weighted),
        defaults.num_inference_steps if steps is None else steps,
        "ancestral" if weighted else settings.method or defaults.method,
        score_temp=defaults.score_temp if temp is None else temp,
        weighted=weighted,
    )


def _guidance(automata: Sequence[TokenAutomaton], settings: GenerationSettings, weighted: bool) -> Guidance:
    name, scale = settings.guidance, settings.guidance_scale
    if callable(name):
        return name(automata)
    if weighted:
        name, scale = "posterior" if name == "auto" else name, min(1.0, scale)
    return named_guidance(name, automata, scale) or Unguided()

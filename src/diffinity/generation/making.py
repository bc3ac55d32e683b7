"""Creates the process for a model and its settings, for each kind of model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from diffinity.alignment import TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.generation.scores import no_score
from diffinity.generation.settings import GenerationSettings
from diffinity.guidance.base import Guidance, Unguided
from diffinity.guidance.chain import no_bigrams
from diffinity.guidance.presets import chain_where_small, check_name, named_guidance
from diffinity.guidance.unmasking import METHODS
from diffinity.models.protocol import (
    CausalModel,
    EmbeddingDiffusion,
    TextModel,
    TokenDiffusion,
    check_model,
    no_prompt,
)
from diffinity.processes.base import Process
from diffinity.processes.causal import METHODS as CAUSAL_METHODS
from diffinity.processes.causal import CausalProcess
from diffinity.processes.gaussian import GaussianProcess
from diffinity.processes.masked import MaskedProcess
from diffinity.processes.tokens import Network
from diffinity.processes.uniform import METHODS as UNIFORM_METHODS
from diffinity.processes.uniform import UniformProcess

PROPOSALS = ("auto", "posterior", "gradient", "chain")
AUTO = "joint"  # the default for processes on tokens; docs/discrete.md has the measurements
TOKEN_OPTIONS = ("temperature", "order", "block_length", "cfg_scale")
MASK_OPTIONS = ("order", "block_length")
DIFFUSION_OPTIONS = ("num_inference_steps", "method", "score_temp", "order", "block_length", "cfg_scale")


def check_settings(model: TextModel, settings: GenerationSettings) -> None:
    """Raise an error that names any setting that the model does not support.

    >>> import diffinity as dy
    >>> check_settings(dy.fit_markov(["a b."]), GenerationSettings(prompt="Hello"))
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: a MarkovLM reads no prompt: prefix= is how the output starts
    """
    kind = check_model(model)
    reason = no_score(model) if (settings.best_of or 1) > 1 else None
    if reason is not None:
        raise InvalidArgument(f"best_of is {settings.best_of}, but {reason}")
    prompted = settings.prompt is not None or settings.messages is not None
    if prompted and not getattr(model, "reads_prompts", False):
        raise InvalidArgument(no_prompt(model))
    if kind == "embedding":
        _refuse_changed(settings, TOKEN_OPTIONS, "a model of tokens", model)
        _check_embedding(model, settings)
    elif kind == "causal":
        _refuse_changed(settings, DIFFUSION_OPTIONS, "a diffusion model", model)
        _check_choices(model, settings, CAUSAL_METHODS, "auto")
    else:
        _check_token(cast(TokenDiffusion, model), settings, prompted)


def _check_embedding(model: TextModel, settings: GenerationSettings) -> None:
    if callable(settings.guidance):
        return
    check_name(settings.guidance)
    if settings.guidance == "chain" and getattr(model, "bigrams", None) is None:
        raise InvalidArgument(no_bigrams(model))
    if settings.particles is not None and settings.guidance not in PROPOSALS:
        raise InvalidArgument(
            f"particles are proposed by 'chain', 'posterior' or 'gradient' guidance, not by {settings.guidance!r}"
        )


def _check_token(model: TokenDiffusion, settings: GenerationSettings, prompted: bool) -> None:
    _refuse_changed(settings, ("method", "score_temp"), "a model of embeddings", model)
    if model.noise == "uniform":
        _refuse_changed(settings, MASK_OPTIONS, "a model with masked noise", model)
    methods = METHODS if model.noise == "mask" else UNIFORM_METHODS
    _check_choices(model, settings, ("auto", *methods), "joint")
    if settings.cfg_scale > 0 and not prompted:
        raise InvalidArgument("cfg_scale needs a prompt: it compares with and without one")
    if settings.cfg_scale > 0 and model.noise != "mask":
        raise InvalidArgument("cfg_scale masks the prompt, and a model with uniform noise has no mask")


def _check_choices(model: TextModel, settings: GenerationSettings, methods: Sequence[str], proposal: str) -> None:
    """Refuse a guidance that models of this kind do not support, with or without particles."""
    if settings.guidance not in methods:
        raise InvalidArgument(
            f"guidance of a {type(model).__name__} must be one of {', '.join(methods)}, but is "
            f"{settings.guidance!r}"
        )
    if settings.particles is not None:
        if settings.guidance not in ("auto", proposal):
            raise InvalidArgument(
                f"particles are proposed by {proposal!r} (the default), not by {settings.guidance!r}"
            )
        if settings.temperature == 0:
            raise InvalidArgument("particles need a temperature above 0")


def _refuse_changed(settings: GenerationSettings, names: Sequence[str], owner: str, model: object) -> None:
    defaults = GenerationSettings()
    for name in names:
        if getattr(settings, name) != getattr(defaults, name):
            raise InvalidArgument(f"{name} is an option of {owner}, which a {type(model).__name__} is not")


def prompt_of(model: TextModel, settings: GenerationSettings) -> list[int] | None:
    """The token ids of the prompt; None if there is no prompt."""
    if settings.prompt is None and settings.messages is None:
        return None
    return cast(TokenDiffusion | CausalModel, model).encode_prompt(settings.prompt, settings.messages)


def make_process(
    model: TextModel,
    automata: Sequence[TokenAutomaton],
    length: int,
    settings: GenerationSettings,
    *,
    weighted: bool = False,
    context: Sequence[int] | None = None,
) -> Process[Any, Any]:
    """The process that writes one row of `length` tokens for each automaton; `weighted` for particles."""
    kind = check_model(model)
    if kind == "causal":
        causal = cast(CausalModel, model)
        temperature = causal.temperature if settings.temperature is None else settings.temperature
        method = cast(Any, settings.guidance)
        return CausalProcess(causal, automata, length, method, temperature, context=context, weighted=weighted)
    if kind == "token":
        return _token_process(cast(TokenDiffusion, model), automata, length, settings, weighted, context)
    assert context is None  # `check_settings` refuses a prompt for other models
    lm = cast(EmbeddingDiffusion, model)
    defaults, steps = lm.sampling_defaults, settings.num_inference_steps
    return GaussianProcess(
        lm,
        _guidance(lm, automata, settings, weighted),
        defaults.num_inference_steps if steps is None else steps,
        "ancestral" if weighted else settings.method or defaults.method,
        score_temp=score_temp_of(lm, settings),
        weighted=weighted,
        show_decided=settings.decode != "sample",  # showing decided tokens sharpens the distribution
    )


def drafts_of(model: TextModel, settings: GenerationSettings, free: bool = False) -> int:
    """The number of drafts of each text; the best draft is returned.

    "auto" writes the model's default number of drafts, which may differ for texts without a constraint (`free`),
    and "best" twice that number. With any other guidance, with particles, and with `decode="sample"` there is one
    draft.

    >>> import diffinity as dy
    >>> drafts_of(dy.fit_markov(["a b."]), GenerationSettings())
    1
    """
    if settings.best_of is not None:
        return settings.best_of
    defaults = model.sampling_defaults
    n_drafts = defaults.best_of_free if free and defaults.best_of_free is not None else defaults.best_of
    if n_drafts == 1 or settings.particles is not None or settings.decode == "sample":
        return 1
    return {"auto": n_drafts, "best": 2 * n_drafts}.get(str(settings.guidance), 1)


def rows_of(model: TextModel, settings: GenerationSettings) -> int:
    """The number of batch rows of one text: its particles or its drafts."""
    return settings.particles or drafts_of(model, settings)


def score_temp_of(model: EmbeddingDiffusion, settings: GenerationSettings) -> float:
    """The score temperature of the settings; by default 1 with `decode="sample"`, else the model's own.

    A model's own temperature sharpens every step, so most runs end in the same few texts. `decode="sample"` draws
    from the model's distribution, which is not sharpened.

    >>> import diffinity as dy
    >>> model = dy.load()
    >>> score_temp_of(model, GenerationSettings(decode="sample")), score_temp_of(model, GenerationSettings()) < 1
    (1.0, True)
    """
    if settings.score_temp is not None:
        return settings.score_temp
    return 1.0 if settings.decode == "sample" else model.sampling_defaults.score_temp


def _guidance(
    model: EmbeddingDiffusion, automata: Sequence[TokenAutomaton], settings: GenerationSettings, weighted: bool
) -> Guidance:
    name, scale = settings.guidance, settings.guidance_scale
    if callable(name):
        return name(automata)
    if weighted:
        proposal = "posterior" if getattr(model, "bigrams", None) is None else "chain"
        name, scale = proposal if name == "auto" else name, min(1.0, scale)
    if name in ("auto", "best") and getattr(model, "bigrams", None) is not None:
        return chain_where_small(automata, scale)
    return named_guidance(name, automata, scale) or Unguided()


def _token_process(
    model: TokenDiffusion,
    automata: Sequence[TokenAutomaton],
    length: int,
    settings: GenerationSettings,
    weighted: bool,
    context: Sequence[int] | None,
) -> Process[Any, Any]:
    network = Network(model, context, settings.cfg_scale)
    method: Any = AUTO if settings.guidance == "auto" else settings.guidance
    steps = settings.num_inference_steps or model.sampling_defaults.num_inference_steps
    temperature = model.temperature if settings.temperature is None else settings.temperature
    if weighted and temperature == 0:
        temperature = 1.0  # particles are drawn at random
    if model.noise == "uniform":
        return UniformProcess(network, automata, length, steps, method, temperature, weighted)
    return MaskedProcess(
        network,
        automata,
        length,
        steps,
        method,
        cast(Any, settings.order or model.order),
        settings.block_length or model.block_length,
        temperature,
        model.canvas,
        weighted,
    )

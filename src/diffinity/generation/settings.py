"""`GenerationSettings`: the options of generation, shared by Python, the command line, batches and servers.

Each option is one field. Its metadata has its name in JSON and on the command line (`name`), its description
(`help`), and the accepted values (`accepts`, `minimum`, `above`), so that a new option is one line here.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import FunctionType
from typing import Annotated, Any, Literal, get_type_hints

from diffinity.alignment import Framing, TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.guidance.base import Guidance
from diffinity.guidance.unmasking import ORDERS, Order
from diffinity.models.protocol import Messages, Method
from diffinity.processes.base import Decoding

Length = int | Literal["auto"] | None
MakeGuidance = Callable[[Sequence[TokenAutomaton]], Guidance]
DECODINGS: tuple[Decoding, ...] = ("best", "sample", "argmax")


def _option(
    default: Any,
    meaning: str,
    accepts: str,
    *,
    name: str = "",
    minimum: float | None = None,
    above: float | None = None,
    json: Any = None,
    shown: bool = True,
) -> Any:
    """A field with metadata for requests and the command line.

    `json` is its type in JSON if it differs, or a function that returns the type. A field that is not `shown` can
    be set only in Python.
    """
    metadata = {
        "help": meaning,
        "accepts": accepts,
        "name": name,
        "minimum": minimum,
        "above": above,
        "json": json,
    }
    metadata["shown"] = shown
    return field(default=default, metadata=metadata)


def _length_in_json() -> Any:
    """The type of a length in a request; pydantic is imported only when this is called."""
    from pydantic import Field

    return Annotated[int, Field(ge=1)] | Literal["auto"] | None


@dataclass(frozen=True, kw_only=True, repr=False)
class GenerationSettings:
    """The options of generation; None is the model's own default.

    >>> GenerationSettings(length=32, decode="sample").guidance_scale
    2.5
    >>> GenerationSettings.of(steps=3)
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: there is no option 'steps': did you mean 'num_inference_steps'?
    """

    length: Length = _option(
        None,
        "Tokens per text; auto: a length that fits the constraint.",
        'a whole number of tokens, at least 1, or "auto"',
        minimum=1,
        json=_length_in_json,
    )
    num_inference_steps: int | None = _option(
        None, "Denoising steps.", "a whole number, at least 1", name="steps", minimum=1
    )
    guidance: str | MakeGuidance = _option(
        "auto",
        "auto or none; embeddings: fast, best, mixed, gradient, posterior, path, chain, paper; tokens: joint, "
        "dingo, marginals.",
        "the name of a guidance",
        json=str,
    )
    guidance_scale: float = _option(
        2.5,
        "How strongly the constraint steers embeddings.",
        "a finite number, at least 0",
        name="scale",
        minimum=0,
    )
    decode: Decoding = _option(
        "best", "best, sample (both always match) or argmax.", '"best", "sample" or "argmax"', json=str
    )
    method: Method | None = _option(
        None, "ancestral or ddim; by default the model's own method.", '"ancestral" or "ddim"', json=str | None
    )
    prefix: str = _option("", "The text starts with this.", "a text")
    prompt: str | None = _option(None, "The model reads this before it writes, if it reads prompts.", "a text")
    messages: Messages | None = _option(
        None,
        "A conversation for the model's chat template.",
        "a list of objects with a role and a content",
        json=tuple[dict[str, str], ...] | None,
    )
    score_temp: float | None = _option(
        None, "Score temperature; below 1 sharpens (embeddings).", "a finite number above 0", above=0
    )
    particles: int | None = _option(
        None,
        "Weighted trajectories from which each text is chosen: closer to the model's own distribution.",
        "a whole number, at least 1",
        minimum=1,
    )
    best_of: int | None = _option(
        None,
        "Drafts of each text; the draft with the best score is returned.",
        "a whole number, at least 1",
        minimum=1,
    )
    temperature: float | None = _option(
        None,
        "Temperature of the token distributions; 0: the most probable token.",
        "a finite number, at least 0",
        minimum=0,
    )
    order: Order | None = _option(
        None,
        "The order in which tokens are unmasked: confidence, entropy, random, left-to-right or ancestral.",
        "the name of an order",
        json=str | None,
    )
    block_length: int | None = _option(
        None, "Tokens in a block; blocks are unmasked one after another.", "a whole number, at least 1", minimum=1
    )
    cfg_scale: float = _option(
        0.0,
        "Scale of classifier-free guidance by the prompt (LLaDA).",
        "a finite number, at least 0",
        minimum=0,
    )
    framing: Framing = _option(
        "eos", "exact, eos, eos_strict or search.", '"exact", "eos", "eos_strict" or "search"', json=str
    )
    retry_invalid: int = _option(
        0,
        "How often a text is generated again if the type's validators refuse its value.",
        "a whole number, at least 0",
        minimum=0,
    )
    batch_size: int | None = _option(
        None,
        "Texts denoised together; by default as many as fit in memory.",
        "a whole number, at least 1",
        minimum=1,
        shown=False,
    )

    def __post_init__(self) -> None:
        for option in fields(self):
            _check(option, getattr(self, option.name))
        if not isinstance(self.length, int | None) and self.length != "auto":
            raise InvalidArgument(_not_a_length(self.length))
        if self.decode not in DECODINGS:
            raise InvalidArgument(f"decode must be 'best', 'sample' or 'argmax', but is {self.decode!r}")
        if self.method not in (None, "ancestral", "ddim"):
            raise InvalidArgument(f"method must be 'ancestral' or 'ddim', but is {self.method!r}")
        if self.order is not None and self.order not in ORDERS:
            raise InvalidArgument(f"order must be one of {', '.join(ORDERS)}, but is {self.order!r}")
        if self.prompt is not None and self.messages is not None:
            raise InvalidArgument("give prompt= or messages=, not both: a conversation has its own texts")
        if self.particles is not None and (self.best_of or 1) > 1:
            raise InvalidArgument("particles are chosen by their weights: best_of does not go with them")
        if self.particles is not None and (self.decode == "argmax" or self.method == "ddim"):
            raise InvalidArgument(
                "particles go with ancestral sampling and exact decoding, not with argmax or ddim"
            )

    def __repr__(self) -> str:
        return f"GenerationSettings({self.as_json()})"

    @classmethod
    def of(cls, settings: GenerationSettings | None = None, **options: Any) -> GenerationSettings:
        """The settings with some options changed; an unknown option is refused, with the closest known name."""
        names = [option.name for option in fields(cls)]
        for name in options:
            if name not in names:
                python_names = {
                    option.metadata["name"]: option.name for option in fields(cls) if option.metadata["name"]
                }
                closest = (
                    [python_names[name]] if name in python_names else difflib.get_close_matches(name, names, 1)
                )
                suggestion = f"did you mean {closest[0]!r}?" if closest else f"there are {', '.join(names)}"
                raise InvalidArgument(f"there is no option {name!r}: {suggestion}")
        return dataclasses.replace(settings or cls(), **options)

    def as_json(self) -> dict[str, Any]:
        """The options that differ from the defaults, under their names in requests and on the command line.

        >>> GenerationSettings(num_inference_steps=8).as_json()
        {'steps': 8}
        """
        changed = {
            option: getattr(self, option.name)
            for option in fields(self)
            if getattr(self, option.name) != option.default
        }
        return {
            request_name(option): value if not callable(value) else repr(value)
            for option, value in changed.items()
        }


@dataclass(frozen=True)
class Option:
    """An option of requests and the command line."""

    name: str
    stated_type: Any
    default: Any
    help: str
    accepts: str
    minimum: float | None
    above: float | None

    @property
    def type(self) -> Any:
        """Its type in JSON."""
        return self.stated_type() if isinstance(self.stated_type, FunctionType) else self.stated_type


def shown_options() -> list[Option]:
    """The options that requests and the command line may set, in order.

    >>> shown_options()[1].name, shown_options()[1].type
    ('steps', int | None)
    """
    types = get_type_hints(GenerationSettings)
    return [
        Option(
            request_name(option),
            option.metadata["json"] or types[option.name],
            option.default,
            *(option.metadata[key] for key in ("help", "accepts", "minimum", "above")),
        )
        for option in fields(GenerationSettings)
        if option.metadata["shown"]
    ]


def request_name(option: dataclasses.Field[Any]) -> str:
    """The name of an option in JSON and on the command line.

    >>> request_name(fields(GenerationSettings)[1])
    'steps'
    """
    return str(option.metadata["name"] or option.name)


def from_request_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments for Python from options with the names of requests and the command line.

    >>> from_request_names({"steps": 8})
    {'num_inference_steps': 8}
    """
    names = {request_name(option): option.name for option in fields(GenerationSettings)}
    return {names[name]: value for name, value in options.items()}


def _not_a_length(value: object) -> str:
    return f"length must be a whole number of tokens, at least 1, or 'auto', not {value!r}"


def _check(option: dataclasses.Field[Any], value: object) -> None:
    """Refuse a number out of bounds, or a value that is not a number."""
    minimum, above = option.metadata["minimum"], option.metadata["above"]
    if (minimum is None and above is None) or value is None or value == "auto":
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if option.name == "length" and (not isinstance(value, int) or value < 1):
        raise InvalidArgument(_not_a_length(value))
    if str(option.type).startswith("int"):
        is_number = is_number and isinstance(value, int)
    if not is_number or (minimum is not None and value < minimum) or (above is not None and value <= above):
        if minimum == 1 and is_number:
            raise InvalidArgument(f"{option.name} must be at least 1, but is {value}")
        raise InvalidArgument(f"{option.name} must be {option.metadata['accepts']}, but is {value}")

"""Requests as clients send them (OpenAI, vLLM, llama.cpp, Ollama), checked field by field."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model

from diffinity.generation.settings import request_name, shown_options
from diffinity.serve.errors import ApiError

LARGEST_SEED = 2**63 - 1
MOST_STOPS = 16
MOST_LOGPROBS = 20
REMOVED = {
    "guided_json": "structured_outputs.json",
    "guided_regex": "structured_outputs.regex",
    "guided_choice": "structured_outputs.choice",
    "guided_grammar": "structured_outputs.grammar",
}
# Fields of OpenAI's API that have no effect at these values; other values are refused.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
}
Body = TypeVar("Body", bound=BaseModel)


class _Checked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class NamedSchema(_Checked):
    """`response_format.json_schema`."""

    name: str = Field("", description="a name")
    description: str | None = Field(None, description="a text")
    schema_: dict[str, JsonValue] | bool = Field(alias="schema", description="a JSON Schema")
    strict: bool | None = Field(None, description="true or false: the answer satisfies the schema either way")


class ResponseFormat(_Checked):
    """OpenAI's `response_format`."""

    type: Literal["text", "json_object", "json_schema"] = Field(
        description='"text", "json_object" or "json_schema"'
    )
    json_schema: NamedSchema | None = Field(None, description="an object with a name and a schema")


class StructuredOutputs(_Checked):
    """vLLM's `structured_outputs`: exactly one of these fields."""

    json_: dict[str, JsonValue] | bool | str | None = Field(None, alias="json", description="a JSON Schema")
    regex: str | None = Field(None, description="a regular expression")
    choice: list[str] | None = Field(None, min_length=1, description="a list of texts, at least one")
    grammar: str | None = Field(None, description="a grammar")


class StreamOptions(_Checked):
    """OpenAI's `stream_options`."""

    include_usage: bool | None = Field(None, description="true or false")


class Message(_Checked):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"] = Field(
        description='"system", "developer", "user" or "assistant"'
    )
    content: str | list[TextPart] = Field(description="a text, or a list of parts of type text")
    name: str | None = Field(None, description="a name")

    def text(self) -> str:
        """The content as one text."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class TextPart(_Checked):
    """A part of a message."""

    type: Literal["text"] = Field(description='"text": this model reads nothing else')
    text: str = Field(description="a text")


def _options() -> dict[str, Any]:
    """The fields of `GenerationSettings` that a request may set, under both of their names."""
    from dataclasses import fields

    from diffinity.generation.settings import GenerationSettings

    excluded = ("length", "prompt", "messages", "retry_invalid")  # the first three are fields of OpenAI's API
    options = {option.name: option for option in shown_options() if option.name not in excluded}
    names = {name: name for name in options}
    names |= {
        field.name: request_name(field) for field in fields(GenerationSettings) if request_name(field) in options
    }
    definitions: dict[str, Any] = {}
    for name, option_name in names.items():
        option = options[option_name]
        kind = (
            Annotated[option.type, Field(ge=option.minimum, gt=option.above)]
            if _is_number(option)
            else option.type
        )
        definitions[name] = (kind | None, Field(None, description=option.accepts))
    return definitions


def _is_number(option: Any) -> bool:
    return option.minimum is not None or option.above is not None


class _ServerOptions(_Checked):
    drafts: int | None = Field(
        None, ge=1, description="a whole number: with stream, the number of steps between events with drafts"
    )
    deadline: float | None = Field(None, gt=0, description="seconds, above 0")


Options = create_model("Options", __base__=_ServerOptions, **_options())
"""The object `diffinity`: options that OpenAI's API does not have."""


class _Generation(_Checked):
    model: str | None = Field(None, description="the name of the model")
    n: int | None = Field(None, ge=1, description="a whole number, at least 1")
    seed: int | None = Field(None, ge=0, le=LARGEST_SEED, description="a whole number from 0 to 2^63 − 1")
    max_tokens: int | None = Field(None, ge=1, description="a whole number, at least 1")
    temperature: float | None = Field(None, ge=0, le=2, description="a number from 0 to 2")
    stop: str | list[str] | None = Field(None, description="a text or a list of texts that must not occur")
    stream: bool | None = Field(None, description="true or false")
    stream_options: StreamOptions | None = Field(None, description="an object with include_usage")
    response_format: ResponseFormat | None = Field(None, description="an object with a type")
    structured_outputs: StructuredOutputs | None = Field(
        None, description="an object with exactly one of json, regex, choice and grammar"
    )
    grammar: str | None = Field(None, description="a grammar")
    json_schema: dict[str, JsonValue] | bool | None = Field(None, description="a JSON Schema")
    format_: Literal["json", ""] | dict[str, JsonValue] | None = Field(
        None, alias="format", description='"json" or a JSON Schema'
    )
    diffinity: Options | None = Field(None, description="an object with options")  # type: ignore[valid-type]
    user: str | None = Field(None, description="a text")
    metadata: dict[str, str] | None = Field(None, description="an object of texts")
    store: bool | None = Field(None, description="true or false")
    top_p: float | None = Field(None, description="1")
    presence_penalty: float | None = Field(None, description="0")
    frequency_penalty: float | None = Field(None, description="0")
    logit_bias: dict[str, JsonValue] | None = Field(None, description="an empty object")

    def stops(self) -> tuple[str, ...]:
        """The texts that must not occur."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class CompletionRequest(_Generation):
    """`POST /v1/completions`."""

    prompt: str | list[str] | None = Field(None, description="a text or a list of texts")
    logprobs: int | None = Field(None, ge=0, le=MOST_LOGPROBS, description="a whole number from 0 to 20")
    best_of: int | None = Field(None, description="1")
    echo: bool | None = Field(None, description="false")
    suffix: str | None = Field(None, description="no text")


class ChatRequest(_Generation):
    """`POST /v1/chat/completions`."""

    messages: list[Message] = Field(min_length=1, description="a list of objects with a role and a content")
    max_completion_tokens: int | None = Field(None, ge=1, description="a whole number, at least 1")
    logprobs: bool | None = Field(None, description="true or false")
    top_logprobs: int | None = Field(None, ge=0, le=MOST_LOGPROBS, description="a whole number from 0 to 20")
    tools: list[JsonValue] | None = Field(None, description="an empty list")
    tool_choice: JsonValue = Field(None, description='"none"')
    functions: list[JsonValue] | None = Field(None, description="an empty list")
    modalities: list[str] | None = Field(None, description='["text"]')
    parallel_tool_calls: bool | None = Field(None, description="true or false")


class InspectRequest(_Checked):
    """`POST /diffinity/inspect`: only the constraint fields of a request."""

    response_format: ResponseFormat | None = Field(None, description="an object with a type")
    structured_outputs: StructuredOutputs | None = Field(
        None, description="an object with exactly one of json, regex, choice and grammar"
    )
    grammar: str | None = Field(None, description="a grammar")
    json_schema: dict[str, JsonValue] | bool | None = Field(None, description="a JSON Schema")
    format_: Literal["json", ""] | dict[str, JsonValue] | None = Field(
        None, alias="format", description='"json" or a JSON Schema'
    )
    stop: str | list[str] | None = Field(None, description="a text or a list of texts that must not occur")
    max_tokens: int | None = Field(None, ge=1, description="a whole number, at least 1")

    def stops(self) -> tuple[str, ...]:
        """The texts that must not occur."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


def read_body(kind: type[Body], body: bytes) -> Body:
    """The request in a body; an invalid request raises an `ApiError` that names the field.

    >>> read_body(CompletionRequest, b'{"n": 0}')
    Traceback (most recent call last):
    diffinity.serve.errors.ApiError: n must be a whole number, at least 1
    """
    try:
        request = kind.model_validate_json(body)
    except ValidationError as error:
        raise _api_error(kind, error) from None
    except RecursionError:
        raise ApiError("the body is nested too deeply", code="invalid_json") from None
    _refuse_unsupported(request)
    return request


def _refuse_unsupported(request: BaseModel) -> None:
    for name, neutral in NEUTRAL.items():
        value = getattr(request, name, None)
        if value is not None and not any(value == accepted for accepted in neutral):
            accepted_values = " or ".join(repr(accepted) for accepted in neutral)
            raise ApiError(f"{name} is not supported: leave it out (or send {accepted_values})", param=name)


def _api_error(kind: type[BaseModel], error: ValidationError) -> ApiError:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    unknown = [_path(problem["loc"]) for problem in problems if problem["type"] == "extra_forbidden"]
    if unknown:
        return _unknown(unknown)
    first = problems[0]
    if first["type"] == "json_invalid":
        reason = first["msg"].removeprefix("Invalid JSON: ")
        return ApiError(f"the body is not JSON: {reason}", code="invalid_json")
    if not first["loc"]:
        return ApiError("the body must be a JSON object", code="invalid_json")
    name = str(first["loc"][0])
    # A union reports an error for each of its branches: the deepest error belongs to the intended branch.
    first = max(
        (problem for problem in problems if problem["loc"][:1] == first["loc"][:1]),
        key=lambda problem: len(problem["loc"]),
    )
    if first["type"] == "missing":
        return ApiError(f"{_path(first['loc'])} is missing", param=_path(first["loc"]))
    described = _described(kind, first["loc"])
    return ApiError(
        f"{_path(first['loc'])} must be {described}" if described else f"{name}: {first['msg']}",
        param=_path(first["loc"]),
    )


def _unknown(names: list[str]) -> ApiError:
    removed = [name for name in names if name.startswith("guided_")]
    if removed:
        name = removed[0]
        use = f"use {REMOVED[name]} instead" if name in REMOVED else "leave it out"
        return ApiError(f"{name} was removed from vLLM's API: {use}", param=name, code="removed_field")
    plural = "fields" if len(names) > 1 else "field"
    return ApiError(f"unknown {plural} {', '.join(names)}", param=names[0], code="unknown_field")


def _path(loc: tuple[int | str, ...]) -> str:
    """The place of a value in the body; pydantic's names of the branches of a union are left out.

    >>> _path(("stop", "list[str]", 1))
    'stop[1]'
    """
    path = ""
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not _is_branch(part):
            path += f".{part}" if path else part
    return path


def _is_branch(part: str) -> bool:
    return (
        part in ("str", "int", "float", "bool", "literal") or "[" in part or part in ("Options", "json-or-python")
    )


def _described(kind: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    """The description of the values that the innermost field accepts."""
    described, model = "", kind
    for part in loc:
        fields = {info.alias or name: info for name, info in model.model_fields.items()}
        if part not in fields:
            continue
        described = fields[str(part)].description or described
        model = _model_of(fields[str(part)].annotation) or model
    return described


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """The model inside an annotation such as `list[Message] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_model_of(part) for part in getattr(annotation, "__args__", ()))
    return next((model for model in inner if model is not None), None)


Message.model_rebuild()

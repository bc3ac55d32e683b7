"""From the constraint fields of a request to a constraint."""

from __future__ import annotations

import functools
import json
import operator
import re
from dataclasses import dataclass, field
from typing import Any, Literal

from diffinity.constraints import Choice, Constraint, Grammar, JsonSchema, Regex, Text
from diffinity.constraints.ebnf import read_rules
from diffinity.serve.errors import ApiError
from diffinity.serve.wire import MOST_STOPS

ANY_TEXT = r"(?s).*"
Kind = Literal["any", "json_schema", "regex", "choice", "grammar"]


@dataclass(frozen=True)
class ConstraintSpec:
    """A constraint as plain texts, which can be compared, hashed and sent to another process.

    >>> ConstraintSpec("choice", '["yes", "no"]').constraint().accepts("no")
    True
    """

    kind: Kind = "any"
    source: str = ""  # the pattern or grammar; the schema or the list of choices as JSON
    stops: tuple[str, ...] = ()
    prefix: str = ""
    param: str | None = field(default=None, compare=False)  # the request field it came from

    @property
    def is_free(self) -> bool:
        """Whether every text is allowed."""
        return self.kind == "any" and not self.stops and not self.prefix

    def constraint(self) -> Constraint:
        """The constraint object; building it may take long and may fail."""
        parts = [self._main(), *(~Regex(f"(?s).*{re.escape(stop)}.*") for stop in self.stops)]
        if self.prefix:
            parts.append(Text(self.prefix) + Regex(ANY_TEXT))
        return functools.reduce(operator.and_, parts)

    def _main(self) -> Constraint:
        if self.kind == "json_schema":
            return JsonSchema(json.loads(self.source))
        if self.kind == "regex":
            return Regex(self.source)
        if self.kind == "choice":
            return Choice(json.loads(self.source))
        if self.kind == "grammar":
            start = "root" if "root" in read_rules(self.source) else None  # llama.cpp's start, else the first rule
            return Grammar(self.source, start=start)
        return Regex(ANY_TEXT)


def constraint_of(request: Any, prefix: str = "") -> ConstraintSpec:
    """The constraint of a request; refuses constraints in two fields.

    >>> from diffinity.serve.wire import CompletionRequest
    >>> constraint_of(CompletionRequest(grammar='a = "b"')).kind
    'grammar'
    """
    specs = [
        spec for spec in (_response_format(request), _structured_outputs(request), *_other_fields(request)) if spec
    ]
    if len(specs) > 1:
        names = " and ".join(str(spec[2]) for spec in specs)
        raise ApiError(f"{names} are two constraints: send one of them", param=specs[1][2])
    stops = _stops(request)
    if not specs:
        return ConstraintSpec(stops=stops, prefix=prefix)
    kind, source, param = specs[0]
    return ConstraintSpec(kind, source, stops, prefix, param)


_Spec = tuple[Kind, str, str]


def _response_format(request: Any) -> _Spec | None:
    response_format = request.response_format
    if response_format is None or response_format.type == "text":
        return None
    if response_format.type == "json_object":
        return "json_schema", '{"type": "object"}', "response_format"
    if response_format.json_schema is None:
        raise ApiError(
            "response_format of type json_schema needs json_schema: an object with a name and a schema",
            param="response_format.json_schema",
        )
    return "json_schema", json.dumps(response_format.json_schema.schema_), "response_format.json_schema.schema"


def _structured_outputs(request: Any) -> _Spec | None:
    outputs = request.structured_outputs
    if outputs is None:
        return None
    values = {"json": outputs.json_, "regex": outputs.regex, "choice": outputs.choice, "grammar": outputs.grammar}
    names = [name for name, value in values.items() if value is not None]
    if len(names) != 1:
        raise ApiError(
            "structured_outputs needs exactly one of json, regex, choice and grammar, but has "
            f"{', '.join(names) or 'none'}",
            param="structured_outputs",
        )
    name = names[0]
    value, param = values[name], f"structured_outputs.{name}"
    if name == "json":
        return "json_schema", _schema_text(value, param), param
    if name == "choice":
        return "choice", json.dumps(value), param
    return ("regex" if name == "regex" else "grammar"), value, param


def _schema_text(value: Any, param: str) -> str:
    """The schema as JSON text; vLLM also allows a schema in a string."""
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ApiError(f"{param} is not JSON: {error}", param=param) from None
    return value


def _other_fields(request: Any) -> list[_Spec | None]:
    """llama.cpp's and Ollama's fields."""
    fields: list[_Spec | None] = []
    if request.grammar:
        fields.append(("grammar", request.grammar, "grammar"))
    if request.json_schema is not None:
        fields.append(("json_schema", json.dumps(request.json_schema), "json_schema"))
    if request.format_ == "json":
        fields.append(("json_schema", '{"type": "object"}', "format"))
    elif request.format_:
        fields.append(("json_schema", json.dumps(request.format_), "format"))
    return fields


def _stops(request: Any) -> tuple[str, ...]:
    stops: tuple[str, ...] = request.stops()
    if len(stops) > MOST_STOPS:
        raise ApiError(f"stop has {len(stops)} texts, but at most {MOST_STOPS} are allowed", param="stop")
    if not all(stops):
        raise ApiError("stop must not contain an empty text, which occurs in every text", param="stop")
    return stops

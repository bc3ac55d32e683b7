"""`constraint(x)`: Python types and values to constraints.

A bare value is written without quotes (`constraint(str)` is any text, `constraint(date)` has texts such as
`2026-02-28`). Numbers, `true`, `false` and `null` are written as in JSON. Containers, dataclasses, typed
dictionaries and Pydantic models are JSON documents, with quotes, through `JsonSchema`.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import re
import sys
import types
import typing
import uuid
from typing import Any

from diffinity.constraints.base import And, Choice, Constraint, Or, Regex, Text
from diffinity.constraints.dfa import ByteDFA
from diffinity.errors import InvalidArgument

INTEGER = "-?(?:0|[1-9][0-9]*)"
NUMBER = INTEGER + r"(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
HEX = "[0-9a-f]"

_LEAP = "(?:0[48]|[2468][048]|[13579][26])"  # the two digits that 4 divides, without 00
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"  # 0001 to 9999
_LEAP_YEAR = f"(?:[0-9]{{2}}{_LEAP}|{_LEAP}00)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{6})?"
_OFFSET = "(?:[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?"

_BARE: dict[Any, Constraint] = {
    int: Regex(INTEGER),
    float: Regex(NUMBER),
    bool: Choice(["true", "false"]),
    str: Regex("(?s).*"),
    None: Text("null"),
    type(None): Text("null"),
    datetime.date: Regex(_DATE),
    datetime.time: Regex(_TIME + _OFFSET),
    datetime.datetime: Regex(f"{_DATE}T{_TIME}{_OFFSET}"),
    uuid.UUID: Regex(f"{HEX}{{8}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{12}}"),
}


def constraint(x: Any) -> Constraint:
    """The constraint of a value or a type.

    A `Constraint` is returned unchanged. A `str` is a literal text, a compiled `re` pattern a `Regex`, a list of
    texts or constraints a `Choice`, and a dict a JSON Schema. The module's docstring describes the types.

    >>> constraint(int).accepts("-12"), constraint(typing.Literal["a", 3]).accepts("3")
    (True, True)
    >>> constraint(datetime.date).accepts("2023-02-29")
    False
    """
    if isinstance(x, Constraint):
        return x
    if isinstance(x, str):
        return Text(x)
    if isinstance(x, re.Pattern):
        return Regex(x.pattern, x.flags & ~re.UNICODE)
    if isinstance(x, list):
        return Choice(x)
    if isinstance(x, dict):
        return _json_schema(x)
    return _of_type(x)


@dataclasses.dataclass(frozen=True)
class OfType(Constraint):
    """The texts of a type's values, like `constraint(type)`; `value_of` returns the value also in combinations.

    >>> value_of(OfType(int) & Regex("[0-9]{2}"), "42")
    42
    """

    type: Any

    def _build(self) -> ByteDFA:
        return constraint(self.type).dfa()


def value_of(x: Any, text: str) -> Any:
    """The value of an accepted text: the inverse of the spelling of values by `constraint(x)`.

    It is an instance for a model or type, plain data for a JSON Schema (also if it is combined by `&`), and the
    text itself for everything else.

    >>> value_of(int, "-12"), value_of(datetime.date, "2024-02-29"), value_of(Regex("[0-9]+"), "12")
    (-12, datetime.date(2024, 2, 29), '12')
    """
    if _is_schema(x):
        return x.parse(text)
    if isinstance(x, OfType):
        return value_of(x.type, text)
    if isinstance(x, And):
        schema = next((part for part in x.parts if _is_schema(part) or isinstance(part, OfType | And)), None)
        return text if schema is None else value_of(schema, text)
    if isinstance(x, dict):
        return json.loads(text)
    if isinstance(x, Constraint | str | re.Pattern | list):
        return text
    return _value_of_type(x, text)


def _value_of_type(x: Any, text: str) -> Any:
    if isinstance(x, typing.NewType):
        return value_of(x.__supertype__, text)
    if type(x).__name__ == "TypeAliasType":
        return value_of(x.__value__, text)
    origin, arguments = typing.get_origin(x), typing.get_args(x)
    if origin is typing.Literal:
        return next(value for value in arguments if _spelled(value) == text)
    if origin in (typing.Union, types.UnionType):  # several types may spell the same bare text: `str` comes last
        options = sorted(arguments, key=lambda option: option is str)
        return next(value_of(option, text) for option in options if constraint(option).accepts(text))
    if isinstance(x, type) and issubclass(x, enum.Enum):
        return next(member for member in x if _spelled(member.value) == text)
    if x in (None, type(None)):
        return None
    if x is bool:
        return text == "true"
    if x in (str, int, float, uuid.UUID):
        return x(text)
    if x in (datetime.date, datetime.time, datetime.datetime):
        return x.fromisoformat(text)
    from pydantic import TypeAdapter

    return TypeAdapter(x).validate_json(text)


def _of_type(x: Any) -> Constraint:
    if isinstance(x, typing.NewType):
        return constraint(x.__supertype__)
    if type(x).__name__ == "TypeAliasType":  # `type X = …` of Python 3.12
        return constraint(x.__value__)
    origin, arguments = typing.get_origin(x), typing.get_args(x)
    if origin is typing.Literal:
        return Choice([_spelled(value) for value in arguments])
    if origin in (typing.Union, types.UnionType):
        return Or(tuple(constraint(option) for option in arguments))
    if isinstance(x, type) and issubclass(x, enum.Enum):
        return Choice([_spelled(member.value) for member in x])
    try:
        if x in _BARE:
            return _BARE[x]
    except TypeError:  # x is not hashable, so it is not one of these types
        pass
    if origin is typing.Annotated and arguments[0] is str:
        raise InvalidArgument(
            f"{x} has no spelling without quotes; use Regex for a text, or a model with this field"
        )
    if origin is not None or _is_structured(x):
        return _json_schema_of(x)
    raise InvalidArgument(
        f"no constraint for {x!r}: give a constraint, a text, a compiled pattern, a list of texts, a JSON Schema, "
        "or a type (int, float, bool, str, None, date, time, datetime, UUID, Literal, Enum, a container, a model)"
    )


def _is_structured(x: Any) -> bool:
    """Whether a type is written as a JSON document."""
    if not isinstance(x, type):
        return False
    containers = (list, dict, tuple, set, frozenset)
    return (
        x in containers
        or dataclasses.is_dataclass(x)
        or hasattr(x, "model_json_schema")
        or issubclass(x, containers)
    )


def _spelled(value: Any) -> str:
    """The bare spelling of a constant."""
    if isinstance(value, enum.Enum):
        return _spelled(value.value)
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, datetime.date | datetime.time | uuid.UUID):
        return value.isoformat() if not isinstance(value, uuid.UUID) else str(value)
    raise InvalidArgument(f"{value!r} has no spelling without quotes")


def _is_schema(x: Any) -> bool:
    """Whether x is a `JsonSchema`. Its module is not imported for this: without the module x cannot be one."""
    schema = sys.modules.get("diffinity.constraints.schema.constraint")
    return schema is not None and isinstance(x, schema.JsonSchema)


def _json_schema_of(x: Any) -> Constraint:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        return _json_schema(TypeAdapter(x).json_schema())
    except PydanticUserError as error:
        raise InvalidArgument(f"no JSON Schema for {x!r}: {error}") from error


def _json_schema(schema: dict[str, Any]) -> Constraint:
    from diffinity.constraints.schema import JsonSchema

    constraint: Constraint = JsonSchema(schema)
    return constraint

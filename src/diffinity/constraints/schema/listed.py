"""The types and values that a schema lists: `type`, `const` and `enum`."""

from __future__ import annotations

from typing import Any

from diffinity.constraints.schema import drafts
from diffinity.constraints.schema.document import Node, shown
from diffinity.constraints.schema.refusals import MalformedSchema

TYPES = ("null", "boolean", "number", "string", "array", "object")


def types_of(node: Node) -> tuple[str, ...] | None:
    """The names that `type` lists; None if there is no `type`."""
    if not node.has("type"):
        return None
    value = node.get("type")
    names = tuple(value) if isinstance(value, list) else (value,)
    for name in names:
        if name not in (*TYPES, "integer"):
            raise MalformedSchema(node.at("type"), f"no JSON type is called {shown(name)}")
    return names


def type_of(value: Any) -> str:
    """The JSON type of a value; integers are numbers.

    >>> type_of(True), type_of(2), type_of([])
    ('boolean', 'number', 'array')
    """
    if value is None:
        return "null"
    for name, classes in (
        ("boolean", bool),
        ("number", (int, float)),
        ("string", str),
        ("array", (list, tuple)),
        ("object", dict),
    ):
        if isinstance(value, classes):
            return name
    raise MalformedSchema("#", f"{value!r} is no JSON value")


def listed_values(node: Node, holds: bool) -> list[list[Any]]:
    """The values of `const` and of `enum`; a `const` that the draft does not define counts only if `holds`."""
    lists: list[list[Any]] = []
    if node.has("const") and (holds or drafts.native("const", node.draft)):
        lists.append([node.get("const")])
    if node.has("enum"):
        values = node.get("enum")
        if not isinstance(values, list):
            raise MalformedSchema(node.at("enum"), f"must be an array, not {shown(values)}")
        lists.append(values)
    return lists


def spelled_out(value: Any) -> dict[str, Any]:
    """The schema of exactly one array or object.

    >>> spelled_out([1])
    {'type': 'array', 'prefixItems': [{'const': 1}], 'items': False, 'minItems': 1}
    """
    if isinstance(value, dict):
        return {
            "type": "object",
            "properties": {name: {"const": inner} for name, inner in value.items()},
            "required": list(value),
            "additionalProperties": False,
        }
    return {
        "type": "array",
        "prefixItems": [{"const": inner} for inner in value],
        "items": False,
        "minItems": len(value),
    }

"""JSON Schemas whose objects have only the properties that they declare, for engines that compile schemas.

`JsonSchema` closes objects unless `open=True`. The engines follow the specification, in which an object without
further keywords may have any property. With few tokens they would spend them on properties that are not in the
schema.
"""

from __future__ import annotations

from typing import Any

# Keywords that apply several schemas to one object: closing one schema would exclude the others' properties.
COMBINING = {
    "allOf", "if", "not", "dependentSchemas", "dependencies", "unevaluatedProperties",
    "$dynamicRef", "$recursiveRef",
}  # fmt: skip
ALTERNATIVES = {"anyOf", "oneOf", "$ref"}
OTHER_PROPERTY_KEYWORDS = {"additionalProperties", "patternProperties"}
NOT_SCHEMAS = {"const", "enum", "default", "examples", "required"}


def closed_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with `additionalProperties: false` in every object that only lists its properties.

    If any object has several schemas (`allOf`, `if`, properties beside `anyOf` or `$ref` …), the whole schema is
    returned unchanged, because closing one of them could exclude all values.

    >>> closed_schema({"type": "object", "properties": {"a": {}}, "required": ["b"]})["properties"]
    {'a': {}, 'b': {}}
    """
    return dict(_closed(schema)) if _can_close(schema, is_schema=True) else schema


def _can_close(node: Any, is_schema: bool) -> bool:
    if isinstance(node, list):
        return all(_can_close(item, is_schema) for item in node)
    if not isinstance(node, dict):
        return True
    if is_schema and (COMBINING & node.keys() or ("properties" in node and ALTERNATIVES & node.keys())):
        return False
    return all(_can_close(value, _holds_schema(key, is_schema)) for key, value in _parts(node, is_schema))


def _closed(node: Any, is_schema: bool = True) -> Any:
    if isinstance(node, list):
        return [_closed(item, is_schema) for item in node]
    if not isinstance(node, dict):
        return node
    changed = dict(node)
    for key, value in _parts(node, is_schema):
        changed[key] = _closed(value, _holds_schema(key, is_schema))
    if is_schema and node.get("properties") and not OTHER_PROPERTY_KEYWORDS & node.keys():
        undeclared: dict[str, Any] = {
            name: {} for name in node.get("required", ()) if name not in node["properties"]
        }
        changed["properties"] = changed["properties"] | undeclared
        changed["additionalProperties"] = False
    return changed


def _parts(node: dict[str, Any], is_schema: bool) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in node.items() if not (is_schema and key in NOT_SCHEMAS)]


def _holds_schema(key: str, is_schema: bool) -> bool:
    """Whether the value of a key is a schema, not a map from names to schemas."""
    return not is_schema or key not in ("properties", "patternProperties", "$defs", "definitions")

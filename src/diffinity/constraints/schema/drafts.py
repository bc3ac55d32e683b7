"""The vocabulary of each draft of JSON Schema: which keywords assert, and which apply subschemas."""

from __future__ import annotations

from diffinity.constraints.schema.refusals import MalformedSchema

LATEST = 2020

IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
IN_PLACE = ("not", "if", "then", "else")
MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
SINGLE = (
    "additionalProperties",
    "propertyNames",
    "unevaluatedProperties",
    "additionalItems",
    "contains",
    "unevaluatedItems",
)

# The first and last draft in which a keyword asserts something. A keyword that the schema's own draft does not
# define is still applied where it only narrows the language, because its author meant it. It never counts under a
# negation.
_SPAN = {
    "const": (6, LATEST),
    "contains": (6, LATEST),
    "propertyNames": (6, LATEST),
    "if": (7, LATEST),
    "dependencies": (4, 7),
    "dependentRequired": (2019, LATEST),
    "dependentSchemas": (2019, LATEST),
    "minContains": (2019, LATEST),
    "maxContains": (2019, LATEST),
    "unevaluatedItems": (2019, LATEST),
    "unevaluatedProperties": (2019, LATEST),
    "prefixItems": (2020, LATEST),
    "additionalItems": (4, 2019),
    "$dynamicRef": (2020, LATEST),
    "$recursiveRef": (2019, 2019),
}

_SCHEMA_URIS = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
    "json-schema.org/schema": LATEST,
}


def native(keyword: str, draft: int) -> bool:
    """Whether `keyword` asserts in that draft.

    >>> native("const", 4), native("const", 7), native("type", 4)
    (False, True, True)
    """
    first, last = _SPAN.get(keyword, (4, LATEST))
    return first <= draft <= last


def draft_of(uri: object) -> int | None:
    """The draft that a `$schema` names: the latest if there is no `$schema`, None if the draft is unknown.

    >>> draft_of("http://json-schema.org/draft-07/schema#"), draft_of(None), draft_of("https://example.com/mine")
    (7, 2020, None)
    """
    if uri is None:
        return LATEST
    if not isinstance(uri, str):
        raise MalformedSchema("#/$schema", f"must be a string, not {uri!r}")
    name = uri.removesuffix("#").removeprefix("http://").removeprefix("https://")
    return _SCHEMA_URIS.get(name)

"""Families of hostile input, each drawn at any size: what made a compiler slow, large or recurse too deep."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from typing import Any

from diffinity.constraints import Choice, Concat, Constraint, Grammar, JsonSchema, Not, Or, Regex, Repeat, Text

Attack = Callable[[int], Constraint]


def wrapped(value: Any, levels: int, wrap: Callable[[Any], Any]) -> Any:
    """`wrap` applied so many times."""
    return reduce(lambda inner, _: wrap(inner), range(levels), value)


def alternating(levels: int) -> Constraint:
    """`~(x & y)` inside itself: nothing that flattening would join."""
    start: Constraint = Regex("[ab]+")
    return wrapped(start, levels, lambda inner: ~(inner & Regex("[abc]*")))


def model(levels: int) -> Constraint:
    """Pydantic models, each a field of the next."""
    from pydantic import create_model

    made: Any = int
    for i in range(levels):
        made = create_model(f"M{i}", inner=(made, ...))
    return JsonSchema(made)


def properties(count: int, **more: Any) -> dict[str, Any]:
    """An object schema of so many properties."""
    return {"type": "object", "properties": {f"p{i}": {"type": "null"} for i in range(count)}, **more}


def references(count: int) -> dict[str, Any]:
    """A chain of definitions, each nothing but the next."""
    chain: dict[str, Any] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(count)}
    return {"$ref": "#/$defs/d0", "$defs": {**chain, f"d{count}": True}}


FAMILIES: dict[str, Attack] = {
    # lists
    "enum of integers": lambda n: JsonSchema({"enum": list(range(n))}),
    "enum of fractions": lambda n: JsonSchema({"enum": [i + 0.5 for i in range(n)]}),
    "enum of strings": lambda n: JsonSchema({"enum": [f"value {i}" for i in range(n)]}),
    "enum of everything": lambda n: JsonSchema({"enum": [*range(n), *map(str, range(n)), None, True]}),
    "enum beside a const": lambda n: JsonSchema({"enum": list(range(n)), "const": n - 1}),
    "enum within a range": lambda n: JsonSchema({"type": "integer", "enum": list(range(n)), "minimum": n // 2}),
    "not an enum": lambda n: JsonSchema({"type": "integer", "not": {"enum": list(range(n))}}),
    "enum of arrays": lambda n: JsonSchema({"enum": [[i] for i in range(n)]}),
    "enum of objects": lambda n: JsonSchema({"enum": [{"a": i} for i in range(n)]}),
    "unique values of an enum": lambda n: JsonSchema(
        {"type": "array", "uniqueItems": True, "items": {"enum": list(range(n))}}
    ),
    "choices": lambda n: Choice([f"{i:06}" for i in range(n)]),
    "alternatives": lambda n: Regex("|".join(f"w{i}" for i in range(n))),
    "one of many constraints": lambda n: Or(tuple(Text(f"w{i}") for i in range(n))),
    # properties
    "properties": lambda n: JsonSchema(properties(n)),
    "required properties": lambda n: JsonSchema(properties(n, required=[f"p{i}" for i in range(n)])),
    "closed properties": lambda n: JsonSchema(properties(n, additionalProperties=False)),
    "open properties": lambda n: JsonSchema(properties(n), open=True),
    "properties in any order": lambda n: JsonSchema(properties(n), order="any"),
    "properties beside patterns": lambda n: JsonSchema(
        properties(n, patternProperties={"^p": {"type": "null"}, "9$": {"type": "null"}})
    ),
    "counted properties": lambda n: JsonSchema(properties(n, minProperties=n // 2)),
    "dependent properties": lambda n: JsonSchema(
        properties(n, dependentRequired={f"p{i}": [f"p{i + 1}"] for i in range(n - 1)})
    ),
    "overlapping patternProperties": lambda n: JsonSchema(
        {"patternProperties": {f"{chr(97 + i % 26)}.*{i}": {"type": "null"} for i in range(n)}}
    ),
    # combinations
    "branches without a limit": lambda n: JsonSchema(
        {"allOf": [{"anyOf": [{"required": [f"{c}{i}"]} for c in "abc"]} for i in range(n)]}, max_branches=10**9
    ),
    "rivals": lambda n: JsonSchema({"oneOf": [{"properties": {f"p{i}": {"minLength": i}}} for i in range(n)]}),
    # brackets and counts
    "unbalanced brackets": lambda n: Regex("(" * 50 + "[" * n),
    "unbalanced parentheses": lambda n: Regex("(" * n),
    "open counts": lambda n: Regex("a{" * n),
    "open comments": lambda n: Regex("(" * 50 + "(?#" * n),
    "backslashes": lambda n: Regex("(" * 50 + "[\\" * n),
    "brackets in a schema": lambda n: JsonSchema({"pattern": "(" * 50 + "[" * n}),
    "open counts in a schema": lambda n: JsonSchema({"pattern": "a{" * n}),
    "names of groups": lambda n: JsonSchema({"pattern": "(?<a" * n}),
    "brackets in a grammar": lambda n: Grammar("a = " + "[" * n),
    "quotes in a grammar": lambda n: Grammar("a = " + '"\\' * n),
    "slashes in a grammar": lambda n: Grammar("a = " + "/\\" * n),
    "comments in a grammar": lambda n: Grammar("a = " + "(*" * n),
    "counts in a grammar": lambda n: Grammar('a = "x" ' + "{ " * n),
    "rules of a grammar": lambda n: Grammar(
        "".join(f'r{i} = "x" r{i + 1} ;\n' for i in range(n)) + f'r{n} = "y" ;'
    ),
    "recursive rules": lambda n: Grammar(
        "".join(f'r{i} = "x" r{i + 1} "y" | "z" ;\n' for i in range(n)) + f'r{n} = "(" r0 ")" | "w" ;'
    ),
    # depth
    "alternating expressions": alternating,
    "concatenations": lambda n: wrapped(Text("a"), n, lambda inner: Repeat(Concat(inner, "b"), 1, 1)),
    "options": lambda n: wrapped(Text("a"), n, lambda inner: Choice([Concat(inner, "b"), "c"])),
    "complements": lambda n: wrapped(Text("a"), n, Not),
    "postfixes of a grammar": lambda n: Grammar('a = "x"' + "?" * n),
    "parentheses of a grammar": lambda n: Grammar("a = " + "(" * n + '"x"' + ")" * n),
    "postfixes of groups": lambda n: Regex("(?:" * n + "a" + ")?" * n),
    "models": model,
    "items": lambda n: JsonSchema(wrapped({"type": "null"}, n, lambda x: {"type": "array", "items": x})),
    "negations": lambda n: JsonSchema(wrapped({"type": "null"}, n, lambda x: {"not": x})),
    "members": lambda n: JsonSchema(wrapped({"type": "null"}, n, lambda x: {"properties": {"a": x}})),
    "conjunctions": lambda n: JsonSchema(wrapped({"type": "null"}, n, lambda x: {"allOf": [x]})),
    "nested constants": lambda n: JsonSchema({"const": wrapped(1, n, lambda x: [x])}),
    "text of brackets": lambda n: JsonSchema("[" * n),
    "references": lambda n: JsonSchema(
        {
            "$ref": "#/$defs/d0",
            "$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(n)} | {f"d{n}": True},
        }
    ),
    # lengths
    "a long pattern": lambda n: Regex("a" * n),
    "a long text": lambda n: Text("a" * n),
    "a long schema": lambda n: JsonSchema(json.dumps({"const": "a" * n})),
    "a long grammar": lambda n: Grammar('a = "' + "x" * n + '"'),
}

# What is no URL, where a schema may name one.
ADDRESSES = (
    "http://[",
    "http://[::1",
    "//[",
    "http://a]b/",
    "\\",
    "a b",
    "%zz",
    "http://\ud7ff/",
    "#/%",
    "urn:",
    "",
)

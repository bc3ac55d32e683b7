"""A generator of JSON Schemas over all supported keywords, and of values that nearly satisfy them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from diffinity.constraints.schema.numbers import exact
from diffinity.constraints.schema.spelling import spell

DRAFTS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
NAMES = ("a", "b", "cc", "d1", "é", 'q"', "", "a/b", "x y", "$ref", "\n")
OTHER_NAMES = ("x", "zz", "ab", "y-", "ü1", "A", "_")
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    10,
    12,
    -12,
    0.5,
    -1.5,
    2.25,
    0.1,
    0.3,
    100,
    10**6,
    2**53 + 1,
    -(10**17),
    1e-7,
    123.456,
)
STEPS = (1, 2, 3, 7, 10, 0.5, 0.25, 1.5, 0.1, 0.01)
# Patterns, each with strings in which it occurs.
PATTERNS: dict[str, tuple[str, ...]] = {
    "^a": ("a", "ab", "a/b"),
    "b$": ("b", "ab"),
    "^[a-z]*$": ("", "a", "cc", "zz"),
    ".": ("x", "é"),
    "é|\\n": ("é", "x\n"),
    "\\d": ("1", "d1"),
    "^\\w+$": ("a", "d1", "_"),
    "\\bx": ("x", "x y"),
    "^[^a]*$": ("x", "é", ""),
    "^(a|b){1,2}$": ("a", "ab"),
    "\\s": ("x y", "\n"),
    "\\W": ("a/b", "y-"),
    "^(?!a)": ("b", ""),
}
FORMATS = {
    "date": ("2024-02-29", "1999-12-31"),
    "date-time": ("2024-02-29T10:00:00Z",),
    "email": ("ann@example.org",),
    "ipv4": ("127.0.0.1",),
    "uuid": ("123e4567-e89b-12d3-a456-426614174000",),
    "uri": ("https://example.org/a?b=c",),
    "color": ("red",),
}
STRINGS = ("", "a", "ab", "b", "é", '"', "x\n", "x", "y", "2024-02-29", "b\\", "\u0001", "日本", "a b", "12", "_a")


@dataclass
class SchemaSource:
    """Draws schemas of one draft. A `$ref` occurs only after a value is consumed, so that no schema loops."""

    rng: random.Random
    draft: int

    def document(self) -> Any:
        """A complete schema with its draft and, often, a definition that a `$ref` names."""
        schema = self.schema(self.rng.choice((1, 2, 2, 3)), consumed=False)
        if isinstance(schema, bool):
            return schema
        word = "$defs" if self.draft >= 2019 else "definitions"
        text = json.dumps(schema)
        if f"#/{word}/t" in text:
            definition = self.schema(1, consumed=False)
            schema[word] = {"t": definition if self.draft > 4 or isinstance(definition, dict) else {}}
        if self.draft != 2020 or self.rng.random() < 0.5:
            schema["$schema"] = DRAFTS[self.draft]
        return schema

    def schema(self, depth: int, consumed: bool) -> Any:
        """A schema of limited depth; `consumed` is True if a level above consumed a value."""
        chance = self.rng.random()
        if chance < 0.06 and self.draft > 4:
            return chance < 0.045
        if chance < 0.08:
            return {}
        if consumed and chance < 0.18:
            return {"$ref": self.rng.choice(("#", f"#/{'$defs' if self.draft >= 2019 else 'definitions'}/t"))}
        kinds = self.rng.choice(("string", "number", "array", "object", "object", "any"))
        words = [
            *_ANYWHERE,
            *(_KEYWORDS[kinds] if kinds != "any" else [w for ws in _KEYWORDS.values() for w in ws]),
        ]
        if depth <= 0:
            words = [word for word in words if word not in _APPLYING]
        words = [word for word in words if _FIRST_DRAFT.get(word, 4) <= self.draft <= _LAST_DRAFT.get(word, 2020)]
        chosen = self.rng.sample(words, min(len(words), self.rng.choice((1, 2, 2, 3, 4))))
        keywords = {word: self.keyword(word, depth - 1, consumed) for word in chosen}
        if kinds != "any" and self.rng.random() < 0.5:
            keywords["type"] = kinds
        if "then" in keywords or "else" in keywords:
            keywords.setdefault("if", self.schema(depth - 1, consumed))
        return keywords

    def some(self, depth: int, consumed: bool) -> list[Any]:
        """One to three schemas."""
        return [self.schema(depth, consumed) for _ in range(self.rng.choice((1, 2, 2, 3)))]

    def names(self, minimum: int = 0) -> list[str]:
        """Some property names."""
        return self.rng.sample(NAMES[: self.rng.choice((3, 4, len(NAMES)))], self.rng.randint(minimum, 3))

    def keyword(self, word: str, depth: int, consumed: bool) -> Any:
        """The value of a keyword, with schemas of limited depth in it."""
        rng = self.rng
        inner_consumed = (
            _APPLYING.get(word, False) or consumed
        )  # a container's schemas apply to parts of the value
        if word in ("allOf", "anyOf", "oneOf", "prefixItems"):
            return self.some(depth, inner_consumed)
        if word == "items" and self.draft < 2020 and rng.random() < 0.3:
            return self.some(depth, inner_consumed)
        if word in ("properties", "dependentSchemas"):
            return {name: self.schema(depth, inner_consumed) for name in self.names()}
        if word == "dependencies":
            return {
                n: self.names(1) if rng.random() < 0.5 else self.schema(depth, inner_consumed)
                for n in self.names()
            }
        if word == "dependentRequired":
            return {name: self.names() for name in self.names()}
        if word == "patternProperties":
            return {
                p: self.schema(depth, inner_consumed) for p in rng.sample(list(PATTERNS), rng.choice((1, 1, 2)))
            }
        if word == "propertyNames":
            choices = ({"maxLength": 2}, {"pattern": "^[a-c]"}, {"enum": ["a", "x", "cc"]}, {"minLength": 1}, True)
            return rng.choice(choices) if rng.random() < 0.8 else self.schema(0, True)
        if word in _APPLYING:
            return self.schema(depth, inner_consumed)
        return _PLAIN[word](self)


def _values(source: SchemaSource) -> list[Any]:
    return [random_value(source.rng, 1) for _ in range(source.rng.choice((1, 2, 3, 5)))]


def _distinct(values: list[Any]) -> list[Any]:
    """The values without duplicates, which `enum` must not have."""
    return list({spell(value): value for value in values}.values())


def _types(source: SchemaSource) -> Any:
    rng = source.rng
    return rng.choice(TYPES) if rng.random() < 0.6 else rng.sample(TYPES, rng.choice((1, 2, 3)))


def _number(source: SchemaSource) -> int | float:
    return source.rng.choice(NUMBERS)


def _exclusive(source: SchemaSource) -> Any:
    return source.rng.random() < 0.7 if source.draft == 4 else _number(source)


_PLAIN: dict[str, Callable[[SchemaSource], Any]] = {
    "type": _types,
    "enum": lambda s: _distinct(_values(s)),
    "const": lambda s: random_value(s.rng, 1),
    "minimum": _number,
    "maximum": _number,
    "exclusiveMinimum": _exclusive,
    "exclusiveMaximum": _exclusive,
    "multipleOf": lambda s: s.rng.choice(STEPS),
    "minLength": lambda s: s.rng.randint(0, 3),
    "maxLength": lambda s: s.rng.randint(0, 5),
    "pattern": lambda s: s.rng.choice(list(PATTERNS)),
    "format": lambda s: s.rng.choice(list(FORMATS)),
    "minItems": lambda s: s.rng.randint(0, 2),
    "maxItems": lambda s: s.rng.randint(0, 4),
    "uniqueItems": lambda s: s.rng.random() < 0.8,
    "minContains": lambda s: s.rng.randint(0, 2),
    "maxContains": lambda s: s.rng.randint(0, 3),
    "minProperties": lambda s: s.rng.randint(0, 3),
    "maxProperties": lambda s: s.rng.randint(0, 4),
    "required": lambda s: s.names(1),
}
_ANYWHERE = ("type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_KEYWORDS = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": (
        "items", "items", "prefixItems", "additionalItems", "contains", "minContains", "maxContains", "minItems",
        "maxItems", "uniqueItems", "unevaluatedItems",
    ),
    "object": (
        "properties", "properties", "required", "required", "additionalProperties", "patternProperties",
        "propertyNames", "minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies",
        "unevaluatedProperties",
    ),
}  # fmt: skip
# Keywords with schemas inside; True if these apply to parts of the value.
_APPLYING = dict.fromkeys(("allOf", "anyOf", "oneOf", "not", "if", "then", "else"), False) | {
    **dict.fromkeys(("dependentSchemas", "dependencies"), False),
    **dict.fromkeys(("items", "prefixItems", "additionalItems", "contains", "unevaluatedItems"), True),
    **dict.fromkeys(("properties", "patternProperties", "additionalProperties", "propertyNames"), True),
    "unevaluatedProperties": True,
}
_FIRST_DRAFT = {
    "const": 6,
    "contains": 6,
    "propertyNames": 6,
    "if": 7,
    "then": 7,
    "else": 7,
    "prefixItems": 2020,
} | {
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "minContains", "maxContains"), 2019),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties"), 2019),
}
_LAST_DRAFT = {"dependencies": 7, "additionalItems": 2019}


# ---- values


def random_value(rng: random.Random, depth: int) -> Any:
    """A value that is independent of any schema."""
    kind = rng.choice(("scalar", "scalar", "array", "object")) if depth > 0 else "scalar"
    if kind == "array":
        return [random_value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    if kind == "object":
        return {
            name: random_value(rng, depth - 1) for name in rng.sample((*NAMES, *OTHER_NAMES), rng.randint(0, 3))
        }
    return rng.choice((None, True, False, *NUMBERS, *STRINGS))


@dataclass
class ValueSource:
    """Draws values that may satisfy a schema, by following one branch of it."""

    rng: random.Random
    root: Any

    def value(self, schema: Any, depth: int = 4) -> Any:
        """A value that satisfies a schema, or nearly."""
        rng = self.rng
        if not isinstance(schema, dict) or depth <= 0 or rng.random() < 0.03:
            return random_value(rng, min(depth, 2))
        schema = self.flattened(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return rng.choice(schema["enum"])
        kinds = schema.get("type")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if not kinds:
            implied_kinds = [kind for kind, words in _KEYWORDS.items() if any(word in schema for word in words)]
            kinds = implied_kinds if implied_kinds and rng.random() < 0.9 else list(TYPES)
        kind = rng.choice(kinds)
        if kind == "object":
            return self.object(schema, depth)
        if kind == "array":
            return self.array(schema, depth)
        if kind == "string":
            return self.string(schema)
        if kind in ("number", "integer"):
            return self.number(schema, kind == "integer")
        return None if kind == "null" else rng.random() < 0.5

    def flattened(self, schema: dict[str, Any]) -> dict[str, Any]:
        """One branch of the combining keywords, merged with the schema itself."""
        parts = [schema]
        for _ in range(4):
            top = parts[-1]
            if "$ref" in top:
                word = "$defs" if "$defs" in self.root else "definitions"
                top = self.root if top["$ref"] == "#" else self.root.get(word, {}).get("t", {})
                parts.append(top if isinstance(top, dict) else {})
                continue
            chosen = [*top.get("allOf", [])]
            chosen += [self.rng.choice(top[word]) for word in ("anyOf", "oneOf") if top.get(word)]
            if "if" in top:
                chosen += [top["if"], top.get("then", {})] if self.rng.random() < 0.6 else [top.get("else", {})]
            merged: dict[str, Any] = {}
            for part in chosen:
                merged |= {k: v for k, v in part.items() if k not in merged} if isinstance(part, dict) else {}
            if not merged:
                break
            parts.append(merged)
        joined: dict[str, Any] = {}
        for part in parts:
            for word, value in part.items():
                if word in ("properties", "patternProperties"):
                    joined[word] = value | joined.get(word, {})
                elif word == "required" and isinstance(value, list):
                    joined[word] = [*joined.get(word, []), *value]
                else:
                    joined.setdefault(word, value)
        return joined

    def object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        """Required properties, some declared and some other properties, in random order."""
        rng = self.rng
        declared = schema.get("properties", {})
        names = [name for name in declared if rng.random() < 0.6]
        names += [name for name in schema.get("required", []) if rng.random() < 0.97]
        for pattern in schema.get("patternProperties", {}):
            names += [name for name in PATTERNS[pattern] if rng.random() < 0.4]
        for word in ("dependentRequired", "dependencies"):
            for name, others in schema.get(word, {}).items():
                names += others if name in names and isinstance(others, list) else []
        while len(set(names)) < schema.get("minProperties", 0) or rng.random() < 0.3:
            names.append(rng.choice((*NAMES, *OTHER_NAMES)))
        names = list(dict.fromkeys(names))[: schema.get("maxProperties", 9)]
        rng.shuffle(names)
        rest = schema.get("additionalProperties", schema.get("unevaluatedProperties", True))
        return {
            name: self.value(declared.get(name, self._by_pattern(schema, name, rest)), depth - 1) for name in names
        }

    def _by_pattern(self, schema: dict[str, Any], name: str, rest: Any) -> Any:
        patterns = schema.get("patternProperties", {})
        return next((patterns[p] for p in patterns if name in PATTERNS[p]), rest)

    def array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        """Items for the described positions, some more items, and those that `contains` requires."""
        rng = self.rng
        items = schema.get("items", True)
        prefix = schema.get("prefixItems", items if isinstance(items, list) else [])
        rest = items if not isinstance(items, list) else schema.get("additionalItems", True)
        length = max(schema.get("minItems", 0), rng.choice((0, 1, 1, 2, 3, len(prefix))))
        length = min(length, schema.get("maxItems", 9))
        values = [self.value(prefix[i] if i < len(prefix) else rest, depth - 1) for i in range(length)]
        for i in range(schema.get("minContains", 1) if "contains" in schema else 0):
            if i < len(values):
                values[-1 - i] = self.value(schema["contains"], depth - 1)
            elif len(values) < schema.get("maxItems", 9):
                values.append(self.value(schema["contains"], depth - 1))
        return values

    def string(self, schema: dict[str, Any]) -> str:
        """A string that fits a pattern, a format or a length."""
        rng = self.rng
        if "format" in schema and rng.random() < 0.9:
            return rng.choice(FORMATS[schema["format"]])
        text = rng.choice(PATTERNS[schema["pattern"]] if "pattern" in schema and rng.random() < 0.9 else STRINGS)
        return (text + "a" * max(0, schema.get("minLength", 0) - len(text)))[: schema.get("maxLength", 99)]

    def number(self, schema: dict[str, Any], integer: bool) -> int | float:
        """A number near a bound, or a multiple."""
        rng = self.rng
        bounds = [schema[w] for w in _KEYWORDS["number"][:4] if type(schema.get(w)) in (int, float)]
        near = [exact(b) + d for b in bounds for d in (0, 1, -1, Fraction(1, 2), 5)]
        step = exact(schema.get("multipleOf", 1))
        x = rng.choice(near) if near and rng.random() < 0.8 else exact(rng.choice(NUMBERS))
        if "multipleOf" in schema and rng.random() < 0.9:
            x = (x // step + rng.randint(0, 2)) * step
        if integer and rng.random() < 0.9:
            x = Fraction(x.__round__())
        return int(x) if x.denominator == 1 else float(x)

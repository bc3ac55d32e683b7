"""The cases of a benchmark: each has a constraint and a check that does not use our automata."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from diffinity.constraints.base import Constraint
from diffinity.errors import InvalidArgument

Kind = Literal["sentence", "json"]
Rule = Literal["ours", "paper"]
SUITES = ("natural-language", "json")
QUICK = {"natural-language": 2, "json": 1}  # cases of each category in a quick run


@dataclass(frozen=True)
class Case:
    """One constraint of a suite: its stable id, its category in tables, and a check for valid texts.

    `category` is a sentence template ("prefix", "suffix", "appearance", "between-n", "between", "length") or the
    subset of a schema; `source` is the regex, or the schema as JSON text.

    >>> from diffinity.constraints.sentences import Sentence
    >>> old = Sentence("prefix", ("old",), 2)
    >>> Case("example", "prefix", old, "sentence", old.pattern()).valid("The old river.")
    True
    """

    id: str
    category: str
    constraint: Constraint
    kind: Kind
    source: str

    def valid(self, text: str) -> bool:
        """Whether a text satisfies the case, by `re.fullmatch`, or by `json.loads` and `jsonschema_rs`.

        For JSON, formats are asserted, and NaN and Infinity, which `json.loads` accepts, are invalid.
        """
        if self.kind == "sentence":
            return _compiled(self.source).fullmatch(text) is not None
        is_valid = _validator(self.source)
        try:
            return is_valid(json.loads(text, parse_constant=_not_json))
        except (ValueError, RecursionError):  # also jsonschema_rs's limits: lone surrogates, huge numbers
            return False

    def found_in(self, text: str) -> bool:
        """Whether some part of a text is valid, for the framing `search`. For JSON, the part is a complete value.

        >>> from diffinity.constraints import JsonSchema
        >>> Case("n", "github", JsonSchema({"type": "array"}), "json", '{"type": "array"}').found_in("so [1, 2]!")
        True
        """
        if self.kind == "sentence":
            return _compiled(self.source).search(text) is not None
        return any(self.valid(part) for part in _json_parts(text))


def suite(
    name: str,
    *,
    seed: int = 0,
    schemas: str | Path | None = None,
    selection: Rule = "ours",
    quick: bool = False,
) -> list[Case]:
    """The cases of a suite, in their order: "natural-language" (110) or "json" (our 70, or those of `schemas`).

    `schemas` is a .json or .jsonl file, a folder of .json files, or "hub" for JSONSchemaBench itself; `selection`
    selects among them without a tokenizer (`json_suite.chosen` also checks the length and lists the omitted
    schemas, with the reason). `quick` takes a few cases of each category.

    >>> cases = suite("natural-language", quick=True)
    >>> len(cases), cases[0].category
    (12, 'prefix')
    """
    if name == "natural-language":
        from diffinity.bench.natural_language import natural_language_cases

        if schemas is not None:
            raise InvalidArgument("the suite natural-language takes no schemas; the suite json does")
        cases: Sequence[Case] = natural_language_cases(seed)
    elif name == "json":
        from diffinity.bench.json_suite import chosen

        cases = chosen(schemas, rule=selection).cases
    else:
        raise InvalidArgument(f"there is no suite {name!r}; the suites of cases are {', '.join(SUITES)}")
    return thinned(cases, QUICK[name]) if quick else list(cases)


def thinned(cases: Sequence[Case], per_category: int) -> list[Case]:
    """At most `per_category` cases of every category, evenly spaced, in the same order.

    >>> [case.id for case in thinned(suite("natural-language"), 1)][-1]
    'natural-language/length/06-8'
    """
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.category, []).append(case)
    selected_ids = {
        group[(k + 1) * len(group) // (per_category + 1)].id
        for group in groups.values()
        for k in range(per_category)
        if (k + 1) * len(group) // (per_category + 1) < len(group)
    }
    return [case for case in cases if case.id in selected_ids]


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@lru_cache(maxsize=1024)
def _validator(schema: str) -> Callable[[object], bool]:
    try:
        import jsonschema_rs
    except ImportError:
        raise InvalidArgument(
            "checking JSON needs jsonschema-rs: install it, or diffinity with its extra `bench`"
        ) from None
    validator = jsonschema_rs.validator_for(json.loads(schema), validate_formats=True)
    return lambda value: bool(validator.is_valid(value))


def _not_json(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def _json_parts(text: str) -> list[str]:
    """The parts of a text that are JSON values: the longest value that begins at each position."""
    decoder = json.JSONDecoder(parse_constant=_not_json)
    parts = []
    for start in range(len(text)):
        try:
            _, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        parts.append(text[start:end])
    return parts

"""The engine `outlines-core`: an index of regex states and tokens, built before the first token."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import outlines_core
from numpy.typing import NDArray
from outlines_core.json_schema import build_regex_from_schema

from diffinity.alignment import Vocabulary
from diffinity.baselines.engines import Matcher
from diffinity.baselines.outlines_index import NoIndex, build_index
from diffinity.baselines.plain_regex import plain_regex
from diffinity.constraints.base import Constraint
from diffinity.constraints.regex_syntax import Either, Loop, Node, Sequence, parse
from diffinity.constraints.schema import JsonSchema
from diffinity.errors import ConstraintSyntaxError, ConstraintTooLarge, UnsupportedConstraint
from diffinity.models.protocol import CausalModel, vocabulary_of

# One pattern applies between all JSON tokens: the spaces of `json.dumps` can be allowed, not required.
WHITE_SPACE = {"dumps": "[ ]?", "compact": "", "flexible": r"[ \t\n\r]{{0,{max_space}}}"}

MOST_CHARACTERS = 60_000
"""The longest expression, in characters with counted repetitions written out, for which an index is built. An
index grows with states × tokens and can take minutes and gigabytes."""


class OutlinesEngine:
    """The engine `outlines-core`. It does not know the length, so a text may be cut off."""

    def matchers(self, constraint: Constraint, model: CausalModel, n: int, length: int) -> list[Matcher]:
        vocabulary = vocabulary_of(model)
        regex = outlines_regex(constraint)
        _check_size(regex)
        if vocabulary.leading:
            regex = f"{plain_regex(vocabulary.leading.decode())}(?:{regex})"
        index = _index(regex, vocabulary)
        if isinstance(index, str):
            raise UnsupportedConstraint(f"outlines-core: {index}")
        return [OutlinesMatcher(outlines_core.Guide(index), len(vocabulary)) for _ in range(n)]


@dataclass(frozen=True)
class OutlinesMatcher:
    """One text in an index of outlines-core."""

    guide: Any
    vocab_size: int

    def allowed(self) -> NDArray[np.bool_]:
        mask = np.zeros(self.vocab_size, np.bool_)
        mask[self.guide.get_tokens()] = True
        return mask

    def advance(self, token: int) -> None:
        self.guide.advance(token, return_tokens=False)


def outlines_regex(constraint: Constraint) -> str:
    """The constraint as a regular expression; a JSON Schema through the engine's own compiler.

    >>> from diffinity.constraints import JsonSchema
    >>> outlines_regex(JsonSchema({"type": "boolean"}))
    '(true|false)'
    """
    if not isinstance(constraint, JsonSchema):
        return plain_regex(constraint.pattern())
    options = constraint.options
    white_space = WHITE_SPACE[options.whitespace].format(max_space=options.max_space)
    try:
        regex: str = build_regex_from_schema(json.dumps(constraint.schema), white_space)
    except (ValueError, TypeError) as error:
        raise UnsupportedConstraint(f"outlines-core: {error}") from None
    return regex


def _check_size(regex: str) -> None:
    try:
        size = _characters(parse(regex))
    except ConstraintTooLarge:
        size = len(regex)
    except ConstraintSyntaxError:  # the engine decides about a pattern that we can't parse
        return
    if size > MOST_CHARACTERS:
        raise UnsupportedConstraint(
            f"outlines-core would index an expression of {size:,} characters (counts written out), which takes "
            f"minutes and gigabytes; the limit here is {MOST_CHARACTERS:,}"
        )


def _characters(node: Node) -> int:
    match node:
        case Sequence(items) | Either(items):
            return sum(map(_characters, items))
        case Loop(item, low, high):
            return _characters(item) * max(1, low if high is None else high)
    return 1


@lru_cache(maxsize=4)
def _index(regex: str, vocabulary: Vocabulary) -> Any:
    """The index, or the reason why there is none; both are cached, because a failure can take a minute."""
    ids: dict[bytes, list[int]] = {}
    for i in vocabulary.ordinary:
        ids.setdefault(vocabulary.tokens[i] or b"", []).append(int(i))
    ids.pop(b"", None)  # a token without bytes has no transitions
    try:
        return build_index(regex, vocabulary.eos_id, ids)
    except NoIndex as error:
        return str(error)

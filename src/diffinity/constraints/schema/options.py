"""The options of `JsonSchema`: how JSON is spelled, and how far unbounded schemas are unrolled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from diffinity.errors import InvalidArgument

Whitespace = Literal["dumps", "compact", "flexible"]
Order = Literal["declared", "any"]
Spellings = Literal["canonical", "any"]


@dataclass(frozen=True)
class Options:
    """Everything besides the schema that the automaton depends on.

    >>> Options(whitespace="compact").whitespace
    'compact'
    >>> Options(max_depth=-1)
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: max_depth must be a whole number of at least 0, not -1
    """

    whitespace: Whitespace = "dumps"
    """`dumps` writes `", "` and `": "`, as `json.dumps` does; `compact` has no white space; `flexible` allows it
    anywhere."""

    order: Order = "declared"
    """Whether an object's properties come as the schema lists them (others after them), or in any order where that
    is affordable."""

    open: bool = False
    """Whether properties that the schema permits without naming them may appear."""

    lenient: bool = False
    """Whether to ignore unsupported keywords; outputs may then violate them."""

    max_depth: int | None = None
    """The maximum depth of a recursive `$ref`; None for the greatest depth with a small automaton."""

    any_depth: int | None = None
    """The maximum depth of an unconstrained value; None for the greatest depth with a small automaton."""

    max_string: int = 256
    """The maximum number of code points of a string with a larger `maxLength` (more if `minLength` needs more)."""

    max_space: int = 8
    """The maximum number of white space characters in a row in `flexible`."""

    max_branches: int = 256
    """The maximum number of alternatives of one place after `anyOf`, `oneOf`, `if` … are multiplied out."""

    spelling: Spellings = "canonical"
    """Whether strings and numbers have one spelling, or also others of the same value (`\\u00e9`, `10.0`)."""

    def __post_init__(self) -> None:
        for name in ("max_depth", "any_depth", "max_string", "max_space", "max_branches"):
            value = getattr(self, name)
            if value is None and name.endswith("depth"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InvalidArgument(f"{name} must be a whole number of at least 0, not {value!r}")
        if self.whitespace not in ("dumps", "compact", "flexible"):
            raise InvalidArgument(f"whitespace is 'dumps', 'compact' or 'flexible', not {self.whitespace!r}")
        if self.order not in ("declared", "any"):
            raise InvalidArgument(f"order is 'declared' or 'any', not {self.order!r}")
        if self.spelling not in ("canonical", "any"):
            raise InvalidArgument(f"spelling is 'canonical' or 'any', not {self.spelling!r}")

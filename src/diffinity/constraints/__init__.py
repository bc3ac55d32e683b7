"""Constraints, and their compilation to a `ByteDFA`.

`JsonSchema` is imported on first use, because its compiler is half of this package.
"""

from typing import TYPE_CHECKING, Any

from diffinity.constraints import sentences
from diffinity.constraints.base import And, Choice, Concat, Constraint, Not, Or, Regex, Repeat, Text
from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.grammar import Grammar
from diffinity.constraints.nfa import NfaBuilder
from diffinity.constraints.python_types import constraint

if TYPE_CHECKING:
    from diffinity.constraints.schema import JsonSchema

__all__ = [
    "And",
    "ByteDFA",
    "Choice",
    "Concat",
    "Constraint",
    "Grammar",
    "JsonSchema",
    "NfaBuilder",
    "Not",
    "Or",
    "Regex",
    "Repeat",
    "Text",
    "constraint",
    "sentences",
]


def __getattr__(name: str) -> Any:
    if name != "JsonSchema":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from diffinity.constraints.schema import JsonSchema

    return JsonSchema

"""What a user may ask for, and how it becomes a `ByteDFA`."""

from diffinity.constraints import sentences
from diffinity.constraints.base import And, Choice, Concat, Constraint, Not, Or, Regex, Repeat, Text
from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.grammar import Grammar
from diffinity.constraints.nfa import NfaBuilder
from diffinity.constraints.python_types import constraint
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

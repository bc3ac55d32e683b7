"""The compiler's interface for builders of arrays and objects: the automaton of the values at a place below."""

from __future__ import annotations

from typing import Protocol

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.schema.assembly import Assembly
from diffinity.constraints.schema.document import Document
from diffinity.constraints.schema.literals import Literal
from diffinity.constraints.schema.options import Options


class Values(Protocol):
    """Compiles the values below a place."""

    @property
    def options(self) -> Options:
        """The options of the compilation."""
        ...

    @property
    def document(self) -> Document:
        """The document that is compiled."""
        ...

    def below(self, literals: tuple[Literal, ...]) -> ByteDFA:
        """The spellings of the values that satisfy the literals one level further down."""
        ...

    @property
    def assembly(self) -> Assembly:
        """The assembly of values into larger values."""
        ...

    def limit_states(self, states: int, doing: str) -> None:
        """Raise `ConstraintTooLarge` if the number of states exceeds the limit."""
        ...

    def least_size(self, value: ByteDFA) -> int:
        """The number of states of a value after expansion, with unconstrained values of the least depth."""
        ...

    @property
    def flat_any(self) -> ByteDFA:
        """Any value without non-empty arrays and objects."""
        ...

    @property
    def order_states(self) -> int:
        """The maximum number of states of an object with properties in any order."""
        ...

    def note_order(self, order: str) -> None:
        """Record a place where the names of an object keep an order although `order="any"` was requested."""
        ...

    def spend(self, passes: int, doing: str) -> None:
        """Count passes through a Python loop; raise `ConstraintTooLarge` if there are too many."""
        ...

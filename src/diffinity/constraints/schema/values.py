"""What builders of arrays and objects need from the compiler: the automaton of the values at a place below."""

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
        """How to spell and how far to go."""
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
        """How a value is put into a larger one."""
        ...

    def limit_states(self, states: int, doing: str) -> None:
        """Raise `ConstraintTooLarge` if so many states are too many."""
        ...

    def least_size(self, value: ByteDFA) -> int:
        """How many states a value has once written out, with unconstrained values as shallow as they may be."""
        ...

    @property
    def flat_any(self) -> ByteDFA:
        """Any value without arrays and objects that have something in them."""
        ...

    @property
    def order_states(self) -> int:
        """How many states an object may have so that its properties come in any order."""
        ...

    def note_order(self, kept: str) -> None:
        """Remember at which place the names of an object keep some order although any was asked for."""
        ...

    def spend(self, passes: int, doing: str) -> None:
        """Count so many passes through a loop in Python; raise `ConstraintTooLarge` if they are too many."""
        ...

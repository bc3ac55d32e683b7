"""The interface of a benchmarked system: a name, and `generate`, which returns texts for a constraint."""

from __future__ import annotations

from typing import Protocol

from diffinity.constraints.base import Constraint


class System(Protocol):
    """A system that generates texts under a constraint, ours or a baseline.

    A system that can't express a constraint raises `UnsupportedConstraint`; the benchmark then reports the
    constraint as not expressible, separately from failures.
    """

    @property
    def name(self) -> str:
        """Its name in tables; stable, because results on disk use it."""
        ...

    def generate(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        """`n` texts of at most `length` tokens, whether or not they satisfy the constraint.

        The same arguments give the same texts, and text i does not depend on n.
        """
        ...

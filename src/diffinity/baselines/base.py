"""The interface of a benchmarked system: a name, and `generate`, which returns texts for a constraint."""

from __future__ import annotations

from typing import Protocol

from diffinity.constraints.base import Constraint


class System(Protocol):
    """One way to write texts under a constraint, ours or another's.

    A system that can't express a constraint raises `UnsupportedConstraint`; the benchmark then reports the
    constraint as not expressible by it, apart from the failures.
    """

    @property
    def name(self) -> str:
        """How tables call it; stable, because results on disk are filed under it."""
        ...

    def generate(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        """`n` texts of at most `length` tokens, whether or not they satisfy the constraint.

        The same arguments give the same texts, and text i does not depend on n.
        """
        ...

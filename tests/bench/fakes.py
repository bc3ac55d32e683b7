"""A suite and systems that need no model: what they write is known beforehand."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from diffinity.baselines.base import System
from diffinity.bench.cases import Case
from diffinity.constraints.base import Constraint, Regex
from diffinity.errors import UnsupportedConstraint

PATTERNS = {"digits/a": "[0-3]+", "digits/b": "[4-9]+", "letters/a": "[a-m]+", "letters/b": "[n-z]+"}


def tiny_cases() -> tuple[Case, ...]:
    """Four cases in two categories."""
    return tuple(
        Case(name, name.split("/")[0], Regex(pattern), "sentence", pattern) for name, pattern in PATTERNS.items()
    )


@dataclass(frozen=True)
class Digits:
    """Writes the digits of numbers made from the seed: some match, some do not."""

    name: str = "digits"

    def generate(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        return [str((seed + 7919 * i) % 10 ** min(length, 3)) for i in range(n)]


@dataclass(frozen=True)
class NoLetters:
    """Refuses letters, breaks on one of the cases with digits."""

    name: str = "no-letters"

    def generate(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        if constraint in (Regex("[a-m]+"), Regex("[n-z]+")):
            raise UnsupportedConstraint("digits only")
        if constraint == Regex("[4-9]+"):
            raise RuntimeError("broken\nin two lines")
        return ["0"] * n


@dataclass(frozen=True)
class Fatal:
    """Ends its process on one case."""

    name: str = "fatal"

    def generate(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        if constraint == Regex("[4-9]+"):
            os._exit(3)
        return ["1"] * n


@dataclass(frozen=True)
class Interrupted:
    """Is where Ctrl-C arrives; not while it is warmed up."""

    name: str = "interrupted"

    def generate(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        if constraint.pattern() in PATTERNS.values():
            raise KeyboardInterrupt
        return [""] * n


@dataclass(frozen=True)
class TinyPlan:
    """The fakes as a plan."""

    cases: Sequence[Case] = tiny_cases()
    length: int = 3
    seed: int = 0

    def system(self, name: str) -> System:
        if name == "missing":
            raise ImportError("no module named missing")
        systems: dict[str, System] = {
            system.name: system for system in (Digits(), NoLetters(), Fatal(), Interrupted())
        }
        return systems[name]

    def valid(self, system: str, case: Case, text: str) -> bool:
        return case.valid(text)


@dataclass(frozen=True)
class Trained(Digits):
    """Must be prepared for every constraint before it writes."""

    name: str = "prepared"
    ready: set[Constraint] = field(default_factory=set, compare=False)

    def prepare(self, constraint: Constraint, length: int) -> dict[str, float]:
        self.ready.add(constraint)
        return {"auc": 0.5}

    def generate(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        assert constraint in self.ready
        return super().generate(constraint, n, length, seed)


@dataclass(frozen=True)
class PreparedPlan(TinyPlan):
    """A plan whose only system trains first."""

    def system(self, name: str) -> System:
        return Trained()

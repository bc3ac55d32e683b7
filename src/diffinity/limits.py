"""What compiling a constraint may cost at most, each limit with its unit, its default and a way to raise it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from diffinity.errors import ConstraintTooLarge

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Limits:
    """The most that one constraint may cost while it is compiled.

    >>> Limits().dfa_states
    250000
    >>> Limits(dfa_states=1_000_000).compile_seconds
    3.0
    """

    pattern_length: int = 100_000
    """Characters of a regular expression or grammar."""

    nesting_depth: int = 200
    """Levels of parentheses in a regular expression or grammar."""

    nfa_states: int = 1_000_000
    """States of a nondeterministic machine, after counted repetitions are written out."""

    nfa_edges: int = 8_000_000
    """Transitions of a nondeterministic machine, one per byte class that each may read."""

    dfa_states: int = 250_000
    """States of any deterministic machine, also of one that minimising would make smaller."""

    table_entries: int = 16_000_000
    """States times byte classes of any deterministic machine; 4 bytes each."""

    compile_seconds: float = 3.0
    """Seconds of processor time from the start of a compilation, so that a busy machine changes nothing; without
    the just-in-time compilation of our own code."""

    memory_bytes: int = 512 * MEBIBYTE
    """Bytes foreseen for one step's arrays, checked before they are allocated."""


DEFAULT_LIMITS = Limits()


@dataclass
class _Clock:
    start: float = field(default_factory=time.thread_time)


@dataclass(frozen=True)
class Budget:
    """The limits of a running compilation and the clock that it shares with its parts."""

    limits: Limits
    clock: _Clock = field(default_factory=_Clock)

    def check(self, limit: str, needed: float, doing: str) -> None:
        """Raise `ConstraintTooLarge` if `needed` is more than the limit of that name.

        >>> Budget(Limits(nfa_states=10)).check("nfa_states", 11, "this pattern")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        diffinity.errors.ConstraintTooLarge: this pattern needs nfa_states of at least 11, and the limit is 10. ...
        """
        allowed = getattr(self.limits, limit)
        if needed > allowed:
            raise ConstraintTooLarge(limit, allowed, needed, doing)

    def check_time(self, doing: str) -> None:
        """Raise `ConstraintTooLarge` if the compilation has taken longer than `compile_seconds`."""
        elapsed = time.thread_time() - self.clock.start
        if elapsed > self.limits.compile_seconds:
            raise ConstraintTooLarge("compile_seconds", self.limits.compile_seconds, round(elapsed, 3), doing)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time inside: it is ours (compiling kernels), not the constraint's."""
        began = time.thread_time()
        token = _budget.set(Budget(replace(DEFAULT_LIMITS, compile_seconds=math.inf)))
        try:
            yield
        finally:
            _budget.reset(token)
            self.clock.start += time.thread_time() - began


_limits: ContextVar[Limits] = ContextVar("diffinity_limits", default=DEFAULT_LIMITS)
_budget: ContextVar[Budget | None] = ContextVar("diffinity_budget", default=None)


def current_limits() -> Limits:
    """The limits in force here.

    >>> current_limits() == DEFAULT_LIMITS
    True
    """
    return _limits.get()


@contextmanager
def use_limits(limits: Limits | None = None, **changes: float) -> Iterator[Limits]:
    """Put other limits in force inside a `with` block: a whole `Limits`, or changes to those in force.

    >>> with use_limits(dfa_states=7):
    ...     current_limits().dfa_states
    7
    """
    chosen = replace(limits or _limits.get(), **changes)  # type: ignore[arg-type]
    token = _limits.set(chosen)
    try:
        yield chosen
    finally:
        _limits.reset(token)


@contextmanager
def compiling(limits: Limits | None = None) -> Iterator[Budget]:
    """Start a compilation, or join the one that is running: its parts share one clock.

    >>> with compiling() as whole, compiling() as part:
    ...     part.clock is whole.clock
    True
    """
    running = _budget.get()
    chosen = limits or _limits.get()
    if running is not None and limits is None:
        chosen = running.limits
    budget = Budget(chosen) if running is None else Budget(chosen, running.clock)
    token = _budget.set(budget)
    try:
        yield budget
    finally:
        _budget.reset(token)

"""Limits on the cost of compiling a constraint, with their units and defaults; `use_limits` changes them.

Whether a constraint compiles, and which error it gets, depends on counted work, not on the machine: every loop
that may run long reports its steps to the `Budget` of the compilation, and cached results are charged their
original cost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

from diffinity.errors import ConstraintTooLarge

MEBIBYTE = 1 << 20
PYTHON_STEPS = 1000  # steps of one pass through a Python loop: about five microseconds
OPERATION_STEPS = 40_000  # the fixed cost of one operation on automata
MAX_RESULTS_SIZE = 16_000_000  # table entries of the results that one compilation stores for repeated operations

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Limits:
    """The limits on the cost of compiling one constraint.

    >>> Limits().dfa_states
    250000
    >>> Limits(dfa_states=1_000_000).compile_steps
    800000000
    """

    pattern_length: int = 100_000
    """Characters of a regular expression or grammar."""

    nesting_depth: int = 200
    """Levels of parentheses in a regular expression or grammar, and of constraints inside constraints."""

    nfa_states: int = 1_000_000
    """States of a nondeterministic machine, after counted repetitions are written out."""

    nfa_edges: int = 8_000_000
    """Transitions of a nondeterministic machine, one per byte class that each may read."""

    dfa_states: int = 250_000
    """States of any deterministic machine, even before minimisation."""

    table_entries: int = 16_000_000
    """States times byte classes of any deterministic machine; 4 bytes each."""

    compile_steps: int = 800_000_000
    """Steps of one compilation: states created, edges followed, pairs compared; about five nanoseconds each."""

    compile_seconds: float = 120.0
    """Seconds of processor time of one compilation: a last resort, far above the time of `compile_steps`."""

    memory_bytes: int = 512 * MEBIBYTE
    """Estimated bytes of one step's arrays, checked before they are allocated."""


DEFAULT_LIMITS = Limits()


class Uncounted(threading.local):
    """Seconds of this thread that do not count for a constraint: the compilation of loops (see `compiled`)."""

    seconds: float = 0.0


uncounted = Uncounted()


def counted_time() -> float:
    """The processor time of this thread, without uncounted time.

    >>> counted_time() <= time.thread_time()
    True
    """
    return time.thread_time() - uncounted.seconds


@dataclass
class Meter:
    """The work of a compilation and its parts so far."""

    steps: int = 0
    charged: dict[Hashable, object] = field(default_factory=dict)  # cached results that were already charged
    results: dict[Hashable, object] = field(default_factory=dict)  # of operations, for repeated operations
    results_size: int = 0  # in table entries
    start: float = field(default_factory=lambda: counted_time())
    ended: bool = False


@dataclass(frozen=True)
class Budget:
    """The limits of a running compilation and the meter that it shares with its parts."""

    limits: Limits
    meter: Meter = field(default_factory=Meter)

    def check(self, limit: str, needed: float, doing: str) -> None:
        """Raise `ConstraintTooLarge` if `needed` exceeds the limit with this name.

        >>> Budget(Limits(nfa_states=10)).check("nfa_states", 11, "this pattern")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        diffinity.errors.ConstraintTooLarge: this pattern needs nfa_states of at least 11, and the limit is 10. ...
        """
        allowed = getattr(self.limits, limit)
        if needed > allowed:
            raise ConstraintTooLarge(limit, allowed, needed, doing)

    def spend(self, steps: int, doing: str) -> None:
        """Count finished work; raise `ConstraintTooLarge` if the compilation exceeds its budget.

        >>> Budget(Limits(compile_steps=10)).spend(11, "this pattern")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        diffinity.errors.ConstraintTooLarge: this pattern needs compile_steps of at least 11, ...
        """
        self.meter.steps += int(steps)
        if self.meter.steps > self.limits.compile_steps:
            raise ConstraintTooLarge("compile_steps", self.limits.compile_steps, self.meter.steps, doing)
        elapsed = counted_time() - self.meter.start
        if elapsed > self.limits.compile_seconds:
            raise ConstraintTooLarge("compile_seconds", self.limits.compile_seconds, round(elapsed, 3), doing)

    def kept(self, operation: Hashable) -> object | None:
        """The stored result of an operation that this compilation has done before; None if there is none.

        >>> budget = Budget(Limits())
        >>> budget.keep("a or b", 7, size=1)
        >>> budget.kept("a or b"), budget.kept("a and b")
        (7, None)
        """
        result = self.meter.results.get(operation)
        if result is not None:
            self.spend(PYTHON_STEPS, "a repeated operation")
        return result

    def keep(self, operation: Hashable, result: object, size: int) -> None:
        """Store the result of an operation until the compilation ends, if there is room for its table entries."""
        if self.meter.results_size + size <= MAX_RESULTS_SIZE:
            self.meter.results[operation] = result
            self.meter.results_size += size

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Count the work inside as if nothing had been charged or stored before; restore both afterwards."""
        meter = self.meter
        outer_state = meter.charged, meter.results, meter.results_size
        meter.charged, meter.results, meter.results_size = {}, {}, 0
        try:
            yield
        finally:
            meter.charged, meter.results, meter.results_size = outer_state


_limits: ContextVar[Limits] = ContextVar("diffinity_limits", default=DEFAULT_LIMITS)
_budget: ContextVar[Budget | None] = ContextVar("diffinity_budget", default=None)


def current_limits() -> Limits:
    """The current limits.

    >>> current_limits() == DEFAULT_LIMITS
    True
    """
    return _limits.get()


@contextmanager
def use_limits(limits: Limits | None = None, **changes: float) -> Iterator[Limits]:
    """Use other limits inside a `with` block: a new `Limits`, or changes to the current limits.

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


def set_limits(**changes: float) -> None:
    """Change the limits until the current `contextvars` context ends; `use_limits` is for a block.

    >>> from contextvars import copy_context
    >>> copy_context().run(lambda: (set_limits(dfa_states=7), current_limits().dfa_states))
    (None, 7)
    >>> current_limits() == DEFAULT_LIMITS
    True
    """
    _limits.set(replace(_limits.get(), **changes))  # type: ignore[arg-type]


@contextmanager
def compiling(limits: Limits | None = None) -> Iterator[Budget]:
    """Start a compilation, or join the running compilation: its parts share one meter.

    >>> with compiling() as whole, compiling() as part:
    ...     part.meter is whole.meter
    True
    """
    running = _budget.get()
    if running is not None and running.meter.ended:  # Ctrl-C prevented the reset of `_budget`
        running = None
    if running is not None and limits in (None, running.limits):
        yield running
        return
    budget = (
        Budget(limits or _limits.get()) if running is None else Budget(limits or running.limits, running.meter)
    )
    _budget.set(budget)
    try:
        yield budget
    finally:
        if running is None:
            budget.meter.ended = True
        # Without `ContextVar.reset`: after Ctrl-C this may run late, when an outer compilation has already ended.
        if _budget.get() is budget:
            _budget.set(running)


def charged_cache(maxsize: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`lru_cache` for parts of constraints: each compilation is charged once for the original cost of a result.

    Otherwise the success of a compilation would depend on earlier compilations.

    >>> @charged_cache(maxsize=8)
    ... def twice(x: int) -> int:
    ...     with compiling() as budget:
    ...         budget.spend(100, "doubling")
    ...     return 2 * x
    >>> for _ in range(2):
    ...     with compiling() as budget:
    ...         twice(3), twice(3), budget.meter.steps
    (6, 6, 100)
    (6, 6, 100)
    """

    def wrapped(function: Callable[P, R]) -> Callable[P, R]:
        @lru_cache(maxsize=maxsize)
        def computed(_limits: Limits, *args: Hashable, **kwargs: Hashable) -> tuple[R, int]:
            with compiling() as budget, budget.apart():
                steps_before = budget.meter.steps
                result = function(*args, **kwargs)  # type: ignore[arg-type]
                cost = budget.meter.steps - steps_before
                budget.meter.steps = steps_before  # the caller charges it, cached or new
                return result, cost

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with compiling() as budget:
                result, cost = computed(budget.limits, *args, **kwargs)  # type: ignore[arg-type]
                key = (function, args, tuple(kwargs.items()))
                if key not in budget.meter.charged:
                    budget.meter.charged[key] = None
                    budget.spend(cost, f"a part ({function.__name__})")
                return result

        return call

    return wrapped

"""The cost of hostile constraints until they compile or are refused: seconds, counted steps, and steps per second.

python -m benchmarks.hostile
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table
from tests.attacks import families, test_patterns, test_schemas

from diffinity.constraints import JsonSchema, Regex
from diffinity.constraints.warm import kernels_ready
from diffinity.errors import ConstraintError, ConstraintTooLarge
from diffinity.limits import compiling


def attacks() -> Iterator[tuple[str, Callable[[], object]]]:
    """All attacks of the tests."""
    for name, (pattern, *_) in (*test_patterns.TOO_LARGE.items(), *test_patterns.COMPILES.items()):
        yield name, partial(_compile_pattern, pattern)
    yield from test_patterns.OTHERS.items()
    for name, family in families.FAMILIES.items():
        for size in (400, 3000):
            if name != "models":
                yield f"{name}, {size:,}", partial(_compile_family, family, size)
    for name, (make, _) in test_schemas.CASES.items():
        case = make()
        schema, options = case if isinstance(case, tuple) else (case, {})
        yield name, partial(_compile_schema, schema, options)


def _compile_family(family: families.Attack, size: int) -> object:
    return family(size).dfa()


def _compile_pattern(pattern: str) -> object:
    return Regex(pattern).dfa()


def _compile_schema(schema: Any, options: dict[str, Any]) -> object:
    return JsonSchema(schema, **options).dfa()


def measured(attack: Callable[[], object]) -> tuple[float, int, str]:
    """Seconds of processor time, steps, and the outcome."""
    began = time.process_time()
    with compiling() as budget:
        try:
            attack()
            outcome = "compiles"
        except ConstraintError as refusal:
            outcome = type(refusal).__name__
            outcome += f": {refusal.limit}" if isinstance(refusal, ConstraintTooLarge) else ""
    return time.process_time() - began, budget.meter.steps, outcome


def main() -> None:
    kernels_ready()
    rows = sorted(((*measured(attack), name) for name, attack in attacks()), reverse=True)
    table = Table("attack", "seconds", "million steps", "ns a step", "outcome")
    for seconds, steps, outcome, name in rows[:30]:
        nanoseconds = f"{1e9 * seconds / steps:.1f}" if steps else ""
        table.add_row(name, f"{seconds:.2f}", f"{steps / 1e6:.1f}", nanoseconds, outcome)
    Console().print(table, f"{len(rows)} attacks, the slowest {rows[0][0]:.2f} s")


if __name__ == "__main__":
    main()

"""`diffinity bench compare`: the differences between two runs, or between two systems, case by case."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diffinity.bench.layout import Table, number
from diffinity.bench.measures import Interval, bootstrap
from diffinity.bench.report import read_results
from diffinity.bench.scorers import EMBEDDED_SCORER
from diffinity.bench.store import SampleRow
from diffinity.bench.summary import RESAMPLES, Results
from diffinity.errors import InvalidArgument

Verdict = Literal["better", "worse", "no difference found", "the same", "not measured"]


@dataclass(frozen=True)
class Difference:
    """The change of one measure from A to B, over the cases that both have.

    `change` is a difference for satisfaction, else a ratio. Its interval comes from a paired bootstrap over cases.
    """

    system: str
    measure: str
    a: float
    b: float
    change: Interval
    cases: int
    verdict: Verdict


def compare(a: str, b: str, *, scorer: str | None = EMBEDDED_SCORER) -> list[Difference]:
    """Compare B with A. Each is the folder of a run, or `FOLDER:SYSTEM` for one system of a run.

    Two runs are compared system by system; two systems are compared on the cases that both have.
    """
    (path_a, system_a), (path_b, system_b) = _named(a), _named(b)
    results_a = read_results(path_a, scorer)
    results_b = results_a if path_a == path_b else read_results(path_b, scorer)
    if (system_a is None) != (system_b is None):
        raise InvalidArgument(f"name a system in both or in none: {a!r} and {b!r}")
    if system_a is not None and system_b is not None:
        pairs = [(system_a, system_b)]
    else:
        pairs = [(name, name) for name in results_a.run.systems if name in results_b.run.systems]
    if not pairs:
        raise InvalidArgument(f"{a} and {b} have no system in common")
    changes = []
    for name_a, name_b in pairs:
        for name, results in ((name_a, results_a), (name_b, results_b)):
            if not results.rows(name):
                systems = ", ".join(results.run.systems)
                raise InvalidArgument(
                    f"there is no system {name!r} in {results.run.path.name}; there are {systems}"
                )
        changes += list(differences(results_a, name_a, results_b, name_b))
    return changes


def differences(results_a: Results, name_a: str, results_b: Results, name_b: str) -> Sequence[Difference]:
    """The three measures of two systems on the cases that both could express.

    >>> from diffinity.bench.summary import example
    >>> [difference.verdict for difference in differences(example(), "unconstrained", example(), "auto")]
    ['better', 'not measured', 'worse']
    """
    rows_a, rows_b = _expressible(results_a.rows(name_a)), _expressible(results_b.rows(name_b))
    common_cases = [case for case in rows_a if case in rows_b]
    name = name_a if name_a == name_b else f"{name_a} → {name_b}"
    if not common_cases:
        raise InvalidArgument(f"{name}: the two have no case in common")

    def paired(
        measure: str,
        value_of: Callable[[Results, Sequence[SampleRow]], float],
        higher_is_better: bool,
        ratio: bool,
    ) -> Difference:
        values = [(value_of(results_a, rows_a[case]), value_of(results_b, rows_b[case])) for case in common_cases]
        finite_pairs = np.array([pair for pair in values if all(map(math.isfinite, pair))]).reshape(-1, 2)
        return _difference(name, measure, finite_pairs, higher_is_better, ratio)

    return (
        paired("satisfied", lambda _, rows: _satisfied(rows), True, False),
        paired("log perplexity of matching", _log_perplexity, False, True),
        paired("log seconds a sample", lambda _, rows: _log_seconds(rows), False, True),
    )


def _difference(
    system: str, measure: str, pairs: NDArray[np.float64], higher_is_better: bool, ratio: bool
) -> Difference:
    """The change of a measure; differences of logarithms become ratios."""
    measure = measure.removeprefix("log ")
    if not len(pairs):
        not_measured = Interval(math.nan, math.nan, math.nan)
        return Difference(system, measure, math.nan, math.nan, not_measured, 0, "not measured")
    change = bootstrap(pairs[:, 1] - pairs[:, 0], transform=np.exp if ratio else None, resamples=RESAMPLES)
    a, b = (float(np.exp(mean)) if ratio else float(mean) for mean in pairs.mean(axis=0))
    return Difference(system, measure, a, b, change, len(pairs), verdict(change, higher_is_better, ratio))


def verdict(change: Interval, higher_is_better: bool, ratio: bool) -> Verdict:
    """The verdict on an interval: a difference is significant if the interval does not contain "no change".

    >>> verdict(Interval(0.2, 0.1, 0.3), True, False), verdict(Interval(1.1, 0.9, 1.3), False, True)
    ('better', 'no difference found')
    """
    no_change = 1.0 if ratio else 0.0
    if change.low == change.high == no_change:
        return "the same"
    if change.low <= no_change <= change.high:
        return "no difference found"
    return "better" if (change.low > no_change) == higher_is_better else "worse"


def as_table(comparison: Sequence[Difference]) -> Table:
    """The comparison as a table.

    >>> from diffinity.bench.summary import example
    >>> as_table(differences(example(), "unconstrained", example(), "auto")).rows[0][2:4]
    ('0.0%', '100.0%')
    """
    rows = []
    for difference in comparison:
        is_share = difference.measure == "satisfied"
        values = (
            [_share(difference.a), _share(difference.b)]
            if is_share
            else [number(difference.a, 3), number(difference.b, 3)]
        )
        points = Interval(
            100 * difference.change.estimate, 100 * difference.change.low, 100 * difference.change.high
        )
        change = number(points, 1, " points") if is_share else number(difference.change, 3, " ×")
        rows.append(
            (difference.system, difference.measure, *values, change, str(difference.cases), difference.verdict)
        )
    note = "B against A on the same constraints; brackets: 95% paired bootstrap intervals over constraints."
    columns = ("system", "measure", "A", "B", "change", "constraints", "verdict")
    return Table("Comparison", columns, tuple(rows), (note,), text_columns=(1, 6))


def _share(value: float) -> str:
    return number(100 * value, 1, "%")


def _named(name: str) -> tuple[Path, str | None]:
    if Path(name).is_dir():
        return Path(name), None
    folder, colon, system = name.rpartition(":")
    return (Path(folder), system) if colon and Path(folder).is_dir() else (Path(name), None)


def _expressible(rows: Mapping[str, list[SampleRow]]) -> dict[str, list[SampleRow]]:
    return {case: lines for case, lines in rows.items() if lines[0].outcome != "unsupported"}


def _satisfied(rows: Sequence[SampleRow]) -> float:
    """The share of valid samples; a failed case has none."""
    return sum(bool(row.valid) for row in rows) / len(rows)


def _log_perplexity(results: Results, rows: Sequence[SampleRow]) -> float:
    scored = [results.log_perplexity(row) for row in rows if row.valid]
    known_scores = [score for score in scored if score is not None]
    return sum(known_scores) / len(known_scores) if known_scores else math.nan


def _log_seconds(rows: Sequence[SampleRow]) -> float:
    times = [row.seconds for row in rows if row.seconds]
    return math.log(float(np.median(times))) if times else math.nan

"""The summary at the top of a report: the main systems, from the report's own numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from diffinity.bench.layout import DASH, Table
from diffinity.bench.measures import Interval

SHOWN = {
    "auto": "ours, the default guidance",
    "best": "ours, the gradient at every step",
    "gradient": "ours, the gradient at every step",
    "paper": "the paper's method",
    "decoding-only": "no guidance, exact decoding",
    "unconstrained": "the diffusion model without a constraint",
    "autoregressive-conditional": "the autoregressive model given the constraint",
    "autoregressive-diffinity": "the autoregressive model with our automaton",
    "llguidance": "the autoregressive model with llguidance",
    "outlines-core": "the autoregressive model with outlines-core",
    "dingo": "the masked diffusion model with DINGO",
    "classifier-full": "classifier guidance",
}
MEASURES = ("satisfaction", "perplexity of matching", "overhead")

Numbers = Mapping[tuple[str, str, str], Interval]  # by run, system and measure


def numbers_of(rows: Iterable[tuple[Any, ...]]) -> dict[tuple[str, str, str], Interval]:
    """The numbers over all categories, from rows in the format of results.csv.

    >>> numbers_of([("run", "json", "auto", "all", "satisfaction", "0.5", "0.4", "0.6", 10)])
    {('run', 'auto', 'satisfaction'): Interval(estimate=0.5, low=0.4, high=0.6)}
    """
    numbers = {}
    for run, _, system, category, measure, value, low, high, _ in rows:
        if category == "all":
            value = float(value)
            numbers[run, system, measure] = Interval(
                value, *(float(end) if end != "" else value for end in (low, high))
            )
    return numbers


def summary_table(numbers: Numbers) -> Table | None:
    """The results of the main systems of every run; None if there are none.

    >>> table = summary_table({("json", "auto", "satisfaction"): Interval(1.0, 1.0, 1.0)})
    >>> table.rows if table else None
    (('json', 'auto', 'ours, the default guidance', '100.0%', '—', '—'),)
    """
    rows = []
    for run in dict.fromkeys(run for run, _, _ in numbers):
        for system, description in SHOWN.items():
            intervals = [numbers.get((run, system, measure)) for measure in MEASURES]
            if intervals[0] is None:
                continue
            satisfied, perplexity, overhead = intervals
            cells = (
                DASH if satisfied is None else f"{100 * satisfied.estimate:.1f}%",
                DASH if perplexity is None else f"{perplexity.estimate:.1f}",
                DASH if overhead is None else f"{overhead.estimate:.2f}",
            )
            rows.append((run, system, description, *cells))
    columns = ("run", "system", "", "satisfied", "perplexity of matching", "time over unconstrained")
    return Table("Summary", columns, tuple(rows), text_columns=(1, 2)) if rows else None

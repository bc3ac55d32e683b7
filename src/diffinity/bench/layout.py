"""Tables of a report, and the format of numbers in them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from diffinity.bench.judge import NOT_MEASURED
from diffinity.bench.measures import Interval

__all__ = ["DASH", "NOT_MEASURED", "Table", "number", "percent", "ratio"]

DASH = "—"


@dataclass(frozen=True)
class Table:
    """Rows of cells under headings; the first column names the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    text_columns: tuple[int, ...] = ()  # the columns besides the first that contain words, not numbers

    def markdown(self) -> str:
        """The table in Markdown.

        >>> print(Table("", ("a", "b"), (("x|y", "1"),)).markdown())
        | a | b |
        |---|---:|
        | x\\|y | 1 |
        """
        alignments = ["---" if i == 0 or i in self.text_columns else "---:" for i in range(len(self.columns))]
        lines = [self.columns, tuple(alignments), *self.rows]
        table_lines = [
            f"|{'|'.join(line)}|" if i == 1 else f"| {' | '.join(map(_cell, line))} |"
            for i, line in enumerate(lines)
        ]
        return "\n".join([*table_lines, *(f"\n{note}" for note in self.notes)])


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def percent(value: Interval) -> str:
    """A share with its interval.

    >>> percent(Interval(0.5, 0.25, 0.75))
    '50.0% [25.0, 75.0]'
    """
    if math.isnan(value.estimate):
        return DASH
    return f"{100 * value.estimate:.1f}% [{100 * value.low:.1f}, {100 * value.high:.1f}]"


def number(value: Interval | float | None, digits: int = 1, unit: str = "") -> str:
    """A number, with its interval if it has an interval; a dash for a missing number.

    >>> number(Interval(2.0, 1.5, 2.5), 1, " s"), number(None)
    ('2.0 s [1.5, 2.5]', '—')
    """
    estimate = value.estimate if isinstance(value, Interval) else value
    if estimate is None or math.isnan(estimate):
        return DASH
    formatted = f"{estimate:.{digits}f}{unit}"
    if isinstance(value, Interval):
        formatted += f" [{value.low:.{digits}f}, {value.high:.{digits}f}]"
    return formatted


def ratio(value: Interval, to: Interval) -> float:
    """The ratio of two estimates.

    >>> ratio(Interval(3.0, 1.0, 5.0), Interval(2.0, 1.0, 3.0))
    1.5
    """
    return value.estimate / to.estimate if to.estimate else math.nan

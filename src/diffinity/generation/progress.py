"""The progress of a call: a bar on stderr, and the time left until the deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TimeLeft = Callable[[], float | None]


def countdown(seconds: float | None) -> TimeLeft:
    """A function that returns the seconds left until the deadline, at least 0; None without a deadline.

    >>> countdown(None)() is None, countdown(0.0)()
    (True, 0.0)
    """
    start_time = time.monotonic()
    return lambda: None if seconds is None else max(0.0, seconds + start_time - time.monotonic())


@contextmanager
def progress_bar(shown: bool, total: int) -> Iterator[Callable[[], None]]:
    """A context that yields a function; each call advances a progress bar of `total` steps on stderr, if shown.

    >>> with progress_bar(False, 3) as advance:
    ...     advance()
    """
    if not shown:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("denoising"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("denoising", total=total)
        yield lambda: bar.advance(task)

"""The live view in a terminal: drafts and log P(L) during denoising."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from diffinity.commands.console import visible
from diffinity.models.protocol import TextModel
from diffinity.processes.base import State
from diffinity.trace import Frame, Pieces

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 32  # characters of the sparkline
MOST_DRAFTS = 3
SECONDS_BETWEEN = 0.1


class LiveDrafts:
    """The live view of a run; pass it to `generate` as `callback_on_step_end`."""

    def __init__(self, model: TextModel, live: Live, total: int, particles: int = 1) -> None:
        self._pieces, self._live, self._total, self._particles = Pieces(model), live, total, particles
        self._curves: list[list[float]] = []
        self._shown_at = -math.inf

    def __call__(self, step: int, state: State) -> None:
        if step == 0:
            self._curves = [[] for _ in range(MOST_DRAFTS)]
        log_acceptance = None if state.prediction is None else state.prediction.log_acceptance
        if log_acceptance is not None:
            for curve, value in zip(self._curves, log_acceptance[:: self._particles].tolist(), strict=False):
                curve.append(value)
        if time.monotonic() - self._shown_at < SECONDS_BETWEEN and step + 1 < self._total:
            return
        self._shown_at = time.monotonic()
        self._live.update(self.panel(Frame.of(step, state, self._particles)), refresh=True)

    def panel(self, frame: Frame) -> Panel:
        """The drafts of a frame, each with its curve of log P(L)."""
        parts: list[Text] = []
        for i in range(min(MOST_DRAFTS, len(frame.tokens))):
            parts.append(self._draft(frame, i))
            if self._curves[i]:
                line = f"log P(L) {sparkline(self._curves[i])} {self._curves[i][-1]:.1f}"
                parts.append(Text(line.replace("-", "−"), style="cyan"))
        return Panel(Group(*parts), title=f"denoising: step {frame.step + 1} of {self._total}")

    def _draft(self, frame: Frame, index: int) -> Text:
        ids = self._pieces.before_end(frame.tokens[index].tolist())
        draft, position = Text(), 0
        for number, size in self._pieces.spelled(ids):
            confidence = int(frame.confidence[index, position : position + size].min())
            style = "dim" if confidence < 50 else "" if confidence < 95 else "bold"
            draft.append(visible(self._pieces.texts[number]), style=style)
            position += size
        return draft


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Values of at most 0 as a row of at most `width` blocks; the highest block means 0.

    >>> sparkline([-8.0, -4.0, 0.0])
    '▁▄█'
    """
    sampled = [values[i * len(values) // width] for i in range(width)] if len(values) > width else list(values)
    if sampled:
        sampled[-1] = values[-1]
    finite = [value for value in sampled if math.isfinite(value)]
    lowest = min([*finite, -1e-9])
    levels = [1 - value / lowest if math.isfinite(value) else 0.0 for value in sampled]
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int(max(0.0, level) * (len(BLOCKS) - 1)))] for level in levels)


@contextmanager
def live_drafts(console: Console, model: TextModel, total: int, particles: int = 1) -> Iterator[LiveDrafts]:
    """Show the live view during the `with` block, and remove it afterwards."""
    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield LiveDrafts(model, live, total, particles)

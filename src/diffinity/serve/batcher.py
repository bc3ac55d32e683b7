"""Requests that wait are denoised together: one thread takes batches, and texts leave them when no one waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from diffinity.errors import DiffinityError
from diffinity.generation import Generated, GenerationSettings, Generator
from diffinity.generation.generator import StepwiseBatch
from diffinity.memory import is_out_of_memory
from diffinity.models.protocol import TextModel
from diffinity.serve.compiler import Compiled
from diffinity.serve.errors import ApiError, of_diffinity
from diffinity.serve.settings import ServeSettings
from diffinity.trace import Frame

log = logging.getLogger("diffinity.serve")
MOST_DRAFTS_BEHIND = 32  # a reader that is further behind misses drafts, not the text


@dataclass(frozen=True)
class DraftEvent:
    """One text of a request half-way."""

    index: int
    step: int
    steps: int
    tokens: list[int]
    confidence: list[int]  # percent
    log_acceptance: float | None


@dataclass(frozen=True)
class TextEvent:
    """One text of a request, finished."""

    index: int
    text: Generated
    last_draft: list[int]  # the most probable tokens at the end
    top: list[list[tuple[int, float]]] | None  # for each token: itself, then the most probable, with log p


@dataclass(eq=False)
class Job:
    """Texts for one request: the same constraint and settings, one seed each."""

    compiled: Compiled
    settings: GenerationSettings
    length: int
    seeds: list[tuple[int, int]]
    deadline: float  # on time.monotonic's clock
    drafts: int | None = None  # every so many steps
    logprobs: int | None = None
    arrived: float = field(default_factory=time.monotonic)
    cancelled: bool = False
    events: asyncio.Queue[DraftEvent | TextEvent | ApiError] = field(default_factory=asyncio.Queue)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    @property
    def group(self) -> tuple[Any, ...]:
        """Jobs with equal groups can be denoised together."""
        return self.length, repr(self.settings)

    def cancel(self) -> None:
        """No one waits for it any more; its texts leave their batches at the next step."""
        self.cancelled = True

    def deliver(self, event: DraftEvent | TextEvent | ApiError) -> None:
        """Hand an event to the request, from the batcher's thread."""
        if isinstance(event, ApiError):
            self.cancelled = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: no one is there
            self.loop.call_soon_threadsafe(self._put, event)

    def _put(self, event: DraftEvent | TextEvent | ApiError) -> None:
        if not isinstance(event, DraftEvent) or self.events.qsize() < MOST_DRAFTS_BEHIND:
            self.events.put_nowait(event)


@dataclass(frozen=True)
class _Row:
    job: Job
    index: int

    @property
    def place(self) -> int:
        """Which of the request's texts it is; a request may have several jobs."""
        return self.job.seeds[self.index][1]

    def is_wanted(self) -> bool:
        """Whether someone waits for it; tells those whose time is over."""
        if not self.job.cancelled and time.monotonic() >= self.job.deadline:
            self.job.deliver(ApiError("the deadline of the request is over", status=504, code="deadline_exceeded"))
        return not self.job.cancelled


class Batcher:
    """The thread that writes. `submit` from the event loop; what happens comes through the job's events."""

    def __init__(self, model: TextModel, settings: ServeSettings) -> None:
        self._model, self._settings = model, settings
        self._waiting: list[_Row] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="denoise", daemon=True)
        self.running = 0  # texts in the present batch
        self.batches: list[int] = []  # sizes of batches, until metrics take them
        self.cancelled = 0
        self._seconds_per_text = 1.0

    def start(self) -> None:
        """Begin to take batches."""
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Texts that wait for a batch."""
        return len(self._waiting)

    def submit(self, job: Job) -> None:
        """Put a job's texts into the queue, or raise 429."""
        with self._changed:
            if self._closed:
                raise ApiError("the server is shutting down", status=503, code="draining", retry_after=5)
            if len(self._waiting) + len(job.seeds) > self._settings.max_waiting:
                seconds = max(1, round(len(self._waiting) * self._seconds_per_text))
                raise ApiError(
                    f"{len(self._waiting)} texts are waiting already: try again later",
                    status=429,
                    code="queue_full",
                    retry_after=min(seconds, 600),
                )
            self._waiting += [_Row(job, index) for index in range(len(job.seeds))]
            self._changed.notify()

    def close(self) -> None:
        """Finish the present batch and end; what waits gets an error."""
        with self._changed:
            self._closed = True
            for row in self._waiting:
                row.job.deliver(
                    ApiError("the server is shutting down", status=503, code="draining", retry_after=5)
                )
            self._waiting.clear()
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        while rows := self._next_rows():
            began = time.monotonic()
            self.running = len(rows)
            self._write(rows)
            self.running = 0
            self.batches.append(len(rows))
            spent = (time.monotonic() - began) / len(rows)
            self._seconds_per_text += 0.2 * (spent - self._seconds_per_text)

    def _next_rows(self) -> list[_Row]:
        """The rows of the next batch: those that go with the first that waits; empty when closed."""
        with self._changed:
            while True:
                self._waiting = [row for row in self._waiting if row.is_wanted() or self._count_cancelled()]
                if self._closed:
                    return []
                if not self._waiting:
                    self._changed.wait()
                    continue
                first = self._waiting[0].job
                rows = [row for row in self._waiting if row.job.group == first.group][: self._settings.max_batch]
                left = first.arrived + self._settings.batch_delay - time.monotonic()
                if len(rows) < self._settings.max_batch and left > 0:
                    self._changed.wait(left)
                    continue
                taken = set(map(id, rows))
                self._waiting = [row for row in self._waiting if id(row) not in taken]
                return rows

    def _count_cancelled(self) -> bool:
        self.cancelled += 1
        return False

    def _write(self, rows: list[_Row]) -> None:
        """Write a batch, in pieces that fit into memory; where a piece fails, each text by itself."""
        if not rows:
            return
        try:
            fits = self._generator(rows).affordable()
            if len(rows) <= fits:
                self._denoise(rows)
                return
        except Exception as error:
            if len(rows) == 1:
                rows[0].job.deliver(_api_error(error))
                return
            fits = 1  # one of them is at fault, or they are too many
        for first in range(0, len(rows), fits):
            self._write([row for row in rows[first : first + fits] if row.is_wanted()])

    def _generator(self, rows: Sequence[_Row]) -> Generator:
        job, automata = rows[0].job, [row.job.compiled.automaton for row in rows]
        return Generator.from_automata(self._model, automata, job.settings, length=job.length)

    def _denoise(self, rows: list[_Row]) -> None:
        batch = self._generator(rows).stepwise([row.job.seeds[row.index] for row in rows])
        while True:
            rows = self._drop_unwanted(batch, rows)
            if not rows:
                return
            if not batch.step():
                break
            self._tell_drafts(batch, rows)
        self._tell_texts(batch, rows)

    def _drop_unwanted(self, batch: StepwiseBatch, rows: list[_Row]) -> list[_Row]:
        wanted = [i for i, row in enumerate(rows) if row.is_wanted()]
        if not wanted or len(wanted) == len(rows):
            self.cancelled += len(rows) - len(wanted)
            return [rows[i] for i in wanted]
        batch.keep(wanted)
        if len(batch) == len(rows):  # particles stay, wanted or not
            return rows
        self.cancelled += len(rows) - len(wanted)
        return [rows[i] for i in wanted]

    def _tell_drafts(self, batch: StepwiseBatch, rows: Sequence[_Row]) -> None:
        step, steps = batch.state.step, batch.steps
        asked = [
            i for i, row in enumerate(rows) if row.job.drafts and (step % row.job.drafts == 0 or step == steps)
        ]
        if not asked:
            return
        frame = Frame.of(step - 1, batch.state, rows[0].job.settings.particles or 1)
        for i in asked:
            accepted = None if frame.log_acceptance is None else frame.log_acceptance[i]
            tokens, confidence = frame.tokens[i].tolist(), frame.confidence[i].tolist()
            rows[i].job.deliver(DraftEvent(rows[i].place, step, steps, tokens, confidence, accepted))

    def _tell_texts(self, batch: StepwiseBatch, rows: Sequence[_Row]) -> None:
        particles = rows[0].job.settings.particles or 1
        texts, logits = batch.finish(), batch.last_logits()[::particles]
        for i, row in enumerate(rows):
            last = logits[i].argmax(dim=-1).tolist()
            asked = row.job.logprobs
            top = None if asked is None else _top(logits[i], texts[i].tokens, asked)
            row.job.deliver(TextEvent(row.place, texts[i], last, top))


def _top(logits: torch.Tensor, tokens: Sequence[int], k: int) -> list[list[tuple[int, float]]]:
    """For every position the token with its log probability, then the k most probable ones."""
    log_p = logits.double().log_softmax(dim=-1)  # (L, V)
    best, ids = log_p.topk(min(k, log_p.shape[1]), dim=-1)
    return [
        [(token, float(log_p[at, token])), *zip(ids[at].tolist(), best[at].tolist(), strict=True)]
        for at, token in enumerate(tokens)
    ]


def _api_error(error: Exception) -> ApiError:
    if isinstance(error, DiffinityError):
        return of_diffinity(error, None)
    if is_out_of_memory(error):
        return ApiError("there is not enough memory for this request", status=503, code="out_of_memory")
    log.exception("a batch failed", exc_info=error)
    return ApiError("the server failed at this request", status=500, code="internal_error")

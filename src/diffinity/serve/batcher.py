"""The batcher: one thread denoises waiting requests in batches; texts of disconnected clients leave their batch.

Requests with the same settings and length share a batch. Batches of different settings alternate, one step each,
so that a short request does not wait for the end of a long request.
"""

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
from diffinity.generation.making import rows_of
from diffinity.generation.stepwise import StepwiseBatch
from diffinity.memory import is_out_of_memory
from diffinity.models.protocol import TextModel
from diffinity.serve.compiler import Compiled
from diffinity.serve.errors import ApiError, of_diffinity
from diffinity.serve.settings import ServeSettings
from diffinity.trace import Frame

log = logging.getLogger("diffinity.serve")
MOST_DRAFTS_BEHIND = 32  # a client that reads more slowly misses drafts, but not the text


@dataclass(frozen=True)
class DraftEvent:
    """A draft of one text of a request."""

    index: int
    step: int
    steps: int
    tokens: list[int]
    confidence: list[int]  # percent
    log_acceptance: float | None


@dataclass(frozen=True)
class TextEvent:
    """A finished text of a request."""

    index: int
    text: Generated
    last_draft: list[int]  # the most probable tokens after the last step
    top: list[list[tuple[int, float]]] | None  # per position: its token, then the most probable tokens, with log p


@dataclass(eq=False)
class Job:
    """Texts for one request: the same constraint and settings, one seed each."""

    compiled: Compiled
    settings: GenerationSettings
    length: int
    seeds: list[tuple[int, int]]
    deadline: float  # on time.monotonic's clock
    drafts: int | None = None  # number of steps between drafts
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
        """Cancel the job; its texts leave their batches at the next step."""
        self.cancelled = True

    def deliver(self, event: DraftEvent | TextEvent | ApiError) -> None:
        """Pass an event to the request, from the batcher's thread."""
        if isinstance(event, ApiError):
            self.cancelled = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._put, event)

    def _put(self, event: DraftEvent | TextEvent | ApiError) -> None:
        if not isinstance(event, DraftEvent) or self.events.qsize() < MOST_DRAFTS_BEHIND:
            self.events.put_nowait(event)


@dataclass(frozen=True)
class _Row:
    job: Job
    index: int

    @property
    def text_index(self) -> int:
        """The index of the text in its request; a request may have several jobs."""
        return self.job.seeds[self.index][1]

    @property
    def seed(self) -> tuple[int, int]:
        """The seed of the text."""
        return self.job.seeds[self.index]

    def is_active(self) -> bool:
        """Whether the text is still needed; reports an exceeded deadline to the request."""
        if not self.job.cancelled and time.monotonic() >= self.job.deadline:
            self.job.deliver(
                ApiError("the deadline of the request has passed", status=504, code="deadline_exceeded")
            )
        return not self.job.cancelled


@dataclass(eq=False)
class _RunningBatch:
    """A running batch."""

    group: tuple[Any, ...]
    rows: list[_Row]
    batch: StepwiseBatch
    began: float = field(default_factory=time.monotonic)


class Batcher:
    """The thread that generates. Call `submit` from the event loop; results arrive as events of the job."""

    def __init__(self, model: TextModel, settings: ServeSettings) -> None:
        self._model, self._settings = model, settings
        self._waiting: list[_Row] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="denoise", daemon=True)
        self.running = 0  # texts in batches
        self.batches: list[int] = []  # sizes of batches, until metrics collect them
        self.cancelled = 0
        self._seconds_per_text = 1.0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of waiting texts."""
        return len(self._waiting)

    def submit(self, job: Job) -> None:
        """Put a job's texts into the queue, or raise 429."""
        with self._changed:
            if self._closed:
                raise ApiError("the server is shutting down", status=503, code="draining", retry_after=5)
            if len(self._waiting) + len(job.seeds) > self._settings.max_waiting:
                seconds = max(1, round(len(self._waiting) * self._seconds_per_text))
                raise ApiError(
                    f"{len(self._waiting)} texts are already waiting: try again later",
                    status=429,
                    code="queue_full",
                    retry_after=min(seconds, 600),
                )
            self._waiting += [_Row(job, index) for index in range(len(job.seeds))]
            self._changed.notify()

    def close(self) -> None:
        """Finish the running batches and stop; waiting texts get an error."""
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
        running: list[_RunningBatch] = []
        while True:
            rows = self._next_rows({batch.group for batch in running}, wait=not running)
            if rows:
                running += self._start_batch(rows)
            elif not running:
                return
            running = [batch for batch in running if self._advance(batch)]
            self.running = sum(len(batch.rows) for batch in running)

    def _next_rows(self, busy_groups: set[Any], wait: bool) -> list[_Row]:
        """The rows of the next batch: rows of the first group that is not busy; may be empty.

        With `wait`, the result is empty only if the batcher was closed.
        """
        with self._changed:
            while True:
                self._waiting = [row for row in self._waiting if row.is_active() or self._count_cancelled()]
                candidates = [row for row in self._waiting if row.job.group not in busy_groups]
                if len(busy_groups) < self._settings.max_batches and candidates:
                    first = candidates[0].job
                    rows = [row for row in candidates if row.job.group == first.group][: self._settings.max_batch]
                    seconds_left = first.arrived + self._settings.batch_delay - time.monotonic()
                    if len(rows) == self._settings.max_batch or seconds_left <= 0:
                        self._take(rows)
                        return rows
                    if wait:
                        self._changed.wait(seconds_left)
                        continue
                if self._closed or not wait:
                    return []
                self._changed.wait()

    def _take(self, rows: Sequence[_Row]) -> None:
        taken_ids = set(map(id, rows))
        self._waiting = [row for row in self._waiting if id(row) not in taken_ids]

    def _count_cancelled(self) -> bool:
        self.cancelled += 1
        return False

    def _start_batch(self, rows: list[_Row]) -> list[_RunningBatch]:
        """Start the rows as a batch; rows that do not fit into memory keep waiting."""
        try:
            generator = self._generator(rows)
            fits = generator.affordable()
            if len(rows) > fits:
                with self._changed:
                    self._waiting[:0] = rows[fits:]
                rows = rows[:fits]
                generator = self._generator(rows)
            self.running += len(rows)
            self.batches.append(len(rows))
            return [_RunningBatch(rows[0].job.group, rows, generator.stepwise([row.seed for row in rows]))]
        except Exception as error:
            self._run_separately(rows, error)
            return []

    def _advance(self, running: _RunningBatch) -> bool:
        """Take a step of a batch; False when the batch is finished."""
        rows = running.rows
        try:
            running.rows = rows = self._drop_cancelled(running.batch, rows)
            if not rows:
                return False
            if running.batch.step():
                self._send_drafts(running.batch, rows)
                return True
            self._send_texts(running.batch, rows)
        except Exception as error:
            self._run_separately(rows, error)
            return False
        seconds_per_text = (time.monotonic() - running.began) / len(rows)
        self._seconds_per_text += 0.2 * (seconds_per_text - self._seconds_per_text)
        return False

    def _run_separately(self, rows: Sequence[_Row], error: Exception) -> None:
        """After an error in a batch: generate each text separately, because one text may have caused it."""
        if len(rows) == 1:
            rows[0].job.deliver(_api_error(error))
            return
        for row in rows:
            for batch in self._start_batch([row]) if row.is_active() else []:
                while self._advance(batch):
                    pass

    def _generator(self, rows: Sequence[_Row]) -> Generator:
        job, automata = rows[0].job, [row.job.compiled.automaton for row in rows]
        return Generator.from_automata(self._model, automata, job.settings, length=job.length)

    def _drop_cancelled(self, batch: StepwiseBatch, rows: list[_Row]) -> list[_Row]:
        indices = [i for i, row in enumerate(rows) if row.is_active()]
        if not indices or len(indices) == len(rows):
            self.cancelled += len(rows) - len(indices)
            return [rows[i] for i in indices]
        batch.keep(indices)
        if len(batch) == len(rows):  # a batch with particles keeps all its texts
            return rows
        self.cancelled += len(rows) - len(indices)
        return [rows[i] for i in indices]

    def _send_drafts(self, batch: StepwiseBatch, rows: Sequence[_Row]) -> None:
        step, steps = batch.state.step, batch.steps
        indices = [
            i for i, row in enumerate(rows) if row.job.drafts and (step % row.job.drafts == 0 or step == steps)
        ]
        if not indices:
            return
        frame = Frame.of(step - 1, batch.state, rows_of(self._model, rows[0].job.settings))
        for i in indices:
            log_acceptance = None if frame.log_acceptance is None else frame.log_acceptance[i]
            tokens, confidence = frame.tokens[i].tolist(), frame.confidence[i].tolist()
            rows[i].job.deliver(DraftEvent(rows[i].text_index, step, steps, tokens, confidence, log_acceptance))

    def _send_texts(self, batch: StepwiseBatch, rows: Sequence[_Row]) -> None:
        texts, logits = batch.finish(), batch.last_logits()
        for i, row in enumerate(rows):
            last, top = list(texts[i].tokens), None
            if logits is not None and rows_of(self._model, row.job.settings) == 1:
                text_logits = logits[i]
                last = text_logits.argmax(dim=-1).tolist()
                top = None if row.job.logprobs is None else _top(text_logits, texts[i].tokens, row.job.logprobs)
            row.job.deliver(TextEvent(row.text_index, texts[i], last, top))


def _top(logits: torch.Tensor, tokens: Sequence[int], k: int) -> list[list[tuple[int, float]]]:
    """For every position the token with its log probability, then the k most probable tokens."""
    log_p = logits.double().log_softmax(dim=-1)  # (L, V)
    best, ids = log_p.topk(min(k, log_p.shape[1]), dim=-1)
    return [
        [
            (token, float(log_p[position, token])),
            *zip(ids[position].tolist(), best[position].tolist(), strict=True),
        ]
        for position, token in enumerate(tokens)
    ]


def _api_error(error: Exception) -> ApiError:
    if isinstance(error, DiffinityError):
        return of_diffinity(error, None)
    if is_out_of_memory(error):
        return ApiError("there is not enough memory for this request", status=503, code="out_of_memory")
    log.exception("a batch failed", exc_info=error)
    return ApiError("an internal error occurred in this request", status=500, code="internal_error")

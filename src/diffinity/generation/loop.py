"""The denoising loop of every process, with or without particles."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic

import torch
from torch import Tensor

from diffinity.generation.particles import Population
from diffinity.processes.base import Cancellation, Draws, Ending, FinishReason, P, Process, S


class Run(Generic[S, P]):
    """One run of a process. Iterating yields the state after each step; `ending` is the result.

    `cancel.is_set()` and `deadline` (seconds from the first step) are checked between steps; `stop()` ends the run
    after the current step. A text has `rows` consecutive rows of the batch: drafts or, with a `population`,
    particles, which are weighted and resampled.

    >>> import diffinity as dy
    >>> from diffinity.processes.gaussian import GaussianProcess
    >>> process, draws = GaussianProcess(dy.fit_markov(["a b."]), num_inference_steps=3), Draws([(0, 0)])
    >>> run = Run(process, process.begin(draws, length=4), draws)
    >>> [state.step for state in run], run.finish_reason, run.ending().logits.shape[:2]
    ([1, 2, 3], 'complete', torch.Size([1, 4]))
    """

    def __init__(
        self,
        process: Process[S, P],
        state: S,
        draws: Draws,
        *,
        rows: int = 1,
        population: Population | None = None,
        cancel: Cancellation | None = None,
        deadline: float | None = None,
    ) -> None:
        self.process, self.state, self.rows, self.population = process, state, rows, population
        self.finish_reason: FinishReason = "complete"
        self._history: list[Tensor] = []  # log P(L) of every row at each step
        self._draws, self._cancel, self._deadline = draws, cancel, deadline
        self._stopped = False
        self._ending: Ending | None = None

    def __iter__(self) -> Iterator[S]:
        started = time.monotonic()
        while self.state.step < self.process.num_inference_steps:
            if self._stopped:
                self.finish_reason = "stopped"
                return
            if self._cancel is not None and self._cancel.is_set():
                self.finish_reason = "cancelled"
                return
            if self._deadline is not None and time.monotonic() - started >= self._deadline:
                self.finish_reason = "deadline"
                return
            with torch.no_grad(), no_denormals():
                self._step()
            yield self.state

    def stop(self) -> None:
        """End the run after the current step."""
        self._stopped = True

    def keep(self, texts: Sequence[int], process: Process[S, P]) -> None:
        """Continue with some of the texts, using a process for these texts; not with particles."""
        assert self.population is None
        rows = torch.tensor([text * self.rows + row for text in texts for row in range(self.rows)])
        self.process, self.state, self._draws = process, self.state.select(rows), self._draws.select(texts)
        self._history = [step[rows] for step in self._history]

    def _step(self) -> None:
        self._ending = None
        state, prediction = self.state, self.process.predict(self.state)
        if self.population is not None:
            survivors = self.population.weigh(prediction)
            if survivors is not None:
                state, prediction = state.select(survivors), prediction.select(survivors)
        elif prediction.log_acceptance is not None:
            self._history.append(prediction.log_acceptance.detach().cpu())
        self.state = self.process.step(state, prediction, self._draws)
        if self.population is not None:
            self.population.moved(self.state.log_ratio)

    def log_acceptance(self) -> Tensor:
        """log P(L) of every row at each guided step, (B, steps)."""
        return torch.stack(self._history).T if self._history else torch.empty(len(self._draws), 0)

    def ending(self) -> Ending:
        """The ending of the current state."""
        if self._ending is None:
            with torch.no_grad():
                self._ending = self.process.finish(self.state)
        return self._ending


@contextmanager
def no_denormals() -> Iterator[None]:
    """Inside this context the thread flushes denormal numbers to zero.

    Sharp softmaxes and their products contain many denormal numbers, which are slow on a CPU: a step with a
    gradient takes a third longer with them.

    >>> with no_denormals():
    ...     float(torch.tensor(1e-40) * 1)
    0.0
    """
    was_flushing = float(torch.tensor(1e-40) * 1) == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_flushing)

"""Constraints are compiled in separate processes, so that a hostile constraint delays no other request.

A constraint first gets a small budget in the quick process. If it needs more, it goes to the patient process,
where it waits only for other expensive constraints. Work is counted (`diffinity.limits`), so the choice does not
depend on load.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import resource
import signal
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psutil

from diffinity.alignment import Framing, TokenAutomaton, Vocabulary
from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.warm import kernels_ready
from diffinity.errors import ConstraintError, ConstraintTooLarge, DiffinityError, InfeasibleConstraint
from diffinity.generation import comfortable_length
from diffinity.inspection import inspect
from diffinity.limits import compiling, use_limits
from diffinity.serve.constraints import ConstraintSpec
from diffinity.serve.errors import ApiError, of_diffinity
from diffinity.serve.settings import ServeSettings

MOST_DRAWN = 40  # states of an automaton that the page draws
MOST_FOLLOWED = 2000  # states of an automaton up to which paths are reported
SAMPLES = 3  # accepted texts that the page shows
MEMORY = 2 << 30  # bytes that a compilation may allocate


@dataclass(frozen=True, eq=False)
class Compiled:
    """A constraint aligned with the model's tokens, and the facts that the page shows."""

    automaton: TokenAutomaton
    byte_states: int
    byte_classes: int
    finite: bool
    samples: tuple[str, ...]
    shortest: int  # tokens
    comfortable: int  # tokens, from `comfortable_length`
    dfa: ByteDFA | None  # None if it is large

    @property
    def size_bytes(self) -> int:
        """The approximate size in memory."""
        return 8 * self.automaton.next.size + 4 * self.automaton.class_of.size + 10_000


@dataclass(frozen=True)
class Allowance:
    """The limits of one compilation."""

    steps: int
    arrows: int


def compile_constraint(
    spec: ConstraintSpec, vocabulary: Vocabulary, framing: Framing, allowed: Allowance
) -> Compiled:
    """Compile and align within limits.

    >>> vocabulary = Vocabulary([b"a", b"b", b""], eos_id=2)
    >>> compile_constraint(ConstraintSpec("regex", "ab+"), vocabulary, "eos", Allowance(10**8, 9)).shortest
    3
    """
    with use_limits(compile_steps=allowed.steps), compiling():
        inspection = inspect(spec.constraint(), vocabulary, framing=framing, samples=4 * SAMPLES)
        automaton = inspection.tokens
        assert automaton is not None
        if inspection.shortest_tokens is None:
            raise InfeasibleConstraint("no text satisfies the constraint")
        arrows = len(automaton.arrows.in_node)
        if arrows > allowed.arrows:
            raise ConstraintTooLarge("arrows", allowed.arrows, arrows, "the automaton")
        small = inspection.byte_states <= MOST_FOLLOWED
        return Compiled(
            automaton,
            inspection.byte_states,
            inspection.byte_classes,
            inspection.finite,
            tuple(text.decode() for text in inspection.samples[:SAMPLES]),
            len(inspection.shortest_tokens),
            comfortable_length(automaton),
            spec.constraint().dfa() if small else None,
        )


def _work(connection: Any, vocabulary: Vocabulary) -> None:
    """The loop of a compiling process: one constraint after another, until its server exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    kernels_ready()  # before the first request
    current_bytes = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (current_bytes + MEMORY, current_bytes + MEMORY))
    while True:
        try:
            spec, framing, allowed = connection.recv()
        except EOFError:
            return
        connection.send(_outcome(spec, vocabulary, framing, allowed))


def _outcome(
    spec: ConstraintSpec, vocabulary: Vocabulary, framing: Framing, allowed: Allowance
) -> Compiled | Exception:
    try:
        return compile_constraint(spec, vocabulary, framing, allowed)
    except DiffinityError as error:
        return error
    except (RecursionError, MemoryError):
        return ConstraintError("the constraint is nested too deeply, or needs too much memory")
    except Exception as error:
        return RuntimeError(f"compiling failed: {type(error).__name__}: {error}")


class _Lane:
    """A compiling process and the thread that waits for it; a process that hangs or dies is replaced."""

    def __init__(self, vocabulary: Vocabulary, seconds: float) -> None:
        self._vocabulary, self._seconds = vocabulary, seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self._process: Any = None
        self._connection: Any = None

    async def compile(self, spec: ConstraintSpec, framing: Framing, allowed: Allowance) -> Compiled:
        loop = asyncio.get_running_loop()
        outcome = await loop.run_in_executor(self._thread, self._call, (spec, framing, allowed))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _call(self, job: tuple[ConstraintSpec, Framing, Allowance]) -> Compiled | Exception:
        if self._process is None or not self._process.is_alive():
            self._start()
        try:
            self._connection.send(job)
            if self._connection.poll(self._seconds):
                outcome: Compiled | Exception = self._connection.recv()
                return outcome
        except (EOFError, OSError):
            self._stop()
            return ConstraintError("the constraint needs too much memory")
        self._stop()
        return ConstraintTooLarge("compile_seconds", self._seconds, self._seconds, "the constraint")

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["diffinity.serve.warm"])
        self._connection, child_connection = context.Pipe()
        self._process = context.Process(target=_work, args=(child_connection, self._vocabulary), daemon=True)
        self._process.start()
        child_connection.close()

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = None

    def close(self) -> None:
        """End the process, even during a compilation."""
        if self._process is not None:
            self._process.kill()
        self._thread.submit(self._stop)
        self._thread.shutdown(wait=True)


class Compiler:
    """Compiles constraints: simultaneous requests share one compilation, and results go into a bounded cache."""

    def __init__(self, vocabulary: Vocabulary, settings: ServeSettings) -> None:
        self._settings = settings
        self._quick_allowance = Allowance(settings.quick_steps, settings.max_arrows)
        self._patient_allowance = Allowance(settings.compile_steps, settings.max_arrows)
        self._quick = _Lane(vocabulary, settings.compile_seconds)
        self._patient = _Lane(vocabulary, settings.compile_seconds)
        self._cache: OrderedDict[tuple[ConstraintSpec, Framing], Compiled] = OrderedDict()
        self._bytes = 0
        self._running: dict[tuple[ConstraintSpec, Framing], asyncio.Task[Compiled]] = {}
        self.seconds: list[float] = []  # times of finished compilations, until metrics collect them
        self.hits = 0

    async def compiled(self, spec: ConstraintSpec, framing: Framing) -> Compiled:
        """The compiled constraint; an invalid constraint raises `ApiError`."""
        key = (spec, framing)
        if key in self._cache:
            self._cache.move_to_end(key)
            self.hits += 1
            return self._cache[key]
        if key not in self._running:
            if len(self._running) >= self._settings.max_compiling:
                raise ApiError(
                    "too many constraints are waiting for compilation",
                    status=429,
                    code="queue_full",
                    retry_after=2,
                )
            self._running[key] = asyncio.create_task(self._compile(spec, framing))
        try:
            return await asyncio.shield(self._running[key])  # other requests may wait for it too
        except DiffinityError as error:
            raise of_diffinity(error, spec.param) from None

    async def _compile(self, spec: ConstraintSpec, framing: Framing) -> Compiled:
        began = time.monotonic()
        try:
            try:
                compiled = await self._quick.compile(spec, framing, self._quick_allowance)
            except ConstraintTooLarge as error:
                if error.limit != "compile_steps":
                    raise
                compiled = await self._patient.compile(spec, framing, self._patient_allowance)
            self._store((spec, framing), compiled)
            return compiled
        finally:
            self.seconds.append(time.monotonic() - began)
            del self._running[(spec, framing)]

    def _store(self, key: tuple[ConstraintSpec, Framing], compiled: Compiled) -> None:
        self._cache[key] = compiled
        self._bytes += compiled.size_bytes
        while self._bytes > self._settings.cache_bytes and len(self._cache) > 1:
            _, oldest = self._cache.popitem(last=False)
            self._bytes -= oldest.size_bytes

    async def warm_up(self) -> None:
        """Start both processes."""
        await self._quick.compile(ConstraintSpec(), "exact", self._quick_allowance)
        await self._patient.compile(ConstraintSpec(), "exact", self._quick_allowance)

    def close(self) -> None:
        """End both processes."""
        for lane in (self._quick, self._patient):
            with contextlib.suppress(RuntimeError):
                threading.Thread(target=lane.close).start()

"""The workers of a run: this process, several processes on this machine, or actors of a Ray cluster.

The result of a job depends only on the plan and the job, not on the worker.
"""

from __future__ import annotations

import hashlib
import logging
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from diffinity.baselines.base import System
from diffinity.bench.cases import Case
from diffinity.bench.store import SampleRow
from diffinity.constraints.base import Constraint, Regex
from diffinity.errors import InvalidArgument, UnsupportedConstraint
from diffinity.memory import keep_freed_memory

WARM_UP = Regex("[a-z ]*")
REASON_LENGTH = 300


@dataclass(frozen=True)
class Job:
    """`samples` texts of one system for one case, in calls of `batch` texts (None: one call for all).

    >>> Job("auto", "c", 20).batch is None
    True
    """

    system: str
    case: str
    samples: int
    batch: int | None = None


class Plan(Protocol):
    """The data that workers need; it is sent to other processes, so it must be small and picklable."""

    @property
    def cases(self) -> Sequence[Case]:
        """All cases of the run."""
        ...

    @property
    def length(self) -> int:
        """Tokens of a text."""
        ...

    @property
    def seed(self) -> int:
        """The seed of the run."""
        ...

    def system(self, name: str) -> System:
        """Build the system with this name; any exception means that the system can't run here."""
        ...

    def valid(self, system: str, case: Case, text: str) -> bool:
        """Whether a generated text satisfies a case."""
        ...


@runtime_checkable
class Prepared(Protocol):
    """A system that prepares for a constraint before its first text; the time for this is not counted."""

    def prepare(self, constraint: Constraint, length: int) -> Mapping[str, Any]:
        """Prepare for a constraint; returns facts about the preparation."""
        ...


class Done(NamedTuple):
    """A finished job: its rows, or the reason why its system could not be built."""

    job: Job
    rows: list[SampleRow]
    unavailable: str | None = None


def case_seed(seed: int, case: str, call: int = 0) -> int:
    """The seed of a case's texts. It depends only on the run's seed and the case, not on the system.

    >>> case_seed(0, "a") == case_seed(0, "a"), case_seed(0, "a") == case_seed(1, "a")
    (True, False)
    """
    key = f"{seed}/{case}" if call == 0 else f"{seed}/{case}/{call}"
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") >> 1


class Worker:
    """Runs jobs one after another and caches the systems that it has built."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._cases = {case.id: case for case in plan.cases}
        self._systems: dict[str, System] = {}
        self._failed: dict[str, str] = {}

    def do(self, job: Job) -> Done:
        """Run a job; an error becomes a row."""
        if job.system not in self._systems and job.system not in self._failed:
            try:
                self._systems[job.system] = self._built(job.system)
            except Exception as error:
                self._failed[job.system] = reason_of(error)
        if job.system in self._failed:
            return Done(job, [], self._failed[job.system])
        case = self._cases[job.case]
        try:
            return Done(job, list(self._samples(job, self._systems[job.system], case)))
        except UnsupportedConstraint as error:
            return Done(job, [_row_without_sample(job, "unsupported", str(error))])
        except Exception as error:
            return Done(job, [_row_without_sample(job, "error", reason_of(error))])

    def _built(self, name: str) -> System:
        """The system with this name, after a warm-up: no measured call compiles kernels or reads weights."""
        system = self.plan.system(name)
        if not isinstance(system, Prepared):  # a preparation for the warm-up would be wasted
            with suppress(Exception):
                system.generate(WARM_UP, 1, min(8, self.plan.length), 0)
        return system

    def _samples(self, job: Job, system: System, case: Case) -> Iterator[SampleRow]:
        with suppress(Exception):  # compiled once and cached by the case, before the measured calls
            case.constraint.dfa()
        facts = system.prepare(case.constraint, self.plan.length) if isinstance(system, Prepared) else None
        size = job.batch or job.samples
        for call, first in enumerate(range(0, job.samples, size)):
            n = min(size, job.samples - first)
            forget_peak_memory()
            began = time.perf_counter()
            texts = system.generate(case.constraint, n, self.plan.length, case_seed(self.plan.seed, case.id, call))
            seconds = time.perf_counter() - began
            if len(texts) != n:
                raise InvalidArgument(f"{job.system} gave {len(texts)} texts instead of {n}")
            memory = peak_memory()
            for i, text in enumerate(texts):
                valid = self.plan.valid(job.system, case, text)
                row_facts = facts if first + i == 0 else None
                yield SampleRow(
                    case.id, job.system, first + i, text, valid, seconds / n, n, memory, facts=row_facts
                )


def reason_of(error: BaseException) -> str:
    """The reason of a failure, in one line.

    >>> reason_of(ValueError("no\\nway"))
    'ValueError: no'
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"[:REASON_LENGTH]


def _row_without_sample(job: Job, outcome: Any, reason: str) -> SampleRow:
    """The row of a case for which a system has no samples."""
    reason = reason.strip().splitlines()[0][:REASON_LENGTH] if reason.strip() else outcome
    return SampleRow(job.case, job.system, -1, None, None, None, outcome=outcome, reason=reason)


def peak_memory() -> int | None:
    """The peak memory of this process in bytes since `forget_peak_memory`; None if unknown.

    >>> (peak_memory() or 10**9) > 10**6
    True
    """
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit


def forget_peak_memory() -> None:
    """Reset the peak memory (Linux); elsewhere the peak is that of the whole process."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def one_thread() -> None:
    """Make this process compute in one thread, so that parallel processes do not compete for cores."""
    import torch

    torch.set_num_threads(1)
    keep_freed_memory()


# ---- in this process


def in_this_process(plan: Plan, jobs: Sequence[Job]) -> Iterator[Done]:
    """Run the jobs here, in order."""
    one_thread()
    worker = Worker(plan)
    yield from map(worker.do, jobs)


# ---- in several processes


def in_processes(plan: Plan, jobs: Sequence[Job], count: int) -> Iterator[Done]:
    """Run the jobs in `count` new processes; yields results as they finish.

    If a process dies (for example, out of memory), its current job is lost and a new process replaces it.
    """
    pending = list(reversed(jobs))
    workers: dict[Connection, _WorkerProcess] = {}
    try:
        while pending or workers:
            while pending and len(workers) < count:
                worker = _WorkerProcess(plan)
                workers[worker.connection] = worker
                worker.give(pending.pop())
            for ready in wait(list(workers)):
                assert isinstance(ready, Connection)
                worker = workers[ready]
                yield worker.result()
                if worker.process.exitcode is None and pending:
                    worker.give(pending.pop())
                else:
                    workers.pop(ready).dismiss()
    finally:
        for worker in workers.values():
            worker.stop()


class _WorkerProcess:
    """A process with its pipe and its current job."""

    def __init__(self, plan: Plan) -> None:
        # spawn: a fork would inherit the locks of torch's and numba's threads
        context = get_context("spawn")
        self.connection, child_connection = context.Pipe()
        self.process = context.Process(target=_serve, args=(plan, child_connection), daemon=True)
        self.process.start()
        child_connection.close()
        self.job: Job | None = None

    def give(self, job: Job) -> None:
        self.job = job
        with suppress(OSError):  # the process has died: `result` will notice
            self.connection.send(job)

    def result(self) -> Done:
        assert self.job is not None
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            reason = f"the worker process ended with exit code {self.process.exitcode}"
            return Done(self.job, [_row_without_sample(self.job, "error", reason)])

    def dismiss(self) -> None:
        """Let the process finish."""
        self.connection.close()
        self.process.join()

    def stop(self) -> None:
        """Kill the process during its job."""
        self.process.terminate()
        self.dismiss()


def _serve(plan: Plan, pipe: Connection) -> None:
    """The loop of a process: receive a job, send its result, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all processes get Ctrl-C; the parent decides
    one_thread()
    worker = Worker(plan)
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(worker.do(job))


# ---- on a cluster


def on_ray(plan: Plan, jobs: Sequence[Job], count: int | None = None) -> Iterator[Done]:
    """Run the jobs in actors on a Ray cluster (`RAY_ADDRESS`, or a cluster that is started here).

    By default there is one actor per core of the cluster, and at most one per job.
    """
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise InvalidArgument("--ray needs Ray: `pip install 'diffinity[ray]'`") from None
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level=logging.WARNING)
    cores = int(ray.cluster_resources().get("CPU", 1))
    size = max(1, min(count or cores, cores, len(jobs)))
    actor_class = ray.remote(num_cpus=1)(_RayWorker)
    shared = ray.put(plan)
    pending = list(reversed(jobs))
    running: dict[Any, tuple[Any, Job]] = {}
    for _ in range(size):
        actor, job = actor_class.remote(shared), pending.pop()
        running[actor.do.remote(job)] = actor, job
    try:
        while running:
            ready, _ = ray.wait(list(running), num_returns=1)
            actor, job = running.pop(ready[0])
            try:
                yield ray.get(ready[0])
            except ray.exceptions.RayActorError as error:
                actor = actor_class.remote(shared)
                yield Done(job, [_row_without_sample(job, "error", f"the Ray actor ended: {reason_of(error)}")])
            if pending:
                job = pending.pop()
                running[actor.do.remote(job)] = actor, job
    finally:
        for actor, _ in running.values():
            ray.kill(actor)


class _RayWorker:
    """A worker as an actor."""

    def __init__(self, plan: Plan) -> None:
        one_thread()
        self._worker = Worker(plan)

    def do(self, job: Job) -> Done:
        return self._worker.do(job)

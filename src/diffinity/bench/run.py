"""The runner: runs the jobs whose samples do not exist yet, and stores every sample as soon as it is generated."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from diffinity.bench.store import RunFolder
from diffinity.bench.workers import Done, Job, Plan, in_processes, in_this_process, on_ray


@dataclass(frozen=True)
class Progress:
    """The progress of a run: finished jobs, all jobs, and the time of this session.

    `resumed` counts the jobs that earlier sessions finished. `last` is the job that has just finished.
    """

    done: int
    total: int
    resumed: int
    seconds: float  # since the session started
    last: Job | None = None

    @property
    def seconds_left(self) -> float | None:
        """The estimated seconds left; None until a job of this session is done.

        >>> Progress(done=6, total=10, resumed=4, seconds=3.0).seconds_left
        6.0
        """
        done_in_session = self.done - self.resumed
        return None if done_in_session <= 0 else self.seconds / done_in_session * (self.total - self.done)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a session: whether the run is complete, and the systems that could not run, with reasons."""

    complete: bool
    unavailable: dict[str, str] = field(default_factory=dict)


def execute(
    folder: RunFolder,
    plan: Plan,
    jobs: Sequence[Job],
    *,
    workers: int | None = 1,
    ray: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Outcome:
    """Run the jobs whose samples are not in the folder yet, then sort the folder's lines.

    `workers` is the number of processes (with `ray`, of actors: None for all cores); the samples do not depend on
    it. Ctrl-C ends the session: finished samples stay stored, and `complete` is False. A system that can't be
    built is left out.
    """
    all_jobs = _interleaved(jobs)
    open_jobs = [job for job in all_jobs if folder.missing(job.system, job.case, job.samples)]
    resumed, began = len(all_jobs) - len(open_jobs), time.monotonic()
    done, unavailable = resumed, dict[str, str]()
    on_progress(Progress(done, len(all_jobs), resumed, 0.0))
    interrupted = False
    try:
        with closing(_results(plan, open_jobs, workers, ray)) as results:
            for result in results:
                folder.append(result.rows)
                if result.unavailable is not None:
                    unavailable[result.job.system] = result.unavailable
                done += 1
                on_progress(Progress(done, len(all_jobs), resumed, time.monotonic() - began, result.job))
    except KeyboardInterrupt:
        interrupted = True
    systems = list(dict.fromkeys([*folder.info.get("systems", ()), *(job.system for job in jobs)]))
    folder.put_in_order(systems, [case.id for case in plan.cases])
    return Outcome(not interrupted, unavailable)


def _results(plan: Plan, jobs: Sequence[Job], workers: int | None, ray: bool) -> Generator[Done, None, None]:
    if not jobs:
        return
    if ray:
        yield from on_ray(plan, jobs, workers)
    elif workers is None or workers <= 1:
        yield from in_this_process(plan, jobs)
    else:
        yield from in_processes(plan, jobs, min(workers, len(jobs)))


def _interleaved(jobs: Sequence[Job]) -> list[Job]:
    """The jobs sorted by case, so that a temporary slowdown of the machine affects all systems."""
    cases = {case: i for i, case in enumerate(dict.fromkeys(job.case for job in jobs))}
    return sorted(jobs, key=lambda job: cases[job.case])

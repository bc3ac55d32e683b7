"""Many calls: in parallel threads, interrupted at random moments, and in sequence with constant memory.

    python -m benchmarks.endurance [--calls 300] [--constraints 3000] [--threads 8] [--interrupts 20]

Prints whether texts written in threads equal texts written in sequence, how many calls after an interrupt failed,
and the resident memory after each fifth of the constraints. The aligned automata of the last 64 constraints are
cached, so memory grows until the cache is full.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import resource
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

import diffinity as dy
from diffinity.models.protocol import TextModel

LENGTH, STEPS = 12, 4


def constraint_of(number: int) -> dy.Constraint:
    """One of arbitrarily many different constraints, of several kinds."""
    kinds = (
        lambda: dy.Regex(f"the [a-z]{{1,{3 + number % 7}}} [a-z]+[.{number}]"),
        lambda: dy.Regex("[a-z ]+[.]") & ~dy.Regex(f".*{['cat', 'dog', 'mat'][number % 3]}.*"),
        lambda: dy.JsonSchema({"type": "object", "properties": {"id": {"enum": [number, number + 1]}}}),
        lambda: dy.Choice([f"the cat {number}", f"a dog {number}", "mat"]),
    )
    return kinds[number % len(kinds)]()


def texts_of(model: TextModel, number: int, calls: int) -> list[str]:
    """The texts of one thread."""
    texts = []
    for call in range(calls):
        constraint = constraint_of(17 * number + call)
        for sample in dy.generate(model, constraint, length=LENGTH, num_inference_steps=STEPS, seed=number):
            assert sample.satisfied
            texts.append(sample.text)
    return texts


def texts_at_once(model: TextModel, threads: int, calls: int) -> list[list[str]]:
    """The texts of threads that start at the same time."""
    barrier = threading.Barrier(threads)

    def work(number: int) -> list[str]:
        barrier.wait()
        return texts_of(model, number, calls)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(threads)))


def texts_one_by_one(model: TextModel, threads: int, calls: int) -> list[list[str]]:
    """The same texts, written in sequence."""
    return [texts_of(model, number, calls) for number in range(threads)]


def came_from_an_interrupt(error: BaseException | None) -> bool:
    """Whether an error is Ctrl-C, or the SystemError that numba's C code makes of it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def interrupted_calls(model: TextModel, moments: int, seed: int = 0) -> tuple[int, list[int]]:
    """Interrupt calls at random moments; returns the number of interrupts, and those after which a call failed."""
    rng = random.Random(seed)
    began = time.perf_counter()
    expected = texts_of(model, 3, 1)
    usual_seconds = time.perf_counter() - began
    old_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupted, failed_calls = 0, []
    try:
        for moment in range(moments):
            timer = threading.Timer(rng.uniform(0, usual_seconds), os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                texts_of(model, 1000 + moment, 50)  # far longer than the timer takes
            except (KeyboardInterrupt, SystemError) as error:
                if not came_from_an_interrupt(error):
                    raise
                interrupted += 1
            finally:
                timer.join()
            try:
                if texts_of(model, 3, 1) != expected:
                    failed_calls.append(moment)
            except dy.DiffinityError:
                failed_calls.append(moment)
    finally:
        signal.signal(signal.SIGINT, old_handler)
    return interrupted, failed_calls


def memory_over_time(model: TextModel, calls: int, constraints: int, parts: int) -> list[int]:
    """The resident bytes after each of several equal parts of the constraints."""
    sizes: list[int] = []
    for number in range(constraints):
        constraint = constraint_of(number)
        constraint.dfa()
        if number % (constraints // calls or 1) == 0:
            dy.generate(model, constraint, length=LENGTH, num_inference_steps=STEPS)
        if (number + 1) * parts // constraints > len(sizes):
            gc.collect()
            sizes.append(resident_bytes())
    return sizes


def resident_bytes() -> int:
    """The resident memory of this process."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # elsewhere the peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--constraints", type=int, default=3000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--interrupts", type=int, default=20)
    parser.add_argument("--model", help="folder or hub id; default: the embedded model")
    arguments = parser.parse_args()
    model = dy.load(arguments.model)
    is_same = texts_at_once(model, arguments.threads, 4) == texts_one_by_one(model, arguments.threads, 4)
    interrupted, failed_calls = interrupted_calls(model, arguments.interrupts)
    sizes = memory_over_time(model, arguments.calls, arguments.constraints, parts=5)
    table = Table("test", "result")
    table.add_row(f"{arguments.threads} threads at once", "as one by one" if is_same else "OTHER TEXTS")
    table.add_row("interrupted calls", f"{interrupted} of {arguments.interrupts}")
    table.add_row("next call wrong", str(len(failed_calls)))
    table.add_row(
        f"memory, {arguments.calls} calls, {arguments.constraints} constraints",
        ", ".join(f"{size / 1e6:.1f}" for size in sizes) + " MB",
    )
    Console().print(table)


if __name__ == "__main__":
    main()

"""Start-up time of the command line: help, a first and a warm `generate`, import.

    python -m benchmarks.startup [--rounds 3] [--cold]

Each command runs in a separate process, alternating with the others. The table shows medians over rounds of the
wall time and of the processor time, which other programs affect less. `--cold` also measures the first `generate`
after installation, with an empty cache of compiled loops.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from rich.console import Console
from rich.table import Table

GENERATE = [
    "-m",
    "diffinity.cli",
    "generate",
    "--regex",
    "[A-Z][a-z ]{10,30}[.]",
    "--length",
    "16",
    "--steps",
    "16",
]
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "diffinity --help": ["-m", "diffinity.cli", "--help"],
    "import diffinity": ["-c", "import diffinity"],
    "import torch": ["-c", "import torch"],
    "diffinity generate, warm": GENERATE,
}


def seconds(command: list[str], environment: dict[str, str] | None = None) -> tuple[float, float]:
    """The wall time and the processor time of one run of the interpreter."""
    started, used = time.perf_counter(), _used()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - started, _used() - used


def _used() -> float:
    """The processor time of all finished child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cold", action="store_true")
    arguments = parser.parse_args()
    seconds(GENERATE)  # fills the cache of compiled loops
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(arguments.rounds):
        for name, command in COMMANDS.items():
            times[name].append(seconds(command))
    table = Table("command", "seconds", "processor seconds")
    for name, values in times.items():
        wall, used = (statistics.median(column) for column in zip(*values, strict=True))
        table.add_row(name, f"{wall:.2f}", f"{used:.2f}")
    if arguments.cold:
        with tempfile.TemporaryDirectory() as folder:
            wall, used = seconds(GENERATE, {**os.environ, "NUMBA_CACHE_DIR": folder})
        table.add_row("diffinity generate, with an empty cache", f"{wall:.2f}", f"{used:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()

"""Freed memory stays with the process, counted by the system's own page faults."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

ROUNDS = 20
PROGRAM = f"""
import resource, torch
from diffinity.memory import keep_freed_memory
assert keep_freed_memory()
def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        blocks = [torch.ones(4_000_000) for _ in range(6)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults(5)
print(faults({ROUNDS}))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_blocks_that_come_and_go_are_not_faulted_in_again() -> None:
    """Without it there are 20,000 faults a round, or none: that depends on what lies at the end of the heap."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    assert int(done.stdout) < ROUNDS

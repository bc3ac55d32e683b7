"""Compiled loops without a place for their cache, in a place of their own, and word of their compilation."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from diffinity.compiled import njit, reporting_compilation
from diffinity.limits import compiling, counted_time, uncounted

COUNT = """
from diffinity.constraints import Regex
print(Regex("a+b").dfa().n_states)
"""


def run(code: str, **environment: str) -> str:
    settings = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=settings
    ).stdout


def test_without_a_writable_cache_loops_are_compiled_all_the_same() -> None:
    """numba finds no place for a cache: what it says then is not an error."""
    code = (
        "from numba.core import caching\n"
        "caching.CacheImpl._locator_classes = []\n"
        "from diffinity.compiled import njit\n"
        "print(njit(nogil=True)(lambda x: x + 1)(41))\n"
    )
    assert run(code).strip() == "42"


def test_the_cache_can_be_put_elsewhere(tmp_path: Path) -> None:
    assert run(COUNT, DIFFINITY_CACHE_DIR=str(tmp_path)).strip() == "3"
    assert list(tmp_path.rglob("subsets*.nbi"))
    for unneeded in ("pairs*", "trie*", "utf8*", "refill*"):  # a request compiles what it needs
        assert not list(tmp_path.rglob(f"{unneeded}.nbi"))


def test_compilation_is_reported_once() -> None:
    def twice(x: int) -> int:
        return 2 * x

    twice.__module__ = "diffinity.test"
    function = njit(cache=False)(twice)
    names: list[str] = []
    with reporting_compilation(names.append):
        assert function(2) == 4
        assert function(3) == 6
    assert names == ["twice"]


def test_compilation_is_charged_to_no_constraint() -> None:
    before, clock = uncounted.seconds, time.thread_time()
    with compiling() as budget:
        assert njit(cache=False)(lambda x: 3 * x)(2) == 6
        spent = counted_time() - budget.meter.start
    assert uncounted.seconds > before
    assert spent < time.thread_time() - clock - 0.9 * (uncounted.seconds - before)

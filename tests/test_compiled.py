"""Compiled loops without a place for their cache, in a place of their own, and word of their compilation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from diffinity.compiled import njit, told_of_compilation

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
    assert list(tmp_path.rglob("*.nbi"))


def test_compilation_is_told_of_once() -> None:
    def twice(x: int) -> int:
        return 2 * x

    twice.__module__ = "diffinity.test"
    function = njit(cache=False)(twice)
    names: list[str] = []
    with told_of_compilation(names.append):
        assert function(2) == 4
        assert function(3) == 6
    assert names == ["twice"]

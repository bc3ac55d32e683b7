"""The first call after installation compiles its loops in two processes.

The loops of a `generate` take about 17 seconds of a processor to compile. The command compiles them in the order
in which it needs them: constraints, guidance, decoding. Meanwhile a second process compiles the loops of decoding
and guidance, in reverse order. Numba stores each compiled loop in its cache, where the command finds it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = Path(__file__).parent
# The loops that a text needs last, in reverse order, with the types of their arguments: "f8:2" is a float64 array
# of two dimensions, and "i4:1r" is a read-only int32 array. `tests/test_precompile.py` compares them with those
# used.
LATE_LOOPS = {
    "numba_kernels.best_path": "f8:2 arrows ?:2r ?:1r i8:1",
    "path_kernels.group_maxima": "f8:2 i8:1 u4:1 f8:2 i4:2",
    "path_kernels.class_maxima": "f8:2 u4:1r f8:2 i4:2",
    "rescue_kernels.expand_rescued": "f4:2 f8:1 i8:1 i8:1 f8:2 f8:2 f8:2 f4:2",
    "rescue_kernels.scale_rows": "f8:2 f8:2 f8:1",
    "rescue_kernels.rescue_sums": "f4:2 f8:1 i8:1 i8:1 ?:1 f8:2 f8:2",
    "chain_kernels._spread": "f4:2 f4:2 i4:1r i4:2 i4:2 f8:2 i4:1 f8:2 f8:1",
    "chain_kernels._chain_marginals": ("f8:2 i4:2 i4:1 f8:3 i4:2r i8 ?:1r ?:2r f8:2 f8:3 f8:2 f8:2 f8:2 ?:1"),
    "chain_kernels._couplings": "f8:2 i4:2 i4:1 i8:1r i4:1r f4:1r f4:1r i8 f8:3 f8:1 f8:1",
    "chain_kernels._choose_candidates": "f4:2 f4:2 f8:2 f8:2 i4:2 i4:1r ?:1 f8 i4:2 i4:2 f8:2 i4:1 ?:1",
    "chain_kernels._most_probable": "f4:2 f4:2 f4 i4:2 f4:1",
    "numba_kernels.expand": "f4:2 u4:1r f4:2 f4:2",
    "numba_kernels.ratio_of_tokens": "f8:2 f8:2 f8:2 f8:1 f8 f4:2 ?:1",
    "numba_kernels.spread": "f8:2 i8:1 u4:1 f8:2",
    "numba_kernels.backward": "f8:2 arrows ?:1r f8:2 f8:2",
    "numba_kernels.forward": "f8:2 arrows ?:2r ?:1r f8:2",
    "numba_kernels.group_sums": "f8:2 i8:1 u4:1 f8:2",
}
COMPILED = "numba_kernels.best_path-*.nbi"  # numba's index file of the first of them


@contextmanager
def precompiling(needed: bool = True) -> Iterator[None]:
    """Run the second process in this context if it is needed, if there are two processors and an empty cache."""
    if not needed or _processors() < 2 or not _cache_is_empty():
        yield
        return
    devnull = subprocess.DEVNULL
    command = [sys.executable, "-m", "diffinity.precompile"]
    process = subprocess.Popen(command, stdin=devnull, stdout=devnull, stderr=devnull)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cache_is_empty() -> bool:
    """Whether the first late loop is not stored yet; False if the package folder is read-only."""
    cache_folder = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("DIFFINITY_CACHE_DIR")
    if cache_folder:
        return not any(Path(cache_folder).rglob(COMPILED))
    folder = PACKAGE / "acceptance"
    return os.access(folder, os.W_OK) and not any(folder.glob(f"__pycache__/{COMPILED}"))


def late_loops() -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Every late loop with the numba types of its arguments."""
    for name, arguments in LATE_LOOPS.items():
        module, loop = name.split(".")
        yield (
            getattr(import_module(f"diffinity.acceptance.{module}"), loop),
            tuple(map(_type, arguments.split())),
        )


def _type(name: str) -> Any:
    import numba
    import numpy as np

    if name == "arrows":
        from diffinity.alignment.automaton import Arrows

        kinds = ("i8", "u4", "u4", "i8", "u4", "u4", "i8", "u4")
        return numba.typeof(Arrows(*(np.zeros(0, kind) for kind in kinds)))  # type: ignore[no-untyped-call]
    kind, _, shape = name.partition(":")
    scalar = numba.from_dtype(np.dtype(kind))
    return numba.types.Array(scalar, int(shape[0]), "C", readonly="r" in shape) if shape else scalar


def main() -> None:
    """Compile the late loops, without importing torch, which would take longer than some of them."""
    for name in ("acceptance", "alignment"):  # replaces the packages, so that their `__init__` is not run
        package = ModuleType(f"diffinity.{name}")
        package.__path__ = [str(PACKAGE / name)]
        sys.modules[package.__name__] = package
    for loop, arguments in late_loops():
        loop.compile(arguments)


if __name__ == "__main__":
    main()

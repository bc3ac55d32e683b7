"""Compiled loops: numba's `njit` with an optional cache, and a message at the first compilation.

A loop is compiled when it is first called, so a request pays only for the loops it needs. Compilation does not
count towards a constraint's limits.

Compiled code is stored in `__pycache__` beside the source or in `DIFFINITY_CACHE_DIR`. If neither can be written
(a read-only container), every process compiles its loops again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

if "DIFFINITY_CACHE_DIR" in os.environ and "NUMBA_CACHE_DIR" not in os.environ:
    os.environ["NUMBA_CACHE_DIR"] = os.environ["DIFFINITY_CACHE_DIR"]  # read by numba when it is imported

import numba
from numba.core import event

from diffinity.limits import uncounted

Function = TypeVar("Function", bound=Callable[..., Any])


def njit(*, cache: bool = True, inner: bool = False, **options: Any) -> Callable[[Function], Function]:
    """Like `numba.njit`; without a cache if no folder is writable.

    An `inner` function is called only by compiled functions. It gets no wrapper for calls from Python, which saves
    half of its compilation time.

    >>> njit()(lambda x: x + 1)(2)
    3
    """
    options |= {"no_cfunc_wrapper": True, "no_cpython_wrapper": inner}

    def compiled(function: Function) -> Function:
        try:
            return numba.njit(cache=cache, **options)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            return numba.njit(**options)(function)

    return compiled


class _Clock(event.Listener):
    """Excludes the time of compilations from the counted time, in the compiling thread."""

    def __init__(self) -> None:
        self._local = threading.local()

    def on_start(self, _: Any) -> None:
        depth = getattr(self._local, "depth", 0)
        if depth == 0:
            self._local.began = time.thread_time()
        self._local.depth = depth + 1

    def on_end(self, _: Any) -> None:
        self._local.depth -= 1
        if self._local.depth == 0:
            uncounted.seconds += time.thread_time() - self._local.began


event.register("numba:compile", _Clock())  # type: ignore[no-untyped-call]


class _Compilations(event.Listener):
    """Reports the start of the compilation of a loop."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self.report = report

    def on_start(self, compile_event: Any) -> None:
        function = compile_event.data["dispatcher"].py_func
        if function.__module__.startswith("diffinity."):
            self.report(function.__name__)

    def on_end(self, compile_event: Any) -> None:
        return None


@contextmanager
def reporting_compilation(report: Callable[[str], None]) -> Iterator[None]:
    """Inside this context `report(name)` is called when a loop is compiled, which happens once per installation.

    >>> names: list[str] = []
    >>> with reporting_compilation(names.append):
    ...     njit(cache=False)(lambda x: x)(1)
    1
    """
    listener = _Compilations(report)
    event.register("numba:compile", listener)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        event.unregister("numba:compile", listener)  # type: ignore[no-untyped-call]

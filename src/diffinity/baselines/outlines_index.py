"""Builds an index of outlines-core in a separate process with a limit on time and memory.

The engine has no limits: the index of an ordinary JSON Schema took 8 GB before it was stopped. Run as a script,
this module reads (expression, end token, tokens, bytes) from its input and writes the index, so it must import
little.
"""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import outlines_core

SECONDS = 60.0
BYTES = 4 << 30
REFUSED = 3  # the exit status for an expression that the engine refuses


class NoIndex(Exception):
    """There is no index; the message has the reason."""


def build_index(
    regex: str,
    eos: int | None,
    ids: Mapping[bytes, Sequence[int]],
    seconds: float = SECONDS,
    max_bytes: int = BYTES,
) -> Any:
    """The engine's index of an expression over the tokens `ids` (bytes to ids).

    >>> build_index("(ab)*", 0, {b"a": [1], b"b": [2], b"ab": [3]}).get_initial_state() >= 0
    True
    """
    task = pickle.dumps((regex, eos, {token: list(token_ids) for token, token_ids in ids.items()}, max_bytes))
    command = [sys.executable, "-P", __file__]
    try:
        process = subprocess.run(command, input=task, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise NoIndex(f"its index was not ready after {seconds:g} s") from None
    if process.returncode == 0:
        return pickle.loads(process.stdout)
    message = process.stderr.decode(errors="replace").strip()
    if process.returncode == REFUSED:
        raise NoIndex(message)
    last = message.splitlines()[-1] if message else f"exit status {process.returncode}"
    raise NoIndex(f"its index could not be built within {max_bytes / 2**30:g} GB: {last}")


def _limit_memory(size: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # without a memory limit, the time limit remains
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _main() -> int:
    regex, eos, ids, memory_limit = pickle.load(sys.stdin.buffer)
    _limit_memory(memory_limit)
    try:
        index = outlines_core.Index(regex, outlines_core.Vocabulary(eos, ids))
    except ValueError as error:
        print(error, file=sys.stderr)
        return REFUSED
    pickle.dump(index, sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(_main())

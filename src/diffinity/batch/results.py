"""The results file of a batch: written line by line, and continued by a later run.

A line is on disk before the next request begins. Before anything is appended, every line is checked: it must
belong to these requests and this model. Only an incomplete last line that this command wrote is removed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from diffinity.batch.lines import STANDARD, Line, is_stream
from diffinity.errors import Failure, InvalidArgument

OTHER_FILE = "name another file, or remove this one"


class Results:
    """An open results file, locked by this process."""

    def __init__(self, path: Path, descriptor: int, model: str, *, streamed: bool = False) -> None:
        self._path, self._descriptor, self._model = path, descriptor, model
        self._is_stream = streamed  # standard output, a pipe or a device, which cannot be resumed

    def resume(self, lines: Iterator[Line]) -> tuple[int, int]:
        """Check the existing results against the requests and remove an incomplete last line.

        Returns the number of existing results, and the number of errors among them.
        """
        if self._is_stream:
            return 0, 0
        n_results = errors = size = 0
        with self._path.open("rb") as file:
            for text in file:
                line = next(lines, None)
                if line is None:
                    raise InvalidArgument(f"{self._path} has more results than there are requests: {OTHER_FILE}")
                if not text.endswith(b"\n"):
                    self._check_incomplete(text, line)
                    break
                errors += "error" in self._checked(text, line, n_results + 1)
                size += len(text)
                n_results += 1
        os.ftruncate(self._descriptor, size)
        os.lseek(self._descriptor, size, os.SEEK_SET)
        return n_results, errors

    def append(self, row: dict[str, Any]) -> None:
        """Write one result and wait until it is on disk."""
        fields = {"line": row["line"], "request": row["request"], "model": self._model, **row}
        data = (json.dumps(fields, ensure_ascii=False, allow_nan=False) + "\n").encode()
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            if not self._is_stream:
                os.fsync(self._descriptor)
        except BrokenPipeError:  # closed by the reader: the command line exits quietly
            raise
        except OSError as error:
            if self._is_stream:
                raise
            raise Failure(
                f"{self._path} can't be written: {error.strerror}; its results stay, and the same command "
                f"resumes at line {row['line']} of the requests"
            ) from None

    def _check_incomplete(self, text: bytes, line: Line) -> None:
        start = f'{{"line": {line.number}, '.encode()
        if not (text.startswith(start) or start.startswith(text)):
            raise InvalidArgument(f"{self._path} does not end in a result of this command: {OTHER_FILE}")

    def _checked(self, text: bytes, line: Line, number: int) -> dict[str, Any]:
        """The row on line `number` of the results; refuses a row that does not answer `line`."""
        try:
            row = json.loads(text)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not {"line", "request", "model"} <= row.keys():
            raise InvalidArgument(f"line {number} of {self._path} is not a result of this command: {OTHER_FILE}")
        if (row["line"], row["request"]) != (line.number, line.fingerprint):
            raise InvalidArgument(
                f"line {number} of {self._path} does not belong to line {line.number} of the requests, which have "
                f"changed since: {OTHER_FILE}"
            )
        if row["model"] != self._model:
            raise InvalidArgument(f"the results in {self._path} are of another model: {OTHER_FILE}")
        return row


@contextmanager
def opened_results(path: Path, model: str) -> Iterator[Results]:
    """The results file at `path`, created if missing; `model` is the fingerprint of the model in its lines.

    For `-` it is standard output. Standard output, a pipe and a device are only written to.
    """
    if path == STANDARD:
        sys.stdout.flush()
        yield Results(path, sys.stdout.fileno(), model, streamed=True)
        return
    if is_stream(path):
        try:
            descriptor = os.open(path, os.O_WRONLY)
        except OSError as error:
            raise InvalidArgument(f"{path} can't be written: {error.strerror}") from None
        try:
            yield Results(path, descriptor, model, streamed=True)
        finally:
            os.close(descriptor)
        return
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
    except OSError as error:
        raise InvalidArgument(f"{path} can't be written: {error.strerror}") from None
    try:
        _lock(descriptor, path)
        yield Results(path, descriptor, model)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: the user must avoid two runs on one file
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InvalidArgument(f"another run is writing {path}: wait for it, or name another file") from None
    except OSError:  # a file system without locks
        return

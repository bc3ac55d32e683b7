"""The lines of a requests file, and fingerprints of requests and models."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from diffinity.errors import InvalidArgument
from diffinity.models.hub import CONFIG
from diffinity.models.loading import EMBEDDED


@dataclass(frozen=True)
class Line:
    """A line of the requests file that is not blank."""

    number: int  # from 1
    text: bytes

    @property
    def fingerprint(self) -> str:
        """A hash of the line.

        >>> Line(1, b"{}").fingerprint == Line(2, b"{}").fingerprint
        True
        """
        return hashlib.sha256(self.text).hexdigest()[:16]


STANDARD = Path("-")  # standard input, or standard output


def is_stream(path: Path) -> bool:
    """Whether a path is standard input or output, a pipe or a device, which can be read or written only once.

    >>> is_stream(STANDARD), is_stream(Path("/dev/null")), is_stream(Path("nowhere"))
    (True, True, False)
    """
    return path == STANDARD or (path.exists() and not path.is_file() and not path.is_dir())


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a file, or of standard input for `-`, that are not blank, one at a time.

    >>> next(read_lines(Path("nowhere")))
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: nowhere can't be read: No such file or directory
    """
    try:
        with nullcontext(sys.stdin.buffer) if path == STANDARD else path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    yield Line(number, text.strip())
    except OSError as error:
        raise InvalidArgument(f"{path} can't be read: {error.strerror}") from None


def model_mark(source: str | None) -> str:
    """A hash of a model's config, which has the checksums of its files; else the model's name.

    >>> model_mark("owner/name")
    'owner/name'
    """
    config = (EMBEDDED if source is None else Path(source)) / CONFIG
    if config.is_file():
        return hashlib.sha256(config.read_bytes()).hexdigest()[:16]
    return str(source)

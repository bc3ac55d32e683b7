"""Unpacks the published archive of PLAID's weights: four known files; anything else is refused."""

from __future__ import annotations

import contextlib
import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from diffinity.errors import CheckpointError
from diffinity.models.plaid_import import PARTS
from diffinity.models.transfer import Progress

MEMBERS = tuple(f"{part}.pt" for part in PARTS)
MAX_MEMBER_BYTES = 16_000_000_000  # model.pt is about 5 GB: 1.3 billion parameters of 4 bytes
SLACK_BYTES = 1_000_000  # allowance per member for headers and padding; larger headers are refused
READ_AHEAD = 1 << 16  # well below the slack
BLOCK = 1 << 20


def unpack(parts: Sequence[str | Path], folder: str | Path, *, progress: Progress | None = None) -> Path:
    """Unpack the four weight files from the consecutive parts of one .tar.gz into `folder`, which is returned.

    The whole stream is read, so that the gzip checksum is verified before any file gets its final name. (The mode
    `r|gz` of `tarfile` would not verify it.) Links, devices, paths that leave the folder, files with other names,
    duplicate or missing files, and sizes beyond `MAX_MEMBER_BYTES` are refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     part = Path(folder, "weights.tar.gz.00")
    ...     _ = part.write_bytes(b"<html>not an archive</html>")
    ...     try: unpack([part], folder)
    ...     except CheckpointError as error: print(str(error).partition(";")[0])
    weights.tar.gz.00 is damaged (Not a gzipped file (b'<h')): nothing was unpacked
    """
    paths = [Path(part) for part in parts]
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    try:
        with contextlib.ExitStack() as stack:
            for name in MEMBERS:
                stack.callback(_temporary(target, name).unlink, missing_ok=True)
            stream = stack.enter_context(_decompressed(paths))
            names = _unpack_members(stream, target, progress)
            _read_to_the_end(stream)
            _check_complete(names)
            for name in MEMBERS:
                _temporary(target, name).replace(target / name)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, OverflowError) as error:
        raise CheckpointError(
            f"{paths[0].name} is damaged ({_reason(error)}): nothing was unpacked; delete the parts and "
            f"SHA256SUMS in {paths[0].parent}, then fetch them again"
        ) from None
    return target


class _Joined(io.RawIOBase):
    """Several files, read as one concatenated file."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._remaining = list(paths)
        self._file: IO[bytes] | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while True:
            if self._file is None:
                if not self._remaining:
                    return 0
                self._file = self._remaining.pop(0).open("rb")
            block = self._file.read(len(buffer))
            if block:
                buffer[: len(block)] = block
                return len(block)
            self._file.close()
            self._file = None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


class _Metered(io.RawIOBase):
    """A decompressed stream with a size limit: a small archive cannot fill the memory."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream = stream
        self._allowance = SLACK_BYTES

    def allow(self, size: int) -> None:
        self._allowance += size + SLACK_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        size = self._stream.readinto(buffer)
        self._allowance -= size
        if self._allowance < 0:
            raise CheckpointError("the archive unpacks to more than the files that it names: refused")
        return size


@contextlib.contextmanager
def _decompressed(paths: Sequence[Path]) -> Iterator[_Metered]:
    with io.BufferedReader(_Joined(paths), BLOCK) as joined, gzip.GzipFile(fileobj=joined, mode="rb") as stream:
        yield _Metered(stream)


def _unpack_members(stream: _Metered, target: Path, progress: Progress | None) -> set[str]:
    """Write each expected member under a temporary name; returns the names."""
    names: set[str] = set()
    with tarfile.open(fileobj=stream, mode="r|", bufsize=READ_AHEAD) as archive:
        for member in archive:
            name = _accepted_name(member)
            if name is None:
                continue
            if name in names:
                raise CheckpointError(f"the archive holds {name} twice: refused")
            names.add(name)
            stream.allow(member.size)
            _write_member(archive, member, name, _temporary(target, name), progress)
    return names


def _check_complete(names: set[str]) -> None:
    if missing := [name for name in MEMBERS if name not in names]:
        raise CheckpointError(f"the archive does not hold {', '.join(missing)}: it is not PLAID's weights")


def _accepted_name(member: tarfile.TarInfo) -> str | None:
    """The name of an expected file; None for a folder or a small extra file, which is skipped."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or ":" in member.name:
        raise CheckpointError(f"the archive holds {member.name!r}, a path that leaves its folder: refused")
    if member.isdir():
        return None
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
        raise CheckpointError(f"the archive holds {member.name!r}, which is not a regular file: refused")
    if path.name not in MEMBERS:
        if member.size <= SLACK_BYTES:  # such as the "._" files that some systems' tar adds
            return None
        raise CheckpointError(f"the archive holds {member.name!r}, which is none of {', '.join(MEMBERS)}: refused")
    if not 0 <= member.size <= MAX_MEMBER_BYTES:
        raise CheckpointError(
            f"the archive's {member.name!r} claims {member.size:,} bytes, at most {MAX_MEMBER_BYTES:,} are allowed"
        )
    return path.name


def _write_member(
    archive: tarfile.TarFile, member: tarfile.TarInfo, name: str, path: Path, progress: Progress | None
) -> None:
    content = archive.extractfile(member)
    if content is None:
        raise CheckpointError(f"the archive holds {member.name!r}, which is not a regular file: refused")
    with content, path.open("wb") as file:
        while block := content.read(BLOCK):
            file.write(block)
            if progress:
                progress(name, file.tell(), member.size)
        if file.tell() != member.size:
            raise EOFError(f"{name} ends after {file.tell():,} of {member.size:,} bytes")


def _read_to_the_end(stream: _Metered) -> None:
    """Read to the end of the gzip stream, where its checksum is verified; tar stops earlier."""
    while stream.read(READ_AHEAD):
        pass


def _temporary(folder: Path, name: str) -> Path:
    return folder / f"{name}.unpacking"


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__

"""Hostile and damaged archives of weights: each is refused with a sentence, and leaves no file behind."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from diffinity.errors import CheckpointError
from diffinity.models import archive as archive_module
from diffinity.models.archive import MEMBERS, unpack

Editor = Callable[[tarfile.TarFile], None]


def add_file(archive: tarfile.TarFile, name: str, content: bytes = b"weights") -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def add_special(archive: tarfile.TarFile, name: str, kind: bytes, target: str = "") -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    archive.addfile(member)


def packed(edit: Editor | None = None, *, members: tuple[str, ...] = MEMBERS, level: int = 6) -> bytes:
    """A .tar.gz of the expected files, after what `edit` puts first."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        if edit:
            edit(archive)
        add_special(archive, "plaid1b_weights", tarfile.DIRTYPE)
        for name in members:
            add_file(archive, f"plaid1b_weights/{name}", name.encode() * 1000)
    return gzip.compress(plain.getvalue(), level)


def refuse(content: bytes, tmp_path: Path, message: str) -> None:
    part, target = tmp_path / "w.gz.00", tmp_path / "inner" / "target"
    part.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        unpack([part], target)
    assert list(target.iterdir()) == []
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["inner", "target", "w.gz.00"]


def test_the_harmless_archive_is_unpacked(tmp_path: Path) -> None:
    content = packed()
    for number, part in enumerate((content[:10], content[10:11], b"", content[11:])):
        (tmp_path / str(number)).write_bytes(part)
    unpack([tmp_path / str(number) for number in range(4)], tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {
        name: name.encode() * 1000 for name in MEMBERS
    }


def test_small_files_beside_the_weights_are_never_written(tmp_path: Path) -> None:
    part = tmp_path / "w.gz.00"
    part.write_bytes(packed(lambda archive: add_file(archive, "plaid1b_weights/._model.pt", b"import os")))
    unpack([part], tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(MEMBERS)


HOSTILE: dict[str, tuple[Editor, str]] = {
    "parent": (lambda archive: add_file(archive, "../x"), r"'\.\./x', a path that leaves its folder"),
    "parent of a known name": (lambda archive: add_file(archive, "a/../../model.pt"), "leaves its folder"),
    "absolute": (lambda archive: add_file(archive, "/model.pt"), "leaves its folder"),
    "Windows parent": (lambda archive: add_file(archive, "..\\model.pt"), "leaves its folder"),
    "Windows drive": (lambda archive: add_file(archive, "C:model.pt"), "leaves its folder"),
    "folder outside": (lambda archive: add_special(archive, "../up", tarfile.DIRTYPE), "leaves its folder"),
    "symbolic link": (
        lambda archive: add_special(archive, "model.pt", tarfile.SYMTYPE, "/etc/passwd"),
        "not a regular file",
    ),
    "hard link": (
        lambda archive: add_special(archive, "model.pt", tarfile.LNKTYPE, "/etc/passwd"),
        "not a regular file",
    ),
    "pipe": (lambda archive: add_special(archive, "model.pt", tarfile.FIFOTYPE), "not a regular file"),
    "device": (lambda archive: add_special(archive, "model.pt", tarfile.CHRTYPE), "not a regular file"),
    "large stranger": (lambda archive: add_file(archive, "w/setup.py", bytes(1_000_001)), "is none of model.pt"),
    "twice": (lambda archive: add_file(archive, "elsewhere/model.pt"), "holds model.pt twice"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_member_is_refused(name: str, tmp_path: Path) -> None:
    edit, message = HOSTILE[name]
    refuse(packed(edit), tmp_path, message)


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    refuse(packed(members=MEMBERS[:-1]), tmp_path, r"does not hold gamma_bounds\.pt")


def test_a_member_beyond_the_limit_is_refused_by_its_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_module, "MAX_MEMBER_BYTES", 7999)  # model.pt has 8,000 bytes
    refuse(packed(), tmp_path, "'plaid1b_weights/model.pt' claims 8,000 bytes, at most 7,999")


@pytest.mark.parametrize("keep", [0, 1, 9, 100, 0.5, -1, -8, -9])
def test_a_truncated_archive_is_refused(keep: float, tmp_path: Path) -> None:
    content = packed(level=0)
    refuse(content[: int(keep if keep != 0.5 else keep * len(content))], tmp_path, "is damaged")


def test_a_flipped_bit_in_a_weight_is_refused(tmp_path: Path) -> None:
    """Stored uncompressed, so that only the checksum at the very end can tell."""
    content = bytearray(packed(level=0))
    content[content.index(b"embedding_matrix.ptembedding") + 3] ^= 1
    refuse(bytes(content), tmp_path, "is damaged .*CRC")


def test_a_tar_that_ends_inside_a_member_is_refused(tmp_path: Path) -> None:
    plain = gzip.decompress(packed())
    refuse(gzip.compress(plain[:6000]), tmp_path, "is damaged")


def test_bytes_after_the_archive_are_refused(tmp_path: Path) -> None:
    refuse(packed() + b"more", tmp_path, "is damaged")


@pytest.mark.parametrize("content", [b"<html>404</html>", gzip.compress(b"not a tar" * 100), gzip.compress(b"")])
def test_something_else_is_refused(content: bytes, tmp_path: Path) -> None:
    refuse(content, tmp_path, "is damaged|does not hold")


def test_zeros_after_the_end_do_not_unpack_for_ever(tmp_path: Path) -> None:
    bomb = gzip.compress(gzip.decompress(packed()) + bytes(20_000_000))
    assert len(bomb) < 100_000
    refuse(bomb, tmp_path, "unpacks to more than the files that it names")


def test_a_long_name_of_many_megabytes_does_not_fill_the_memory(tmp_path: Path) -> None:
    bomb = packed(lambda archive: add_special_with_content(archive, tarfile.GNUTYPE_LONGNAME, 100_000_000))
    tracemalloc.start()
    try:
        refuse(bomb, tmp_path, "unpacks to more than the files that it names")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def add_special_with_content(archive: tarfile.TarFile, kind: bytes, size: int) -> None:
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = kind, size
    archive.addfile(member, io.BytesIO(bytes(size)))


def test_files_from_before_stay_when_the_new_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"old")
    (tmp_path / "w.gz.00").write_bytes(packed()[:-4])
    with pytest.raises(CheckpointError):
        unpack([tmp_path / "w.gz.00"], tmp_path)
    assert (tmp_path / "model.pt").read_bytes() == b"old"

"""Published models by name: checks the disk space, downloads with resumption and checksums, unpacks and imports.

No checksums are published with PLAID's release, so its files are checked in other ways. Sizes come from the
server. Digests are taken from GitHub's release API if it has them, and from the caller if given. The SHA-256 of
the first download is recorded in `SHA256SUMS` beside the files and compared at every later run (trust on first
use). The gzip checksum and the structure of the archive are always verified.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError

from safetensors import SafetensorError

from diffinity.errors import DownloadError, InvalidArgument
from diffinity.models.archive import unpack
from diffinity.models.hub import CONFIG
from diffinity.models.plaid_import import import_plaid
from diffinity.models.pretrained import file_sha256
from diffinity.models.transfer import (
    Offer,
    Opener,
    Progress,
    file_bytes,
    open_url,
    request_for,
    request_offer,
    transfer,
)

SUMS = "SHA256SUMS"

# Disk space needed beyond the files themselves, in sizes of the archive. Float32 weights hardly compress, so an
# archive of S bytes unpacks to little more than S bytes, and the imported copy is as large as the unpacked files.
UNPACKED_PER_ARCHIVE = 2
IMPORTED_PER_ARCHIVE = 2

MAX_LISTING_BYTES = 1_000_000


@dataclass(frozen=True)
class RemoteFile:
    """A file on a server, with its size and SHA-256 if they are known in advance.

    >>> RemoteFile("https://example.org/weights.tar.gz.00").name
    'weights.tar.gz.00'
    """

    url: str
    size: int | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"https?://[^/]+/(.*/)?\w[\w.-]*", self.url):
            raise InvalidArgument(f"{self.url!r} is not an http address that ends in the name of a file")

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Release:
    """A published model: the consecutive parts of one .tar.gz, and the tokenizer.

    `listing` is the address of the release in GitHub's API, which may have sizes and digests.
    """

    name: str
    parts: tuple[RemoteFile, ...]
    tokenizer: RemoteFile
    listing: str | None = None

    @property
    def files(self) -> tuple[RemoteFile, ...]:
        return (*self.parts, self.tokenizer)


_PLAID = "https://github.com/igul222/plaid/releases/download/v1.0.0"

RELEASES: Mapping[str, Release] = {
    "plaid-1b": Release(
        name="plaid-1b",
        parts=tuple(RemoteFile(f"{_PLAID}/plaid1b_weights.tar.gz.{part}") for part in ("00", "01", "02")),
        tokenizer=RemoteFile("https://raw.githubusercontent.com/igul222/plaid/main/misc/owt2_tokenizer.json"),
        listing="https://api.github.com/repos/igul222/plaid/releases/tags/v1.0.0",
    )
}


@dataclass(frozen=True)
class _Expected:
    """The expected sizes and digests of a file, each under the name of its source."""

    sizes: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)


def fetch_release(
    name: str | Release,
    out: str | Path,
    *,
    keep_parts: bool = False,
    progress: Progress | None = None,
    checksums: Mapping[str, str] | None = None,
    opener: Opener = open_url,
) -> Path:
    """Fetch a published model and save it in `out`, where `load` reads it.

    The downloaded files stay in the folder `<out>.download` until everything is done, so that an interrupted run
    resumes where it stopped. With `keep_parts` they and the unpacked weights stay there afterwards.

    >>> fetch_release("plaid-2b", "model")
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: there is no release 'plaid-2b'; known: plaid-1b
    """
    release = name if isinstance(name, Release) else _release_called(name)
    target = Path(out)
    if (target / CONFIG).exists() or target.is_file():
        raise InvalidArgument(f"{target} is there already; name another folder, or remove it first")
    folder = target.absolute().with_name(f"{target.absolute().name}.download")
    download(release, folder, progress=progress, checksums=checksums, opener=opener)
    try:
        _unpack_and_import(release, folder, target, progress, keep=keep_parts)
    except OSError as error:
        raise DownloadError(f"the model could not be written: {error}; the downloaded files are kept") from None
    except SafetensorError as error:  # for example, the disk is full
        raise DownloadError(f"{target} could not be written: {error}; the downloaded files are kept") from None
    if not keep_parts:
        _remove_downloads(release, folder)
    return target


def download(
    release: Release,
    folder: str | Path,
    *,
    progress: Progress | None = None,
    checksums: Mapping[str, str] | None = None,
    opener: Opener = open_url,
) -> Path:
    """Download all files of a release to `folder`, which is returned; existing files are only verified.

    `checksums` are the SHA-256 that the caller expects, by file name. A file with a wrong checksum is removed. The
    received bytes of an unfinished file stay in `name.part`, and the next call resumes the transfer.

    >>> import tempfile
    >>> letters = Release("letters", (RemoteFile("https://example.org/a"),), RemoteFile("https://example.org/b"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in "ab":
    ...         _ = Path(folder, name).write_text(name)  # all is there: no server is asked
    ...     print(download(letters, folder).joinpath("SHA256SUMS").read_text()[:24])
    ca978112ca1bbdcafac231b3
    """
    expected_digests = _checked_digests(release, checksums or {})
    folder_path = Path(folder)
    try:
        folder_path.mkdir(parents=True, exist_ok=True)
        _download(release, folder_path, expected_digests, progress, opener)
    except OSError as error:
        raise DownloadError(f"{folder_path} cannot be used for the download: {error}") from None
    return folder_path


def read_sums(path: Path) -> dict[str, str]:
    """The digests in a file in the format of `sha256sum`, by file name; empty if the file does not exist.

    >>> read_sums(Path("no such file"))
    {}
    """
    sums: dict[str, str] = {}
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        match = re.fullmatch(r"([0-9a-f]{64}) [ *](\w[\w.-]*)", line)
        if match is None:
            raise DownloadError(f"{path}, line {number}: expected a SHA-256 and a file name; repair or delete it")
        sums[match[2]] = match[1]
    return sums


def write_sums(path: Path, sums: Mapping[str, str]) -> None:
    """Write the file that `read_sums` reads, in the format of `sha256sum --check`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "SHA256SUMS")
    ...     write_sums(path, {"a": 64 * "0"})
    ...     assert read_sums(path) == {"a": 64 * "0"}
    """
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()), encoding="utf-8")
    temporary.replace(path)


def _release_called(name: str) -> Release:
    if name not in RELEASES:
        raise InvalidArgument(f"there is no release {name!r}; known: {', '.join(RELEASES)}")
    return RELEASES[name]


def _checked_digests(release: Release, checksums: Mapping[str, str]) -> dict[str, str]:
    """The caller's checksums in lower case; refuses values that are not SHA-256 of files of this release."""
    names = [file.name for file in release.files]
    for name, digest in checksums.items():
        if name not in names:
            raise InvalidArgument(f"{name!r} is not a file of {release.name}; its files are {', '.join(names)}")
        if not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
            raise InvalidArgument(f"the checksum of {name} must be a SHA-256, 64 hexadecimal digits: {digest!r}")
    return {name: digest.lower() for name, digest in checksums.items()}


def _download(
    release: Release, folder: Path, expected_digests: Mapping[str, str], progress: Progress | None, opener: Opener
) -> None:
    sums = read_sums(folder / SUMS)
    present = [file for file in release.files if (folder / file.name).is_file()]
    missing = [file for file in release.files if file not in present]
    recorded = all(file.name in sums for file in present)
    published = {} if recorded and not missing else _published(release.listing, opener)
    expected = {file.name: _expectation(file, expected_digests, sums, published) for file in release.files}

    for file in present:
        path = folder / file.name
        _record(folder, sums, file, _verified(path, file.name, expected[file.name]))
        if progress:
            progress(file.name, file_bytes(path), file_bytes(path))
    offers = {file.name: _offer(file, expected[file.name], opener) for file in missing}
    _check_space(release, folder, offers)
    for file in missing:
        path, part = folder / file.name, folder / f"{file.name}.part"
        transfer(file.url, part, offers[file.name], progress=progress, opener=opener)
        digest = _verified(part, file.name, expected[file.name])
        part.replace(path)
        _record(folder, sums, file, digest)


def _expectation(
    file: RemoteFile,
    caller_digests: Mapping[str, str],
    recorded: Mapping[str, str],
    published: Mapping[str, tuple[int | None, str | None]],
) -> _Expected:
    published_size, published_digest = published.get(file.name, (None, None))
    sizes = {"this version of diffinity": file.size, "the release's page": published_size}
    digests = {
        "the checksum that was given": caller_digests.get(file.name),
        "this version of diffinity": file.sha256,
        "the release's page": published_digest,
        f"{SUMS}, where its first download is recorded": recorded.get(file.name),
    }
    return _Expected(
        {source: size for source, size in sizes.items() if size is not None},
        {source: digest for source, digest in digests.items() if digest is not None},
    )


def _published(listing: str | None, opener: Opener) -> dict[str, tuple[int | None, str | None]]:
    """Sizes and digests from GitHub's API for a release; empty if they cannot be fetched or read."""
    if listing is None:
        return {}
    try:
        with opener(request_for(listing, Accept="application/vnd.github+json")) as response:
            page = json.loads(response.read(MAX_LISTING_BYTES))
        return {asset["name"]: _published_asset(asset) for asset in page["assets"]}
    except HTTPError as error:
        error.close()
        return {}
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return {}  # the download goes on without this data


def _published_asset(asset: Mapping[str, object]) -> tuple[int | None, str | None]:
    size, digest = asset.get("size"), asset.get("digest")
    match = re.fullmatch(r"sha256:([0-9a-f]{64})", digest) if isinstance(digest, str) else None
    return (size if isinstance(size, int) else None, match[1] if match else None)


def _offer(file: RemoteFile, expected: _Expected, opener: Opener) -> Offer:
    offer = request_offer(file.url, opener)
    for source, size in expected.sizes.items():
        if offer.size != size:
            raise DownloadError(
                f"{file.name}: the server offers {offer.size:,} bytes, but {source} says {size:,}: not fetched"
            )
    return offer


def _verified(path: Path, name: str, expected: _Expected) -> str:
    """The SHA-256 of a file; a file that does not have the expected size and digest is removed."""
    for source, size in expected.sizes.items():
        if file_bytes(path) != size:
            actual_size = file_bytes(path)
            path.unlink()
            raise DownloadError(
                f"{name} has the wrong size, {actual_size:,} bytes where {source} says {size:,}: it was removed"
            )
    digest = file_sha256(path)
    for source, expected_digest in expected.digests.items():
        if digest != expected_digest.lower():
            path.unlink()
            raise DownloadError(
                f"{name} has the wrong checksum: its SHA-256 is {digest}, but {source} says {expected_digest}: it "
                "was removed"
            )
    return digest


def _record(folder: Path, sums: dict[str, str], file: RemoteFile, digest: str) -> None:
    if file.name not in sums:
        sums[file.name] = digest
        write_sums(folder / SUMS, sums)


def _check_space(release: Release, folder: Path, offers: Mapping[str, Offer]) -> None:
    """Raise unless the disk has room for the remaining files and for the unpacked and imported weights."""
    remaining = sum(max(0, offer.size - file_bytes(folder / f"{name}.part")) for name, offer in offers.items())
    archive = sum(
        offers[part.name].size if part.name in offers else file_bytes(folder / part.name) for part in release.parts
    )
    required_bytes = remaining + (UNPACKED_PER_ARCHIVE + IMPORTED_PER_ARCHIVE) * archive
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < required_bytes:
        raise DownloadError(
            f"{release.name} needs {required_bytes / 1e9:.2f} GB to fetch, unpack and import, but {folder} has "
            f"{free_bytes / 1e9:.2f} GB free: nothing was fetched"
        )


def _unpack_and_import(
    release: Release, folder: Path, target: Path, progress: Progress | None, *, keep: bool
) -> None:
    weights = folder / "weights"
    try:
        unpack([folder / part.name for part in release.parts], weights, progress=progress)
        model = import_plaid(weights, folder / release.tokenizer.name)
        model.card = model.default_card() + _source(release, read_sums(folder / SUMS))
        model.save_pretrained(target)
        del model  # its tensors are mapped from the files that are deleted now
    finally:
        if not keep:
            shutil.rmtree(weights, ignore_errors=True)


def _source(release: Release, sums: Mapping[str, str]) -> str:
    """The paragraph of the model card that says where the weights come from."""
    rows = "".join(f"| {file.url} | `{sums[file.name]}` |\n" for file in release.files)
    return f"\n## Source\n\nRelease `{release.name}`, imported from:\n\n| File | SHA-256 |\n|---|---|\n{rows}"


def _remove_downloads(release: Release, folder: Path) -> None:
    for name in (*(file.name for file in release.files), SUMS):
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


__all__ = [
    "RELEASES",
    "Release",
    "RemoteFile",
    "download",
    "fetch_release",
    "read_sums",
    "unpack",
    "write_sums",
]

"""Models from the Hugging Face hub, with its cache and offline mode, resumed downloads and checked hashes.

The hub names a file by its hash: SHA-256 for large files, git's SHA-1 for small files. Its cache uses the same
names, so files can be checked at every load, also offline. `huggingface_hub` discards an interrupted transfer.
Therefore `transfer` downloads the weights to a file that remains, and moves it to the cache when it is complete
and its hash is correct.

Submodules of `huggingface_hub` are imported only when a hub model is loaded; a folder on disk does not need them.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request

import huggingface_hub  # its names are imported when they are used
from filelock import FileLock

from diffinity.errors import CheckpointError, DiffinityError, DownloadError
from diffinity.models.transfer import Offer, Opener, Progress, amount, file_bytes, open_url, transfer

if TYPE_CHECKING:
    from huggingface_hub.file_download import HfFileMetadata

CONFIG, WEIGHTS, TOKENIZER, CARD = "config.json", "model.safetensors", "tokenizer.json", "README.md"
NOT_HERE_OFFLINE = "is not on this machine, and HF_HUB_OFFLINE forbids to fetch it"
SHA256, GIT_SHA1 = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{40}")


def fetch_model(
    repo_id: str,
    *,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    force_download: bool = False,
    local_files_only: bool = False,
    token: str | bool | None = None,
    progress: Progress | None = None,
) -> Path:
    """The folder of a hub model in the hub's cache; missing files are fetched.

    Only config.json and model.safetensors are fetched, and tokenizer.json and README.md if the model has them.
    `progress(name, done, total)` is called for the weights; without it a progress bar is shown.
    """
    options: dict[str, Any] = {
        "cache_dir": cache_dir,
        "force_download": force_download,
        "local_files_only": local_files_only,
        "token": token,
    }
    from huggingface_hub.errors import EntryNotFoundError

    with _plain_errors(repo_id):
        folder = Path(huggingface_hub.hf_hub_download(repo_id, CONFIG, revision=revision, **options)).parent
        if force_download or not (folder / WEIGHTS).exists():
            commit = {**options, "revision": folder.name}  # all files of one commit
            for name in (TOKENIZER, CARD):
                with suppress(EntryNotFoundError):
                    huggingface_hub.hf_hub_download(repo_id, name, **commit)
            if not (local_files_only or is_offline()):
                _fetch_blob(repo_id, WEIGHTS, folder, token, force_download, progress)
            huggingface_hub.hf_hub_download(repo_id, WEIGHTS, **{**commit, "force_download": False})
    return folder


def fetch_config(repo_id: str, *, revision: str | None = None) -> Path:
    """The config.json of a hub model, in the hub's cache; it determines the loader of the other files."""
    with _plain_errors(repo_id):
        return Path(huggingface_hub.hf_hub_download(repo_id, CONFIG, revision=revision))


def fetch_tokenizer(repo_id: str) -> Path:
    """The tokenizer.json of a hub model, in the hub's cache."""
    with _plain_errors(repo_id):
        return Path(huggingface_hub.hf_hub_download(repo_id, TOKENIZER))


def is_cached(repo_id: str, name: str = WEIGHTS) -> bool:
    """Whether a file of a hub model is on this machine.

    >>> is_cached("nobody/nothing")
    False
    """
    return isinstance(huggingface_hub.try_to_load_from_cache(repo_id, name), str)


def is_offline() -> bool:
    """Whether HF_HUB_OFFLINE forbids downloads."""
    return bool(huggingface_hub.constants.HF_HUB_OFFLINE)


def verify_cached(path: Path) -> None:
    """Refuse a file in the hub's cache whose hash is wrong; files elsewhere are not checked."""
    blob = path.resolve()
    expected = blob.name
    if blob.parent.name != "blobs" or not (SHA256.fullmatch(expected) or GIT_SHA1.fullmatch(expected)):
        return
    digest = _hash_like(expected, blob)
    if digest != expected:
        raise CheckpointError(
            f"{path} is not the file that the hub described (its hash is {digest[:12]}…, expected "
            f"{expected[:12]}…): it is truncated or changed; remove {blob} and load again, or use verify=False"
        )


def _hash_like(expected: str, path: Path) -> str:
    """The hash of a file, of the same kind as `expected`."""
    if SHA256.fullmatch(expected):
        digest = hashlib.sha256()
    else:
        digest = hashlib.sha1(f"blob {file_bytes(path)}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: digest).hexdigest()


def _fetch_blob(
    repo_id: str, name: str, folder: Path, token: str | bool | None, force: bool, progress: Progress | None
) -> None:
    """Download a file of the commit of `folder` to the cache's blobs; an earlier transfer is resumed."""
    url = huggingface_hub.hf_hub_url(repo_id, name, revision=folder.name)
    try:
        metadata = huggingface_hub.get_hf_file_metadata(url, token=token)
    except Exception:  # hf_hub_download, which is called next, reports the error
        return
    if metadata.size is None or metadata.etag is None or not SHA256.fullmatch(metadata.etag):
        return  # not a large file, or a mirror without this data: hf_hub_download fetches it
    blob = folder.parents[1] / "blobs" / metadata.etag
    blob.parent.mkdir(parents=True, exist_ok=True)
    lock = folder.parents[2] / ".locks" / folder.parents[1].name / f"{blob.name}.lock"  # huggingface_hub's lock
    lock.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock):
        if force or not blob.exists():
            _transfer(url, metadata, blob, token, progress)


def _transfer(
    url: str, metadata: HfFileMetadata, blob: Path, token: str | bool | None, progress: Progress | None
) -> None:
    part = blob.with_name(f"{blob.name}.diffinity.part")
    size = metadata.size or 0
    free_bytes, required_bytes = shutil.disk_usage(blob.parent).free, size - file_bytes(part)
    if free_bytes < required_bytes:
        raise DownloadError(
            f"{WEIGHTS} needs {amount(required_bytes)} more and {blob.parent} has {amount(free_bytes)} free: "
            "nothing was fetched"
        )
    offer = Offer(size, None)
    with nullcontext(progress) if progress is not None else progress_bars() as show:
        transfer(url, part, offer, progress=show, opener=_authorised(token))
    digest = _hash_like(blob.name, part)
    if digest != blob.name:
        part.unlink()
        raise DownloadError(
            f"{url}: the received file has the SHA-256 {digest}, but the hub says {blob.name}: it was removed; "
            "try again"
        )
    part.replace(blob)


def _authorised(token: str | bool | None) -> Opener:
    """An opener that sends the user's token, but not to redirect targets."""
    from huggingface_hub.utils._headers import build_hf_headers

    headers = build_hf_headers(token=token)

    def open_authorised(request: Request) -> HTTPResponse:
        if "authorization" in headers:
            request.add_unredirected_header("Authorization", headers["authorization"])
        return open_url(request)

    return open_authorised


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """A progress bar for each file, on a terminal and unless HF_HUB_DISABLE_PROGRESS_BARS is set."""
    from huggingface_hub.utils.tqdm import tqdm as progress_bar

    with ExitStack() as open_bars:
        bars: dict[str, Any] = {}

        def show(name: str, transferred: int, total: int) -> None:
            if name not in bars:
                options = {"desc": name, "total": total, "unit": "B", "unit_scale": True, "disable": None}
                bars[name] = open_bars.enter_context(progress_bar(**options))  # type: ignore[no-untyped-call]
            bars[name].update(transferred - bars[name].n)

        yield show


@contextmanager
def _plain_errors(repo_id: str) -> Iterator[None]:
    """Convert errors of `huggingface_hub` into a `CheckpointError` of one sentence."""
    try:
        yield
    except DiffinityError:
        raise
    except Exception as error:  # includes errors of its HTTP client, which differ between versions
        if is_offline():
            raise CheckpointError(f"{repo_id} {NOT_HERE_OFFLINE}") from error
        raise CheckpointError(
            f"{repo_id!r} is neither a folder here nor a model that the hub provided: {_reason(error)}"
        ) from error


def _reason(error: BaseException) -> str:
    from huggingface_hub.errors import LocalEntryNotFoundError

    if isinstance(error, LocalEntryNotFoundError) and error.__cause__ is not None:
        return f"it could not be reached ({_reason(error.__cause__)})"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__

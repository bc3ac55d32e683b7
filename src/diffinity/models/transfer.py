"""Downloads one file over HTTP: its size is requested first, and an interrupted transfer is resumed."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.request import Request

from diffinity.errors import DownloadError

Opener = Callable[[Request], HTTPResponse]
Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes done and the total bytes."""

TIMEOUT_SECONDS = 30.0
BACKOFF_SECONDS = (1.0, 2.0, 4.0)  # the pause before each retry of a broken transfer
BLOCK = 1 << 18
TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
HINTS = {
    403: "the server forbids it",
    404: "the server has no such file",
    429: "too many requests; try again in a while",
}


@dataclass(frozen=True)
class Offer:
    """A server's data about a file: its size, and the ETag or date that a resumed transfer must match."""

    size: int
    validator: str | None


class _Broken(Exception):
    """A transfer ended early, but a retry may succeed."""


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to an unencrypted address."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> Request | None:
        if req.type == "https" and not newurl.lower().startswith("https://"):
            raise URLError(f"redirected from https to {newurl}, which is refused")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def open_url(request: Request) -> HTTPResponse:
    """The response to a request, through the proxies of the environment."""
    return urllib.request.build_opener(_NoDowngrade()).open(request, timeout=TIMEOUT_SECONDS)


def request_for(url: str, **headers: str) -> Request:
    """A GET request with the user agent `diffinity`; `If_Range="x"` becomes the header `If-Range: x`.

    >>> request_for("https://example.org/a", Range="bytes=7-").header_items()
    [('User-agent', 'diffinity'), ('Range', 'bytes=7-')]
    """
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(url, headers={"User-Agent": "diffinity", **header_fields})


def request_offer(url: str, opener: Opener = open_url) -> Offer:
    """The size of a file on a server, from a GET of one byte, because a signed redirect may not allow HEAD.

    >>> def offline(request):
    ...     raise URLError("no route to host")
    >>> request_offer("https://example.org/weights.gz", offline)
    Traceback (most recent call last):
    diffinity.errors.DownloadError: https://example.org/weights.gz could not be reached: no route to host
    """
    try:
        with opener(request_for(url, Range="bytes=0-0")) as response:
            size = _total(response)
            validator = _validator(response.headers)
    except HTTPError as error:
        with error:
            if error.code == 416 and error.headers.get("Content-Range") == "bytes */0":
                return Offer(0, None)
            raise DownloadError(_refusal(url, error.code)) from None
    except (OSError, HTTPException) as error:
        raise DownloadError(f"{url} could not be reached: {_reason(error)}") from None
    if size is None:
        raise DownloadError(
            f"{url}: the server does not say how large the file is, so a complete download could not be recognised"
        )
    return Offer(size, validator)


def transfer(
    url: str, part: Path, offer: Offer, *, progress: Progress | None = None, opener: Opener = open_url
) -> None:
    """Download the file at `url` to `part`, resuming from its current size.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     part = Path(folder, "a.part")
    ...     _ = part.write_bytes(b"all of it")
    ...     transfer("https://example.org/a", part, Offer(9, None))  # complete: the server is not asked
    """
    _discard_stale(part, offer)
    reason = ""
    for pause in (0.0, *BACKOFF_SECONDS):
        time.sleep(pause)
        try:
            _attempt(url, part, offer, progress, opener)
        except _Broken as error:
            reason = str(error)
        else:
            _validator_file(part).unlink(missing_ok=True)
            return
    raise DownloadError(
        f"{_name(url)}: {reason}, {len(BACKOFF_SECONDS) + 1} times in a row; {amount(file_bytes(part))} of "
        f"{amount(offer.size)} have arrived and are kept: the same command resumes there"
    )


def file_bytes(path: Path) -> int:
    """The size of a file in bytes; 0 if it does not exist.

    >>> file_bytes(Path("no such file"))
    0
    """
    return path.stat().st_size if path.is_file() else 0


def amount(size: int) -> str:
    """A human-readable number of bytes.

    >>> amount(999), amount(1_234_567), amount(4_700_000_000)
    ('999 bytes', '1.2 MB', '4.7 GB')
    """
    if size < 1_000_000:
        return f"{size:,} bytes"
    return f"{size / 1e6:.1f} MB" if size < 1_000_000_000 else f"{size / 1e9:.1f} GB"


def _attempt(url: str, part: Path, offer: Offer, progress: Progress | None, opener: Opener) -> None:
    received = file_bytes(part)
    if received == offer.size:
        part.touch()
        return
    with _respond(url, part, opener) as response:
        if response.status == 206:
            _check_continuation(response, part, offer)
        else:  # the server ignored the range, or the file has changed
            received = 0
            _check_size(url, _total(response), offer)
            _remember_validator(part, _validator(response.headers))
        with part.open("ab" if received else "wb") as file:
            for block in _blocks(response, offer.size - received):
                file.write(block)
                received += len(block)
                if progress:
                    progress(_name(url), received, offer.size)
    if received < offer.size:
        raise _Broken("the connection closed too early")


def _respond(url: str, part: Path, opener: Opener) -> HTTPResponse:
    """The response to a request for the missing bytes of `part`."""
    headers = {}
    if received := file_bytes(part):
        headers["Range"] = f"bytes={received}-"
        if validator := _recorded_validator(part):
            headers["If_Range"] = validator
    try:
        return opener(request_for(url, **headers))
    except HTTPError as error:
        with error:
            if error.code == 416:  # our bytes are not the beginning of the server's file
                part.unlink(missing_ok=True)
            elif error.code not in TRANSIENT:
                raise DownloadError(_refusal(url, error.code)) from None
            raise _Broken(f"the server answered {error.code}") from None
    except (OSError, HTTPException) as error:
        raise _Broken(_reason(error)) from None


def _blocks(response: HTTPResponse, remaining: int) -> Iterator[bytes]:
    """The body as it arrives, up to `remaining` bytes; with `read1` an interruption loses no received bytes."""
    while remaining > 0:
        try:
            block = response.read1(min(BLOCK, remaining))
        except (OSError, HTTPException) as error:
            raise _Broken(_reason(error)) from None
        if not block:
            return
        remaining -= len(block)
        yield block


def _check_continuation(response: HTTPResponse, part: Path, offer: Offer) -> None:
    """Check that a 206 response continues the same file at our last byte; otherwise the transfer starts again."""
    content_range = _content_range(response.headers)
    recorded, current = _recorded_validator(part), _validator(response.headers)
    if content_range != (file_bytes(part), offer.size) or (recorded and current and recorded != current):
        part.unlink(missing_ok=True)
        raise _Broken("the server sent another part or version of the file than was requested")


def _check_size(url: str, sent: int | None, offer: Offer) -> None:
    if sent is not None and sent != offer.size:
        raise DownloadError(
            f"{_name(url)}: the server first offered {offer.size:,} bytes and now sends {sent:,}; try again"
        )


def _discard_stale(part: Path, offer: Offer) -> None:
    """Delete a part that belongs to another version of the server's file."""
    recorded = _recorded_validator(part)
    if file_bytes(part) > offer.size or (recorded and offer.validator and recorded != offer.validator):
        part.unlink(missing_ok=True)


def _total(response: HTTPResponse) -> int | None:
    if response.status == 206:
        content_range = _content_range(response.headers)
        return content_range[1] if content_range else None
    length = response.headers.get("Content-Length", "")
    return int(length) if re.fullmatch(r"[0-9]{1,18}", length) else None


def _content_range(headers: Message) -> tuple[int, int] | None:
    """The first byte and the total size, from `Content-Range: bytes 5-9/10`."""
    match = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18})", headers.get("Content-Range", ""))
    return (int(match[1]), int(match[2])) if match else None


def _validator(headers: Message) -> str | None:
    """The value for If-Range: a strong ETag, otherwise the date of the last change."""
    etag: str | None = headers.get("ETag")
    return etag if etag and not etag.startswith("W/") else headers.get("Last-Modified")


def _validator_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.validator")


def _recorded_validator(part: Path) -> str | None:
    path = _validator_file(part)
    return path.read_text(encoding="latin-1") if path.is_file() else None


def _remember_validator(part: Path, validator: str | None) -> None:
    part.unlink(missing_ok=True)  # first, so that old bytes never have a new validator
    if validator:
        _validator_file(part).write_text(validator, encoding="latin-1")
    else:
        _validator_file(part).unlink(missing_ok=True)


def _refusal(url: str, code: int) -> str:
    hint = HINTS.get(code, "the server failed; try again later" if code >= 500 else "the server refused")
    return f"{url} could not be fetched: {hint} (HTTP {code})"


def _reason(error: Exception) -> str:
    """The cause of an error of urllib, on one line."""
    cause = error.reason if isinstance(error, URLError) else error
    if isinstance(cause, TimeoutError):
        return "the server did not answer in time"
    text = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return text.splitlines()[0] if text else type(cause).__name__


def _name(url: str) -> str:
    return url.rsplit("/", 1)[-1]

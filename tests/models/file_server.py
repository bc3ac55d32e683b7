"""A small HTTP server for tests: ranges, ETags, and on demand the ways in which a download goes wrong."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROBE = "bytes=0-0"


@dataclass
class FileServer:
    """What is served, how it misbehaves, and what was asked for (path, Range, If-Range; None where not sent)."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    statuses: dict[str, list[int]] = field(default_factory=dict)  # answers to the next requests for a path
    cuts: dict[str, list[int]] = field(default_factory=dict)  # bytes after which the next bodies break off
    etags: bool = True
    ranges: bool = True
    if_ranges: bool = True
    sizes: bool = True
    log: list[tuple[str, str | None, str | None]] = field(default_factory=list)

    def url(self, path: str) -> str:
        return f"{self.address}/{path}"

    def transfers(self, path: str) -> list[tuple[str | None, str | None]]:
        """Range and If-Range of each request for a path, but for those that only ask the size."""
        return [(asked, if_range) for name, asked, if_range in self.log if name == path and asked != PROBE]


def etag(content: bytes) -> str:
    return f'"{hashlib.md5(content).hexdigest()}"'


class QuietHandler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name in the base class)
        pass


@contextmanager
def serve() -> Iterator[FileServer]:
    state = FileServer()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            answer(self, state)

    with listening(Handler) as address:
        state.address = address
        yield state


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server on this machine, for as long as the `with` block runs."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def answer(handler: BaseHTTPRequestHandler, state: FileServer) -> None:
    path = handler.path.lstrip("/")
    asked, if_range = handler.headers.get("Range"), handler.headers.get("If-Range")
    state.log.append((path, asked, if_range))
    is_transfer = asked != PROBE
    if is_transfer and state.statuses.get(path):
        handler.send_error(state.statuses[path].pop(0))
        return
    if path not in state.files:
        handler.send_error(404)
        return
    content = state.files[path]
    version = if_range if state.if_ranges else None
    start, stop = interval(asked, version, content) if state.ranges else (0, None)
    if start >= len(content) and asked:
        handler.send_response(416)
        handler.send_header("Content-Range", f"bytes */{len(content)}")
        handler.end_headers()
        return
    body = content[start:stop]
    partial = state.ranges and (start > 0 or stop is not None)
    handler.send_response(206 if partial else 200)
    if partial:
        handler.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/{len(content)}")
    if state.etags:
        handler.send_header("ETag", etag(content))
    if state.sizes:
        handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if is_transfer and state.cuts.get(path):
        body = body[: state.cuts[path].pop(0)]
    with suppress(ConnectionError):  # who asks only the size does not stay for the rest
        handler.wfile.write(body)


def interval(asked: str | None, if_range: str | None, content: bytes) -> tuple[int, int | None]:
    """The slice that a Range header asks for; all of the file if If-Range names another version."""
    match = re.fullmatch(r"bytes=(\d+)-(\d*)", asked or "")
    if match is None or (if_range is not None and if_range != etag(content)):
        return 0, None
    return int(match[1]), int(match[2]) + 1 if match[2] else None

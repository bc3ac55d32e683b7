"""A server that answers as the Hugging Face hub does: small files by git's hash, large ones by a redirect."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.models.file_server import FileServer, QuietHandler, answer, listening

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".safetensors",)  # what the hub keeps in its large file storage


@dataclass
class HubServer(FileServer):
    """Repositories by name, each with its files; `cdn` requests are in `log`, all others in `hub_log`."""

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    hub_log: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, Authorization
    down: bool = False

    def publish(self, repo_id: str, files: dict[str, bytes]) -> None:
        self.repositories[repo_id] = files
        self.files |= {f"cdn/{sha256(body)}": body for name, body in files.items() if name.endswith(LARGE)}

    def fetched(self, name: str) -> int:
        """How often a file was fetched from the hub itself."""
        return sum(method == "GET" and path.endswith(f"/{name}") for method, path, _ in self.hub_log)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def serve_hub() -> Iterator[HubServer]:
    state = HubServer()

    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802 (the name in the base class)
            if self.path.startswith("/cdn/"):
                authorization = self.headers.get("Authorization")
                assert authorization is None, "the user's token was sent to the storage"
                answer(self, state)
            else:
                self.describe(with_body=True)

        def do_HEAD(self) -> None:  # noqa: N802
            self.describe(with_body=False)

        def describe(self, *, with_body: bool) -> None:
            state.hub_log.append((self.command, self.path, self.headers.get("Authorization")))
            if state.down:
                self.send_error(503)
                return
            match = re.fullmatch(r"/([\w.-]+/[\w.-]+)/resolve/(\w+)/([\w.-]+)", self.path)
            files = state.repositories.get(match[1]) if match else None
            if match is None or files is None:
                self.refuse("RepoNotFound")
            elif match[3] not in files:
                self.refuse("EntryNotFound")
            else:
                self.send_file(match[3], files[match[3]], with_body=with_body)

        def refuse(self, code: str) -> None:
            self.send_response(404)
            self.send_header("X-Error-Code", code)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def send_file(self, name: str, content: bytes, *, with_body: bool) -> None:
            large = name.endswith(LARGE)
            self.send_response(302 if large else 200)
            self.send_header("X-Repo-Commit", COMMIT)
            if large:
                port = state.address.rsplit(":", 1)[1]
                self.send_header("Location", f"http://localhost:{port}/cdn/{sha256(content)}")
                self.send_header("X-Linked-Etag", f'"{sha256(content)}"')
                self.send_header("X-Linked-Size", str(len(content)))
                self.send_header("Content-Length", "0")
            else:
                self.send_header("ETag", f'"{git_hash(content)}"')
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if with_body and not large:
                self.wfile.write(content)

    with listening(Handler) as address:
        state.address = address
        yield state

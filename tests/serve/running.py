"""A server for tests: the real one, on a port of its own, with a tiny Markov model."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import diffinity as dy
from diffinity.models.markov import MarkovLM
from diffinity.models.protocol import TextModel
from diffinity.serve.app import create_app
from diffinity.serve.server import make_server
from diffinity.serve.settings import ServeSettings

NAME = "tiny"
TEXTS = [f"the {a} {v} the {t}." for a in ("cat", "dog") for v in ("saw", "took") for t in ("box", "cup")]
TEXTS += ['{"name": "box", "size": 12}', '{"name": "cup", "size": 7}', "yes", "no"]
READY_SECONDS = 240  # the first start on a machine compiles kernels; answers of a busy one take long


def tiny_model() -> MarkovLM:
    return dy.fit_markov(TEXTS)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Client:
    """Plain HTTP, one connection a request."""

    def __init__(self, port: int, headers: dict[str, str] | None = None) -> None:
        self.port, self.headers = port, headers or {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **headers: str) -> tuple[int, Any, dict[str, str]]:
        return self._ask("GET", path, None, headers)

    def post(self, path: str, body: object, **headers: str) -> tuple[int, Any, dict[str, str]]:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._ask("POST", path, sent, {"Content-Type": "application/json"} | headers)

    def complete(self, **body: object) -> tuple[int, Any]:
        """A completion in few steps."""
        status, answer, _ = self.post("/v1/completions", {"diffinity": {"steps": 4}} | body)
        return status, answer

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, Any, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=READY_SECONDS)
        try:
            connection.request(method, path, body, self.headers | headers)
            response = connection.getresponse()
            text = response.read().decode()
            found = {name.lower(): value for name, value in response.getheaders()}
        finally:
            connection.close()
        is_json = found.get("content-type", "").startswith("application/json")
        return response.status, json.loads(text) if is_json else text, found

    def wait(self) -> Client:
        """Until the server is ready."""
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            try:
                status, answer, _ = self.get("/health")
                if status == 200:
                    return self
                assert answer["status"] != "failed"
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError("the server did not get ready")


@contextmanager
def running(model: TextModel | None = None, **settings: Any) -> Iterator[Client]:
    """A server in a thread of this process."""
    chosen = ServeSettings(**({"model_name": NAME} | settings))
    port = free_port()
    app = create_app(model or tiny_model(), chosen)
    server = make_server(app, "127.0.0.1", port, read_seconds=chosen.read_seconds, drain_seconds=10)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield Client(port).wait()
    finally:
        server.should_exit = True
        thread.join(30)

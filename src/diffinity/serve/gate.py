"""Checks of every request (host, key, size and time limits), and the headers of every response."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from diffinity.serve.errors import ApiError
from diffinity.serve.settings import ServeSettings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Answered = Callable[[str, int, float], None]  # path, status, seconds
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

GUARDED = ("/v1/", "/diffinity/", "/metrics")  # paths that need a key, if there are keys
LONGEST_PATH = 8192  # bytes
MOST_HEADERS = 100
LARGEST_HEAD = 32_768  # bytes of all headers
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)


class SlowReader(Exception):
    """A client did not read its response for too long."""


class Gate:
    """An ASGI application in front of another application, which gets only requests within the limits."""

    def __init__(self, app: App, settings: ServeSettings, answered: Answered | None = None) -> None:
        self._app, self._settings, self._answered = app, settings, answered

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, out = time.monotonic(), _Out(send, self._settings.write_seconds)
        try:
            await self._pass(scope, receive, out)
        except SlowReader:
            return  # the server closes the connection of an incomplete response
        finally:
            if self._answered is not None:
                self._answered(scope["path"], out.status, time.monotonic() - began)

    async def _pass(self, scope: MutableMapping[str, Any], receive: Receive, out: _Out) -> None:
        try:
            self._check_head(scope)
            body = await self._body(scope, receive)
        except ApiError as error:
            await out.refuse(error)
            return
        await self._app(scope, _replayed(body, receive), out)

    def _check_head(self, scope: MutableMapping[str, Any]) -> None:
        pairs = scope["headers"]
        if len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > LONGEST_PATH:
            raise ApiError(f"the path has more than {LONGEST_PATH:,} bytes", status=414, code="path_too_long")
        if len(pairs) > MOST_HEADERS or sum(len(name) + len(value) for name, value in pairs) > LARGEST_HEAD:
            raise ApiError(
                f"a request may have {MOST_HEADERS} headers with {LARGEST_HEAD:,} bytes in total",
                status=431,
                code="headers",
            )
        headers = _headers(scope)
        if len(headers.get(b"host", [])) > 1 or len(headers.get(b"authorization", [])) > 1:
            raise ApiError("the header Host or Authorization occurs twice", code="duplicate_header")
        host = headers.get(b"host", [b""])[0].decode("latin-1").lower()
        allowed = self._settings.allowed_hosts
        if allowed and _without_port(host) not in allowed:
            raise ApiError(
                f"the host {host!r} is not served here: start the server with --allow-host",
                status=421,
                code="host",
            )
        if self._settings.key_digests and scope["path"].startswith(GUARDED):
            self._check_key(headers.get(b"authorization", [b""])[0])
        if scope["method"] == "POST":
            kind = headers.get(b"content-type", [b""])[0].split(b";")[0].strip().lower()
            if kind != b"application/json":  # a foreign web page can't send this type without a CORS preflight
                raise ApiError("the body must have Content-Type: application/json", status=415, code="media_type")

    def _check_key(self, header: bytes) -> None:
        scheme, _, key = header.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not self._settings.is_key(key.strip()):
            raise ApiError(
                "a valid API key is needed: Authorization: Bearer KEY", status=401, code="invalid_api_key"
            )

    async def _body(self, scope: MutableMapping[str, Any], receive: Receive) -> bytes:
        limit = self._settings.max_body
        too_large = ApiError(f"the body has more than {limit:,} bytes", status=413, code="body_too_large")
        length = _headers(scope).get(b"content-length", [b"0"])[0]
        if length.isdigit() and int(length) > limit:
            raise too_large
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(self._settings.read_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ApiError("the client disconnected", status=499, code="disconnected")
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > limit:
                        raise too_large
        except TimeoutError:
            raise ApiError(
                f"the body did not arrive within {self._settings.read_seconds:g} seconds",
                status=408,
                code="slow_body",
            ) from None
        return bytes(body)


class _Out:
    """`send` with the headers of every response and a time limit for clients that do not read."""

    def __init__(self, send: Send, seconds: float) -> None:
        self._send, self._seconds = send, seconds
        self.status = 499  # until there is a response

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", []), *SECURITY_HEADERS]
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(message)
        except TimeoutError:
            raise SlowReader from None

    async def refuse(self, error: ApiError) -> None:
        """Respond with an error and close: the rest of the body is not read."""
        body = json.dumps(error.body()).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
        pairs = [(name.lower().encode(), value.encode()) for name, value in (headers | error.headers()).items()]
        await self({"type": "http.response.start", "status": error.status, "headers": pairs})
        await self({"type": "http.response.body", "body": body})


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns the body already read, then later messages."""
    is_replayed = False

    async def replay() -> Message:
        nonlocal is_replayed
        if is_replayed:
            return await receive()
        is_replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _headers(scope: MutableMapping[str, Any]) -> dict[bytes, list[bytes]]:
    headers: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.lower(), []).append(value)
    return headers


def _without_port(host: str) -> str:
    """
    >>> _without_port("localhost:8000"), _without_port("[::1]:8000")
    ('localhost', '::1')
    """
    return host[1:].split("]")[0] if host.startswith("[") else host.split(":")[0]

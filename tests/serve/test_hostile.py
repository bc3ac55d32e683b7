"""Fifty hostile requests: each is refused within its limit, and the server answers others meanwhile."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from diffinity.serve.app import EventStream
from diffinity.serve.gate import Gate
from diffinity.serve.settings import ServeSettings
from tests.serve.running import Client

PATIENCE = 120.0  # seconds without any answer: the server hangs; on a busy machine its own limits take longer
JSON_HEADERS = "Host: 127.0.0.1\r\nContent-Type: application/json\r\n"
Attack = bytes | Callable[[socket.socket], None]


def request(body: bytes, headers: str = "", path: str = "/v1/completions") -> bytes:
    head = f"POST {path} HTTP/1.1\r\n{JSON_HEADERS}{headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def asking(**body: Any) -> bytes:
    return request(json.dumps(body).encode())


def nested(depth: int, opening: str, closing: str, inside: str = "true") -> bytes:
    return request((opening * depth + inside + closing * depth).encode())


def drip(data: bytes, pause: float = 0.3) -> Callable[[socket.socket], None]:
    """Send a byte from time to time, until the server has enough of it."""

    def send(connection: socket.socket) -> None:
        for at in range(len(data)):
            connection.sendall(data[at : at + 1])
            time.sleep(pause)

    return send


def schema(value: object) -> bytes:
    return asking(structured_outputs={"json": value})


def deep_schema(depth: int) -> bytes:
    opening, closing = '{"type": "object", "properties": {"a": ', "}}"
    return request(
        b'{"structured_outputs": {"json": ' + (opening * depth + "true" + closing * depth).encode() + b"}}"
    )


TOO_LARGE = b'{"a": "' + b"x" * 300_000 + b'"}'
STREAM = {"stream": True, "n": 4, "max_tokens": 200, "diffinity": {"steps": 600, "drafts": 1}}

# What is sent, and the statuses that answer it; 0 is a connection that is closed without an answer.
ATTACKS: dict[str, tuple[Attack, set[int]]] = {
    # sizes
    "a huge body": (request(TOO_LARGE), {413}),
    "a length that is a lie, too long": (request(b"{}").replace(b"Length: 2", b"Length: 99999999999"), {413}),
    "a length without end": (request(b"{}").replace(b"Length: 2", b"Length: " + b"9" * 400), {400, 413}),
    "a negative length": (request(b"{}").replace(b"Length: 2", b"Length: -2"), {400}),
    "two lengths": (request(b"{}", "Content-Length: 7\r\n"), {400}),
    "chunks without end": (
        f"POST /v1/completions HTTP/1.1\r\n{JSON_HEADERS}Transfer-Encoding: chunked\r\n\r\n".encode()
        + b"4000\r\n" * 1
        + b"x" * 0x4000
        + (b"\r\n4000\r\n" + b"x" * 0x4000) * 20,
        {413},
    ),
    "a chunk of a wrong size": (
        f"POST /v1/completions HTTP/1.1\r\n{JSON_HEADERS}Transfer-Encoding: chunked\r\n\r\nzz\r\n".encode(),
        {400, 0},
    ),
    "both lengths and chunks": (
        request(b"0\r\n\r\n", "Transfer-Encoding: chunked\r\n"),
        {400},
    ),
    "a huge header": (request(b"{}", f"X-Long: {'x' * 100_000}\r\n"), {400, 431, 0}),
    "ten thousand headers": (request(b"{}", "".join(f"X-{i}: 1\r\n" for i in range(10_000))), {400, 431, 0}),
    "a huge path": (f"GET /{'a' * 100_000} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), {400, 414, 431, 0}),
    "n of a million": (asking(n=1_000_000), {400}),
    "tokens of a million": (asking(max_tokens=1_000_000), {400}),
    "steps of a million": (asking(diffinity={"steps": 1_000_000}), {400}),
    "particles of a million": (asking(diffinity={"particles": 1_000_000}), {400}),
    "a number of ten thousand digits": (request(b'{"seed": ' + b"9" * 10_000 + b"}"), {400}),
    # nesting
    "lists in lists": (nested(90_000, "[", "]"), {400}),
    "objects in objects": (nested(20_000, '{"a":', "}"), {400}),
    "an unclosed tower": (request(b'{"stop": ' + b"[" * 90_000), {400}),
    "a deep schema": (deep_schema(60), {200, 400}),
    "a schema deeper than JSON may be": (deep_schema(2_000), {400}),
    "a schema that is its own part": (schema({"$ref": "#"}), {200, 400}),
    "a schema from elsewhere": (schema({"$ref": "http://127.0.0.1:1/secret"}), {400}),
    "a schema of a million branches": (
        schema({"allOf": [{"anyOf": [{"const": i} for i in range(30)]}] * 200}),
        {200, 400},
    ),
    "a schema that counts to a billion": (schema({"type": "array", "minItems": 10**9}), {400}),
    "a text of a billion characters": (schema({"type": "string", "minLength": 10**9}), {400}),
    # patterns
    "a pattern of exponential size": (asking(structured_outputs={"regex": "(a|b)*a(a|b){40}"}), {400}),
    "a pattern that counts in counts": (asking(structured_outputs={"regex": "((a{0,500}){0,500}){0,500}"}), {400}),
    "a pattern that backtracks for ever elsewhere": (
        asking(structured_outputs={"regex": "(a+)+" * 30 + "b"}),
        {200, 400},
    ),
    "a pattern with a lookahead": (asking(structured_outputs={"regex": "(?=a)a"}), {400}),
    "a long pattern": (asking(structured_outputs={"regex": "(a|b|c)" * 20_000}), {400}),
    "parentheses in parentheses": (asking(structured_outputs={"regex": "(" * 5000 + "a" + ")" * 5000}), {400}),
    "a grammar that never ends": (asking(structured_outputs={"grammar": 'a = "x" b\nb = "y" a'}), {400}),
    "a grammar of exponential size": (
        asking(grammar="\n".join(f"r{i} = r{i + 1} r{i + 1}" for i in range(40)) + '\nr40 = "x"'),
        {400},
    ),
    "choices without number": (asking(structured_outputs={"choice": [str(i) for i in range(20_000)]}), {200, 400}),
    "stops that exclude everything": (asking(stop=[""]), {400}),
    # bytes
    "invalid UTF-8": (request(b'{"prompt": "\xff\xfe"}'), {400}),
    "a lone surrogate": (asking(stop="\ud800"), {400}),
    "zero bytes": (request(b"\x00" * 1000), {400}),
    "another encoding": (request('{"n": 1}'.encode("utf-16")), {400}),
    "compressed": (request(b"\x1f\x8b" + b"x" * 50, "Content-Encoding: gzip\r\n"), {400}),
    "not HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", {400, 0}),
    # headers
    "a header line without a name": (request(b"{}", ": x\r\n"), {400, 0}),
    "a header with a line break inside": (request(b"{}", "X: a\rb\r\n"), {400, 0}),
    "two hosts": (request(b"{}", "Host: other\r\n"), {400}),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", {400}),
    "a form": (request(b"n=1").replace(b"application/json", b"application/x-www-form-urlencoded"), {415}),
    # time
    "a head that never ends": (drip(request(b"{}")), {408, 0}),
    "a body that never comes": (request(b"{}").replace(b"Length: 2", b"Length: 100"), {408}),
    "a connection that says nothing": (lambda connection: None, {0}),
}


def attack(port: int, what: Attack) -> int:
    """Send it and read the status of what comes back; 0 if the connection is closed without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        try:
            if callable(what):
                what(connection)
            else:
                connection.sendall(what)
        except OSError:  # refused while we were still sending; the answer may be there
            pass
        connection.settimeout(PATIENCE)
        try:
            answer = connection.recv(4096)
        except ConnectionError:
            return 0
    return int(answer.split()[1]) if answer else 0


def test_there_are_fifty() -> None:
    assert len(ATTACKS) == 50


@pytest.fixture(scope="module")
def meanwhile(server: Client) -> Any:
    """Ordinary requests while the attacks run, all of which must be answered."""
    over, answered, wrong = threading.Event(), [0], list[Any]()

    def ask() -> None:
        while not over.is_set():
            status, answer = server.complete(structured_outputs={"choice": ["yes"]}, diffinity={"steps": 1})
            answered[0] += 1
            if status != 200:
                wrong.append(answer)
            time.sleep(0.05)

    thread = threading.Thread(target=ask)
    thread.start()
    yield
    over.set()
    thread.join()
    assert wrong == []
    assert answered[0] > 0


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_request_is_refused(server: Client, meanwhile: Any, name: str) -> None:
    what, expected = ATTACKS[name]
    assert attack(server.port, what) in expected


def test_readers_that_do_not_read_cost_the_others_nothing(server: Client) -> None:
    readers = []
    for _ in range(4):
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(("127.0.0.1", server.port))
        reader.sendall(asking(**STREAM))
        readers.append(reader)
    try:
        end = time.monotonic() + PATIENCE
        while not server.get("/health")[1]["running"] and time.monotonic() < end:  # until theirs have begun
            time.sleep(0.01)
        for _ in range(5):
            status, _ = server.complete(structured_outputs={"choice": ["yes"]}, diffinity={"steps": 1})
            assert status == 200
    finally:
        for reader in readers:
            reader.close()
    end = time.monotonic() + PATIENCE
    while (running := server.get("/health")[1]["running"]) and time.monotonic() < end:
        time.sleep(0.05)
    assert running == 0  # at that moment: ordinary requests go on


def test_a_reader_that_blocks_the_server_is_dropped() -> None:
    """Where the buffers of the system are full, sending waits; not for longer than the limit."""
    ended = []

    async def events() -> AsyncGenerator[bytes]:
        try:
            while True:
                yield b"x"
        finally:
            ended.append(True)

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await EventStream(events())(scope, receive, send)

    async def receive() -> dict[str, Any]:
        if not requested:
            requested.append(True)
            return {"type": "http.request", "body": b"{}"}
        return await asyncio.Future[dict[str, Any]]()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Future[None]()

    requested: list[bool] = []
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    asyncio.run(asyncio.wait_for(Gate(inner, ServeSettings(write_seconds=0.1))(scope, receive, send), PATIENCE))
    assert ended == [True]


def test_half_open_connections_take_no_place(server: Client) -> None:
    """A hundred clients that connect and say half a request."""
    silent = []
    try:
        for _ in range(100):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127")
            silent.append(connection)
        assert server.complete(structured_outputs={"choice": ["yes"]})[0] == 200
        closed = 0
        for connection in silent:  # each waits for the server's limit
            try:
                closed += connection.recv(10) == b""
            except ConnectionError:
                closed += 1
        assert closed == 100
    finally:
        for connection in silent:
            connection.close()

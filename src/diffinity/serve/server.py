"""The application under uvicorn, with limits on clients that send slowly, and draining on SIGTERM."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from diffinity.serve.gate import LARGEST_HEAD, Gate

MOST_CONNECTIONS = 1000
BACKLOG = 1024


class HeadTimeout(H11Protocol):
    """uvicorn's protocol, with a limit on how long a client may take to send a request's head."""

    seconds = 10.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._clear_timer()
        elif self.timeout_keep_alive_task is None and self._timer is None:  # a head has begun
            self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_timer()
        super().connection_lost(exc)

    def _set_timer(self) -> None:
        self._timer = self.loop.call_later(self.seconds, self.transport.abort)

    def _clear_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def make_server(app: Gate, host: str, port: int, *, read_seconds: float, drain_seconds: float) -> uvicorn.Server:
    """The server; `run()` serves until SIGTERM or Ctrl-C, then finishes its requests within `drain_seconds`."""
    protocol = type("HeadTimeout", (HeadTimeout,), {"seconds": read_seconds})
    http: Any = protocol
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            http=http,
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            limit_concurrency=MOST_CONNECTIONS,
            h11_max_incomplete_event_size=LARGEST_HEAD,
            timeout_graceful_shutdown=max(1, round(drain_seconds)),
        )
    )

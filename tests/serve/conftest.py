"""One server for all tests that need nothing special of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serve.running import Client, running


@pytest.fixture(scope="session")
def server() -> Iterator[Client]:
    with running(read_seconds=1.0, write_seconds=2.0, max_body=200_000) as client:
        yield client

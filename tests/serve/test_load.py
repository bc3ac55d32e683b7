"""Behaviour under load: batches, queue, deadlines, clients that go away, keys, drain."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from diffinity.errors import InvalidArgument
from diffinity.models.markov import MarkovLM
from diffinity.serve.settings import ServeSettings, digest_of, read_keys
from tests.serve.running import NAME, READY_SECONDS, TEXTS, Client, free_port, running, tiny_model


class SlowModel(MarkovLM):
    """A Markov model whose every step takes as long as a test wants."""

    seconds = 0.05
    steps = 0
    rows: list[int]

    def denoise(self, z: Tensor, noise_level: Tensor, x_selfcond: Tensor) -> Tensor:
        self.steps += 1
        self.rows.append(int(z.shape[0]))
        time.sleep(self.seconds)
        return super().denoise(z, noise_level, x_selfcond)


def slow_model(seconds: float = 0.05) -> SlowModel:
    model = tiny_model()
    model.__class__ = SlowModel
    assert isinstance(model, SlowModel)
    model.seconds, model.rows = seconds, []
    return model


def until(holds: Callable[[], bool], seconds: float = 120.0) -> bool:
    """Whether it holds at last; a test that fails waits that long, on whatever machine."""
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()


def begin(client: Client, body: object) -> http.client.HTTPConnection:
    """Send a request and do not wait for its answer."""
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=READY_SECONDS)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return connection


def test_requests_with_different_constraints_share_a_batch() -> None:
    model = slow_model(0.02)
    with running(model, batch_delay=1.0) as client:
        model.rows.clear()
        patterns = [f"the (cat|dog) [a-z ]{{{i},30}}\\." for i in range(1, 9)]
        for pattern in patterns:  # compiled before the clock of a batch runs
            client.post("/diffinity/inspect", {"structured_outputs": {"regex": pattern}})
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda regex: client.complete(structured_outputs={"regex": regex}), patterns))
    for pattern, (status, answer) in zip(patterns, answers, strict=True):
        assert status == 200
        assert re.fullmatch(pattern, answer["choices"][0]["text"])
    assert max(model.rows) >= 4


def test_a_client_that_goes_away_frees_its_place_at_the_next_step() -> None:
    model = slow_model(0.05)
    with running(model) as client:
        model.steps = 0
        connection = begin(client, {"structured_outputs": {"choice": ["yes"]}, "diffinity": {"steps": 500}})
        assert until(lambda: model.steps > 2)
        connection.close()
        assert until(lambda: client.get("/health")[1]["running"] == 0)
        assert model.steps < 500
        assert client.complete(structured_outputs={"choice": ["yes"]})[0] == 200


def test_a_streaming_client_that_goes_away_leaves_the_others_their_batch() -> None:
    model = slow_model(0.05)
    with running(model, batch_delay=0.5) as client:
        asked = {
            "structured_outputs": {"choice": ["yes"]},
            "diffinity": {"steps": 40, "drafts": 1},
            "stream": True,
        }
        leaver = begin(client, asked)
        with ThreadPoolExecutor(1) as pool:
            stayer = pool.submit(client.complete, structured_outputs={"choice": ["no"]}, diffinity={"steps": 40})
            assert until(lambda: bool(model.rows) and model.rows[-1] == 2)
            leaver.close()
            assert until(lambda: model.rows[-1] == 1)
            assert stayer.result()[1]["choices"][0]["text"] == "no"


def test_a_short_request_does_not_wait_for_a_long_one() -> None:
    with running(slow_model(0.05)) as client:
        long = begin(client, {"diffinity": {"steps": 400}})
        assert until(lambda: client.get("/health")[1]["running"] == 1)
        assert client.complete(structured_outputs={"choice": ["yes"]}, diffinity={"steps": 3})[0] == 200
        assert client.get("/health")[1]["running"] >= 1  # the long one, which takes 397 steps more
        long.close()


def test_a_full_queue_says_when_to_come_again() -> None:
    with running(slow_model(0.1), max_waiting=2, max_batch=1) as client:
        busy = [begin(client, {"diffinity": {"steps": 100}})]
        assert until(lambda: client.get("/health")[1]["running"] == 1)
        busy += [begin(client, {"diffinity": {"steps": 100}}) for _ in range(2)]
        assert until(lambda: client.get("/health")[1]["waiting"] == 2)
        status, answer, headers = client.post("/v1/completions", {})
        assert (status, answer["error"]["type"]) == (429, "rate_limit_error")
        assert int(headers["retry-after"]) >= 1
        for connection in busy:
            connection.close()


def test_a_request_past_its_deadline_gets_an_error_and_frees_its_place() -> None:
    model = slow_model(0.05)
    with running(model) as client:
        model.steps = 0
        status, answer = client.complete(diffinity={"steps": 900, "deadline": 0.4})
        assert (status, answer["error"]["code"]) == (504, "deadline_exceeded")
        assert model.steps < 900
        assert until(lambda: client.get("/health")[1]["running"] == 0)


def test_a_deadline_holds_while_waiting_too() -> None:
    with running(slow_model(0.1), max_batch=1) as client:
        busy = begin(client, {"diffinity": {"steps": 30}})
        assert until(lambda: client.get("/health")[1]["running"] == 1)
        status, answer = client.complete(diffinity={"steps": 30, "deadline": 0.2})
        assert status == 504, answer
        busy.close()


def test_an_error_in_a_stream_is_an_error_object() -> None:
    with running(slow_model(0.05)) as client:
        body = {"stream": True, "diffinity": {"steps": 900, "deadline": 0.3}}
        status, text, _ = client.post("/v1/completions", body)
    assert status == 200
    last = json.loads(text.strip().split("\n\n")[-1].removeprefix("data: "))
    assert last["error"]["code"] == "deadline_exceeded"


def test_others_are_answered_while_hostile_schemas_are_compiled() -> None:
    """How long they wait is measured by `benchmarks/serve_load.py`."""
    hostile = {"structured_outputs": {"regex": "(a|b)*a(a|b){16}"}}  # 131,072 states, which take a second
    with running() as client, ThreadPoolExecutor(4) as pool:
        attacks = [pool.submit(client.complete, **hostile, stop=[f"stop{i}"]) for i in range(4)]
        waiting = []
        for i in range(6):
            assert client.complete(structured_outputs={"regex": f"the [a-z ]{{{i},20}}\\."})[0] == 200
            waiting.append(not all(attack.done() for attack in attacks))
        outcomes = [attack.result() for attack in attacks]
    assert any(waiting)  # or the test proves nothing
    assert [status for status, _ in outcomes] == [400] * 4
    assert {answer["error"]["code"] for _, answer in outcomes} == {"constraint_too_large"}


def test_equal_constraints_are_compiled_once() -> None:
    with running() as client, ThreadPoolExecutor(6) as pool:
        asked = {"structured_outputs": {"regex": "the [a-z ]{3,25}\\."}}
        assert {status for status, _ in pool.map(lambda _: client.complete(**asked), range(6))} == {200}
        compiled = re.search(r"diffinity_compile_seconds_count (\S+)", client.get("/metrics")[1])
    assert compiled is not None
    assert float(compiled[1]) <= 2  # and the one of the warm-up


@pytest.mark.parametrize(
    ("header", "status"),
    [({}, 401), ({"Authorization": "Bearer wrong"}, 401), ({"Authorization": "Basic one"}, 401)]
    + [({"Authorization": f"Bearer {key}"}, 200) for key in ("one", "two")],
)
def test_api_keys(keyed: Client, header: dict[str, str], status: int) -> None:
    assert keyed.get("/v1/models", **header)[0] == status
    assert keyed.get("/metrics", **header)[0] == status
    assert keyed.get("/health", **header)[0] == 200
    assert keyed.get("/", **header)[0] == 200


@pytest.fixture(scope="module")
def keyed() -> Any:
    with running(key_digests=(digest_of("one"), digest_of("two")), allowed_hosts=("127.0.0.1",)) as client:
        yield client


def test_a_host_that_is_not_ours_is_refused(keyed: Client) -> None:
    assert keyed.get("/health", Host="evil.example")[0] == 421
    assert keyed.get("/health", Host="127.0.0.1:1")[0] == 200


def test_no_other_site_may_read_answers(server: Client) -> None:
    _, _, headers = server.get("/v1/models", Origin="https://evil.example")
    assert "access-control-allow-origin" not in headers
    status, _, _ = server.post("/v1/completions", {}, **{"Content-Type": "text/plain"})
    assert status == 415


def test_keys_come_from_a_file_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("one  # Ann's\n\n# nobody's\ntwo\n")
    found = read_keys(tmp_path / "keys", {"DIFFINITY_API_KEYS": "three"})
    settings = ServeSettings(key_digests=found)
    assert [settings.is_key(key) for key in ("one", "two", "three", "", "four")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    (tmp_path / "empty").write_text("# none\n")
    with pytest.raises(InvalidArgument, match="has no key"):
        read_keys(tmp_path / "empty", {})


def test_the_command_serves_and_drains_on_sigterm(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path / NAME)
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "diffinity.cli",
        "serve",
        "--model",
        str(tmp_path / NAME),
        "--port",
        str(port),
    ]
    process = subprocess.Popen(command, env=os.environ, stderr=subprocess.PIPE, text=True)
    answers: list[Any] = []
    try:
        client = Client(port).wait()
        body = {"structured_outputs": {"choice": TEXTS[:2]}, "n": 8, "max_tokens": 64, "diffinity": {"steps": 150}}
        asking = threading.Thread(target=lambda: answers.append(client.complete(**body)))
        asking.start()
        assert until(lambda: client.get("/health")[1]["running"] == 8)
        process.send_signal(signal.SIGTERM)
        asking.join(READY_SECONDS)
        process.wait(60)
    finally:
        process.kill()
    status, answer = answers[0]
    assert status == 200, answer
    assert {choice["text"] for choice in answer["choices"]} <= set(TEXTS[:2])
    with pytest.raises(OSError, match="refused"):
        client.get("/health")
    assert process.returncode in (0, -signal.SIGTERM)
    assert process.stderr is not None
    with process.stderr:
        assert "Traceback" not in process.stderr.read()

"""The same application on Ray Serve: two replicas, and one of them killed in the middle."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from diffinity.errors import InvalidArgument
from diffinity.serve import on_ray
from diffinity.serve.on_ray import Loading, application, start_on_ray, stop_on_ray
from diffinity.serve.settings import ServeSettings
from tests.serve.running import NAME, Client, free_port, tiny_model

pytestmark = pytest.mark.filterwarnings("default")  # Ray's own


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder: Path = tmp_path_factory.mktemp("ray") / NAME
    tiny_model().save_pretrained(folder)
    port = free_port()
    environment = {"env_vars": {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "OMP_NUM_THREADS": "1"}}
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env=environment,
    )
    try:
        settings = ServeSettings(model_name=NAME, max_batch=4)
        start_on_ray(Loading(str(folder)), settings, host="127.0.0.1", port=port, replicas=2)
        yield Client(port).wait()
        stop_on_ray()
    finally:
        ray.shutdown()


def replicas() -> list[psutil.Process]:
    """The processes of the replicas; Ray was started by this one."""
    return [process for process in psutil.Process().children(recursive=True) if is_replica(process)]


def is_replica(process: psutil.Process) -> bool:
    try:
        return "".join(process.cmdline()).startswith("ray::ServeReplica")
    except psutil.Error:  # it has just ended
        return False


def test_two_replicas_answer_and_stream(replicated: Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda i: replicated.complete(structured_outputs={"choice": ["yes", "no"]}, seed=i), range(16)
            )
        )
    assert all(status == 200 for status, _ in answers), answers
    assert {answer["choices"][0]["text"] for _, answer in answers} <= {"yes", "no"}
    body = {"structured_outputs": {"choice": ["yes"]}, "stream": True, "diffinity": {"steps": 4, "drafts": 1}}
    status, text, _ = replicated.post("/v1/completions", body)
    assert status == 200
    assert text.count("event: diffinity.draft") == 4
    assert text.strip().endswith("data: [DONE]")
    assert replicated.complete(bogus=1)[1]["error"]["param"] == "bogus"


def test_a_replica_that_is_killed_takes_only_its_own_requests_along(replicated: Client) -> None:
    first, _ = replicas()

    def ask(i: int) -> tuple[int, Any]:
        if i == 6:
            first.send_signal(signal.SIGKILL)
        return replicated.complete(structured_outputs={"choice": ["yes", "no"]}, seed=i, diffinity={"steps": 16})

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, range(40)))
    texts = [answer["choices"][0]["text"] for status, answer in answers if status == 200]
    failed = [(status, answer) for status, answer in answers if status != 200]
    assert set(texts) <= {"yes", "no"}
    assert all(status in (500, 502, 503) for status, _ in failed), failed
    assert len(texts) >= 40 - 8  # what one replica may have held


def test_a_config_file_names_model_and_settings() -> None:
    made = application({"model": "somewhere", "replicas": "3", "max_batch": "8"})
    assert made._bound_deployment.num_replicas == 3
    with pytest.raises(InvalidArgument, match="there is no setting 'batch'"):
        application({"batch": "8"})
    with pytest.raises(InvalidArgument, match="max_batch is 'many'"):
        application({"max_batch": "many"})


@pytest.mark.parametrize(("written", "value"), [("false", False), (False, False), ("true", True), (True, True)])
def test_booleans_of_a_config_file_may_be_strings(
    monkeypatch: pytest.MonkeyPatch, written: object, value: bool
) -> None:
    settings: list[ServeSettings] = []
    monkeypatch.setattr(on_ray, "deployment", lambda _, given, **__: settings.append(given))
    application({"ignore_prompt": written, "allowed_hosts": ["a.org", "b.org"]})
    assert settings[0].ignore_prompt is value
    assert settings[0].allowed_hosts == ("a.org", "b.org")


def test_a_deployment_that_is_slow_to_end_is_ended_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    def delete(name: str) -> None:
        raise TimeoutError(f"{name} was not deleted after 60s")

    monkeypatch.setattr("ray.serve.delete", delete)
    monkeypatch.setattr("ray.serve.shutdown", lambda: ended.append("serve"))
    stop_on_ray()
    assert ended == ["serve"]

"""Models by name, from a server on this machine that answers as the hub does: resumed, verified, offline."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from typer.testing import CliRunner

import diffinity as dy
from diffinity.cli import app
from diffinity.models import hub, known, langflow_import
from diffinity.models import transfer as transfer_module
from diffinity.models.hub import fetch_model
from diffinity.models.known import KNOWN
from tests.attacks.test_langflow_files import PUBLISHED
from tests.models.hub_server import HubServer, serve_hub, sha256
from tests.models.langflow_fixture import small_langflow

REPO, WORDS = "Continuous-Rivals-Discrete/langflow-owt", "openai-community/gpt2"
USAGE = namedtuple("USAGE", "total used free")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A small LangFlow as it is published: without a tokenizer, with code that nobody asked for."""
    folder = tmp_path_factory.mktemp("published")
    small_langflow(hidden_size=64).save_pretrained(folder)
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    contents["config.json"] = json.dumps(PUBLISHED).encode()
    contents["model.py"] = b"raise SystemExit('this code must not run')"
    return contents


@pytest.fixture
def server(files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with serve_hub() as state:
        published = {name: body for name, body in files.items() if name != "tokenizer.json"}
        state.publish(REPO, published)
        state.publish(WORDS, {"tokenizer.json": files["tokenizer.json"]})
        monkeypatch.setattr(constants, "ENDPOINT", state.address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", state.address + TEMPLATE)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(transfer_module, "BACKOFF_SECONDS", (0.0, 0.0, 0.0))
        monkeypatch.setattr(langflow_import, "TOKENIZERS", {292: WORDS})
        monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
        yield state


TEMPLATE = "/{repo_id}/resolve/{revision}/{filename}"


def storage(server: HubServer, files: dict[str, bytes]) -> str:
    """The path under which the storage has the weights."""
    return f"cdn/{sha256(files['model.safetensors'])}"


@pytest.mark.parametrize("name", [REPO, "langflow-owt"])
def test_a_model_is_fetched_by_its_name(server: HubServer, name: str) -> None:
    model = dy.load(name)
    assert isinstance(model, dy.LangFlowLM)
    assert model.start_token_id == model.eos_token_id == small_langflow().eos_token_id
    z = torch.randn(1, 4, 64, generator=torch.Generator().manual_seed(0))
    wanted = small_langflow(hidden_size=64).denoise(z, torch.tensor([5.0]), z)
    assert torch.equal(model.denoise(z, torch.tensor([5.0]), z), wanted)


def test_only_data_is_fetched(server: HubServer) -> None:
    folder = fetch_model(REPO)
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert not any(path.endswith(".py") for _, path, _ in server.hub_log)


def test_a_second_load_fetches_nothing(server: HubServer, files: dict[str, bytes]) -> None:
    dy.load("langflow-owt")
    transfers = len(server.transfers(storage(server, files)))
    dy.load("langflow-owt")
    assert len(server.transfers(storage(server, files))) == transfers == 1
    assert server.fetched("config.json") == 1


def test_progress_counts_up_to_the_size(server: HubServer, files: dict[str, bytes]) -> None:
    seen: list[tuple[str, int, int]] = []
    fetch_model(REPO, progress=lambda *news: seen.append(news))
    size = len(files["model.safetensors"])
    assert {(name, total) for name, _, total in seen} == {("model.safetensors", size)}
    counts = [done for _, done, _ in seen]
    assert counts == sorted(counts)
    assert counts[-1] == size


def test_a_cut_connection_is_resumed_where_it_broke(server: HubServer, files: dict[str, bytes]) -> None:
    server.cuts[storage(server, files)] = [10_000]
    fetch_model(REPO)
    assert [asked for asked, _ in server.transfers(storage(server, files))] == [None, "bytes=10000-"]


def test_the_next_run_resumes_what_an_earlier_one_began(server: HubServer, files: dict[str, bytes]) -> None:
    path = storage(server, files)
    server.cuts[path] = [10_000, 0, 0, 0]
    with pytest.raises(dy.DownloadError, match=r"10,000 bytes of .* have arrived and are kept"):
        fetch_model(REPO)
    server.log.clear()
    assert (fetch_model(REPO) / "model.safetensors").read_bytes() == files["model.safetensors"]
    assert [asked for asked, _ in server.transfers(path)] == ["bytes=10000-"]


def test_weights_with_another_hash_are_refused_and_removed(server: HubServer, files: dict[str, bytes]) -> None:
    changed = bytearray(files["model.safetensors"])
    changed[-1] ^= 1
    server.files[storage(server, files)] = bytes(changed)
    with pytest.raises(dy.DownloadError, match=f"the hub says {sha256(files['model.safetensors'])}: it was"):
        fetch_model(REPO)
    server.files[storage(server, files)] = files["model.safetensors"]
    assert isinstance(dy.load(REPO), dy.LangFlowLM)


def test_weights_of_another_size_are_refused(server: HubServer, files: dict[str, bytes]) -> None:
    server.files[storage(server, files)] = files["model.safetensors"][:-1]
    with pytest.raises(dy.DownloadError, match=r"first offered .* bytes and now sends"):
        fetch_model(REPO)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_cached_file_that_was_changed_is_refused(server: HubServer, name: str) -> None:
    blob = (fetch_model(REPO) / name).resolve()
    content = blob.read_bytes()
    blob.write_bytes(content[:-1] + b" }" if name == "config.json" else content[:-2] + b"zz")
    with pytest.raises(dy.CheckpointError, match="is not the file that the hub described"):
        dy.load(REPO)


def test_a_changed_tokenizer_is_refused(server: HubServer) -> None:
    dy.load(REPO)
    blob = hub.fetch_tokenizer(WORDS).resolve()
    blob.write_bytes(blob.read_bytes() + b"\n")
    with pytest.raises(dy.CheckpointError, match="is not the file that the hub described"):
        dy.load(REPO)


def test_offline_the_cache_is_enough(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    dy.load("langflow-owt")
    server.hub_log.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert isinstance(dy.load("langflow-owt"), dy.LangFlowLM)
    assert server.hub_log == []


@pytest.mark.parametrize("name", ["langflow-owt", "plaid-1b", REPO])
def test_offline_nothing_is_fetched(
    server: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("DIFFINITY_HOME", str(tmp_path / "home"))
    with pytest.raises(dy.CheckpointError, match="not on this machine, and HF_HUB_OFFLINE forbids to fetch it"):
        dy.load(name)
    assert server.hub_log == []


def test_a_hub_that_is_down_does_not_matter_to_what_is_cached(server: HubServer) -> None:
    dy.load("langflow-owt")
    server.down = True
    assert isinstance(dy.load("langflow-owt"), dy.LangFlowLM)


def test_an_unknown_model_is_one_sentence(server: HubServer) -> None:
    with pytest.raises(dy.CheckpointError, match="'nobody/nothing' is neither a folder here nor a model"):
        dy.load("nobody/nothing")


def test_a_full_disk_is_noticed_before_the_transfer(
    server: HubServer, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: USAGE(1, 1, 1000))
    with pytest.raises(dy.DownloadError, match="1,000 bytes free: nothing was fetched"):
        fetch_model(REPO)
    assert server.transfers(storage(server, files)) == []


def test_the_user_s_token_goes_to_the_hub_only(server: HubServer) -> None:
    """The server fails if the storage, where the hub redirects, is shown the token."""
    fetch_model(REPO, token="hf_secret")
    asked = {authorization for _, path, authorization in server.hub_log if path.endswith("model.safetensors")}
    assert asked == {"Bearer hf_secret"}


def test_known_models_say_whether_they_are_here(server: HubServer) -> None:
    assert not KNOWN["langflow-owt"].is_here
    known.known_folder("langflow-owt")
    assert KNOWN["langflow-owt"].is_here
    assert not KNOWN["langflow-lm1b"].is_here


def test_a_folder_of_that_name_comes_first(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dy.fit_markov(["a b."]).save_pretrained("langflow-owt")
    assert isinstance(dy.load("langflow-owt"), dy.MarkovLM)
    assert server.hub_log == []


def test_the_command_line_fetches_and_lists(server: HubServer, tmp_path: Path) -> None:
    run = CliRunner().invoke
    fetched = run(app, ["download", "langflow-owt"])
    assert fetched.exit_code == 0
    assert "langflow-owt is in" in fetched.stdout
    listing = run(app, ["models"], env={"COLUMNS": "200"}).stdout
    rows = [[cell.strip() for cell in line.split("│")] for line in listing.splitlines() if "│" in line]
    listed = {row[1]: (row[3], row[4], row[5]) for row in rows if row[1]}
    assert listed["langflow-owt"] == ("683.2 MB", "Apache-2.0", "yes")
    assert listed["langflow-lm1b"] == ("561.9 MB", "Apache-2.0", "no")
    assert "plaid-1b" in listed


def test_the_command_line_writes_a_folder(server: HubServer, tmp_path: Path) -> None:
    written = CliRunner().invoke(app, ["download", "langflow-owt", "--out", str(tmp_path / "model")])
    assert written.exit_code == 0
    assert isinstance(dy.load(tmp_path / "model"), dy.LangFlowLM)
    again = CliRunner().invoke(app, ["download", "langflow-owt", "--out", str(tmp_path / "model")])
    assert again.exit_code == 2


def test_generate_takes_a_name_and_the_hub_s_environment_variables(
    server: HubServer, files: dict[str, bytes], tmp_path: Path
) -> None:
    """As a user runs it, in a process of its own."""
    server.repositories[REPO]["tokenizer.json"] = files["tokenizer.json"]  # this vocabulary has not gpt2's size
    asked = ["--model", "langflow-owt", "--regex", "the [a-z]+", "--length", "8", "--steps", "4"]
    done = subprocess.run(
        [sys.executable, "-m", "diffinity.cli", "generate", *asked],
        env=os.environ
        | {"HF_ENDPOINT": server.address, "HF_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the ")
    assert list((tmp_path / "home" / "hub").glob("models--Continuous-*/blobs/*"))

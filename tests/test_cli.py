"""The command line as a user meets it: a separate process, its output and its exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import diffinity as dy
from tests.models.test_checkpoints import tiny_plaid, write_plaid_files


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "diffinity.cli", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "corpus.txt").write_text("the cat sat on the mat.\nthe dog sat on the rug.\n")
    result = run("train", "corpus.txt", "--kind", "markov", "--out", "model", "--order", "1", cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder / "model"


def test_a_markov_model_of_one_s_own_text_generates(model: Path) -> None:
    result = run("generate", "--model", str(model), "-n", "3", "--length", "12", "--steps", "60")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("the ") for line in lines)


def test_json_lines_have_text_tokens_and_seed(model: Path) -> None:
    result = run("generate", "--model", str(model), "-n", "2", "--length", "8", "--steps", "20", "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["seed"] for row in rows] == [[0, 0], [0, 1]]
    assert all(len(row["tokens"]) == 8 and row["finish_reason"] == "complete" for row in rows)


def test_constraints_are_combined(model: Path) -> None:
    options = (
        "--regex",
        "the [a-z]+ sat on [a-z ]+.",
        "--not-regex",
        ".*cat.*",
        "--length",
        "14",
        "--steps",
        "30",
    )
    result = run("generate", "--model", str(model), *options, "-n", "3")
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 3
    for line in result.stdout.splitlines():
        assert re.fullmatch("the [a-z]+ sat on [a-z ]+.", line)
        assert "cat" not in line


def test_an_impossible_length_names_the_shortest(model: Path) -> None:
    result = run("generate", "--model", str(model), "--regex", "x{20}", "--length", "5")
    assert result.returncode == 1
    assert "the shortest has" in result.stderr


def test_inspect_shows_sizes_and_texts(tmp_path: Path) -> None:
    result = run("inspect", "--choice", "cat", "--choice", "cut", "--svg", "a.svg", cwd=tmp_path)
    assert "4 states" in result.stdout
    assert "'cat'" in result.stdout
    assert (tmp_path / "a.svg").read_text().startswith("<svg")


def test_a_prompt_is_followed(model: Path) -> None:
    options = ("--prompt", "the dog", "--length", "12", "--steps", "60", "-n", "4")
    result = run("generate", "--model", str(model), *options)
    assert all(line.startswith("the dog") for line in result.stdout.splitlines())


def test_corpus_is_the_same_for_the_same_seed() -> None:
    one, two, other = (run("corpus", "--seed", seed, "--documents", "20").stdout for seed in ("1", "1", "2"))
    assert one == two != other
    assert all(json.loads(line)["text"] for line in one.splitlines())
    assert len(one.splitlines()) == 20


def test_import_plaid_writes_a_model_folder(tmp_path: Path) -> None:
    write_plaid_files(tmp_path / "weights", tiny_plaid())
    words = str(tmp_path / "weights" / "tokenizer.json")
    result = run("import-plaid", str(tmp_path / "weights"), "--tokenizer", words, "--out", str(tmp_path / "model"))
    assert result.returncode == 0, result.stderr
    t = torch.linspace(0, 1, 5)
    assert torch.equal(dy.load(tmp_path / "model").gamma(t), tiny_plaid().gamma(t))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate", "--model", "no/such/folder"), "there is no model at 'no/such/folder'"),
        (("generate", "--model", "nobody/nothing"), "neither a folder here nor a model that the hub gave"),
        (("import-plaid", "nowhere", "--tokenizer", "t.json", "--out", "x"), "model.pt is missing"),
        (("download", "plaid-9b", "--out", "x"), "plaid-1b"),
        (("train", "nowhere.txt"), "there is no data file 'nowhere.txt'"),
        (("train", "--kind", "gpt", "--out", "x"), "kind must be plaid"),
        (("corpus", "--split", "test"), "split must be train or validation"),
        (("generate", "--sideways"), "No such option: --sideways"),
        (("generate", "--regex", "a(b"), "missing ), unterminated subpattern"),
        (("generate", "--json-schema", "nowhere.json"), "nowhere.json can't be read"),
        (("generate", "--type", "nowhere"), "--type takes module:Name"),
        (("generate", "--type", "json:Nothing"), "has no 'Nothing'"),
        (("inspect",), "give a constraint"),
    ],
)
def test_bad_input_gives_one_sentence_and_a_failing_exit(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    result = run(*arguments, cwd=tmp_path)
    assert result.returncode != 0
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_an_unknown_method_is_refused(model: Path) -> None:
    result = run("generate", "--model", str(model), "--method", "euler")
    assert result.returncode == 1
    assert "method must be 'ancestral' or 'ddim'" in result.stderr


def test_help_names_every_command() -> None:
    shown = run("--help").stdout
    for command in ("generate", "inspect", "demo", "train", "corpus", "import-plaid", "download"):
        assert command in shown

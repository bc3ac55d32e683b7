"""What the command line says when a package, a right or the disk is missing."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from importlib import util
from pathlib import Path

import pytest
from typer.testing import CliRunner

import diffinity as dy
from diffinity import errors
from diffinity.cli import app
from diffinity.errors import MissingExtra, require


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Packages of the extras look as if they were not installed."""
    hidden = {"accelerate", "jsonschema_rs"}
    monkeypatch.setattr(errors, "find_spec", lambda name: None if name in hidden else util.find_spec(name))
    return monkeypatch


def test_a_missing_package_names_the_extra() -> None:
    with pytest.raises(MissingExtra, match=r"training needs nothing_here: pip install 'diffinity\[train\]'"):
        require("train", "training", "json", "nothing_here")


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [(["train", "--out", "run"], "train"), (["bench", "run", "json", "--out", "run", "--quick"], "bench")],
)
def test_commands_refuse_before_they_do_anything(
    arguments: list[str], extra: str, without: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without.chdir(tmp_path)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert f"pip install 'diffinity[{extra}]'" in " ".join(result.stderr.split())
    assert not list(tmp_path.iterdir())


def test_a_width_that_does_not_divide_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a b c.\n" * 20)
    result = CliRunner().invoke(
        app, ["train", str(tmp_path / "t.txt"), "--out", str(tmp_path / "r"), "--dim", "130"]
    )
    assert result.exit_code == 1
    assert "dim must be n_heads times an even number" in " ".join(result.stderr.split())


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "t.txt").write_text("a b c.\n" * 20)
    result = CliRunner().invoke(app, ["train", str(tmp_path / "t.txt"), "--out", str(tmp_path / "file" / "run")])
    assert result.exit_code == 1
    assert "Not a directory" in result.stderr
    assert "Traceback" not in result.stderr


def test_weights_can_be_read_by_others_as_the_user_wants_it(tmp_path: Path) -> None:
    dy.fit_markov(["a b."]).save_pretrained(tmp_path)
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "model.safetensors").stat().st_mode) == 0o666 & ~mask


def test_ctrl_c_in_training_says_so_keeps_the_checkpoint_and_exits_with_130(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("".join(f"the cat number {i} sat.\n" for i in range(200)))
    options = ["--dim", "16", "--n-blocks", "1", "--n-heads", "1", "--embed-dim", "4", "--length", "16"]
    command = [sys.executable, "-m", "diffinity.cli", "train", "t.txt", "--out", "run", "--vocab-size", "300"]
    process = subprocess.Popen(
        [*command, *options, "--batch-tokens", "64", "--steps", "1000000"],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for _ in range(600):
        if (tmp_path / "run" / "metrics.jsonl").exists():
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "stopping: finishing the step" in said
    assert "the same command goes on" in " ".join(said.split())
    assert (tmp_path / "run" / "checkpoint" / "state.safetensors").is_file()

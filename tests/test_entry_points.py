"""The entry points (commands, Python, server): shared behaviour, and errors when something is missing."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import fields
from importlib import util
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

import diffinity as dy
from diffinity import errors
from diffinity.batch import run_batch
from diffinity.batch.answers import answer_lines
from diffinity.batch.lines import Line
from diffinity.cli import COMMANDS, app
from diffinity.errors import MissingExtra, require
from diffinity.limits import Limits


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
    assert result.exit_code == 2
    assert "--dim must be --n-heads times an even number" in " ".join(result.stderr.split())
    assert not (tmp_path / "r").exists()


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
    assert "the same command resumes" in " ".join(said.split())
    assert (tmp_path / "run" / "checkpoint" / "state.safetensors").is_file()


MODEL = dy.fit_markov(["the cat sat.", "the dog ran.", '{"n": 1}', '{"n": 2}'])
SMALL = ("--length", "12", "--steps", "6")
REQUEST = '{"id": 1, "regex": "the [a-z]+ [a-z]+.", "length": 12, "steps": 4}\n'
PETS = """
from pydantic import BaseModel, Field, field_validator

class Even(BaseModel):
    n: int = Field(ge=1, le=9)

    @field_validator("n")
    @classmethod
    def even(cls, n):
        assert n % 2 == 0, "must be even"
        return n
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and files to ask with, and the current one."""
    MODEL.save_pretrained(tmp_path / "model")
    (tmp_path / "in.jsonl").write_text(REQUEST * 2)
    (tmp_path / "entry_point_pets.py").write_text(PETS)
    (tmp_path / "rules.ebnf").write_text('text = "the " animal "."; animal = "cat" | "(" animal ")";')
    (tmp_path / "schema.json").write_text('{"type": "object", "properties": {"a": {"const": 1}}}')
    (tmp_path / "strange.json").write_text('{"type": "string", "contentEncoding": 3, "$ref": "http://x.org/y"}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def said(result: Result) -> str:
    return " ".join(result.stderr.split())


def generate(*arguments: str) -> Result:
    return run("generate", "--model", "model", *SMALL, *arguments)


def test_a_grammar_is_a_file_on_the_command_line(folder: Path) -> None:
    assert generate("--grammar", "rules.ebnf", "--regex", ".*[(].*").stdout == "the (cat).\n"
    result = generate("--grammar", "rules.ebnf", "--grammar-depth", "0", "--regex", ".*[(].*")
    assert result.exit_code == 2
    assert "'the cat.'" in run("inspect", "--grammar", "rules.ebnf").stdout


def test_every_limit_has_a_flag_and_errors_name_it(folder: Path) -> None:
    for limit in fields(Limits):
        result = run("inspect", "--regex", "(ab|c){2,9}", "--limit", f"{limit.name}=1000000000000")
        assert result.exit_code == 0, result.output
        assert limit.name in "".join(run("inspect", "--help").stdout.replace("│", "").split())
    for command in (("inspect",), ("generate", "--model", "model")):
        result = run(*command, "--regex", "(ab|c){2,9}", "--limit", "dfa_states=3")
        assert result.exit_code == 2
        assert "or raise the limit: --limit dfa_states=N" in said(result)
    assert run("inspect", "--regex", "(ab|c){2,9}").exit_code == 0  # a limit ends with its command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--limit", "dfa_states"), "--limit takes NAME=VALUE, not 'dfa_states'"),
        (("--limit", "patience=3"), "there is no limit 'patience': there are pattern_length"),
        (("--limit", "dfa_states=0"), "--limit dfa_states takes a whole number above 0, not 0"),
        (("--limit", "dfa_states=1.5"), "--limit dfa_states takes a whole number above 0, not 1.5"),
        (("--schema-option", "open=true"), "schema options need a JSON Schema, but none was given"),
        (("--json-schema", "schema.json", "--schema-option", "opened=true"), "there is no schema option 'opened'"),
        (("--json-schema", "schema.json", "--schema-option", "open=yes"), "open must be true or false"),
        (("--json-schema", "strange.json"), "--schema-option lenient=true"),
        (("--regex", "z{1500}"), "the shortest has 1501"),
        (("--guidance", "foo"), "--guidance must be one of"),
        (("--cfg-scale", "1"), "--cfg-scale is an option of a model of tokens"),
        (("--prompt", "Hello"), "reads no prompt: --prefix is how the output starts"),
        (("--deadline", "inf"), "--deadline must be a finite number"),
        (("--grammar", "gone.ebnf"), "gone.ebnf can't be read"),
        (("--retry-invalid", "-1"), "retry-invalid"),
        (("--retry-invalid", "1", "--trace", "t.html"), "--trace replays one attempt"),
    ],
    ids=str,
)
def test_wrong_values_exit_with_2_in_the_words_of_the_command_line(
    arguments: tuple[str, ...], message: str, folder: Path
) -> None:
    result = run("generate", "--model", "model", "--steps", "2", *arguments)
    assert result.exit_code == 2, result.output
    assert message in said(result)
    assert not re.search(r"lenient=True|use_limits|cfg_scale|prefix=", said(result))


def test_a_default_length_that_does_not_do_names_the_flag(folder: Path) -> None:
    result = run("generate", "--model", "model", "--steps", "2", "--regex", "z{1500}")
    assert "(64 is the model's default length: choose another with --length, or --length auto for" in said(result)


def test_a_schema_option_reaches_the_schema(folder: Path) -> None:
    options = ("--json-schema", "schema.json", "--samples", "0")
    closed, opened = (
        run("inspect", *options).stdout,
        run("inspect", *options, "--schema-option", "open=true").stdout,
    )
    assert "finitely many" in closed
    assert "infinitely many" in opened


def test_values_that_a_type_refuses_are_said_and_written_anew(folder: Path) -> None:
    options = ("--type", "entry_point_pets:Even", "-n", "8", "--decode", "sample")
    result = generate(*options)
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 8
    assert re.search(
        r"\d of 8 texts are no value of entry_point_pets:Even: n: Assertion failed, must be even", said(result)
    )
    rows = [json.loads(line) for line in generate(*options, "--json").stdout.splitlines()]
    assert any("must be even" in row.get("value_error", "") for row in rows)
    again = generate(*options, "--retry-invalid", "40")
    assert again.stderr == ""
    assert all(json.loads(line)["n"] % 2 == 0 for line in again.stdout.splitlines())


def answers(*requests: dict[str, object], modules: Sequence[str] = ()) -> list[dict[str, Any]]:
    lines = [
        Line(i, json.dumps({"length": 12, "steps": 4, **request}).encode())
        for i, request in enumerate(requests, 1)
    ]
    return list(answer_lines(MODEL, lines, modules=modules))


def test_a_batch_has_types_grammars_deadlines_and_options_of_schemas(folder: Path) -> None:
    rows = answers(
        {"type": "entry_point_pets:Even", "n": 6, "decode": "sample"},
        {"type": "entry_point_pets:Even", "n": 6, "decode": "sample", "retry_invalid": 40},
        {"grammar": 'text = "the " ("cat" | "dog") " sat."'},
        {"regex": "the [a-z ]+.", "deadline": 0.2, "steps": 100_000_000},
        {"json_schema": {"type": "object"}, "schema_options": {"open": True}, "n": 2},
        {"json_schema": {"type": "object"}, "schema_options": {"opened": True}},
        {"schema_options": {"open": True}},
        {"guidance": "foo"},
        {"deadline": -1},
        {"regex": "z{100}", "length": None},
        modules=["entry_point_pets"],
    )
    assert any("must be even" in (reason or "") for reason in rows[0]["value_error"])
    assert len(rows[0]["texts"]) == 6
    assert "value_error" not in rows[1]
    assert all(json.loads(text)["n"] % 2 == 0 for text in rows[1]["texts"])
    assert rows[2]["texts"][0] in ("the cat sat.", "the dog sat.")
    assert rows[3]["finish_reason"] == ["deadline"]
    assert all(rows[4]["satisfied"])
    assert "there is no schema option 'opened'" in rows[5]["error"]
    assert "none was given" in rows[6]["error"]
    assert "guidance must be one of" in rows[7]["error"]
    assert "deadline must be a finite number of seconds, at least 0" in rows[8]["error"]
    assert rows[9]["texts"] == ["z" * 100]


def test_a_request_imports_only_what_is_allowed(folder: Path) -> None:
    (folder / "doors_marker.py").write_text("raise SystemError('was imported')")
    (row,) = answers({"type": "doors_marker:Thing"}, modules=["entry_point_pets"])
    assert row["error"] == (
        "type doors_marker:Thing: importing runs code, so allow it first: --import doors_marker"
    )


def process(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen([sys.executable, "-m", "diffinity.cli", *arguments], env=environment, **options)


@pytest.mark.parametrize("places", [("in.jsonl", "/dev/stdout"), ("-", "-")], ids=str)
def test_a_batch_passes_through_pipes(places: tuple[str, str], folder: Path) -> None:
    pipe = subprocess.PIPE
    running = process("batch", *places, "--model", "model", stdin=pipe, stdout=pipe, stderr=pipe)
    out, errors = running.communicate(REQUEST.encode() * 2 if places[0] == "-" else None, timeout=300)
    assert running.returncode == 0, errors
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["line"] for row in rows] == [1, 2]
    assert all(re.fullmatch("the [a-z]+ [a-z]+.", row["texts"][0]) for row in rows)
    assert b"2 results, 0 of them errors" in errors


def test_requests_from_a_stream_go_on_where_the_last_run_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_batch("in.jsonl", "whole.jsonl", "model")
    first, second = (folder / "whole.jsonl").read_text().splitlines(keepends=True)
    for done, resumed in (("", 0), (first, 1), (first + second[:40], 1), (first + second, 2)):
        (folder / "out.jsonl").write_text(done)
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(REQUEST.encode() * 2)))
        summary = run_batch("-", "out.jsonl", "model")
        assert (summary.total, summary.resumed) == (whole.total, resumed)
        assert (folder / "out.jsonl").read_text() == first + second


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("batch", "in.jsonl", "-", "--model", "model")],
    ids=str,
)
def test_output_that_can_not_be_written_is_one_sentence(arguments: tuple[str, ...], folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        running = process(*arguments, stdout=full, stderr=subprocess.PIPE)
        _, errors = running.communicate(timeout=300)
    assert running.returncode == 1
    assert errors.decode().split("\n") == ["error: No space left on device", ""]


def test_a_trace_is_written_whole_or_not_at_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "kept.html").write_text("as it was")

    def half(path: Path, text: str, **_: Any) -> int:
        with path.open("w") as file:
            file.write(text[: len(text) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", half)
    before = sorted(path.name for path in folder.iterdir())
    for name in ("kept.html", "new.html"):
        result = generate("--trace", name)
        assert result.exit_code == 1
        assert f"{name} can't be written: No space left on device" in said(result)
    assert sorted(path.name for path in folder.iterdir()) == before
    assert (folder / "kept.html").read_text() == "as it was"


START = """
import sys
from diffinity import start

class Told:  # of the first import
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "diffinity.cli":
            print("ready", flush=True)

sys.meta_path.insert(0, Told)
sys.argv = ["diffinity", "generate", "--model", "model", "--steps", "100000"]
start.main()
"""


@pytest.mark.parametrize("after", [0.0, 0.5, 2.0])
def test_ctrl_c_in_the_first_seconds_is_one_word(after: float, folder: Path) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", START],
        stdout=pipe, stderr=pipe, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        time.sleep(after)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=100)
    assert running.returncode == 130, errors
    assert re.fullmatch(r"interrupted(: 0 of 1 texts were written)?\n", errors), errors


def test_plots_that_are_missing_are_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diffinity.bench.plots.available", lambda: False)
    monkeypatch.setattr("diffinity.bench.report.write_report", lambda *_, **__: [])
    result = run("bench", "report", "somewhere", "--out", "report")
    assert "no plots: they need matplotlib, pip install 'diffinity[bench]'" in said(result)


def commands() -> list[tuple[str, ...]]:
    groups = {"bench": ("run", "join", "report", "compare", "systems"), "corpus": ("build", "show", "sources")}
    return [(name, inner) if inner else (name,) for name in COMMANDS for inner in groups.get(name, ("",))]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_shows_an_example_and_says_what_each_option_means(command: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200"}).stdout
    assert f"Example: diffinity {' '.join(command)}" in " ".join(shown.replace("echo", "").split())
    made: Any = typer.main.get_command(app)
    for name in command:
        made = made.commands[name]
    for parameter in made.params:
        assert getattr(parameter, "help", None), parameter.name
        if isinstance(parameter.default, int | float) and not isinstance(parameter.default, bool):
            assert f"default: {parameter.default}" in shown, parameter.name


def test_verbose_shows_the_log_of_one_logger(folder: Path) -> None:
    logger = logging.getLogger("diffinity")
    before = logger.handlers[:], logger.level
    try:
        result = run("--verbose", "generate", "--model", "model", "--steps", "2", "--regex", "z{100}")
        assert "diffinity.models: reading a model of kind markov" in said(result)
        assert "diffinity.generation: the constraint does not fit the model's 64 tokens" in said(result)
    finally:
        logger.handlers[:], logger.level = before

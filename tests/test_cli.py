"""The command line as a user meets it: what it prints, what it says of bad input, and its exit code."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner, Result

import diffinity as dy
from diffinity.cli import app
from diffinity.commands.console import visible
from diffinity.generation import generate
from tests.models.test_checkpoints import tiny_plaid, write_plaid_files

SMALL = ("--length", "14", "--steps", "12")


def run(*arguments: str | Path) -> Result:
    """One command, in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def process(*arguments: str | Path, cwd: Path) -> subprocess.Popen[str]:
    """One command as a process of its own: what `main` adds, and signals."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "diffinity.cli", *map(str, arguments)]
    pipe = subprocess.PIPE

    def heed_interrupts() -> None:  # a shell starts background jobs with SIGINT ignored, which children inherit
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, cwd=cwd, env=environment, preexec_fn=heed_interrupts
    )


def refused(result: Result, message: str, code: int = 2) -> None:
    """The command failed with one sentence and no traceback."""
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "corpus.txt").write_text("the cat sat on the mat.\nthe dog sat on the rug.\n")
    options = ("--kind", "markov", "--out", folder / "model", "--order", "1")
    result = run("train", folder / "corpus.txt", *options)
    assert result.exit_code == 0, result.output
    return folder / "model"


def test_a_markov_model_of_one_s_own_text_generates(model: Path) -> None:
    result = run("generate", "--model", model, "-n", "3", "--length", "12", "--steps", "60")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("the ") for line in lines)
    assert result.stderr == ""


def test_json_lines_have_text_tokens_and_seed(model: Path) -> None:
    result = run("generate", "--model", model, "-n", "2", "--length", "8", "--steps", "20", "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["seed"] for row in rows] == [[0, 0], [0, 1]]
    assert all(len(row["tokens"]) == 8 and row["finish_reason"] == "complete" for row in rows)


def test_json_has_no_number_that_json_lacks(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = dy.Generated("a", False, (1,), (-float("inf"), -2.0), -float("inf"), (0, 0), "complete")
    monkeypatch.setattr(dy.Generator, "__call__", lambda *_, **__: [found])
    result = run("generate", "--model", model, "--json")
    row = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(name))
    assert row["log_acceptance"] == [None, -2.0]
    assert row["log_p_text"] is None


def test_constraints_are_combined(model: Path) -> None:
    options = ("--regex", "the [a-z]+ sat on [a-z ]+.", "--not-regex", ".*cat.*")
    result = run("generate", "--model", model, *options, *SMALL, "-n", "3")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 3
    for line in result.stdout.splitlines():
        assert re.fullmatch("the [a-z]+ sat on [a-z ]+.", line)
        assert "cat" not in line


def test_a_schema_file_a_type_and_a_word(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "schema.json").write_text('{"type": "integer", "minimum": 7, "maximum": 9}')
    (tmp_path / "answers.py").write_text("import enum\n\nclass Answer(enum.Enum):\n    YES = 'yes'\n")
    monkeypatch.chdir(tmp_path)
    assert int(run("generate", "--model", model, "--json-schema", "schema.json", *SMALL).stdout) in (7, 8, 9)
    assert run("generate", "--model", model, "--type", "answers:Answer", *SMALL).stdout == "yes\n"
    assert " dog " in run("generate", "--model", model, "--contains", "dog", *SMALL).stdout


def test_a_length_of_its_own(model: Path) -> None:
    result = run("generate", "--model", model, "--regex", "[a-z]{30}", "--length", "auto", "--steps", "8")
    assert result.exit_code == 0, result.output
    assert re.fullmatch("[a-z]{30}\n", result.stdout)


def test_argmax_says_how_many_missed(model: Path) -> None:
    options = ("--regex", "x{9}", "--decode", "argmax", "--guidance", "none", "-n", "2")
    result = run("generate", "--model", model, *options, *SMALL)
    assert result.exit_code == 0
    assert "2 of 2 texts do not satisfy the constraint" in result.stderr


def test_a_prefix_is_followed(model: Path) -> None:
    result = run("generate", "--model", model, "--prefix", "the dog", "--length", "12", "--steps", "60", "-n", "4")
    assert all(line.startswith("the dog") for line in result.stdout.splitlines())


def test_a_trace_says_what_was_asked(model: Path, tmp_path: Path) -> None:
    page = tmp_path / "trace.html"
    result = run("generate", "--model", model, "--regex", "the <?[a-z ]+.", *SMALL, "--trace", page)
    assert result.exit_code == 0, result.output
    assert re.fullmatch("the [a-z ]+.\n", result.stdout)
    (line,) = re.findall(r"^const trace = (.*);$", page.read_text(), flags=re.MULTILINE)
    data = json.loads(line)
    assert data["constraint"] == [["matches the regular expression", "the <?[a-z ]+."]]
    assert (data["settings"]["steps"], data["settings"]["length"]) == ("12", "14")
    assert len(data["samples"][0]["frames"]) == 12


def test_a_terminal_sees_the_draft_sharpen_and_no_control_character(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = StringIO()
    console = Console(file=seen, force_terminal=True, width=80)
    monkeypatch.setattr("diffinity.commands.generate.out", console)
    constraint = r"the dog \x1b[a-z ]+."
    result = run("generate", "--model", model, "--regex", constraint, *SMALL)
    assert "denoising: step 12 of 12" in seen.getvalue()
    assert "log P(L)" in seen.getvalue()
    assert re.fullmatch("the dog ␛[a-z ]+.\n", result.stdout)
    assert visible("a\rb\x9bc") == "a␍b�c"


def test_inspect_shows_sizes_and_texts(tmp_path: Path, model: Path) -> None:
    options = ("--choice", "cat", "--choice", "cut", "--svg", tmp_path / "a.svg")
    result = run("inspect", *options, "--tokenizer", model / "tokenizer.json")
    assert result.exit_code == 0, result.output
    assert "4 states" in result.stdout
    assert "'cat'" in result.stdout
    assert "fewest tokens" in result.stdout
    assert (tmp_path / "a.svg").read_text().startswith("<svg")


def test_inspect_of_what_nothing_satisfies() -> None:
    assert "no text at all" in run("inspect", "--regex", "a", "--not-regex", "a").stdout


def test_corpus_is_the_same_for_the_same_seed() -> None:
    one, two, other = (
        run("corpus", "show", "--seed", seed, "--documents", "20").stdout for seed in ("1", "1", "2")
    )
    assert one == two != other
    assert all(json.loads(line)["text"] for line in one.splitlines())
    assert len(one.splitlines()) == 20


def test_import_plaid_writes_a_model_folder(tmp_path: Path) -> None:
    write_plaid_files(tmp_path / "weights", tiny_plaid())
    words = tmp_path / "weights" / "tokenizer.json"
    result = run("import-plaid", tmp_path / "weights", "--tokenizer", words, "--out", tmp_path / "model")
    assert result.exit_code == 0, result.output
    t = torch.linspace(0, 1, 5)
    assert torch.equal(dy.load(tmp_path / "model").noise_level(t), tiny_plaid().noise_level(t))


@pytest.fixture
def files(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one of each wrong file, and the current one."""
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "latin.json").write_bytes(b'{"title": "caf\xe9"}')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "unknown.json").write_text('{"type": "colour"}')
    (tmp_path / "in.jsonl").write_text('{"regex": "a", "length": 4, "steps": 2}\n')
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "model").symlink_to(model)
    for name, file, content in (
        ("no config", "config.json", None),
        ("bad config", "config.json", b"{"),
        ("other kind", "config.json", b'{"kind": "gpt"}'),
        ("no weights", "model.safetensors", None),
        ("short weights", "model.safetensors", b"\0" * 20),
        ("no tokenizer", "tokenizer.json", None),
    ):
        shutil.copytree(model, tmp_path / name)
        if content is None:
            (tmp_path / name / file).unlink()
        else:
            (tmp_path / name / file).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


GENERATE = ("generate", "--model", "model")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*GENERATE, "--regex", "a(b"), "missing ), unterminated subpattern"),
        ((*GENERATE, "--regex", r"(a)\1"), "error: "),
        ((*GENERATE, "--regex", "x{20}", "--length", "5"), "no sequence of 5 tokens satisfies the constraint"),
        ((*GENERATE, "--regex", "a", "--not-regex", "a"), "error: no "),
        ((*GENERATE, "--json-schema", "gone.json"), "gone.json can't be read: No such file or directory"),
        ((*GENERATE, "--json-schema", "empty"), "empty can't be read: Is a directory"),
        ((*GENERATE, "--json-schema", "latin.json"), "latin.json can't be read: it is not UTF-8 text (byte 14)"),
        ((*GENERATE, "--json-schema", "bad.json"), "the schema is not JSON"),
        ((*GENERATE, "--json-schema", "list.json"), "a schema is an object or a boolean"),
        ((*GENERATE, "--json-schema", "unknown.json"), "colour"),
        ((*GENERATE, "--contains", "two words"), "'two words' is not one word"),
        ((*GENERATE, "--type", "nowhere"), "--type takes module:Name, not 'nowhere'"),
        ((*GENERATE, "--type", "nowhere:Thing"), "importing 'nowhere' failed with ModuleNotFoundError"),
        ((*GENERATE, "--type", "json:Nothing"), "the module 'json' has no 'Nothing'"),
        ((*GENERATE, "--type", "broken:Thing"), "importing 'broken' failed with ZeroDivisionError"),
        ((*GENERATE, "--type", "json:dumps"), "no constraint for <function dumps"),
        ((*GENERATE, "--regex", "a", "--guidance", "magic"), "--guidance must be one of auto"),
        ((*GENERATE, "--regex", "a", "--decode", "beam"), "--decode must be"),
        ((*GENERATE, "--regex", "a", "--method", "euler"), "--method must be 'ancestral' or 'ddim'"),
        ((*GENERATE, "--regex", "a", "--scale", "nan"), "--scale must be a finite number, but is nan"),
        ((*GENERATE, "--regex", "a", "--scale", "-1"), "--scale must be a finite number"),
        ((*GENERATE, "--score-temp", "0"), "--score-temp must be a finite number above 0"),
        ((*GENERATE, "--length", "long"), "--length takes a number of tokens, at least 1, or auto"),
        ((*GENERATE, "--length", "0"), "--length takes a number of tokens, at least 1, or auto"),
        ((*GENERATE, "--length", "999999999999"), "GB of memory"),
        ((*GENERATE, "-n", "99999999999999"), "GB of memory"),
        ((*GENERATE, "--device", "abacus"), "--device abacus can't be used"),
        ((*GENERATE, "--trace", "gone/t.html"), "gone/t.html can't be written: there is no folder gone"),
        ((*GENERATE, "--trace", "empty"), "empty can't be written: it is a folder"),
        (("generate", "--model", "no/such/folder"), "there is no model at 'no/such/folder'"),
        (("generate", "--model", "empty"), "there is no config.json"),
        (("generate", "--model", "no config"), "there is no config.json"),
        (("generate", "--model", "bad config"), "is not valid JSON"),
        (("generate", "--model", "other kind"), "unknown kind 'gpt'"),
        (("generate", "--model", "no weights"), "model.safetensors is missing"),
        (("generate", "--model", "short weights"), "it is truncated or changed"),
        (("generate", "--model", "no tokenizer"), "tokenizer.json is missing"),
        (("inspect",), "give a constraint"),
        (("inspect", "--regex", "[z-a]"), "bad character range"),
        (("inspect", "--regex", "a", "--framing", "loose"), "--framing must be one of"),
        (("inspect", "--regex", "a", "--tokenizer", "gone.json"), "there is no tokenizer file gone.json"),
        (("inspect", "--regex", "a", "--tokenizer", "bad.json"), "is not a tokenizers JSON file"),
        (("inspect", "--regex", "a", "--svg", "gone/a.svg"), "there is no folder gone"),
        (("inspect", "--json-schema", "unknown.json"), "colour"),
        (("inspect", "--regex", "a{9999999}"), "the limit is"),
        (("batch", "gone.jsonl", "out.jsonl"), "gone.jsonl can't be read: No such file or directory"),
        (("batch", "in.jsonl", "gone/out.jsonl"), "out.jsonl can't be written: No such file or directory"),
        (("batch", "in.jsonl", "in.jsonl"), "holds the requests"),
        (("batch", "in.jsonl", "list.json"), "result of this command: name another file"),
        (("batch", "in.jsonl", "out.jsonl", "--model", "empty"), "there is no config.json"),
        (("batch", "in.jsonl", "out.jsonl", "--model", "short weights"), "it is truncated or changed"),
        (("batch", "in.jsonl", "out.jsonl", "--device", "cuda:77"), "--device cuda:77 can't be used"),
        (("import-plaid", "nowhere", "--tokenizer", "t.json", "--out", "x"), "model.pt is missing"),
        (("download", "plaid-9b", "--out", "x"), "plaid-1b"),
        (("train", "nowhere.txt"), "there is no data file 'nowhere.txt'"),
        (("train", "--kind", "gpt", "--out", "x"), "kind must be plaid"),
        (("corpus", "show", "nowhere.jsonl"), "there is no corpus file 'nowhere.jsonl'"),
        (("corpus", "build", "wiki=x", "--out", "x"), "unknown source 'wiki'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_gives_one_sentence_and_a_failing_exit(
    arguments: tuple[str, ...], message: str, files: Path
) -> None:
    refused(run(*arguments), message)


@pytest.mark.parametrize(
    "arguments",
    [
        ("generate", "--sideways"),
        ("generate", "-n", "0"),
        ("generate", "--steps", "few"),
        ("generate", "--seed", "-3"),
        ("generate", "surplus"),
        ("batch", "only-one.jsonl"),
        ("batch", "a", "b", "--batch-size", "0"),
        ("inspect", "--samples", "-1"),
        ("conjure",),
    ],
)
def test_a_wrong_option_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    assert "Usage" in result.stderr


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_running_out_of_memory_is_said_in_words(
    model: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise error

    monkeypatch.setattr(dy.Generator, "__call__", fail)
    refused(run("generate", "--model", model), "there is not enough memory", code=1)


def test_a_fault_of_ours_is_not_hidden(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(dy.Generator, "__call__", fail)
    assert isinstance(run("generate", "--model", model).exception, RuntimeError)


def interrupted_after(calls: int, write: Callable[..., Any] = generate) -> Callable[..., Any]:
    """`write`, with Ctrl-C in the call after so many."""
    left = iter(range(calls))

    def interrupted(*arguments: Any, **options: Any) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return write(*arguments, **options)

    return interrupted


def test_ctrl_c_while_generating_exits_130(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diffinity.commands.generate.TEXTS_PER_BATCH", 2)
    whole = run("generate", "--model", model, "-n", "5", *SMALL)
    monkeypatch.setattr(dy.Generator, "__call__", interrupted_after(1, dy.Generator.__call__))
    result = run("generate", "--model", model, "-n", "5", *SMALL)
    refused(result, "interrupted: 2 of 5 texts were written", code=130)
    assert result.stdout.splitlines() == whole.stdout.splitlines()[:2]


def test_turns_change_no_text(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("generate", "--model", model, "-n", "5", "--regex", "the [a-z ]+.", "--decode", "sample", *SMALL)
    whole = run(*options, "--json")
    monkeypatch.setattr("diffinity.commands.generate.TEXTS_PER_BATCH", 2)
    assert [json.loads(line)["tokens"] for line in run(*options, "--json").stdout.splitlines()] == [
        json.loads(line)["tokens"] for line in whole.stdout.splitlines()
    ]


def requests(path: Path, n: int) -> Path:
    lines = [{"id": i, "regex": "the [a-z ]+.", "length": 12, "steps": 6, "seed": i} for i in range(n)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_ctrl_c_in_a_batch_keeps_what_is_written(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = requests(tmp_path / "in.jsonl", 5), tmp_path / "out.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr("diffinity.batch.answers.generate", interrupted_after(2))
        result = run("batch", source, out, "--model", model, "--batch-size", "1")
    refused(result, "interrupted: 2 results are in", code=130)
    assert len(out.read_text().splitlines()) == 2
    result = run("batch", source, out, "--model", model)
    assert result.exit_code == 0, result.output
    assert "5 results, 2 of them there already, 0 of them errors" in " ".join(result.stdout.split())
    run("batch", source, tmp_path / "whole.jsonl", "--model", model)
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_signal_ends_a_batch_between_two_whole_lines(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    requests(tmp_path / "in.jsonl", 20_000)
    running = process("batch", "in.jsonl", out, "--model", model, cwd=tmp_path)
    began = time.monotonic()
    while (not out.exists() or not out.read_bytes()) and running.poll() is None and time.monotonic() - began < 200:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=100)
    assert running.returncode == 130, errors
    text = out.read_text()
    assert text.endswith("\n")
    done = [json.loads(line)["line"] for line in text.splitlines()]
    assert done == list(range(1, len(done) + 1))
    assert errors.strip() == (f"interrupted: {len(done)} results are in {out}, and the same command resumes there")


def test_a_model_that_is_not_here_is_not_fetched_offline(tmp_path: Path) -> None:
    _, errors = (running := process("generate", "--model", "nobody/nothing", cwd=tmp_path)).communicate(
        timeout=200
    )
    assert running.returncode == 2
    assert "is not on this machine, and HF_HUB_OFFLINE forbids to fetch it" in " ".join(errors.split())
    assert "Traceback" not in errors


def test_help_names_every_command() -> None:
    shown = run("--help").stdout
    for command in ("generate", "inspect", "batch", "demo", "train", "corpus", "import-plaid", "download"):
        assert command in shown

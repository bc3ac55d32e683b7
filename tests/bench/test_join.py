"""Joining: runs that were made apart are the run that was made together, and what does not fit is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from diffinity.bench.command import app
from diffinity.bench.join import join
from diffinity.bench.run import execute
from diffinity.bench.store import CaseRow, RunError, RunFolder, SampleRow, read_run
from diffinity.errors import InvalidArgument
from tests.bench.fakes import PATTERNS, TinyPlan
from tests.bench.test_run import jobs, lines

CASE_ROWS = [CaseRow(case, "digits", "regex", pattern) for case, pattern in PATTERNS.items()]


def made(path: Path, *systems: str, suite: str = "tiny", seed: int = 0, model: str = "m", **more: Any) -> Path:
    with RunFolder.open(path, suite, {"seed": seed}) as folder:
        folder.write_cases(CASE_ROWS)
        session = {"command": f"make {path.name}", "started": f"2026-01-0{1 + len(path.name)}"}
        folder.update(systems=list(systems), models={"diffusion": {"source": model}}, sessions=[session], **more)
        execute(folder, TinyPlan(), jobs(*systems))
    return path


def test_runs_of_other_systems_are_the_run_of_both(tmp_path: Path) -> None:
    together = made(tmp_path / "together", "digits", "no-letters")
    apart = [made(tmp_path / "b", "digits"), made(tmp_path / "aa", "no-letters")]
    (apart[0] / "scores.jsonl").write_text('{"key": "1"}\n')
    (apart[1] / "scores.jsonl").write_text('{"key": "1"}\n{"key": "2"}\n')
    result = CliRunner().invoke(app, ["join", *map(str, apart), "--out", str(tmp_path / "joined")])
    assert result.exit_code == 0, result.output
    assert lines(tmp_path / "joined") == lines(together)
    joined = read_run(tmp_path / "joined")
    assert joined.systems == ["digits", "no-letters"]
    assert list(joined.cases.values()) == CASE_ROWS
    assert [session["command"] for session in joined.info["sessions"]] == ["make b", "make aa"]
    scores = [json.loads(line)["key"] for line in (tmp_path / "joined" / "scores.jsonl").read_text().splitlines()]
    assert scores == ["1", "2"]


def test_a_joined_run_can_be_gone_on_with(tmp_path: Path) -> None:
    join([made(tmp_path / "a", "digits"), made(tmp_path / "b", "no-letters")], tmp_path / "joined")
    with RunFolder.open(tmp_path / "joined", "tiny", {"seed": 0}) as folder:
        assert folder.missing("digits", next(iter(PATTERNS)), 3) == []
        assert folder.missing("digits", next(iter(PATTERNS)), 4) == [3]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"seed": 1}, "seed was 1 and is now 0"),
        ({"suite": "other"}, "suite other, not tiny"),
        ({"model": "another"}, "another diffusion model"),
    ],
)
def test_what_was_made_otherwise_is_refused(other: dict[str, Any], message: str, tmp_path: Path) -> None:
    runs = [made(tmp_path / "a", "digits"), made(tmp_path / "b", "no-letters", **other)]
    with pytest.raises(RunError, match=message):
        join(runs, tmp_path / "joined")
    assert not (tmp_path / "joined").exists()


def test_two_texts_for_one_sample_are_refused(tmp_path: Path) -> None:
    runs = [made(tmp_path / "a", "digits"), made(tmp_path / "b", "no-letters")]
    with RunFolder.open(runs[1], "tiny", {"seed": 0}) as folder:
        folder.append([SampleRow(next(iter(PATTERNS)), "digits", 0, "another", True, 0.1)])
    with pytest.raises(RunError, match="another text than a run before it for sample 0 of digits"):
        join(runs, tmp_path / "joined")


def test_other_constraints_a_full_folder_and_one_run_are_refused(tmp_path: Path) -> None:
    runs = [made(tmp_path / "a", "digits"), made(tmp_path / "b", "no-letters")]
    with pytest.raises(RunError, match="not empty"):
        join(runs, runs[0])
    with pytest.raises(InvalidArgument, match="two runs or more"):
        join(runs[:1], tmp_path / "joined")
    (runs[1] / "cases.jsonl").write_text("")
    with pytest.raises(RunError, match="different constraints"):
        join(runs, tmp_path / "joined")

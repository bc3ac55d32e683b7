"""The folder of a run: what is written stays, what was cut off is repaired, other settings are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diffinity.bench.store import CaseRow, RunError, RunFolder, SampleRow, read_run

ROWS = [
    SampleRow("a", "one", 0, "first", True, 0.25, 2, 1000),
    SampleRow("a", "one", 1, "second é \ud800 \u2028", False, 0.25, 2, 1000),
    SampleRow("b", "one", -1, None, None, None, outcome="unsupported", reason="no"),
]


def written(path: Path) -> Path:
    with RunFolder.open(path, "tiny", {"seed": 0}) as run:
        run.write_cases([CaseRow("a", "x", "sentence", "a+"), CaseRow("b", "y", "sentence", "b+")])
        run.append(ROWS)
    return path


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    run = read_run(written(tmp_path / "run"))
    assert list(run.samples) == ROWS
    assert run.cases["b"].category == "y"


def test_a_line_is_on_disk_when_append_returns(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", "tiny", {}) as run:
        run.append(ROWS[:1])
        assert json.loads((tmp_path / "run" / "samples.jsonl").read_text())["text"] == "first"


def test_a_line_that_was_cut_off_is_missing_and_written_again(tmp_path: Path) -> None:
    path = written(tmp_path / "run")
    whole = (path / "samples.jsonl").read_bytes()
    second = whole.splitlines(keepends=True)[1]
    (path / "samples.jsonl").write_bytes(whole[: whole.index(second) + len(second) // 2])
    assert len(read_run(path).samples) == 1
    with RunFolder.open(path, "tiny", {"seed": 0}) as run:
        assert run.missing("one", "a", 2) == [1]
        run.append(ROWS)
    assert (path / "samples.jsonl").read_bytes() == whole


def test_a_case_with_a_reason_is_not_missing(tmp_path: Path) -> None:
    with RunFolder.open(written(tmp_path / "run"), "tiny", {"seed": 0}) as run:
        assert run.missing("one", "b", 5) == []
        assert run.missing("two", "b", 2) == [0, 1]


def test_errors_are_tried_again_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "run"
    broken = SampleRow("a", "one", -1, None, None, None, outcome="error", reason="x")
    with RunFolder.open(path, "tiny", {}) as run:
        run.append([broken, ROWS[2]])
    with RunFolder.open(path, "tiny", {}) as run:
        assert run.missing("one", "a", 1) == []
    with RunFolder.open(path, "tiny", {}, retry_errors=True) as run:
        assert run.missing("one", "a", 1) == [0]
        assert run.missing("one", "b", 1) == []


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    path = written(tmp_path / "run")
    with pytest.raises(RunError, match="seed was 0 and is now 1; steps was null and is now 8"):
        RunFolder.open(path, "tiny", {"seed": 1, "steps": 8})
    with pytest.raises(RunError, match="a run of the suite tiny, not json"):
        RunFolder.open(path, "json", {"seed": 0})


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"has files but no run\.json"):
        RunFolder.open(tmp_path, "tiny", {})
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_two_writers_at_once_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("fcntl", reason="only POSIX systems have fcntl")
    with (
        RunFolder.open(tmp_path / "run", "tiny", {}),
        pytest.raises(RunError, match="another process is writing"),
    ):
        RunFolder.open(tmp_path / "run", "tiny", {})
    with RunFolder.open(tmp_path / "run", "tiny", {}):
        pass


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "run")
    lines = (path / "samples.jsonl").read_text().splitlines(keepends=True)
    (path / "samples.jsonl").write_text(lines[0] + "{oops\n" + lines[2])
    with pytest.raises(RunError, match="line 2 is damaged"):
        read_run(path)


def test_lines_are_put_in_the_order_of_systems_and_cases(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", "tiny", {}) as run:
        run.append(reversed(ROWS))
        run.put_in_order(["one"], ["a", "b"])
        run.append([SampleRow("b", "two", 0, "later", True, 1.0)])
    keys = [row.key for row in read_run(tmp_path / "run").samples]
    assert keys == [("one", "a", 0), ("one", "a", 1), ("one", "b", -1), ("two", "b", 0)]


def test_rows_of_a_study_hold_no_nan(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", "fidelity", {}) as run:
        run.append_study({"tv": float("nan"), "method": "path", "K": None})
    assert read_run(tmp_path / "run").study == ({"tv": None, "method": "path", "K": None},)


def test_a_run_that_failed_before_its_first_sample_may_start_anew(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", "json", {"seed": 0}) as run:
        run.write_cases([CaseRow("a", "x", "json", "{}")])
    with RunFolder.open(tmp_path / "run", "tiny", {"seed": 1}) as run:
        assert run.cases() == []
        assert run.info["settings"] == {"seed": 1}


def test_a_run_of_every_fourth_constraint_may_be_continued_with_more_of_them(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with RunFolder.open(path, "tiny", {"seed": 0, "every": 4}) as run:
        run.write_cases([CaseRow("a", "x", "sentence", "a+")])
        run.append(ROWS[:2])
    with RunFolder.open(path, "tiny", {"seed": 0, "every": 2}) as run:
        assert run.cases() == []  # to be selected again
        assert run.missing("one", "a", 2) == []
    with (
        pytest.raises(RunError, match="every was 2 and is now 4"),
        RunFolder.open(path, "tiny", {"seed": 0, "every": 4}),
    ):
        pass
    with pytest.raises(RunError, match="seed was 0 and is now 1"), RunFolder.open(path, "tiny", {"seed": 1}):
        pass
    with RunFolder.open(path, "tiny", {"seed": 0}):
        assert json.loads((path / "run.json").read_text())["settings"] == {"seed": 0}

"""A run on disk: `run.json` has settings and provenance, `samples.jsonl` every sample that was generated."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from diffinity.errors import DiffinityError

RUN = "run.json"
SAMPLES = "samples.jsonl"
CASES = "cases.jsonl"
STUDY = "rows.jsonl"  # rows of the suites that are studies
SCORES = "scores.jsonl"
FORMAT = 1

Outcome = Literal["sample", "unsupported", "error"]


class RunError(DiffinityError):
    """The folder of a run is missing, damaged, in use, or was made with other settings."""


@dataclass(frozen=True)
class SampleRow:
    """One sample. If `outcome` is not "sample", the row has the reason why the case has no samples.

    `seconds` is per sample: the time of the call divided by its `batch` texts. `peak_memory` is in bytes, of the
    process that generated the sample.

    >>> SampleRow("c", "ours", 0, "a text", True, 0.5).key
    ('ours', 'c', 0)
    """

    case: str
    system: str
    index: int
    text: str | None
    valid: bool | None
    seconds: float | None
    batch: int | None = None
    peak_memory: int | None = None
    outcome: Outcome = "sample"
    reason: str | None = None
    facts: Mapping[str, Any] | None = None  # about the preparation for the case; only in its first row

    @property
    def key(self) -> tuple[str, str, int]:
        """The unique key of a line."""
        return self.system, self.case, self.index


@dataclass(frozen=True)
class CaseRow:
    """The data of a case for reports, so that they need not build the suite again.

    >>> CaseRow("c", "prefix", "sentence", "old.*").facts
    {}
    """

    id: str
    category: str
    kind: str
    source: str
    facts: Mapping[str, Any] = field(default_factory=dict)


class RunFolder:
    """The files of one run, open for appending by one process at a time."""

    def __init__(self, path: Path, info: Mapping[str, Any], rows: Iterable[SampleRow], lock: int | None) -> None:
        self.path = path
        self.info: dict[str, Any] = dict(info)
        self._rows = {row.key: row for row in rows}
        self._lock = lock
        self._file = (path / SAMPLES).open("a", encoding="utf-8")

    @classmethod
    def open(cls, path: Path, suite: str, settings: Mapping[str, Any], *, retry_errors: bool = False) -> RunFolder:
        """Create the folder of a run, or continue it if the suite and settings are the same.

        A run of every K-th constraint may be continued with more constraints.

        `retry_errors` removes the lines with outcome "error", so that those cases are tried again.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with RunFolder.open(Path(folder) / "run", "json", {"seed": 0}) as run:
        ...         run.append([SampleRow("c", "ours", 0, "{}", True, 0.1)])
        ...     len(read_run(Path(folder) / "run").samples)
        1
        """
        path.mkdir(parents=True, exist_ok=True)
        lock = _lock(path)
        try:
            return cls(path, *_prepare(path, suite, settings, retry_errors), lock)
        except BaseException:
            _unlock(lock)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        _unlock(self._lock)

    @property
    def rows(self) -> list[SampleRow]:
        """All lines so far."""
        return list(self._rows.values())

    def missing(self, system: str, case: str, samples: int) -> list[int]:
        """The indices of a case's missing samples; none if a line records why the case has no samples."""
        rows = self._rows
        if (system, case, -1) in rows:
            return []
        return [i for i in range(samples) if (system, case, i) not in rows]

    def append(self, rows: Iterable[SampleRow]) -> None:
        """Write the new rows to disk (with `fsync`), so that a killed process does not lose them."""
        for row in rows:
            if row.key not in self._rows:
                self._rows[row.key] = row
                self._file.write(_line(dataclasses.asdict(row)))
        self._file.flush()
        os.fsync(self._file.fileno())

    def append_study(self, row: Mapping[str, Any]) -> None:
        """Add one line to the rows of a study; NaN becomes null."""
        finite = {name: None if value != value else value for name, value in row.items()}
        with (self.path / STUDY).open("a", encoding="utf-8") as file:
            file.write(_line(finite))

    def study(self) -> list[dict[str, Any]]:
        """The rows of a study so far."""
        return list(read_lines(self.path / STUDY))

    def update(self, **fields: Any) -> None:
        """Update run.json."""
        self.info.update(fields)
        write_json(self.path / RUN, self.info)

    def write_cases(self, cases: Sequence[CaseRow]) -> None:
        """Write the cases."""
        write_lines(self.path / CASES, (dataclasses.asdict(case) for case in cases))

    def cases(self) -> list[CaseRow]:
        """The cases of the run, after they have been selected."""
        return [CaseRow(**line) for line in read_lines(self.path / CASES)]

    def put_in_order(self, systems: Sequence[str], cases: Sequence[str]) -> None:
        """Sort the lines by system, case and index, so that the file does not depend on the order of workers."""
        positions = {name: i for i, name in enumerate(systems)}, {name: i for i, name in enumerate(cases)}

        def rank(row: SampleRow) -> tuple[int, str, int, str, int]:
            system, case = (
                positions[0].get(row.system, len(positions[0])),
                positions[1].get(row.case, len(positions[1])),
            )
            return system, row.system, case, row.case, row.index

        ordered = sorted(self._rows.values(), key=rank)
        self._rows = {row.key: row for row in ordered}
        self._file.close()
        write_lines(self.path / SAMPLES, (dataclasses.asdict(row) for row in ordered))
        self._file = (self.path / SAMPLES).open("a", encoding="utf-8")


@dataclass(frozen=True)
class Run:
    """A run, read for a report.

    >>> Run(Path("run"), {"suite": "json"}, {}, ()).suite
    'json'
    """

    path: Path
    info: Mapping[str, Any]
    cases: Mapping[str, CaseRow]
    samples: tuple[SampleRow, ...]
    study: tuple[Mapping[str, Any], ...] = ()

    @property
    def suite(self) -> str:
        """The name of its suite."""
        return str(self.info["suite"])

    @property
    def systems(self) -> list[str]:
        """The systems with at least one line, in the requested order."""
        present = dict.fromkeys(row.system for row in self.samples)
        requested = [name for name in self.info.get("systems", ()) if name in present]
        return requested + [name for name in present if name not in requested]


def read_run(path: Path) -> Run:
    """Read a run, finished or not; an incomplete last line is ignored.

    >>> read_run(Path("no/such/run"))
    Traceback (most recent call last):
    diffinity.bench.store.RunError: no/such/run is not the folder of a run: it has no run.json
    """
    info = _read_info(path)
    cases = {}
    for line in read_lines(path / CASES):
        cases[line["id"]] = CaseRow(**line)
    samples = list(read_samples(path / SAMPLES))
    for row in samples:  # for a folder without its list of cases
        cases.setdefault(row.case, CaseRow(row.case, "?", "?", ""))
    return Run(path, info, cases, tuple(samples), tuple(read_lines(path / STUDY)))


def read_samples(path: Path) -> Iterator[SampleRow]:
    """The lines of a samples.jsonl."""
    columns = {column.name for column in dataclasses.fields(SampleRow)}
    for number, line in enumerate(read_lines(path), start=1):
        if not {"case", "system", "index"} <= line.keys() <= columns:
            raise RunError(f"{path.name}, line {number}: not a sample of this version's format")
        yield SampleRow(**line)


def repair(path: Path) -> bool:
    """Remove an incomplete last line, which a killed process may leave; returns whether there was one.

    >>> repair(Path("no/such/file"))
    False
    """
    if not path.exists():
        return False
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end == len(data):
        return False
    with path.open("r+b") as file:
        file.truncate(end)
    return True


def _prepare(
    path: Path, suite: str, settings: Mapping[str, Any], retry_errors: bool
) -> tuple[dict[str, Any], list[SampleRow]]:
    info = {"format": FORMAT, "suite": suite, "settings": dict(settings), "systems": [], "sessions": []}
    if (path / RUN).exists() and not _has_lines(path):  # the earlier session failed before its first result
        (path / CASES).unlink(missing_ok=True)
        write_json(path / RUN, info)
    elif (path / RUN).exists():
        recorded = _read_info(path)
        if adds_constraints(recorded["settings"], settings):
            recorded["settings"] = dict(settings)
            (path / CASES).unlink(missing_ok=True)  # they are selected again
            write_json(path / RUN, recorded)
        check_same(path, recorded, info)
        info = recorded
    elif any(path.iterdir()):
        raise RunError(f"{path} has files but no {RUN}: name an empty folder, or that of an earlier run")
    else:
        write_json(path / RUN, info)
    repair(path / SAMPLES)
    repair(path / STUDY)
    rows = list(read_samples(path / SAMPLES))
    if retry_errors:
        rows = [row for row in rows if row.outcome != "error"]
        write_lines(path / SAMPLES, (dataclasses.asdict(row) for row in rows))
    return info, rows


def _has_lines(path: Path) -> bool:
    files = [path / SAMPLES, path / STUDY]
    return any(file.is_file() and file.stat().st_size for file in files)


def _read_info(path: Path) -> dict[str, Any]:
    file = path / RUN
    if not file.is_file():
        raise RunError(f"{path} is not the folder of a run: it has no {RUN}")
    try:
        info = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"{file} is not valid JSON: {error}") from None
    if not isinstance(info, dict) or info.get("format") != FORMAT or "suite" not in info:
        raise RunError(f"{file} is not a run of format {FORMAT}, which this version reads")
    return info


def adds_constraints(recorded: Mapping[str, Any], requested: Mapping[str, Any]) -> bool:
    """Whether only `every` differs, and the requested constraints include the recorded constraints.

    >>> adds_constraints({"seed": 0, "every": 4}, {"seed": 0, "every": 2})
    True
    >>> adds_constraints({"seed": 0, "every": 3}, {"seed": 0, "every": 2})
    False
    """
    old, new = recorded.get("every", 1), requested.get("every", 1)
    return new < old and old % new == 0 and {**recorded, "every": new} == {**requested, "every": new}


def check_same(path: Path, recorded: Mapping[str, Any], requested: Mapping[str, Any]) -> None:
    """Refuse a folder of another suite or with other settings.

    >>> check_same(Path("run"), {"suite": "json"}, {"suite": "scale"})
    Traceback (most recent call last):
    diffinity.bench.store.RunError: run is a run of the suite json, not scale: name another folder
    """
    if recorded["suite"] != requested["suite"]:
        raise RunError(
            f"{path} is a run of the suite {recorded['suite']}, not {requested['suite']}: name another folder"
        )
    old, new = recorded["settings"], requested["settings"]
    changed = [
        f"{name} was {json.dumps(old.get(name))} and is now {json.dumps(new.get(name))}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    if changed:
        raise RunError(
            f"{path} was made with other settings, and samples of both would mix: {'; '.join(changed)}. "
            "Name another folder, or use the settings of this run"
        )


def _lock(path: Path) -> int | None:
    """Lock a folder for this process; returns the handle for `_unlock`."""
    try:
        import fcntl
    except ImportError:  # no locks on this system: the user must avoid two writers
        return None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise RunError(f"another process is writing to the run {path}: wait for it, or stop it") from None
    return descriptor


def _unlock(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def _line(row: Mapping[str, Any]) -> str:
    # A text may contain a lone surrogate, which UTF-8 can't encode, so it is escaped as ASCII.
    return json.dumps(row, ensure_ascii=True) + "\n"


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a .jsonl file, none if there is no file; an incomplete last line is ignored.

    >>> list(read_lines(Path("no/such/file")))
    []
    """
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith("\n"):  # being written, or cut off
                return
            try:
                yield json.loads(line)
            except ValueError as error:
                raise RunError(f"{path}, line {number} is damaged: {error}") from None


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a .jsonl file atomically."""
    _replace(path, "".join(_line(row) for row in rows))


def write_json(path: Path, value: object) -> None:
    """Write a .json file atomically."""
    _replace(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _replace(path: Path, text: str) -> None:
    """Write a file atomically: a killed process leaves either the old file or the new file."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)

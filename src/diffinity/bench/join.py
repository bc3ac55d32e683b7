"""`diffinity bench join`: joins runs of one suite with the same settings.

Systems that were run on several machines, or at several times, are then in one report.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diffinity.bench.scoring import FLUENCY
from diffinity.bench.store import (
    CASES,
    FORMAT,
    RUN,
    SAMPLES,
    SCORES,
    STUDY,
    Run,
    RunError,
    SampleRow,
    check_same,
    read_lines,
    read_run,
    write_json,
    write_lines,
)
from diffinity.errors import InvalidArgument


def join(paths: Sequence[Path], out: Path) -> Run:
    """Write the lines of all runs to the new folder `out`; nothing is written if they do not fit together.

    They fit if suite, settings, constraints and the weights of shared models are the same, and if no two runs have
    different lines for the same sample. Scores and ratings are copied; trained classifiers are not.

    >>> join([Path("only/one")], Path("out"))
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: name two runs or more to join
    """
    if len(paths) < 2:
        raise InvalidArgument("name two runs or more to join")
    if out.exists() and any(out.iterdir()):
        raise RunError(f"{out} is not empty: name a new folder for the joined run")
    runs = [read_run(path) for path in paths]
    samples = _samples(runs)
    info = _info(runs)
    out.mkdir(parents=True, exist_ok=True)
    write_lines(out / CASES, (dataclasses.asdict(case) for case in runs[0].cases.values()))
    write_lines(out / SAMPLES, (dataclasses.asdict(row) for row in samples))
    for name in (SCORES, FLUENCY):
        lines = {json.dumps(line): line for run in runs for line in read_lines(run.path / name)}
        if lines:
            write_lines(out / name, lines.values())
    write_json(out / RUN, info)
    return read_run(out)


def _samples(runs: Sequence[Run]) -> list[SampleRow]:
    rows: dict[tuple[str, str, int], SampleRow] = {}
    for run in runs:
        for row in run.samples:
            earlier = rows.setdefault(row.key, row)
            if (earlier.text, earlier.outcome) != (row.text, row.outcome):
                raise RunError(
                    f"{run.path} has another text than a run before it for sample {row.index} of {row.system} on "
                    f"{row.case}: join runs of different systems or constraints"
                )
    return list(rows.values())


def _info(runs: Sequence[Run]) -> dict[str, Any]:
    first = runs[0]
    models: dict[str, Mapping[str, str]] = {}
    for run in runs:
        if run.study or (run.path / STUDY).exists():
            raise RunError(
                f"{run.path} is a study ({run.suite}); only runs with samples of constraints can be joined"
            )
        check_same(run.path, run.info, first.info)
        if run.cases != first.cases:
            raise RunError(f"{run.path} and {first.path} have different constraints")
        for role, model in run.info.get("models", {}).items():
            if models.setdefault(role, model) != model:
                raise RunError(f"{run.path} was made with another {role} model than a run before it")
    sessions = [session for run in runs for session in run.info.get("sessions", ())]
    return {
        "format": FORMAT,
        "suite": first.suite,
        "settings": first.info["settings"],
        "systems": list(dict.fromkeys(name for run in runs for name in run.info.get("systems", ()))),
        "sessions": sorted(sessions, key=lambda session: str(session.get("started", ""))),
        "models": models,
        "left_out": first.info.get("left_out", []),
        "unavailable": {name: reason for run in runs for name, reason in run.info.get("unavailable", {}).items()},
    }

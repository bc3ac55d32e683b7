"""The fidelity study of processes on tokens: its rows, and that it tells a good method from a bad one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from diffinity.bench import token_fidelity
from diffinity.bench.token_fidelity import QUICK, measure


def test_rows_are_written_and_repeatable(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    token_fidelity.main(["--out", str(out), "--quick", "--samples", "6", "--noises", "mask", "--particles", "2"])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["method"] for row in rows][:3] == ["mask: decoding", "mask: dingo", "mask: marginals"]
    again = list(measure(replace(QUICK, samples=6, noises=("mask",), particles=(2,))))
    assert [row["tv"] for row in again] == [row["tv"] for row in rows]
    assert all(row["n"] == 6 and 0 <= row["tv"] <= 1 for row in rows)


def test_particles_come_closer_to_the_truth() -> None:
    study = replace(QUICK, samples=150, noises=("mask",), particles=(8,))
    distances = {row["method"]: row["tv"] for row in measure(study)}
    assert distances["mask: joint, K = 8"] < distances["mask: joint"] < distances["mask: decoding"] + 0.1

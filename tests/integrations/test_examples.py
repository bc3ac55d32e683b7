"""The examples run as they stand, on small random models, and print what they promise."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import jsonschema_rs
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def lines_of(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_the_example_for_transformers_prints_invoices(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = lines_of("transformers_structured_output.py", monkeypatch, capsys)
    assert len(lines) == 2
    assert all(re.fullmatch(r"Invoice\(customer=.*, total=-?\d+, paid=(True|False)\)", line) for line in lines)


def test_the_example_for_diffusers_prints_reviews_and_an_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = lines_of("diffusers_structured_output.py", monkeypatch, capsys)
    review = runpy.run_path(str(EXAMPLES / "diffusers_structured_output.py"))["REVIEW"]
    assert all(jsonschema_rs.is_valid(review, json.loads(line)) for line in lines[:2])
    assert re.fullmatch("(yes|no), [a-z]+( [a-z]+)*", lines[2])

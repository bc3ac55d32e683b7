"""The scripts and the notebook in examples/ run as they are, and the outputs that the docs show are current."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
ELSEWHERE = {  # run by tests/integrations/test_examples.py, or no script
    "transformers_structured_output.py",
    "diffusers_structured_output.py",
    "small_models.py",
}
CHECKS = {  # what each line of a script's output must match, by Python's own `re`
    "own_text.py": r"[ -~]+",
    "json_objects.py": r"[1-9][0-9]{0,3} (open|paid|shipped)",
    "combined_constraints.py": (
        r"a question without 'the': (?!.*the)[A-Z][a-z ]{10,60}\?"
        r"|a sentence with two words: (?=.*\bold\b)(?=.*\bhill\b)[A-Z][a-z ]+\."
        r"|a statement or a question: (She [a-z ]+\.|Who [a-z ]+\?)"
        r"|a grammar: (We|I) (go|walk) to the (lake|market|station)\."
    ),
    "choices.py": r"(yes\.|no\.|perhaps\.) +0\.(60|30|10) ± 0\.0\d",
    "streaming.py": r"step [ \d]\d of 48: .*|finished:      The [a-z ]+ old [a-z ]+\.",
}


def test_every_example_is_listed_and_run() -> None:
    scripts = {path.name for path in EXAMPLES.glob("*.py")}
    assert scripts == ELSEWHERE | CHECKS.keys()
    listed = (EXAMPLES / "README.md").read_text()
    helpers = {"small_models.py", "own_text.py"}
    assert all(f"`{name}`" in listed for name in [*(scripts - helpers), "quickstart.ipynb"])


@pytest.mark.parametrize("name", CHECKS)
def test_an_example_prints_what_it_promises(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert [line for line in lines if not re.fullmatch(CHECKS[name], line)] == []


@pytest.mark.parametrize("name", ["notebook.py", "command_line_examples.py", "readme_table.py"])
def test_the_outputs_in_the_documentation_are_current(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--check"])
    runpy.run_path(str(ROOT / "scripts" / name), run_name="__main__")  # exits with an error where they differ


def test_the_notebook_is_one_that_jupyter_reads() -> None:
    notebook = json.loads((EXAMPLES / "quickstart.ipynb").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        assert cell["cell_type"] in ("code", "markdown")
        assert ("outputs" in cell) == (cell["cell_type"] == "code")


def test_a_changed_output_is_noticed() -> None:
    examples = runpy.run_path(str(ROOT / "scripts" / "command_line_examples.py"))
    page = "```\n$ diffinity models\nold\n```\n"
    assert examples["updated"](page, lambda command: "new") == page.replace("old", "new")

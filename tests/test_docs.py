"""The Python in the documentation runs as it stands there, each page from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
NEEDS_MORE = ('dy.load("plaid-1b"', 'dy.load("langflow-owt"', "OpenAI(base_url")  # downloads, or a server


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    program = "\n".join(block for block in blocks if not any(load in block for load in NEEDS_MORE))
    if program:
        exec(compile(program, page.name, "exec", dont_inherit=True), {"__name__": "page"})
        assert capsys.readouterr().out.strip()

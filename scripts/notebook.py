"""Run the cells of examples/quickstart.ipynb and store their outputs; `--check` fails if an output differs.

python scripts/notebook.py [--check]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "quickstart.ipynb"


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of a fresh run.

    >>> cell = {"cell_type": "code", "source": ["print(1 + 1)"], "outputs": []}
    >>> executed({"cells": [cell]})["cells"][0]["outputs"][0]["text"]
    ['2\\n']
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = []
    for number, cell in enumerate(notebook["cells"], 1):
        if cell["cell_type"] == "code":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("".join(cell["source"]), f"cell {number}", "exec", dont_inherit=True), names)
            lines = printed.getvalue().splitlines(keepends=True)
            outputs = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
            cell = {**cell, "outputs": outputs, "execution_count": None}
        cells.append(cell)
    return {**notebook, "cells": cells}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if an output differs")
    old_text = NOTEBOOK.read_text(encoding="utf-8")
    new_text = json.dumps(executed(json.loads(old_text)), indent=1, ensure_ascii=False) + "\n"
    if not parser.parse_args().check:
        NOTEBOOK.write_text(new_text, encoding="utf-8")
    elif old_text != new_text:
        raise SystemExit(f"error: the outputs in {NOTEBOOK.name} are out of date: run scripts/notebook.py")


if __name__ == "__main__":
    main()

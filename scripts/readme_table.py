"""README's results table, from the CSVs of committed reports; `--check` fails if they disagree.

    python scripts/readme_table.py [--check]

The table stands in README.md between two lines, `<!-- results:begin -->` and `<!-- results:end -->`.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CSVS = [ROOT / "docs" / "results" / "results.csv"]
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
SUITES = {"natural-language": "sentences", "json": "JSON"}
MEASURES = {  # the columns of a suite: their headings and the measures of the CSV, with digits and unit
    "natural-language": {"perplexity": ("perplexity of matching", 1, ""), "clean": ("clean sentences", 2, "")},
    "json": {"perplexity": ("perplexity of matching", 1, "")},
}
SYSTEMS = {  # the rows of README; docs/results/report.md has all systems
    "auto": "diffinity, chain guidance, one draft",
    "paper": "the paper's method",
    "unconstrained": "the same model without a constraint",
    "masked-exact@temperature=0.5": "masked diffusion model, our joint draws",
    "dingo@temperature=0.5": "masked diffusion model, DINGO",
    "autoregressive-diffinity@temperature=0.5": "autoregressive model, our automaton",
    "llguidance@temperature=0.5": "autoregressive model, llguidance",
}

Numbers = dict[tuple[str, str, str], dict[str, str]]


def read(paths: Sequence[Path]) -> Numbers:
    """The numbers over all categories, by suite, system and measure; the first file with a system counts."""
    numbers: Numbers = {}
    for path in paths:
        if not path.is_file():
            raise SystemExit(
                f"error: there is no {path}; make it with `diffinity bench report … --out {path.parent}`"
            )
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["category"] == "all"]
        present = {(suite, system) for suite, system, _ in numbers}
        new_rows = [row for row in rows if (row["suite"], row["system"]) not in present]
        numbers |= {(row["suite"], row["system"], row["measure"]): row for row in new_rows}
    return numbers


def table(numbers: Numbers) -> str:
    """The table as Markdown, with the systems and suites that are in the CSV."""
    suites = [suite for suite in SUITES if any(key[0] == suite for key in numbers)]
    if not suites:
        raise SystemExit(f"error: the CSV has no row of the suites {', '.join(SUITES)}")
    headings = ["system"]
    for suite in suites:
        headings += [f"{SUITES[suite]}: satisfied", *MEASURES[suite], "time"]
    lines = [[*headings, ""], ["---", *("---:" for _ in headings[1:]), "---"]]
    for system, description in SYSTEMS.items():
        if not any(key[1] == system for key in numbers):
            continue
        cells = [f"`{system}`"]
        for suite in suites:
            row_of_measure = {
                measure: row
                for (row_suite, name, measure), row in numbers.items()
                if (row_suite, name) == (suite, system)
            }
            columns = [*MEASURES[suite].values(), ("overhead", 2, " ×")]
            cells += [satisfied(row_of_measure), *(value(row_of_measure, *column) for column in columns)]
        lines.append([*cells, description])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def satisfied(row_of_measure: dict[str, dict[str, str]]) -> str:
    """A share, with a star if the system could not express all constraints."""
    row = row_of_measure.get("satisfaction")
    if row is None:
        return "—"
    is_partial = float(row_of_measure.get("constraints not expressible", {"value": "0"})["value"]) > 0
    return f"{100 * float(row['value']):.3g}%{'*' if is_partial else ''}"


def value(row_of_measure: dict[str, dict[str, str]], measure: str, digits: int, unit: str = "") -> str:
    """A number, or a dash."""
    return f"{float(row_of_measure[measure]['value']):.{digits}f}{unit}" if measure in row_of_measure else "—"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--csv", type=Path, nargs="+", default=CSVS)
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if the table is out of date")
    options = parser.parse_args()
    text = options.readme.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text or text.index(BEGIN) > text.index(END):
        raise SystemExit(f"error: {options.readme.name} needs the lines {BEGIN} and {END}, in this order")
    text_before, rest = text.split(BEGIN, 1)
    text_after = rest.split(END, 1)[1]
    new_text = f"{text_before}{BEGIN}\n{table(read(options.csv))}\n{END}{text_after}"
    if options.check:
        if new_text != text:
            raise SystemExit(
                f"error: the results table in {options.readme.name} is out of date: run {sys.argv[0]}"
            )
        return
    options.readme.write_text(new_text, encoding="utf-8")


if __name__ == "__main__":
    main()

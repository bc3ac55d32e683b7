"""The samples of a run beside its report, as compressed JSON lines."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
from collections.abc import Iterable
from pathlib import Path

from diffinity.bench.store import CaseRow, SampleRow

SUFFIX = "-samples.jsonl.gz"


def write_samples(path: Path, cases: Iterable[CaseRow], samples: Iterable[SampleRow]) -> None:
    """Write the cases, one per line, then the samples; fields that are None are left out.

    The same run gives the same bytes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "run-samples.jsonl.gz"
    ...     case, sample = CaseRow("c", "prefix", "sentence", "a+"), SampleRow("c", "auto", 0, "a", True, 0.5)
    ...     write_samples(path, [case], [sample])
    ...     read_samples(path)[1][0].text
    'a'
    """
    lines = io.StringIO()
    rows: list[CaseRow | SampleRow] = [*cases, *samples]
    for row in rows:
        fields = {name: value for name, value in dataclasses.asdict(row).items() if value is not None}
        lines.write(json.dumps(fields, ensure_ascii=True) + "\n")  # ASCII: a text may contain a lone surrogate
    path.write_bytes(gzip.compress(lines.getvalue().encode(), 9, mtime=0))


def read_samples(path: Path) -> tuple[list[CaseRow], list[SampleRow]]:
    """The cases and the samples of a file that `write_samples` wrote."""
    cases, samples = [], []
    absent = {"text": None, "valid": None, "seconds": None}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            fields = json.loads(line)
            if "id" in fields:
                cases.append(CaseRow(**fields))
            else:
                samples.append(SampleRow(**{**absent, **fields}))
    return cases, samples

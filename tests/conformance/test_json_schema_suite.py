"""The official JSON Schema test suite (draft 2020-12) against a checked-in ratchet: it may only get better.

The ratchet holds one letter a test, by file and group: `p` passed, `r` refused by name, `f` a valid instance not
accepted (outside the bounded universe, or a narrower language). An invalid instance accepted has no letter: there
is none. `python tests/conformance/test_json_schema_suite.py` writes the ratchet anew.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from diffinity.constraints.schema import JsonSchema
from diffinity.constraints.schema.spelling import spell
from diffinity.errors import ConstraintError, ConstraintTooLarge

SHARED = Path(os.environ.get("DIFFINITY_SHARED", Path(__file__).parents[2].parent / "shared"))
SUITE = SHARED / "data" / "json-schema-test-suite"
RATCHET = Path(__file__).with_name("json_schema_suite.json")
RANK = {"p": 0, "f": 1, "r": 2, "!": 3}

needs_suite = pytest.mark.skipif(not SUITE.is_dir(), reason="the shared data is not here (set DIFFINITY_SHARED)")


def constraint(schema: Any) -> JsonSchema | None:
    """The suite writes properties in any order; where that is too large, the declared one must do."""
    for order in ("any", "declared"):
        try:
            found = JsonSchema(schema, open=True, order=order)
            found.dfa()
            return found
        except ConstraintTooLarge:
            continue
        except ConstraintError:
            return None
    return None


def outcome(found: JsonSchema | None, test: dict[str, Any]) -> str:
    """One letter for one test; `!` is a false accept."""
    if found is None:
        return "r"
    accepted = found.accepts(spell(test["data"]))
    return "p" if accepted == test["valid"] else ("!" if accepted else "f")


def run(path: Path) -> list[str]:
    """The letters of a file, one string a group."""
    groups = json.loads(path.read_text())
    compiled = [(group["tests"], constraint(group["schema"])) for group in groups]
    return ["".join(outcome(found, test) for test in tests) for tests, found in compiled]


def files() -> list[Path]:
    """The suite's files in order."""
    return sorted(SUITE.glob("*.json")) if SUITE.is_dir() else []


@needs_suite
@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_nothing_got_worse_and_nothing_invalid_is_accepted(path: Path) -> None:
    before = json.loads(RATCHET.read_text())["tests"].get(path.name, [])
    now = run(path)
    assert not any("!" in group for group in now), now
    worse = [
        (i, old, new)
        for i, (old, new) in enumerate(zip(before, now, strict=False))
        if any(RANK[b] > RANK[a] for a, b in zip(old, new, strict=False))
    ]
    assert not worse


def write() -> None:
    """Write the ratchet anew."""
    tests = {path.name: run(path) for path in files()}
    total = Counter("".join(letters for groups in tests.values() for letters in groups))
    names = {"p": "pass", "r": "refused", "f": "false_reject", "!": "false_accept"}
    counts = {name: total[letter] for letter, name in names.items()}
    RATCHET.write_text(json.dumps({"counts": counts, "tests": tests}, indent=1) + "\n")
    print(counts)


if __name__ == "__main__":
    write()

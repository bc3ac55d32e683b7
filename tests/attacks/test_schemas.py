"""Hostile JSON Schemas, each with the refusal that it gets, in bounded work and memory.

All of them run in one child process (this file as a script), so that what they cost can be measured there.
Work is counted in steps; how long it takes is measured by `benchmarks/hostile.py`.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from diffinity.constraints.schema import JsonSchema
from diffinity.errors import ConstraintError, ConstraintTooLarge
from diffinity.limits import Limits, compiling

BYTES = 1 << 30
STEPS = 1.1 * Limits().compile_steps  # the last report may pass the limit, by one chunk of work

Refusal = str  # the error's class and limit, or "compiles" / "empty" for a correct automaton


def nested(levels: int, keyword: str) -> Any:
    """A schema inside a schema inside a schema …"""
    wrap: Callable[[Any, int], Any] = {
        "items": lambda inner, _: {"type": "array", "items": inner},
        "properties": lambda inner, _: {"type": "object", "properties": {"a": inner}},
        "not": lambda inner, _: {"not": inner},
        "allOf": lambda inner, _: {"allOf": [inner, inner]},
    }[keyword]
    return reduce(wrap, range(levels), {"type": "integer"})


def chain(length: int) -> dict[str, Any]:
    """Definitions that each refer to the next."""
    defs: dict[str, Any] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{length}": {"type": "null"}}}


def doubling(levels: int) -> dict[str, Any]:
    """Definitions that each use the next twice: 2^levels values once written out."""
    defs: dict[str, Any] = {
        f"d{i}": {"type": "object", "properties": {side: {"$ref": f"#/$defs/d{i + 1}"} for side in "lr"}}
        for i in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": {"type": "string"}}}


def choices(count: int, keyword: str) -> dict[str, Any]:
    """Several choices that must all be made: 3^count combinations."""
    return {"allOf": [{keyword: [{"required": [f"{n}{i}"]} for n in "abc"]} for i in range(count)]}


def subset_blowup(length: int) -> dict[str, Any]:
    """A pattern whose deterministic machine has 2^length states."""
    return {"type": "string", "pattern": f"a.{{{length}}}$"}


tree = {"type": "object", "properties": {name: {"$ref": "#"} for name in "abcdefgh"}}
rivals = {"oneOf": [{"properties": {f"p{i}": {"type": "string", "minLength": i}}} for i in range(30)]}

CASES: dict[str, tuple[Callable[[], Any], Refusal]] = {
    "items 300 deep": (lambda: nested(300, "items"), "compiles"),
    "properties 100,000 deep": (
        lambda: '{"properties":{"a":' * 100_000 + "{}" + "}}" * 100_000,
        "SchemaTooLarge: bytes",
    ),
    "not 350 deep": (lambda: nested(350, "not"), "compiles"),
    "allOf doubled 18 times": (lambda: nested(18, "allOf"), "SchemaTooLarge: bytes"),
    "a text of 10 MB": (lambda: json.dumps({"enum": ["x" * 10_000_000]}), "SchemaTooLarge: bytes"),
    "an enum of 10 MB": (lambda: {"enum": [f"{i:0100d}" for i in range(100_000)]}, "SchemaTooLarge: bytes"),
    "a million items": (
        lambda: {"type": "array", "items": {"type": "string"}, "minItems": 10**6},
        "ConstraintTooLarge: nfa_states",
    ),
    "a thousand million items": (lambda: {"type": "array", "minItems": 10**9}, "ConstraintTooLarge: nfa_states"),
    "a string of a thousand million": (
        lambda: {"type": "string", "minLength": 10**9},
        "ConstraintTooLarge: nfa_states",
    ),
    "a maxLength of a thousand million": (lambda: {"type": "string", "maxLength": 10**9}, "compiles"),
    "a thousand million properties": (
        lambda: {"type": "object", "minProperties": 10**9},
        "ConstraintTooLarge: nfa_states",
    ),
    "multipleOf a large prime": (
        lambda: {"type": "integer", "multipleOf": 1_000_000_007},
        "ConstraintTooLarge: dfa_states",
    ),
    "multipleOf a tiny step": (lambda: {"multipleOf": 1e-300}, "compiles"),
    "a minimum of 1e308": (lambda: {"type": "number", "minimum": 1e308}, "compiles"),
    "a $ref to itself": (lambda: {"$ref": "#"}, "compiles"),
    "two $refs in a circle": (
        lambda: {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        "compiles",
    ),
    "not itself": (lambda: {"not": {"$ref": "#"}}, "empty"),
    "itself required": (
        lambda: {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        "empty",
    ),
    "a tree of eight branches": (lambda: tree, "compiles"),
    "a tree unrolled 40 times": (lambda: (tree, {"max_depth": 40}), "ConstraintTooLarge: nfa_states"),
    "a chain of 5,000 $refs": (lambda: chain(5000), "compiles"),
    "a tree of 2^30 values": (lambda: doubling(30), "ConstraintTooLarge: nfa_states"),
    "3^12 combinations": (lambda: choices(12, "anyOf"), "SchemaTooLarge: max_branches"),
    "3^12 exclusive combinations": (lambda: choices(12, "oneOf"), "SchemaTooLarge: max_branches"),
    "30 rivals that overlap": (lambda: rivals, "ConstraintTooLarge: nfa_states"),
    "any order of 60 properties": (
        lambda: ({"properties": {f"p{i}": {"type": "null"} for i in range(60)}}, {"order": "any"}),
        "compiles",
    ),
    "any JSON of depth 40": (lambda: (True, {"any_depth": 40}), "ConstraintTooLarge: nfa_states"),
    "a pattern of 2^24 subsets": (lambda: subset_blowup(24), "ConstraintTooLarge: dfa_states"),
    "a pattern with a huge count": (
        lambda: {"type": "string", "pattern": "^(a{1000}){1000000}$"},
        "ConstraintTooLarge: nfa_states",
    ),
    "a pattern with a back-reference": (lambda: {"pattern": r"(a)\1"}, "UnsupportedKeyword"),
    "a pattern that does not close": (lambda: {"pattern": "(((("}, "ConstraintSyntaxError"),
    "70 overlapping patternProperties": (
        lambda: {"patternProperties": {f"{chr(97 + i % 26)}.*{i}": {"type": "null"} for i in range(70)}},
        "SchemaTooLarge: classes of names",
    ),
    "a remote $ref": (lambda: {"$ref": "http://169.254.169.254/latest"}, "UnsupportedKeyword"),
    "a file $ref": (lambda: {"$ref": "file:///etc/passwd"}, "UnsupportedKeyword"),
    "a surrogate in a const": (lambda: '{"const": "\\ud800"}', "ConstraintSyntaxError"),
    "a surrogate in a name": (
        lambda: '{"type": "object", "properties": {"\\udc00": {}}}',
        "ConstraintSyntaxError",
    ),
    "NUL in a const and a name": (lambda: {"properties": {"\0": {"const": "\0"}}, "required": ["\0"]}, "compiles"),
    "NaN": (lambda: {"const": float("nan")}, "ConstraintSyntaxError"),
    "Infinity in a text": (lambda: '{"minimum": Infinity}', "ConstraintSyntaxError"),
    "a type that is no type": (lambda: {"type": "text"}, "MalformedSchema"),
    "a list for a schema": (lambda: {"properties": {"a": []}}, "MalformedSchema"),
    "unique values without end": (
        lambda: {"type": "array", "uniqueItems": True, "minItems": 40},
        "UnsupportedKeyword",
    ),
    "an escape pointer to nowhere": (lambda: {"$ref": "#/$defs/~2"}, "MalformedSchema"),
}


def attempt(name: str) -> dict[str, Any]:
    """What one case comes to, and what it costs."""
    make, _ = CASES[name]
    made = make()
    schema, options = made if isinstance(made, tuple) else (made, {})
    with compiling() as budget:
        try:
            outcome = "empty" if JsonSchema(schema, **options).dfa().is_empty else "compiles"
            message = ""
        except ConstraintError as refusal:
            outcome, message = type(refusal).__name__, str(refusal)
            if isinstance(refusal, ConstraintTooLarge):
                outcome += f": {refusal.limit}"
    return {"outcome": outcome, "message": message[:300], "steps": budget.meter.steps, "peak": peak_bytes()}


def peak_bytes() -> int:
    """The most memory that this process has held; on Linux `getrusage` would count its parent's, too."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.is_file() else []
    found = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return 1024 * (found[0] if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    paths = os.pathsep.join(p for p in sys.path if p)
    run = subprocess.run(
        [sys.executable, Path(__file__)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found: dict[str, dict[str, Any]] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_schema_gets_its_refusal_within_the_bounds(
    name: str, results: dict[str, dict[str, Any]]
) -> None:
    found = results[name]
    assert found["outcome"] == CASES[name][1], found
    assert found["steps"] < STEPS, found
    assert found["peak"] < BYTES, found
    if found["outcome"] not in ("compiles", "empty"):
        assert found["message"]


if __name__ == "__main__":
    JsonSchema(
        {"type": "object", "properties": {"a": {"pattern": "a"}}}
    ).dfa()  # our kernels are not theirs to pay for
    print(json.dumps({name: attempt(name) for name in (sys.argv[1:] or CASES)}))

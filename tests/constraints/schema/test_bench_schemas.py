"""Real schemas: the 200 of JSONSchemaBench that we are given, with their valid and invalid instances."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from diffinity.constraints.schema import JsonSchema
from diffinity.constraints.schema.spelling import spell
from diffinity.errors import ConstraintError
from diffinity.limits import use_limits

jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="pip install 'diffinity[dev]'")

SHARED = Path(os.environ.get("DIFFINITY_SHARED", Path(__file__).parents[3].parent / "shared"))
BENCH = SHARED / "data" / "jsonschemabench-200.jsonl"
MAX_STATES = 20_000  # the test compiles what is quick; `benchmarks/json_schema.py` has the whole table
SAMPLES = 5

pytestmark = pytest.mark.skipif(not BENCH.is_file(), reason="the shared data is not here (set DIFFINITY_SHARED)")


@dataclass
class Facts:
    """What came of all schemas; the automata themselves are not kept."""

    compiled: int = 0
    refusals: list[ConstraintError] = field(default_factory=list)
    invalid_accepted: list[tuple[str, Any]] = field(default_factory=list)
    valid: int = 0
    valid_accepted: int = 0
    bad_samples: list[tuple[str, bytes]] = field(default_factory=list)


@lru_cache(maxsize=2)
def facts(is_open: bool) -> Facts:
    """Compile each schema within limits that keep the test short, and look at it from all sides."""
    found = Facts()
    for line in BENCH.read_text().splitlines():
        row = json.loads(line)
        constraint = JsonSchema(row["schema"], open=is_open)
        try:
            with use_limits(nfa_states=MAX_STATES):
                constraint.dfa()
        except ConstraintError as refusal:
            found.refusals.append(refusal)
            continue
        found.compiled += 1
        for test in row["tests"]:
            accepted = constraint.accepts(spell(test["data"]))
            found.valid += test["valid"]
            found.valid_accepted += test["valid"] and accepted
            if accepted and not test["valid"]:
                found.invalid_accepted.append((row["name"], test["data"]))
        found.bad_samples += [(row["name"], text) for text in bad_samples(row["schema"], constraint)]
    return found


def bad_samples(schema: Any, constraint: JsonSchema) -> list[bytes]:
    """Random accepted strings that do not validate, with formats asserted or without."""
    rng = random.Random(7)
    texts = [constraint.dfa().sample(rng, 300) for _ in range(SAMPLES)]
    validators = [jsonschema_rs.validator_for(schema, validate_formats=on) for on in (None, True)]
    return [text for text in texts if not all(validator.is_valid(json.loads(text)) for validator in validators)]


@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open"])
def test_no_invalid_instance_is_accepted(is_open: bool) -> None:
    assert not facts(is_open).invalid_accepted


@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open"])
def test_samples_validate_with_their_formats_and_without(is_open: bool) -> None:
    assert not facts(is_open).bad_samples


def test_most_schemas_compile_even_within_small_limits() -> None:
    found = facts(False)
    assert found.compiled >= 0.85 * (found.compiled + len(found.refusals))


def test_every_refusal_names_a_keyword_or_a_limit() -> None:
    assert all(
        getattr(refusal, "keyword", "") or getattr(refusal, "limit", "") for refusal in facts(False).refusals
    )


def test_open_schemas_accept_nearly_all_valid_instances() -> None:
    found = facts(True)
    assert found.valid_accepted >= 0.97 * found.valid

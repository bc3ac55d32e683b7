"""Hostile input of every family at growing sizes: it compiles or is refused, within counted work and memory.

`slowest.json` is a ratchet: for each family at one size, what came of it and how many steps it took. Steps may
only become fewer; `python -m tests.attacks.test_families` writes it anew. Seconds are measured by
`benchmarks/hostile.py`.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diffinity.constraints import JsonSchema, Text
from diffinity.constraints.warm import kernels_ready
from diffinity.errors import ConstraintError, ConstraintTooLarge, DiffinityError
from diffinity.limits import Limits, compiling
from tests.attacks.families import ADDRESSES, FAMILIES, alternating

RATCHET = Path(__file__).with_name("slowest.json")
SIZE = 400
MOST_STEPS = 1.1 * Limits().compile_steps  # the last report may pass the limit, by one chunk of work
MOST_CALLS = 20_000_000  # calls of Python functions: some four seconds
BYTES = 1 << 30
SLOW_TO_MAKE = {"models": 150}  # Pydantic itself takes long to make more
STATM = Path("/proc/self/statm")


@pytest.fixture(autouse=True, scope="module")
def _compiled_kernels() -> None:
    kernels_ready()
    Text("a").dfa()


@contextmanager
def bounded_memory() -> Iterator[None]:
    """An address space of 1 GB beyond what the process has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if STATM.exists():  # Linux
        used = int(STATM.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def attempt(name: str, size: int) -> tuple[str, int]:
    """What comes of a family at a size, and the steps counted; any other exception is a failure."""
    with compiling() as budget, bounded_memory():
        try:
            made = FAMILIES[name](min(size, SLOW_TO_MAKE.get(name, size)))
            made.dfa()
            outcome = "compiles"
            assert made == made, repr(made) and hash(made)
        except DiffinityError as refusal:
            outcome = type(refusal).__name__
            outcome += f": {refusal.limit}" if isinstance(refusal, ConstraintTooLarge) else ""
            assert str(refusal)  # noqa: PT017
    return outcome, budget.meter.steps


@given(st.sampled_from(sorted(FAMILIES)), st.integers(0, 11), st.integers(0, 100))
@settings(max_examples=50, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
def test_every_family_stays_within_its_bounds_at_every_size(name: str, doublings: int, more: int) -> None:
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        _, steps = attempt(name, (1 << doublings) + (more << doublings) // 100)
    finally:
        sys.setprofile(before)
    assert steps < MOST_STEPS
    assert calls < MOST_CALLS


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_family_takes_no_more_steps_than_it_did(name: str) -> None:
    outcome, steps = attempt(name, SIZE)
    expected = json.loads(RATCHET.read_text())[name]
    assert outcome == expected["outcome"]
    assert steps <= 1.02 * expected["steps"]


@pytest.mark.parametrize("size", [100_000])
@pytest.mark.parametrize("name", ["enum of integers", "enum of strings", "unbalanced brackets", "a long pattern"])
def test_a_hundred_thousand_of_them_are_no_trouble(name: str, size: int) -> None:
    outcome, steps = attempt(name, size)
    assert outcome in ("compiles", "ConstraintSyntaxError", "ConstraintTooLarge: pattern_length")
    assert steps < MOST_STEPS


@pytest.mark.parametrize("keyword", ["$id", "$ref", "$schema", "$anchor", "$dynamicRef"])
@pytest.mark.parametrize("address", ADDRESSES)
def test_what_is_no_address_is_refused_or_harmless(keyword: str, address: str) -> None:
    for schema in ({keyword: address}, {"$id": "http://a/b", "properties": {"x": {keyword: address}}}):
        try:
            JsonSchema(schema).dfa()
        except ConstraintError as refusal:
            assert str(refusal)  # noqa: PT017


def test_a_deep_expression_that_is_allowed_compiles_hashes_and_prints() -> None:
    deep = alternating(90)
    assert deep == alternating(90)
    assert hash(deep) == hash(alternating(90))
    assert repr(deep).startswith("~(~(")
    assert deep.accepts("ab") == (not alternating(89).accepts("ab"))


@pytest.mark.parametrize("levels", [100, 190])
def test_a_deep_schema_does_not_depend_on_the_stack_of_its_caller(levels: int) -> None:
    def from_below(frames: int) -> bool:
        return from_below(frames - 1) if frames else FAMILIES["items"](levels).accepts("[" * levels + "]" * levels)

    assert from_below(0)
    assert from_below(300)


if __name__ == "__main__":
    kernels_ready()
    found = ((name, *attempt(name, SIZE)) for name in sorted(FAMILIES))
    rows = {name: {"outcome": outcome, "steps": steps} for name, outcome, steps in found}
    RATCHET.write_text(json.dumps(rows, indent=1) + "\n")

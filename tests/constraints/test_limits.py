"""The limits: each is checked, named and can be raised; a compilation counts its work, whatever the clock says."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any, cast

import pytest

from diffinity.constraints import ByteDFA, Constraint, Regex
from diffinity.constraints.schema import JsonSchema
from diffinity.errors import ConstraintTooLarge
from diffinity.limits import DEFAULT_LIMITS, Limits, compiling, current_limits, use_limits


@pytest.mark.parametrize(
    ("chosen", "pattern"),
    [
        (Limits(nfa_states=100), "a{200}"),
        (Limits(nfa_edges=100), "[a-c]{200}|b|c"),
        (Limits(dfa_states=100), "a{200}"),
        (Limits(dfa_states=100), "é{60}"),
        (Limits(table_entries=1000), "(abcdefgh){300}"),
        (Limits(memory_bytes=100_000), "a{5000}"),
        (Limits(compile_steps=10_000), "a{100}"),
    ],
)
def test_each_limit_stops_what_passes_it_and_is_named(chosen: Limits, pattern: str) -> None:
    changed = [f.name for f in fields(Limits) if getattr(chosen, f.name) != getattr(DEFAULT_LIMITS, f.name)]
    with pytest.raises(ConstraintTooLarge) as refused:
        Regex(pattern).dfa(chosen)
    assert [refused.value.limit] == changed
    assert f"use_limits({changed[0]}=...)" in str(refused.value)


def test_limits_of_the_text_itself() -> None:
    with use_limits(pattern_length=10), pytest.raises(ConstraintTooLarge, match="pattern_length"):
        Regex("a" * 11)
    with use_limits(nesting_depth=60), pytest.raises(ConstraintTooLarge, match="nesting_depth"):
        Regex("(" * 61 + ")" * 61)


def test_limits_nest_and_end_with_their_block() -> None:
    with use_limits(dfa_states=7), use_limits(nfa_states=8):
        assert (current_limits().dfa_states, current_limits().nfa_states) == (7, 8)
    assert current_limits() == DEFAULT_LIMITS


def test_limits_of_one_thread_are_not_those_of_another() -> None:
    seen: list[Limits] = []
    with use_limits(dfa_states=7):
        thread = threading.Thread(target=lambda: seen.append(current_limits()))
        thread.start()
        thread.join()
    assert seen == [DEFAULT_LIMITS]


def test_operations_inside_one_compilation_share_its_meter() -> None:
    with compiling() as alone:
        ByteDFA.literal(b"a")
    with compiling(Limits(compile_steps=2 * alone.meter.steps)):
        ByteDFA.literal(b"a")
        ByteDFA.literal(b"b")
        with pytest.raises(ConstraintTooLarge, match="compile_steps"):
            ByteDFA.literal(b"c")


def test_a_repeated_operation_is_done_once() -> None:
    words, digits = ByteDFA.from_strings([b"a", b"b1"]), Regex("[a-z][0-9]*").dfa()
    with compiling() as budget:
        first = words.intersection(digits)
        once = budget.meter.steps
        assert words.intersection(digits) == first
    assert budget.meter.steps - once < once // 10


def test_a_kept_result_does_not_change_the_cost_of_a_cached_part() -> None:
    with compiling() as budget:
        ByteDFA.literal(b"kept")
        before = budget.meter.steps
        with budget.apart():
            ByteDFA.literal(b"kept")
        inside = budget.meter.steps - before
    assert inside == before


COUNT = """
from diffinity.constraints.schema import JsonSchema
from diffinity.limits import compiling

names = ["kind", "size", "name", "unit", "list", "when"]
values = {name: {"type": "string", "minLength": i} for i, name in enumerate(names)}
shapes = [{"properties": {**values, "kind": {"const": kind}}, "required": names} for kind in "abc"]
with compiling() as budget:
    JsonSchema({"type": "object", "oneOf": shapes}, open=True).dfa()
print(budget.meter.steps)
"""


def test_the_work_does_not_depend_on_the_seed_of_hashes() -> None:
    def steps(seed: int) -> str:
        environment = os.environ | {"PYTHONHASHSEED": str(seed)}
        done = subprocess.run(
            [sys.executable, "-c", COUNT], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert len({steps(seed) for seed in range(3)}) == 1


def test_a_compilation_that_ctrl_c_cut_short_charges_no_later_one() -> None:
    outer, inner = compiling(), compiling(Limits(compile_steps=10**9))
    with outer as budget:
        inner.__enter__()
        ByteDFA.literal(b"a")
    cast(Any, inner).gen.close()  # Ctrl-C skipped its exit, and it is cleared away after the outer one
    with compiling() as fresh:
        assert fresh.meter is not budget.meter
        assert fresh.meter.steps == 0


def steps_of(make: Callable[[], Constraint]) -> int:
    with compiling() as budget:
        make().dfa()
    return budget.meter.steps


PARTS: dict[str, Callable[[], Constraint]] = {
    "a regular expression": lambda: Regex(r"(?i)[a-zé]{3,9}\d+"),
    "a schema": lambda: JsonSchema({"properties": {"a": {"pattern": "^x+$", "maxLength": 9}, "b": {}}}),
    "a sum of constraints": lambda: Regex("[ab]{3}") & ~JsonSchema({"multipleOf": 7}),
}


@pytest.mark.parametrize("name", PARTS)
def test_what_was_compiled_before_changes_no_count(name: str) -> None:
    first = steps_of(PARTS[name])
    for other in PARTS.values():
        steps_of(other)
    assert steps_of(PARTS[name]) == first


def test_a_part_that_is_compiled_already_is_charged_in_another() -> None:
    fresh, known = Regex("[ab]{50}[bc]{50}"), Regex("[ab]{50}[bc]{50}")
    known.dfa()
    assert steps_of(lambda: known | "x") == steps_of(lambda: fresh | "x")


class Clock:
    """Processor time that passes by the call."""

    def __init__(self, tick: float) -> None:
        self.now, self.tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


@pytest.mark.parametrize("pattern", ["a?" * 9000, "[ab]*a[ab]{30}", "(?s).*a.{16}"])
def test_a_refusal_is_the_same_on_slow_and_fast_machines(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = set()
    for tick in (0.0, 1e-6, 1e-2):
        monkeypatch.setattr(time, "thread_time", Clock(tick))
        with use_limits(compile_steps=20_000_000), pytest.raises(ConstraintTooLarge) as refused:
            Regex(pattern).dfa()
        refusals.add(str(refused.value))
    assert len(refusals) == 1


def test_the_clock_is_a_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "thread_time", Clock(DEFAULT_LIMITS.compile_seconds))
    with pytest.raises(ConstraintTooLarge, match="compile_seconds"):
        Regex("a{100}").dfa()

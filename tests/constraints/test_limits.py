"""The limits: each is checked, named and can be raised; a compilation has one clock."""

from __future__ import annotations

import threading
import time
from dataclasses import fields

import pytest

from diffinity.constraints import ByteDFA, Regex
from diffinity.errors import ConstraintTooLarge
from diffinity.limits import DEFAULT_LIMITS, Budget, Limits, compiling, current_limits, use_limits


@pytest.mark.parametrize(
    ("limits", "pattern"),
    [
        (Limits(nfa_states=100), "a{200}"),
        (Limits(nfa_edges=100), "[a-c]{200}|b|c"),
        (Limits(dfa_states=100), "a{200}"),
        (Limits(dfa_states=100), "é{60}"),
        (Limits(table_entries=1000), "(abcdefgh){300}"),
        (Limits(memory_bytes=100_000), "a{5000}"),
        (Limits(compile_seconds=0.0), "a{100}"),
    ],
)
def test_each_limit_stops_what_passes_it_and_is_named(limits: Limits, pattern: str) -> None:
    changed = [f.name for f in fields(Limits) if getattr(limits, f.name) != getattr(DEFAULT_LIMITS, f.name)]
    with pytest.raises(ConstraintTooLarge) as refused:
        Regex(pattern).dfa(limits)
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


def test_operations_inside_one_compilation_share_its_clock() -> None:
    with compiling(Limits(compile_seconds=0.05)) as budget:
        busy_until = time.thread_time() + 0.06
        while time.thread_time() < busy_until:
            pass
        with pytest.raises(ConstraintTooLarge, match="compile_seconds"):
            ByteDFA.literal(b"a")
        budget.clock.start = time.thread_time()
        assert ByteDFA.literal(b"a").accepts(b"a")


def test_paused_time_is_not_counted() -> None:
    budget = Budget(Limits(compile_seconds=0.05))
    with budget.paused():
        busy_until = time.thread_time() + 0.06
        while time.thread_time() < busy_until:
            pass
    budget.check_time("nothing")

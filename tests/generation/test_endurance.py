"""Many calls: at once in threads, interrupted at any moment, and one after another without growing.

`python -m benchmarks.endurance` does the same with more of each.
"""

from __future__ import annotations

import pytest
from benchmarks.endurance import interrupted_calls, memory_over_time, texts_at_once, texts_one_by_one

import diffinity as dy

MODEL = dy.fit_markov(["the cat sat.", "the dog ran.", "a cat ran on the mat.", '{"id": 12}'])


def test_eight_threads_with_different_constraints_give_what_one_by_one_gives() -> None:
    assert texts_at_once(MODEL, threads=8, calls=2) == texts_one_by_one(MODEL, threads=8, calls=2)


# Where a destructor runs when the signal comes, Python reports the interrupt and goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_after_an_interrupt_at_any_moment_the_next_call_works() -> None:
    interrupts, wrong = interrupted_calls(MODEL, moments=20, seed=1)
    assert wrong == []
    assert interrupts >= 5  # others came when a call was over


def test_memory_stays_flat_over_many_calls_and_constraints() -> None:
    after = memory_over_time(MODEL, calls=40, constraints=300, parts=3)
    assert after[-1] - after[0] < 24e6

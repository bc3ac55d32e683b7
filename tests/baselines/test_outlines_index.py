"""The index of outlines-core, built in a process with limits."""

from __future__ import annotations

import pytest

outlines_core = pytest.importorskip("outlines_core", reason="pip install 'diffinity[bench]'")

from diffinity.baselines.outlines_index import NoIndex, build_index  # noqa: E402

LETTERS = {bytes([97 + i]): [1 + i] for i in range(26)}


def test_it_is_the_index_that_the_engine_builds_itself() -> None:
    here = outlines_core.Index("(ab|c){2,5}d?", outlines_core.Vocabulary(0, LETTERS))
    assert build_index("(ab|c){2,5}d?", 0, LETTERS) == here
    assert build_index("(ab|c){2,4}d?", 0, LETTERS) != here


def test_an_expression_that_the_engine_refuses_says_so() -> None:
    with pytest.raises(NoIndex, match="Failed to build"):
        build_index("(a", 0, LETTERS)


def test_time_and_memory_are_limited() -> None:
    large = "([a-z]{1,40}z){1,60}"
    with pytest.raises(NoIndex, match=r"not ready after 0\.01 s"):
        build_index(large, 0, LETTERS, seconds=0.01)
    with pytest.raises(NoIndex, match=r"could not be built within 0\.0\d+ GB: \S+"):
        build_index(large, 0, LETTERS, max_bytes=40 << 20)

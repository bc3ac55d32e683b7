"""A start token: it stands first in every framing, once, and is no part of the text; checked by enumeration."""

from __future__ import annotations

from itertools import product

import pytest

from diffinity.alignment import Framing, Vocabulary, align
from diffinity.constraints import Regex
from diffinity.errors import InvalidArgument

TOKENS = [b"a", b"b", b"ab", None, None, None]
SPECIAL, START, END = 3, 4, 5
PATTERN = "(ab)*|b"


def text(ids: tuple[int, ...]) -> str:
    return b"".join(TOKENS[i] or b"" for i in ids).decode()


def matches(ids: tuple[int, ...], framing: Framing, end: int) -> bool:
    """What a framing means, for what stands after the start token."""
    if framing == "exact":
        return end not in ids and Regex(PATTERN).accepts(text(ids))
    if framing == "search":
        pieces: list[list[int]] = [[]]
        for token in ids:
            pieces.append([]) if token == end else pieces[-1].append(token)
        return any(Regex(f".*({PATTERN}).*").accepts(text(tuple(piece))) for piece in pieces)
    if end not in ids:
        return False
    cut = ids.index(end)
    strict = framing == "eos" or all(token == end for token in ids[cut:])
    return strict and Regex(PATTERN).accepts(text(ids[:cut]))


@pytest.mark.parametrize("framing", ["exact", "eos", "eos_strict", "search"])
@pytest.mark.parametrize("end", [END, START], ids=["own end token", "start is end"])
def test_every_sequence_is_accepted_or_refused_as_the_framing_says(framing: Framing, end: int) -> None:
    automaton = align(Regex(PATTERN), Vocabulary(TOKENS, eos_id=end, start_id=START), framing)
    for length in range(5):
        for ids in product(range(len(TOKENS)), repeat=length):
            after = ids[1:]
            outside = {SPECIAL, START, END} - {end}  # special tokens that stand nowhere but at the start
            sound = ids[:1] == (START,) and not outside & set(after)
            assert automaton.accepts(ids) == (sound and matches(after, framing, end)), ids


def test_the_start_token_costs_one_place() -> None:
    plain = align(Regex("abab"), Vocabulary(TOKENS, eos_id=END), "eos")
    framed = align(Regex("abab"), Vocabulary(TOKENS, eos_id=END, start_id=START), "eos")
    assert plain.shortest() == [2, 2, END]
    assert framed.shortest() == [START, 2, 2, END]
    assert framed.n_states == plain.n_states + 1


def test_a_constraint_without_texts_stays_empty() -> None:
    nothing = Regex("a") & Regex("b")
    assert align(nothing, Vocabulary(TOKENS, eos_id=END, start_id=END), "eos").is_empty


def test_a_start_token_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="start_id 9 is not a token: there are 6"):
        Vocabulary(TOKENS, start_id=9)

"""What each character class matches, over every code point that there is."""

from __future__ import annotations

import random
import re
import unicodedata

import pytest

from diffinity.constraints.codepoints import LAST, code_set, complement, partition
from diffinity.constraints.regex import compile_regex
from diffinity.constraints.regex_syntax import Chars, parse

CHARACTERS = [chr(code) for code in range(LAST + 1) if not 0xD800 <= code <= 0xDFFF]
CASED = [
    c for c in CHARACTERS if c.lower() != c or c.upper() != c or unicodedata.category(c) in ("Lu", "Ll", "Lt")
]


def members(pattern: str) -> set[str]:
    tree = parse(pattern)
    assert isinstance(tree, Chars)
    return {chr(code) for first, last in tree.codes for code in range(first, last + 1)}


@pytest.mark.parametrize("pattern", [r"\w", r"(?a)\s", ".", "(?i)[k-s]", r"(?i)[^\Wa-z]", "(?i)[a-\U00010410]"])
def test_a_class_matches_what_re_matches_on_every_code_point(pattern: str) -> None:
    matches = re.compile(pattern).fullmatch
    assert members(pattern) == {c for c in CHARACTERS if matches(c)}


def test_classes_agree_with_the_string_methods() -> None:
    assert members(r"\d") == {c for c in CHARACTERS if c.isdecimal()}
    assert members(r"\w") == {c for c in CHARACTERS if c.isalnum() or c == "_"}
    assert members(r"\s") == {c for c in CHARACTERS if c.isspace()}


def test_every_letter_with_case_matches_what_re_matches_without_case() -> None:
    everything = "".join(CASED)
    for letter in CASED:
        expected = {*re.findall(f"(?i){re.escape(letter)}", everything)}
        assert members(f"(?i){re.escape(letter)}") & {*CASED} == expected, letter


def test_the_automaton_of_a_class_accepts_exactly_its_characters() -> None:
    rng = random.Random(0)
    for pattern in (r"\w", r"[^\W\d]", r"(?i)[k-s😀]", r"[\u0800-\uffff]", r"[\U00010000-\U0010ffff]"):
        dfa = compile_regex(pattern)
        assert sum(dfa.counts(4)) == len(members(pattern))
        inside = members(pattern)
        assert all(dfa.accepts(c.encode()) == (c in inside) for c in rng.sample(CHARACTERS, 4000))


def test_a_complement_and_its_set_are_everything_once() -> None:
    rng = random.Random(1)
    for _ in range(50):
        codes = code_set((low := rng.randint(0, LAST), min(LAST, low + rng.randint(0, 9999))) for _ in range(5))
        counted = sum(last - first + 1 for part in (codes, complement(codes)) for first, last in part)
        assert counted == len(CHARACTERS)
        assert complement(complement(codes)) == codes


def test_the_partition_is_the_coarsest_that_makes_up_every_set() -> None:
    rng = random.Random(2)
    for _ in range(50):
        sets = [{rng.randrange(300) for _ in range(rng.randint(1, 200))} for _ in range(4)]
        alphabet, made_of = partition([code_set((c, c) for c in s) for s in sets])
        label = {c: int(alphabet.label[alphabet.starts.searchsorted(c, "right") - 1]) for c in range(300)}
        for s, classes in zip(sets, made_of, strict=True):
            assert s == {c for c in label if label[c] in classes}
        assert alphabet.n_labels == len({tuple(c in s for s in sets) for c in range(300)} - {(False,) * 4})

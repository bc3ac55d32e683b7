"""Sentence templates against a tokenizer of six lines, on random sentences."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from diffinity.constraints import Constraint, Regex, sentences
from diffinity.constraints.sentences import Sentence
from diffinity.errors import InvalidArgument, UnsupportedConstraint

VOCABULARY = ["the", "old", "river", "don't", "a", "1990", "River", "older", "flows", "I"]
GAPS = [" ", " ", " ", ", ", ". ", "; ", ' "', "-", "\n", " ("]


def words_of(text: str) -> list[str]:
    """The words of a text by the definition of the module, without its regex."""
    return "".join(c if c.isascii() and (c.isalnum() or c == "'") else " " for c in text).split()


def random_sentence(rng: random.Random) -> str:
    text = rng.choice(["", "", '"', " "])
    for i in range(rng.randint(0, 6)):
        text += (rng.choice(GAPS) if i else "") + rng.choice(VOCABULARY)
    return text + rng.choice(["", ".", "!", "...", '."'])


TEMPLATES: list[tuple[Constraint, Callable[[list[str]], bool]]] = [
    (sentences.word_at(1, "the"), lambda w: w[:1] == ["the"]),
    (sentences.word_at(3, "river"), lambda w: w[2:3] == ["river"]),
    (sentences.word_at(2, "river", ignore_case=True), lambda w: [x.lower() for x in w[1:2]] == ["river"]),
    (sentences.word_from_end(1, "don't"), lambda w: w[-1:] == ["don't"]),
    (sentences.word_from_end(2, "old"), lambda w: len(w) > 1 and w[-2] == "old"),
    (sentences.contains_words("old"), lambda w: "old" in w),
    (sentences.contains_words("river", "old"), lambda w: {"river", "old"} <= {*w}),
    (sentences.contains_words("a", "a", "old"), lambda w: Counter(w)["a"] > 1 and "old" in w),
    (sentences.between("the", "river"), lambda w: "the" in w and "river" in w[w.index("the") :]),
    (sentences.between("a", "old", 0), lambda w: ("a", "old") in pairwise(w)),
    (sentences.between("the", "the", 1), lambda w: ("the", "the") in zip(w, w[2:], strict=False)),
    (sentences.has_word_of_length(4), lambda w: any(len(x.replace("'", "")) == 4 for x in w)),
    (sentences.has_word_of_length(1), lambda w: any(len(x) == 1 for x in w)),
]


@pytest.mark.parametrize(("template", "holds"), TEMPLATES, ids=lambda x: repr(x)[:60])
def test_a_template_accepts_what_counting_words_accepts(
    template: Constraint, holds: Callable[[list[str]], bool]
) -> None:
    rng = random.Random(0)
    seen = set()
    for _ in range(800):
        text = random_sentence(rng)
        seen.add(expected := holds(words_of(text)))
        assert template.accepts(text) == expected, text
    assert seen == {True, False}


@pytest.mark.parametrize("template", [template for template, _ in TEMPLATES], ids=lambda x: repr(x)[:60])
def test_the_printed_regex_means_the_same(template: Constraint) -> None:
    assert Regex(template.pattern()).dfa() == template.dfa()


def test_an_apostrophe_joins_only_letters() -> None:
    assert not sentences.contains_words("don't").accepts("don 't")
    assert not sentences.word_at(1, "don").accepts("don't")


def test_words_of_any_script() -> None:
    template = sentences.word_at(2, "été", words=sentences.WORDS_OF_ANY_SCRIPT)
    assert template.accepts("L'hiver, été!") is True
    assert template.accepts("L'hiver étés") is False


def test_many_words_are_an_intersection_and_no_regex() -> None:
    six = sentences.contains_words("a", "b", "c", "d", "e", "f")
    assert six.accepts("f e d c b a")
    assert not six.accepts("f e d c b")
    with pytest.raises(UnsupportedConstraint, match="720 orders"):
        six.pattern()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sentences.word_at(0, "a"), "count from 1"),
        (lambda: sentences.word_from_end(1, "two words"), "not one word"),
        (lambda: sentences.between("a", "b", -1), "0 or more"),
        (lambda: sentences.contains_words(), "at least one"),
        (lambda: sentences.contains_words("naïve"), "not one word"),
        (lambda: sentences.has_word_of_length(0), "count from 1"),
    ],
)
def test_a_bad_argument_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        make()


def test_patterns_are_plain_regular_expressions() -> None:
    assert re.fullmatch(sentences.word_at(2, "old").pattern(), "The old river.")


@pytest.mark.parametrize(
    ("sentence", "inside", "outside"),
    [
        (Sentence("prefix", ("old",), 2), "The old river.", "The river is old."),
        (Sentence("suffix", ("old",), 1), "The river is old.", "The old river."),
        (Sentence("appearance", ("is", "old")), "So old it is.", "So old."),
        (Sentence("between-n", ("the", "is"), 1), "the river is", "the old river is"),
        (Sentence("between", ("the", "is")), "the old river is", "is the river"),
        (Sentence("length", (), 5), "a river", "a rivers"),
    ],
)
def test_a_sentence_means_its_regex(sentence: Sentence, inside: str, outside: str) -> None:
    for text, expected in ((inside, True), (outside, False)):
        assert sentence.accepts(text) is expected
        assert (re.fullmatch(sentence.pattern(), text) is not None) is expected


@pytest.mark.parametrize(
    "parts", [("prefix", ("old",), None), ("between", ("a", "b"), 2), ("suffix", (), 1), ("infix", ("a",), 1)]
)
def test_a_sentence_of_parts_that_do_not_go_together_is_refused(parts: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidArgument):
        Sentence(*parts)

"""The grammar judge: right sentences are clean, wrong ones are not, in the report too."""

from __future__ import annotations

import math
import os

import pytest

from diffinity.bench import grammar
from diffinity.bench.grammar import GrammarCounts

installed = pytest.mark.skipif(
    not grammar.available() and not os.environ.get("CI"), reason="link-grammar and hunspell are not installed"
)


@installed
@pytest.mark.parametrize(
    "sentence",
    ["The cat sat on the mat.", "What is your name?", "I don't know where she lives.", "Kenji's dog is very old."],
)
def test_right_sentences_are_clean(sentence: str) -> None:
    [[verdict]] = grammar.judge([sentence])
    assert verdict.clean


@installed
@pytest.mark.parametrize(
    ("sentence", "parsed", "non_words"),
    [
        ("He was axated to the site.", True, ("axated",)),
        ("I goes have very to.", False, ()),
        ("The the cat sat.", None, ()),
    ],
)
def test_wrong_sentences_are_not_clean(sentence: str, parsed: bool | None, non_words: tuple[str, ...]) -> None:
    [[verdict]] = grammar.judge([sentence])
    assert not verdict.clean
    assert verdict.non_words == non_words
    if parsed is not None:
        assert verdict.parsed == parsed


@installed
def test_lines_that_look_like_commands_of_the_parser_are_sentences_too() -> None:
    verdicts = [part[0] for part in grammar.judge(["!help me with the door.", "%The cat sat.", "The dog ran."])]
    assert [verdict.parsed for verdict in verdicts] == [True, True, True]


@installed
def test_every_sentence_gets_its_own_verdict() -> None:
    texts = ["The dog ran. It very to of.", "", "The dog ran."]
    verdicts = grammar.judge(texts)
    assert [[verdict.clean for verdict in part] for part in verdicts] == [[True, False], [], [True]]


def test_a_sentence_that_the_parser_gives_up_on_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def together(every: list[str]) -> list[bool]:
        nonlocal calls
        calls += 1
        hard = every.index("hard") if "hard" in every else len(every)
        return [sentence == "right" for sentence in every[:hard]]  # the parser stops there

    monkeypatch.setattr(grammar, "_parse_together", together)
    asked = ["right"] * 20 + ["hard"] + ["wrong"] * 11
    assert grammar._parse(asked) == [True] * 20 + [None] + [False] * 11
    assert calls <= 1 + 2 * 5  # halves of halves, not every sentence by itself


def test_shares_of_nothing_are_not_numbers() -> None:
    assert math.isnan(GrammarCounts().clean_share)


def test_numbers_and_addresses_are_no_words() -> None:
    assert grammar._words("Call 5th at a@b.org or e.g.x now") == ["Call", "at", "or", "now"]

"""Sentence templates of natural-language benchmarks: constraints on the positions of words, each with its regex.

A word is a run of the letters A–Z, a–z and digits, with single apostrophes allowed inside ("don't" is one word,
and so is "1990"). Between words there are gaps: one or more spaces, newlines or marks of ``, . ; : ! ? " ( ) -``;
a gap may also begin or end the text. So "well-known" is two words, and a text with any other character (an
accented letter, a currency sign) does not match these templates. Use `words=WORDS_OF_ANY_SCRIPT` for letters of
every script; the automaton is then about a hundred times larger.

Positions count from 1: the first word is word 1.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import permutations
from math import factorial
from typing import Literal

from diffinity.constraints.base import And, Constraint, Regex
from diffinity.constraints.dfa import ByteDFA
from diffinity.errors import InvalidArgument, UnsupportedConstraint


@dataclass(frozen=True)
class Words:
    """The letters of words and the marks between words: two character classes of `re`.

    >>> Words().word
    "[A-Za-z0-9]+(?:'[A-Za-z0-9]+)*"
    """

    letter: str = "[A-Za-z0-9]"
    gap: str = r'[ \n,.;:!?"()\-]'

    @property
    def word(self) -> str:
        """The regex of any word."""
        return f"{self.letter}+(?:'{self.letter}+)*"


ENGLISH = Words()
WORDS_OF_ANY_SCRIPT = Words(r"[^\W_]", r"[^\w']")

MOST_ORDERS = 120  # the maximum number of alternatives in `ContainsWords.pattern`


def word_at(n: int, word: str, *, ignore_case: bool = False, words: Words = ENGLISH) -> Regex:
    """Texts whose n-th word is `word`.

    >>> word_at(2, "old").accepts("The old river."), word_at(2, "old").accepts("An older river.")
    (True, False)
    """
    words_before = f"(?:{words.word}{words.gap}+){{{_position(n) - 1}}}"
    return Regex(_text(words_before + _exactly(word, words, ignore_case) + _more_after(words), words))


def word_from_end(n: int, word: str, *, ignore_case: bool = False, words: Words = ENGLISH) -> Regex:
    """Texts whose n-th word from the end is `word`; 1 is the last.

    >>> word_from_end(1, "river").accepts("The old river.")
    True
    """
    words_after = f"(?:{words.gap}+{words.word}){{{_position(n) - 1}}}"
    return Regex(_text(_more_before(words) + _exactly(word, words, ignore_case) + words_after, words))


def between(
    first: str, second: str, n: int | None = None, *, ignore_case: bool = False, words: Words = ENGLISH
) -> Regex:
    """Texts in which `first` precedes `second` with exactly n words in between; None for any number.

    >>> between("old", "river", 1).accepts("The old grey river."), between("old", "river").accepts("old river")
    (True, True)
    """
    if n is not None and n < 0:
        raise InvalidArgument(f"the number of words between must be 0 or more, not {n}")
    count = "*" if n is None else f"{{{n}}}"
    middle = f"{words.gap}+(?:{words.word}{words.gap}+){count}"
    pair = _exactly(first, words, ignore_case) + middle + _exactly(second, words, ignore_case)
    return Regex(_text(_more_before(words) + pair + _more_after(words), words))


def has_word_of_length(n: int, *, words: Words = ENGLISH) -> Regex:
    """Texts with some word of exactly n letters; apostrophes are not counted.

    >>> has_word_of_length(5).accepts("I can't be."), has_word_of_length(4).accepts("I can't be.")
    (False, True)
    """
    sized = f"{words.letter}(?:'?{words.letter}){{{_position(n) - 1}}}"
    return Regex(_text(_more_before(words) + sized + _more_after(words), words))


def contains_words(*wanted: str, ignore_case: bool = False, words: Words = ENGLISH) -> ContainsWords:
    """Texts that contain all of these words, in any order; a word given twice must occur twice.

    >>> contains_words("river", "old").accepts("The old river."), contains_words("old").accepts("The older river.")
    (True, False)
    """
    return ContainsWords(tuple(wanted), ignore_case, words)


@dataclass(frozen=True)
class ContainsWords(Constraint):
    """Texts that contain all of some words, in any order: compiled as an intersection, one part for each word."""

    wanted: tuple[str, ...]
    ignore_case: bool = False
    words: Words = field(default=ENGLISH)

    def __post_init__(self) -> None:
        if not self.wanted:
            raise InvalidArgument("contains_words needs at least one word")
        for word in self.wanted:
            _exactly(word, self.words, self.ignore_case)

    def _build(self) -> ByteDFA:
        counted = Counter(word.lower() if self.ignore_case else word for word in self.wanted)
        return And(tuple(Regex(self._in_order([word] * n)) for word, n in counted.items())).dfa()

    def pattern(self) -> str:
        """The alternation of all orders of the words; refused for more than five words.

        >>> re.fullmatch(contains_words("b", "a").pattern(), "b c a") is not None
        True
        """
        orders = factorial(len(self.wanted))
        if orders > MOST_ORDERS:
            raise UnsupportedConstraint(
                f"contains_words of {len(self.wanted)} words is {orders:,} orders as a regular expression; "
                "use the constraint itself, which is an intersection"
            )
        return "|".join(self._in_order(list(order)) for order in sorted(set(permutations(self.wanted))))

    def _in_order(self, order: list[str]) -> str:
        gap, word = self.words.gap, self.words.word
        between_them = f"{gap}+(?:{word}{gap}+)*"
        pattern = between_them.join(_exactly(w, self.words, self.ignore_case) for w in order)
        return _text(_more_before(self.words) + pattern + _more_after(self.words), self.words)


Template = Literal["prefix", "suffix", "appearance", "between-n", "between", "length"]


@dataclass(frozen=True)
class Sentence(Constraint):
    """One of the paper's six templates with its words. It accepts the same texts as the functions above.

    `n` is the position of "prefix" (from the start) and "suffix" (from the end), the number of words between, or
    the length of the word. Systems without automata read these fields instead of compiling the constraint.

    >>> Sentence("prefix", ("old",), 2).accepts("The old river.")
    True
    """

    template: Template
    wanted: tuple[str, ...] = ()
    n: int | None = None
    ignore_case: bool = False

    def __post_init__(self) -> None:
        word_counts = {"prefix": 1, "suffix": 1, "appearance": 2, "between-n": 2, "between": 2, "length": 0}
        if self.template not in word_counts:
            raise InvalidArgument(f"template must be one of {', '.join(word_counts)}, but is {self.template!r}")
        if len(self.wanted) != word_counts[self.template]:
            raise InvalidArgument(
                f"the template {self.template!r} takes {word_counts[self.template]} words, not {len(self.wanted)}"
            )
        if (self.n is None) != (self.template in ("appearance", "between")):
            raise InvalidArgument(f"the template {self.template!r} and n = {self.n} do not go together")
        self.meaning()

    def meaning(self) -> Regex | ContainsWords:
        """The constraint of the template; its `pattern` is a regex of Python's `re`."""
        case, n = self.ignore_case, self.n
        if self.template == "length":
            assert n is not None
            return has_word_of_length(n)
        if self.template == "appearance":
            return contains_words(*self.wanted, ignore_case=case)
        if self.template in ("prefix", "suffix"):
            assert n is not None
            template_function = word_at if self.template == "prefix" else word_from_end
            return template_function(n, self.wanted[0], ignore_case=case)
        first, second = self.wanted
        return between(first, second, n, ignore_case=case)

    def pattern(self) -> str:
        """The regex of Python's `re` for the same texts.

        >>> re.fullmatch(Sentence("between", ("a", "b")).pattern(), "a to b") is not None
        True
        """
        return self.meaning().pattern()

    def _build(self) -> ByteDFA:
        return self.meaning().dfa()


def _text(pattern: str, words: Words) -> str:
    return f"{words.gap}*{pattern}{words.gap}*"


def _more_before(words: Words) -> str:
    return f"(?:{words.word}{words.gap}+)*"


def _more_after(words: Words) -> str:
    return f"(?:{words.gap}+{words.word})*"


def _exactly(word: str, words: Words, ignore_case: bool) -> str:
    if not re.fullmatch(words.word, word):
        raise InvalidArgument(f"{word!r} is not one word of these templates: it must match {words.word}")
    return f"(?i:{re.escape(word)})" if ignore_case else re.escape(word)


def _position(n: int) -> int:
    if n < 1:
        raise InvalidArgument(f"positions and lengths count from 1, not {n}")
    return n

"""`pattern`: ECMA-262 regular expressions, searched for anywhere in a string, as automata over its UTF-8 bytes.

The pattern is parsed and translated to Python's dialect. The translation resolves all differences: `$` is the end
of the text, `\\d \\w \\s .` are ECMA's sets, names of groups are dropped. Lookaheads at the start of an anchored
pattern are intersections; other lookarounds and back-references are refused.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.regex import compile_regex
from diffinity.errors import ConstraintSyntaxError, UnsupportedConstraint
from diffinity.limits import PYTHON_STEPS, charged_cache, compiling

Ranges = tuple[tuple[int, int], ...]

_LAST = sys.maxunicode
_DIGIT: Ranges = ((0x30, 0x39),)
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: Ranges = (
    (0x09, 0x0D),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)
_NARROW = {"d": _DIGIT, "w": _WORD, "s": tuple(r for r in _SPACE if r != (0xFEFF, 0xFEFF))}
_LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_COUNT = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}


@charged_cache(maxsize=512)
def searched(pattern: str, wide: bool = False) -> ByteDFA:
    """The strings in which the pattern occurs.

    Engines disagree on whether `.` matches a carriage return or U+2028 and U+2029, and on whether `\\w`, `\\d`,
    `\\s` and `\\b` know more than ASCII. So `searched(p)` has the strings that match in every engine, and
    `searched(p, wide=True)` has the strings that match in at least one engine.

    >>> year = searched("^[0-9]{4}$")
    >>> year.accepts(b"1999"), year.accepts(b"in 1999"), searched("a.c").accepts(b"xabcx")
    (True, False, True)
    >>> searched("^(?!x)[a-z]+$").accepts(b"xyz")
    False
    """
    translated = translate(pattern, wide)
    opposite = translate(pattern, not wide)
    result = _search(translated.pattern)
    for inner in translated.ahead:
        result = result.intersection(_search(inner))
    for inner in opposite.not_ahead:
        result = result.difference(_search(inner))
    if translated.has_edges:  # even engines with Unicode support disagree about some characters
        unclear = _search(_written(_unclear()))
        result = result.union(unclear) if wide else result.difference(unclear)
    return result


def _search(pattern: str) -> ByteDFA:
    return compile_regex(f"(?s:.*)(?:{pattern})(?s:.*)")


@dataclass(frozen=True)
class Translated:
    """A pattern in Python's dialect, and the patterns of lookaheads that must or must not occur."""

    pattern: str
    ahead: tuple[str, ...] = ()
    not_ahead: tuple[str, ...] = ()
    has_edges: bool = False  # `\\b` or `\\B`


def translate(pattern: str, wide: bool = False) -> Translated:
    """An ECMA-262 pattern in Python's dialect.

    >>> translate("^a$").pattern
    '\\\\Aa\\\\Z'
    """
    with compiling() as budget:
        budget.check("pattern_length", len(pattern), "this pattern")
        budget.spend(2 * PYTHON_STEPS * len(pattern), "reading this pattern")
    return _Parser(pattern, wide).translated()


class _Parser:
    def __init__(self, source: str, wide: bool) -> None:
        self.source = source
        self.wide = wide
        self.has_edges = False
        self.dot = _complement(_LINE_ENDS[:1] if wide else _LINE_ENDS)
        self.position = 0
        self.depth = 0

    def translated(self) -> Translated:
        ahead: list[str] = []
        not_ahead: list[str] = []
        prefix = ""
        if self._take("^"):
            prefix = r"\A"
            while self._peek(3) in ("(?=", "(?!"):
                lookaheads = ahead if self._peek(3) == "(?=" else not_ahead
                self.position += 3
                lookaheads.append(rf"\A(?:{self._alternatives()})")
                self._expect(")")
        body = prefix + self._sequence()
        if self._peek() == "|" and (ahead or not_ahead):
            raise self._unsupported("a lookahead before an alternation")
        while self._take("|"):
            body += "|" + self._sequence()
        if self.position < len(self.source):
            raise self._syntax_error("unbalanced ')'")
        return Translated(body, tuple(ahead), tuple(not_ahead), self.has_edges)

    def _alternatives(self) -> str:
        self.depth += 1
        if self.depth > 100:
            raise self._syntax_error("more than 100 nested groups")
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        self.depth -= 1
        return "|".join(parts)

    def _sequence(self) -> str:
        parts = []
        while self.position < len(self.source) and self._peek() not in ("|", ")"):
            parts.append(self._term())
        return "".join(parts)

    def _term(self) -> str:
        char = self._next()
        if char in "^$":
            return r"\A" if char == "^" else r"\Z"
        if char == "\\" and self._peek() in ("b", "B") and self._peek():
            self.has_edges = True
            edge = self._next()
            return rf"(?:(?a:\{edge})|\{edge})" if self.wide else rf"(?a:\{edge})\{edge}"
        if char == "(":
            atom = self._group()
        elif char == "[":
            atom = self._class()
        elif char == ".":
            atom = _written(self.dot)
        elif char == "\\":
            atom = _written(self._escape(in_class=False))
        elif char in "*+?":
            self.position -= 1
            raise self._syntax_error("nothing to repeat")
        else:
            self._code_point(ord(char))
            atom = _written(((ord(char), ord(char)),))
        return atom + self._quantifier()

    def _group(self) -> str:
        if self._peek() == "?":
            start = self.position - 1
            if self._peek(2) == "?:":
                self.position += 2
            elif self._peek(2) == "?<" and self._peek(3) not in ("?<=", "?<!"):
                end = self.source.find(">", self.position)
                if end < 0:
                    raise self._syntax_error("a group's name has no end")
                self.position = end + 1
            else:
                self.position = start
                raise self._unsupported("a lookaround that is not at the start of an anchored pattern")
        inner = self._alternatives()
        self._expect(")")
        return f"(?:{inner})"

    def _quantifier(self) -> str:
        char = self._peek()
        if char in ("*", "+", "?") and char:
            self.position += 1
            quantifier = char
        elif char == "{" and (counted := self._counted()):
            quantifier = counted
        else:
            return ""
        self._take("?")  # a lazy quantifier has the same language
        return quantifier

    def _counted(self) -> str | None:
        match = _COUNT.match(self.source, self.position)
        if match is None:
            return None  # a literal brace
        low, comma, high = match.groups(default="")
        if len(low) > 9 or len(high) > 9:
            raise self._unsupported("a repetition count above a thousand million")
        self.position = match.end()
        return f"{{{int(low)}{comma}{int(high) if high else ''}}}"

    def _class(self) -> str:
        negated = self._take("^")
        self.wide ^= negated  # a narrow complement needs a wide set, and vice versa
        ranges: list[tuple[int, int]] = []
        while not self._take("]"):
            first = self._class_atom()
            if self._peek() == "-" and self._peek(2) not in ("-]", "-"):
                self.position += 1
                second = self._class_atom()
                if len(first) == 1 == len(second) and first[0][0] == first[0][1] and second[0][0] == second[0][1]:
                    if second[0][0] < first[0][0]:
                        raise self._syntax_error("a range of characters that runs backwards")
                    ranges.append((first[0][0], second[0][0]))
                else:  # an end of the range is a set, so the hyphen is literal
                    ranges.extend([*first, (0x2D, 0x2D), *second])
            else:
                ranges.extend(first)
        self.wide ^= negated
        joined = _union(ranges)
        return _written(_complement(joined) if negated else joined)

    def _class_atom(self) -> Ranges:
        char = self._next()
        if char == "\\":
            return self._escape(in_class=True)
        self._code_point(ord(char))
        return ((ord(char), ord(char)),)

    def _escape(self, *, in_class: bool) -> Ranges:
        start = self.position - 1
        char = self._next()
        if char in "dwsDWS":
            ranges = _wide_set(char.lower()) if self.wide == char.islower() else _NARROW[char.lower()]
            return ranges if char.islower() else _complement(ranges)
        if char in "pP" and self._peek() == "{":
            return self._property(negated=char == "P")
        if char in "123456789" or (char == "k" and self._peek() == "<"):
            self.position = start
            raise self._unsupported("a back-reference")
        if char in _CONTROLS and not (char == "0" and self._peek().isdigit()):
            code = _CONTROLS[char]
        elif in_class and char == "b":
            code = 8
        elif char == "c" and self._peek().isascii() and self._peek().isalpha():
            code = ord(self._next()) % 32
        elif char in "xu":
            code = self._hexadecimal(2 if char == "x" else 4)
        elif char.isascii() and char.isalnum():
            self.position = start
            raise self._unsupported(f"the escape \\{char}")
        else:
            code = ord(char)
        return ((self._code_point(code),) * 2,)

    def _hexadecimal(self, digits: int) -> int:
        if digits == 4 and self._take("{"):
            end = self.source.find("}", self.position)
            text, self.position = self.source[self.position : max(end, 0)], end + 1
        else:
            text = self.source[self.position : self.position + digits]
            self.position += digits
        try:
            code = int(text, 16)
        except ValueError:
            raise self._syntax_error("an escape without its hexadecimal digits") from None
        if 0xD800 <= code <= 0xDBFF and self._peek(2) == "\\u":  # a surrogate pair
            self.position += 2
            low = self._hexadecimal(4)
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        return code

    def _code_point(self, code: int) -> int:
        if 0xD800 <= code <= 0xDFFF or not 0 <= code <= _LAST:
            raise self._syntax_error("a code point that UTF-8 has no bytes for")
        return code

    def _property(self, *, negated: bool) -> Ranges:
        start = self.position - 2
        end = self.source.find("}", self.position)
        name = self.source[self.position + 1 : max(end, 0)]
        name = name.removeprefix("General_Category=").removeprefix("gc=")
        name = _CATEGORY_NAMES.get(name, name)
        ranges = _category(name) if end >= 0 else ()
        if not ranges:
            self.position = start
            raise self._unsupported(f"the Unicode property {name!r}")
        self.position = end + 1
        return _complement(ranges) if negated else ranges

    # ---- reading

    def _peek(self, count: int = 1) -> str:
        return self.source[self.position : self.position + count]

    def _next(self) -> str:
        if self.position >= len(self.source):
            raise self._syntax_error("the pattern ends too soon")
        self.position += 1
        return self.source[self.position - 1]

    def _take(self, text: str) -> bool:
        if self.source.startswith(text, self.position):
            self.position += len(text)
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._syntax_error(f"{text!r} is missing")

    def _syntax_error(self, message: str) -> ConstraintSyntaxError:
        return ConstraintSyntaxError(message, self.source, self.position)

    def _unsupported(self, feature: str) -> UnsupportedConstraint:
        return UnsupportedConstraint(f"{feature} in {self.source!r}")


_CATEGORY_NAMES = {
    "Letter": "L",
    "Lowercase_Letter": "Ll",
    "Uppercase_Letter": "Lu",
    "Mark": "M",
    "Number": "N",
    "Decimal_Number": "Nd",
    "digit": "Nd",
    "Punctuation": "P",
    "Symbol": "S",
    "Separator": "Z",
    "Other": "C",
}


@lru_cache(maxsize=32)
def _category(name: str) -> Ranges:
    """All code points (without surrogates) of a general category such as `L` or `Lu`."""
    return _union([run for category, runs in _categories().items() if category.startswith(name) for run in runs])


@lru_cache(maxsize=1)
def _categories() -> dict[str, list[tuple[int, int]]]:
    """The runs of code points of each general category, surrogates left out."""
    runs: dict[str, list[tuple[int, int]]] = {}
    names = "".join(map(unicodedata.category, map(chr, range(_LAST + 1)))).encode()  # two letters each
    pairs = np.frombuffer(names, np.uint16)
    begins = [0, *(np.flatnonzero(pairs[1:] != pairs[:-1]) + 1).tolist(), _LAST + 1]
    for first, past in pairwise(begins):
        category = names[2 * first : 2 * first + 2].decode()
        if category != "Cs":
            runs.setdefault(category, []).append((first, past - 1))
    return runs


@lru_cache(maxsize=4)
def _wide_set(letter: str) -> Ranges:
    """The characters that `\\d`, `\\w` or `\\s` matches in some engine, perhaps with newer Unicode tables."""
    if letter == "s":
        return _union([*_SPACE, (0x1C, 0x1F), (0x85, 0x85), (0x180E, 0x180E)])
    if letter == "d":
        return _union([*_category("Nd"), *_category("Cn")])
    return _union([r for name in ("L", "N", "Pc") for r in _category(name)] + [*_unclear()])


@lru_cache(maxsize=1)
def _unclear() -> Ranges:
    """The characters that are part of a word in some engines only."""
    return _union(
        [*_category("M"), *_category("Cn"), *_category("So"), *_category("Nl"), *_category("No"), (0x200C, 0x200D)]
    )


def _union(ranges: list[tuple[int, int]]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return tuple(joined)


def _complement(ranges: Ranges) -> Ranges:
    gaps, after = [], 0
    for low, high in ranges:
        if low > after:
            gaps.append((after, low - 1))
        after = high + 1
    return (*gaps, (after, _LAST)) if after <= _LAST else tuple(gaps)


def _written(ranges: Ranges) -> str:
    """A set of code points in Python's dialect."""
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        char = chr(ranges[0][0])
        return char if char.isascii() and char.isalnum() else f"\\U{ranges[0][0]:08x}"
    if not ranges:
        return f"[^\\x00-\\U{_LAST:08x}]"
    return "[" + "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges) + "]"

"""Regular expressions that other engines read as Python does: flags and classes are written out as characters.

Python's `re` and Rust's `regex`, which the engines use, differ in some notation and meaning (`{,3}`, `(?a)`, the
letters of `\\w`). Our parser reads the pattern, and the result uses only notation that both have in common.
"""

from __future__ import annotations

from diffinity.constraints.codepoints import CodeSet
from diffinity.constraints.regex_syntax import At, Chars, Either, Loop, Node, Sequence, parse
from diffinity.errors import UnsupportedConstraint


def plain_regex(pattern: str) -> str:
    """The pattern with nothing but characters, classes, groups, alternation and counts.

    >>> plain_regex("(?i)a{,3}[^b]")
    '(?:[Aa]){0,3}[\\\\x{0}-AC-ac-\\\\x{D7FF}\\\\x{E000}-\\\\x{10FFFF}]'
    """
    return _pattern_of(parse(pattern), pattern)


def _pattern_of(node: Node, pattern: str) -> str:
    match node:
        case Chars(codes):
            return _class(codes)
        case Sequence(items):
            return "".join(_grouped(item, pattern) for item in items)
        case Either(items):
            return "|".join(_pattern_of(item, pattern) for item in items)
        case Loop(item, low, high):
            return f"(?:{_pattern_of(item, pattern)}){{{low},{'' if high is None else high}}}"
        case At(kind):
            raise UnsupportedConstraint(
                f"{pattern!r} has an anchor or a word boundary ({kind}), which token engines do not support; "
                "write the pattern for the whole text, without anchors"
            )


def _grouped(node: Node, pattern: str) -> str:
    text = _pattern_of(node, pattern)
    return f"(?:{text})" if isinstance(node, Either) else text


def _class(codes: CodeSet) -> str:
    if len(codes) == 1 and codes[0][0] == codes[0][1]:
        return _character(codes[0][0])
    if not codes:
        return r"[^\x{0}-\x{10FFFF}]"
    ranges = (_character(low) if low == high else f"{_character(low)}-{_character(high)}" for low, high in codes)
    return f"[{''.join(ranges)}]"


def _character(code: int) -> str:
    letter = chr(code)
    return letter if letter.isascii() and letter.isalnum() else f"\\x{{{code:X}}}"

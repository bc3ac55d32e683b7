"""The only module that uses `re`'s private parser: from a pattern to a syntax tree, or an error with its place.

The characters that a node matches are taken from `re` itself, so classes, case folding and flags agree with
Python.
"""

from __future__ import annotations

import _sre  # type: ignore[import-not-found]
import re
import threading
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from re import _casefix, _compiler, _parser  # type: ignore[attr-defined]
from re import _constants as sre  # type: ignore[attr-defined, unused-ignore]
from typing import Any, Final

from diffinity.constraints.codepoints import LAST, CodeSet, code_set, complement
from diffinity.errors import ConstraintError, ConstraintSyntaxError, ConstraintTooLarge
from diffinity.limits import PYTHON_STEPS, charged_cache, compiling

TYPE_FLAGS: Final = re.ASCII | re.LOCALE | re.UNICODE

ANYTHING: Final = code_set([(0, LAST)])
NEWLINE: Final = code_set([(10, 10)])


@dataclass(frozen=True)
class Chars:
    """One character of a set."""

    codes: CodeSet


@dataclass(frozen=True)
class Sequence:
    """One item after another."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class Either:
    """Any one of the items."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class Loop:
    """From `low` to `high` times the item; None for no upper bound."""

    item: Node
    low: int
    high: int | None


@dataclass(frozen=True)
class At:
    """A place between two characters; `kind` is one of `ANCHORS`."""

    kind: str


Node = Chars | Sequence | Either | Loop | At

ANCHORS: Final = (
    "start", "line_start", "end", "line_end", "text_end", "edge", "no_edge", "edge_ascii", "no_edge_ascii",
)  # fmt: skip

# Before Python 3.14 neither \b nor \B matches the empty string.
NO_EDGE_IN_EMPTY: Final = re.fullmatch(r"\B", "") is not None

_UNSUPPORTED: Final = {
    sre.ASSERT: (
        "lookaround is not supported: make its condition a constraint of its own and join them with `&`, "
        "as in Regex(...) & Regex(...)",
        ("(?=", "(?<="),
    ),
    sre.ASSERT_NOT: (
        "lookaround is not supported: make the forbidden pattern a constraint of its own and write `& ~`, "
        "as in Regex(...) & ~Regex(...)",
        ("(?!", "(?<!"),
    ),
    sre.GROUPREF: (
        "a back-reference is not regular: list the texts that may repeat, as in `aa|bb`, or use Choice",
        ("(?P=", *(f"\\{digit}" for digit in "123456789")),
    ),
    sre.GROUPREF_EXISTS: (
        "a conditional group is not supported: write both cases as an alternation, as in `(?:ab|c)`",
        ("(?(",),
    ),
    sre.ATOMIC_GROUP: (
        "an atomic group is not supported: use a plain group `(?:...)`, which allows every way to match",
        ("(?>",),
    ),
    sre.POSSESSIVE_REPEAT: (
        "a possessive quantifier is not supported: leave out the last `+`, which allows every way to match",
        ("*+", "++", "?+", "}+"),
    ),
}

_SET = r"\[\^?\]?(?:\\.|[^\]\\])*\]"
_COMMENT = r"\(\?\#[^)]*\)"
_OTHERS = r"""\\. | \(\?P[<=]\w+[>)] | \(\?<?[=!] | \(\?> | \(\?\( | \(\?[aiLmsux-]*[:)] | [()]
    | (?:[*+?]|\{[0-9]*(?:,[0-9]*)?\})[+?]? | ."""
# After an unclosed set or comment this kind is not searched again: each attempt would scan to the end.
_TOKENS: Final = {
    (sets, comments): re.compile(
        f"{_SET} | " * sets + f"{_COMMENT} | " * comments + _OTHERS, re.DOTALL | re.VERBOSE
    )
    for sets in (True, False)
    for comments in (True, False)
}


_warnings_lock = threading.Lock()


def parse(pattern: str, flags: int = 0) -> Node:
    """The tree of a pattern in Python's dialect, with all flags resolved.

    >>> parse("a{2}")
    Loop(item=Chars(codes=((97, 97),)), low=2, high=2)
    >>> parse("a(?=b)")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    diffinity.errors.ConstraintSyntaxError: lookaround is not supported: ...
    """
    with compiling() as budget:
        budget.check("pattern_length", len(pattern), "this pattern")
        budget.check("nesting_depth", _depth(pattern), "this pattern")
        return _parse(pattern, int(flags))


def check_syntax(pattern: str, flags: int = 0) -> None:
    """Raise the syntax errors that compilation would raise.

    >>> check_syntax("[a-z]+")
    """
    parse(pattern, flags)


@charged_cache(maxsize=64)
def _parse(pattern: str, flags: int) -> Node:
    with compiling() as budget:
        budget.spend(PYTHON_STEPS * len(pattern), "reading this pattern")
    try:
        tree = _quietly_parsed(pattern, flags)
        return _convert(tree, tree.state.flags, pattern)
    except ConstraintError:
        raise
    except re.error as error:
        raise ConstraintSyntaxError(f"not a regular expression: {error.msg}", pattern, error.pos) from None
    except RecursionError:
        raise ConstraintTooLarge("nesting_depth", _depth(pattern), _depth(pattern), "this pattern") from None
    except (OverflowError, ValueError) as error:  # a count of more than 2**32, or flags that exclude each other
        raise ConstraintSyntaxError(f"not a regular expression: {error}", pattern, 0) from None


def _quietly_parsed(pattern: str, flags: int) -> Any:
    """The tree of Python's parser, without its warnings about syntax that may change in later versions."""
    with _warnings_lock, warnings.catch_warnings():  # it changes a list that all threads share
        warnings.simplefilter("ignore")
        return _parser.parse(pattern, flags)


def _depth(pattern: str) -> int:
    """The nesting depth of parentheses, computed without the parser, which recurses."""
    if pattern.count("(") < 50:
        return 0
    depth = deepest = 0
    for _, token in tokens(pattern):
        if token == ")":
            depth -= 1
        elif token[0] == "(" and token[-1] != ")":
            depth += 1
            deepest = max(deepest, depth)
    return deepest


def tokens(pattern: str, verbose: bool = False) -> Iterator[tuple[int, str]]:
    """The tokens of a pattern with their positions; only as exact as error positions need.

    >>> list(tokens("a(?:b)"))
    [(0, 'a'), (1, '(?:'), (4, 'b'), (5, ')')]
    """
    at, sets, comments = 0, True, True
    while match := _TOKENS[sets, comments].match(pattern, at):
        token = match.group()
        sets = sets and token != "["
        comments = comments and not (token == "(" and pattern.startswith("(?#", at))
        if verbose and token == "#":
            end = pattern.find("\n", at)
            token = pattern[at : len(pattern) if end < 0 else end]
        yield at, token
        at += len(token)


def embeddable(pattern: str, flags: int = 0) -> str:
    """The pattern in a form that can be part of another: global flags become a group, and groups lose their names.

    >>> embeddable("(?i)(?P<word>a)b")
    '(?i:(?:a)b)'
    """
    in_force = _quietly_parsed(pattern, flags).state.flags
    verbose = bool(in_force & re.VERBOSE)
    body = "".join("(?:" if token.startswith("(?P<") else token for _, token in tokens(pattern, verbose))
    letters = "".join(c for c, flag in zip("aimsx", (256, 2, 8, 16, 64), strict=True) if in_force & flag)
    if not letters:
        return body
    body = re.sub(r"\A(?:\s*\(\?[aimsux]+\))+" if verbose else r"\A(?:\(\?[aimsux]+\))+", "", body)
    # In verbose mode the pattern may end in a comment, which must not include the parenthesis.
    return f"(?{letters}:{body}" + ("\n)" if verbose else ")")


def has_anchors(node: Node) -> bool:
    """Whether the tree has anchors, so that its meaning depends on the text around it.

    >>> has_anchors(parse("a$b")), has_anchors(parse("a"))
    (True, False)
    """
    match node:
        case At():
            return True
        case Sequence(items) | Either(items):
            return any(map(has_anchors, items))
        case Loop(item, _, _):
            return has_anchors(item)
    return False


def _convert(tree: Any, flags: int, pattern: str) -> Node:
    items = tuple(_node(op, value, flags, pattern) for op, value in tree)
    return items[0] if len(items) == 1 else Sequence(items)


def _node(op: Any, value: Any, flags: int, pattern: str) -> Node:
    if op in _UNSUPPORTED:
        reason, starts = _UNSUPPORTED[op]
        position = next(
            (
                at + (len(token) - 1 if token[0] in "*+?{" else 0)
                for at, token in tokens(pattern, bool(flags & re.VERBOSE))
                if _is_construct(token, starts)
            ),
            None,
        )
        raise ConstraintSyntaxError(reason, pattern, position)
    if op is sre.BRANCH:
        return Either(tuple(_convert(branch, flags, pattern) for branch in value[1]))
    if op is sre.SUBPATTERN:
        _, add, remove, item = value
        if add & TYPE_FLAGS:
            flags &= ~TYPE_FLAGS
        return _convert(item, (flags | add) & ~remove, pattern)
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):  # greedy or lazy: the language is the same
        low, high, item = value
        return Loop(_convert(item, flags, pattern), int(low), None if high is sre.MAXREPEAT else int(high))
    if op is sre.AT:
        return At(_anchor(value, flags))
    return Chars(_codes(op, value, flags))


def _is_construct(token: str, starts: tuple[str, ...]) -> bool:
    """Whether a token starts with one of `starts`, or is a quantifier that ends with one of them."""
    return token.startswith(starts) or (len(token) > 1 and token[0] in "*+?{" and token.endswith(starts))


def _anchor(value: Any, flags: int) -> str:
    if value is sre.AT_BEGINNING:
        return "line_start" if flags & re.MULTILINE else "start"
    if value is sre.AT_BEGINNING_STRING:
        return "start"
    if value is sre.AT_END:
        return "line_end" if flags & re.MULTILINE else "end"
    if value is sre.AT_END_STRING:
        return "text_end"
    kind = "edge" if value is sre.AT_BOUNDARY else "no_edge"
    return kind + ("_ascii" if flags & re.ASCII else "")


def _codes(op: Any, value: Any, flags: int) -> CodeSet:
    """The characters that a node of one character matches."""
    if op is sre.ANY:
        return ANYTHING if flags & re.DOTALL else complement(NEWLINE)
    if op is sre.NOT_LITERAL:
        return complement(_codes(sre.LITERAL, value, flags))
    if op is sre.LITERAL:
        return _literal(value, bool(flags & re.IGNORECASE), bool(flags & re.ASCII))
    if op is not sre.IN:
        raise ConstraintSyntaxError(f"{op} is not supported")
    if flags & re.IGNORECASE:
        return _set_without_case(tuple(value), flags)
    return _set(tuple(value), bool(flags & re.ASCII))


# Equal sets are one tuple: the machine looks sets up by identity, and a pattern may use `\w` ten thousand times.
@lru_cache(maxsize=4096)
def _set(items: tuple[Any, ...], ascii_only: bool) -> CodeSet:
    negate = items[0][0] is sre.NEGATE
    ranges: list[tuple[int, int]] = []
    for kind, item in items[negate:]:
        if kind is sre.LITERAL:
            ranges.append((item, item))
        elif kind is sre.RANGE:
            ranges.append(item)
        else:
            ranges.extend(_category(str(item), ascii_only))
    codes = code_set(ranges)
    return complement(codes) if negate else codes


@charged_cache(maxsize=4096)
def _set_without_case(items: tuple[Any, ...], flags: int) -> CodeSet:
    """A set under IGNORECASE: the few letters that have case are matched by `re` itself."""
    with compiling() as budget:
        budget.spend(400 * PYTHON_STEPS, "this pattern")
    with_case = _letters_with_case()
    matched = {
        with_case[at] for first, last in _matched_runs(items, flags, with_case) for at in range(first, last + 1)
    }
    caseless = _without(_set(items, bool(flags & re.ASCII)), with_case)
    return code_set([*caseless, *((ord(c), ord(c)) for c in matched)])


@lru_cache(maxsize=1)
def _every_character() -> str:
    """The text whose character at position i has code i, including surrogates."""
    return "".join(map(chr, range(LAST + 1)))


def _matched_runs(items: tuple[Any, ...], flags: int, text: str) -> list[tuple[int, int]]:
    """The runs of characters of `text` that `re`'s own matcher accepts for a set, as (first, last) positions."""
    state = _parser.State()
    state.flags = flags
    character_class = _parser.SubPattern(state, [(sre.IN, list(items))])
    run = _parser.SubPattern(state, [(sre.MAX_REPEAT, (1, sre.MAXREPEAT, character_class))])
    return [(match.start(), match.end() - 1) for match in _compiler.compile(run, flags).finditer(text)]


def _without(codes: CodeSet, characters: str) -> list[tuple[int, int]]:
    """The ranges of a set without some characters, which are sorted."""
    ranges: list[tuple[int, int]] = []
    cuts = list(map(ord, characters))
    for first, last in codes:
        for cut in cuts[bisect_left(cuts, first) : bisect_right(cuts, last)]:
            if first < cut:
                ranges.append((first, cut - 1))
            first = cut + 1
        if first <= last:
            ranges.append((first, last))
    return ranges


@lru_cache(maxsize=16)
def _category(name: str, ascii_only: bool) -> CodeSet:
    items = ((sre.CATEGORY, getattr(sre, name)),)
    return code_set(_matched_runs(items, int(re.ASCII if ascii_only else re.UNICODE), _every_character()))


def word_codes(ascii_only: bool) -> CodeSet:
    """The characters that `\\w` matches, which `\\b` distinguishes from the others.

    >>> word_codes(True)
    ((48, 57), (65, 90), (95, 95), (97, 122))
    """
    return _category("CATEGORY_WORD", ascii_only)


@lru_cache(maxsize=4096)
def _literal(code: int, ignore_case: bool, ascii_only: bool) -> CodeSet:
    if not ignore_case:
        return code_set([(code, code)])
    if ascii_only:
        char = chr(code)
        return (
            code_set((ord(c), ord(c)) for c in {char, char.swapcase()}) if code < 128 else code_set([(code, code)])
        )
    if not _sre.unicode_iscased(code):
        return code_set([(code, code)])
    lower = _sre.unicode_tolower(code)
    equivalent = (lower, *_casefix._EXTRA_CASES.get(lower, ()))
    return code_set((c, c) for small in equivalent for c in _by_lower_case().get(small, [small]))


@lru_cache(maxsize=1)
def _by_lower_case() -> dict[int, list[int]]:
    """For each lower-case character that others fold to in `re`: itself and these others."""
    folded: dict[int, list[int]] = {}
    for code, lower in enumerate(map(_sre.unicode_tolower, range(LAST + 1))):
        if code != lower:
            folded.setdefault(lower, [lower]).append(code)
    return folded


@lru_cache(maxsize=1)
def _letters_with_case() -> str:
    """All characters that `re` folds to another character, or another to them, in order."""
    extra = {c for lower, others in _casefix._EXTRA_CASES.items() for c in (lower, *others)}
    folded = {c for group in _by_lower_case().values() for c in group} | extra
    return "".join(map(chr, sorted(folded.union(map(_sre.unicode_tolower, folded)))))

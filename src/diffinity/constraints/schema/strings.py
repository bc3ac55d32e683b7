"""Strings: length, pattern, format and lists of values, first over their text, then over its JSON spelling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.nfa import NfaBuilder
from diffinity.constraints.schema.ecma import searched
from diffinity.constraints.schema.formats import format_language
from diffinity.constraints.schema.spelling import spell_string, utf8
from diffinity.limits import PYTHON_STEPS, charged_cache, compiling

_SHORT_ESCAPES = {
    0x08: b"\\b",
    0x09: b"\\t",
    0x0A: b"\\n",
    0x0C: b"\\f",
    0x0D: b"\\r",
    0x22: b'\\"',
    0x5C: b"\\\\",
}
# Above this length a counted string has only the characters of `_usual_code_point`.
MANY_CHARACTERS = 64


@dataclass(frozen=True)
class StringFacets:
    """One schema's assertions about strings; the default asserts nothing. Lengths count code points."""

    min_length: int = 0
    max_length: int | None = None
    patterns: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    values: frozenset[str] | None = None

    @property
    def is_free(self) -> bool:
        """Whether every string satisfies the facets."""
        return self == StringFacets()


def strings(
    wanted: Sequence[StringFacets],
    unwanted: Sequence[StringFacets] = (),
    *,
    longest: int = 256,
    controls: bool = True,
) -> ByteDFA:
    """The JSON spelling of the strings that satisfy all of `wanted` and none of `unwanted`.

    `longest` cuts a `maxLength` above it; `controls` admits control characters that need a `\\u00XX` escape.

    >>> short = strings([StringFacets(max_length=2)])
    >>> short.accepts('"é\\\\n"'.encode()), short.accepts(b'"abc"')
    (True, False)
    """
    low = max((f.min_length for f in wanted), default=0)
    highs = [f.max_length for f in wanted if f.max_length is not None]
    high = min(highs) if highs else None
    if high is not None:
        high = min(high, max(low, longest))
        if high < low:
            return ByteDFA.empty()
    lists = [f.values for f in wanted if f.values is not None]
    if lists:
        return _listed(frozenset.intersection(*lists), low, high, wanted, unwanted)
    parts = [searched(p) for p in sorted({p for f in wanted for p in f.patterns})]
    formats = (format_language(name) for name in sorted({n for f in wanted for n in f.formats}))
    parts += [language for language in formats if language is not None]
    if not parts and not unwanted:
        return bounded(low, high, controls)
    if low or high is not None:
        parts.append(code_points(low, high))
    text = parts[0] if parts else ByteDFA.utf8()
    for part in parts[1:]:
        text = text.intersection(part)
    for facets in unwanted:
        text = text.difference(_text(facets))
    return quoted(text, controls)


def _listed(
    values: frozenset[str],
    low: int,
    high: int | None,
    wanted: Sequence[StringFacets],
    unwanted: Sequence[StringFacets],
) -> ByteDFA:
    """The values of a list that satisfy all facets, checked one by one."""
    with compiling() as budget:
        budget.spend(PYTHON_STEPS * len(values) * (1 + len(wanted) + len(unwanted)), "a list of strings")
    matches = [v for v in values if low <= len(v) and (high is None or len(v) <= high)]
    for facets in wanted:
        languages = [searched(pattern) for pattern in facets.patterns]
        languages += [format_dfa for name in facets.formats if (format_dfa := format_language(name)) is not None]
        matches = [v for v in matches if all(language.accepts(utf8(v)) for language in languages)]
    for facets in unwanted:
        if facets.values is not None and facets == StringFacets(values=facets.values):
            matches = [v for v in matches if v not in facets.values]
        elif matches:
            language = _text(facets)
            matches = [v for v in matches if not language.accepts(utf8(v))]
    return ByteDFA.from_strings(spell_string(v) for v in matches)


def _text(facets: StringFacets) -> ByteDFA:
    """The text of all strings that may satisfy the facets: without formats, whose grammars may be narrower."""
    text = ByteDFA.utf8() if facets.values is None else ByteDFA.from_strings(utf8(v) for v in facets.values)
    if facets.max_length is not None and facets.max_length < facets.min_length:
        return ByteDFA.empty()
    if facets.min_length or facets.max_length is not None:
        text = text.intersection(code_points(facets.min_length, facets.max_length))
    for pattern in facets.patterns:
        text = text.intersection(searched(pattern, wide=True))
    return text


@charged_cache(maxsize=1)
def _code_point() -> ByteDFA:
    utf8 = ByteDFA.utf8()
    nfa = NfaBuilder()
    first = nfa.states(utf8.n_states)
    end = nfa.state()
    for source, low, high, target in zip(*(column.tolist() for column in utf8.byte_ranges), strict=True):
        nfa.edge(first + source, low, high, end if target == 0 else first + target)
    return nfa.build(first, [end])


@charged_cache(maxsize=64)
def code_points(low: int, high: int | None) -> ByteDFA:
    """UTF-8 text of `low` to `high` code points.

    >>> code_points(1, 1).accepts("é".encode()), code_points(1, 1).accepts(b"ab")
    (True, False)
    """
    return _code_point().repeat(low, high)


@charged_cache(maxsize=1)
def _spelled_code_point(controls: bool) -> ByteDFA:
    return _escaped(_code_point(), controls)


@charged_cache(maxsize=1)
def _usual_code_point() -> ByteDFA:
    """Most code points, in half the states: a long `maxLength` needs one copy per character."""
    nfa = NfaBuilder()
    start, end, escape, one_left, two_left, after_e0, after_ed, after_f0 = (nfa.state() for _ in range(8))
    for source, low, high, target in (
        *(
            (start, 0x20, 0x21, end),
            (start, 0x23, 0x5B, end),
            (start, 0x5D, 0x7F, end),
            (start, 0x5C, 0x5C, escape),
        ),
        *((start, 0xC2, 0xDF, one_left), (start, 0xE1, 0xEC, two_left), (start, 0xEE, 0xEF, two_left)),
        *((start, 0xE0, 0xE0, after_e0), (start, 0xED, 0xED, after_ed), (start, 0xF0, 0xF0, after_f0)),
        *((after_e0, 0xA0, 0xBF, one_left), (after_ed, 0x80, 0x9F, one_left), (after_f0, 0x90, 0xBF, two_left)),
        *((two_left, 0x80, 0xBF, one_left), (one_left, 0x80, 0xBF, end)),
    ):
        nfa.edge(source, low, high, target)
    for spelled in _SHORT_ESCAPES.values():
        nfa.edge(escape, spelled[1], spelled[1], end)
    return nfa.build(start, [end])


@charged_cache(maxsize=64)
def bounded(low: int, high: int | None, controls: bool) -> ByteDFA:
    """The JSON spelling of all strings of `low` to `high` code points.

    Above `MANY_CHARACTERS` there are no control characters that need `\\u00XX` and no code points from U+40000 on.

    >>> bounded(0, None, True).accepts(b'"\\\\u0000"'), bounded(0, None, False).accepts(b'"\\\\u0000"')
    (True, False)
    """
    copies = low if high is None else high
    code_point = _spelled_code_point(controls) if copies <= MANY_CHARACTERS else _usual_code_point()
    with compiling() as budget:
        budget.check("nfa_states", copies * (code_point.n_states + 1), f"a string of {copies:,} characters")
    nfa = NfaBuilder()
    start, end = nfa.state(), nfa.state()
    place = nfa.state()
    nfa.edge(start, 0x22, 0x22, place)
    for count in range(copies + 1):
        if count >= low:
            nfa.edge(place, 0x22, 0x22, end)
        if count < copies:
            after = nfa.state()
            nfa.embed(code_point, place, after)
            place = after
    if high is None:
        nfa.embed(code_point, place, place)
    return nfa.build(start, [end])


def quoted(text: ByteDFA, controls: bool = True) -> ByteDFA:
    """The JSON spelling, with quotes, of every string of a machine over text.

    >>> quoted(ByteDFA.literal(b'a"')).accepts(b'"a\\\\""')
    True
    """
    return _escaped(text, controls, b'"')


@charged_cache(maxsize=256)
def matching(pattern: str, wide: bool, controls: bool) -> ByteDFA:
    """The JSON spelling of the strings in which a pattern occurs.

    >>> matching("^x-", False, False).accepts(b'"x-a"')
    True
    """
    return quoted(searched(pattern, wide), controls)


def _escaped(text: ByteDFA, controls: bool, quote: bytes = b"") -> ByteDFA:
    """The same machine over the JSON spelling of each character, between two quotes if given."""
    if text.is_empty:
        return text
    nfa = NfaBuilder()
    nfa.states(text.n_states)
    start, end = nfa.state(), nfa.state()
    nfa.literal(quote, start, 0)
    closed = nfa.state()
    nfa.epsilons(text.final_states, np.full_like(text.final_states, closed))
    nfa.literal(quote, closed, end)
    source, first, last, target = text.byte_ranges
    for low, high in ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xFF)):
        overlaps = (first <= high) & (last >= low)
        nfa.edges(
            source[overlaps], np.maximum(first[overlaps], low), np.minimum(last[overlaps], high), target[overlaps]
        )
    long_escapes = {byte: b"\\u00%02x" % byte for byte in range(0x20) if byte not in _SHORT_ESCAPES}
    for escapes in (_SHORT_ESCAPES, long_escapes) if controls else (_SHORT_ESCAPES,):
        targets = text.table[:, text.byte_class[list(escapes)]]  # (states, escapes)
        sources, escape = np.nonzero(targets >= 0)
        spelled = np.frombuffer(b"".join(escapes.values()), np.uint8).reshape(len(escapes), -1)
        nfa.literals(spelled[escape], sources.astype(np.int32), targets[sources, escape])
    return nfa.build(start, [end])

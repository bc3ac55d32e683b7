"""`spelling="any"`: other spellings of the texts that a machine accepts in canonical spelling.

The machine of a schema is built over canonical texts, where equal values are equal strings; `not`, `oneOf`, `enum`
and `uniqueItems` rely on that. Only the finished machine is widened. A text is accepted exactly if its canonical
respelling was accepted before. Both texts have the same value, so the other spelling validates, too. The other
spellings:

- strings: `\\/`, and `\\uXXXX` in either case for code points that are not ASCII, control characters, and the few
  characters of ASCII that some writers escape (quotes, `&`, `'`, `/`, `<`, `>`, `\\`);
- numbers: zeros at the end of a fraction (`1.50`, `10.0`), `-0`, one digit with an exponent (`1e1`, `5E+03`), `E`
  for `e`, and small exponents of one digit (`1e-7`). A whole number of more than 15 digits gets no fraction, since
  readers would round it. In draft 4 `10.0` is not an integer, so there whole numbers are not respelled.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.nfa import NfaBuilder
from diffinity.constraints.schema.spelling import spell_string
from diffinity.limits import PYTHON_STEPS, compiling

EXACT_DIGITS = 15
_DELIMITERS = b" \t\n\r,]}"
_ESCAPED_ASCII = (*range(0x20), *b"\"&'/<>\\", 0x7F)
# The context of a state: outside strings, inside a string, after a backslash, or before the remaining bytes of
# `\uXXXX` or of a UTF-8 sequence.
_OUT, _IN, _ESCAPE, _HEX, _TAIL = range(5)
Span = tuple[int, int, int]  # first and last code point, and the state after them


def all_spellings(dfa: ByteDFA, decimal_integers: bool = True) -> ByteDFA:
    """The machine that also accepts the other spellings; `10.0` for `10` only with `decimal_integers`.

    >>> pair = all_spellings(ByteDFA.from_strings(['["é/", 10]'.encode()]))
    >>> pair.accepts(b'["\\\\u00e9\\\\/", 1E1]'), pair.accepts(b'["e/", 10]')
    (True, False)
    """
    return dfa if dfa.is_empty else _Respelling(dfa, decimal_integers).build()


class _Respelling:
    """States 0 … n-1 of the new machine are the old states, reached outside numbers; the others are added."""

    def __init__(self, dfa: ByteDFA, decimal_integers: bool) -> None:
        self.dfa = dfa
        self.decimal_integers = decimal_integers
        self.nfa = NfaBuilder()
        self.nfa.states(dfa.n_states)
        self.end = self.nfa.state()
        self.numbers: dict[tuple[int, str, int], int] = {}  # (old state, phase of the number, digits) -> new state
        self.pending: list[tuple[int, str, int]] = []
        self._spans: dict[tuple[int, int], list[Span]] = {}

    def build(self) -> ByteDFA:
        """The machine of all spellings."""
        context = self._contexts()
        for state in np.flatnonzero(self.dfa.accepting).tolist():
            self.nfa.epsilon(state, self.end)
        for source, low, high, target in zip(*(column.tolist() for column in self.dfa.byte_ranges), strict=True):
            if context[source] == (_OUT, 0):
                self._outside(source, low, high, target)
            else:
                self.nfa.edge(source, low, high, target)
        for state, where in context.items():
            if where == (_IN, 0):
                self._string(state)
            elif where == (_OUT, 0) and self._next(state, "-") >= 0 and self._next(state, "0") >= 0:
                self._negative_zero(state)
        while self.pending:
            self._number(*self.pending.pop())
        return self.nfa.build(0, [self.end])

    def _row(self, state: int) -> list[int]:
        """The old state after each byte; -1 if there is none."""
        row: list[int] = self.dfa.table[state][self.dfa.byte_class].tolist()
        return row

    def _next(self, state: int, text: str) -> int:
        """The old state after a text; -1 if there is none."""
        for byte in text.encode():
            state = int(self.dfa.table[state, self.dfa.byte_class[byte]]) if state >= 0 else -1
        return state

    def _contexts(self) -> dict[int, tuple[int, int]]:
        """The context of each old state; it is unique, because the possible continuations determine it."""
        source, low, _, target = (column.tolist() for column in self.dfa.byte_ranges)
        with compiling() as budget:
            budget.spend(PYTHON_STEPS * len(source), "respelling")
        following: dict[int, list[tuple[int, int]]] = {}
        for a, byte, b in zip(source, low, target, strict=True):
            following.setdefault(a, []).append((byte, b))
        context = {0: (_OUT, 0)}
        pending = [0]
        while pending:
            state = pending.pop()
            for byte, after in following.get(state, ()):
                if after not in context:
                    context[after] = _advanced(*context[state], byte)
                    pending.append(after)
        return context

    # ---- strings

    def _string(self, state: int) -> None:
        """Add the other spellings of the characters that may follow."""
        escape = -1
        if (after := self._next(state, "/")) >= 0:
            escape = self.nfa.state()
            self.nfa.edge(state, ord("\\"), ord("\\"), escape)
            self.nfa.edge(escape, ord("/"), ord("/"), after)
        spans = self._code_points(state)
        for code in _ESCAPED_ASCII:
            after = self._next(state, spell_string(chr(code))[1:-1].decode())
            spans += [(code, code, after)] if after >= 0 else []
        if not spans:
            return
        if escape < 0:
            escape = self.nfa.state()
            self.nfa.edge(state, ord("\\"), ord("\\"), escape)
        entry = self.nfa.state()
        self.nfa.edge(escape, ord("u"), ord("u"), entry)
        self._hex_tries(entry, spans)

    def _code_points(self, state: int) -> list[Span]:
        """The code points above ASCII that may follow, with the state after them."""
        spans: list[Span] = []
        for first, last, levels, mask in ((0xC2, 0xDF, 1, 0x1F), (0xE0, 0xEF, 2, 0x0F), (0xF0, 0xF4, 3, 0x07)):
            spans += self._continued(state, first, last, levels, mask)
        return _joined(spans)

    def _continued(self, state: int, first: int, last: int, levels: int, mask: int) -> list[Span]:
        spans: list[Span] = []
        row, width = self._row(state), 64**levels
        for byte in range(first, last + 1):
            if row[byte] >= 0:
                base = (byte & mask) * width
                spans += [(base + a, base + b, t) for a, b, t in self._tails(row[byte], levels)]
        return spans

    def _tails(self, state: int, levels: int) -> list[Span]:
        """The possible values of `levels` continuation bytes, as ranges of numbers from 0 on."""
        if levels == 0:
            return [(0, 0, state)]
        if (state, levels) not in self._spans:
            self._spans[state, levels] = _joined(self._continued(state, 0x80, 0xBF, levels - 1, 0x3F))
        return self._spans[state, levels]

    def _hex_tries(self, entry: int, spans: list[Span]) -> None:
        """Read the four digits of each code point, or the two surrogates of a code point above U+FFFF."""
        for first, last, target in spans:
            if first <= 0xFFFF:
                self._hex(entry, first, min(last, 0xFFFF), 4, target)
            if last > 0xFFFF:
                self._surrogates(entry, max(first, 0x10000) - 0x10000, last - 0x10000, target)

    def _surrogates(self, entry: int, first: int, last: int, target: int) -> None:
        for high_first, high_last, low_first, low_last in _pieces(first, last, 0x400):
            between, low = self.nfa.state(), self.nfa.state()
            self._hex(entry, 0xD800 + high_first, 0xD800 + high_last, 4, between)
            self.nfa.literal(b"\\u", between, low)
            self._hex(low, 0xDC00 + low_first, 0xDC00 + low_last, 4, target)

    def _hex(self, entry: int, first: int, last: int, digits: int, target: int) -> None:
        """Read the numbers from `first` to `last` in `digits` hexadecimal digits."""
        if digits == 1:
            self._hex_digits(entry, first, last, target)
            return
        for high_first, high_last, low_first, low_last in _pieces(first, last, 16 ** (digits - 1)):
            after = self.nfa.state()
            self._hex_digits(entry, high_first, high_last, after)
            self._hex(after, low_first, low_last, digits - 1, target)

    def _hex_digits(self, entry: int, first: int, last: int, target: int) -> None:
        if first <= 9:
            self.nfa.edge(entry, 0x30 + first, 0x30 + min(last, 9), target)
        for letter in (0x41, 0x61):
            if last >= 10:
                self.nfa.edge(entry, letter + max(first, 10) - 10, letter + last - 10, target)

    # ---- numbers

    def _outside(self, source: int, low: int, high: int, target: int) -> None:
        """Add an old edge outside strings: a digit or a minus begins a number."""
        for first, last in ((low, min(high, 0x2C)), (max(low, 0x2E), min(high, 0x2F)), (max(low, 0x3A), high)):
            if first <= last:
                self.nfa.edge(source, first, last, target)
        if low <= 0x2D <= high:
            self.nfa.edge(source, 0x2D, 0x2D, self._in_number(target, "minus"))
        if low <= 0x39 and high >= 0x30:
            self.nfa.edge(source, max(low, 0x30), min(high, 0x39), self._in_number(target, "whole", 1))

    def _in_number(self, state: int, phase: str, digits: int = 0) -> int:
        key = (state, phase, digits)
        if key not in self.numbers:
            self.numbers[key] = self.nfa.state()
            self.pending.append(key)
        return self.numbers[key]

    def _negative_zero(self, state: int) -> None:
        minus = self.nfa.state()
        self.nfa.edge(state, 0x2D, 0x2D, minus)
        self.nfa.edge(minus, 0x30, 0x30, self._in_number(self._next(state, "0"), "zero"))

    def _number(self, state: int, phase: str, digits: int) -> None:
        """Add the bytes that may follow inside a number: the old bytes, and bytes that keep its value."""
        with compiling() as budget:
            budget.spend(10 * PYTHON_STEPS, "respelling")
        source, row = self.numbers[state, phase, digits], self._row(state)
        if phase not in ("zero", "zeros", "point", "ended"):
            for byte, kind in _steps(phase):
                if row[byte] >= 0:
                    count = min(digits + 1, EXACT_DIGITS + 1) if kind == "whole" else 0
                    for written in (byte, ord("E")) if byte == ord("e") else (byte,):
                        self.nfa.edge(source, written, written, self._in_number(row[byte], kind, count))
        if phase in ("whole", "fraction", "small", "zero", "zeros", "ended"):  # the number may end here
            for byte in _DELIMITERS:
                if row[byte] >= 0:
                    self.nfa.edge(source, byte, byte, row[byte])
            if self.dfa.accepting[state]:
                self.nfa.epsilon(source, self.end)
        if phase in ("fraction", "zeros", "point"):
            self.nfa.edge(source, 0x30, 0x30, self._in_number(state, "zeros"))
        if phase == "exponent minus":
            for digit in range(1, 10):
                if (after := self._next(state, f"0{digit}")) >= 0:
                    self.nfa.edge(source, 0x30 + digit, 0x30 + digit, self._in_number(after, "ended"))
        is_whole = phase == "zero" or (phase == "whole" and digits <= EXACT_DIGITS)
        if is_whole and self.decimal_integers:
            self.nfa.edge(source, ord("."), ord("."), self._in_number(state, "point"))
            if digits == 1:
                self._powers(source, state)

    def _powers(self, source: int, state: int) -> None:
        """Add `5e3` for `5000` if these zeros may follow."""
        mark, signed = self.nfa.state(), self.nfa.state()
        after = state
        for power in range(1, EXACT_DIGITS):
            after = self._next(after, "0")
            if after < 0:
                return
            if power == 1:
                for letter in b"eE":
                    self.nfa.edge(source, letter, letter, mark)
                self.nfa.edge(mark, ord("+"), ord("+"), signed)
                self.nfa.epsilon(mark, signed)
            for written in {str(power), f"{power:02d}"}:
                self.nfa.literal(written.encode(), signed, self._in_number(after, "ended"))


_DIGITS = range(0x30, 0x3A)


def _steps(phase: str) -> Iterator[tuple[int, str]]:
    """The bytes that may continue a canonical number, each with the phase after it."""
    if phase in ("minus", "whole"):
        yield from ((byte, "whole") for byte in _DIGITS)
    if phase == "whole":
        yield ord("."), "point of a fraction"
    if phase in ("point of a fraction", "fraction"):
        yield from ((byte, "fraction") for byte in _DIGITS)
    if phase in ("whole", "fraction"):
        yield ord("e"), "exponent"
    if phase == "exponent":
        yield ord("-"), "exponent minus"
    if phase == "exponent minus":
        yield from ((byte, "first of an exponent") for byte in _DIGITS)
    if phase in ("first of an exponent", "small"):
        yield from ((byte, "small") for byte in _DIGITS)


def _advanced(where: int, left: int, byte: int) -> tuple[int, int]:
    """The context in a canonical text after one more byte."""
    if where in (_HEX, _TAIL):
        return (where, left - 1) if left > 1 else (_IN, 0)
    if where == _ESCAPE:
        return (_HEX, 4) if byte == ord("u") else (_IN, 0)
    if byte == ord('"'):
        return (_OUT, 0) if where == _IN else (_IN, 0)
    if where == _OUT or byte < 0x80:
        return (_ESCAPE, 0) if where == _IN and byte == ord("\\") else (where, 0)
    return _TAIL, 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3


def _joined(spans: list[Span]) -> list[Span]:
    """The spans, with adjacent spans that lead to the same state joined."""
    joined: list[Span] = []
    for first, last, target in sorted(spans):
        if joined and joined[-1][1] + 1 == first and joined[-1][2] == target:
            joined[-1] = (joined[-1][0], last, target)
        else:
            joined.append((first, last, target))
    return joined


def _pieces(first: int, last: int, width: int) -> Iterator[tuple[int, int, int, int]]:
    """A range as products of a range of leading digits and a range of the rest, which has `width` values."""
    while first <= last:
        high, low = divmod(first, width)
        if low == 0 and first + width - 1 <= last:
            full = (last + 1) // width - 1
            yield high, full, 0, width - 1
            first = (full + 1) * width
        else:
            stop = min(last, (high + 1) * width - 1)
            yield high, high, low, stop - high * width
            first = stop + 1

"""Numbers: ranges, multiples and lists of values as automata over their canonical spelling.

The universe of numbers is the integers and the decimals as Python prints them: no leading zero, no trailing zero
in a fraction, a negative exponent only below 1e-4. Whole numbers have at most 18 digits, or as many as a bound
needs. Decimals have at most 15 significant digits, so that a decimal does not change when it is read as a float
and printed again: a validator sees the same number as the automaton.

Rounding is monotone, so a number within closed bounds stays within them however many digits it has. Without other
assertions the digits of a fraction need not be counted, which halves the size of the automaton.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.nfa import NfaBuilder
from diffinity.constraints.regex import compile_regex
from diffinity.constraints.schema.spelling import spell_number
from diffinity.limits import PYTHON_STEPS, charged_cache, compiling

EXACT_DIGITS = 15
UNCOUNTED = None  # any number of digits of a fraction
WHOLE_DIGITS = 18  # of a number without a fraction: never read as a float, so all of them count
_SMALLEST_PLAIN = Fraction(1, 10_000)  # Python prints an exponent below this


@dataclass(frozen=True)
class Bound:
    """One end of a range."""

    value: Fraction
    open: bool = False


@dataclass(frozen=True)
class NumberFacets:
    """One schema's assertions about numbers; the default asserts nothing.

    >>> NumberFacets(low=Bound(Fraction(0)), multiples=(Fraction(3),)).admits(9)
    True
    """

    integer: bool = False
    low: Bound | None = None
    high: Bound | None = None
    multiples: tuple[Fraction, ...] = ()
    values: frozenset[int | float] | None = None

    @property
    def survives_rounding(self) -> bool:
        """Whether a decimal that satisfies the facets still does after it is read as a float."""
        bounds = [bound for bound in (self.low, self.high) if bound is not None]
        return not self.multiples and self.values is None and all(not b.open or b.value == 0 for b in bounds)

    def admits(self, value: int | float) -> bool:
        """Whether a number satisfies all facets."""
        x = exact(value)
        return (
            (not self.integer or x.denominator == 1)
            and (self.low is None or x > self.low.value or (x == self.low.value and not self.low.open))
            and (self.high is None or x < self.high.value or (x == self.high.value and not self.high.open))
            and all((x / m).denominator == 1 for m in self.multiples)
            and (self.values is None or x in self._exact_values)
        )

    @cached_property
    def _exact_values(self) -> frozenset[Fraction]:
        return frozenset(map(exact, self.values or ()))


def exact(value: int | float) -> Fraction:
    """The exact value of the shortest spelling of a JSON number.

    >>> exact(0.1)
    Fraction(1, 10)
    """
    return Fraction(value) if isinstance(value, int) else Fraction(Decimal(repr(value)))


def numbers(
    wanted: Sequence[NumberFacets], unwanted: Sequence[NumberFacets] = (), digits: int | None = EXACT_DIGITS
) -> ByteDFA:
    """The numbers that satisfy all of `wanted` and none of `unwanted`.

    `digits` is the maximum number of significant digits; `UNCOUNTED` is no limit where rounding does no harm.

    >>> digits = numbers([NumberFacets(integer=True, low=Bound(Fraction(8)), high=Bound(Fraction(12)))])
    >>> digits.accepts(b"10"), digits.accepts(b"9.5"), digits.accepts(b"13")
    (True, False, False)
    """
    lists = [facets.values for facets in wanted if facets.values is not None]
    if lists:
        with compiling() as budget:
            budget.spend(2 * PYTHON_STEPS * len(lists[0]) * (len(wanted) + len(unwanted)), "a list of numbers")
        admitted = [
            v for v in lists[0] if all(f.admits(v) for f in wanted) and not any(f.admits(v) for f in unwanted)
        ]
        return ByteDFA.from_strings(spell_number(v).encode() for v in admitted)
    conjunction = merged(wanted)
    exactly = bool(unwanted) or not conjunction.survives_rounding
    # A validator that divides doubles rounds numbers above 2^53.
    whole_digits = EXACT_DIGITS if any(facets.multiples for facets in (*wanted, *unwanted)) else WHOLE_DIGITS
    result = _plain(conjunction, EXACT_DIGITS if exactly else digits, whole_digits)
    for facets in unwanted:
        without = (
            ByteDFA.from_strings(spell_number(v).encode() for v in facets.values if facets.admits(v))
            if facets.values is not None
            else _plain(facets, EXACT_DIGITS)
        )
        result = result.difference(without)
    return result


def merged(all_facets: Iterable[NumberFacets]) -> NumberFacets:
    """The conjunction of several facets, without their lists of values.

    >>> merged([NumberFacets(low=Bound(Fraction(1))), NumberFacets(low=Bound(Fraction(2)), integer=True)]).low
    Bound(value=Fraction(2, 1), open=False)
    """
    result = NumberFacets()
    for facets in all_facets:
        lows = [b for b in (result.low, facets.low) if b is not None]
        highs = [b for b in (result.high, facets.high) if b is not None]
        result = NumberFacets(
            integer=result.integer or facets.integer,
            low=max(lows, key=lambda b: (b.value, b.open)) if lows else None,
            high=min(highs, key=lambda b: (b.value, not b.open)) if highs else None,
            multiples=tuple(sorted({*result.multiples, *facets.multiples})),
        )
    return result


@charged_cache(maxsize=256)
def _plain(facets: NumberFacets, digits: int | None, whole_digits: int = WHOLE_DIGITS) -> ByteDFA:
    """The numbers in range that are multiples of all steps; `whole_digits` limits the digits before the point."""
    nfa = NfaBuilder()
    start, end = nfa.state(), nfa.state()
    minus = nfa.state()
    nfa.edge(start, ord("-"), ord("-"), minus)
    for entry, low, high in ((start, facets.low, facets.high), (minus, _mirror(facets.high), _mirror(facets.low))):
        if low is None or low.value < 0 or (low.value == 0 and not low.open):
            low = Bound(Fraction(0), open=entry == minus)  # there is no "-0"
        if high is not None and (high.value < low.value or (high.value == low.value and (high.open or low.open))):
            continue
        top = None if high is None else _digits(high)
        nfa.embed(_magnitudes(_digits(low), top, facets.integer, digits, whole_digits), entry, end)
        if high is not None and high.value < _SMALLEST_PLAIN and not facets.integer:
            nfa.embed(_tiny(low, high), entry, end)
        elif digits is UNCOUNTED and low.value == 0 and not facets.integer:
            nfa.embed(_all_tiny(), entry, end)
    result = nfa.build(start, [end])
    for multiple in facets.multiples:
        result = result.intersection(_multiples(multiple))
    return result


def _mirror(bound: Bound | None) -> Bound | None:
    return None if bound is None else replace(bound, value=-bound.value)


@dataclass(frozen=True)
class _Digits:
    """A bound of at least 0 as its digits before and after the point."""

    whole: str
    fraction: str
    open: bool

    def compare(self, sign: int, place: int, digit: int) -> int:
        """The sign of (prefix read − prefix of the bound) after one more digit before the point."""
        if sign:
            return sign
        bound_digit = int(self.whole[place]) if place < len(self.whole) else -1
        return (digit > bound_digit) - (digit < bound_digit)

    def at_point(self, sign: int, length: int) -> int:
        """The sign after the whole integer part, which has this length."""
        return sign if length == len(self.whole) else (1 if length > len(self.whole) else -1)

    def compare_fraction(self, sign: int, place: int, digit: int) -> int:
        """The sign after one more digit after the point."""
        if sign:
            return sign
        bound_digit = int(self.fraction[place]) if place < len(self.fraction) else 0
        return (digit > bound_digit) - (digit < bound_digit)

    def at_end(self, sign: int, place: int) -> int:
        """The sign of (number − bound), after this many digits after the point."""
        return -1 if sign == 0 and self.fraction[place:].strip("0") else sign


def _digits(bound: Bound) -> _Digits:
    whole, _, rest = f"{_decimal(bound.value):f}".partition(".")
    return _Digits(whole, rest.rstrip("0"), bound.open)


def _decimal(value: Fraction) -> Decimal:
    """A fraction that came from a decimal, as a decimal again, without rounding."""
    places = 0
    while (value * 10**places).denominator != 1:
        places += 1
    return Decimal(int(value * 10**places)).scaleb(-places) if places else Decimal(value.numerator)


@charged_cache(maxsize=256)
def _magnitudes(
    low: _Digits, high: _Digits | None, integer: bool, digits: int | None, whole_digits: int = WHOLE_DIGITS
) -> ByteDFA:
    """Unsigned numbers within the bounds, of at most `digits` digits.

    A state is (digits before the point, comparison with each bound), then (place after the point, comparisons,
    digits left, last digit was a zero, all digits were zeros): deterministic from the start.
    """
    longest = max(whole_digits, len(low.whole) + (high is None), len(high.whole) if high else 0)
    if whole_digits < WHOLE_DIGITS:
        longest = whole_digits  # even if a bound has more digits, because arithmetic with more digits is not exact
    nfa = NfaBuilder()
    states: dict[tuple[Any, ...], int] = {}
    pending: list[tuple[Any, ...]] = []
    final: list[int] = []
    bound_places = max(len(low.fraction), len(high.fraction) if high else 0)

    def state(key: tuple[Any, ...]) -> int:
        if key not in states:
            states[key] = nfa.state()
            pending.append(key)
        return states[key]

    def within(from_low: int, from_high: int) -> bool:
        return (from_low > 0 or (from_low == 0 and not low.open)) and (
            high is None or from_high < 0 or (from_high == 0 and not high.open)
        )

    def expand_whole(key: tuple[Any, ...]) -> None:
        _, n, a, b, zero = key
        source = states[key]
        if n < longest and not zero:
            for digit in range(10):
                x = low.compare(a, n, digit)
                y = high.compare(b, n, digit) if high else -1
                nfa.edge(source, 48 + digit, 48 + digit, state(("whole", n + 1, x, y, n == 0 and digit == 0)))
        if n == 0:
            return
        a, b = low.at_point(a, n), high.at_point(b, n) if high else -1
        if within(low.at_end(a, 0), high.at_end(b, 0) if high else -1):
            final.append(source)
        digits_left = 1 if digits is UNCOUNTED else digits - (0 if zero else n)
        if not integer and digits_left > 0:
            nfa.edge(source, ord("."), ord("."), state(("fraction", 0, a, b, digits_left, True, bool(zero))))

    def expand_fraction(key: tuple[Any, ...]) -> None:
        _, place, a, b, digits_left, zero_last, all_zero = key
        source = states[key]
        if not zero_last and within(low.at_end(a, place), high.at_end(b, place) if high else -1):
            final.append(source)
        for digit in range(10) if digits_left else ():
            if all_zero and place == 3 and digit == 0:
                continue  # below 1e-4 the spelling has an exponent
            x = low.compare_fraction(a, place, digit)
            y = high.compare_fraction(b, place, digit) if high else -1
            # Places are counted only while a bound still has digits or leading zeros matter.
            next_place = place + 1 if place + 1 <= max(bound_places, 4) else place
            still_zero = bool(all_zero) and digit == 0
            next_digits_left = digits_left if digits is UNCOUNTED else digits_left - 1
            target = ("fraction", next_place, x, y, next_digits_left, digit == 0, still_zero)
            nfa.edge(source, 48 + digit, 48 + digit, state(target))

    start = state(("whole", 0, 0, 0 if high else -1, False))
    while pending:
        key = pending.pop()
        (expand_whole if key[0] == "whole" else expand_fraction)(key)
    return nfa.build(start, final)


def _tiny(low: Bound, high: Bound) -> ByteDFA:
    """Numbers below 1e-4 within the bounds, with an exponent down to 12 decades below the upper bound."""
    nfa = NfaBuilder()
    start, end = nfa.state(), nfa.state()
    top = next(e for e in range(5, 400) if high.value * 10**e >= 1 or e == 399)
    for exponent in range(top, top + 12):
        scaled_low = Bound(max(low.value * 10**exponent, Fraction(1)), low.open and low.value * 10**exponent >= 1)
        scaled_high = Bound(high.value * 10**exponent, high.open)
        if scaled_high.value >= 10:
            scaled_high = Bound(Fraction(10), open=True)
        if scaled_low.value > scaled_high.value:
            continue
        between = nfa.state()
        mantissa = _magnitudes(_digits(scaled_low), _digits(scaled_high), False, EXACT_DIGITS)
        nfa.embed(mantissa, start, between)
        nfa.literal(f"e-{exponent:02d}".encode(), between, end)
    return nfa.build(start, [end])


@charged_cache(maxsize=1)
def _all_tiny() -> ByteDFA:
    """All numbers below 1e-4, down to 99 decades."""
    return compile_regex(r"[1-9](?:\.[0-9]*[1-9])?e-(?:0[5-9]|[1-9][0-9])")


@charged_cache(maxsize=64)
def _multiples(step: Fraction) -> ByteDFA:
    """All spellings of the multiples of `step`, of any sign and size: a residue automaton.

    With P places after the point in `step`, x is a multiple exactly if x·10^P ≡ 0 modulo step·10^P.
    """
    places = max(0, -int(_decimal(step).as_tuple().exponent))
    modulus = int(step * 10**places)
    zeros = 0
    while modulus % 10 == 0 and places == 0:
        modulus, zeros = modulus // 10, zeros + 1
    nfa = NfaBuilder()
    with compiling() as budget:
        budget.check("dfa_states", modulus * (places + 1), f"`multipleOf` {_decimal(step):f}")
    rows = [nfa.states(modulus) for _ in range(places + 1)]
    start, signed, nought, end = (nfa.state() for _ in range(4))
    nfa.edge(start, ord("-"), ord("-"), signed)
    nfa.epsilon(start, signed)
    nfa.edge(signed, ord("0"), ord("0"), nought)
    for digit in range(1, 10):
        nfa.edge(signed, 48 + digit, 48 + digit, rows[0] + digit % modulus)
    for place, row in enumerate(rows):
        for residue in range(modulus):
            if place == 0 or place < places:
                following = row if place == 0 else rows[place + 1]
                for digit in range(10):
                    nfa.edge(row + residue, 48 + digit, 48 + digit, following + (10 * residue + digit) % modulus)
            if residue * 10 ** (places - place) % modulus == 0:
                nfa.literal(b"0" * zeros, row + residue, end)
    if places:
        point = nfa.states(modulus)
        nfa.edge(nought, ord("."), ord("."), point)
        for residue in range(modulus):
            nfa.edge(rows[0] + residue, ord("."), ord("."), point + residue)
            for digit in range(10):
                nfa.edge(point + residue, 48 + digit, 48 + digit, rows[1] + (10 * residue + digit) % modulus)
    return nfa.build(start, [end, nought])

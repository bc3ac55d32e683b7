"""`uniqueItems` over more values than can be remembered: items from different parts of all values are different.

A finite automaton cannot remember all strings so far. But it can remember which parts of a partition the items
belong to, and items of different parts are not equal. This excludes arrays whose items share a part and never
accepts equal items. Strings are distinguished by the first character that is not common to all of them, numbers by
their first digit. Arrays and objects can have several spellings of a value, so they are one part.
"""

from __future__ import annotations

from collections.abc import Sequence

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.nfa import NfaBuilder
from diffinity.constraints.schema.names import in_buckets
from diffinity.constraints.schema.numbers import EXACT_DIGITS, NumberFacets, numbers
from diffinity.limits import charged_cache

# Partitions, the finest first: where a new part of the strings begins, and the first bytes of the parts of numbers
# and of `false`, `null` and `true`.
_Ranges = tuple[tuple[int, int], ...]
_WORDS, _SIGNED = ((0x66, 0x66), (0x6E, 0x6E), (0x74, 0x74)), (0x2D, 0x2D)
_PARTITIONS: tuple[tuple[bytes, _Ranges, _Ranges], ...] = (
    (b"Aacdgmps", (_SIGNED, (0x30, 0x31), (0x32, 0x34), (0x35, 0x39)), _WORDS),
    (b"acgms", ((0x2D, 0x31), (0x32, 0x39)), _WORDS),
    (b"agp", ((0x2D, 0x39),), ((0x66, 0x74),)),
    (b"m", ((0x2D, 0x39),), ((0x66, 0x74),)),
    (b"", ((0x2D, 0x39),), ((0x66, 0x74),)),
)
# The maximum number of states of an array for its sets of parts.
MOST_STATES = 5_000


def partition(values: Sequence[ByteDFA], size: int) -> tuple[ByteDFA, ...]:
    """Machines of disjoint texts; equal values of `values` (`size` states in total) are in the same machine.

    >>> parts = partition([ByteDFA.from_strings([b'"ab"', b'"xy"', b"7", b"[]", b"{}"])], 20)
    >>> [part.accepts(b'"ab"') for part in parts].count(True), [part.accepts(b"[]") for part in parts].count(True)
    (1, 1)
    """
    together = values[0]
    for value in values[1:]:
        together = together.union(value)
    containers = together.intersection(_starting(0x5B, 0x5B).union(_starting(0x7B, 0x7B)))
    exact = together.intersection(numbers([NumberFacets()], (), EXACT_DIGITS))
    strings = together.intersection(_starting(0x22, 0x22))
    for cuts, of_numbers, of_words in _PARTITIONS:
        parts = [containers, *in_buckets(strings, cuts)]
        parts += [exact.intersection(_starting(low, high)) for low, high in of_numbers]
        parts += [together.intersection(_starting(low, high)) for low, high in of_words]
        parts = [part for part in parts if not part.is_empty]
        if 2 ** (len(parts) - 1) * size <= MOST_STATES:
            return tuple(parts)
    return (together,)


@charged_cache(maxsize=16)
def _starting(low: int, high: int) -> ByteDFA:
    """All strings of bytes whose first byte is from `low` to `high`."""
    nfa = NfaBuilder()
    start, end = nfa.state(), nfa.state()
    nfa.edge(start, low, high, end)
    nfa.edge(end, 0, 255, end)
    return nfa.build(start, [end])

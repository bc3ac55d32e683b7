"""`ByteDFA`: the minimal automaton of a set of byte strings, and the operations on such sets."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from diffinity.constraints import counting, picture
from diffinity.constraints.kernels import I32, Bools
from diffinity.constraints.minimise import Machine, edges_of
from diffinity.constraints.nfa import NfaBuilder, machine_to_dfa
from diffinity.constraints.product import Operation, product
from diffinity.constraints.trie import trie_edges
from diffinity.errors import InvalidArgument
from diffinity.limits import Budget, charged_cache, compiling

LONGEST_CACHED_LIST = 16  # in strings: comparing longer lists costs as much as compiling them


@dataclass(frozen=True, eq=False, repr=False)
class ByteDFA:
    """A trimmed, minimal automaton over bytes in canonical order: equal languages have equal arrays.

    State 0 is the start; `table[s, byte_class[b]]` is the state after reading byte b in state s, -1 for none.
    The empty language is one state that does not accept. Build an automaton with the constructors below,
    `NfaBuilder` or a constraint; the arrays passed here must already be minimal and canonical.

    >>> words = ByteDFA.from_strings([b"cat", b"cut"])
    >>> words.n_states, words.accepts(b"cut"), words.accepts(b"cot")
    (4, True, False)
    """

    byte_class: NDArray[np.uint8]  # (256,)
    table: I32  # (states, classes)
    accepting: Bools  # (states,)

    def __post_init__(self) -> None:
        for array in (self.byte_class, self.table, self.accepting):
            array.flags.writeable = False

    def __reduce__(self) -> tuple[type[ByteDFA], tuple[NDArray[np.uint8], I32, Bools]]:
        return ByteDFA, (self.byte_class, self.table, self.accepting)  # read-only again, without caches

    # ---- constructors

    @staticmethod
    def empty() -> ByteDFA:
        """The language without any string.

        >>> ByteDFA.empty().is_empty
        True
        """
        return ByteDFA(np.zeros(256, np.uint8), np.full((1, 1), -1, np.int32), np.zeros(1, np.bool_))

    @staticmethod
    def epsilon() -> ByteDFA:
        """The language that contains only the empty string.

        >>> ByteDFA.epsilon().accepts(b"")
        True
        """
        return ByteDFA(np.zeros(256, np.uint8), np.full((1, 1), -1, np.int32), np.ones(1, np.bool_))

    @staticmethod
    def literal(data: bytes) -> ByteDFA:
        """The language of one string.

        >>> ByteDFA.literal(b"ab").shortest()
        b'ab'
        """
        return ByteDFA.from_strings([data])

    @staticmethod
    def from_strings(strings: Iterable[bytes]) -> ByteDFA:
        """The language of a list of strings, which may have a hundred thousand entries.

        >>> ByteDFA.from_strings([b"a", b"ab", b"b"]).count(1)
        2
        """
        words = sorted({bytes(s) for s in strings})
        with compiling() as budget:
            key = ("strings", *words)
            dfa = cast("ByteDFA | None", budget.kept(key))
            if dfa is None:
                edges, final, byte_class = trie_edges(words, budget)
                dfa = machine_to_dfa(edges, final, 0, byte_class, budget)
                if len(words) <= LONGEST_CACHED_LIST:
                    budget.keep(key, dfa, dfa.table.size)
            return dfa

    @staticmethod
    def any_bytes() -> ByteDFA:
        """All byte strings.

        >>> ByteDFA.any_bytes().accepts(bytes([255, 0]))
        True
        """
        return ByteDFA(np.zeros(256, np.uint8), np.zeros((1, 1), np.int32), np.ones(1, np.bool_))

    @staticmethod
    def utf8() -> ByteDFA:
        """All strings that are valid UTF-8 (no surrogates, no overlong forms).

        >>> ByteDFA.utf8().accepts("né".encode()), ByteDFA.utf8().accepts(b"\\xc0\\x80")
        (True, False)
        """
        return _utf8()

    # ---- properties and queries

    @property
    def n_states(self) -> int:
        """The number of states."""
        return self.table.shape[0]

    @property
    def n_classes(self) -> int:
        """The number of byte classes that the automaton distinguishes."""
        return self.table.shape[1]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the language: equal for equal languages, however they were built."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.byte_class, self.table, self.accepting):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ByteDFA):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"ByteDFA({self.n_states} states, {self.n_classes} byte classes)"

    def accepts(self, data: bytes) -> bool:
        """Whether the string is in the language.

        >>> ByteDFA.literal(b"ab").accepts(b"a")
        False
        """
        state = self.run(data)
        return state >= 0 and bool(self.accepting[state])

    def run(self, data: bytes, state: int = 0) -> int:
        """The state after reading `data` from `state`; -1 if there is none.

        >>> ByteDFA.literal(b"ab").run(b"a"), ByteDFA.literal(b"ab").run(b"x")
        (1, -1)
        """
        classes = self.byte_class[np.frombuffer(data, np.uint8)].tolist()
        for c in classes:
            state = self.table.item(state, c)
            if state < 0:
                return -1
        return state

    @property
    def is_empty(self) -> bool:
        """Whether no string is in the language."""
        return self.n_states == 1 and not self.accepting[0] and not (self.table >= 0).any()

    @cached_property
    def only_string(self) -> bytes | None:
        """The string of a language with exactly one (short) string; otherwise None."""
        if self.n_states > 16 or self.accepting.sum() != 1:
            return None
        # All states lie between the start and the accepting state; with n − 1 edges n states are a path.
        bytes_of_class = np.bincount(self.byte_class, minlength=self.n_classes)
        edges = int(((self.table >= 0) * bytes_of_class).sum())
        return counting.shortest(self) if edges == self.n_states - 1 else None

    @cached_property
    def is_finite(self) -> bool:
        """Whether the language has finitely many strings."""
        return counting.is_acyclic(self.table)

    def equivalent(self, other: ByteDFA) -> bool:
        """Whether both accept the same strings.

        >>> ByteDFA.literal(b"a").star().equivalent(ByteDFA.literal(b"a").repeat(0, None))
        True
        """
        return self == other

    def shortest(self) -> bytes | None:
        """The shortest accepted string, the first in byte order; None if there is none.

        >>> ByteDFA.from_strings([b"bb", b"ba", b"abc"]).shortest()
        b'ba'
        """
        return counting.shortest(self)

    @cached_property
    def distances(self) -> I32:
        """The minimal number of bytes from each state to acceptance."""
        return counting.distances(self.table, self.accepting)

    @cached_property
    def walk(self) -> counting.Walk:
        """The automaton as plain lists, for samplers."""
        return counting.Walk(self)

    @cached_property
    def _counter(self) -> counting.Counter:
        return counting.Counter(self.byte_class, self.table, self.accepting)

    def count(self, length: int) -> int:
        """The exact number of accepted strings of `length` bytes.

        >>> ByteDFA.any_bytes().count(20) == 256**20
        True
        """
        return self._counter.count(length)

    def counts(self, max_length: int) -> list[int]:
        """The numbers of accepted strings of each length from 0 to `max_length`.

        >>> ByteDFA.from_strings([b"a", b"b", b"ab"]).counts(3)
        [0, 2, 1, 0]
        """
        return [self._counter.count(length) for length in range(max_length + 1)]

    def sample(self, rng: random.Random, max_length: int = 64) -> bytes:
        """A random accepted string; every string of at most `max_length` bytes is possible, not equally likely.

        If every accepted string is longer than `max_length`, the result is a shortest string.

        >>> ByteDFA.from_strings([b"a", b"b"]).sample(random.Random(0)) in (b"a", b"b")
        True
        """
        return counting.sample(self, rng, max_length)

    def sample_uniform(self, length: int, rng: random.Random) -> bytes:
        """An accepted string of exactly `length` bytes, drawn uniformly.

        >>> ByteDFA.from_strings([b"ab", b"c"]).sample_uniform(2, random.Random(0))
        b'ab'
        """
        return self._counter.sample(length, rng)

    # ---- operations

    def union(self, other: ByteDFA) -> ByteDFA:
        """The union of both languages.

        >>> ByteDFA.literal(b"a").union(ByteDFA.literal(b"b")).count(1)
        2
        """
        return self._product(other, "or")

    def intersection(self, other: ByteDFA) -> ByteDFA:
        """The intersection of both languages.

        >>> ByteDFA.literal(b"a").intersection(ByteDFA.literal(b"b")).is_empty
        True
        """
        return self._product(other, "and")

    def difference(self, other: ByteDFA) -> ByteDFA:
        """The strings of this language that are not in the other.

        >>> ByteDFA.from_strings([b"a", b"b"]).difference(ByteDFA.literal(b"b")).shortest()
        b'a'
        """
        return self._product(other, "minus")

    def complement(self, within: ByteDFA | None = None) -> ByteDFA:
        """The strings of `within` (by default all valid UTF-8) that are not in this language.

        >>> ByteDFA.literal(b"").complement().accepts(b"x")
        True
        """
        return (ByteDFA.utf8() if within is None else within).difference(self)

    def concat(self, *others: ByteDFA) -> ByteDFA:
        """The concatenation of this language and the others, in order.

        >>> ByteDFA.literal(b"a").concat(ByteDFA.literal(b"b"), ByteDFA.literal(b"c")).shortest()
        b'abc'
        """
        nfa = NfaBuilder()
        start = current = nfa.state()
        for part in (self, *others):
            next_state = nfa.state()
            nfa.embed(part, current, next_state)
            current = next_state
        return nfa.build(start, [current])

    def star(self) -> ByteDFA:
        """Any number of repetitions of this language.

        >>> ByteDFA.literal(b"ab").star().accepts(b"abab")
        True
        """
        return self.repeat(0, None)

    def optional(self) -> ByteDFA:
        """This language and the empty string.

        >>> ByteDFA.literal(b"ab").optional().accepts(b"")
        True
        """
        return self.union(ByteDFA.epsilon())

    def repeat(self, min: int, max: int | None) -> ByteDFA:  # noqa: A002 (as in `re` and JSON Schema)
        """From `min` to `max` repetitions of this language; None for no upper bound.

        >>> ByteDFA.literal(b"a").repeat(2, 3).counts(4)
        [0, 0, 1, 1, 0]
        """
        if min < 0 or (max is not None and max < min):
            raise InvalidArgument(f"repeat needs 0 <= min <= max, not {min} and {max}")
        with compiling() as budget:
            copies = min if max is None else max
            budget.check("nfa_states", copies * (self.n_states + 1), "repeating an automaton")
            nfa = NfaBuilder()
            start = nfa.state()
            row = [start, *nfa.embed_row(self, start, copies)]
            ends = row[min:]
            if max is None:
                loop = nfa.state()
                nfa.epsilon(row[-1], loop)
                nfa.embed(self, loop, loop)
                ends.append(loop)
            return nfa.build(start, ends)

    def _product(self, other: ByteDFA, operation: Operation) -> ByteDFA:
        with compiling() as budget:
            key = (operation, self, other)
            dfa = cast("ByteDFA | None", budget.kept(key))
            if dfa is None:
                dfa = self._new_product(other, operation, budget)
                budget.keep(key, dfa, dfa.table.size)
            return dfa

    def _new_product(self, other: ByteDFA, operation: Operation, budget: Budget) -> ByteDFA:
        joint = self.byte_class.astype(np.int32) * 256 + other.byte_class
        joint_classes, byte_class = np.unique(joint, return_inverse=True)
        left_class, right_class = np.divmod(joint_classes.astype(np.int32), np.int32(256))
        left, right = Machine(self.table, self.accepting), Machine(other.table, other.accepting)
        machine = product(left, right, left_class, right_class, operation, budget)
        edges = edges_of(machine.table)
        return machine_to_dfa(edges, machine.accepting, 0, byte_class.astype(np.int32), budget)

    # ---- views

    @cached_property
    def byte_ranges(self) -> tuple[I32, I32, I32, I32]:
        """The transitions as byte ranges: (source, low, high, target), sorted by source and low."""
        # Runs of bytes of one class; adjacent runs of a state with the same target are one range.
        low = np.flatnonzero(np.diff(self.byte_class.astype(np.int32), prepend=-1))
        high = np.append(low[1:], 256) - 1
        by_run = self.table[:, self.byte_class[low]]  # (states, runs)
        begins = by_run >= 0
        begins[:, 1:] &= by_run[:, 1:] != by_run[:, :-1]
        ends = by_run >= 0
        ends[:, :-1] &= by_run[:, 1:] != by_run[:, :-1]
        source, first = np.nonzero(begins)
        last = np.nonzero(ends)[1]
        columns = (source, low[first], high[last], by_run[source, first])
        a, b, c, d = (column.astype(np.int32) for column in columns)
        return a, b, c, d

    @cached_property
    def range_columns(self) -> I32:
        """`byte_ranges` as one array (4, ranges)."""
        return np.array(self.byte_ranges, np.int32)

    @cached_property
    def final_states(self) -> I32:
        """The numbers of the accepting states."""
        return np.flatnonzero(self.accepting).astype(np.int32)

    def to_dot(self, max_states: int = 200) -> str:
        """The automaton in Graphviz's language.

        >>> ByteDFA.literal(b"a").to_dot().splitlines()[0]
        'digraph {'
        """
        return picture.to_dot(self, max_states)

    def to_svg(self, max_states: int = 60) -> str:
        """The automaton as a self-contained SVG picture.

        >>> ByteDFA.literal(b"a").to_svg().startswith("<svg")
        True
        """
        return picture.to_svg(self, max_states)


@charged_cache(maxsize=1)
def _utf8() -> ByteDFA:
    nfa = NfaBuilder()
    start = nfa.state()
    tails = [start, nfa.state(), nfa.state(), nfa.state()]  # tails[k]: k continuation bytes follow
    for k in (1, 2, 3):
        nfa.edge(tails[k], 0x80, 0xBF, tails[k - 1])
    nfa.edge(start, 0x00, 0x7F, start)
    nfa.edge(start, 0xC2, 0xDF, tails[1])
    nfa.edge(start, 0xE1, 0xEC, tails[2])
    nfa.edge(start, 0xEE, 0xEF, tails[2])
    nfa.edge(start, 0xF1, 0xF3, tails[3])
    # The four lead bytes whose second byte is restricted: overlong forms, surrogates, beyond U+10FFFF.
    for lead, low, high, remaining in (
        (0xE0, 0xA0, 0xBF, 1),
        (0xED, 0x80, 0x9F, 1),
        (0xF0, 0x90, 0xBF, 2),
        (0xF4, 0x80, 0x8F, 2),
    ):
        second = nfa.state()
        nfa.edge(start, lead, lead, second)
        nfa.edge(second, low, high, tails[remaining])
    return nfa.build(start, [start])

"""Arrays: an automaton over items, with as much counting as the schemas require.

As for objects, the machine is first laid out over whole items. A state has the position of the next item (as far
as positions differ), the number of items that satisfied each `contains`, the schemas that must fail and have not
failed yet and, under `uniqueItems`, the values so far, or the parts of all values that they belong to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.nfa import NfaBuilder
from diffinity.constraints.schema.distinct import partition
from diffinity.constraints.schema.keywords import ArrayPart, Contains
from diffinity.constraints.schema.literals import Literal
from diffinity.constraints.schema.spelling import spelling
from diffinity.constraints.schema.values import Values

MAX_UNIQUE_VALUES = 12
MAX_UNIQUE_STATES = 200_000  # of an array that remembers its values


class _State(NamedTuple):
    """The state of the machine between two items."""

    place: int = 0
    counts: tuple[int, ...] = ()  # items counted by each `contains`
    undecided: frozenset[int] = frozenset()  # schemas that must fail and have not failed yet
    used: frozenset[bytes | int] = frozenset()  # values, or parts of all values, that must not occur again


@dataclass(frozen=True)
class _Tally:
    """The count of one `contains`; `exactly` if uncounted items must not satisfy it."""

    contains: Contains
    exactly: bool
    failing: int | None  # the schema that must fail, if it belongs to one

    @property
    def enough(self) -> int:
        """The count from which more items make no difference."""
        max_count = self.contains.at_most
        return max(self.contains.at_least, 0 if max_count is None else max_count + 1)

    def options(self, count: int) -> list[tuple[Literal | None, int]]:
        """The options for the next item: a literal that it satisfies, and the count after it."""
        wanted = Literal(self.contains.node)
        if not self.exactly:
            return [(None, count)] if count >= self.enough else [(None, count), (wanted, count + 1)]
        if self.failing is None and count + 1 > (self.contains.at_most or 0) and self.contains.at_most is not None:
            return [(wanted.negated(), count)]
        return [(wanted.negated(), count), (wanted, min(count + 1, self.enough))]

    def satisfied(self, count: int) -> bool:
        """Whether the count is within the limits."""
        max_count = self.contains.at_most
        return count >= self.contains.at_least and (max_count is None or count <= max_count)


class ArrayBuilder:
    """Builds the automaton of the arrays that satisfy `holding` and none of `failing`."""

    def __init__(self, values: Values, holding: Sequence[ArrayPart], failing: Sequence[ArrayPart]) -> None:
        self.values = values
        self.holding = holding
        self.failing = failing
        self._known_texts: dict[ByteDFA, list[tuple[bytes, ByteDFA]]] = {}
        self._pieces: dict[ByteDFA, tuple[ByteDFA, ...]] = {}
        self.min_items = max((part.min_items for part in holding), default=0)
        maxima = [part.max_items for part in holding if part.max_items is not None]
        self.max_items = self._feasible_length(min(maxima) if maxima else None)
        self.tallies = [
            *(_Tally(p.contains, p.contains.at_most is not None, None) for p in holding if p.contains is not None),
            *(_Tally(p.contains, True, j) for j, p in enumerate(failing) if p.contains is not None),
        ]
        self.last_place = self._last_place()
        self.unique = any(part.unique for part in holding) and not self._always_unique()
        self.parts = self._parts() if self.unique else None

    def build(self) -> ByteDFA:
        """The automaton, empty if there is no such array."""
        if self.max_items is not None and self.min_items > self.max_items:
            return ByteDFA.empty()
        return self._emit(_State(counts=(0,) * len(self.tallies), undecided=frozenset(range(len(self.failing)))))

    def _base(self, place: int) -> tuple[Literal, ...]:
        nodes = (part.at(place) for part in self.holding)
        return tuple(dict.fromkeys(Literal(node) for node in nodes if node is not None))

    def _feasible_length(self, max_items: int | None) -> int | None:
        """The greatest number of items that the schemas of the positions allow."""
        tuple_length = max((len(part.prefix) for part in self.holding), default=0)
        for place in range(tuple_length + 1):
            if max_items is not None and place >= max_items:
                return max_items
            if self.values.below(self._base(place)).is_empty:
                return place
        return max_items

    def _last_place(self) -> int:
        """The position from which all positions are equivalent."""
        places = [self.min_items, self.max_items or 0]
        places += [len(part.prefix) for part in (*self.holding, *self.failing)]
        for part in self.failing:
            places += [part.min_items, 0 if part.max_items is None else part.max_items + 1]
        self.values.limit_states(max(places) * 8, "counting items")
        self.values.limit_states(2 ** min(len(self.failing), 40), "telling alternatives apart")
        return max(places)

    def _always_unique(self) -> bool:
        """Whether two items can never be equal."""
        if self.max_items is None or self.max_items > 8:
            return self.max_items is not None and self.max_items <= 1
        written_out = self.values.assembly.written_out
        items = [written_out(self.values.below(self._base(place))) for place in range(self.max_items)]
        return all(a.intersection(b).is_empty for a, b in combinations(items, 2))

    def _parts(self) -> tuple[ByteDFA, ...] | None:
        """The partition that distinguishes items; None if all their values can be remembered."""
        places = range(self.last_place + 1 if self.max_items is None else min(self.last_place + 1, self.max_items))
        values = list(dict.fromkeys(self._scalar(self.values.below(self._base(place))) for place in places))
        written_out = self.values.assembly.written_out
        words = [enumerated(written_out(value), MAX_UNIQUE_VALUES) for value in values]
        known = {word for value_words in words for word in value_words or ()}
        if None not in words and 2 ** len(known) * sum(map(len, known)) // 2 <= MAX_UNIQUE_STATES:
            return None
        parts = partition(values, sum(map(self.values.least_size, values)))
        if self.min_items > len(parts):
            part = next(part for part in self.holding if part.unique)
            pointer = part.node.pointer if part.node is not None else "#"
            reason = f"a finite automaton cannot tell {self.min_items} of these items apart"
            self.values.document.refuse("uniqueItems", pointer, reason)
            self.unique = False
        return parts

    def _scalar(self, value: ByteDFA) -> ByteDFA:
        """A value whose first byte determines its type."""
        return self.values.flat_any if value is self.values.assembly.any else value

    # ---- items

    def _items(self, state: _State) -> Iterator[tuple[ByteDFA, _State]]:
        """The possible next values, each with the state after it."""
        if self.max_items is not None and state.place >= self.max_items:
            return
        base = self._base(state.place)
        failure_options = [self._failure_options(j, state.place) for j in sorted(state.undecided)]
        tally_options = [tally.options(count) for tally, count in zip(self.tallies, state.counts, strict=True)]
        after = state._replace(place=min(state.place + 1, self.last_place))
        for failures in product(*failure_options):
            failed = {
                j for j, literal in zip(sorted(state.undecided), failures, strict=True) if literal is not None
            }
            for counted in product(*tally_options):
                self.values.spend(12, "composing an array")
                chosen = [
                    literal for literal in (*failures, *(literal for literal, _ in counted)) if literal is not None
                ]
                value = self.values.below(tuple(dict.fromkeys((*base, *chosen))))
                if not value.is_empty:
                    counts = tuple(count for _, count in counted)
                    yield from self._distinct(
                        value, after._replace(counts=counts, undecided=state.undecided - failed)
                    )

    def _failure_options(self, j: int, place: int) -> list[Literal | None]:
        node = self.failing[j].at(place)
        return [None] if node is None else [None, Literal(node, holds=False)]

    def _distinct(self, value: ByteDFA, after: _State) -> Iterator[tuple[ByteDFA, _State]]:
        if not self.unique:
            yield value, after
            return
        if self.parts is not None:
            for i, piece in enumerate(self._in_parts(value, self.parts)):
                if i not in after.used and not piece.is_empty:
                    yield piece, after._replace(used=after.used | {i})
            return
        for key, text in self._texts(value):
            if key not in after.used:
                yield text, after._replace(used=after.used | {key})

    def _texts(self, value: ByteDFA) -> list[tuple[bytes, ByteDFA]]:
        """The canonical JSON and the automaton of each text of a value; cached, because every state needs them."""
        if value not in self._known_texts:
            words = enumerated(self.values.assembly.written_out(value), MAX_UNIQUE_VALUES) or ()
            # An object has several spellings if its properties come in any order.
            self._known_texts[value] = [
                (json.dumps(json.loads(word), sort_keys=True).encode(), ByteDFA.literal(word)) for word in words
            ]
        return self._known_texts[value]

    def _in_parts(self, value: ByteDFA, parts: tuple[ByteDFA, ...]) -> tuple[ByteDFA, ...]:
        """The intersection of a value with each part; cached, because every state needs it."""
        if value not in self._pieces:
            self._pieces[value] = tuple(self._scalar(value).intersection(part) for part in parts)
        return self._pieces[value]

    def _may_end(self, state: _State) -> bool:
        """Whether the array may be closed here."""
        if state.place < self.min_items:
            return False
        broken: set[int] = set()
        for tally, count in zip(self.tallies, state.counts, strict=True):
            if not tally.satisfied(count):
                if tally.failing is None:
                    return False
                broken.add(tally.failing)
        return all(j in broken or self._too_few_or_many(self.failing[j], state.place) for j in state.undecided)

    def _too_few_or_many(self, part: ArrayPart, length: int) -> bool:
        return length < part.min_items or (part.max_items is not None and length > part.max_items)

    # ---- bytes

    def _emit(self, start: _State) -> ByteDFA:
        marks = spelling(self.values.options)
        nfa = NfaBuilder()
        entry, opened, end = nfa.state(), nfa.state(), nfa.state()
        before: dict[_State, int] = {}  # NFA states before an item
        behind: dict[_State, int] = {}  # NFA states after an item
        pending: list[_State] = []

        def before_node(state: _State) -> int:
            if state not in before:
                before[state] = nfa.state()
                pending.append(state)
            return before[state]

        def behind_node(state: _State) -> int:
            if state not in behind:
                behind[state] = node = nfa.state()
                nfa.embed(marks.comma, node, before_node(state))
                if self._may_end(state):
                    nfa.embed(marks.close_array, node, end)
            return behind[state]

        nfa.embed(marks.open_array, entry, opened)
        if self._may_end(start):
            nfa.literal(b"]", opened, end)
        nfa.epsilon(opened, before_node(start))
        while pending:
            state = pending.pop()
            for value, after in self._items(state):
                self.values.limit_states(nfa.n_states + value.n_states, "composing an array")
                self.values.assembly.embed(nfa, value, before[state], behind_node(after))
        return nfa.build(entry, [end])


def enumerated(dfa: ByteDFA, max_words: int) -> list[bytes] | None:
    """All strings of a machine, or None if there are more than `most`.

    >>> enumerated(ByteDFA.from_strings([b"b", b"a"]), 5)
    [b'a', b'b']
    """
    if not dfa.is_finite:
        return None
    words: list[bytes] = []
    stack = [(0, b"")]
    while stack:
        state, word = stack.pop()
        if dfa.accepting[state]:
            words.append(word)
            if len(words) > max_words:
                return None
        following = dfa.table[state][dfa.byte_class]
        stack.extend((int(following[b]), word + bytes([b])) for b in np.flatnonzero(following >= 0)[::-1].tolist())
    return words

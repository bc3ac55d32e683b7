"""Counting and drawing the strings of an automaton: exact numbers, shortest string, random samples."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diffinity.constraints import kernels
from diffinity.constraints.kernels import I32, Bools
from diffinity.errors import InfeasibleConstraint

if TYPE_CHECKING:
    from diffinity.constraints.dfa import ByteDFA

STOP = 0.2  # probability that a sample ends at an accepting state that has transitions


def is_acyclic(table: I32) -> bool:
    """Whether no state can be reached from itself, by Kahn's algorithm.

    >>> is_acyclic(np.array([[1], [-1]], np.int32)), is_acyclic(np.array([[0]], np.int32))
    (True, False)
    """
    tail, label = np.nonzero(table >= 0)
    links = np.unique(np.stack([tail, table[tail, label]]), axis=1)
    n = table.shape[0]
    incoming = np.bincount(links[1], minlength=n)
    first, order = kernels.group_by(links[0].astype(np.int32), n)
    ready = np.flatnonzero(incoming == 0).tolist()
    removed = 0
    while ready:
        s = ready.pop()
        removed += 1
        for t in links[1][order[first[s] : first[s + 1]]].tolist():
            incoming[t] -= 1
            if incoming[t] == 0:
                ready.append(t)
    return removed == n


def distances(table: I32, accepting: Bools) -> I32:
    """The smallest number of bytes from each state to acceptance; −1 if there is none.

    >>> distances(np.array([[1], [-1]], np.int32), np.array([False, True])).tolist()
    [1, 0]
    """
    n = table.shape[0]
    tail, label = np.nonzero(table >= 0)
    head = table[tail, label]
    first, order = kernels.group_by(head, n)
    distance = np.where(accepting, 0, -1).astype(np.int32)
    frontier = np.flatnonzero(accepting)
    steps = 0
    while frontier.size:
        steps += 1
        incoming = [order[first[s] : first[s + 1]] for s in frontier.tolist()]
        predecessors = np.unique(tail[np.concatenate(incoming)])
        frontier = predecessors[distance[predecessors] < 0]
        distance[frontier] = steps
    return distance


def shortest(dfa: ByteDFA) -> bytes | None:
    """The shortest accepted string, first in byte order; None for the empty language."""
    if dfa.is_empty:
        return None
    byte = [int(np.argmax(dfa.byte_class == c)) for c in range(dfa.n_classes)]
    state, out = 0, bytearray()
    while not dfa.accepting[state]:
        row = dfa.table[state]
        nearer = np.flatnonzero((row >= 0) & (dfa.distances[row] == dfa.distances[state] - 1))
        c = int(nearer[0])  # classes are numbered by first byte
        out.append(byte[c])
        state = int(row[c])
    return bytes(out)


def sample(dfa: ByteDFA, rng: random.Random, max_length: int) -> bytes:
    """A random walk that avoids transitions after which no string of at most `max_length` bytes is accepted."""
    if dfa.is_empty:
        raise InfeasibleConstraint("the language is empty: there is no string to sample")
    walk = dfa.walk
    state, out = 0, bytearray()
    while True:
        choices = walk.choices(state)
        if dfa.accepting[state] and (not choices or len(out) >= max_length or rng.random() < STOP):
            return bytes(out)
        room = max_length - len(out) - 1
        if room < walk.farthest:
            near = [choice for choice in choices if walk.distance[choice[1]] <= room]
            best = min(walk.distance[target] for _, target in choices)
            choices = near or [choice for choice in choices if walk.distance[choice[1]] == best]
        c, state = rng.choice(choices)
        out.append(rng.choice(walk.bytes_of[c]))


class Walk:
    """An automaton as plain lists, for reading byte by byte."""

    def __init__(self, dfa: ByteDFA) -> None:
        self._table = dfa.table
        self._choices: dict[int, list[tuple[int, int]]] = {}
        self.distance: list[int] = dfa.distances.tolist()
        self.farthest = max(self.distance)
        self.bytes_of = [np.flatnonzero(dfa.byte_class == c).tolist() for c in range(dfa.n_classes)]

    def choices(self, state: int) -> list[tuple[int, int]]:
        """The (class, next state) pairs that can be read in `state`."""
        choices = self._choices.get(state)
        if choices is None:
            choices = [(c, t) for c, t in enumerate(self._table[state].tolist()) if t >= 0]
            self._choices[state] = choices
        return choices


class Counter:
    """Exact numbers of accepted strings by length, from any state; grows with the requested lengths."""

    def __init__(self, byte_class: NDArray[np.uint8], table: I32, accepting: Bools) -> None:
        tail, label = np.nonzero(table >= 0)
        weight = np.bincount(byte_class, minlength=table.shape[1])
        self._bytes_of = [np.flatnonzero(byte_class == c).tolist() for c in range(table.shape[1])]
        self._table = table
        self._weight: list[int] = weight.tolist()
        pairs, inverse = np.unique(np.stack([tail, table[tail, label]]), axis=1, return_inverse=True)
        ways = np.zeros(pairs.shape[1], np.int64)
        np.add.at(ways, inverse.reshape(-1), weight[label])
        self._tail, self._head = pairs.astype(np.int64)
        self._ways = ways.astype(object)
        self._rows, self._starts = np.unique(self._tail, return_index=True)
        # Python's integers: an exact count exceeds 2^64 after eight bytes.
        self._from: list[NDArray[Any]] = [accepting.astype(int).astype(object)]

    def _suffixes(self, length: int) -> NDArray[Any]:
        """The number of accepted strings of `length` bytes from each state."""
        while len(self._from) <= length:
            counts = np.zeros(self._table.shape[0], object)
            if self._rows.size:
                terms = self._ways * self._from[-1][self._head]
                counts[self._rows] = np.add.reduceat(terms, self._starts)
            self._from.append(counts)
        return self._from[length]

    def count(self, length: int) -> int:
        """The number of accepted strings of `length` bytes."""
        return int(self._suffixes(length)[0])

    def sample(self, length: int, rng: random.Random) -> bytes:
        """An accepted string of `length` bytes, drawn uniformly."""
        if self.count(length) == 0:
            raise InfeasibleConstraint(f"no accepted string has exactly {length} bytes")
        state, out = 0, bytearray()
        for remaining in range(length - 1, -1, -1):
            suffix_counts = self._suffixes(remaining)
            ticket = rng.randrange(int(self._suffixes(remaining + 1)[state]))
            for c, target in enumerate(self._table[state].tolist()):
                if target < 0:
                    continue
                share = self._weight[c] * int(suffix_counts[target])
                if ticket < share:
                    out.append(self._bytes_of[c][ticket // int(suffix_counts[target])])
                    state = target
                    break
                ticket -= share
        return bytes(out)

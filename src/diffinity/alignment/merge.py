"""Trimming and merging the states of an aligned automaton.

The byte automaton is already minimal, so few states merge here, and proving that they do not should be cheap.
States are coloured by their distance to acceptance, then by the colours of their successors, until no colour
splits. Usually every state soon has its own colour. Colours are hashes, so a partition in which states share a
colour is checked exactly. If this check fails, or if the rounds are not enough (long chains), the general
minimisation runs instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diffinity.alignment import kernels
from diffinity.constraints.minimise import Edges, Machine, minimise
from diffinity.limits import Budget

ROUNDS = 60


def merge_states(edges: Edges, accepting: NDArray[np.bool_], n_labels: int, budget: Budget) -> Machine:
    """The trimmed, minimal machine of the transitions, from start state 0."""
    edges, accepting, start = _trim(edges, accepting)
    if start is None:
        return Machine(np.full((1, n_labels), -1, np.int32), np.zeros(1, np.bool_))
    block = _blocks(edges, accepting)
    if block is None:
        return minimise(edges, accepting, start, n_labels, budget)
    n = int(block.max()) + 1
    budget.check("memory_bytes", 8 * n * n_labels, "the table of the token automaton")
    number = block
    if number[start] != 0:  # the start comes first
        swap = np.arange(n, dtype=np.int32)
        swap[[0, number[start]]] = [number[start], 0]
        number = swap[number]
    table = np.full((n, n_labels), -1, np.int32)
    table[number[edges.tail], edges.label] = number[edges.head]
    final = np.zeros(n, np.bool_)
    final[number] = accepting
    return Machine(table, final)


def _trim(edges: Edges, accepting: NDArray[np.bool_]) -> tuple[Edges, NDArray[np.bool_], int | None]:
    """Keep only states on a path from state 0 to acceptance; returns the new index of the start."""
    n = len(accepting)
    distance: Any = kernels.distances
    start = np.zeros(n, np.bool_)
    start[0] = True
    useful = (distance(*_grouped(edges.head, edges.tail, n), accepting) >= 0) & (
        distance(*_grouped(edges.tail, edges.head, n), start) >= 0
    )
    if not useful[0]:
        return edges, accepting, None
    if useful.all():
        return edges, accepting, 0
    number = (np.cumsum(useful) - 1).astype(np.int32)
    on_a_path = useful[edges.tail] & useful[edges.head]
    trimmed = Edges(number[edges.tail[on_a_path]], edges.label[on_a_path], number[edges.head[on_a_path]])
    return trimmed, accepting[useful], 0


def _grouped(
    key: NDArray[np.int32], value: NDArray[np.int32], n: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Where each key's values begin, and the values sorted by key."""
    order = np.argsort(key, kind="stable")
    first = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(key, minlength=n), out=first[1:])
    return first, value[order]


def _blocks(edges: Edges, accepting: NDArray[np.bool_]) -> NDArray[np.int32] | None:
    """The equivalence class of each state; None if `ROUNDS` are not enough or if hashes collide."""
    n = len(accepting)
    distance: Any = kernels.distances
    recolour: Any = kernels.recolour
    distance_to_end = distance(*_grouped(edges.head, edges.tail, n), accepting)
    order = np.argsort(edges.tail, kind="stable")
    first = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(edges.tail, minlength=n), out=first[1:])
    label, head = edges.label[order], edges.head[order]
    colour = distance_to_end.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    count = len(np.unique(colour))
    new_colour = np.empty_like(colour)
    for _ in range(ROUNDS):
        if count == n:
            return np.arange(n, dtype=np.int32)
        recolour(first, label, head, colour, new_colour)
        colour, new_colour = new_colour, colour
        new_count = len(np.unique(colour))
        if new_count == count:
            block = np.unique(colour, return_inverse=True)[1].astype(np.int32)
            return block if _is_congruence(block, first, label, head, accepting) else None
        count = new_count
    return None


def _is_congruence(
    block: NDArray[np.int32],
    first: NDArray[np.int64],
    label: NDArray[np.int32],
    head: NDArray[np.int32],
    accepting: NDArray[np.bool_],
) -> bool:
    """Whether states of one block have equal acceptance and go to the same blocks on the same labels."""
    representative = np.empty(int(block.max()) + 1, np.int64)
    representative[block[::-1]] = np.arange(len(block))[::-1]
    representative_of = representative[block]
    merged = np.flatnonzero(representative_of != np.arange(len(block)))

    def row(s: int) -> set[tuple[int, int]]:
        span = slice(first[s], first[s + 1])
        return set(zip(label[span].tolist(), block[head[span]].tolist(), strict=True))

    return all(
        accepting[s] == accepting[representative_of[s]] and row(s) == row(representative_of[s])
        for s in merged.tolist()
    )

"""Loops over graphs: grouping edges, reachability, breadth-first numbering, byte ranges to classes.

Arrays are allocated outside the compiled loops: each array type that a loop allocates adds a tenth of a second to
the first run after installation.
"""

from __future__ import annotations

import numpy as np

from diffinity.compiled import njit
from diffinity.constraints.kernels.arrays import I32, I64, Bools


@njit(nogil=True, cache=True)
def mix(x: int | np.int64) -> np.uint64:
    """A 64-bit finaliser: nearby numbers get unrelated hashes."""
    z = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def group_by(key: I32, n: int) -> tuple[I64, I32]:
    """Counting sort: the indices of `key` in order of key, and where each of the n keys begins.

    >>> [part.tolist() for part in group_by(np.array([2, 0, 2], np.int32), 3)]
    [[0, 1, 1, 3], [1, 0, 2]]
    """
    first, order = np.zeros(n + 2, np.int64), np.empty(key.shape[0], np.int32)
    _place(key, first, order)
    return first[:-1], order


@njit(nogil=True, cache=True)
def _place(key: I32, first: I64, order: I32) -> None:
    """Count each key two places behind its own, add up, and write each index to the next free place of its key."""
    for i in range(key.shape[0]):
        first[key[i] + 2] += 1
    for k in range(2, first.shape[0]):
        first[k] += first[k - 1]
    for i in range(key.shape[0]):
        order[first[key[i] + 1]] = i
        first[key[i] + 1] += 1


def reach(first: I64, order: I32, other: I32, seen: Bools) -> None:
    """Mark all states in `seen` that the marked states reach, over edges grouped by `first` and `order`."""
    _reach(first, order, other, seen, np.empty(seen.shape[0], np.int32))


@njit(nogil=True, cache=True)
def _reach(first: I64, order: I32, other: I32, seen: Bools, stack: I32) -> None:
    top = 0
    for s in range(seen.shape[0]):
        if seen[s]:
            stack[top] = s
            top += 1
    while top > 0:
        top -= 1
        s = stack[top]
        for i in range(first[s], first[s + 1]):
            t = other[order[i]]
            if not seen[t]:
                seen[t] = True
                stack[top] = t
                top += 1


def breadth_first(table: I32, start: int) -> I32:
    """The states in breadth-first order of their classes, from `start`; all must be reachable.

    >>> breadth_first(np.array([[-1, -1], [2, 0], [1, 1]], np.int32), 1).tolist()
    [1, 2, 0]
    """
    n = table.shape[0]
    order, seen = np.empty(n, np.int32), np.zeros(n, np.bool_)
    order[0], seen[start] = start, True
    _breadth_first(table, order, seen)
    return order


@njit(nogil=True, cache=True)
def _breadth_first(table: I32, order: I32, seen: Bools) -> None:
    known = 1
    done = 0
    while done < known:
        s = order[done]
        done += 1
        for c in range(table.shape[1]):
            t = table[s, c]
            if t >= 0 and not seen[t]:
                seen[t] = True
                order[known] = t
                known += 1


@njit(nogil=True, cache=True)
def count_class_edges(source: I32, low: I32, high: I32, byte_class: I32) -> int:
    """The number of (state, class, state) edges of the byte ranges."""
    n_classes = byte_class.max() + 1
    last = np.full(n_classes, -1, np.int64)
    total = 0
    for e in range(source.shape[0]):
        for b in range(low[e], high[e] + 1):
            c = byte_class[b]
            if last[c] != e:
                last[c] = e
                total += 1
    return total


@njit(nogil=True, cache=True)
def expand_class_edges(
    source: I32,
    low: I32,
    high: I32,
    target: I32,
    byte_class: I32,
    out_source: I32,
    out_class: I32,
    out_target: I32,
) -> None:
    """Write each byte range as one edge per class in it."""
    n_classes = byte_class.max() + 1
    last = np.full(n_classes, -1, np.int64)
    total = 0
    for e in range(source.shape[0]):
        for b in range(low[e], high[e] + 1):
            c = byte_class[b]
            if last[c] != e:
                last[c] = e
                out_source[total] = source[e]
                out_class[total] = c
                out_target[total] = target[e]
                total += 1

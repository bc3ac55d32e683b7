"""The hot loop of alignment: what every token does to every state, each distinct effect computed once.

A *column* is the partial map from states to states that reading some bytes makes, as sorted pairs
(source, target). The trie is walked parents first; nodes whose parents have equal columns and whose bytes are
in one class share one computation, and equal columns (found by hash, then compared) share one number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diffinity.compiled import njit

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


@njit(nogil=True, cache=True)
def node_columns(
    table: I32,  # (S, byte classes)
    byte_class: NDArray[np.uint8],  # (256,)
    parent: I32,
    byte: NDArray[np.uint8],
    max_pairs: int,
) -> tuple[I32, I64, I32, I32, bool]:
    """For every trie node the number of its column (−1: no state survives), and the columns themselves.

    Returns (column of node, first pair of column, sources, targets, whether max_pairs was enough).
    """
    n_states, n_classes = table.shape
    n_nodes = parent.shape[0]
    column = np.full(n_nodes, -1, np.int32)

    capacity = max(4 * n_states, 1024)
    source = np.empty(capacity, np.int32)
    target = np.empty(capacity, np.int32)
    first = np.zeros(256, np.int64)
    memo = np.full((256, n_classes), -2, np.int32)
    hashes = np.zeros(256, np.uint64)
    slots = np.full(1024, -1, np.int32)

    for s in range(n_states):
        source[s] = s
        target[s] = s
    first[1] = n_states
    n_columns = 1
    column[0] = 0
    # The identity must be found again when some byte string maps every state to itself.
    h = np.uint64(1469598103934665603)
    for s in range(n_states):
        h = _mix(h, s, s)
    hashes[0] = h
    slots[h & np.uint64(slots.shape[0] - 1)] = 0

    for n in range(1, n_nodes):
        before = column[parent[n]]
        if before < 0:
            continue
        c = byte_class[byte[n]]
        known = memo[before, c]
        if known != -2:
            column[n] = known
            continue
        start = first[n_columns]
        wanted = start + first[before + 1] - first[before]
        if wanted > capacity:
            if wanted > max_pairs:
                return column, first[: n_columns + 1], source, target, False
            capacity = max(2 * capacity, wanted)
            source = _extended(source, start, capacity)
            target = _extended(target, start, capacity)
        end = start
        h = np.uint64(1469598103934665603)
        for i in range(first[before], first[before + 1]):
            to = table[target[i], c]
            if to >= 0:
                source[end] = source[i]
                target[end] = to
                h = _mix(h, source[i], to)
                end += 1
        if end == start:
            memo[before, c] = -1
            continue
        mask = np.uint64(slots.shape[0] - 1)
        at = h & mask
        found = -1
        while slots[at] >= 0:
            other = slots[at]
            if hashes[other] == h and _same(source, target, first[other], first[other + 1], start, end):
                found = other
                break
            at = (at + np.uint64(1)) & mask
        if found < 0:
            found = n_columns
            slots[at] = found
            n_columns += 1
            if n_columns + 1 >= first.shape[0]:
                first = _doubled64(first)
                hashes = _doubled_u64(hashes)
                wider = np.full((2 * memo.shape[0], n_classes), -2, np.int32)
                for row in range(memo.shape[0]):
                    for entry in range(n_classes):
                        wider[row, entry] = memo[row, entry]
                memo = wider
            hashes[found] = h
            first[n_columns] = end
            if 2 * n_columns > slots.shape[0]:
                slots = _rehash(hashes, n_columns, 4 * slots.shape[0])
        memo[before, c] = found
        column[n] = found
    return column, first[: n_columns + 1], source, target, True


@njit(nogil=True, cache=True, inner=True, inline="always")
def _mix(h: np.uint64, a: int, b: int) -> np.uint64:
    h = (h ^ np.uint64(a)) * np.uint64(1099511628211)
    h = (h ^ np.uint64(b)) * np.uint64(1099511628211)
    return h ^ (h >> np.uint64(29))


@njit(nogil=True, cache=True, inner=True)
def _same(source: I32, target: I32, a: int, a_end: int, b: int, b_end: int) -> bool:
    if a_end - a != b_end - b:
        return False
    for i in range(a_end - a):  # noqa: SIM110 (compiled)
        if source[a + i] != source[b + i] or target[a + i] != target[b + i]:
            return False
    return True


# Copies are loops: assigning an array to a slice compiles the words of an error message, which takes seconds.
@njit(nogil=True, cache=True, inner=True)
def _extended(array: I32, used: int, size: int) -> I32:
    out = np.empty(size, np.int32)
    for i in range(used):
        out[i] = array[i]
    return out


@njit(nogil=True, cache=True, inner=True)
def _doubled64(array: I64) -> I64:
    out = np.zeros(2 * array.shape[0], np.int64)
    for i in range(array.shape[0]):
        out[i] = array[i]
    return out


@njit(nogil=True, cache=True, inner=True)
def _doubled_u64(array: NDArray[np.uint64]) -> NDArray[np.uint64]:
    out = np.zeros(2 * array.shape[0], np.uint64)
    for i in range(array.shape[0]):
        out[i] = array[i]
    return out


@njit(nogil=True, cache=True, inner=True)
def _rehash(hashes: NDArray[np.uint64], n: int, size: int) -> I32:
    slots = np.full(size, -1, np.int32)
    mask = np.uint64(size - 1)
    for i in range(n):
        at = hashes[i] & mask
        while slots[at] >= 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = i
    return slots


@njit(nogil=True, cache=True)
def distances(first: I64, tail: I32, accepting: NDArray[np.bool_]) -> I32:
    """Steps from each state to acceptance, −1 for never; `tail[first[t]:first[t+1]]` are those that lead to t."""
    n = accepting.shape[0]
    found = np.full(n, -1, np.int32)
    queue = np.empty(n, np.int32)
    size = 0
    for s in range(n):
        if accepting[s]:
            found[s] = 0
            queue[size] = s
            size += 1
    at = 0
    while at < size:
        t = queue[at]
        at += 1
        for i in range(first[t], first[t + 1]):
            s = tail[i]
            if found[s] < 0:
                found[s] = found[t] + 1
                queue[size] = s
                size += 1
    return found


@njit(nogil=True, cache=True)
def recolour(first: I64, label: I32, head: I32, colour: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """A new colour for each state from its own and those that its labelled transitions lead to, in any order."""
    for s in range(colour.shape[0]):
        total = np.uint64(0)
        for i in range(first[s], first[s + 1]):
            total += _mix(colour[head[i]], label[i], label[i] + 77)
        out[s] = _mix(total ^ (colour[s] * np.uint64(0x9E3779B97F4A7C15)), 3, 5)

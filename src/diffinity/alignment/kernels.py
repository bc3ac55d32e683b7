"""The hot loop of alignment: the effect of every token on every state, each distinct effect computed once.

A *column* is the partial map from states to states for some bytes, as sorted pairs (source, target). The trie is
traversed parents first. Nodes whose parents have equal columns and whose bytes are in one class share one
computation, and equal columns (found by hash, then compared) share one number.

Arrays are allocated and enlarged outside the compiled loops, which halves their compile time.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from diffinity.compiled import njit

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
T = TypeVar("T", bound=np.generic)


DONE, GROW_PAIRS, GROW_COLUMNS = 0, 1, 2
SEED = 1469598103934665603


def node_columns(
    table: I32,  # (S, byte classes)
    byte_class: NDArray[np.uint8],  # (256,)
    parent: I32,
    byte: NDArray[np.uint8],
    max_pairs: int,
) -> tuple[I32, I64, I32, I32, bool]:
    """For every trie node the number of its column (−1: no state reads its bytes), and the columns themselves.

    Returns (column of node, first pair of column, sources, targets, whether max_pairs was enough).
    """
    n_states, n_classes = table.shape
    column = np.full(parent.shape[0], -1, np.int32)
    column[0] = 0  # the identity
    source = np.empty(max(4 * n_states, 1024), np.int32)
    target = np.empty_like(source)
    source[:n_states] = target[:n_states] = np.arange(n_states)
    size = 256  # capacity in columns
    first, hashes = np.zeros(size, np.int64), np.zeros(size, np.uint64)
    memo = np.full((size, n_classes), -2, np.int32)
    slots = np.full(4 * size, -1, np.int32)
    first[1] = n_states
    ctl = np.array([1, 1, 0], np.int64)
    _hash_identity(n_states, hashes, slots)
    while True:
        status = _walk(table, byte_class, parent, byte, column, source, target, first, hashes, memo, slots, ctl)
        n_columns, required_pairs = int(ctl[1]), int(ctl[2])
        if status == GROW_PAIRS and required_pairs <= max_pairs:
            source, target = (_longer(pairs, max(2 * len(source), required_pairs)) for pairs in (source, target))
        elif status == GROW_COLUMNS:
            size *= 2
            first, hashes = _longer(first, size), _longer(hashes, size)
            wider = np.full((size, n_classes), -2, np.int32)
            wider[: len(memo)] = memo
            memo, slots = wider, np.full(4 * size, -1, np.int32)
            _rehash(hashes, n_columns, slots)
        else:
            return column, first[: n_columns + 1], source, target, status == DONE


def _longer(array: NDArray[T], size: int) -> NDArray[T]:
    longer = np.zeros(size, array.dtype)
    longer[: len(array)] = array
    return longer


@njit(nogil=True, cache=True)
def _walk(
    table: I32,
    byte_class: NDArray[np.uint8],
    parent: I32,
    byte: NDArray[np.uint8],
    column: I32,
    source: I32,
    target: I32,
    first: I64,
    hashes: U64,
    memo: I32,
    slots: I32,
    ctl: I64,
) -> int:
    """Compute the columns from node ctl[0] on; ctl = [next node, number of columns, pairs required]."""
    mask = np.uint64(slots.shape[0] - 1)
    for n in range(ctl[0], parent.shape[0]):
        ctl[0] = n
        parent_column = column[parent[n]]
        if parent_column < 0:
            continue
        c = byte_class[byte[n]]
        cached = memo[parent_column, c]
        if cached != -2:
            column[n] = cached
            continue
        n_columns = ctl[1]
        if n_columns + 2 > first.shape[0]:
            return GROW_COLUMNS
        start = first[n_columns]
        ctl[2] = start + first[parent_column + 1] - first[parent_column]
        if ctl[2] > source.shape[0]:
            return GROW_PAIRS
        end = start
        h = np.uint64(SEED)
        for i in range(first[parent_column], first[parent_column + 1]):
            reached = table[target[i], c]
            if reached >= 0:
                source[end] = source[i]
                target[end] = reached
                h = _mix(h, source[i], reached)
                end += 1
        if end == start:
            memo[parent_column, c] = -1
            continue
        at = h & mask
        index = -1
        while slots[at] >= 0:
            other = slots[at]
            if hashes[other] == h and _same(source, target, first[other], first[other + 1], start, end):
                index = other
                break
            at = (at + np.uint64(1)) & mask
        if index < 0:
            index = n_columns
            slots[at] = index
            hashes[index] = h
            first[n_columns + 1] = end
            ctl[1] = n_columns + 1
        memo[parent_column, c] = index
        column[n] = index
    return DONE


@njit(nogil=True, cache=True)
def _hash_identity(n_states: int, hashes: U64, slots: I32) -> None:
    """Add the identity to the hash table, for byte strings that map every state to itself."""
    h = np.uint64(SEED)
    for s in range(n_states):
        h = _mix(h, s, s)
    hashes[0] = h
    slots[h & np.uint64(slots.shape[0] - 1)] = 0


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


@njit(nogil=True, cache=True)
def _rehash(hashes: U64, n: int, slots: I32) -> None:
    """Hash the first n columns into new, larger slots."""
    mask = np.uint64(slots.shape[0] - 1)
    for i in range(n):
        at = hashes[i] & mask
        while slots[at] >= 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = i


@njit(nogil=True, cache=True)
def distances(first: I64, tail: I32, accepting: NDArray[np.bool_]) -> I32:
    """Steps from each state to acceptance, −1 for never; `tail[first[t]:first[t+1]]` are the predecessors of t."""
    n = accepting.shape[0]
    distance = np.full(n, -1, np.int32)
    queue = np.empty(n, np.int32)
    size = 0
    for s in range(n):
        if accepting[s]:
            distance[s] = 0
            queue[size] = s
            size += 1
    at = 0
    while at < size:
        t = queue[at]
        at += 1
        for i in range(first[t], first[t + 1]):
            s = tail[i]
            if distance[s] < 0:
                distance[s] = distance[t] + 1
                queue[size] = s
                size += 1
    return distance


@njit(nogil=True, cache=True)
def recolour(first: I64, label: I32, head: I32, colour: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """A new colour for each state from its own colour and the colours of its labelled successors, in any order."""
    for s in range(colour.shape[0]):
        total = np.uint64(0)
        for i in range(first[s], first[s + 1]):
            total += _mix(colour[head[i]], label[i], label[i] + 77)
        out[s] = _mix(total ^ (colour[s] * np.uint64(0x9E3779B97F4A7C15)), 3, 5)

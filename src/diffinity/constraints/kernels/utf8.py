"""The loop that converts a table over character classes into a table over the bytes of UTF-8."""

from __future__ import annotations

import numpy as np

from diffinity.compiled import njit
from diffinity.constraints.kernels.arrays import (
    DONE,
    GROW_EDGES,
    GROW_POOL,
    GROW_STATES,
    I32,
    I64,
    TICK,
    U64,
    Bools,
)
from diffinity.constraints.kernels.graphs import mix

NONE = -1  # no such character, or no such byte

# Plain tuples, as numba takes them: the arrays of a tree (see `utf8.Tree`), of keys (hash, first in pool,
# node, byte state, pool, slots), of byte states (hash, first edge, slots), of edges (tail, label, head).
TreeArrays = tuple[I64, I32, I32, I32, I64, I32, Bools, I32, I32, Bools, I32]
Keys = tuple[U64, I64, I32, I32, I32, I32]
States = tuple[U64, I64, I32]
Edges = tuple[I32, I32, I32]


@njit(nogil=True, cache=True)
def rehash(codes: U64, n: int, slots: I32) -> None:
    """Hash the first n codes into new, larger slots; code 0 is not hashed."""
    mask = np.uint64(slots.shape[0] - 1)
    for i in range(n):
        if codes[i] != np.uint64(0):
            slot = codes[i] & mask
            while slots[slot] >= 0:
                slot = (slot + np.uint64(1)) & mask
            slots[slot] = i


@njit(nogil=True, cache=True, inner=True)
def _find_key(code: np.uint64, v: int, row: I32, labels: I32, begin: int, end: int, keys: Keys) -> int:
    """The key (node v, where its labels lead in `row`), or -1."""
    codes, first, node, _, pool, slots = keys
    mask = np.uint64(slots.shape[0] - 1)
    slot = code & mask
    while slots[slot] >= 0:
        key = slots[slot]
        if codes[key] == code and node[key] == v:
            same = True
            for i in range(begin, end):
                if pool[first[key] + i - begin] != row[labels[i]]:
                    same = False
                    break
            if same:
                return key
        slot = (slot + np.uint64(1)) & mask
    return -1


@njit(nogil=True, cache=True, inner=True)
def _add_key(code: np.uint64, v: int, row: I32, labels: I32, begin: int, end: int, keys: Keys, ctl: I64) -> int:
    codes, first, node, _, pool, slots = keys
    key = ctl[3]
    codes[key] = code
    node[key] = v
    first[key + 1] = first[key] + end - begin
    for i in range(begin, end):
        pool[first[key] + i - begin] = row[labels[i]]
    mask = np.uint64(slots.shape[0] - 1)
    slot = code & mask
    while slots[slot] >= 0:
        slot = (slot + np.uint64(1)) & mask
    slots[slot] = key
    ctl[3] = key + 1
    return key


@njit(nogil=True, cache=True, inner=True)
def _state_of_edges(n_edges: int | np.int64, states: States, edges: Edges, ctl: I64) -> int:
    """The byte state with the edges that were written last: a known state, or a new one."""
    codes, first, slots = states
    tail, label, head = edges
    begin = ctl[2]
    code = mix(n_edges)
    for e in range(begin, begin + n_edges):
        code = mix(np.int64(code ^ np.uint64(label[e])))
        code = mix(np.int64(code ^ np.uint64(head[e])))
    if code == np.uint64(0):
        code = np.uint64(1)
    mask = np.uint64(slots.shape[0] - 1)
    slot = code & mask
    while slots[slot] >= 0:
        state = slots[slot]
        at = first[state]
        if codes[state] == code:
            same = True
            for e in range(n_edges):
                edge = at + e
                if tail[edge] != state or label[edge] != label[begin + e] or head[edge] != head[begin + e]:
                    same = False
                    break
            if same:
                return state
        slot = (slot + np.uint64(1)) & mask
    state = ctl[0]
    slots[slot] = state
    codes[state] = code
    first[state] = begin
    for e in range(begin, begin + n_edges):
        tail[e] = state
    ctl[0] = state + 1
    ctl[2] = begin + n_edges
    return state


@njit(nogil=True, cache=True, inner=True)
def _any_bytes_then(
    target: int, level: int, continuation: I32, uniform: I32, states: States, edges: Edges, ctl: I64
) -> int:
    """The byte state that reads any `level` continuation bytes and leads to state `target` of the table."""
    tail, label, head = edges
    below = target
    for k in range(level):
        if uniform[k, target] < 0:
            uniform[k, target] = ctl[0]
            states[0][ctl[0]] = np.uint64(0)
            for c in continuation:
                tail[ctl[2]], label[ctl[2]], head[ctl[2]] = ctl[0], c, below
                ctl[2] += 1
            ctl[0] += 1
        below = uniform[k, target]
    return below


@njit(nogil=True, cache=True)
def expand(
    table: I32,
    tree: TreeArrays,
    local: I32,
    uniform: I32,
    keys: Keys,
    states: States,
    edges: Edges,
    ctl: I64,
) -> int:
    """Create the byte states and edges of every state of the table; continues from ctl.

    ctl = [byte states, table states done, edges, keys, steps left]. local[v] is the byte state of tree node v
    for the current table state, NONE if nothing is accepted. After an array has grown, the current table state is
    repeated from its beginning: its byte states are looked up again, and its own edges come last.

    Byte states are compared by their edges, from the leaves up, and the states of the table already differ. So
    the result is minimal.
    """
    (
        child_first,
        child_byte,
        child,
        level,
        label_first,
        labels,
        full,
        root_byte,
        root_child,
        root_is_label,
        continuation,
    ) = tree
    tail, label, head = edges
    wide = continuation.shape[0]
    while ctl[1] < table.shape[0]:
        if ctl[-1] < 0:
            return TICK
        s = ctl[1]
        row = table[s]
        for v in range(3, level.shape[0]):
            begin, end = label_first[v], label_first[v + 1]
            ctl[-1] -= end - begin + 1
            target = row[labels[begin]]
            same, some = True, False
            code = mix(v)
            for i in range(begin, end):
                t = row[labels[i]]
                same = same and t == target
                some = some or t >= 0
                code = mix(np.int64(code ^ np.uint64(t + 1)))
            local[v] = NONE
            if not some:
                continue
            if ctl[0] + 4 > states[0].shape[0]:
                return GROW_STATES
            n_children = child_first[v + 1] - child_first[v]
            if ctl[2] + max(3 * wide, n_children) > tail.shape[0]:
                return GROW_EDGES
            if ctl[3] + 1 >= keys[0].shape[0] or keys[1][ctl[3]] + end - begin > keys[4].shape[0]:
                return GROW_POOL
            if same and full[v]:
                local[v] = _any_bytes_then(target, level[v], continuation, uniform, states, edges, ctl)
                continue
            if code == np.uint64(0):
                code = np.uint64(1)
            key = _find_key(code, v, row, labels, begin, end, keys)
            if key < 0:
                n_edges = np.int64(0)  # not a literal, of which numba would make a second version
                for i in range(child_first[v], child_first[v + 1]):
                    t = row[child[i]] if level[v] == 1 else local[child[i]]
                    if t >= 0:
                        label[ctl[2] + n_edges], head[ctl[2] + n_edges] = child_byte[i], t
                        n_edges += 1
                state = _state_of_edges(n_edges, states, edges, ctl)
                key = _add_key(code, v, row, labels, begin, end, keys, ctl)
                keys[3][key] = state
                ctl[-1] -= 2 * n_children
            local[v] = keys[3][key]
        if ctl[2] + root_byte.shape[0] > tail.shape[0]:
            return GROW_EDGES
        for i in range(root_byte.shape[0]):
            t = row[root_child[i]] if root_is_label[i] else local[root_child[i]]
            if t >= 0:
                tail[ctl[2]], label[ctl[2]], head[ctl[2]] = s, root_byte[i], t
                ctl[2] += 1
        ctl[1] = s + 1
    return DONE

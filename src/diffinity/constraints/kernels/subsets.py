"""The loops of the subset construction."""

from __future__ import annotations

import numpy as np

from diffinity.compiled import njit
from diffinity.constraints.kernels.arrays import DONE, GROW_POOL, GROW_STATES, I32, I64, TICK, U64, Bools
from diffinity.constraints.kernels.graphs import mix


@njit(nogil=True, cache=True, inner=True)
def _close(
    targets: I32,
    begin: int | np.int64,
    end: int | np.int64,
    eps_first: I64,
    eps_to: I32,
    important: Bools,
    mark: I32,
    stamp: int,
    stack: I32,
    closure: I32,
) -> tuple[int, np.uint64, int | np.int64]:
    """The important states in the ε-closure of targets[begin:end]: their number, hash, and the steps taken."""
    size = 0
    walked = end - begin
    code = np.uint64(0)
    for i in range(begin, end):
        if mark[targets[i]] == stamp:
            continue
        mark[targets[i]] = stamp
        stack[0] = targets[i]
        top = 1
        while top > 0:
            top -= 1
            q = stack[top]
            if important[q]:
                closure[size] = q
                size += 1
                code += mix(q)
            walked += eps_first[q + 1] - eps_first[q] + 1
            for e in range(eps_first[q], eps_first[q + 1]):
                t = eps_to[e]
                if mark[t] != stamp:
                    mark[t] = stamp
                    stack[top] = t
                    top += 1
    return size, code, walked


@njit(nogil=True, cache=True, inner=True)
def _intern(
    size: int,
    code: np.uint64,
    closure: I32,
    mark: I32,
    stamp: int,
    accepting: Bools,
    pool: I32,
    first: I64,
    codes: U64,
    slots: I32,
    is_final: Bools,
    ctl: I64,
) -> int:
    """The number of the subset in closure[:size], new or known; −2 or −3 if an array must grow first."""
    mask = np.uint64(slots.shape[0] - 1)
    slot = code & mask
    while slots[slot] >= 0:
        subset = slots[slot]
        if codes[subset] == code and first[subset + 1] - first[subset] == size:
            same = True
            for i in range(first[subset], first[subset + 1]):
                if mark[pool[i]] != stamp:
                    same = False
                    break
            if same:
                return subset
        slot = (slot + np.uint64(1)) & mask
    n = ctl[0]
    if n >= codes.shape[0]:
        return -GROW_STATES
    if first[n] + size > pool.shape[0]:
        ctl[3] = first[n] + size
        return -GROW_POOL
    final = False
    for i in range(size):
        pool[first[n] + i] = closure[i]
        final = final or accepting[closure[i]]
    first[n + 1] = first[n] + size
    codes[n] = code
    is_final[n] = final
    slots[slot] = n
    ctl[0] = n + 1
    return n


@njit(nogil=True, cache=True)
def refill_slots(codes: U64, n: int, slots: I32) -> None:
    """Hash the first n subsets into new, larger slots."""
    mask = np.uint64(slots.shape[0] - 1)
    for i in range(n):
        slot = codes[i] & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = i


@njit(nogil=True, cache=True)
def subsets(
    start: I32,
    edge_first: I64,
    edge_class: I32,
    edge_to: I32,
    eps_first: I64,
    eps_to: I32,
    important: Bools,
    accepting: Bools,
    mark: I32,
    stack: I32,
    closure: I32,
    sorted_to: I32,
    memo: I32,
    begin: I64,
    place: I64,
    pool: I32,
    first: I64,
    codes: U64,
    slots: I32,
    is_final: Bools,
    table: I32,
    ctl: I64,
) -> int:
    """Continue the subset construction.

    ctl = [subsets known, subsets expanded, stamp, pool size required, steps left]. If no subset is known, the
    first is that of the state in start (1,); `pool` must have room for every state.

    A subset contains only important states: those with transitions, or accepting. `memo[q]` is the subset of a
    transition into q alone, so that deterministic parts of the machine cost one lookup per edge.
    """
    n_classes = table.shape[1]
    if ctl[0] == 0:
        ctl[2] += 1
        size, code, walked = _close(
            start, ctl[1], ctl[1] + 1, eps_first, eps_to, important, mark, ctl[2], stack, closure
        )
        _intern(size, code, closure, mark, ctl[2], accepting, pool, first, codes, slots, is_final, ctl)
    while ctl[1] < ctl[0]:
        if ctl[-1] < 0:
            return TICK
        s = ctl[1]
        for c in range(n_classes + 1):
            begin[c] = 0
        for i in range(first[s], first[s + 1]):
            q = pool[i]
            for e in range(edge_first[q], edge_first[q + 1]):
                begin[edge_class[e] + 1] += 1
        for c in range(n_classes):
            begin[c + 1] += begin[c]
            place[c] = begin[c]
        for i in range(first[s], first[s + 1]):
            q = pool[i]
            for e in range(edge_first[q], edge_first[q + 1]):
                c = edge_class[e]
                sorted_to[place[c]] = edge_to[e]
                place[c] += 1
        ctl[-1] -= 2 * begin[n_classes] + n_classes + 16
        for c in range(n_classes):
            table[s, c] = -1
            low = begin[c]
            high = begin[c + 1]
            if high == low:
                continue
            if high - low == 1 and memo[sorted_to[low]] != -1:
                table[s, c] = memo[sorted_to[low]]
                continue
            if c > 0 and low - begin[c - 1] == high - low:
                # Neighbouring classes mostly differ in few states only: equal targets give the same subset.
                shift = high - low
                same = True
                for i in range(low, high):
                    if sorted_to[i] != sorted_to[i - shift]:
                        same = False
                        break
                if same:
                    table[s, c] = table[s, c - 1]
                    continue
            ctl[2] += 1
            size, code, walked = _close(
                sorted_to, low, high, eps_first, eps_to, important, mark, ctl[2], stack, closure
            )
            ctl[-1] -= 4 * size + 2 * walked
            if size == 0:
                continue
            known = _intern(size, code, closure, mark, ctl[2], accepting, pool, first, codes, slots, is_final, ctl)
            if known < 0:
                return -known
            if high - low == 1:
                memo[sorted_to[low]] = known
            table[s, c] = known
        ctl[1] = s + 1
    return DONE

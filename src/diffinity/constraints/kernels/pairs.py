"""The loops of the product of two tables."""

from __future__ import annotations

import numpy as np

from diffinity.compiled import njit
from diffinity.constraints.kernels.arrays import DONE, GROW_STATES, I32, I64, TICK
from diffinity.constraints.kernels.graphs import mix


@njit(nogil=True, cache=True)
def pairs(
    left: I32,
    right: I32,
    left_class: I32,
    right_class: I32,
    needs_left: bool,
    needs_right: bool,
    pair: I64,
    slots: I32,
    table: I32,
    ctl: I64,
) -> int:
    """Breadth-first product of two tables; a pair is (l+1)·(R+1)+(r+1), 0 for "no state" on a side.

    ctl = [pairs known, pairs expanded, steps left]. A pair that has lost a needed side is dead and not kept.
    """
    width = right.shape[0] + 1
    n_classes = table.shape[1]
    mask = np.uint64(slots.shape[0] - 1)
    while ctl[1] < ctl[0]:
        if ctl[-1] < 0:
            return TICK
        if ctl[0] + n_classes > pair.shape[0]:
            return GROW_STATES
        s = ctl[1]
        ctl[-1] -= n_classes + 4
        l = pair[s] // width - 1  # noqa: E741 (left and right)
        r = pair[s] % width - 1
        for c in range(n_classes):
            lt = left[l, left_class[c]] if l >= 0 else -1
            rt = right[r, right_class[c]] if r >= 0 else -1
            table[s, c] = -1
            if (lt < 0 and (needs_left or rt < 0)) or (rt < 0 and needs_right):
                continue
            key = np.int64(lt + 1) * width + (rt + 1)
            slot = mix(key) & mask
            while slots[slot] >= 0 and pair[slots[slot]] != key:
                slot = (slot + np.uint64(1)) & mask
            if slots[slot] < 0:
                slots[slot] = ctl[0]
                pair[ctl[0]] = key
                ctl[0] += 1
            table[s, c] = slots[slot]
        ctl[1] = s + 1
    return DONE


@njit(nogil=True, cache=True)
def refill_pairs(pair: I64, n: int, slots: I32) -> None:
    """Hash the first n pairs into new, larger slots."""
    mask = np.uint64(slots.shape[0] - 1)
    for i in range(n):
        slot = mix(pair[i]) & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = i

"""The loops of partition refinement, which finds equivalent states."""

from __future__ import annotations

import numpy as np

from diffinity.compiled import njit
from diffinity.constraints.kernels.arrays import DONE, I32, I64, TICK

MARK = 4  # steps that marking one element counts: it jumps about in six arrays


@njit(nogil=True, cache=True, inner=True)
def _split(
    element: I32,
    set_of: I32,
    first: I32,
    past: I32,
    marked: I32,
    touched: I32,
    n_touched: int | np.int64,
    n: int,
) -> int:
    """Cut every touched set into its marked and its other part; the smaller part gets the new number."""
    for w in range(n_touched):
        s = touched[w]
        cut = first[s] + marked[s]
        marked[s] = 0
        if cut == past[s]:
            continue
        if cut - first[s] <= past[s] - cut:
            first[n] = first[s]
            past[n] = cut
            first[s] = cut
        else:
            first[n] = cut
            past[n] = past[s]
            past[s] = cut
        for i in range(first[n], past[n]):
            set_of[element[i]] = n
        n += 1
    return n


@njit(nogil=True, cache=True, inner=True)
def _mark(
    e: int,
    element: I32,
    location: I32,
    set_of: I32,
    first: I32,
    marked: I32,
    touched: I32,
    n_touched: int | np.int64,
) -> int | np.int64:
    """Move e to the marked front of its set; the number of touched sets afterwards."""
    s = set_of[e]
    i = location[e]
    j = first[s] + marked[s]
    if i < j:
        return n_touched
    element[i] = element[j]
    location[element[i]] = i
    element[j] = e
    location[e] = j
    if marked[s] == 0:
        touched[n_touched] = s
        n_touched += 1
    marked[s] += 1
    return n_touched


@njit(nogil=True, cache=True)
def refine(
    tail: I32,
    in_first: I64,
    in_order: I32,
    block: tuple[I32, I32, I32, I32, I32, I32, I32],
    cord: tuple[I32, I32, I32, I32, I32, I32, I32],
    ctl: I64,
) -> int:
    """Valmari's refinement of states (blocks) and transitions (cords), O(m log m) over the m transitions.

    A block and a cord set are each (element, location, set_of, first, past, marked, touched). ctl = [blocks,
    cord sets, next block to split by, next cord set to split by, steps left].
    """
    b_element, b_location, b_set, b_first, b_past, b_marked, b_touched = block
    c_element, c_location, c_set, c_first, c_past, c_marked, c_touched = cord
    while ctl[3] < ctl[1]:
        if ctl[-1] < 0:
            return TICK
        c = ctl[3]
        n_touched: int | np.int64 = np.int64(0)  # not a literal, of which numba would make a second version
        for i in range(c_first[c], c_past[c]):
            n_touched = _mark(
                tail[c_element[i]], b_element, b_location, b_set, b_first, b_marked, b_touched, n_touched
            )
        ctl[-1] -= MARK * (c_past[c] - c_first[c] + 4)
        ctl[0] = _split(b_element, b_set, b_first, b_past, b_marked, b_touched, n_touched, ctl[0])
        ctl[3] = c + 1
        while ctl[2] < ctl[0]:
            b = ctl[2]
            n_touched = np.int64(0)
            for i in range(b_first[b], b_past[b]):
                q = b_element[i]
                for j in range(in_first[q], in_first[q + 1]):
                    n_touched = _mark(
                        in_order[j], c_element, c_location, c_set, c_first, c_marked, c_touched, n_touched
                    )
                ctl[-1] -= MARK * (in_first[q + 1] - in_first[q] + 2)
            ctl[1] = _split(c_element, c_set, c_first, c_past, c_marked, c_touched, n_touched, ctl[1])
            ctl[2] = b + 1
    return DONE

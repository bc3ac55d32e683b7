"""The loops of partition refinement, which finds equivalent states."""

from __future__ import annotations

import numpy as np

from diffinity.compiled import njit
from diffinity.constraints.kernels.arrays import DONE, I32, I64, TICK

MARK = 4  # steps that marking one element counts: it jumps about in three arrays

# A partition is three arrays, which keep together what is read together: `element` lists the members of each set
# one after the other; a row of `place` has an element's index there and its set; a row of `sets` has a set's begin
# and end, and how many of its first members are marked. The last column of `sets` lists the sets with marks.
LOCATION, SET = 0, 1
FIRST, PAST, MARKED, TOUCHED = 0, 1, 2, 3


@njit(nogil=True, cache=True, inner=True)
def _split(element: I32, place: I32, sets: I32, n_touched: int | np.int64, n: int) -> int:
    """Cut every touched set into its marked and its other part; the smaller part gets the new number."""
    for w in range(n_touched):
        s = sets[w, TOUCHED]
        cut = sets[s, FIRST] + sets[s, MARKED]
        sets[s, MARKED] = 0
        if cut == sets[s, PAST]:
            continue
        if cut - sets[s, FIRST] <= sets[s, PAST] - cut:
            sets[n, FIRST] = sets[s, FIRST]
            sets[n, PAST] = cut
            sets[s, FIRST] = cut
        else:
            sets[n, FIRST] = cut
            sets[n, PAST] = sets[s, PAST]
            sets[s, PAST] = cut
        for i in range(sets[n, FIRST], sets[n, PAST]):
            place[element[i], SET] = n
        n += 1
    return n


@njit(nogil=True, cache=True, inner=True)
def _mark(e: np.uint32, element: I32, place: I32, sets: I32, n_touched: int | np.int64) -> int | np.int64:
    """Move e to the marked front of its set; the number of touched sets afterwards."""
    i = place[e, LOCATION]
    s = np.uint32(place[e, SET])
    marked = sets[s, MARKED]
    j = sets[s, FIRST] + marked
    if i < j:
        return n_touched
    if i > j:
        other = np.uint32(element[np.uint32(j)])
        element[np.uint32(i)] = other
        place[other, LOCATION] = i
        element[np.uint32(j)] = e
        place[e, LOCATION] = j
    if marked == 0:
        sets[n_touched, TOUCHED] = s
        n_touched += 1
    sets[s, MARKED] = marked + 1
    return n_touched


@njit(nogil=True, cache=True)
def refine(tail: I32, in_first: I64, block: tuple[I32, I32, I32], cord: tuple[I32, I32, I32], ctl: I64) -> int:
    """Valmari's refinement of states (blocks) and transitions (cords), O(m log m) over the m transitions.

    Transitions are sorted by the state that they lead to: those into state q are in_first[q] … in_first[q+1]-1.
    ctl = [blocks, cord sets, next block to split by, next cord set to split by, steps left].
    """
    b_element, b_place, b_sets = block
    c_element, c_place, c_sets = cord
    while ctl[3] < ctl[1]:
        if ctl[-1] < 0:
            return TICK
        c = ctl[3]
        n_touched: int | np.int64 = np.int64(0)  # not a literal, of which numba would make a second version
        for i in range(c_sets[c, FIRST], c_sets[c, PAST]):
            state = np.uint32(tail[np.uint32(c_element[i])])
            n_touched = _mark(state, b_element, b_place, b_sets, n_touched)
        ctl[-1] -= MARK * (c_sets[c, PAST] - c_sets[c, FIRST] + 4)
        ctl[0] = _split(b_element, b_place, b_sets, n_touched, ctl[0])
        ctl[3] = c + 1
        while ctl[2] < ctl[0]:
            b = ctl[2]
            n_touched = np.int64(0)
            for i in range(b_sets[b, FIRST], b_sets[b, PAST]):
                q = b_element[i]
                for j in range(in_first[q], in_first[q + 1]):
                    n_touched = _mark(np.uint32(j), c_element, c_place, c_sets, n_touched)
                ctl[-1] -= MARK * (in_first[q + 1] - in_first[q] + 2)
            ctl[1] = _split(c_element, c_place, c_sets, n_touched, ctl[1])
            ctl[2] = b + 1
    return DONE

"""Compiled loops for partially committed strings, and the draw of an index."""

from __future__ import annotations

import numpy as np

from diffinity.acceptance.numba_kernels import I64, U32, Bools, Floats
from diffinity.compiled import njit


@njit(nogil=True, cache=True)
def decided_groups(labels: I64, members_first: I64, members: U32, out: Floats) -> None:
    """out[k, g] = 1 if class labels[k] ≥ 0 is in group g, else 0; rows with a negative label are not changed."""
    for k in range(labels.shape[0]):
        if labels[k] >= 0:
            for g in range(members_first.shape[0] - 1):
                out[k, g] = 0.0
                for i in range(np.uint64(members_first[g]), np.uint64(members_first[g + 1])):
                    if members[i] == labels[k]:
                        out[k, g] = 1.0
                        break


@njit(nogil=True, cache=True)
def draw_index(shares: Floats, draw: float) -> int:
    """The index that a number from [0, 1) draws in proportion to the shares."""
    total = 0.0
    for i in range(shares.shape[0]):
        total += shares[i]
    rest = draw * total
    chosen = 0
    for i in range(shares.shape[0]):
        if shares[i] > 0.0:
            chosen = i
            rest -= shares[i]
            if rest < 0.0:
                break
    return chosen


@njit(nogil=True, cache=True)
def draw_classes(
    scaled: Floats,  # (M, C): sums of the classes
    rows: I64,  # (k,): of the sums
    groups: I64,  # (k,): of the drawn path there
    members_first: I64,
    members: U32,
    draws: Floats,  # (k,): numbers from [0, 1)
    labels: I64,  # (k,), out
) -> None:
    """A class of each group in proportion to its probability."""
    for i in range(rows.shape[0]):
        classes = members[np.uint64(members_first[groups[i]]) : np.uint64(members_first[groups[i] + 1])]
        shares = np.empty(classes.shape[0])
        for j in range(classes.shape[0]):
            shares[j] = scaled[rows[i], classes[j]]
        labels[i] = classes[draw_index(shares, draws[i])]


@njit(nogil=True, cache=True)
def reachable(grouped: Floats, tail: U32, head: U32, group: U32, start: int, accepting: Bools) -> bool:
    """Whether some path of groups with positive weight leads from the start to an accepting state."""
    states = np.zeros(accepting.shape[0], np.bool_)
    states[start] = True
    for k in range(grouped.shape[0]):
        next_states = np.zeros(accepting.shape[0], np.bool_)
        for e in range(tail.shape[0]):
            if states[tail[e]] and grouped[k, group[e]] > 0.0:
                next_states[head[e]] = True
        states = next_states
    return bool((states & accepting).any())

"""Compiled loops for strings that are decided in part: one pass over the vocabulary, and tokens within a class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diffinity.acceptance.numba_kernels import I64, U32, Bools, Floats
from diffinity.compiled import njit


@njit(nogil=True, cache=True)
def sums_and_maxima(probs: NDArray[np.float32], class_of: U32, sums: Floats, largest: Floats) -> None:
    """sums[k, c] and largest[k, c]: the sum and the largest of probs[k, v] over v in c."""
    length, vocab = probs.shape
    n_classes = sums.shape[1]
    # Two positions at a time: neighbouring tokens are often of one class, and one sum would wait for the other.
    both = np.empty((n_classes, 4))
    for k in range(0, length - 1, 2):
        both[:] = 0.0
        a, b = probs[k], probs[k + 1]
        for v in range(vocab):
            into = both[class_of[v]]
            into[0] += a[v]
            into[1] += b[v]
            into[2] = max(into[2], a[v])
            into[3] = max(into[3], b[v])
        for c in range(n_classes):
            sums[k, c], sums[k + 1, c] = both[c, 0], both[c, 1]
            largest[k, c], largest[k + 1, c] = both[c, 2], both[c, 3]
    if length % 2:
        sums[length - 1] = 0.0
        largest[length - 1] = 0.0
        for v in range(vocab):
            c, p = class_of[v], probs[length - 1, v]
            sums[length - 1, c] += p
            largest[length - 1, c] = max(largest[length - 1, c], p)


@njit(nogil=True, cache=True)
def decided_groups(labels: I64, members_first: I64, members: U32, out: Floats) -> None:
    """out[k, g] = 1 where class labels[k] ≥ 0 is in group g, else 0; rows with a negative label stay."""
    for k in range(labels.shape[0]):
        if labels[k] >= 0:
            for g in range(members_first.shape[0] - 1):
                out[k, g] = 0.0
                for i in range(np.uint64(members_first[g]), np.uint64(members_first[g + 1])):
                    if members[i] == labels[k]:
                        out[k, g] = 1.0
                        break


@njit(nogil=True, cache=True)
def confidence(largest: Floats, ratio: Floats, log_scale: Floats, sums: Floats, out: Floats) -> None:
    """out[k] = the largest q[k, v] = p[k, v]·q/p of its class; of a class with a vanished sum nothing is known."""
    for k in range(largest.shape[0]):
        top = 0.0
        scale = np.exp(-log_scale[k])
        for c in range(largest.shape[1]):
            if sums[k, c] > 0.0:
                top = max(top, largest[k, c] * ratio[k, c] * scale)
        out[k] = top


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
def draw_token(row: NDArray[np.float32], tokens: I64, draw: float) -> int:
    """One of the tokens, drawn in proportion to row (V,); −1 where all of them have vanished."""
    total = 0.0
    for i in range(tokens.shape[0]):
        total += row[tokens[i]]
    if total <= 0.0:
        return -1
    rest = draw * total
    chosen = -1
    for i in range(tokens.shape[0]):
        p = row[tokens[i]]
        if p > 0.0:
            chosen = tokens[i]
            rest -= p
            if rest < 0.0:
                break
    return chosen


@njit(nogil=True, cache=True)
def reachable(grouped: Floats, tail: U32, head: U32, group: U32, start: int, accepting: Bools) -> bool:
    """Whether some path of groups with positive weight leads from the start to an accepting state."""
    here = np.zeros(accepting.shape[0], np.bool_)
    here[start] = True
    for k in range(grouped.shape[0]):
        there = np.zeros(accepting.shape[0], np.bool_)
        for e in range(tail.shape[0]):
            if here[tail[e]] and grouped[k, group[e]] > 0.0:
                there[head[e]] = True
        here = there
    return bool((here & accepting).any())

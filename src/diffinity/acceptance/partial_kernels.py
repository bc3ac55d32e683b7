"""Compiled loops for strings that are decided in part: one pass over the vocabulary, and tokens within a class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diffinity.acceptance.numba_kernels import I64, U32, Bools, Floats
from diffinity.compiled import njit


@njit(nogil=True, cache=True)
def sums_and_maxima(probs: NDArray[np.float32], tokens: U32, class_of: U32, sums: Floats, largest: Floats) -> None:
    """sums[k, c] and largest[k, c]: the sum and the largest of probs[k, v] over the given tokens v of class c.

    class_of (N,) goes along tokens (N,).
    """
    length, n_classes = probs.shape[0], sums.shape[1]
    # Two positions at a time: neighbouring tokens are often of one class, and one sum would wait for the other.
    both = np.empty((n_classes, 4))
    for k in range(0, length, 2):
        both[:] = 0.0
        last = min(k + 1, length - 1)
        a, b = probs[k], probs[last]
        for i in range(tokens.shape[0]):
            v = tokens[i]
            into = both[class_of[i]]
            into[0] += a[v]
            into[1] += b[v]
            into[2] = max(into[2], a[v])
            into[3] = max(into[3], b[v])
        for c in range(n_classes):
            sums[k, c], sums[last, c] = both[c, 0], both[c, 1]
            largest[k, c], largest[last, c] = both[c, 2], both[c, 3]


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
def draw_tokens(
    probs: NDArray[np.float32],  # (M, V)
    chosen: I64,  # (k,): rows of probs
    groups: I64,  # (k,): of the drawn path there
    scaled: Floats,  # (M, C): sums of the classes
    members_first: I64,
    members: U32,
    order: I64,  # (V,): tokens by class
    first: I64,  # (C+1,)
    class_draws: Floats,  # (k,)
    token_draws: Floats,  # (k,)
    labels: I64,  # (k,), out: the class of each
    ids: I64,  # (k,), out: the token of each, −1 where all of the class have vanished
) -> None:
    """A class of the group, then a token of the class, each in proportion to its probability."""
    for i in range(chosen.shape[0]):
        classes = members[np.uint64(members_first[groups[i]]) : np.uint64(members_first[groups[i] + 1])]
        shares = np.empty(classes.shape[0])
        for j in range(classes.shape[0]):
            shares[j] = scaled[chosen[i], classes[j]]
        labels[i] = classes[draw_index(shares, class_draws[i])]
        ids[i] = draw_token(probs[chosen[i]], order[first[labels[i]] : first[labels[i] + 1]], token_draws[i])


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

"""Compiled passes over logits (L, V): what the programme needs of them by class, and what it says by token."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diffinity.acceptance.numba_kernels import I32, I64, TINY, U32, Floats
from diffinity.acceptance.rescue_kernels import REACH
from diffinity.compiled import njit


@njit(nogil=True, cache=True)
def sums_and_maxima(
    logits: NDArray[np.float32],
    shares: NDArray[np.float32],
    tokens: U32,
    class_of: U32,
    sums: Floats,
    best: Floats,
    where: I32,
) -> None:
    """For each position and class over the given tokens: Σ shares, the largest logit, and a token that has it.

    logits and shares are (L, V), class_of (N,) goes along tokens (N,), the results are (L, C). Four positions at a
    time: neighbouring tokens are often of one class, and one sum would wait for the other.
    """
    length, n_classes = logits.shape[0], sums.shape[1]
    total = np.empty((n_classes, 4))
    top = np.empty((n_classes, 4), logits.dtype)
    at = np.empty((n_classes, 4), np.int32)
    for first in range(0, length, 4):
        last = min(first + 3, length - 1)  # at the end some of the four are the same position
        total[:], top[:], at[:] = 0.0, -np.inf, -1
        second, third = min(first + 1, last), min(first + 2, last)
        a, b, c, d = logits[first], logits[second], logits[third], logits[last]
        p, q, r, s = shares[first], shares[second], shares[third], shares[last]
        for i in range(tokens.shape[0]):
            v, label = tokens[i], class_of[i]
            into, high, token = total[label], top[label], at[label]
            into[0] += p[v]
            into[1] += q[v]
            into[2] += r[v]
            into[3] += s[v]
            if a[v] > high[0]:
                high[0] = a[v]
                token[0] = v
            if b[v] > high[1]:
                high[1] = b[v]
                token[1] = v
            if c[v] > high[2]:
                high[2] = c[v]
                token[2] = v
            if d[v] > high[3]:
                high[3] = d[v]
                token[3] = v
        for j in range(last - first + 1):
            for label in range(n_classes):
                sums[first + j, label] = total[label, j]
                best[first + j, label] = top[label, j]
                where[first + j, label] = at[label, j]


@njit(nogil=True, cache=True)
def logarithms(
    logits: NDArray[np.float32],
    peak: Floats,
    temperature: float,
    members: I64,
    first: I64,
    sums: Floats,
    best: Floats,
) -> None:
    """Sums of exp((logit − peak)/T) (L, C) as logarithms, in place; of what underflowed, made again."""
    for k in range(sums.shape[0]):
        row = logits[k]
        for c in range(sums.shape[1]):
            if sums[k, c] >= TINY:
                sums[k, c] = np.log(sums[k, c])
            elif best[k, c] == -np.inf:
                sums[k, c] = -np.inf
            else:
                total = 0.0
                for i in range(first[c], first[c + 1]):
                    below = (row[members[i]] - best[k, c]) / temperature
                    if below > -REACH:
                        total += np.exp(below)
                sums[k, c] = (best[k, c] - peak[k]) / temperature + np.log(total)


@njit(nogil=True, cache=True)
def shifted(
    logits: NDArray[np.float32], class_of: U32, shift: NDArray[np.float32], out: NDArray[np.float32]
) -> None:
    """out[k, v] = logits[k, v] + shift[k, class of v]; logits and out may be one array."""
    for k in range(logits.shape[0]):
        row, into, by_class = logits[k], out[k], shift[k]
        for v in range(row.shape[0]):
            into[v] = row[v] + by_class[class_of[v]]


@njit(nogil=True, cache=True)
def states_after(table: I32, class_of: I32, start: int, ids: NDArray[np.int64]) -> int:
    """The state that ids (n,) lead to, −1 if they lead nowhere."""
    state = start
    for i in range(ids.shape[0]):
        state = table[state, class_of[ids[i]]]
        if state < 0:
            return -1
    return state

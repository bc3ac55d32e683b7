"""Compiled loops of `chain.py`: couplings of neighbouring positions, and their chain times an automaton.

Arrays are allocated outside the compiled functions and filled by loops, not slices, which shortens the compile
time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diffinity.compiled import njit

SMALLEST = 1e-290
NEGLIGIBLE = 1e-60  # of the forward mass of a position: smaller contributions are skipped
LIKELIEST = 1e6  # ratios are bounded, so that a coupling of few candidates stays well conditioned

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


@njit(nogil=True, cache=True, inner=True)
def ratio_of(
    first: NDArray[np.int64],
    successor: Ints,
    ratio: NDArray[np.float32],
    unseen: NDArray[np.float32],
    a: int,
    b: int,
) -> float:
    """The ratio of two neighbouring tokens; 1 where either is a whole class of tokens (−1)."""
    if a < 0 or b < 0:
        return 1.0
    low, high = first[a], first[a + 1]
    while low < high:
        middle = (low + high) // 2
        if successor[middle] < b:
            low = middle + 1
        else:
            high = middle
    if low < first[a + 1] and successor[low] == b:
        return min(float(ratio[low]), LIKELIEST)
    return float(unseen[a])


def couplings(
    mass: Floats,
    token: Ints,
    size: Ints,
    first: NDArray[np.int64],
    successor: Ints,
    ratio: NDArray[np.float32],
    unseen: NDArray[np.float32],
    rounds: int,
    moves: Floats,
) -> None:
    """P(candidate j at k + 1 | candidate i at k) into `moves` (L−1, N, N).

    The ratios of the pairs, with rows and columns scaled to the marginals `mass` (L, N) by `rounds` of Sinkhorn's
    iteration.
    """
    left, right = np.empty((2, mass.shape[1]))
    _couplings(mass, token, size, first, successor, ratio, unseen, rounds, moves, left, right)


@njit(nogil=True, cache=True)
def _couplings(
    mass: Floats,
    token: Ints,
    size: Ints,
    first: NDArray[np.int64],
    successor: Ints,
    ratio: NDArray[np.float32],
    unseen: NDArray[np.float32],
    rounds: int,
    moves: Floats,
    left: Floats,
    right: Floats,
) -> None:
    length = mass.shape[0]
    for k in range(length - 1):
        n, m = size[k], size[k + 1]
        table = moves[k]
        for i in range(n):
            for j in range(m):
                table[i, j] = ratio_of(first, successor, ratio, unseen, token[k, i], token[k + 1, j])
        for i in range(n):
            left[i] = 1.0
        for j in range(m):
            right[j] = mass[k + 1, j]
        for _ in range(rounds):
            for i in range(n):
                total = 0.0
                for j in range(m):
                    total += table[i, j] * right[j]
                left[i] = mass[k, i] / max(total, SMALLEST)
            for j in range(m):
                right[j] = 0.0
            for i in range(n):
                for j in range(m):
                    right[j] += table[i, j] * left[i]
            for j in range(m):
                right[j] = mass[k + 1, j] / max(right[j], SMALLEST)
        for i in range(n):
            total = 0.0
            for j in range(m):
                table[i, j] *= right[j]
                total += table[i, j]
            scale = 1.0 / max(total, SMALLEST)
            for j in range(m):
                table[i, j] *= scale


def chain_marginals(
    mass: Floats,
    cls: Ints,
    size: Ints,
    moves: Floats,
    after: Ints,
    start: int,
    accepting: NDArray[np.bool_],
    live: NDArray[np.bool_],
    out: Floats,
) -> float:
    """log P(L) of the chain, and the marginals of the candidates given L into `out` (L, N).

    `after` (S, C) is the automaton, `live` (L+1, S) the states from which acceptance can be reached in time. If
    nothing is accepted, `out` is not written and the result is −inf.
    """
    (length, width), states = mass.shape, after.shape[0]
    forward, backward = np.zeros((length, width, states)), np.ones((width, states))
    step, earlier, used = np.empty((states, width)), np.empty((width, states)), np.empty(states, np.bool_)
    room = (forward, backward, earlier, step, used)
    log_p_language: float = _chain_marginals(mass, cls, size, moves, after, start, accepting, live, out, *room)
    return log_p_language


@njit(nogil=True, cache=True)
def _chain_marginals(
    mass: Floats,
    cls: Ints,
    size: Ints,
    moves: Floats,
    after: Ints,
    start: int,
    accepting: NDArray[np.bool_],
    live: NDArray[np.bool_],
    out: Floats,
    forward: Floats,  # (L, N, S), zeros
    backward: Floats,  # (N, S), ones
    earlier: Floats,
    step: Floats,
    used: NDArray[np.bool_],
) -> float:
    length, states = mass.shape[0], after.shape[0]
    log_total = 0.0
    for i in range(size[0]):
        there = after[start, cls[0, i]] if cls[0, i] >= 0 else -1
        if there >= 0 and live[1, there]:
            forward[0, i, there] = mass[0, i]
    for k in range(length):
        if k > 0:
            n, m = size[k - 1], size[k]
            for s in range(states):
                used[s] = False
                for j in range(m):
                    step[s, j] = 0.0
            for i in range(n):
                for s in range(states):
                    weight = forward[k - 1, i, s]
                    if weight > NEGLIGIBLE:
                        used[s] = True
                        for j in range(m):
                            step[s, j] += weight * moves[k - 1, i, j]
            for s in range(states):
                if used[s]:
                    for j in range(m):
                        there = after[s, cls[k, j]] if cls[k, j] >= 0 else -1
                        if there >= 0 and live[k + 1, there]:
                            forward[k, j, there] += step[s, j]
        total = 0.0
        for j in range(size[k]):
            for s in range(states):
                if k == length - 1 and not accepting[s]:
                    forward[k, j, s] = 0.0
                total += forward[k, j, s]
        if total <= SMALLEST:
            return -np.inf
        log_total += np.log(total)
        for j in range(size[k]):
            for s in range(states):
                forward[k, j, s] /= total
    for k in range(length - 1, -1, -1):
        n = size[k]
        if k < length - 1:
            m = size[k + 1]
            for s in range(states):
                used[s] = False
            for i in range(n):
                for s in range(states):
                    earlier[i, s] = 0.0
                    if forward[k, i, s] > NEGLIGIBLE:
                        used[s] = True
            for s in range(states):
                if used[s]:
                    for j in range(m):
                        there = after[s, cls[k + 1, j]] if cls[k + 1, j] >= 0 else -1
                        step[s, j] = backward[j, there] if there >= 0 and live[k + 2, there] else 0.0
                    for i in range(n):
                        if forward[k, i, s] > NEGLIGIBLE:
                            total = 0.0
                            for j in range(m):
                                total += moves[k, i, j] * step[s, j]
                            earlier[i, s] = total
            largest = 0.0
            for i in range(n):
                for s in range(states):
                    largest = max(largest, earlier[i, s])
            if largest <= SMALLEST:
                return -np.inf
            for i in range(n):
                for s in range(states):
                    backward[i, s] = earlier[i, s] / largest
        total = 0.0
        for i in range(n):
            value = 0.0
            for s in range(states):
                if forward[k, i, s] > NEGLIGIBLE:
                    value += forward[k, i, s] * backward[i, s]
            out[k, i] = value
            total += value
        if total <= SMALLEST:
            return -np.inf
        for i in range(n):
            out[k, i] /= total
    return log_total


def choose_candidates(
    probs: NDArray[np.float32],
    marginals: NDArray[np.float32],
    top: NDArray[np.int64],
    class_of: Ints,
    useful: NDArray[np.bool_],
    least: float,
    token: Ints,
    cls: Ints,
    mass: Floats,
    size: Ints,
) -> None:
    """The candidates of every position: tokens of `top` (L, M), then the rest of each class, then the remainder.

    The rest of a class is one candidate (token −1) if its probability in `probs` or `marginals` (L, V) is at least
    `least`; a token of `top` needs a tenth of that. The remainder is a candidate of class −1, which no state
    accepts. `token`, `cls`, `mass` (L, N) and `size` (L,) are written.
    """
    taken = np.zeros(probs.shape[1], np.bool_)
    rest, given = np.empty((2, useful.shape[0]))
    _choose_candidates(probs, marginals, top, class_of, useful, least, token, cls, mass, size, taken, rest, given)


@njit(nogil=True, cache=True)
def _choose_candidates(
    probs: NDArray[np.float32],
    marginals: NDArray[np.float32],
    top: NDArray[np.int64],
    class_of: Ints,
    useful: NDArray[np.bool_],
    least: float,
    token: Ints,
    cls: Ints,
    mass: Floats,
    size: Ints,
    taken: NDArray[np.bool_],
    rest: Floats,
    given: Floats,
) -> None:
    length, vocab_size = probs.shape
    classes = useful.shape[0]
    for k in range(length):
        n = 0
        left = 1.0
        for at in range(top.shape[1]):
            v = top[k, at]
            if not taken[v] and max(probs[k, v], marginals[k, v]) >= 0.1 * least:
                taken[v] = True
                token[k, n] = v
                cls[k, n] = class_of[v]
                mass[k, n] = max(float(probs[k, v]), SMALLEST)
                left -= mass[k, n]
                n += 1
        for c in range(classes):
            rest[c] = 0.0
            given[c] = 0.0
        for v in range(vocab_size):
            if not taken[v]:
                rest[class_of[v]] += probs[k, v]
                given[class_of[v]] += marginals[k, v]
        for c in range(classes):
            if useful[c] and (given[c] >= least or rest[c] >= least) and rest[c] > 0.0 and n < token.shape[1] - 1:
                token[k, n] = -1
                cls[k, n] = c
                mass[k, n] = rest[c]
                left -= rest[c]
                n += 1
        token[k, n] = -1
        cls[k, n] = -1
        mass[k, n] = max(left, 1e-12)
        size[k] = n + 1
        for at in range(n):
            if token[k, at] >= 0:
                taken[token[k, at]] = False


def spread(
    probs: NDArray[np.float32],
    marginals: NDArray[np.float32],
    class_of: Ints,
    token: Ints,
    cls: Ints,
    mass: Floats,
    size: Ints,
    given: Floats,
    classes: int,
) -> None:
    """Distribute the marginals of candidates `given` (L, N) over all tokens, into `marginals` (L, V)."""
    _spread(probs, marginals, class_of, token, cls, mass, size, given, np.empty(classes))


@njit(nogil=True, cache=True)
def _spread(
    probs: NDArray[np.float32],
    marginals: NDArray[np.float32],
    class_of: Ints,
    token: Ints,
    cls: Ints,
    mass: Floats,
    size: Ints,
    given: Floats,
    factor: Floats,
) -> None:
    length, vocab_size = probs.shape
    for k in range(length):
        for c in range(factor.shape[0]):
            factor[c] = 0.0
        for at in range(size[k]):
            if token[k, at] < 0 and cls[k, at] >= 0:
                factor[cls[k, at]] = given[k, at] / mass[k, at]
        for v in range(vocab_size):
            marginals[k, v] = probs[k, v] * factor[class_of[v]]
        for at in range(size[k]):
            if token[k, at] >= 0:
                marginals[k, token[k, at]] = given[k, at]

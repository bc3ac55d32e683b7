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
BLOCK = 64  # numbers of a row whose maximum is computed at once
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
    """The bigram ratio of two neighbouring tokens; 1 if either is −1, which is no single token."""
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
    """Write P(candidate j at k + 1 | candidate i at k) into `moves` (L−1, N, N).

    These are the ratios of the pairs, with rows and columns scaled to the marginals `mass` (L, N) by `rounds`
    rounds of Sinkhorn's iteration.
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
    """Return log P(L) of the chain, and write the marginals of the candidates given L into `out` (L, N).

    `after` (S, C) is the automaton, `live` (L+1, S) the states from which acceptance can be reached in time. If
    nothing is accepted, `out` is not written and the result is −inf.
    """
    (length, width), states = mass.shape, after.shape[0]
    forward, backward = np.zeros((length, width, states)), np.ones((width, states))
    step, earlier, used = np.empty((states, width)), np.empty((width, states)), np.empty(states, np.bool_)
    buffers = (forward, backward, earlier, step, used)
    log_p_language: float = _chain_marginals(mass, cls, size, moves, after, start, accepting, live, out, *buffers)
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
        next_state = after[start, cls[0, i]] if cls[0, i] >= 0 else -1
        if next_state >= 0 and live[1, next_state]:
            forward[0, i, next_state] = mass[0, i]
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
                        next_state = after[s, cls[k, j]] if cls[k, j] >= 0 else -1
                        if next_state >= 0 and live[k + 1, next_state]:
                            forward[k, j, next_state] += step[s, j]
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
                        next_state = after[s, cls[k + 1, j]] if cls[k + 1, j] >= 0 else -1
                        step[s, j] = (
                            backward[j, next_state] if next_state >= 0 and live[k + 2, next_state] else 0.0
                        )
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


def most_probable(probs: NDArray[np.float32], marginals: NDArray[np.float32], least: float, out: Ints) -> None:
    """Write the tokens with the largest probability at each position into `out` (L, 2·K).

    The first K are those of `marginals` (L, V), the others those of `probs` (L, V), each in descending order. Only
    tokens with a probability of at least `least` count; −1 fills the rest.
    """
    _most_probable(marginals, probs, np.float32(least), out, np.empty(out.shape[1] // 2, np.float32))


@njit(nogil=True, cache=True)
def _most_probable(
    marginals: NDArray[np.float32],
    probs: NDArray[np.float32],
    least: np.float32,
    out: Ints,
    largest: NDArray[np.float32],
) -> None:
    count = largest.shape[0]
    for k in range(probs.shape[0]):
        _largest(marginals[k], least, out[k, :count], largest)
        _largest(probs[k], least, out[k, count:], largest)


@njit(nogil=True, cache=True, inner=True, fastmath={"nnan", "nsz"})
def _largest(row: NDArray[np.float32], least: np.float32, tokens: Ints, values: NDArray[np.float32]) -> None:
    """The indices of the largest numbers of a row, in descending order, by insertion.

    The maximum of a block is one vector instruction for several numbers, and few blocks have a number to insert.
    """
    n, count, size = 0, tokens.shape[0], row.shape[0]
    for begin in range(0, size, BLOCK):
        end = min(begin + BLOCK, size)
        top = np.float32(0.0)
        for v in range(begin, end):
            top = max(top, row[v])
        if top < least:
            continue
        for v in range(begin, end):
            x = row[v]
            if x < least or (n == count and x <= values[n - 1]):
                continue
            at = min(n, count - 1)
            while at > 0 and values[at - 1] < x:
                values[at] = values[at - 1]
                tokens[at] = tokens[at - 1]
                at -= 1
            values[at] = x
            tokens[at] = v
            n = min(n + 1, count)
        if n == count:
            least = values[n - 1]
    for at in range(n, count):
        tokens[at] = -1


def choose_candidates(
    probs: NDArray[np.float32],
    marginals: NDArray[np.float32],
    rest_probs: Floats,
    rest_marginals: Floats,
    top: Ints,
    class_of: Ints,
    useful: NDArray[np.bool_],
    least: float,
    token: Ints,
    cls: Ints,
    mass: Floats,
    size: Ints,
) -> None:
    """The candidates of every position: tokens of `top` (L, M), then the rest of each class, then the remainder.

    `rest_probs` and `rest_marginals` (L, C) are the sums of `probs` and `marginals` (L, V) over each class. The
    tokens of `top` are subtracted from them. The rest of a class is one candidate (token −1) if one of these two
    probabilities is at least `least`. The remainder is a candidate of class −1, which no state accepts. `token`,
    `cls`, `mass` (L, N) and `size` (L,) are written.
    """
    taken = np.zeros(probs.shape[1], np.bool_)
    _choose_candidates(
        probs, marginals, rest_probs, rest_marginals, top, class_of, useful, least, token, cls, mass, size, taken
    )


@njit(nogil=True, cache=True)
def _choose_candidates(
    probs: NDArray[np.float32],
    marginals: NDArray[np.float32],
    rest_probs: Floats,
    rest_marginals: Floats,
    top: Ints,
    class_of: Ints,
    useful: NDArray[np.bool_],
    least: float,
    token: Ints,
    cls: Ints,
    mass: Floats,
    size: Ints,
    taken: NDArray[np.bool_],
) -> None:
    for k in range(probs.shape[0]):
        n = 0
        remainder = 1.0
        for at in range(top.shape[1]):
            v = top[k, at]
            if v >= 0 and not taken[v]:
                taken[v] = True
                token[k, n] = v
                cls[k, n] = class_of[v]
                mass[k, n] = max(float(probs[k, v]), SMALLEST)
                rest_probs[k, class_of[v]] -= probs[k, v]
                rest_marginals[k, class_of[v]] -= marginals[k, v]
                remainder -= mass[k, n]
                n += 1
        for at in range(n):
            taken[token[k, at]] = False
        for c in range(useful.shape[0]):
            unlikely = rest_marginals[k, c] < least and rest_probs[k, c] < least
            if useful[c] and not unlikely and rest_probs[k, c] > 0.0 and n < token.shape[1] - 1:
                token[k, n] = -1
                cls[k, n] = c
                mass[k, n] = rest_probs[k, c]
                remainder -= rest_probs[k, c]
                n += 1
        token[k, n] = -1
        cls[k, n] = -1
        mass[k, n] = max(remainder, 1e-12)
        size[k] = n + 1


def spread(
    probs: NDArray[np.float32],
    marginals: NDArray[np.float32],
    class_of: Ints,
    token: Ints,
    cls: Ints,
    mass: Floats,
    size: Ints,
    candidate_marginals: Floats,
    classes: int,
) -> None:
    """Distribute `candidate_marginals` (L, N) over all tokens, into `marginals` (L, V)."""
    _spread(probs, marginals, class_of, token, cls, mass, size, candidate_marginals, np.empty(classes))


@njit(nogil=True, cache=True)
def _spread(
    probs: NDArray[np.float32],
    marginals: NDArray[np.float32],
    class_of: Ints,
    token: Ints,
    cls: Ints,
    mass: Floats,
    size: Ints,
    candidate_marginals: Floats,
    factor: Floats,
) -> None:
    length, vocab_size = probs.shape
    for k in range(length):
        for c in range(factor.shape[0]):
            factor[c] = 0.0
        for at in range(size[k]):
            if token[k, at] < 0 and cls[k, at] >= 0:
                factor[cls[k, at]] = candidate_marginals[k, at] / mass[k, at]
        for v in range(vocab_size):
            marginals[k, v] = probs[k, v] * factor[class_of[v]]
        for at in range(size[k]):
            if token[k, at] >= 0:
                marginals[k, token[k, at]] = candidate_marginals[k, at]

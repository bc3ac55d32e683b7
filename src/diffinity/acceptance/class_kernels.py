"""Compiled passes over logits (L, V): from tokens to sums and maxima of classes, and from classes to tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diffinity.acceptance.numba_kernels import I32, I64, TINY, U32, Bools, Floats
from diffinity.acceptance.rescue_kernels import REACH
from diffinity.compiled import njit


@njit(nogil=True, cache=True)
def sums_and_maxima(
    logits: NDArray[np.float32],
    probs: NDArray[np.float32],
    order: U32,
    begins: I64,
    classes: I64,
    sums: Floats,
    best: Floats,
    best_token: I32,
) -> None:
    """For each position and class: Σ p, the largest logit, and the first token with this logit.

    logits and probs are (L, V), `order` (V,) the tokens sorted by class, the results (L, C). The loop goes class
    by class, so that sums stay in registers, with four positions at a time, so that the additions are independent.
    """
    length = logits.shape[0]
    sums[:] = 0.0
    best[:] = -np.inf
    best_token[:] = -1
    for first in range(0, length, 4):
        last = min(first + 3, length - 1)  # at the end some of the four are the same position
        second, third = min(first + 1, last), min(first + 2, last)
        a, b, c, d = logits[first], logits[second], logits[third], logits[last]
        p, q, r, s = probs[first], probs[second], probs[third], probs[last]
        for n in range(classes.shape[0]):
            label = classes[n]
            total_a, total_b, total_c, total_d = 0.0, 0.0, 0.0, 0.0
            top_a = top_b = top_c = top_d = -np.inf
            at_a = at_b = at_c = at_d = np.uint32(0xFFFFFFFF)  # −1 as a signed number
            for i in range(np.uint64(begins[label]), np.uint64(begins[label + 1])):
                v = order[i]
                total_a += p[v]
                total_b += q[v]
                total_c += r[v]
                total_d += s[v]
                if a[v] > top_a:
                    top_a, at_a = np.float64(a[v]), v
                if b[v] > top_b:
                    top_b, at_b = np.float64(b[v]), v
                if c[v] > top_c:
                    top_c, at_c = np.float64(c[v]), v
                if d[v] > top_d:
                    top_d, at_d = np.float64(d[v]), v
            sums[last, label], best[last, label], best_token[last, label] = total_d, top_d, np.int32(at_d)
            sums[third, label], best[third, label], best_token[third, label] = total_c, top_c, np.int32(at_c)
            sums[second, label], best[second, label], best_token[second, label] = total_b, top_b, np.int32(at_b)
            sums[first, label], best[first, label], best_token[first, label] = total_a, top_a, np.int32(at_a)


@njit(nogil=True, cache=True)
def class_tables(
    logits: NDArray[np.float32],  # (L, V)
    probs: NDArray[np.float32],  # (L, V): softmax of logits / temperature
    peaks: NDArray[np.float32],  # (L,): the largest logit of all tokens
    totals: NDArray[np.float32],  # (L,): the sum of probs, read where there is a class `outside`
    temperature: float,
    order: U32,
    begins: I64,
    classes: I64,
    outside: int,
    useful: Bools,
    log_sums: Floats,  # (L, C), out
    best: Floats,  # (L, C), out
    best_token: I32,  # (L, C), out
    log_norm: Floats,  # (L,), out
) -> None:
    """For each class: log Σ p, the largest log p, and the first token with this log p.

    The class `outside` is not read: its sum is the total minus the other sums. Its tokens occur only where all
    tokens are equivalent, so its largest token matters only if it is the largest of all.
    """
    sums_and_maxima(logits, probs, order, begins, classes, log_sums, best, best_token)
    for k in range(logits.shape[0]):
        row, log_top = logits[k], 0.0
        peak: float = np.float64(peaks[k])
        if outside >= 0:
            log_sums[k, outside] = max(totals[k] - log_sums[k].sum(), 0.0)
        if np.isfinite(peak):
            label = np.argmax(best[k])
            token = int(best_token[k, label])
            if best[k, label] < peak:
                token = _first_of(row, peaks[k])
                if outside >= 0:
                    best[k, outside], best_token[k, outside] = peak, token
            log_top = np.log(np.float64(probs[k, token]))
        else:  # all logits are −inf
            peak = 0.0
        for c in range(log_sums.shape[1]):
            top = (best[k, c] - peak) / temperature + log_top
            if log_sums[k, c] >= TINY:
                log_sums[k, c] = np.log(log_sums[k, c])
            elif best[k, c] == -np.inf:
                log_sums[k, c] = -np.inf
                if useful[c]:  # all its logits are −inf: its first token represents it
                    best_token[k, c] = order[begins[c]]
            else:  # underflowed, computed again from the logits
                total = 0.0
                for i in range(np.uint64(begins[c]), np.uint64(begins[c + 1])):
                    below = (row[order[i]] - best[k, c]) / temperature
                    if below > -REACH:
                        total += np.exp(below)
                log_sums[k, c] = top + np.log(total)
            best[k, c] = top
        log_norm[k] = peak - temperature * log_top


@njit(nogil=True, cache=True)
def _first_of(row: NDArray[np.float32], value: float) -> int:
    """The first index of the value in the row."""
    v = 0
    while row[v] != value:
        v += 1
    return v


@njit(nogil=True, cache=True)
def shifted(
    logits: NDArray[np.float32], class_of: U32, shift: NDArray[np.float32], out: NDArray[np.float32]
) -> None:
    """out[k, v] = logits[k, v] + shift[k, class of v]; logits and out may be one array."""
    for k in range(logits.shape[0]):
        row, out_row, by_class = logits[k], out[k], shift[k]
        for v in range(row.shape[0]):
            out_row[v] = row[v] + by_class[class_of[v]]


@njit(nogil=True, cache=True)
def states_after(table: I32, class_of: I32, start: int, ids: NDArray[np.int64]) -> int:
    """The state after ids (n,); −1 if there is none."""
    state = start
    for i in range(ids.shape[0]):
        state = table[state, class_of[ids[i]]]
        if state < 0:
            return -1
    return state


@njit(nogil=True, cache=True)
def draw_tokens(
    logits: NDArray[np.float32],  # (M, V)
    rows: I64,  # (k,): of the logits
    labels: I64,  # (k,): the class of each token
    tops: Floats,  # (k,): the largest logit of the class
    totals: Floats,  # (k,): Σ exp(logit − top) of the class
    order: I64,  # (V,): tokens by class
    first: I64,  # (C+1,)
    draws: Floats,  # (k,): numbers from [0, 1)
    ids: I64,  # (k,), out
) -> None:
    """A token of each class in proportion to its probability."""
    for i in range(rows.shape[0]):
        row, label = logits[rows[i]], labels[i]
        rest = draws[i] * totals[i]
        ids[i] = order[first[label]]
        for j in range(np.uint64(first[label]), np.uint64(first[label + 1])):
            share = np.exp(row[order[j]] - tops[i])
            if share > 0.0:
                ids[i] = order[j]
                rest -= share
                if rest < 0.0:
                    break

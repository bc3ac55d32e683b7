"""The hot loops of the Markov denoiser: forward–backward over the contexts of a chain, in float64.

A chain has K contexts; `edges` of context c are target[first[c]:first[c+1]] with probabilities prob[…]. With
probability restart[c] the next context is instead drawn from `jump`. `emission[k, v]` is the likelihood of the
latent at position k if the token there is v (any scale per position), `token[c]` the last token of c.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diffinity.compiled import njit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@njit(nogil=True, cache=True, inner=True)
def _push(
    mass: Floats, first: Ints, target: Ints, prob: Floats, restart: Floats, jump: Floats, out: Floats
) -> None:
    """out[c'] = Σ_c mass[c]·P(c → c')."""
    fresh = 0.0
    for c in range(mass.shape[0]):
        fresh += restart[c] * mass[c]
    for c in range(mass.shape[0]):
        out[c] = fresh * jump[c]
    for c in range(mass.shape[0]):
        continuing = (1.0 - restart[c]) * mass[c]
        if continuing != 0.0:
            for e in range(first[c], first[c + 1]):
                out[target[e]] += continuing * prob[e]


@njit(nogil=True, cache=True, inner=True)
def _pull(
    value: Floats, first: Ints, target: Ints, prob: Floats, restart: Floats, jump: Floats, out: Floats
) -> None:
    """out[c] = Σ_c' P(c → c')·value[c']."""
    fresh = 0.0
    for c in range(value.shape[0]):
        fresh += jump[c] * value[c]
    for c in range(value.shape[0]):
        continued = 0.0
        for e in range(first[c], first[c + 1]):
            continued += prob[e] * value[target[e]]
        out[c] = (1.0 - restart[c]) * continued + restart[c] * fresh


@njit(nogil=True, cache=True)
def marginals(
    emission: Floats,  # (B, L, V)
    token: Ints,
    first: Ints,
    target: Ints,
    prob: Floats,
    restart: Floats,
    start: Floats,
    jump: Floats,
    out: Floats,  # (B, L, V), zeros
) -> None:
    """out[b, k, v] = P(token k is v | latent of sample b)."""
    batch, length, _ = emission.shape
    n = token.shape[0]
    ahead = np.empty((length, n))
    back = np.empty(n)
    inner = np.empty(n)
    for b in range(batch):
        for k in range(length):
            if k == 0:
                ahead[0] = start
            else:
                _push(ahead[k - 1], first, target, prob, restart, jump, ahead[k])
            total = 0.0
            for c in range(n):
                ahead[k, c] *= emission[b, k, token[c]]
                total += ahead[k, c]
            ahead[k] /= total
        back[:] = 1.0
        for k in range(length - 1, -1, -1):
            total = 0.0
            for c in range(n):
                total += ahead[k, c] * back[c]
            for c in range(n):
                out[b, k, token[c]] += ahead[k, c] * back[c] / total
            if k > 0:
                peak = 0.0
                for c in range(n):
                    inner[c] = emission[b, k, token[c]] * back[c]
                    peak = max(peak, inner[c])
                inner /= peak
                _pull(inner, first, target, prob, restart, jump, back)


@njit(nogil=True, cache=True)
def marginals_tangent(
    emission: Floats,  # (B, L, V)
    direction: Floats,  # (B, L, V): change of log emission
    token: Ints,
    first: Ints,
    target: Ints,
    prob: Floats,
    restart: Floats,
    start: Floats,
    jump: Floats,
    out: Floats,  # (B, L, V), zeros
) -> None:
    """out = d/dε of the marginals when log emission moves by ε·direction: a forward–backward in dual numbers."""
    batch, length, _ = emission.shape
    n = token.shape[0]
    ahead = np.empty((length, n))
    d_ahead = np.empty((length, n))
    back, d_back, inner, d_inner = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for b in range(batch):
        for k in range(length):
            if k == 0:
                ahead[0] = start
                d_ahead[0] = 0.0
            else:
                _push(ahead[k - 1], first, target, prob, restart, jump, ahead[k])
                _push(d_ahead[k - 1], first, target, prob, restart, jump, d_ahead[k])
            total, d_total = 0.0, 0.0
            for c in range(n):
                weight = emission[b, k, token[c]]
                d_ahead[k, c] = weight * (d_ahead[k, c] + direction[b, k, token[c]] * ahead[k, c])
                ahead[k, c] *= weight
                total += ahead[k, c]
                d_total += d_ahead[k, c]
            for c in range(n):
                ahead[k, c] /= total
                d_ahead[k, c] = (d_ahead[k, c] - d_total * ahead[k, c]) / total
        back[:] = 1.0
        d_back[:] = 0.0
        for k in range(length - 1, -1, -1):
            total, d_total = 0.0, 0.0
            for c in range(n):
                total += ahead[k, c] * back[c]
                d_total += d_ahead[k, c] * back[c] + ahead[k, c] * d_back[c]
            for c in range(n):
                joint = ahead[k, c] * back[c]
                d_joint = d_ahead[k, c] * back[c] + ahead[k, c] * d_back[c]
                out[b, k, token[c]] += (d_joint - joint * d_total / total) / total
            if k > 0:
                peak = 0.0
                for c in range(n):
                    weight = emission[b, k, token[c]]
                    inner[c] = weight * back[c]
                    d_inner[c] = weight * (d_back[c] + direction[b, k, token[c]] * back[c])
                    peak = max(peak, inner[c])
                inner /= peak
                d_inner /= peak
                _pull(inner, first, target, prob, restart, jump, back)
                _pull(d_inner, first, target, prob, restart, jump, d_back)


@njit(nogil=True, cache=True)
def log_joint(
    emission: Floats,  # (L, V)
    token: Ints,
    first: Ints,
    target: Ints,
    prob: Floats,
    restart: Floats,
    start: Floats,
    jump: Floats,
    move: Ints,  # (S, V): next state of the automaton, −1 for none
    initial: int,
    accepting: NDArray[np.bool_],  # (S,)
) -> float:
    """log Σ over token strings in the automaton's language of P(string)·Π emission; −inf if there is none."""
    length = emission.shape[0]
    n, states = token.shape[0], move.shape[0]
    mass = np.zeros((states, n))
    after = np.zeros((states, n))
    moved = np.empty(n)
    log_total = 0.0
    for k in range(length):
        after[:] = 0.0
        for s in range(states):
            if k == 0:
                if s != initial:
                    continue
                moved[:] = start
            else:
                if not mass[s].any():
                    continue
                _push(mass[s], first, target, prob, restart, jump, moved)
            for c in range(n):
                to = move[s, token[c]]
                if to >= 0:
                    after[to, c] += moved[c] * emission[k, token[c]]
        total = after.sum()
        if total == 0.0:
            return -np.inf
        log_total += np.log(total)
        mass[:] = after / total
    ending = 0.0
    for s in range(states):
        if accepting[s]:
            ending += mass[s].sum()
    return log_total + np.log(ending) if ending > 0.0 else -np.inf

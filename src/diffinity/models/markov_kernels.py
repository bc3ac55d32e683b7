"""The hot loops of the Markov denoiser: forward–backward over the contexts of a chain, in float64.

A chain has K contexts. The edges of context c lead to target[first[c]:first[c+1]], with probabilities prob[…].
With probability restart[c] the next context is instead drawn from `jump`. `emission[k, v]` is the likelihood of
the latent at position k if the token there is v (any scale per position). `token[c]` is the last token of c.
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
    restarted = 0.0
    for c in range(mass.shape[0]):
        restarted += restart[c] * mass[c]
    for c in range(mass.shape[0]):
        out[c] = restarted * jump[c]
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
    restarted = 0.0
    for c in range(value.shape[0]):
        restarted += jump[c] * value[c]
    for c in range(value.shape[0]):
        continued = 0.0
        for e in range(first[c], first[c + 1]):
            continued += prob[e] * value[target[e]]
        out[c] = (1.0 - restart[c]) * continued + restart[c] * restarted


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
    forward = np.empty((length, n))
    backward = np.empty(n)
    weighted = np.empty(n)
    for b in range(batch):
        for k in range(length):
            if k == 0:
                forward[0] = start
            else:
                _push(forward[k - 1], first, target, prob, restart, jump, forward[k])
            total = 0.0
            for c in range(n):
                forward[k, c] *= emission[b, k, token[c]]
                total += forward[k, c]
            forward[k] /= total
        backward[:] = 1.0
        for k in range(length - 1, -1, -1):
            total = 0.0
            for c in range(n):
                total += forward[k, c] * backward[c]
            for c in range(n):
                out[b, k, token[c]] += forward[k, c] * backward[c] / total
            if k > 0:
                peak = 0.0
                for c in range(n):
                    weighted[c] = emission[b, k, token[c]] * backward[c]
                    peak = max(peak, weighted[c])
                weighted /= peak
                _pull(weighted, first, target, prob, restart, jump, backward)


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
    """out = the derivative of the marginals in `direction`: a forward–backward pass in dual numbers."""
    batch, length, _ = emission.shape
    n = token.shape[0]
    forward = np.empty((length, n))
    d_forward = np.empty((length, n))
    backward, d_backward, weighted, d_weighted = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for b in range(batch):
        for k in range(length):
            if k == 0:
                forward[0] = start
                d_forward[0] = 0.0
            else:
                _push(forward[k - 1], first, target, prob, restart, jump, forward[k])
                _push(d_forward[k - 1], first, target, prob, restart, jump, d_forward[k])
            total, d_total = 0.0, 0.0
            for c in range(n):
                weight = emission[b, k, token[c]]
                d_forward[k, c] = weight * (d_forward[k, c] + direction[b, k, token[c]] * forward[k, c])
                forward[k, c] *= weight
                total += forward[k, c]
                d_total += d_forward[k, c]
            for c in range(n):
                forward[k, c] /= total
                d_forward[k, c] = (d_forward[k, c] - d_total * forward[k, c]) / total
        backward[:] = 1.0
        d_backward[:] = 0.0
        for k in range(length - 1, -1, -1):
            total, d_total = 0.0, 0.0
            for c in range(n):
                total += forward[k, c] * backward[c]
                d_total += d_forward[k, c] * backward[c] + forward[k, c] * d_backward[c]
            for c in range(n):
                joint = forward[k, c] * backward[c]
                d_joint = d_forward[k, c] * backward[c] + forward[k, c] * d_backward[c]
                out[b, k, token[c]] += (d_joint - joint * d_total / total) / total
            if k > 0:
                peak = 0.0
                for c in range(n):
                    weight = emission[b, k, token[c]]
                    weighted[c] = weight * backward[c]
                    d_weighted[c] = weight * (d_backward[c] + direction[b, k, token[c]] * backward[c])
                    peak = max(peak, weighted[c])
                weighted /= peak
                d_weighted /= peak
                _pull(weighted, first, target, prob, restart, jump, backward)
                _pull(d_weighted, first, target, prob, restart, jump, d_backward)


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
    next_mass = np.zeros((states, n))
    moved = np.empty(n)
    log_total = 0.0
    for k in range(length):
        next_mass[:] = 0.0
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
                next_state = move[s, token[c]]
                if next_state >= 0:
                    next_mass[next_state, c] += moved[c] * emission[k, token[c]]
        total = next_mass.sum()
        if total == 0.0:
            return -np.inf
        log_total += np.log(total)
        mass[:] = next_mass / total
    accepted = 0.0
    for s in range(states):
        if accepting[s]:
            accepted += mass[s].sum()
    return log_total + np.log(accepted) if accepted > 0.0 else -np.inf

"""Paths and strings on the CPU: the max-product form of the dynamic programme, draws, and the k best strings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diffinity.acceptance.numba_kernels import I32, I64, U32, Bools, Floats
from diffinity.alignment.automaton import Arrows
from diffinity.compiled import njit


@njit(nogil=True, cache=True)
def class_maxima(probs: NDArray[np.float32], class_of: U32, out: Floats, best_token: I32) -> None:
    """out[k, c] = the largest probs[k, v] over v in c; best_token[k, c] = its token v."""
    out[:] = -np.inf
    best_token[:] = -1
    length, vocab = probs.shape
    for k in range(length):
        row = probs[k]
        for v in range(vocab):
            c = class_of[v]
            if row[v] > out[k, c]:
                out[k, c] = row[v]
                best_token[k, c] = v


@njit(nogil=True, cache=True)
def group_maxima(best: Floats, members_first: I64, members: U32, out: Floats, best_class: I32) -> None:
    """out[k, g] = the largest best[k, c] over c in group g; best_class[k, g] = its class."""
    for k in range(best.shape[0]):
        for g in range(members_first.shape[0] - 1):
            top = -np.inf
            at = -1
            for i in range(members_first[g], members_first[g + 1]):
                if best[k, members[i]] > top:
                    top = best[k, members[i]]
                    at = members[i]
            out[k, g] = top
            best_class[k, g] = at


@njit(nogil=True, cache=True, inner=True)
def _draw_state(masses: Floats, states: U32, rest: float) -> int:
    """The first state at which the cumulative mass exceeds `rest`, or else the last state with any mass."""
    chosen = -1
    for s in states:
        if masses[s] > 0.0:
            chosen = s
            rest -= masses[s]
            if rest < 0.0:
                break
    return chosen


@njit(nogil=True, cache=True)
def sample_path(weight: Floats, arrows: Arrows, alpha: Floats, accepting: Bools, draws: Floats, path: I64) -> None:
    """path[k] = the k-th group of a path drawn in proportion to Π weight, backwards through alpha (L+1, S+H)."""
    length, n = path.shape[0], accepting.shape[0]
    first, node, group, hub_first = arrows.in_first, arrows.in_node, arrows.in_group, arrows.hub_first
    final = np.flatnonzero(accepting).astype(np.uint32)
    state = _draw_state(alpha[length], final, draws[length] * alpha[length][accepting].sum())
    for k in range(length - 1, -1, -1):
        total = 0.0
        for e in range(first[state], first[state + 1]):
            total += alpha[k, node[e]] * weight[k, group[e]]
        rest = draws[k] * total
        chosen, rest_within = -1, 0.0
        for e in range(first[state], first[state + 1]):
            share = alpha[k, node[e]] * weight[k, group[e]]
            if share > 0.0:
                chosen, rest_within = e, rest
                rest -= share
                if rest < 0.0:
                    break
        path[k] = group[chosen]
        state = node[chosen]
        if state >= n:
            hub = arrows.hub_states[hub_first[state - n] : hub_first[state - n + 1]]
            state = _draw_state(alpha[k], hub, rest_within / weight[k, path[k]])


@njit(nogil=True, cache=True, inner=True)
def _insert(
    values: Floats, first_of: I32, second_of: I32, third_of: I32, value: float, a: int, b: int, c: int
) -> bool:
    """Insert (value, a, b, c) into a list in descending order; False if the value is too small."""
    last = values.shape[0] - 1
    if value <= values[last]:
        return False
    i = last
    while i > 0 and values[i - 1] < value:
        values[i], first_of[i], second_of[i], third_of[i] = (
            values[i - 1],
            first_of[i - 1],
            second_of[i - 1],
            third_of[i - 1],
        )
        i -= 1
    values[i], first_of[i], second_of[i], third_of[i] = value, a, b, c
    return True


@njit(nogil=True, cache=True)
def best_strings(
    log_probs: NDArray[np.float64],  # (L, V)
    class_of: U32,
    n_classes: int,
    first: I64,
    head: U32,
    group: U32,
    members_first: I64,
    members: U32,
    live: Bools,
    accepting: Bools,
    values: Floats,  # (K,), out
    strings: I32,  # (K, L), out
) -> int:
    """The K most probable accepted token strings, best first; returns their number."""
    count = values.shape[0]
    length, vocab = log_probs.shape
    n, n_groups = live.shape[1], members_first.shape[0] - 1
    top = np.full((length + 1, n, count), -np.inf)
    from_state = np.full((length + 1, n, count), -1, np.int32)
    from_rank = np.full((length + 1, n, count), -1, np.int32)
    by_token = np.full((length + 1, n, count), -1, np.int32)
    for s in range(n):
        if live[0, s]:
            top[0, s, 0] = 0.0
    unused_a = np.zeros(count, np.int32)
    unused_b = np.zeros(count, np.int32)
    for k in range(length):
        class_top = np.full((n_classes, count), -np.inf)
        class_token = np.full((n_classes, count), -1, np.int32)
        for v in range(vocab):
            c = class_of[v]
            _insert(class_top[c], class_token[c], unused_a, unused_b, log_probs[k, v], v, 0, 0)
        group_top = np.full((n_groups, count), -np.inf)
        group_token = np.full((n_groups, count), -1, np.int32)
        for g in range(n_groups):
            for i in range(members_first[g], members_first[g + 1]):
                c = members[i]
                for j in range(count):
                    if class_token[c, j] < 0 or not _insert(
                        group_top[g], group_token[g], unused_a, unused_b, class_top[c, j], class_token[c, j], 0, 0
                    ):
                        break
        for s in range(n):
            if not live[k, s] or top[k, s, 0] == -np.inf:
                continue
            for e in range(first[s], first[s + 1]):
                t = head[e]
                if not live[k + 1, t]:
                    continue
                g = group[e]
                for rank in range(count):
                    if top[k, s, rank] == -np.inf:
                        break
                    for j in range(count):
                        if group_token[g, j] < 0 or not _insert(
                            top[k + 1, t],
                            from_state[k + 1, t],
                            from_rank[k + 1, t],
                            by_token[k + 1, t],
                            top[k, s, rank] + group_top[g, j],
                            s,
                            rank,
                            group_token[g, j],
                        ):
                            break
    final_state = np.full(count, -1, np.int32)
    final_rank = np.full(count, -1, np.int32)
    values[:] = -np.inf
    for s in range(n):
        if accepting[s]:
            for rank in range(count):
                if top[length, s, rank] == -np.inf:
                    break
                _insert(values, final_state, final_rank, unused_a, top[length, s, rank], s, rank, 0)
    n_strings = 0
    for i in range(count):
        if values[i] == -np.inf:
            break
        s, rank = final_state[i], final_rank[i]
        for k in range(length, 0, -1):
            strings[i, k - 1] = by_token[k, s, rank]
            s, rank = from_state[k, s, rank], from_rank[k, s, rank]
        n_strings += 1
    return n_strings

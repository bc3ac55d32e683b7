"""The dynamic programme on the CPU: compiled loops over the pairs of an automaton, in float64.

Notation: p[k, v] token probabilities, W[k, c] their sums over classes, α and β the forward and backward
masses. Every step is rescaled and the logarithms of the scales are added up, so that nothing under- or
overflows however small P(L) is. Only states that can still finish are visited (`live`).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

TINY = 1e-25  # class sums below this are made again from the logits
REACH = 40.0  # nats below a class's largest logit: what lies lower adds less than 1e-12 of it


@njit(nogil=True, cache=True)
def class_sums(probs: NDArray[np.float32], class_of: I32, out: Floats) -> None:
    """out[k, c] = Σ of probs[k, v] over v in c."""
    length, vocab = probs.shape
    n_classes = out.shape[1]
    # Four positions at a time: neighbouring tokens are often of one class, and one sum would wait for the other.
    sums = np.empty((n_classes, 4))
    for k in range(0, length - 3, 4):
        sums[:] = 0.0
        a, b, c, d = probs[k], probs[k + 1], probs[k + 2], probs[k + 3]
        for v in range(vocab):
            into = sums[class_of[v]]
            into[0] += a[v]
            into[1] += b[v]
            into[2] += c[v]
            into[3] += d[v]
        for i in range(n_classes):
            for j in range(4):
                out[k + j, i] = sums[i, j]
    for k in range(length - length % 4, length):
        out[k] = 0.0
        for v in range(vocab):
            out[k, class_of[v]] += probs[k, v]


@njit(nogil=True, cache=True)
def class_maxima(probs: NDArray[np.float32], class_of: I32, out: Floats, where: I32) -> None:
    """out[k, c] = the largest probs[k, v] over v in c, and where[k, c] a v that has it."""
    out[:] = -np.inf
    where[:] = -1
    length, vocab = probs.shape
    for k in range(length):
        row = probs[k]
        for v in range(vocab):
            c = class_of[v]
            if row[v] > out[k, c]:
                out[k, c] = row[v]
                where[k, c] = v


@njit(nogil=True, cache=True)
def rescue_sums(
    logits: NDArray[np.float32],
    log_norm: Floats,
    members: I64,
    first: I64,
    useful: Bools,
    sums: Floats,
    log_sums: Floats,
) -> None:
    """log_sums[k, c] = log of the class sum, from the logits where the sum itself is too small for float32."""
    length, n_classes = sums.shape
    for k in range(length):
        row = logits[k]
        for c in range(n_classes):
            if not useful[c]:
                log_sums[k, c] = -np.inf
            elif sums[k, c] > TINY:
                log_sums[k, c] = np.log(sums[k, c])
            else:
                peak = -np.inf
                for i in range(first[c], first[c + 1]):
                    peak = max(peak, row[members[i]])
                total = 0.0
                if peak > -np.inf:
                    for i in range(first[c], first[c + 1]):
                        below = row[members[i]] - peak
                        if below > -REACH:
                            total += np.exp(below)
                    log_sums[k, c] = peak + np.log(total) - log_norm[k]
                else:
                    log_sums[k, c] = -np.inf


@njit(nogil=True, cache=True)
def scale_rows(log_sums: Floats, scaled: Floats, log_scale: Floats) -> None:
    """scaled = exp(log_sums − row maximum); the maxima go to log_scale (0 for a row of −inf)."""
    for k in range(log_sums.shape[0]):
        peak = -np.inf
        for c in range(log_sums.shape[1]):
            peak = max(peak, log_sums[k, c])
        log_scale[k] = peak if peak > -np.inf else 0.0
        for c in range(log_sums.shape[1]):
            scaled[k, c] = np.exp(log_sums[k, c] - log_scale[k])


@njit(nogil=True, cache=True)
def group_sums(sums: Floats, members_first: I64, members: I32, out: Floats) -> None:
    """out[k, g] = Σ of sums[k, c] over c in group g."""
    for k in range(sums.shape[0]):
        for g in range(members_first.shape[0] - 1):
            total = 0.0
            for i in range(members_first[g], members_first[g + 1]):
                total += sums[k, members[i]]
            out[k, g] = total


@njit(nogil=True, cache=True)
def group_maxima(best: Floats, members_first: I64, members: I32, out: Floats, which: I32) -> None:
    """out[k, g] = the largest best[k, c] over c in group g, which[k, g] the class that has it."""
    for k in range(best.shape[0]):
        for g in range(members_first.shape[0] - 1):
            top = -np.inf
            at = -1
            for i in range(members_first[g], members_first[g + 1]):
                if best[k, members[i]] > top:
                    top = best[k, members[i]]
                    at = members[i]
            out[k, g] = top
            which[k, g] = at


@njit(nogil=True, cache=True)
def forward(
    weight: Floats, first: I64, head: I32, group: I32, live: Bools, accepting: Bools, alpha: Floats
) -> float:
    """Fill alpha (L+1, S) with normalised forward masses; log Σ over accepted paths of Π weight."""
    length, n = alpha.shape[0] - 1, alpha.shape[1]
    alpha[:] = 0.0
    if not live[0, 0]:
        return -np.inf
    alpha[0, 0] = 1.0
    log_total = 0.0
    for k in range(length):
        total = 0.0
        for s in range(n):
            mass = alpha[k, s]
            if mass == 0.0:
                continue
            for e in range(first[s], first[s + 1]):
                t = head[e]
                if live[k + 1, t]:
                    moved = mass * weight[k, group[e]]
                    alpha[k + 1, t] += moved
                    total += moved
        if total == 0.0:
            return -np.inf
        for s in range(n):
            alpha[k + 1, s] /= total
        log_total += np.log(total)
    ending = 0.0
    for s in range(n):
        if accepting[s]:
            ending += alpha[length, s]
    return log_total + np.log(ending)


@njit(nogil=True, cache=True)
def backward(
    weight: Floats,
    first: I64,
    head: I32,
    group: I32,
    live: Bools,
    accepting: Bools,
    alpha: Floats,
    posterior: Floats,
) -> None:
    """posterior[k, g] = Σ over pairs of group g of α_k[s]·β_{k+1}[t], with Σ_g weight·posterior = 1."""
    length, n = alpha.shape[0] - 1, alpha.shape[1]
    beta = np.zeros(n)
    before = np.zeros(n)
    posterior[:] = 0.0
    for s in range(n):
        beta[s] = 1.0 if accepting[s] else 0.0
    for k in range(length - 1, -1, -1):
        peak = 0.0
        for s in range(n):
            before[s] = 0.0
            if not live[k, s]:
                continue
            mass = alpha[k, s]
            total = 0.0
            for e in range(first[s], first[s + 1]):
                t = head[e]
                if beta[t] != 0.0 and live[k + 1, t]:
                    g = group[e]
                    total += weight[k, g] * beta[t]
                    posterior[k, g] += mass * beta[t]
            before[s] = total
            peak = max(peak, total)
        norm = 0.0
        for g in range(weight.shape[1]):
            norm += weight[k, g] * posterior[k, g]
        if norm > 0.0:
            for g in range(weight.shape[1]):
                posterior[k, g] /= norm
        for s in range(n):
            beta[s] = before[s] / peak if peak > 0.0 else 0.0


@njit(nogil=True, cache=True)
def spread(posterior: Floats, members_first: I64, members: I32, out: Floats) -> None:
    """out[k, c] = Σ of posterior[k, g] over the groups g that hold class c."""
    out[:] = 0.0
    for k in range(posterior.shape[0]):
        for g in range(members_first.shape[0] - 1):
            share = posterior[k, g]
            if share != 0.0:
                for i in range(members_first[g], members_first[g + 1]):
                    out[k, members[i]] += share


@njit(nogil=True, cache=True)
def expand(probs: NDArray[np.float32], class_of: I32, ratio: Floats, out: NDArray[np.float32]) -> None:
    """out[k, v] = probs[k, v]·ratio[k, class of v]."""
    length, vocab = probs.shape
    for k in range(length):
        row, into, by_class = probs[k], out[k], ratio[k]
        for v in range(vocab):
            into[v] = row[v] * by_class[class_of[v]]


@njit(nogil=True, cache=True)
def expand_rescued(
    logits: NDArray[np.float32],
    log_norm: Floats,
    members: I64,
    first: I64,
    sums: Floats,
    log_sums: Floats,
    mass: Floats,
    out: NDArray[np.float32],
) -> None:
    """For classes whose sum was made from logits: out[k, v] = mass[k, c]·p(v | class c)."""
    for k in range(sums.shape[0]):
        for c in range(sums.shape[1]):
            if sums[k, c] <= TINY and mass[k, c] > 0.0:
                for i in range(first[c], first[c + 1]):
                    v = members[i]
                    out[k, v] = mass[k, c] * np.exp(logits[k, v] - log_norm[k] - log_sums[k, c])


@njit(nogil=True, cache=True)
def best_path(
    log_weight: Floats, first: I64, head: I32, group: I32, live: Bools, accepting: Bools, edges: I64
) -> float:
    """edges[k] = the k-th pair of the path with the largest Σ log_weight; its value, −inf if there is none."""
    length, n = edges.shape[0], live.shape[1]
    value = np.full((length + 1, n), -np.inf)
    back = np.full((length + 1, n), -1, np.int64)
    tail = np.full((length + 1, n), -1, np.int32)
    value[0, 0] = 0.0
    for k in range(length):
        for s in range(n):
            here = value[k, s]
            if here == -np.inf or not live[k, s]:
                continue
            for e in range(first[s], first[s + 1]):
                t = head[e]
                if live[k + 1, t]:
                    there = here + log_weight[k, group[e]]
                    if there > value[k + 1, t]:
                        value[k + 1, t] = there
                        back[k + 1, t] = e
                        tail[k + 1, t] = s
    last = -1
    top = -np.inf
    for s in range(n):
        if accepting[s] and value[length, s] > top:
            top = value[length, s]
            last = s
    if last < 0:
        return -np.inf
    s = last
    for k in range(length, 0, -1):
        edges[k - 1] = back[k, s]
        s = tail[k, s]
    return top


@njit(nogil=True, cache=True)
def sample_path(
    weight: Floats,
    head: I32,
    group: I32,
    alpha: Floats,
    accepting: Bools,
    draws: Floats,
    edges: I64,
    tail: I32,
) -> None:
    """edges[k] = the k-th pair of a path drawn in proportion to Π weight, backwards through alpha."""
    length, n = edges.shape[0], alpha.shape[1]
    in_first = np.zeros(n + 1, np.int64)
    for e in range(head.shape[0]):
        in_first[head[e] + 1] += 1
    for s in range(n):
        in_first[s + 1] += in_first[s]
    filled = in_first[:-1].copy()
    into = np.empty(head.shape[0], np.int64)
    for e in range(head.shape[0]):
        into[filled[head[e]]] = e
        filled[head[e]] += 1
    total = 0.0
    for s in range(n):
        if accepting[s]:
            total += alpha[length, s]
    rest = draws[length] * total
    state = -1
    for s in range(n):
        if accepting[s] and alpha[length, s] > 0.0:
            state = s
            rest -= alpha[length, s]
            if rest < 0.0:
                break
    for k in range(length - 1, -1, -1):
        total = 0.0
        for i in range(in_first[state], in_first[state + 1]):
            e = into[i]
            total += alpha[k, tail[e]] * weight[k, group[e]]
        rest = draws[k] * total
        chosen = -1
        for i in range(in_first[state], in_first[state + 1]):
            e = into[i]
            share = alpha[k, tail[e]] * weight[k, group[e]]
            if share > 0.0:
                chosen = e
                rest -= share
                if rest < 0.0:
                    break
        edges[k] = chosen
        state = tail[chosen]


@njit(nogil=True, cache=True)
def _insert(
    values: Floats, first_of: I32, second_of: I32, third_of: I32, value: float, a: int, b: int, c: int
) -> bool:
    """Put (value, a, b, c) into a list sorted downwards; False if it is too small for it."""
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
    class_of: I32,
    n_classes: int,
    first: I64,
    head: I32,
    group: I32,
    members_first: I64,
    members: I32,
    live: Bools,
    accepting: Bools,
    values: Floats,  # (K,), out
    strings: I32,  # (K, L), out
) -> int:
    """The K most probable accepted token strings, best first; returns how many there are."""
    wanted = values.shape[0]
    length, vocab = log_probs.shape
    n, n_groups = live.shape[1], members_first.shape[0] - 1
    top = np.full((length + 1, n, wanted), -np.inf)
    from_state = np.full((length + 1, n, wanted), -1, np.int32)
    from_rank = np.full((length + 1, n, wanted), -1, np.int32)
    by_token = np.full((length + 1, n, wanted), -1, np.int32)
    top[0, 0, 0] = 0.0
    spare = np.zeros(wanted, np.int32)
    more_spare = np.zeros(wanted, np.int32)
    for k in range(length):
        class_top = np.full((n_classes, wanted), -np.inf)
        class_token = np.full((n_classes, wanted), -1, np.int32)
        for v in range(vocab):
            c = class_of[v]
            _insert(class_top[c], class_token[c], spare, more_spare, log_probs[k, v], v, 0, 0)
        group_top = np.full((n_groups, wanted), -np.inf)
        group_token = np.full((n_groups, wanted), -1, np.int32)
        for g in range(n_groups):
            for i in range(members_first[g], members_first[g + 1]):
                c = members[i]
                for j in range(wanted):
                    if class_token[c, j] < 0 or not _insert(
                        group_top[g], group_token[g], spare, more_spare, class_top[c, j], class_token[c, j], 0, 0
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
                for rank in range(wanted):
                    if top[k, s, rank] == -np.inf:
                        break
                    for j in range(wanted):
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
    final_state = np.full(wanted, -1, np.int32)
    final_rank = np.full(wanted, -1, np.int32)
    values[:] = -np.inf
    for s in range(n):
        if accepting[s]:
            for rank in range(wanted):
                if top[length, s, rank] == -np.inf:
                    break
                _insert(values, final_state, final_rank, spare, top[length, s, rank], s, rank, 0)
    found = 0
    for i in range(wanted):
        if values[i] == -np.inf:
            break
        s, rank = final_state[i], final_rank[i]
        for k in range(length, 0, -1):
            strings[i, k - 1] = by_token[k, s, rank]
            s, rank = from_state[k, s, rank], from_rank[k, s, rank]
        found += 1
    return found

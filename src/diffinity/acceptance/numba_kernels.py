"""The dynamic programme on the CPU: compiled loops over the arrows of an automaton, in float64.

Notation: p[k, v] token probabilities, W[k, c] their sums over classes, α and β the forward and backward masses.
Every step is rescaled and the logarithms of the scales are added up, so nothing under- or overflows however small
P(L) is. Only states that can still finish are visited (`live` (L+1, S)); the first row of `live` contains the
start state, or no state if there is no accepted string.

Indices are unsigned wherever a loop does not start at 0. For a signed index every access checks whether it is
negative, which took a third of the time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diffinity.alignment.automaton import Arrows
from diffinity.compiled import njit

Floats = NDArray[np.float64]
I32 = NDArray[np.int32]
U32 = NDArray[np.uint32]
I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

TINY = 1e-25  # class sums below this are computed again from the logits
ONE, TWO = np.uint64(1), np.uint64(2)
INVERTIBLE = 1e-290  # the inverse of much smaller numbers is infinite


@njit(nogil=True, cache=True, inner=True, fastmath={"reassoc", "nsz"})
def _total(row: Floats) -> float:
    total = 0.0
    for i in range(row.shape[0]):
        total += row[i]
    return total


@njit(nogil=True, cache=True, inner=True, fastmath={"reassoc", "nsz"})
def _total_where(row: Floats, mask: Floats, out: Floats) -> float:
    """out = the row where the mask is not zero, and zero elsewhere; returns the total."""
    total = 0.0
    for i in range(row.shape[0]):
        out[i] = row[i] if mask[i] != 0.0 else 0.0
        total += out[i]
    return total


@njit(nogil=True, cache=True, inner=True)
def _divide(row: Floats, by: float) -> None:
    """row /= by; does nothing for 0."""
    if by > INVERTIBLE:
        inverse = 1.0 / by
        for i in range(row.shape[0]):
            row[i] *= inverse
    elif by > 0.0:
        for i in range(row.shape[0]):
            row[i] /= by


@njit(nogil=True, cache=True)
def class_sums(probs: NDArray[np.float32], class_of: U32, out: Floats) -> None:
    """out[k, c] = Σ of probs[k, v] over v in c."""
    length, vocab = probs.shape
    n_classes = out.shape[1]
    # Four positions at a time: neighbouring tokens are often in one class, and one sum would be serial.
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


@njit(nogil=True, cache=True, inner=True, fastmath={"reassoc", "contract"})
def _inner(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@njit(nogil=True, cache=True)
def class_sums_outside(
    probs: NDArray[np.float32],
    inside: NDArray[np.float32],
    label: int,
    rest: U32,
    rest_class: U32,
    smallest_share: float,
    out: Floats,
    rest_probs: NDArray[np.float32],
) -> None:
    """Like `class_sums`, but reads only the tokens `rest` outside class `label`.

    The sum of class `label` is one minus the other sums. If it is less than `smallest_share`, the difference would
    have too few digits, and the sum is computed from the tokens for which `inside` (V,) is 1. The probabilities of
    `rest` are written to `rest_probs` (L, R), so they are gathered only once.
    """
    length, n_classes = probs.shape[0], out.shape[1]
    sums = np.empty((n_classes, 4))
    for k in range(0, length - 3, 4):
        sums[:] = 0.0
        a, b, c, d = probs[k], probs[k + 1], probs[k + 2], probs[k + 3]
        rest_a, rest_b, rest_c, rest_d = rest_probs[k], rest_probs[k + 1], rest_probs[k + 2], rest_probs[k + 3]
        for i in range(rest.shape[0]):
            v = rest[i]
            into = sums[rest_class[i]]
            rest_a[i], rest_b[i], rest_c[i], rest_d[i] = a[v], b[v], c[v], d[v]
            into[0] += a[v]
            into[1] += b[v]
            into[2] += c[v]
            into[3] += d[v]
        for i in range(n_classes):
            for j in range(4):
                out[k + j, i] = sums[i, j]
    for k in range(length - length % 4, length):
        out[k] = 0.0
        for i in range(rest.shape[0]):
            rest_probs[k, i] = probs[k, rest[i]]
            out[k, rest_class[i]] += rest_probs[k, i]
    for k in range(length):
        remaining = 1.0
        for c in range(n_classes):
            if c != label:
                remaining -= out[k, c]
        out[k, label] = remaining if remaining >= smallest_share else _inner(probs[k], inside)


@njit(nogil=True, cache=True)
def scale_sums(sums: Floats, useful: Bools, scaled: Floats, log_scale: Floats) -> bool:
    """scaled = sums divided by the row's largest, log_scale = its logarithm; returns whether a sum is too small.

    Classes without transitions have 0, and a row of zeros has the scale 1.
    """
    too_small = False
    for k in range(sums.shape[0]):
        peak = 0.0
        for c in range(sums.shape[1]):
            if useful[c]:
                too_small |= sums[k, c] <= TINY
                peak = max(peak, sums[k, c])
        log_scale[k] = np.log(peak) if peak > 0.0 else 0.0
        for c in range(sums.shape[1]):
            scaled[k, c] = sums[k, c] / peak if useful[c] and peak > 0.0 else 0.0
    return too_small


@njit(nogil=True, cache=True)
def group_sums(sums: Floats, members_first: I64, members: U32, out: Floats) -> None:
    """out[k, g] = Σ of sums[k, c] over c in group g."""
    for k in range(sums.shape[0]):
        for g in range(members_first.shape[0] - 1):
            total = 0.0
            for i in range(np.uint64(members_first[g]), np.uint64(members_first[g + 1])):
                total += sums[k, members[i]]
            out[k, g] = total


@njit(nogil=True, cache=True, inner=True)
def _add_up_hubs(row: Floats, n: int, arrows: Arrows) -> None:
    """row[n + h] = Σ of row[s] over the states s of hub h."""
    first, states = arrows.hub_first, arrows.hub_states
    for h in range(first.shape[0] - 1):
        total = 0.0
        for i in range(np.uint64(first[h]), np.uint64(first[h + 1])):
            total += row[states[i]]
        row[n + h] = total


@njit(nogil=True, cache=True)
def forward(weight: Floats, arrows: Arrows, live: Bools, accepting: Bools, alpha: Floats) -> float:
    """Fill alpha (L+1, S+H) with normalised forward masses; returns log Σ over accepted paths of Π weight."""
    length, n = alpha.shape[0] - 1, accepting.shape[0]
    first, node, group = arrows.in_first, arrows.in_node, arrows.in_group
    has_start = False
    for s in range(n):
        alpha[0, s] = 1.0 if live[0, s] else 0.0
        has_start |= live[0, s]
    if not has_start:
        alpha[:] = 0.0
        return -np.inf
    _add_up_hubs(alpha[0], n, arrows)
    log_total = 0.0
    for k in range(length):
        alpha_k, alpha_next, by_group, can_finish = alpha[k], alpha[k + 1], weight[k], live[k + 1]
        for t in range(n):
            mass, more = 0.0, 0.0  # two sums, so that the additions are independent
            if can_finish[t]:
                e, end = np.uint64(first[t]), np.uint64(first[t + 1])
                while e + ONE < end:
                    mass += alpha_k[node[e]] * by_group[group[e]]
                    more += alpha_k[node[e + ONE]] * by_group[group[e + ONE]]
                    e += TWO
                if e < end:
                    mass += alpha_k[node[e]] * by_group[group[e]]
            alpha_next[t] = mass + more
        total = _total(alpha_next[:n])
        if total == 0.0:
            alpha[k + 1 :] = 0.0
            return -np.inf
        _divide(alpha_next[:n], total)
        _add_up_hubs(alpha_next, n, arrows)
        log_total += np.log(total)
    ending = 0.0
    for s in range(n):
        if accepting[s]:
            ending += alpha[length, s]
    return log_total + np.log(ending)


@njit(nogil=True, cache=True)
def backward(weight: Floats, arrows: Arrows, accepting: Bools, alpha: Floats, posterior: Floats) -> None:
    """posterior[k, g] = Σ over arrows of group g of α_k[node]·β_{k+1}[t], with Σ_g weight·posterior = 1.

    α is zero for states that cannot finish; their successors are skipped.
    """
    length, n = alpha.shape[0] - 1, accepting.shape[0]
    first, head, group = arrows.out_first, arrows.out_head, arrows.out_group
    hub_first, hub_states = arrows.hub_first, arrows.hub_states
    beta = np.zeros(n)
    previous_beta = np.zeros(n)
    posterior[:] = 0.0
    for s in range(n):
        beta[s] = 1.0 if accepting[s] else 0.0
    for k in range(length - 1, -1, -1):
        masses, by_group, posterior_k = alpha[k], weight[k], posterior[k]
        for s in range(n):
            mass = masses[s]
            total, more = 0.0, 0.0
            if mass != 0.0:
                e, end = np.uint64(first[s]), np.uint64(first[s + 1])
                while e + ONE < end:
                    group_e, group_next = group[e], group[e + ONE]
                    beta_e, beta_next = beta[head[e]], beta[head[e + ONE]]
                    total += by_group[group_e] * beta_e
                    more += by_group[group_next] * beta_next
                    posterior_k[group_e] += mass * beta_e
                    posterior_k[group_next] += mass * beta_next
                    e += TWO
                if e < end:
                    group_e, beta_e = group[e], beta[head[e]]
                    total += by_group[group_e] * beta_e
                    posterior_k[group_e] += mass * beta_e
            previous_beta[s] = total + more
        for h in range(hub_first.shape[0] - 1):
            mass = masses[n + h]
            if mass != 0.0:
                total = 0.0
                for i in range(np.uint64(first[n + h]), np.uint64(first[n + h + 1])):
                    group_e, beta_e = group[i], beta[head[i]]
                    total += by_group[group_e] * beta_e
                    posterior_k[group_e] += mass * beta_e
                if total != 0.0:
                    for i in range(np.uint64(hub_first[h]), np.uint64(hub_first[h + 1])):
                        previous_beta[hub_states[i]] += total
        _divide(beta, _total_where(previous_beta, masses[:n], beta))
        norm = 0.0
        for g in range(weight.shape[1]):
            norm += by_group[g] * posterior_k[g]
        _divide(posterior_k, norm)


@njit(nogil=True, cache=True)
def spread(posterior: Floats, members_first: I64, members: U32, out: Floats) -> None:
    """out[k, c] = Σ of posterior[k, g] over the groups g that contain class c."""
    out[:] = 0.0
    for k in range(posterior.shape[0]):
        for g in range(members_first.shape[0] - 1):
            share = posterior[k, g]
            if share != 0.0:
                for i in range(np.uint64(members_first[g]), np.uint64(members_first[g + 1])):
                    out[k, members[i]] += share


@njit(nogil=True, cache=True)
def ratio_of_tokens(
    sums: Floats,
    mass: Floats,
    ratio: Floats,
    log_scale: Floats,
    minus_p: float,
    out: NDArray[np.float32],
    rescue: Bools,
) -> None:
    """out[k, c] = q/p − minus_p of class c, q/p = 0 if its sum is too small; rescue[k]: such a class has mass."""
    for k in range(sums.shape[0]):
        too_small = False
        scale = np.exp(-log_scale[k])
        for c in range(sums.shape[1]):
            if sums[k, c] > TINY:
                out[k, c] = ratio[k, c] * scale - minus_p
            else:
                out[k, c] = -minus_p
                too_small |= mass[k, c] > 0.0
        rescue[k] = too_small


@njit(nogil=True, cache=True)
def expand(
    probs: NDArray[np.float32], class_of: U32, ratio: NDArray[np.float32], out: NDArray[np.float32]
) -> None:
    """out[k, v] = probs[k, v]·ratio[k, class of v]."""
    length, vocab = probs.shape
    for k in range(length):
        row, into, by_class = probs[k], out[k], ratio[k]
        for v in range(vocab):
            into[v] = row[v] * by_class[class_of[v]]


@njit(nogil=True, cache=True)
def scale_by_ratio_differences(
    rest_probs: NDArray[np.float32], label: int, rest_class: U32, ratio: NDArray[np.float32], skip: Bools
) -> None:
    """rest_probs[k, i] *= ratio of its class − that of class `label`; 0 where `skip`."""
    by_class = np.empty(ratio.shape[1], ratio.dtype)
    for k in range(rest_probs.shape[0]):
        row = rest_probs[k]
        if skip[k]:
            row[:] = 0.0
            continue
        for c in range(by_class.shape[0]):
            by_class[c] = ratio[k, c] - ratio[k, label]
        for i in range(row.shape[0]):
            row[i] *= by_class[rest_class[i]]


@njit(nogil=True, cache=True)
def best_path(log_weight: Floats, arrows: Arrows, live: Bools, accepting: Bools, path: I64) -> float:
    """path[k] = the k-th group of the path with the largest Σ log_weight; returns this sum, −inf without a path.

    The forward pass stores only values; backtracking finds at each state the arrow that gave its value.
    """
    length, n = path.shape[0], accepting.shape[0]
    first, node, group = arrows.in_first, arrows.in_node, arrows.in_group
    hub_first, hub_states = arrows.hub_first, arrows.hub_states
    value = np.empty((length + 1, n + hub_first.shape[0] - 1))
    for s in range(n):
        value[0, s] = 0.0 if live[0, s] else -np.inf
    for k in range(length + 1):
        values = value[k]
        for h in range(hub_first.shape[0] - 1):
            top = -np.inf
            for i in range(np.uint64(hub_first[h]), np.uint64(hub_first[h + 1])):
                top = max(top, values[hub_states[i]])
            values[n + h] = top
        if k == length:
            break
        next_values, by_group, can_finish = value[k + 1], log_weight[k], live[k + 1]
        for t in range(n):
            top = -np.inf
            if can_finish[t]:
                for e in range(np.uint64(first[t]), np.uint64(first[t + 1])):
                    top = max(top, values[node[e]] + by_group[group[e]])
            next_values[t] = top
    state = -1
    top = -np.inf
    for s in range(n):
        if accepting[s] and value[length, s] > top:
            top = value[length, s]
            state = s
    if state < 0:
        return -np.inf
    for k in range(length - 1, -1, -1):
        for e in range(first[state], first[state + 1]):
            if value[k, node[e]] + log_weight[k, group[e]] == value[k + 1, state]:
                path[k] = group[e]
                state = node[e]
                break
        if state >= n:
            for i in range(hub_first[state - n], hub_first[state - n + 1]):
                if value[k, hub_states[i]] == value[k, state]:
                    state = hub_states[i]
                    break
    return top


@njit(nogil=True, cache=True)
def path_ratio(
    path: I64, members_first: I64, members: U32, grouped: Floats, log_scale: Floats, ratio: Floats
) -> float:
    """ratio[k, c] = q/p of the classes along a path of groups, in units of the scaled sums.

    Returns the log probability of the path.
    """
    ratio[:] = 0.0
    log_share = 0.0
    for k in range(path.shape[0]):
        g = path[k]
        chosen = grouped[k, g]
        log_share += np.log(chosen) + log_scale[k]
        for i in range(members_first[g], members_first[g + 1]):
            ratio[k, members[i]] = 1.0 / chosen
    return log_share


# ---- one call per sample: all computations of a denoising step in closed form
# Between two network calls Python code runs with cold caches and costs more than these loops. They stay in this
# file, because numba's cache is invalidated when the file of a function changes, not when the files of its callees
# change.


@njit(nogil=True, cache=True, inner=True)
def _weigh(
    probs: NDArray[np.float32],
    label: int,
    rest: U32,
    rest_class: U32,
    inside: NDArray[np.float32],
    smallest_share: float,
    useful: Bools,
    members_first: I64,
    members: U32,
    rest_probs: NDArray[np.float32],
) -> tuple[Floats, Floats, Floats, bool]:
    """Class sums, the logarithms of their scales, scaled group sums, and whether a sum is too small."""
    length, n_classes = probs.shape[0], useful.shape[0]
    sums = np.empty((length, n_classes))
    if label < 0:
        class_sums(probs, rest_class, sums)
    else:
        class_sums_outside(probs, inside, label, rest, rest_class, smallest_share, sums, rest_probs)
    scaled, log_scale = np.empty((length, n_classes)), np.empty(length)
    too_small = scale_sums(sums, useful, scaled, log_scale)
    grouped = np.empty((length, members_first.shape[0] - 1))
    group_sums(scaled, members_first, members, grouped)
    return sums, log_scale, grouped, too_small


@njit(nogil=True, cache=True, inner=True)
def _scaled_by_ratios(
    rest_probs: NDArray[np.float32],
    label: int,
    rest_class: U32,
    largest_ratio: float,
    sums: Floats,
    log_scale: Floats,
    ratio: Floats,
    factor: NDArray[np.float32],
) -> bool:
    """`scale_by_ratio_differences` over `rest_probs`, and the ratios of class `label` to `factor` (L,).

    Returns False if one of these ratios is above `largest_ratio`; `rest_probs` is then not changed.
    """
    by_class = np.empty(ratio.shape, rest_probs.dtype)
    skip = np.zeros(rest_probs.shape[0], np.bool_)
    ratio_of_tokens(sums, ratio, ratio, log_scale, 0.0, by_class, skip)
    for k in range(rest_probs.shape[0]):
        factor[k] = by_class[k, label] if label >= 0 else 0.0
        if factor[k] > largest_ratio:
            return False
    skip[:] = False
    if label < 0:
        expand(rest_probs, rest_class, by_class, rest_probs)
    else:
        scale_by_ratio_differences(rest_probs, label, rest_class, by_class, skip)
    return True


@njit(nogil=True, cache=True)
def closed_form(
    probs: NDArray[np.float32],
    by_path: bool,
    label: int,
    rest: U32,
    rest_class: U32,
    inside: NDArray[np.float32],
    smallest_share: float,
    largest_ratio: float,
    useful: Bools,
    members_first: I64,
    members: U32,
    arrows: Arrows,
    live: Bools,
    accepting: Bools,
    rest_probs: NDArray[np.float32],
    factor: NDArray[np.float32],
) -> tuple[float, bool]:
    """log P(L), with q − factor·p of the tokens `rest` written to `rest_probs` (L, R); False if that fails.

    It fails if sums are too small, if P(L) = 0 or if q/p of class `label` is above `largest_ratio`. A label of −1
    is a class without tokens; then `rest_probs` are probs. With `by_path` everything is conditioned on the most
    probable path of states, and the first result is the log probability of that path.
    """
    weighed = _weigh(
        probs, label, rest, rest_class, inside, smallest_share, useful, members_first, members, rest_probs
    )
    sums, log_scale, grouped, too_small = weighed
    if too_small:
        return 0.0, False
    ratio = np.empty(sums.shape)
    if by_path:
        path = np.zeros(probs.shape[0], np.int64)
        if best_path(np.log(grouped), arrows, live, accepting, path) == -np.inf:
            return -np.inf, False
        log_p_language = path_ratio(path, members_first, members, grouped, log_scale, ratio)
    else:
        alpha, posterior = np.empty((probs.shape[0] + 1, arrows.out_first.shape[0] - 1)), np.empty(grouped.shape)
        log_p_language = forward(grouped, arrows, live, accepting, alpha) + log_scale.sum()
        if log_p_language == -np.inf:
            return log_p_language, False
        backward(grouped, arrows, accepting, alpha, posterior)
        spread(posterior, members_first, members, ratio)
    return log_p_language, _scaled_by_ratios(
        rest_probs, label, rest_class, largest_ratio, sums, log_scale, ratio, factor
    )

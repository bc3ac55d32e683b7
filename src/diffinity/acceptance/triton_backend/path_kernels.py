"""Paths and strings: backtracking along the best path, and draws.

Draws use counter-based random numbers: sample (seed, index) has the same numbers in every batch.
"""

from __future__ import annotations

import triton
import triton.language as tl

from diffinity.acceptance.triton_backend.trees import (
    CLASS_SEGMENTS,
    FIRST_OF_NONE,
    IN_FIRST,
    IN_GROUP,
    IN_TAIL,
    INFINITY,
    MEMBERS,
    MEMBERS_FIRST,
    N_STATES,
    ORDER,
    SEGMENT_FIRST,
    SIZES,
    field,
)


@triton.jit(do_not_specialize=SIZES)
def fill_keys(keys, seed, n, BLOCK: tl.constexpr):
    """keys (n, 2), int64: (seed, i). Grid (n / BLOCK,)."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(keys + 2 * i, i.to(tl.int64) * 0 + seed, mask=i < n)
    tl.store(keys + 2 * i + 1, i.to(tl.int64), mask=i < n)


@triton.jit
def uniform(keys, sample, position, purpose):
    """A number from [0, 1) with 53 random digits, a function of (seed, index), position and purpose."""
    seed, index = tl.load(keys + 2 * sample), tl.load(keys + 2 * sample + 1)
    c0 = index.to(tl.uint32)
    c1 = (index >> 32).to(tl.uint32)
    c2 = (position + c0 * 0).to(tl.uint32)
    c3 = (purpose + c0 * 0).to(tl.uint32)
    high, low, _, _ = tl.philox(seed.to(tl.uint64), c0, c1, c2, c3)
    digits = (high.to(tl.int64) << 21) | (low >> 11).to(tl.int64)
    return digits.to(tl.float64) * 1.1102230246251565e-16


@triton.jit
def _arrow_shares(arena, masses, weight, e, end, MAX: tl.constexpr):
    """The shares of arrows e into a state: forward mass of the tail times weight; with MAX a sum of logarithms."""
    tail = tl.load(field(arena, IN_TAIL) + e, mask=e < end, other=0)
    group = tl.load(field(arena, IN_GROUP) + e, mask=e < end, other=0)
    mass = tl.load(masses + tail, mask=e < end, other=-INFINITY if MAX else 0.0)
    w = tl.load(weight + group, mask=e < end, other=-INFINITY if MAX else 0.0)
    if MAX:
        return mass + w
    return mass * w


@triton.jit(do_not_specialize=SIZES)
def best_path(
    programmes,
    programme_base,  # (B,)
    grouped,  # (B, L, group nodes): logarithms of weights
    values,  # (B, L+1, alpha nodes): of the best path to each state
    log_p_language,  # (B,): −inf where there is no path
    path,  # (B, L), int32, out: the groups along the best path, 0 where there is none
    length,
    group_nodes,
    alpha_nodes,
    BLOCK: tl.constexpr,
):
    """Backtracking: at each state, the arrow that gave its value. Grid (B,)."""
    sample = tl.program_id(0).to(tl.int64)
    arena = programmes + tl.load(programme_base + sample)
    values += sample * (length + 1) * alpha_nodes
    grouped += sample * length * group_nodes
    n = tl.load(arena + N_STATES)
    top = tl.full((), -INFINITY, tl.float64)
    state = n * 0
    for start in range(0, tl.where(tl.load(log_p_language + sample) > -INFINITY, n, 0), BLOCK):
        s = start + tl.arange(0, BLOCK)
        value = tl.load(values + length * alpha_nodes + s, mask=s < n, other=-INFINITY)
        best = tl.max(value, axis=0)
        at = tl.min(tl.where(value == best, s, FIRST_OF_NONE), axis=0)
        state = tl.where(best > top, at, state)
        top = tl.maximum(top, best)
    for i in range(length):
        k = length - 1 - i
        group = n * 0
        if top > -INFINITY:
            first = tl.load(field(arena, IN_FIRST) + state)
            end = tl.load(field(arena, IN_FIRST) + state + 1)
            best, arrow = tl.full((), -INFINITY, tl.float64), first
            for start in range(first, end, BLOCK):
                e = start + tl.arange(0, BLOCK)
                masses, weight = values + k * alpha_nodes, grouped + k * group_nodes
                value = _arrow_shares(arena, masses, weight, e, end, True)
                largest = tl.max(value, axis=0)
                at = tl.min(tl.where((value == largest) & (e < end), e, FIRST_OF_NONE), axis=0)
                arrow = tl.where(largest > best, at, arrow)
                best = tl.maximum(best, largest)
            group = tl.load(field(arena, IN_GROUP) + arrow)
            state = tl.load(field(arena, IN_TAIL) + arrow)
        tl.store(path + sample * length + k, group)


@triton.jit
def _choose(share, place, before, threshold, chosen, is_chosen, inside):
    """One block of a draw in proportion to `share`: the first place where the running sum exceeds the threshold.

    If rounding leaves no such place, it is the last place with a positive share.
    """
    running = before + tl.cumsum(share, axis=0)
    has_share = inside & (share > 0)
    hit = tl.min(tl.where(has_share & (running > threshold), place, FIRST_OF_NONE), axis=0)
    last = tl.max(tl.where(has_share, place, -1), axis=0)
    candidate = tl.where(hit < FIRST_OF_NONE, hit, tl.where(last >= 0, last, chosen))
    chosen = tl.where(is_chosen, chosen, candidate)
    return before + tl.sum(share, axis=0), chosen, is_chosen | (hit < FIRST_OF_NONE)


@triton.jit(do_not_specialize=SIZES)
def draw_path(
    programmes,
    programme_base,  # (B,)
    grouped,  # (B, L, group nodes)
    log_scale,  # (B, L)
    alpha,  # (B, L+1, alpha nodes)
    keys,  # (B, 2), int64: (seed, index) of each sample
    log_p_language,  # (B,): log P(L)
    path,  # (B, L), int32, out: the groups along a path drawn from the posterior
    log_share,  # (B,), out: the log probability of that path of groups
    length,
    group_nodes,
    alpha_nodes,
    BLOCK: tl.constexpr,
):
    """Backwards through the forward masses. Grid (B,)."""
    sample = tl.program_id(0).to(tl.int64)
    arena = programmes + tl.load(programme_base + sample)
    alpha += sample * (length + 1) * alpha_nodes
    grouped += sample * length * group_nodes
    n = tl.load(arena + N_STATES)
    value = tl.load(log_p_language + sample)
    possible = value > -INFINITY
    zero = tl.zeros((), tl.float64)
    last = alpha + length * alpha_nodes
    state = n * 0
    total = zero
    for start in range(0, n, BLOCK):
        s = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(last + s, mask=s < n, other=0.0), axis=0)
    threshold = total * uniform(keys, sample, length, 0)
    before, is_chosen = zero, n < 0
    for start in range(0, n, BLOCK):
        s = start + tl.arange(0, BLOCK)
        share = tl.load(last + s, mask=s < n, other=0.0)
        before, state, is_chosen = _choose(share, s, before, threshold, state, is_chosen, s < n)
    log_path = zero
    for i in range(length):
        k = length - 1 - i
        group = n * 0
        if possible:
            masses, weight = alpha + k * alpha_nodes, grouped + k * group_nodes
            first = tl.load(field(arena, IN_FIRST) + state)
            end = tl.load(field(arena, IN_FIRST) + state + 1)
            total = zero
            for start in range(first, end, BLOCK):
                e = start + tl.arange(0, BLOCK)
                total += tl.sum(_arrow_shares(arena, masses, weight, e, end, False), axis=0)
            threshold = total * uniform(keys, sample, k, 0)
            before, is_chosen, arrow = zero, n < 0, first
            for start in range(first, end, BLOCK):
                e = start + tl.arange(0, BLOCK)
                share = _arrow_shares(arena, masses, weight, e, end, False)
                before, arrow, is_chosen = _choose(share, e, before, threshold, arrow, is_chosen, e < end)
            group = tl.load(field(arena, IN_GROUP) + arrow)
            state = tl.load(field(arena, IN_TAIL) + arrow)
            log_path += tl.log(tl.load(weight + group)) + tl.load(log_scale + sample * length + k)
        tl.store(path + sample * length + k, group)
    tl.store(log_share + sample, tl.where(possible, log_path, -INFINITY))


@triton.jit(do_not_specialize=SIZES)
def draw_tokens(
    path,  # (B, L), int32
    classes,
    class_base,  # (B,)
    weight,  # (B, L, class nodes)
    class_log,  # (B, L, class nodes): logarithms of the class sums
    peaks,  # (B, L, segments)
    sums,  # (B, L, segments)
    logits,  # (B, L, V)
    keys,  # (B, 2), int64
    log_p_language,  # (B,)
    tokens,  # (B, L), int64, out
    length,
    vocab,
    n_segments,
    class_nodes,
    FROM_PROBS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A class of the group, a segment of the class, a token of the segment. Grid (B·L,)."""
    row = tl.program_id(0).to(tl.int64)
    sample, k = row // length, row % length
    value = tl.load(log_p_language + sample)
    if value > -INFINITY:
        arena = classes + tl.load(class_base + sample)
        weight += row * class_nodes
        group = tl.load(path + row)
        first = tl.load(field(arena, MEMBERS_FIRST) + group)
        end = tl.load(field(arena, MEMBERS_FIRST) + group + 1)
        members = field(arena, MEMBERS)
        total = tl.zeros((), tl.float64)
        for start in range(first, end, BLOCK):
            i = start + tl.arange(0, BLOCK)
            c = tl.load(members + i, mask=i < end, other=0)
            total += tl.sum(tl.load(weight + c, mask=i < end, other=0.0), axis=0)
        threshold = total * uniform(keys, sample, k.to(tl.int32), 1)
        before, chosen, is_chosen = tl.zeros((), tl.float64), first, first < 0
        for start in range(first, end, BLOCK):
            i = start + tl.arange(0, BLOCK)
            c = tl.load(members + i, mask=i < end, other=0)
            share = tl.load(weight + c, mask=i < end, other=0.0)
            before, chosen, is_chosen = _choose(share, i, before, threshold, chosen, is_chosen, i < end)
        c = tl.load(members + chosen)
        log_sum = tl.load(class_log + row * class_nodes + c)

        threshold = uniform(keys, sample, k.to(tl.int32), 2)
        first = tl.load(field(arena, CLASS_SEGMENTS) + c)
        end = tl.load(field(arena, CLASS_SEGMENTS) + c + 1)
        before, segment, is_chosen = tl.zeros((), tl.float64), first, first < 0
        for start in range(first, end, BLOCK):
            i = start + tl.arange(0, BLOCK)
            peak = tl.load(peaks + row * n_segments + i, mask=i < end, other=-INFINITY).to(tl.float64)
            amount = tl.load(sums + row * n_segments + i, mask=i < end, other=0.0).to(tl.float64)
            share = amount * tl.exp(peak - log_sum)
            before, segment, is_chosen = _choose(share, i, before, threshold, segment, is_chosen, i < end)

        first = tl.load(field(arena, SEGMENT_FIRST) + segment)
        end = tl.load(field(arena, SEGMENT_FIRST) + segment + 1)
        peak = tl.load(peaks + row * n_segments + segment).to(tl.float64)
        amount = tl.load(sums + row * n_segments + segment).to(tl.float64)
        threshold = amount * uniform(keys, sample, k.to(tl.int32), 3)
        before, place, is_chosen = tl.zeros((), tl.float64), first, first < 0
        for start in range(first, end, BLOCK):
            i = start + tl.arange(0, BLOCK)
            v = tl.load(field(arena, ORDER) + i, mask=i < end, other=0)
            x = tl.load(logits + row * vocab + v, mask=i < end, other=0.0).to(tl.float64)
            if FROM_PROBS:
                x = tl.where(x > 0, tl.log(tl.where(x > 0, x, 1.0)), -INFINITY)
            share = tl.where(i < end, tl.exp(x - peak), 0.0)
            before, place, is_chosen = _choose(share, i, before, threshold, place, is_chosen, i < end)
        tl.store(tokens + row, tl.load(field(arena, ORDER) + place).to(tl.int64))


@triton.jit(do_not_specialize=SIZES)
def pick_tokens(
    path,  # (B, L), int32: the groups along the best path
    group_token,  # (B, L, group nodes), int32
    predicate,  # (B,): only samples where it is −inf are processed; used only with PREDICATE
    tokens,  # (B, L), int64, out
    length,
    group_nodes,
    PREDICATE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The most probable token of each group of a path. Grid (B, L / BLOCK)."""
    sample = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = k < length
    if PREDICATE:
        inside = k < tl.where(tl.load(predicate + sample) == -INFINITY, length, 0)
    row = sample * length + k
    group = tl.load(path + row, mask=inside, other=0)
    token = tl.load(group_token + row * group_nodes + group, mask=inside, other=0)
    tl.store(tokens + row, token.to(tl.int64), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def string_log_p(
    tokens,  # (B, L), int64
    logits,  # (B, L, V)
    log_norm,  # (B, L)
    log_p_text,  # (B,), out
    length,
    vocab,
    FROM_PROBS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The log probability of one string of each sample. Grid (B,)."""
    sample = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, length, BLOCK):
        k = start + tl.arange(0, BLOCK)
        row = sample * length + k
        v = tl.load(tokens + row, mask=k < length, other=0)
        x = tl.load(logits + row * vocab + v, mask=k < length, other=0.0).to(tl.float64)
        if FROM_PROBS:
            x = tl.where(x > 0, tl.log(tl.where(x > 0, x, 1.0)), -INFINITY)
        total += tl.where(k < length, x - tl.load(log_norm + row, mask=k < length, other=0.0), 0.0)
    tl.store(log_p_text + sample, tl.sum(total, axis=0))

"""Paths and strings: the way back along the best path, draws, and the k best strings.

Draws use counter-based random numbers: sample (seed, index) has the same at every position in every batch.
"""

from __future__ import annotations

import triton
import triton.language as tl

from diffinity.acceptance.triton_backend.trees import (
    CLASS_SEGMENTS,
    IN_FIRST,
    IN_GROUP,
    IN_TAIL,
    INFINITY,
    LIVE,
    MEMBERS,
    MEMBERS_FIRST,
    N_CLASSES,
    N_GROUPS,
    N_STATES,
    ORDER,
    SEGMENT_FIRST,
    field,
    is_live,
)

FIRST_OF_NONE = tl.constexpr(2147483647)


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
def _arrow_shares(arena, here, weight, state, e, end, MAX: tl.constexpr):
    """What the arrows e into a state bring: forward mass of the tail times weight, or the sum of logarithms."""
    tail = tl.load(field(arena, IN_TAIL) + e, mask=e < end, other=0)
    group = tl.load(field(arena, IN_GROUP) + e, mask=e < end, other=0)
    mass = tl.load(here + tail, mask=e < end, other=-INFINITY if MAX else 0.0)
    w = tl.load(weight + group, mask=e < end, other=-INFINITY if MAX else 0.0)
    if MAX:
        return mass + w
    else:
        return mass * w


@triton.jit
def best_path(
    programmes,
    programme_base,  # (B,)
    grouped,  # (B, L, group nodes): logarithms of weights
    values,  # (B, L+1, alpha nodes): of the best path to each state
    log_prob,  # (B,): −inf where there is no path
    path,  # (B, L), int32, out: the groups along the best path, 0 where there is none
    length,
    group_nodes,
    alpha_nodes,
    BLOCK: tl.constexpr,
):
    """The way back: at each state, which arrow its value came by. Grid (B,)."""
    sample = tl.program_id(0).to(tl.int64)
    arena = programmes + tl.load(programme_base + sample)
    values += sample * (length + 1) * alpha_nodes
    grouped += sample * length * group_nodes
    n = tl.load(arena + N_STATES)
    top = tl.full((), -INFINITY, tl.float64)
    state = n * 0
    for start in range(0, tl.where(tl.load(log_prob + sample) > -INFINITY, n, 0), BLOCK):
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
                here, weight = values + k * alpha_nodes, grouped + k * group_nodes
                value = _arrow_shares(arena, here, weight, state, e, end, True)
                largest = tl.max(value, axis=0)
                at = tl.min(tl.where((value == largest) & (e < end), e, FIRST_OF_NONE), axis=0)
                arrow = tl.where(largest > best, at, arrow)
                best = tl.maximum(best, largest)
            group = tl.load(field(arena, IN_GROUP) + arrow)
            state = tl.load(field(arena, IN_TAIL) + arrow)
        tl.store(path + sample * length + k, group)


@triton.jit
def _choose(share, place, before, threshold, chosen, found, inside):
    """One block of a draw in proportion: the first place at which the running sum exceeds the threshold.

    Rounding may leave none; then the last place that has any share.
    """
    running = before + tl.cumsum(share, axis=0)
    has = inside & (share > 0)
    hit = tl.min(tl.where(has & (running > threshold), place, FIRST_OF_NONE), axis=0)
    last = tl.max(tl.where(has, place, -1), axis=0)
    this = tl.where(hit < FIRST_OF_NONE, hit, tl.where(last >= 0, last, chosen))
    chosen = tl.where(found, chosen, this)
    return before + tl.sum(share, axis=0), chosen, found | (hit < FIRST_OF_NONE)


@triton.jit
def draw_path(
    programmes,
    programme_base,  # (B,)
    grouped,  # (B, L, group nodes)
    log_scale,  # (B, L)
    alpha,  # (B, L+1, alpha nodes)
    keys,  # (B, 2), int64: (seed, index) of each sample
    log_prob,  # (B,): log P(L)
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
    value = tl.load(log_prob + sample)
    possible = value > -INFINITY
    nothing = tl.zeros((), tl.float64)
    last = alpha + length * alpha_nodes
    state = n * 0
    total = nothing
    for start in range(0, n, BLOCK):
        s = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(last + s, mask=s < n, other=0.0), axis=0)
    threshold = total * uniform(keys, sample, length, 0)
    before, found = nothing, n < 0
    for start in range(0, n, BLOCK):
        s = start + tl.arange(0, BLOCK)
        share = tl.load(last + s, mask=s < n, other=0.0)
        before, state, found = _choose(share, s, before, threshold, state, found, s < n)
    log_path = nothing
    for i in range(length):
        k = length - 1 - i
        group = n * 0
        if possible:
            here, weight = alpha + k * alpha_nodes, grouped + k * group_nodes
            first = tl.load(field(arena, IN_FIRST) + state)
            end = tl.load(field(arena, IN_FIRST) + state + 1)
            total = nothing
            for start in range(first, end, BLOCK):
                e = start + tl.arange(0, BLOCK)
                total += tl.sum(_arrow_shares(arena, here, weight, state, e, end, False), axis=0)
            threshold = total * uniform(keys, sample, k, 0)
            before, found, arrow = nothing, n < 0, first
            for start in range(first, end, BLOCK):
                e = start + tl.arange(0, BLOCK)
                share = _arrow_shares(arena, here, weight, state, e, end, False)
                before, arrow, found = _choose(share, e, before, threshold, arrow, found, e < end)
            group = tl.load(field(arena, IN_GROUP) + arrow)
            state = tl.load(field(arena, IN_TAIL) + arrow)
            log_path += tl.log(tl.load(weight + group)) + tl.load(log_scale + sample * length + k)
        tl.store(path + sample * length + k, group)
    tl.store(log_share + sample, tl.where(possible, log_path, -INFINITY))


@triton.jit
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
    log_prob,  # (B,)
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
    value = tl.load(log_prob + sample)
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
        before, chosen, found = tl.zeros((), tl.float64), first, first < 0
        for start in range(first, end, BLOCK):
            i = start + tl.arange(0, BLOCK)
            c = tl.load(members + i, mask=i < end, other=0)
            share = tl.load(weight + c, mask=i < end, other=0.0)
            before, chosen, found = _choose(share, i, before, threshold, chosen, found, i < end)
        c = tl.load(members + chosen)
        log_sum = tl.load(class_log + row * class_nodes + c)

        threshold = uniform(keys, sample, k.to(tl.int32), 2)
        first = tl.load(field(arena, CLASS_SEGMENTS) + c)
        end = tl.load(field(arena, CLASS_SEGMENTS) + c + 1)
        before, segment, found = tl.zeros((), tl.float64), first, first < 0
        for start in range(first, end, BLOCK):
            i = start + tl.arange(0, BLOCK)
            peak = tl.load(peaks + row * n_segments + i, mask=i < end, other=-INFINITY).to(tl.float64)
            amount = tl.load(sums + row * n_segments + i, mask=i < end, other=0.0).to(tl.float64)
            share = amount * tl.exp(peak - log_sum)
            before, segment, found = _choose(share, i, before, threshold, segment, found, i < end)

        first = tl.load(field(arena, SEGMENT_FIRST) + segment)
        end = tl.load(field(arena, SEGMENT_FIRST) + segment + 1)
        peak = tl.load(peaks + row * n_segments + segment).to(tl.float64)
        amount = tl.load(sums + row * n_segments + segment).to(tl.float64)
        threshold = amount * uniform(keys, sample, k.to(tl.int32), 3)
        before, place, found = tl.zeros((), tl.float64), first, first < 0
        for start in range(first, end, BLOCK):
            i = start + tl.arange(0, BLOCK)
            v = tl.load(field(arena, ORDER) + i, mask=i < end, other=0)
            x = tl.load(logits + row * vocab + v, mask=i < end, other=0.0).to(tl.float64)
            if FROM_PROBS:
                x = tl.where(x > 0, tl.log(tl.where(x > 0, x, 1.0)), -INFINITY)
            share = tl.where(i < end, tl.exp(x - peak), 0.0)
            before, place, found = _choose(share, i, before, threshold, place, found, i < end)
        tl.store(tokens + row, tl.load(field(arena, ORDER) + place).to(tl.int64))


@triton.jit
def pick_tokens(
    path,  # (B, L), int32: the groups along the best path
    group_token,  # (B, L, group nodes), int32
    wanted,  # (B,): where it is not −inf nothing is done; only with PREDICATE
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
        inside = k < tl.where(tl.load(wanted + sample) == -INFINITY, length, 0)
    row = sample * length + k
    group = tl.load(path + row, mask=inside, other=0)
    token = tl.load(group_token + row * group_nodes + group, mask=inside, other=0)
    tl.store(tokens + row, token.to(tl.int64), mask=inside)


@triton.jit
def string_log_prob(
    tokens,  # (B, L), int64
    logits,  # (B, L, V)
    log_norm,  # (B, L)
    log_prob,  # (B,), out
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
    tl.store(log_prob + sample, tl.sum(total, axis=0))


@triton.jit
def _next(value, order, last_value, last_order, mask):
    """The largest value after (last_value, last_order) in the order of falling values, then rising `order`."""
    after = mask & ((value < last_value) | ((value == last_value) & (order > last_order)))
    top = tl.max(tl.where(after, value, -INFINITY), axis=0)
    first = tl.min(tl.where(after & (value == top), order, FIRST_OF_NONE), axis=0)
    return top, first


@triton.jit
def top_in_classes(
    logits,  # (B, L, V)
    classes,
    class_base,  # (B,)
    log_norm,  # (B, L)
    value,  # (B, L, C, K), out: log p
    token,  # (B, L, C, K), int32, out; −1 for none
    length,
    vocab,
    n_classes,
    wanted,
    FROM_PROBS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The k most probable tokens of each class. Grid (C, B·L)."""
    c, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    arena = classes + tl.load(class_base + row // length)
    if c < tl.load(arena + N_CLASSES):
        segments = field(arena, CLASS_SEGMENTS)
        first = tl.load(field(arena, SEGMENT_FIRST) + tl.load(segments + c))
        end = tl.load(field(arena, SEGMENT_FIRST) + tl.load(segments + c + 1))
        norm = tl.load(log_norm + row)
        last, last_token = tl.full((), INFINITY, tl.float64), first * 0 - 1
        out = (row * n_classes + c) * wanted
        for j in range(wanted):
            top, chosen = tl.full((), -INFINITY, tl.float64), first * 0 - 1
            for start in range(first, end, BLOCK):
                i = start + tl.arange(0, BLOCK)
                v = tl.load(field(arena, ORDER) + i, mask=i < end, other=0)
                x = tl.load(logits + row * vocab + v, mask=i < end, other=0.0).to(tl.float64)
                if FROM_PROBS:
                    x = tl.where(x > 0, tl.log(tl.where(x > 0, x, 1.0)), -INFINITY)
                largest, at = _next(x, v, last, last_token, i < end)
                better = largest > top
                chosen = tl.where(better, at, chosen)
                top = tl.where(better, largest, top)
            tl.store(value + out + j, tl.where(chosen >= 0, top - norm, -INFINITY))
            tl.store(token + out + j, chosen)
            last, last_token = top, chosen


@triton.jit
def top_in_groups(
    class_value,  # (B, L, C, K)
    class_token,  # (B, L, C, K)
    classes,
    class_base,  # (B,)
    value,  # (B, L, G, K), out
    token,  # (B, L, G, K), int32, out; −1 for none
    length,
    n_classes,
    n_groups,
    wanted,
    BLOCK: tl.constexpr,
):
    """The k most probable tokens of each group. Grid (G, B·L)."""
    g, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    arena = classes + tl.load(class_base + row // length)
    if g < tl.load(arena + N_GROUPS):
        first = tl.load(field(arena, MEMBERS_FIRST) + g) * wanted
        end = tl.load(field(arena, MEMBERS_FIRST) + g + 1) * wanted
        last = tl.full((), INFINITY, tl.float64)
        last_token = first * 0 - 1
        out = (row * n_groups + g) * wanted
        for j in range(wanted):
            top, chosen = tl.full((), -INFINITY, tl.float64), first * 0 - 1
            for start in range(first, end, BLOCK):
                i = start + tl.arange(0, BLOCK)
                c = tl.load(field(arena, MEMBERS) + i // wanted, mask=i < end, other=0)
                at = (row * n_classes + c) * wanted + i % wanted
                x = tl.load(class_value + at, mask=i < end, other=-INFINITY)
                v = tl.load(class_token + at, mask=i < end, other=-1)
                largest, best = _next(x, v, last, last_token, (i < end) & (v >= 0))
                better = (largest > top) | ((largest == top) & (best < chosen) & (largest > -INFINITY))
                chosen = tl.where(better, best, chosen)
                top = tl.where(better, largest, top)
            tl.store(value + out + j, top)
            tl.store(token + out + j, chosen)
            last, last_token = top, chosen


@triton.jit
def top_step(
    programmes,
    programme_base,  # (B,)
    group_value,  # (B, L, G, K)
    group_token,  # (B, L, G, K)
    value,  # (B, L+1, S, K)
    source,  # (B, L+1, S, K), int32, out: K·state + rank that an entry continues
    token,  # (B, L+1, S, K), int32, out
    k,
    length,
    n_groups,
    n_states,
    wanted,
    BLOCK: tl.constexpr,
):
    """The k best strings of k + 1 tokens that lead to each state. Grid (S, B)."""
    state, sample = tl.program_id(0), tl.program_id(1).to(tl.int64)
    arena = programmes + tl.load(programme_base + sample)
    n = tl.load(arena + N_STATES)
    if state < n:
        here = value + (sample * (length + 1) + k) * n_states * wanted
        out = ((sample * (length + 1) + k + 1) * n_states + state) * wanted
        group_value += (sample * length + k) * n_groups * wanted
        group_token += (sample * length + k) * n_groups * wanted
        alive = is_live(field(arena, LIVE), n, k + 1, state, state < n)
        first = tl.load(field(arena, IN_FIRST) + state)
        end = tl.where(alive, tl.load(field(arena, IN_FIRST) + state + 1), first)
        pairs = wanted * wanted
        last = tl.full((), INFINITY, tl.float64)
        last_at = first * 0 - 1
        for j in range(wanted):
            top = tl.full((), -INFINITY, tl.float64)
            chosen = first * 0 - 1
            for start in range(0, (end - first) * pairs, BLOCK):
                i = start + tl.arange(0, BLOCK)
                inside = i < (end - first) * pairs
                e, rank, choice = first + i // pairs, (i % pairs) // wanted, i % wanted
                tail = tl.load(field(arena, IN_TAIL) + e, mask=inside, other=0)
                group = tl.load(field(arena, IN_GROUP) + e, mask=inside, other=0)
                x = tl.load(here + tail * wanted + rank, mask=inside, other=-INFINITY)
                x += tl.load(group_value + group * wanted + choice, mask=inside, other=-INFINITY)
                largest, at = _next(x, i, last, last_at, inside)
                better = largest > top
                chosen = tl.where(better, at, chosen)
                top = tl.where(better, largest, top)
            some = chosen >= 0
            e, rank, choice = first + chosen // pairs, (chosen % pairs) // wanted, chosen % wanted
            tail = tl.load(field(arena, IN_TAIL) + e, mask=some, other=0)
            group = tl.load(field(arena, IN_GROUP) + e, mask=some, other=0)
            tl.store(value + out + j, top)
            tl.store(source + out + j, tail * wanted + rank)
            tl.store(token + out + j, tl.load(group_token + group * wanted + choice, mask=some, other=-1))
            last, last_at = top, chosen


@triton.jit
def top_strings(
    programmes,
    programme_base,  # (B,)
    value,  # (B, L+1, S, K)
    source,  # (B, L+1, S, K), int32
    token,  # (B, L+1, S, K), int32
    log_prob,  # (B, K), out: −inf where there are no more
    strings,  # (B, K, L), int32, out
    length,
    n_states,
    wanted,
    BLOCK: tl.constexpr,
):
    """The k best strings of each sample. Grid (B,)."""
    sample = tl.program_id(0).to(tl.int64)
    arena = programmes + tl.load(programme_base + sample)
    size = tl.load(arena + N_STATES) * wanted
    stride = n_states * wanted
    base = sample * (length + 1) * stride
    last = tl.full((), INFINITY, tl.float64)
    last_at = size * 0 - 1
    for j in range(wanted):
        top = tl.full((), -INFINITY, tl.float64)
        chosen = size * 0 - 1
        for start in range(0, size, BLOCK):
            i = start + tl.arange(0, BLOCK)
            x = tl.load(value + base + length * stride + i, mask=i < size, other=-INFINITY)
            largest, at = _next(x, i, last, last_at, i < size)
            better = largest > top
            chosen = tl.where(better, at, chosen)
            top = tl.where(better, largest, top)
        tl.store(log_prob + sample * wanted + j, top)
        at = chosen
        for i in range(length):
            k = length - i
            some = at >= 0
            v = tl.load(token + base + k * stride + at, mask=some, other=-1)
            tl.store(strings + (sample * wanted + j) * length + k - 1, v)
            at = tl.load(source + base + k * stride + at, mask=some, other=-1)
        last, last_at = top, chosen

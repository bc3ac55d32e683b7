"""The k best strings: the k best tokens of classes and groups, the k best prefixes per state, backtracking."""

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
    LIVE,
    MEMBERS,
    MEMBERS_FIRST,
    N_CLASSES,
    N_GROUPS,
    N_STATES,
    ORDER,
    SEGMENT_FIRST,
    SIZES,
    field,
    is_live,
)


@triton.jit
def _next(value, order, last_value, last_order, mask):
    """The next entry after (last_value, last_order), sorted by descending value, then by ascending `order`."""
    after = mask & ((value < last_value) | ((value == last_value) & (order > last_order)))
    top = tl.max(tl.where(after, value, -INFINITY), axis=0)
    first = tl.min(tl.where(after & (value == top), order, FIRST_OF_NONE), axis=0)
    return top, first


@triton.jit(do_not_specialize=SIZES)
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
    n_best,
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
        out = (row * n_classes + c) * n_best
        for j in range(n_best):
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


@triton.jit(do_not_specialize=SIZES)
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
    n_best,
    BLOCK: tl.constexpr,
):
    """The k most probable tokens of each group. Grid (G, B·L)."""
    g, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    arena = classes + tl.load(class_base + row // length)
    if g < tl.load(arena + N_GROUPS):
        first = tl.load(field(arena, MEMBERS_FIRST) + g) * n_best
        end = tl.load(field(arena, MEMBERS_FIRST) + g + 1) * n_best
        last = tl.full((), INFINITY, tl.float64)
        last_token = first * 0 - 1
        out = (row * n_groups + g) * n_best
        for j in range(n_best):
            top, chosen = tl.full((), -INFINITY, tl.float64), first * 0 - 1
            for start in range(first, end, BLOCK):
                i = start + tl.arange(0, BLOCK)
                c = tl.load(field(arena, MEMBERS) + i // n_best, mask=i < end, other=0)
                at = (row * n_classes + c) * n_best + i % n_best
                x = tl.load(class_value + at, mask=i < end, other=-INFINITY)
                v = tl.load(class_token + at, mask=i < end, other=-1)
                largest, best = _next(x, v, last, last_token, (i < end) & (v >= 0))
                better = (largest > top) | ((largest == top) & (best < chosen) & (largest > -INFINITY))
                chosen = tl.where(better, best, chosen)
                top = tl.where(better, largest, top)
            tl.store(value + out + j, top)
            tl.store(token + out + j, chosen)
            last, last_token = top, chosen


@triton.jit(do_not_specialize=SIZES)
def top_step(
    programmes,
    programme_base,  # (B,)
    group_value,  # (B, L, G, K)
    group_token,  # (B, L, G, K)
    value,  # (B, L+1, S, K)
    source,  # (B, L+1, S, K), int32, out: K·state + rank of the entry that this one continues
    token,  # (B, L+1, S, K), int32, out
    k,
    length,
    n_groups,
    n_states,
    n_best,
    BLOCK: tl.constexpr,
):
    """The k best strings of k + 1 tokens that lead to each state. Grid (S, B)."""
    state, sample = tl.program_id(0), tl.program_id(1).to(tl.int64)
    arena = programmes + tl.load(programme_base + sample)
    n = tl.load(arena + N_STATES)
    if state < n:
        tail_values = value + (sample * (length + 1) + k) * n_states * n_best
        out = ((sample * (length + 1) + k + 1) * n_states + state) * n_best
        group_value += (sample * length + k) * n_groups * n_best
        group_token += (sample * length + k) * n_groups * n_best
        alive = is_live(field(arena, LIVE), n, k + 1, state, state < n)
        first = tl.load(field(arena, IN_FIRST) + state)
        end = tl.where(alive, tl.load(field(arena, IN_FIRST) + state + 1), first)
        pairs = n_best * n_best
        last = tl.full((), INFINITY, tl.float64)
        last_at = first * 0 - 1
        for j in range(n_best):
            top = tl.full((), -INFINITY, tl.float64)
            chosen = first * 0 - 1
            for start in range(0, (end - first) * pairs, BLOCK):
                i = start + tl.arange(0, BLOCK)
                inside = i < (end - first) * pairs
                e, rank, choice = first + i // pairs, (i % pairs) // n_best, i % n_best
                tail = tl.load(field(arena, IN_TAIL) + e, mask=inside, other=0)
                group = tl.load(field(arena, IN_GROUP) + e, mask=inside, other=0)
                x = tl.load(tail_values + tail * n_best + rank, mask=inside, other=-INFINITY)
                x += tl.load(group_value + group * n_best + choice, mask=inside, other=-INFINITY)
                largest, at = _next(x, i, last, last_at, inside)
                better = largest > top
                chosen = tl.where(better, at, chosen)
                top = tl.where(better, largest, top)
            exists = chosen >= 0
            e, rank, choice = first + chosen // pairs, (chosen % pairs) // n_best, chosen % n_best
            tail = tl.load(field(arena, IN_TAIL) + e, mask=exists, other=0)
            group = tl.load(field(arena, IN_GROUP) + e, mask=exists, other=0)
            tl.store(value + out + j, top)
            tl.store(source + out + j, tail * n_best + rank)
            tl.store(token + out + j, tl.load(group_token + group * n_best + choice, mask=exists, other=-1))
            last, last_at = top, chosen


@triton.jit(do_not_specialize=SIZES)
def top_strings(
    programmes,
    programme_base,  # (B,)
    value,  # (B, L+1, S, K)
    source,  # (B, L+1, S, K), int32
    token,  # (B, L+1, S, K), int32
    log_p_text,  # (B, K), out: −inf where there are no more
    strings,  # (B, K, L), int32, out
    length,
    n_states,
    n_best,
    BLOCK: tl.constexpr,
):
    """The k best strings of each sample. Grid (B,)."""
    sample = tl.program_id(0).to(tl.int64)
    arena = programmes + tl.load(programme_base + sample)
    size = tl.load(arena + N_STATES) * n_best
    stride = n_states * n_best
    base = sample * (length + 1) * stride
    last = tl.full((), INFINITY, tl.float64)
    last_at = size * 0 - 1
    for j in range(n_best):
        top = tl.full((), -INFINITY, tl.float64)
        chosen = size * 0 - 1
        for start in range(0, size, BLOCK):
            i = start + tl.arange(0, BLOCK)
            x = tl.load(value + base + length * stride + i, mask=i < size, other=-INFINITY)
            largest, at = _next(x, i, last, last_at, i < size)
            better = largest > top
            chosen = tl.where(better, at, chosen)
            top = tl.where(better, largest, top)
        tl.store(log_p_text + sample * n_best + j, top)
        at = chosen
        for i in range(length):
            k = length - i
            exists = at >= 0
            v = tl.load(token + base + k * stride + at, mask=exists, other=-1)
            tl.store(strings + (sample * n_best + j) * length + k - 1, v)
            at = tl.load(source + base + k * stride + at, mask=exists, other=-1)
        last, last_at = top, chosen

"""From the recursions to the outputs: q (or q − p), and q·E without writing q.

q of a token is exp(logit + bias of its class). The bias is log(posterior probability of the class) minus the
logarithm of the class sum. It is stored in two float32 parts, so that a logit of a thousand loses no digits when
the bias is added.
"""

from __future__ import annotations

import triton
import triton.language as tl

from diffinity.acceptance.triton_backend.recursion_kernels import add_up_pairs
from diffinity.acceptance.triton_backend.trees import (
    CLASS_OF,
    INFINITY,
    LARGEST,
    MEMBERS,
    MEMBERS_FIRST,
    N_CLASSES,
    N_GROUPS,
    N_STATES,
    OUTSIDE,
    SIZES,
    SPREAD_TREE,
    add_up_array,
    exponent_of,
    field,
    power_of_two,
)


@triton.jit
def _store_bias(bias, rest, at, value, mask):
    """A float64 as a float32 and the remainder (0 if it is infinite)."""
    large = value.to(tl.float32)
    remainder = tl.where(large == -INFINITY, 0.0, value - large.to(tl.float64))
    tl.store(bias + at, large.to(bias.dtype.element_ty), mask=mask)
    tl.store(rest + at, remainder.to(rest.dtype.element_ty), mask=mask)


@triton.jit
def _factor(alpha, reached, beta, n, PIECES: tl.constexpr):
    """The power of two that brings products of masses near 1: drifted masses must not underflow."""
    largest, after = tl.zeros((PIECES,), tl.float64), tl.zeros((PIECES,), tl.float64)
    for start in range(0, n, PIECES):
        s = start + tl.arange(0, PIECES)
        largest = tl.maximum(largest, tl.load(alpha + s, mask=s < n, other=0.0))
        has_mass = tl.load(reached + s, mask=s < n, other=0.0) != 0.0
        after = tl.maximum(after, tl.load(beta + s, mask=has_mass, other=0.0))
    exponent = exponent_of(tl.max(largest, axis=0)) + exponent_of(tl.max(after, axis=0))
    return power_of_two(-tl.minimum(tl.maximum(exponent, -1000), 1000))


@triton.jit(do_not_specialize=SIZES)
def posterior(
    samples,  # the samples of this launch
    programmes,
    programme_base,  # (B,)
    classes,
    class_base,  # (B,)
    alpha,  # (B, L+1, alpha nodes)
    beta,  # (B, L+1, beta nodes)
    grouped,  # (B, L, group nodes)
    class_log,  # (B, L, class nodes)
    weight,  # (B, L, class nodes)
    log_norm,  # (B, L)
    log_p_language,  # (B,)
    share,  # (B, L, pair nodes): Σ α·β over the arrows of each group; an input with SHARED, otherwise an output
    spread,  # (B, L, spread nodes), scratch: the same over the groups of each class
    bias,  # (B, L, C), out: log q − logit of the tokens of a class
    rest,  # (B, L, C), out: the remainder of the bias after rounding to float32
    length,
    alpha_nodes,
    beta_nodes,
    group_nodes,
    class_nodes,
    pair_nodes,
    spread_nodes,
    n_classes,
    SHARED: tl.constexpr,
    PIECES: tl.constexpr,
):
    """Grid (samples·L,)."""
    sample, k = tl.load(samples + tl.program_id(0) // length).to(tl.int64), tl.program_id(0) % length
    row = sample * length + k
    arena = classes + tl.load(class_base + sample)
    programme = programmes + tl.load(programme_base + sample)
    # As many header fields as possible are read together.
    n, n_groups, n_states = tl.load(arena + N_CLASSES), tl.load(arena + N_GROUPS), tl.load(programme + N_STATES)
    spread_tree = field(arena, SPREAD_TREE)
    log_p, unchanged = tl.load(log_p_language + sample), -tl.load(log_norm + row)
    grouped += row * group_nodes
    share += row * pair_nodes
    spread += row * spread_nodes
    if not SHARED:
        at = sample * (length + 1) + k
        alpha += at * alpha_nodes
        beta += (at + 1) * beta_nodes
        factor = _factor(alpha, alpha + alpha_nodes, beta, n_states, PIECES)
        add_up_pairs(programme, alpha, beta, alpha + alpha_nodes, share, factor, False, PIECES)
    total = tl.zeros((PIECES,), tl.float64)
    for start in range(0, n_groups, PIECES):
        g = start + tl.arange(0, PIECES)
        part = tl.load(share + g, mask=g < n_groups, other=0.0)
        total += part * tl.load(grouped + g, mask=g < n_groups, other=0.0)
    norm = tl.sum(total, axis=0)
    add_up_array(arena, spread_tree, share, spread, PIECES)
    possible = (log_p > -INFINITY) & (norm > 0)
    log_total = tl.log(tl.where(norm > 0, norm, 1.0))
    for start in range(0, n, PIECES):
        c = start + tl.arange(0, PIECES)
        w = tl.load(weight + row * class_nodes + c, mask=c < n, other=0.0)
        part = tl.load(spread + c, mask=c < n, other=0.0)
        has_mass = (w > 0) & (part > 0)
        log_mass = tl.log(tl.where(has_mass, w, 1.0)) + tl.log(tl.where(has_mass, part, 1.0)) - log_total
        log_sum = tl.load(class_log + row * class_nodes + c, mask=c < n, other=0.0)
        value = tl.where(has_mass, log_mass - log_sum, -INFINITY)
        _store_bias(bias, rest, row * n_classes + c, tl.where(possible, value, unchanged), c < n)


@triton.jit(do_not_specialize=SIZES)
def path_bias(
    path,  # (B, L), int32: the groups along a path
    classes,
    class_base,  # (B,)
    grouped,  # (B, L, group nodes): logarithms with LOG_GROUPS
    class_log,  # (B, L, class nodes)
    weight,  # (B, L, class nodes)
    log_norm,  # (B, L)
    log_p_language,  # (B,)
    bias,  # (B, L, C), out
    rest,  # (B, L, C), out
    length,
    group_nodes,
    class_nodes,
    n_classes,
    LOG_GROUPS: tl.constexpr,
    PIECES: tl.constexpr,
):
    """Like `posterior`, given one path. Grid (B·L,)."""
    row = tl.program_id(0).to(tl.int64)
    sample = row // length
    arena = classes + tl.load(class_base + sample)
    possible = tl.load(log_p_language + sample) > -INFINITY
    unchanged = -tl.load(log_norm + row)
    n = tl.load(arena + N_CLASSES)
    for start in range(0, n, PIECES):
        c = start + tl.arange(0, PIECES)
        value = tl.where(possible, -INFINITY, unchanged)
        _store_bias(bias, rest, row * n_classes + c, tl.zeros((PIECES,), tl.float64) + value, c < n)
    tl.debug_barrier()
    if possible:
        g = tl.load(path + row)
        chosen = tl.load(grouped + row * group_nodes + g)
        if not LOG_GROUPS:
            chosen = tl.log(chosen)
        first = tl.load(field(arena, MEMBERS_FIRST) + g)
        end = tl.load(field(arena, MEMBERS_FIRST) + g + 1)
        for start in range(first, end, PIECES):
            i = start + tl.arange(0, PIECES)
            c = tl.load(field(arena, MEMBERS) + i, mask=i < end, other=0)
            mass = tl.load(weight + row * class_nodes + c, mask=i < end, other=0.0)
            log_mass = tl.where(mass > 0, tl.log(tl.where(mass > 0, mass, 1.0)) - chosen, -INFINITY)
            log_sum = tl.load(class_log + row * class_nodes + c, mask=i < end, other=0.0)
            value = tl.where(mass > 0, log_mass - log_sum, -INFINITY)
            _store_bias(bias, rest, row * n_classes + c, value, i < end)


@triton.jit
def _scores(logits, at, mask, FROM_PROBS: tl.constexpr, ACC: tl.constexpr):
    x = tl.load(logits + at, mask=mask, other=0.0 if FROM_PROBS else -INFINITY).to(ACC)
    if FROM_PROBS:
        x = tl.where(x > 0, tl.log(tl.where(x > 0, x, 1.0)), -INFINITY)
    return x


@triton.jit(do_not_specialize=SIZES)
def marginals(
    logits,  # (B, L, V)
    classes,
    class_base,  # (B,)
    bias,  # (B, L, C)
    rest,  # (B, L, C)
    log_norm,  # (B, L)
    out,  # (B, L, V): q, or q − p with MINUS_P
    length,
    vocab,
    n_classes,
    FROM_PROBS: tl.constexpr,
    MINUS_P: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Grid (V / BLOCK, L / ROWS, B)."""
    sample = tl.program_id(2)
    arena = classes + tl.load(class_base + sample)
    v = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = v < vocab
    c = tl.load(field(arena, CLASS_OF) + v, mask=inside, other=0)
    begin = tl.program_id(1) * ROWS
    first = sample.to(tl.int64) * length + begin
    for i in range(tl.minimum(length - begin, ROWS)):
        row = first + i
        x = _scores(logits, row * vocab + v, inside, FROM_PROBS, ACC)
        large = tl.load(bias + row * n_classes + c, mask=inside, other=0.0)
        q = tl.exp((x + large) + tl.load(rest + row * n_classes + c, mask=inside, other=0.0))
        if MINUS_P:
            norm = tl.load(log_norm + row)
            large_norm = norm.to(ACC)
            q -= tl.exp((x - large_norm) - (norm - large_norm.to(tl.float64)).to(ACC))
        tl.store(out + row * vocab + v, q.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def mean_parts(
    logits,  # (B, L, V)
    classes,
    class_base,  # (B,)
    bias,  # (B, L, C)
    rest,  # (B, L, C)
    embedding,  # (V, d)
    log_p_language,  # (B,): a sample above `certain` is skipped
    parts,  # (B, splits, L, d), out
    length,
    vocab,
    n_classes,
    width,
    splits,
    certain,
    FROM_PROBS: tl.constexpr,
    PRECISION: tl.constexpr,
    ACC: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """q·E over one share of the vocabulary. Grid (splits, L / ROWS, B)."""
    sample = tl.program_id(2).to(tl.int64)
    arena = classes + tl.load(class_base + sample)
    class_of = field(arena, CLASS_OF)
    k = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    row = sample * length + k
    total = tl.zeros((ROWS, COLUMNS), ACC)
    share = tl.cdiv(tl.cdiv(vocab, BLOCK), splits) * BLOCK
    begin = tl.program_id(0) * share
    end = tl.minimum(begin + share, vocab)
    end = tl.where(tl.load(log_p_language + sample) > certain, begin, end)
    for start in range(begin, end, BLOCK):
        v = start + tl.arange(0, BLOCK)
        inside = (k < length)[:, None] & (v < vocab)[None, :]
        c = tl.load(class_of + v, mask=v < vocab, other=0)
        x = _scores(logits, row[:, None] * vocab + v[None, :], inside, FROM_PROBS, ACC)
        at = row[:, None] * n_classes + c[None, :]
        large = tl.load(bias + at, mask=inside, other=0.0)
        q = tl.exp((x + large) + tl.load(rest + at, mask=inside, other=0.0))
        e = tl.load(
            embedding + v[:, None] * width + column[None, :],
            mask=(v < vocab)[:, None] & (column < width)[None, :],
            other=0.0,
        )
        total = tl.dot(q.to(e.dtype), e, total, input_precision=PRECISION, out_dtype=ACC)
    out = (sample * splits + tl.program_id(0)) * length + k
    mask = (k < length)[:, None] & (column < width)[None, :]
    tl.store(parts + out[:, None] * width + column[None, :], total, mask=mask)


@triton.jit(do_not_specialize=SIZES)
def add_parts(
    parts,  # (B, splits, n)
    x,  # (B, n): p·E
    log_p_language,  # (B,): a sample above `certain` has x
    out,  # (B, n)
    n,
    splits,
    certain,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The sum over the shares of the vocabulary, always in the same order. Grid (n / BLOCK, B)."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sample = tl.program_id(1).to(tl.int64)
    split = tl.arange(0, SPLITS)
    at = (sample * splits + split[:, None]) * n + i[None, :]
    total = tl.sum(tl.load(parts + at, mask=(split < splits)[:, None] & (i < n)[None, :], other=0.0), axis=0)
    plain = tl.load(x + sample * n + i, mask=i < n, other=0.0).to(total.dtype)
    total = tl.where(tl.load(log_p_language + sample) > certain, plain, total)
    tl.store(out + sample * n + i, total.to(out.dtype.element_ty), mask=i < n)


@triton.jit
def _ratio(arena, bias, rest, log_norm, row, mask, n_classes):
    """q over p of the tokens of the largest class, at some positions."""
    at = row * n_classes + tl.load(arena + LARGEST)
    log_q = tl.load(bias + at, mask=mask, other=-INFINITY).to(tl.float64)
    log_q += tl.load(rest + at, mask=mask, other=0.0).to(tl.float64)
    return tl.exp(log_q + tl.load(log_norm + row, mask=mask, other=0.0))


@triton.jit(do_not_specialize=SIZES)
def differences(
    logits,  # (B, L, V)
    classes,
    class_base,  # (B,)
    bias,  # (B, L, C)
    rest,  # (B, L, C)
    log_norm,  # (B, L)
    out,  # (B, L, R), out: q − r·p of the tokens outside the largest class, whose ratio q/p is r
    length,
    vocab,
    n_classes,
    n_outside,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Grid (R / BLOCK, L / ROWS, B)."""
    sample = tl.program_id(2)
    arena = classes + tl.load(class_base + sample)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n_outside
    v = tl.load(field(arena, OUTSIDE) + i, mask=inside, other=0)
    c = tl.load(field(arena, CLASS_OF) + v, mask=inside, other=0)
    begin = tl.program_id(1) * ROWS
    first = sample.to(tl.int64) * length + begin
    for k in range(tl.minimum(length - begin, ROWS)):
        row = first + k
        x = _scores(logits, row * vocab + v, inside, False, ACC)
        large = tl.load(bias + row * n_classes + c, mask=inside, other=0.0)
        q = tl.exp((x + large) + tl.load(rest + row * n_classes + c, mask=inside, other=0.0))
        norm = tl.load(log_norm + row)
        large_norm = norm.to(ACC)
        p = tl.exp((x - large_norm) - (norm - large_norm.to(tl.float64)).to(ACC))
        ratio = _ratio(arena, bias, rest, log_norm, row, row >= 0, n_classes).to(ACC)
        tl.store(out + row * n_outside + i, (q - ratio * p).to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def mean_from_differences(
    logits,  # (B, L, V)
    classes,
    class_base,  # (B,)
    bias,  # (B, L, C)
    rest,  # (B, L, C)
    log_norm,  # (B, L)
    embedding,  # (V, d)
    log_p_language,  # (B,): a sample above `certain` has x
    x,  # (B, L, d): p·E
    out,  # (B, L, d), in: the product of the differences with their embeddings; out: q·E
    length,
    vocab,
    n_classes,
    width,
    certain,
    limit,
    PRECISION: tl.constexpr,
    ACC: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """r·p·E and the differences; q·E over all tokens where r > `limit`. Grid (d / COLUMNS, L / ROWS, B)."""
    sample = tl.program_id(2).to(tl.int64)
    arena = classes + tl.load(class_base + sample)
    class_of = field(arena, CLASS_OF)
    k = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = sample * length + k
    ratio = _ratio(arena, bias, rest, log_norm, row, k < length, n_classes)
    sure = tl.load(log_p_language + sample) > certain
    over_limit = ratio > limit  # the difference of two large numbers would lose digits
    end = tl.where(sure | (tl.max(over_limit.to(tl.int32), axis=0) == 0), 0, vocab)
    total = tl.zeros((ROWS, COLUMNS), ACC)
    for start in range(0, end, BLOCK):
        v = start + tl.arange(0, BLOCK)
        inside = (k < length)[:, None] & (v < vocab)[None, :]
        c = tl.load(class_of + v, mask=v < vocab, other=0)
        score = _scores(logits, row[:, None] * vocab + v[None, :], inside, False, ACC)
        at = row[:, None] * n_classes + c[None, :]
        large = tl.load(bias + at, mask=inside, other=0.0)
        q = tl.exp((score + large) + tl.load(rest + at, mask=inside, other=0.0))
        e = tl.load(
            embedding + v[:, None] * width + column[None, :],
            mask=(v < vocab)[:, None] & (column < width)[None, :],
            other=0.0,
        )
        total = tl.dot(q.to(e.dtype), e, total, input_precision=PRECISION, out_dtype=ACC)
    at = row[:, None] * width + column[None, :]
    mask = (k < length)[:, None] & (column < width)[None, :]
    plain = tl.load(x + at, mask=mask, other=0.0).to(ACC)
    value = ratio.to(ACC)[:, None] * plain + tl.load(out + at, mask=mask, other=0.0).to(ACC)
    value = tl.where(over_limit[:, None], total, value)
    tl.store(out + at, tl.where(sure, plain, value).to(out.dtype.element_ty), mask=mask)

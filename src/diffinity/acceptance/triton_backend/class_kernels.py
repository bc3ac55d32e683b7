"""From logits to class and group weights: one pass over the logits in their own type, then small sums in float64.

For every segment of a class the kernel stores the largest logit and the sum of exponentials relative to it. So no
logits can cause underflow, and no second pass in log space is needed.
"""

from __future__ import annotations

import triton
import triton.language as tl

from diffinity.acceptance.triton_backend.trees import (
    CLASS_TREE,
    FAN_IN,
    GROUP_TREE,
    INFINITY,
    N_CLASSES,
    N_GROUPS,
    N_TILES,
    ORDER,
    ROW_SEGMENT,
    SEGMENT_FIRST,
    SIZES,
    TILE,
    TILE_ROWS,
    TILE_WIDTH,
    USEFUL,
    add_up_array,
    destinations_of,
    entries_of,
    field,
    level_of,
)

NATS_BELOW_ONE = tl.constexpr(500.0)
NATS_ABOVE_ONE = tl.constexpr(600.0)
MOST_NATS = tl.constexpr(1e6)
BITS_OF_A_NAT = tl.constexpr(1.4426950408889634)


@triton.jit
def _read(logits, ids, mask, FROM_PROBS: tl.constexpr, ACC: tl.constexpr):
    """Scores in the accumulation type; probabilities as their logarithms."""
    x = tl.load(logits + ids, mask=mask, other=0.0 if FROM_PROBS else -INFINITY).to(ACC)
    if FROM_PROBS:
        x = tl.where(x > 0, tl.log(tl.where(x > 0, x, 1.0)), -INFINITY)
    return x


@triton.jit
def _tile_of_segments(
    arena,
    tile,
    logits,
    peaks,
    sums,
    n_rows,
    vocab,
    n_segments,
    WIDTH: tl.constexpr,
    FROM_PROBS: tl.constexpr,
    BEST: tl.constexpr,
    ACC: tl.constexpr,
):
    """Peak and sum (with BEST: peak and its token) of the segments of a tile, at each of n_rows positions."""
    rows: tl.constexpr = TILE // WIDTH
    at = tl.load(field(arena, TILE_ROWS) + tile) + tl.arange(0, rows)
    segment = tl.load(field(arena, ROW_SEGMENT) + at)
    real = segment >= 0
    begin = tl.load(field(arena, SEGMENT_FIRST) + segment, mask=real, other=0)
    end = tl.load(field(arena, SEGMENT_FIRST) + segment + 1, mask=real, other=0)
    place = begin[:, None] + tl.arange(0, WIDTH)[None, :]  # (rows, WIDTH)
    inside = place < end[:, None]
    order = field(arena, ORDER)
    ids = tl.load(order + place, mask=inside, other=0)
    for row in range(n_rows):
        x = _read(logits + row * vocab, ids, inside, FROM_PROBS, ACC)
        peak = tl.max(x, axis=1)
        out = row * n_segments + segment
        tl.store(peaks + out, peak, mask=real)
        if BEST:
            first = tl.argmax(x, axis=1)
            tl.store(sums + out, tl.load(order + begin + first, mask=real, other=0), mask=real)
        else:
            from_peak = x - tl.where(peak > -INFINITY, peak, 0.0)[:, None]
            tl.store(sums + out, tl.sum(tl.exp(from_peak), axis=1), mask=real)


@triton.jit(do_not_specialize=SIZES)
def segment_sums(
    logits,  # (B, L, V)
    classes,
    class_base,  # (B,)
    predicate,  # (B,): only samples where it is −inf are processed; used only with PREDICATE
    peaks,  # (B, L, segments), out
    sums,  # (B, L, segments), out: Σ exp(x − peak), or the token of the peak
    length,
    vocab,
    n_segments,
    ROWS: tl.constexpr,
    FROM_PROBS: tl.constexpr,
    BEST: tl.constexpr,
    PREDICATE: tl.constexpr,
    ACC: tl.constexpr,
):
    """Grid (tiles, L / ROWS, B)."""
    tile, sample = tl.program_id(0), tl.program_id(2)
    arena = classes + tl.load(class_base + sample)
    begin = tl.program_id(1) * ROWS
    n_rows = tl.minimum(length - begin, ROWS)
    offset = sample.to(tl.int64) * length + begin
    if PREDICATE:
        if tl.load(predicate + sample) > -INFINITY:
            n_rows = 0
    if tile < tl.load(arena + N_TILES):
        x, p, s = logits + offset * vocab, peaks + offset * n_segments, sums + offset * n_segments
        width = tl.load(field(arena, TILE_WIDTH) + tile)
        if width == 0:
            _tile_of_segments(arena, tile, x, p, s, n_rows, vocab, n_segments, 1, FROM_PROBS, BEST, ACC)
        elif width == 1:
            _tile_of_segments(arena, tile, x, p, s, n_rows, vocab, n_segments, 4, FROM_PROBS, BEST, ACC)
        elif width == 2:
            _tile_of_segments(arena, tile, x, p, s, n_rows, vocab, n_segments, 16, FROM_PROBS, BEST, ACC)
        elif width == 3:
            _tile_of_segments(arena, tile, x, p, s, n_rows, vocab, n_segments, 64, FROM_PROBS, BEST, ACC)
        elif width == 4:
            _tile_of_segments(arena, tile, x, p, s, n_rows, vocab, n_segments, 256, FROM_PROBS, BEST, ACC)
        else:
            _tile_of_segments(arena, tile, x, p, s, n_rows, vocab, n_segments, 1024, FROM_PROBS, BEST, ACC)


@triton.jit
def _merge(peaks, sums, index, mask):
    """Peak and sum of exponentials over the entries of each piece, in float64."""
    peak = tl.load(peaks + index, mask=mask, other=-INFINITY).to(tl.float64)
    total = tl.load(sums + index, mask=mask, other=0.0).to(tl.float64)
    top = tl.max(peak, axis=1)
    safe = tl.where(top > -INFINITY, top, 0.0)
    return top, tl.sum(total * tl.exp(peak - safe[:, None]), axis=1)


@triton.jit(do_not_specialize=SIZES)
def weigh(
    peaks,  # (B, L, segments)
    sums,  # (B, L, segments)
    classes,
    class_base,  # (B,)
    class_log,  # (B, L, class nodes), out: logarithms of the class sums, not normalised
    weight,  # (B, L, class nodes), out: class sums over the position's scale
    grouped,  # (B, L, group nodes), out: sums of weights over groups, the last is 0; with LOG_GROUPS logarithms
    log_norm,  # (B, L), out: logarithm of the sum over all tokens; 0 for probabilities
    log_scale,  # (B, L), out: logarithm of the position's scale, usually that of the largest useful class
    drift,  # (B, L), int32, out: the maximum change of masses at the position, in binary digits
    length,
    n_segments,
    class_nodes,
    group_nodes,
    FROM_PROBS: tl.constexpr,
    LOG_GROUPS: tl.constexpr,
    PIECES: tl.constexpr,
):
    """Grid (B·L,)."""
    row = tl.program_id(0).to(tl.int64)
    arena = classes + tl.load(class_base + row // length)
    # All header fields are read together: reads in sequence would take longer than the sums.
    n = tl.load(arena + N_CLASSES)
    tree, group_tree, useful = field(arena, CLASS_TREE), field(arena, GROUP_TREE), field(arena, USEFUL)
    first, end = level_of(tree, 0)
    levels = tl.load(tree)
    peaks += row * n_segments
    sums += row * n_segments
    class_log += row * class_nodes
    weight += row * class_nodes
    grouped += row * group_nodes
    for start in range(first, end, PIECES):
        piece = start + tl.arange(0, PIECES)
        inside = piece < end
        index = entries_of(arena, tree, 1, piece, inside)
        top, total = _merge(peaks, sums, index, index >= 0)
        node = destinations_of(arena, tree, piece, inside)
        tl.store(class_log + node, top, mask=inside)
        tl.store(weight + node, total, mask=inside)
    tl.debug_barrier()
    for level in range(1, levels):
        first, end = level_of(tree, level)
        for start in range(first, end, PIECES):
            piece = start + tl.arange(0, PIECES)
            inside = piece < end
            index = entries_of(arena, tree, 1, piece, inside)
            top, total = _merge(class_log, weight, index, index >= 0)
            node = destinations_of(arena, tree, piece, inside)
            tl.store(class_log + node, top, mask=inside)
            tl.store(weight + node, total, mask=inside)
        tl.debug_barrier()

    best = tl.full((PIECES,), -INFINITY, tl.float64)
    best_useful = tl.full((PIECES,), -INFINITY, tl.float64)
    least_useful = tl.full((PIECES,), INFINITY, tl.float64)
    for start in range(0, n, PIECES):
        c = start + tl.arange(0, PIECES)
        peak = tl.load(class_log + c, mask=c < n, other=-INFINITY)
        total = tl.load(weight + c, mask=c < n, other=0.0)
        log_sum = tl.where(total > 0, peak + tl.log(tl.where(total > 0, total, 1.0)), -INFINITY)
        tl.store(class_log + c, log_sum, mask=c < n)
        best = tl.maximum(best, log_sum)
        is_useful = tl.load(useful + c, mask=c < n, other=0) != 0
        best_useful = tl.maximum(best_useful, tl.where(is_useful, log_sum, -INFINITY))
        least_useful = tl.minimum(least_useful, tl.where(is_useful & (log_sum > -INFINITY), log_sum, INFINITY))
    largest, scale = tl.max(best, axis=0), tl.max(best_useful, axis=0)
    largest = tl.where(largest > -INFINITY, largest, 0.0)
    scale = tl.where(scale > -INFINITY, scale, largest)
    # If classes differ by more than float64 can represent below 1, the largest weights are far above 1 instead.
    least = tl.minimum(tl.min(least_useful, axis=0), scale)
    excess = scale - least - NATS_BELOW_ONE
    above = tl.minimum(tl.maximum(excess, 0.0), NATS_ABOVE_ONE)
    scale -= above
    nats = tl.maximum(above + tl.log(n.to(tl.float64)), tl.minimum(scale - least, MOST_NATS))
    tl.store(drift + row, (nats * BITS_OF_A_NAT).to(tl.int32) + 1)
    tl.debug_barrier()  # the loop below may have another thread layout
    relative_sum = tl.zeros((PIECES,), tl.float64)
    for start in range(0, n, PIECES):
        c = start + tl.arange(0, PIECES)
        log_sum = tl.load(class_log + c, mask=c < n, other=-INFINITY)
        relative_sum += tl.exp(log_sum - largest)
        is_useful = tl.load(useful + c, mask=c < n, other=0) != 0
        tl.store(weight + c, tl.where(is_useful, tl.exp(log_sum - scale), 0.0), mask=c < n)
    norm = 0.0 * scale
    if not FROM_PROBS:
        norm = largest + tl.log(tl.sum(relative_sum, axis=0))
    tl.store(log_norm + row, norm)
    tl.store(log_scale + row, scale - norm)
    tl.debug_barrier()
    add_up_array(arena, group_tree, weight, grouped, PIECES)
    if LOG_GROUPS:
        n_groups = tl.load(arena + N_GROUPS)
        for start in range(0, n_groups, PIECES):
            g = start + tl.arange(0, PIECES)
            total = tl.load(grouped + g, mask=g < n_groups, other=0.0)
            logarithm = tl.where(total > 0, tl.log(tl.where(total > 0, total, 1.0)), -INFINITY)
            tl.store(grouped + g, logarithm, mask=g < n_groups)
    tl.store(grouped + group_nodes - 1, -INFINITY if LOG_GROUPS else 0.0)


@triton.jit
def _best_of_pieces(arena, tree, level, from_value, from_token, value, token, PIECES: tl.constexpr):
    """One level of a tree of maxima: the value of each piece and its token (the first of equal values)."""
    first, end = level_of(tree, level)
    for start in range(first, end, PIECES):
        piece = start + tl.arange(0, PIECES)
        inside = piece < end
        index = entries_of(arena, tree, 1, piece, inside)
        x = tl.load(from_value + index, mask=index >= 0, other=-INFINITY).to(tl.float64)
        tokens = tl.load(from_token + index, mask=index >= 0, other=-1)
        top = tl.max(x, axis=1)
        place = tl.min(tl.where((x == top[:, None]) & (index >= 0), tl.arange(0, FAN_IN)[None, :], FAN_IN), axis=1)
        winner = tl.max(tl.where(tl.arange(0, FAN_IN)[None, :] == place[:, None], tokens, -1), axis=1)
        node = destinations_of(arena, tree, piece, inside)
        tl.store(value + node, top, mask=inside)
        tl.store(token + node, winner, mask=inside)
    tl.debug_barrier()


@triton.jit(do_not_specialize=SIZES)
def best_in_groups(
    peaks,  # (B, L, segments): the largest score of each segment
    tokens,  # (B, L, segments), int32: the token that has it
    classes,
    class_base,  # (B,)
    log_norm,  # (B, L)
    predicate,  # (B,): only samples where it is −inf are processed; used only with PREDICATE
    class_value,  # (B, L, class nodes), scratch
    class_token,  # (B, L, class nodes), int32, scratch
    group_value,  # (B, L, group nodes), out: log p of the most probable token, at least `floor`; the last is −inf
    group_token,  # (B, L, group nodes), int32, out
    length,
    n_segments,
    class_nodes,
    group_nodes,
    floor,
    PREDICATE: tl.constexpr,
    PIECES: tl.constexpr,
):
    """Grid (B·L,)."""
    row = tl.program_id(0).to(tl.int64)
    needed = True
    if PREDICATE:
        needed = tl.load(predicate + row // length) == -INFINITY
    if needed:
        arena = classes + tl.load(class_base + row // length)
        peaks += row * n_segments
        tokens += row * n_segments
        class_value += row * class_nodes
        class_token += row * class_nodes
        group_value += row * group_nodes
        group_token += row * group_nodes
        tree = field(arena, CLASS_TREE)
        _best_of_pieces(arena, tree, 0, peaks, tokens, class_value, class_token, PIECES)
        for level in range(1, tl.load(tree)):
            _best_of_pieces(arena, tree, level, class_value, class_token, class_value, class_token, PIECES)
        tree = field(arena, GROUP_TREE)
        _best_of_pieces(arena, tree, 0, class_value, class_token, group_value, group_token, PIECES)
        for level in range(1, tl.load(tree)):
            _best_of_pieces(arena, tree, level, group_value, group_token, group_value, group_token, PIECES)
        norm = tl.load(log_norm + row)
        n_groups = tl.load(arena + N_GROUPS)
        for start in range(0, n_groups, PIECES):
            g = start + tl.arange(0, PIECES)
            value = tl.load(group_value + g, mask=g < n_groups, other=0.0)
            tl.store(group_value + g, tl.maximum(value - norm, floor), mask=g < n_groups)
        tl.store(group_value + group_nodes - 1, -INFINITY)

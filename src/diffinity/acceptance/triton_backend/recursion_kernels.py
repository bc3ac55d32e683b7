"""The recursions of automata with many states, with the loop over positions inside the kernel.

Masses are in memory, and the arrows into a state are summed by trees (`gathered_kernels.py` has the version in
registers, for smaller automata). If the masses of all positions take too much memory, only every √L-th position is
stored, and the positions in between are computed again in the backward pass.

Masses are float64. They are rescaled by powers of two, which loses no digits, and only when they leave the range
in which a product with a weight is safe.
"""

from __future__ import annotations

import triton
import triton.language as tl

from diffinity.acceptance.triton_backend.trees import (
    IN_TREE,
    INFINITY,
    LIVE,
    N_STATES,
    OUT_TREE,
    PAIR_TREE,
    SIZES,
    add_up,
    destinations_of,
    entries_of,
    exponent_of,
    field,
    is_live,
    level_of,
    power_of_two,
)

SAFE = tl.constexpr(32)  # binary digits that masses may drift before they are rescaled
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _combine(mass, weight, MAX: tl.constexpr):
    """Mass and weight of an arrow: their product, or for the best path the sum of their logarithms."""
    if MAX:
        return mass + weight
    return mass * weight


@triton.jit
def _over_entries(x, MAX: tl.constexpr):
    if MAX:
        return tl.max(x, axis=1)
    return tl.sum(x, axis=1)


@triton.jit
def shift_for(top):
    """The exponent by which masses with maximum `top` should be divided; 0 if not necessary."""
    exponent = exponent_of(top)
    needed = (top > 0) & ((exponent < -SAFE) | (exponent > SAFE))
    return tl.where(needed, tl.minimum(tl.maximum(exponent, -1022), 1022), 0)


@triton.jit
def _rescale(row, n, shift, PIECES: tl.constexpr):
    """Divide the masses of n states by 2^shift."""
    tl.debug_barrier()
    factor = power_of_two(-shift)
    for start in range(0, n, PIECES):
        s = start + tl.arange(0, PIECES)
        tl.store(row + s, tl.load(row + s, mask=s < n, other=0.0) * factor, mask=s < n)
    tl.debug_barrier()


@triton.jit
def _ahead(arena, masses, next_masses, weight, k, n, MAX: tl.constexpr, PIECES: tl.constexpr):
    """Write the masses after k + 1 tokens (`next_masses`), from those after k tokens; return the largest."""
    none: tl.constexpr = -INFINITY if MAX else 0.0
    tree, live = field(arena, IN_TREE), field(arena, LIVE)
    top = tl.full((PIECES,), none, tl.float64)
    first, end = level_of(tree, 0)
    for start in range(first, end, PIECES):
        piece = start + tl.arange(0, PIECES)
        inside = piece < end
        node = destinations_of(arena, tree, piece, inside)
        is_state = inside & (node < n)
        allowed = is_live(live, n, k + 1, node, is_state) | (inside & (node >= n))
        tail = entries_of(arena, tree, 1, piece, allowed)
        group = entries_of(arena, tree, 2, piece, allowed)
        mass = tl.load(masses + tail, mask=tail >= 0, other=none)
        w = tl.load(weight + group, mask=tail >= 0, other=none)
        total = _over_entries(_combine(mass, w, MAX), MAX)
        tl.store(next_masses + node, total, mask=inside)
        top = tl.maximum(top, tl.where(is_state, total, none))
    tl.debug_barrier()
    for level in range(1, tl.load(tree)):
        first, end = level_of(tree, level)
        for start in range(first, end, PIECES):
            piece = start + tl.arange(0, PIECES)
            inside = piece < end
            node = destinations_of(arena, tree, piece, inside)
            is_state = inside & (node < n)
            allowed = is_live(live, n, k + 1, node, is_state) | (inside & (node >= n))
            part = entries_of(arena, tree, 1, piece, allowed)
            total = _over_entries(tl.load(next_masses + part, mask=part >= 0, other=none), MAX)
            tl.store(next_masses + node, total, mask=inside)
            top = tl.maximum(top, tl.where(is_state, total, none))
        tl.debug_barrier()
    return tl.max(top, axis=0)


@triton.jit
def _back(arena, alpha, beta, before, weight, n, PIECES: tl.constexpr):
    """Write the backward masses of position k (`before`) from those of k + 1, for states with forward mass."""
    tree = field(arena, OUT_TREE)
    top = tl.zeros((PIECES,), tl.float64)
    first, end = level_of(tree, 0)
    for start in range(first, end, PIECES):
        piece = start + tl.arange(0, PIECES)
        inside = piece < end
        node = destinations_of(arena, tree, piece, inside)
        is_state = inside & (node < n)
        reached = tl.load(alpha + node, mask=is_state, other=1.0) != 0.0
        head = entries_of(arena, tree, 1, piece, inside & reached)
        group = entries_of(arena, tree, 2, piece, inside & reached)
        mass = tl.load(beta + head, mask=head >= 0, other=0.0)
        total = tl.sum(mass * tl.load(weight + group, mask=head >= 0, other=0.0), axis=1)
        tl.store(before + node, total, mask=inside)
        top = tl.maximum(top, tl.where(is_state, total, 0.0))
    tl.debug_barrier()
    for level in range(1, tl.load(tree)):
        first, end = level_of(tree, level)
        for start in range(first, end, PIECES):
            piece = start + tl.arange(0, PIECES)
            inside = piece < end
            node = destinations_of(arena, tree, piece, inside)
            is_state = inside & (node < n)
            reached = tl.load(alpha + node, mask=is_state, other=1.0) != 0.0
            part = entries_of(arena, tree, 1, piece, inside & reached)
            total = tl.sum(tl.load(before + part, mask=part >= 0, other=0.0), axis=1)
            tl.store(before + node, total, mask=inside)
            top = tl.maximum(top, tl.where(is_state, total, 0.0))
        tl.debug_barrier()
    shift = shift_for(tl.max(top, axis=0))
    if shift != 0:
        _rescale(before, n, shift, PIECES)


@triton.jit
def _begin(arena, row, n, MAX: tl.constexpr, PIECES: tl.constexpr):
    """All mass in the start state."""
    none: tl.constexpr = -INFINITY if MAX else 0.0
    for start in range(0, n, PIECES):
        s = start + tl.arange(0, PIECES)
        is_start = is_live(field(arena, LIVE), n, 0, s, s < n)
        tl.store(row + s, tl.where(is_start, 0.0 if MAX else 1.0, none).to(tl.float64), mask=s < n)
    tl.debug_barrier()


@triton.jit
def _end(alpha, beta, n, PIECES: tl.constexpr):
    """Backward masses after the last token: 1 for accepting states that have forward mass."""
    for start in range(0, n, PIECES):
        s = start + tl.arange(0, PIECES)
        reached = tl.load(alpha + s, mask=s < n, other=0.0) != 0.0
        tl.store(beta + s, tl.where(reached, 1.0, 0.0).to(tl.float64), mask=s < n)
    tl.debug_barrier()


@triton.jit
def _total(row, n, MAX: tl.constexpr, PIECES: tl.constexpr):
    """The sum (or largest) of the masses of n states."""
    none: tl.constexpr = -INFINITY if MAX else 0.0
    total = tl.full((PIECES,), none, tl.float64)
    for start in range(0, n, PIECES):
        s = start + tl.arange(0, PIECES)
        mass = tl.load(row + s, mask=s < n, other=none)
        if MAX:
            total = tl.maximum(total, mass)
        else:
            total += mass
    if MAX:
        return tl.max(total, axis=0)
    return tl.sum(total, axis=0)


@triton.jit
def log_scales(log_scale, length):
    """The sum over positions of the logarithms of their scales."""
    total = tl.zeros((128,), tl.float64)
    for start in range(0, length, 128):
        k = start + tl.arange(0, 128)
        total += tl.load(log_scale + k, mask=k < length, other=0.0)
    return tl.sum(total, axis=0)


@triton.jit
def log_of(total, shifted, scales):
    """log P(L) from the last masses, the exponent taken out of them, and the scales of the weights."""
    safe = tl.where(total > 0, total, 1.0)
    return tl.where(total > 0, tl.log(safe) + shifted.to(tl.float64) * LN2 + scales, -INFINITY)


@triton.jit(do_not_specialize=SIZES)
def recursions(
    samples,  # the samples of this launch
    programmes,
    programme_base,  # (B,)
    grouped,  # (B, L, group nodes)
    log_scale,  # (B, L)
    predicate,  # (B,): only samples where it is −inf are processed; used only with PREDICATE
    alpha,  # (B, L+1, alpha nodes), out
    beta,  # (B, L+1, beta nodes), out
    log_p_language,  # (B,), out
    length,
    group_nodes,
    alpha_nodes,
    beta_nodes,
    BACKWARD: tl.constexpr,
    MAX: tl.constexpr,
    PREDICATE: tl.constexpr,
    PIECES: tl.constexpr,
):
    """The tier of many states. Grid (samples,)."""
    sample = tl.load(samples + tl.program_id(0)).to(tl.int64)
    steps = length
    if PREDICATE:
        steps = tl.where(tl.load(predicate + sample) > -INFINITY, 0, length)
    arena = programmes + tl.load(programme_base + sample)
    n = tl.load(arena + N_STATES)
    weights = grouped + sample * length * group_nodes
    alpha += sample * (length + 1) * alpha_nodes
    _begin(arena, alpha, n, MAX, PIECES)
    shifted = n * 0
    for k in range(steps):
        masses = alpha + k * alpha_nodes
        top = _ahead(arena, masses, masses + alpha_nodes, weights + k * group_nodes, k, n, MAX, PIECES)
        if not MAX:
            shift = shift_for(top)
            if shift != 0:
                _rescale(masses + alpha_nodes, n, shift, PIECES)
            shifted += shift
    last = alpha + length * alpha_nodes
    if steps > 0:
        scales = log_scales(log_scale + sample * length, length)
        total = _total(last, n, MAX, PIECES)
        if MAX:
            tl.store(log_p_language + sample, total + scales)
        else:
            tl.store(log_p_language + sample, log_of(total, shifted, scales))
    if PREDICATE:
        if steps == 0:
            tl.store(log_p_language + sample, -INFINITY)
    if BACKWARD:
        beta += sample * (length + 1) * beta_nodes
        _end(last, beta + length * beta_nodes, n, PIECES)
        for i in range(length):
            k = length - 1 - i
            after = beta + (k + 1) * beta_nodes
            _back(arena, alpha + k * alpha_nodes, after, after - beta_nodes, weights + k * group_nodes, n, PIECES)


@triton.jit
def add_up_pairs(arena, alpha, beta, reached, share, factor, NARROWED: tl.constexpr, PIECES: tl.constexpr):
    """share[g] = Σ over the arrows of group g of α[tail]·β[head], times a factor.

    Unless β is already NARROWED to states that have forward mass, `reached` marks these states.
    """
    tree = field(arena, PAIR_TREE)
    first, end = level_of(tree, 0)
    for start in range(first, end, PIECES):
        piece = start + tl.arange(0, PIECES)
        inside = piece < end
        tail = entries_of(arena, tree, 1, piece, inside)
        head = entries_of(arena, tree, 2, piece, inside)
        mass = factor * tl.load(alpha + tail, mask=tail >= 0, other=0.0)
        after = tl.load(beta + head, mask=tail >= 0, other=0.0)
        if not NARROWED:
            after = tl.where(tl.load(reached + head, mask=tail >= 0, other=0.0) != 0.0, after, 0.0)
        tl.store(share + destinations_of(arena, tree, piece, inside), tl.sum(mass * after, axis=1), mask=inside)
    add_up(arena, tree, share, PIECES)


@triton.jit(do_not_specialize=SIZES)
def recursions_checkpointed(
    samples,  # the samples of this launch
    programmes,
    programme_base,  # (B,)
    grouped,  # (B, L, group nodes)
    log_scale,  # (B, L)
    checkpoints,  # (N, L/stride + 1, alpha nodes), scratch: forward masses of every stride-th position
    stretch,  # (N, stride + 1, alpha nodes), scratch: forward masses of one stretch
    behind,  # (N, 2, beta nodes), scratch
    share,  # (B, L, pair nodes), out: Σ α·β over the arrows of each group
    log_p_language,  # (B,), out
    length,
    stride,
    group_nodes,
    alpha_nodes,
    beta_nodes,
    pair_nodes,
    PIECES: tl.constexpr,
):
    """The tier whose masses of all positions do not fit in memory. Grid (samples,)."""
    place = tl.program_id(0).to(tl.int64)
    sample = tl.load(samples + place).to(tl.int64)
    arena = programmes + tl.load(programme_base + sample)
    n = tl.load(arena + N_STATES)
    weights = grouped + sample * length * group_nodes
    n_stretches = (length + stride - 1) // stride
    checkpoints += place * (n_stretches + 1) * alpha_nodes
    stretch += place * (stride + 1) * alpha_nodes
    behind += place * 2 * beta_nodes
    share += sample * length * pair_nodes
    _begin(arena, checkpoints, n, False, PIECES)
    shifted = n * 0
    # First forward through all stretches, then backward; each stretch is recomputed from its checkpoint.
    for turn in range(2 * n_stretches):
        ahead = turn < n_stretches
        j = tl.where(ahead, turn, 2 * n_stretches - 1 - turn)
        begin = j * stride
        steps = tl.minimum(stride, length - begin)
        checkpoint = checkpoints + j * alpha_nodes
        _copy(checkpoint, stretch, n, PIECES)
        for i in range(steps):
            masses = stretch + i * alpha_nodes
            k = begin + i
            top = _ahead(arena, masses, masses + alpha_nodes, weights + k * group_nodes, k, n, False, PIECES)
            shift = shift_for(top)
            if shift != 0:
                _rescale(masses + alpha_nodes, n, shift, PIECES)
            shifted += tl.where(ahead, shift, 0)
        last = stretch + steps * alpha_nodes
        if ahead:
            _copy(last, checkpoint + alpha_nodes, n, PIECES)
        else:
            if begin + steps == length:
                _end(last, behind + (length % 2) * beta_nodes, n, PIECES)
            for i in range(steps):
                at = steps - 1 - i
                k = begin + at
                masses = stretch + at * alpha_nodes
                after, before = behind + ((k + 1) % 2) * beta_nodes, behind + (k % 2) * beta_nodes
                add_up_pairs(arena, masses, after, masses, share + k * pair_nodes, 1.0, True, PIECES)
                _back(arena, masses, after, before, weights + k * group_nodes, n, PIECES)
    final = checkpoints + n_stretches * alpha_nodes
    scales = log_scales(log_scale + sample * length, length)
    tl.store(log_p_language + sample, log_of(_total(final, n, False, PIECES), shifted, scales))


@triton.jit
def _copy(source, target, n, PIECES: tl.constexpr):
    tl.debug_barrier()
    for start in range(0, n, PIECES):
        s = start + tl.arange(0, PIECES)
        tl.store(target + s, tl.load(source + s, mask=s < n, other=0.0), mask=s < n)
    tl.debug_barrier()

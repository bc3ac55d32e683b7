"""The recursions of automata whose arrows fit in the registers of one program, both directions at once.

The arrows into every state are cut into pieces of eight. A piece is a row of a table that stays in registers for
all positions. A step gathers the masses of the tails through shared memory, multiplies them by weights that were
read one position ahead, and adds up. The rows of the backward direction are below those of the forward direction,
so one chain of L steps computes both.

Masses are rescaled by powers of two, which loses no digits. Finding the largest mass takes as long as a step. So
it is computed only when the masses could have drifted too far: `drift` bounds the change at one position.
"""

from __future__ import annotations

import triton
import triton.language as tl

from diffinity.acceptance.triton_backend.recursion_kernels import log_of, log_scales, shift_for
from diffinity.acceptance.triton_backend.trees import (
    FAN_IN,
    GATHERED,
    INFINITY,
    LIVE,
    N_STATES,
    SIZES,
    field,
    is_live,
    live_word,
    power_of_two,
)

FAR = tl.constexpr(400)  # binary digits that masses may drift before they are checked
LOST = tl.constexpr(1e-10)  # share of P(L) that backward masses may lose by underflow before they are recomputed


@triton.jit
def _high_word(mass):
    """The upper half of a non-negative float64: as an integer it has the same order."""
    return (mass.to(tl.int64, bitcast=True) >> 32).to(tl.int32)


@triton.jit
def _largest(drift, length):
    """The largest drift of all positions."""
    top = tl.full((128,), 1, tl.int32)
    for start in range(0, length, 128):
        k = start + tl.arange(0, 128)
        top = tl.maximum(top, tl.load(drift + k, mask=k < length, other=1))
    return tl.max(top, axis=0)


@triton.jit
def _shift(mass, rows):
    """The exponent by which to divide the masses of some rows."""
    top = tl.max(tl.where(rows, _high_word(mass), 0), axis=0)
    return shift_for((top.to(tl.int64) << 32).to(tl.float64, bitcast=True))


@triton.jit
def _advance(mass, weight, index, merge, MAX: tl.constexpr, SECOND: tl.constexpr):
    """One step of all rows: sums over pieces of arrows, then (SECOND > 1) over the pieces of each state."""
    rows: tl.constexpr = index.shape[1]
    tails = tl.reshape(tl.gather(mass, tl.reshape(index, (FAN_IN * rows,)), axis=0), (FAN_IN, rows))
    if MAX:
        part = tl.max(tails + weight, axis=0)
    else:
        part = tl.sum(tails * weight, axis=0)
    if SECOND > 1:
        flat = tl.reshape(merge, (SECOND * rows,))
        pieces = tl.reshape(tl.gather(part, flat, axis=0), (SECOND, rows))
        if MAX:
            part = tl.max(pieces, axis=0)
        else:
            part = tl.sum(pieces, axis=0)
    return part


@triton.jit(do_not_specialize=SIZES)
def recursions_gathered(
    samples,  # the samples of this launch
    programmes,
    programme_base,  # (B,)
    grouped,  # (B, L, group nodes)
    log_scale,  # (B, L)
    drift,  # (B, L), int32: the maximum change of masses at a position, in binary digits
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
    ROWS: tl.constexpr,
    SECOND: tl.constexpr,
):
    """Grid (samples,)."""
    none: tl.constexpr = -INFINITY if MAX else 0.0
    rows: tl.constexpr = 2 * ROWS if BACKWARD else ROWS
    sample = tl.load(samples + tl.program_id(0)).to(tl.int64)
    steps = length
    if PREDICATE:
        steps = tl.where(tl.load(predicate + sample) > -INFINITY, 0, length)
    arena = programmes + tl.load(programme_base + sample)
    n = tl.load(arena + N_STATES)
    live = field(arena, LIVE)
    table = field(arena, GATHERED)
    row = tl.arange(0, rows)
    entry = tl.arange(0, FAN_IN)[:, None] * (2 * ROWS) + row[None, :]  # (FAN_IN, rows): a thread has whole rows
    index = tl.load(table + entry)
    group = tl.load(table + 2 * ROWS * FAN_IN + entry)
    group = tl.where(group < 0, group_nodes - 1, group)  # the last node is no group
    merge = tl.load(table + 4 * ROWS * FAN_IN + tl.arange(0, SECOND)[:, None] * (2 * ROWS) + row[None, :])
    back = row >= ROWS
    ahead = row < ROWS
    state = tl.where(back, row - ROWS, row)
    real = state < n
    weights = grouped + sample * length * group_nodes
    alpha += sample * (length + 1) * alpha_nodes
    beta += sample * (length + 1) * beta_nodes
    every = tl.maximum(1, FAR // _largest(drift + sample * length, length))
    scales = log_scales(log_scale + sample * length, length)
    attempt = n * 0
    unfinished = True
    while unfinished:
        narrowed = real & (row >= tl.where(attempt > 0, ROWS, rows))  # to states that have forward mass
        is_start = is_live(live, n, tl.where(back, length, 0), state, real)
        reached = tl.load(alpha + length * alpha_nodes + state, mask=narrowed, other=1.0)
        mass = tl.where(is_start & (reached != 0.0), 0.0 if MAX else 1.0, none).to(tl.float64)
        tl.store(alpha + state, mass, mask=real & ahead)
        if BACKWARD:
            tl.store(beta + length * beta_nodes + state, mass, mask=real & back)
        shifted, shifted_back = n * 0, n * 0
        unseen = n * 0
        # The data of a position is read while the previous position is computed, and not used until then.
        position = tl.where(back, length - 1, 0)
        weight = tl.load(weights + position[None, :] * group_nodes + group)
        word = live_word(live, n, tl.where(back, length - 1, 1), state, real)
        reached = tl.load(alpha + (length - 1) * alpha_nodes + state, mask=narrowed, other=1.0)
        for k in range(steps):
            following = tl.minimum(k + 1, length - 1)
            position = tl.where(back, length - 1 - following, following)
            next_weight = tl.load(weights + position[None, :] * group_nodes + group)
            next_word = live_word(live, n, tl.where(back, position, position + 1), state, real)
            next_reached = tl.load(alpha + position * alpha_nodes + state, mask=narrowed, other=1.0)
            at = tl.where(back, length - 1 - k, k + 1)
            alive = ((word >> (at % 32)) & 1 != 0) & (reached != 0.0)
            mass = tl.where(alive, _advance(mass, weight, index, merge, MAX, SECOND), none)
            if not MAX:
                unseen += 1
                if unseen == every:
                    shift = _shift(mass, ahead)
                    shifted += shift
                    factor = power_of_two(-shift)
                    if BACKWARD:
                        back_shift = _shift(mass, back)
                        shifted_back += back_shift
                        factor = tl.where(back, power_of_two(-back_shift), factor)
                    mass *= factor
                    unseen *= 0
            tl.store(alpha + (k + 1) * alpha_nodes + state, mass, mask=real & ahead)
            if BACKWARD:
                tl.store(beta + (length - 1 - k) * beta_nodes + state, mass, mask=real & back)
            weight, word, reached = next_weight, next_word, next_reached
        unfinished = False
        if MAX:
            value = tl.max(mass, axis=0) + scales
        else:
            value = log_of(tl.sum(tl.where(back, 0.0, mass), axis=0), shifted, scales)
        if BACKWARD:
            backward_value = log_of(tl.sum(tl.where(back, mass, 0.0), axis=0), shifted_back, scales)
            # Masses of unreachable states may have made masses of reachable states underflow.
            unfinished = (backward_value < value - LOST) & (value > -INFINITY) & (attempt == 0)
            attempt += 1
            tl.debug_barrier()
        if PREDICATE:
            value = tl.where(steps > 0, value, -INFINITY)
        tl.store(log_p_language + sample, value)

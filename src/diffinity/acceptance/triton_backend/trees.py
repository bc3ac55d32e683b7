"""Functions that the kernels share: reading an automaton's arrays, and summing trees (see `layout.py`)."""

from __future__ import annotations

import triton
import triton.language as tl

# The header fields of `layout.py`, as constants of kernels.
N_CLASSES = tl.constexpr(0)
N_GROUPS = tl.constexpr(1)
N_TILES = tl.constexpr(2)
TILE_WIDTH = tl.constexpr(3)
TILE_ROWS = tl.constexpr(4)
ROW_SEGMENT = tl.constexpr(5)
SEGMENT_FIRST = tl.constexpr(6)
ORDER = tl.constexpr(7)
CLASS_OF = tl.constexpr(8)
CLASS_SEGMENTS = tl.constexpr(9)
USEFUL = tl.constexpr(10)
CLASS_TREE = tl.constexpr(11)
GROUP_TREE = tl.constexpr(12)
SPREAD_TREE = tl.constexpr(13)
MEMBERS_FIRST = tl.constexpr(14)
MEMBERS = tl.constexpr(15)
LARGEST = tl.constexpr(16)
OUTSIDE = tl.constexpr(17)

N_STATES = tl.constexpr(0)
LIVE = tl.constexpr(1)
GATHERED = tl.constexpr(2)
IN_TREE = tl.constexpr(3)
OUT_TREE = tl.constexpr(4)
PAIR_TREE = tl.constexpr(5)
IN_FIRST = tl.constexpr(6)
IN_TAIL = tl.constexpr(7)
IN_GROUP = tl.constexpr(8)

# Arguments that differ between automata or texts: kernels are not compiled again for their values.
SIZES = [
    "length",
    "stride",
    "k",
    "n",
    "splits",
    "predicate",
    "n_best",
    "seed",
    "n_segments",
    "n_classes",
    "n_groups",
    "n_states",
    "n_outside",
    "class_nodes",
    "group_nodes",
    "spread_nodes",
    "alpha_nodes",
    "beta_nodes",
    "pair_nodes",
]

TILE = tl.constexpr(1024)
FAN_IN = tl.constexpr(8)
INFINITY = tl.constexpr(float("inf"))
FIRST_OF_NONE = tl.constexpr(2147483647)  # the smallest place of an empty set


@triton.jit
def field(arena, number):
    """The array (or tree) that the header names, as a pointer."""
    return arena + tl.load(arena + number)


@triton.jit
def level_of(tree, level):
    """The first piece of a level, and the end of its range of pieces."""
    return tl.load(tree + 4 + 2 * level), tl.load(tree + 5 + 2 * level)


@triton.jit
def entries_of(arena, tree, slot, piece, inside):
    """The indices (slot = 1) or second indices (slot = 2) of pieces, (pieces, FAN_IN); −1 for none."""
    at = tl.load(tree + slot) + piece[:, None] * FAN_IN + tl.arange(0, FAN_IN)[None, :]
    return tl.load(arena + at, mask=inside[:, None], other=-1)


@triton.jit
def destinations_of(arena, tree, piece, inside):
    """The nodes that the results of pieces go to."""
    return tl.load(arena + tl.load(tree + 3) + piece, mask=inside, other=0)


@triton.jit
def add_up(arena, tree, nodes, PIECES: tl.constexpr):
    """The levels of a tree after the first: sums of nodes. Ends with all nodes visible to all threads."""
    tl.debug_barrier()
    for level in range(1, tl.load(tree)):
        first, end = level_of(tree, level)
        for start in range(first, end, PIECES):
            piece = start + tl.arange(0, PIECES)
            inside = piece < end
            index = entries_of(arena, tree, 1, piece, inside)
            total = tl.sum(tl.load(nodes + index, mask=index >= 0, other=0.0), axis=1)
            tl.store(nodes + destinations_of(arena, tree, piece, inside), total, mask=inside)
        tl.debug_barrier()


@triton.jit
def add_up_array(arena, tree, source, nodes, PIECES: tl.constexpr):
    """nodes[r] = the sum of `source` over the entries of row r."""
    first, end = level_of(tree, 0)
    for start in range(first, end, PIECES):
        piece = start + tl.arange(0, PIECES)
        inside = piece < end
        index = entries_of(arena, tree, 1, piece, inside)
        total = tl.sum(tl.load(source + index, mask=index >= 0, other=0.0), axis=1)
        tl.store(nodes + destinations_of(arena, tree, piece, inside), total, mask=inside)
    add_up(arena, tree, nodes, PIECES)


@triton.jit
def live_word(words, n, k, state, mask):
    """The word whose bit k % 32 says whether a state is live after k tokens."""
    return tl.load(words + (k // 32) * n + state, mask=mask, other=0)


@triton.jit
def is_live(words, n, k, state, mask):
    """Whether states are live after k tokens."""
    return ((live_word(words, n, k, state, mask) >> (k % 32)) & 1) != 0


@triton.jit
def power_of_two(exponent):
    """2 to a whole exponent between −1022 and 1023, exactly."""
    return ((exponent.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit
def exponent_of(value):
    """The exponent of the power of two at or below a positive float64, −1023 for denormal numbers and zero."""
    return (((value.to(tl.int64, bitcast=True) >> 52) & 2047) - 1023).to(tl.int32)

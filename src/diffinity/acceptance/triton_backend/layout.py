"""How an automaton is laid out for the kernels: one array of whole numbers, read by offsets from its header.

Every sum over sets of unequal size (segments of a class, classes of a group, arrows into a state) is a `tree`:
pieces of at most eight entries, whose results are entries of the next level. A thread adds up a piece in its
registers, the order does not depend on the number of threads, and no atomic operation is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diffinity.alignment.automaton import TokenAutomaton

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

FAN_IN = 8  # entries of a piece
TILE = 1024  # tokens that a program of the first pass reads at a time, and the largest segment of a class
CHUNK = 8192  # neighbouring tokens that may share a segment: their logits fit into the first-level cache
# The maximum number of pieces of arrows per direction in a program's registers, and of pieces of one state.
GATHERED_SHAPES = ((16, 1), (32, 4), (128, 4), (256, 8))
TREE_LIMIT = 1 << 17  # maximum number of states, for the largest tier
HEADER = 24
MOST_OUTSIDE = 0.75  # maximum share of the vocabulary for which tokens outside the largest class are listed
FOUR = 4  # segment widths are powers of four


class Arena:
    """Arrays concatenated in one int32 array, with their offsets in its header."""

    def __init__(self) -> None:
        self._header = np.zeros(HEADER, np.int32)
        self._parts: list[I32] = [self._header]
        self._size = HEADER

    def set(self, field: int, value: int) -> None:
        self._header[field] = value

    def put(self, field: int, array: NDArray[Any]) -> None:
        """Append the array and note its offset in the header."""
        self.set(field, self.append(array))

    def append(self, array: NDArray[Any]) -> int:
        offset = self._size
        self._parts.append(np.ascontiguousarray(array, np.int32).ravel())
        self._size += self._parts[-1].size
        return offset

    def put_tree(self, field: int, tree: Tree) -> None:
        """A block: levels; offsets of indices, second indices and destinations; the pieces of each level."""
        offsets = [self.append(tree.index), self.append(tree.second), self.append(tree.destination)]
        levels = np.ravel(list(zip(tree.levels[:-1], tree.levels[1:], strict=True)))
        self.put(field, np.concatenate([[len(tree.levels) - 1, *offsets], levels]))

    def array(self) -> I32:
        return np.concatenate(self._parts)


@dataclass(frozen=True)
class Tree:
    """Sums over rows of unequal size, piece by piece, level by level.

    Row r is node r; partial results are the nodes after the rows.
    """

    index: I32  # (pieces, FAN_IN): the entries that a piece adds up (nodes from the second level on), −1 for none
    second: I32  # (pieces of the first level, FAN_IN): the other index of an entry
    destination: I32  # (pieces,): the node that a piece's result goes to
    levels: tuple[int, ...]  # where the pieces of each level begin, and the number of pieces
    n_nodes: int


def tree_of(first: NDArray[np.integer], index: NDArray[np.integer], second: NDArray[np.integer]) -> Tree:
    """The tree over rows with the entries index[first[r]:first[r+1]] and second[first[r]:first[r+1]].

    >>> tree = tree_of(np.array([0, 2, 11]), np.arange(11), np.arange(11))
    >>> tree.levels, tree.destination.tolist(), tree.n_nodes
    ((0, 3, 4), [0, 2, 3, 1], 4)
    """
    rows = np.arange(len(first) - 1)
    n_nodes, levels = len(rows), [0]
    indices: list[I32] = []
    destinations: list[I32] = []
    starts: I64 = np.asarray(first[:-1], np.int64)
    sizes: I64 = np.asarray(first[1:], np.int64) - starts
    entries, second_entries = np.asarray(index, np.int32), np.asarray(second, np.int32)
    seconds = np.zeros(0, np.int32)
    while len(rows) or not indices:
        pieces = np.maximum(1, -(-sizes // FAN_IN))
        piece_first = np.cumsum(pieces) - pieces
        n_pieces = int(pieces.sum())
        row_of_entry = np.repeat(np.arange(len(rows)), sizes)
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        source = starts[row_of_entry] + within
        at = piece_first[row_of_entry] * FAN_IN + within
        padded = np.full(n_pieces * FAN_IN, -1, np.int32)
        padded[at] = entries[source]
        if not indices:
            seconds = np.zeros_like(padded)
            seconds[at] = second_entries[source]
        indices.append(padded)
        is_complete = pieces == 1
        destination = np.repeat(rows, pieces)
        partial = np.repeat(~is_complete, pieces)
        destination[partial] = n_nodes + np.arange(int(partial.sum()))
        destinations.append(destination.astype(np.int32))
        levels.append(levels[-1] + n_pieces)
        rows, sizes = rows[~is_complete], pieces[~is_complete]
        starts, entries = np.cumsum(sizes) - sizes, destination[partial].astype(np.int32)
        n_nodes += int(partial.sum())
    return Tree(np.concatenate(indices), seconds, np.concatenate(destinations), tuple(levels), n_nodes)


@dataclass(frozen=True)
class ClassLayout:
    """The tokens of each class and the classes of each group: the same for all lengths and windows."""

    arena: I32
    n_tiles: int
    n_segments: int
    class_nodes: int
    group_nodes: int
    spread_nodes: int
    n_groups: int
    n_classes: int
    vocab: int
    n_outside: int  # number of tokens outside the largest class; 0 if there are too many to list


# Fields of the header of a ClassLayout; `trees.py` has the same numbers.
N_CLASSES, N_GROUPS, N_TILES, TILE_WIDTH, TILE_ROWS, ROW_SEGMENT, SEGMENT_FIRST = 0, 1, 2, 3, 4, 5, 6
ORDER, CLASS_OF, CLASS_SEGMENTS, USEFUL, CLASS_TREE, GROUP_TREE, SPREAD_TREE, MEMBERS_FIRST, MEMBERS = range(7, 16)
LARGEST, OUTSIDE = 16, 17


def class_layout(automaton: TokenAutomaton) -> ClassLayout:
    """The layout of an automaton's classes and groups.

    A class is cut into segments: at most `TILE` tokens of one chunk of neighbours. A program of the first pass
    reads a tile: segments of similar width, `TILE` tokens in total.
    """
    order, first = automaton.tokens_by_class
    segment_first, class_segments = _segments(order, first)
    sizes = np.diff(segment_first)
    width = np.ceil(np.log(np.maximum(sizes, 1)) / np.log(FOUR) - 1e-9).astype(np.int64)
    tile_width: list[int] = []
    tile_segments: list[I32] = []
    for w in range(width.max() + 1):
        members = np.flatnonzero(width == w)
        members = members[np.argsort(order[segment_first[members]], kind="stable")]  # neighbouring tokens together
        rows = TILE // FOUR**w
        for i in range(0, len(members), rows):
            tile = np.full(rows, -1, np.int32)
            tile[: len(members[i : i + rows])] = members[i : i + rows]
            tile_width.append(w)
            tile_segments.append(tile)
    edges = automaton.edges
    n_classes, n_groups = automaton.n_classes, edges.n_groups
    classes = tree_of(class_segments, np.arange(len(sizes)), np.arange(len(sizes)))
    groups = tree_of(edges.members_first, edges.members, edges.members)
    group_of_member = np.repeat(np.arange(n_groups), np.diff(edges.members_first))
    by_class = np.argsort(edges.members, kind="stable")
    spread_first = np.searchsorted(edges.members[by_class], np.arange(n_classes + 1))
    spread = tree_of(spread_first, group_of_member[by_class], group_of_member[by_class])
    arena = Arena()
    for field, value in ((N_CLASSES, n_classes), (N_GROUPS, n_groups), (N_TILES, len(tile_width))):
        arena.set(field, value)
    arena.put(TILE_WIDTH, np.array(tile_width))
    arena.put(TILE_ROWS, np.cumsum([0, *(len(rows) for rows in tile_segments)]))
    arena.put(ROW_SEGMENT, np.concatenate(tile_segments))
    arena.put(SEGMENT_FIRST, segment_first)
    arena.put(ORDER, order)
    arena.put(CLASS_OF, automaton.class_of)
    arena.put(CLASS_SEGMENTS, class_segments)
    arena.put(USEFUL, automaton.useful)
    arena.put_tree(CLASS_TREE, classes)
    arena.put_tree(GROUP_TREE, groups)
    arena.put_tree(SPREAD_TREE, spread)
    arena.put(MEMBERS_FIRST, edges.members_first)
    arena.put(MEMBERS, edges.members)
    largest = int(np.diff(first).argmax())
    outside = np.flatnonzero(automaton.class_of != largest)
    outside = outside[: len(outside) if len(outside) <= MOST_OUTSIDE * automaton.vocab_size else 0]
    arena.set(LARGEST, largest)
    arena.put(OUTSIDE, outside)
    return ClassLayout(
        arena.array(),
        len(tile_width),
        len(sizes),
        classes.n_nodes,
        max(1, groups.n_nodes),
        spread.n_nodes,
        n_groups,
        n_classes,
        automaton.vocab_size,
        len(outside),
    )


def _segments(order: I64, first: I64) -> tuple[I64, I64]:
    """The first token of each segment (N+1,), in order of classes; the first segment of each class (C+1,)."""
    starts = np.zeros(len(order), np.bool_)
    starts[first[:-1][first[:-1] < len(order)]] = True
    starts[1:] |= np.diff(order // CHUNK) != 0
    begin = np.flatnonzero(starts)
    sizes = np.diff(np.append(begin, len(order)))
    parts = -(-sizes // TILE)
    within = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
    segment_first = np.append(np.repeat(begin, parts) + TILE * within, len(order))
    return segment_first, np.searchsorted(segment_first[:-1], first)


@dataclass(frozen=True)
class ProgrammeLayout:
    """The states that a text of one length can reach, and the arrows between them."""

    arena: I32
    n_states: int
    n_pairs: int
    alpha_nodes: int
    beta_nodes: int
    pair_nodes: int
    in_pieces: int
    levels: int  # of the deeper one of the two trees of the recursions
    gathered: tuple[int, int] | None  # the first of `GATHERED_SHAPES` that its arrows fit into


# Fields of the header of a ProgrammeLayout; `trees.py` has the same numbers.
N_STATES, LIVE, GATHERED, IN_TREE, OUT_TREE, PAIR_TREE, IN_FIRST, IN_TAIL, IN_GROUP = range(9)


def programme_layout(automaton: TokenAutomaton, length: int) -> ProgrammeLayout:
    """The layout of the programme over texts of `length` tokens, without unreachable states."""
    live = automaton.live(length)
    reachable = np.flatnonzero(live.any(axis=0))
    # States of similar positions are next to each other.
    reachable = reachable[np.argsort(live[:, reachable].argmax(axis=0), kind="stable")]
    number = np.full(automaton.n_states, -1, np.int64)
    number[reachable] = np.arange(len(reachable))
    edges = automaton.edges
    between = np.flatnonzero((number[edges.tail] >= 0) & (number[edges.head] >= 0))
    tail, head = number[edges.tail[between]], number[edges.head[between]]
    group = edges.group[between].astype(np.int64)
    n, states = len(reachable), np.arange(len(reachable) + 1)
    by_head, by_tail = np.lexsort((tail, group, head)), np.lexsort((head, group, tail))
    by_group = np.lexsort((head, tail, group))
    in_first = np.searchsorted(head[by_head], states)
    into = tree_of(in_first, tail[by_head], group[by_head])
    out_first = np.searchsorted(tail[by_tail], states)
    out = tree_of(out_first, head[by_tail], group[by_tail])
    group_first = np.searchsorted(group[by_group], np.arange(edges.n_groups + 1))
    pairs = tree_of(group_first, tail[by_group], head[by_group])
    arena = Arena()
    arena.set(N_STATES, n)
    arena.put(LIVE, _bits(live[:, reachable]))
    gathered = _gathered_shape(in_first, out_first)
    if gathered is not None:
        arena.put(GATHERED, _gathered_table([(in_first, into), (out_first, out)], *gathered))
    arena.put_tree(IN_TREE, into)
    arena.put_tree(OUT_TREE, out)
    arena.put_tree(PAIR_TREE, pairs)
    arena.put(IN_FIRST, in_first)
    arena.put(IN_TAIL, tail[by_head])
    arena.put(IN_GROUP, group[by_head])
    return ProgrammeLayout(
        arena.array(),
        n,
        len(tail),
        max(1, into.n_nodes),
        max(1, out.n_nodes),
        max(1, pairs.n_nodes),
        into.levels[1],
        max(len(into.levels), len(out.levels)) - 1,
        gathered,
    )


def _pieces(first: NDArray[np.integer]) -> I64:
    """The number of pieces of the entries first[r]:first[r+1] of each row."""
    return np.maximum(1, -(-np.diff(first) // FAN_IN))


def _gathered_shape(*firsts: NDArray[np.integer]) -> tuple[int, int] | None:
    """The first of `GATHERED_SHAPES` that the pieces of both directions fit into."""
    pieces = [_pieces(first) for first in firsts]
    total, most = (
        max(int(value) for value in values)
        for values in zip(*((p.sum(), p.max(initial=1)) for p in pieces), strict=True)
    )
    return next((shape for shape in GATHERED_SHAPES if total < shape[0] and most <= shape[1]), None)


def _gathered_table(directions: Sequence[tuple[NDArray[np.integer], Tree]], rows: int, second: int) -> I32:
    """Indices of masses (FAN_IN, 2, rows), groups of the same shape, pieces of states (second, 2, rows).

    A missing group is −1. The last row is empty: it represents missing pieces of a state.
    """
    index = np.zeros((FAN_IN, 2, rows), np.int32)
    group = np.full((FAN_IN, 2, rows), -1, np.int32)
    merge = np.full((second, 2, rows), rows - 1, np.int32)
    for d, (first, tree) in enumerate(directions):
        pieces, n = _pieces(first), tree.levels[1]
        entries = tree.index[: n * FAN_IN].reshape(n, FAN_IN)
        index[:, d, :n] = np.maximum(entries, 0).T + d * rows
        group[:, d, :n] = np.where(entries >= 0, tree.second.reshape(n, FAN_IN), -1).T
        row = np.repeat(np.arange(len(pieces)), pieces)
        within = np.arange(n) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        merge[within, d, row] = np.arange(n) + d * rows
    return np.concatenate([index.ravel(), group.ravel(), merge.ravel()])


def _bits(live: NDArray[np.bool_]) -> I32:
    """(ceil((L+1)/32), S): bit k % 32 of word k // 32 says whether a state is live after k tokens."""
    n_words = -(-live.shape[0] // 32)
    padded = np.zeros((n_words * 32, live.shape[1]), np.uint32)
    padded[: live.shape[0]] = live
    shifts = np.arange(32, dtype=np.uint32)[None, :, None]
    words = (padded.reshape(n_words, 32, -1) << shifts).sum(axis=1, dtype=np.uint32)
    return words.view(np.int32)

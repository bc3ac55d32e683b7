"""From characters to bytes: a table over character classes becomes an automaton over UTF-8.

The classes of all characters form a tree over the bytes of UTF-8, in which equal parts are shared. A byte state is
a pair (node, the target of each class below it); byte states with equal edges are merged. If the table is minimal,
so is the result, and no minimisation is needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diffinity.constraints import kernels
from diffinity.constraints.codepoints import LAST, Alphabet
from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.kernels import DONE, GROW_EDGES, GROW_STATES, I32, I64, TICK, Bools
from diffinity.constraints.minimise import CHUNK, Machine, join_classes, renumber, settle
from diffinity.limits import Budget

DOING = "writing the automaton over UTF-8 bytes"
NONE = kernels.NONE
EMPTY_ROW = np.full(64, NONE, np.int32).tobytes()


class Tree(NamedTuple):
    """The tree of classes. Nodes are numbered children first; a child of a level-1 node is a class.

    Nodes 0, 1 and 2 are any one, two or three continuation bytes that all lead to one state.
    """

    child_first: I64  # (nodes + 1,)
    child_byte: I32  # byte class of each child
    child: I32  # node, or class below a level-1 node
    level: I32  # (nodes,) remaining continuation bytes
    label_first: I64  # (nodes + 1,)
    labels: I32  # the classes below each node
    full: Bools  # (nodes,) no byte is missing below
    root_byte: I32  # byte classes that begin a character
    root_child: I32  # the child: class (level 0) or node
    root_is_label: Bools
    byte_class: I32  # (256,)
    continuation: I32  # byte classes of 0x80 … 0xBF


def class_tree(alphabet: Alphabet) -> Tree:
    """The tree of an alphabet's classes over UTF-8.

    >>> import numpy as np
    >>> tree = class_tree(Alphabet(np.array([0, 128]), np.array([0, 1], np.int32), 2))
    >>> tree.level.max()
    np.int32(3)
    """
    starts, label = alphabet.starts, alphabet.label
    rows: list[I32] = []  # (64,) children of each node
    levels: list[int] = []
    node_of_row: dict[tuple[int, bytes], int] = {}

    def intern(level: int, row: I32) -> int:
        key = (level, row.tobytes())
        if key[1] == EMPTY_ROW:
            return NONE
        if key not in node_of_row:
            node_of_row[key] = len(rows) + 3
            rows.append(row)
            levels.append(level)
        return node_of_row[key]

    # Level 1: 64 characters that share all but the last byte. Most such blocks lie within one interval.
    block = np.arange(0, LAST + 1, 64)
    first = np.searchsorted(starts, block, "right") - 1
    last = np.searchsorted(starts, block + 63, "right") - 1
    within = np.unique(label[first[2:][first[2:] == last[2:]]])
    plain = {int(c): intern(1, np.full(64, c, np.int32)) for c in within}
    uniform_node = np.array([plain.get(c, NONE) for c in range(-1, alphabet.n_labels)], np.int32)
    level_1 = uniform_node[label[first] + 1]
    level_1[:2] = NONE  # ASCII has no continuation bytes
    for i in (2 + np.flatnonzero(first[2:] != last[2:])).tolist():
        row = label[np.searchsorted(starts, np.arange(64 * i, 64 * i + 64), "right") - 1]
        level_1[i] = intern(1, row)
    two_bytes = level_1[2:32].copy()
    level_1[:32] = NONE  # below U+0800: overlong in three bytes
    level_2 = np.array([intern(2, row) for row in level_1.reshape(-1, 64)], np.int32)  # 4096 characters each
    level_3 = np.full(5 * 64, NONE, np.int32)
    level_3[: level_2.shape[0]] = level_2
    level_3[:16] = NONE  # below U+10000: overlong in four bytes
    lead = np.full(256, NONE, np.int32)
    lead[:128] = label[np.searchsorted(starts, np.arange(128), "right") - 1]
    lead[0xC2:0xE0] = two_bytes
    lead[0xE0:0xF0] = level_2[:16]
    lead[0xF0:0xF5] = [intern(3, row) for row in level_3.reshape(5, 64)]
    return _packed(rows, levels, lead)


def _packed(rows: list[I32], levels: list[int], lead: I32) -> Tree:
    """The tree as flat arrays over byte classes."""
    below = np.array(rows, np.int32).reshape(-1, 64)  # (nodes, 64)
    # Bytes that lead to the same target from every node are one class: their columns are equal.
    columns: dict[bytes | tuple[bool, int], int] = {}
    byte_class = np.empty(256, np.int32)
    transposed = np.ascontiguousarray(below.T)  # (64, nodes)
    leads = lead.tolist()
    for byte in range(256):
        within = 0x80 <= byte < 0xC0
        key = transposed[byte - 0x80].tobytes() if within else (byte < 0x80, leads[byte])
        byte_class[byte] = columns.setdefault(key, len(columns))
    continuation, representative = np.unique(byte_class[0x80:0xC0], return_index=True)
    child_rows = below[:, representative]  # (nodes, continuation classes)
    labels: list[set[int]] = [set(), set(), set()]
    full = [True, True, True]
    child_byte: list[I32] = [np.empty(0, np.int32)] * 3
    child: list[I32] = [np.empty(0, np.int32)] * 3
    for row, level in zip(child_rows, levels, strict=True):
        present = row != NONE
        child_byte.append(continuation[present].astype(np.int32))
        child.append(row[present])
        targets = {*row[present].tolist()}
        labels.append(targets if level == 1 else set().union(*(labels[t] for t in targets)))
        full.append(bool(present.all()) and (level == 1 or all(full[t] for t in targets)))
    root_bytes, at = np.unique(byte_class, return_index=True)
    rooted = (lead[at] != NONE) & ((at < 0x80) | (at >= 0xC0))
    return Tree(
        _firsts(child), np.concatenate(child_byte), np.concatenate(child),
        np.array([1, 2, 3, *levels], np.int32),
        _firsts(labels), np.array([c for s in labels for c in sorted(s)], np.int32),
        np.array(full, np.bool_),
        root_bytes[rooted].astype(np.int32), lead[at[rooted]], at[rooted] < 0x80,
        byte_class, continuation.astype(np.int32),
    )  # fmt: skip


def _firsts(parts: list[I32] | list[set[int]]) -> I64:
    return np.cumsum([0, *map(len, parts)], dtype=np.int64)


def to_bytes(machine: Machine, alphabet: Alphabet, budget: Budget) -> ByteDFA:
    """The minimal byte automaton of a minimal machine whose labels are the alphabet's classes.

    >>> import numpy as np
    >>> from diffinity.limits import Limits
    >>> one = Machine(np.array([[1], [-1]], np.int32), np.array([False, True]))
    >>> only_e_acute = Alphabet(np.array([0, 233, 234]), np.array([-1, 0, -1], np.int32), 1)
    >>> to_bytes(one, only_e_acute, Budget(Limits())).shortest()
    b'\\xc3\\xa9'
    """
    tree = class_tree(alphabet)
    if tree.root_is_label.all():
        return _of_ascii(machine, tree, budget)
    n, n_nodes = machine.table.shape[0], tree.level.shape[0]
    buffers = _Buffers(n, budget)
    local = np.full(n_nodes, NONE, np.int32)
    ctl = np.array([n, 0, 0, 0, CHUNK], np.int64)
    table = machine.table.copy()
    arrays = (*tree[:10], tree.continuation)
    while True:
        status = kernels.expand(
            table, arrays, local, buffers.uniform, buffers.keys, buffers.states, buffers.edges, ctl
        )
        settle(ctl, budget, DOING)
        if status == DONE:
            break
        if status != TICK:
            buffers.grow(status, ctl)
    n_states, n_edges = int(ctl[0]), int(ctl[2])
    n_classes = int(tree.byte_class.max()) + 1
    budget.check("dfa_states", n_states, DOING)
    budget.check("table_entries", n_states * n_classes, DOING)
    wide = np.full((n_states, n_classes), NONE, np.int32)
    tail, label, head = (part[:n_edges] for part in buffers.edges)
    wide[tail, label] = head
    accepting = np.zeros(n_states, np.bool_)
    accepting[:n] = machine.accepting
    classes, narrow = join_classes(wide, tree.byte_class)
    return ByteDFA(classes.astype(np.uint8), *renumber(Machine(narrow, accepting), 0))


def _of_ascii(machine: Machine, tree: Tree, budget: Budget) -> ByteDFA:
    """Like `to_bytes` if every character is one byte: the states do not change."""
    n, n_classes = machine.table.shape[0], int(tree.byte_class.max()) + 1
    budget.check("dfa_states", n, DOING)
    budget.check("table_entries", n * n_classes, DOING)
    wide = np.full((n, n_classes), NONE, np.int32)
    wide[:, tree.root_byte] = machine.table[:, tree.root_child]
    classes, narrow = join_classes(wide, tree.byte_class)
    return ByteDFA(classes.astype(np.uint8), *renumber(Machine(narrow, machine.accepting), 0))


class _Buffers:
    """The arrays that grow during the construction, within the budget."""

    def __init__(self, n: int, budget: Budget) -> None:
        self.budget = budget
        states, keys, edges = min(4 * n + 256, budget.limits.dfa_states + 1024), 1024, 16 * n + 4096
        self.uniform: I32 = np.full((3, n), NONE, np.int32)  # [k, t]: any k+1 continuation bytes, then state t
        self.keys: kernels.Keys = (
            np.zeros(keys, np.uint64), np.zeros(keys + 1, np.int64), np.zeros(keys, np.int32),
            np.zeros(keys, np.int32), np.zeros(8 * keys, np.int32), _slots(keys),
        )  # fmt: skip
        self.states: kernels.States = (np.zeros(states, np.uint64), np.zeros(states, np.int64), _slots(states))
        self.edges: kernels.Edges = (
            np.zeros(edges, np.int32), np.zeros(edges, np.int32), np.zeros(edges, np.int32),
        )  # fmt: skip

    def grow(self, status: int, ctl: I64) -> None:
        """Double the arrays that are full: the states, the edges, or the keys."""
        if status == GROW_STATES:
            self.budget.check("dfa_states", int(ctl[0]), DOING)
            codes, first, _ = self.states
            size = min(2 * codes.shape[0], self.budget.limits.dfa_states + 1024)
            self.states = (np.resize(codes, size), np.resize(first, size), _slots(size))
            # The states of the table (code 0) and the uniform states are looked up without hashing.
            kernels.rehash(self.states[0], int(ctl[0]), self.states[2])
            return
        codes, first, node, state, pool, _ = self.keys
        self.budget.check("table_entries", int(ctl[2]), DOING)
        # At most two old copies and one new copy exist at the same time.
        foreseen = 3 * (3 * self.edges[0].nbytes + pool.nbytes + 6 * codes.nbytes)
        self.budget.check("memory_bytes", foreseen, DOING)
        if status == GROW_EDGES:
            a, b, c = (np.resize(part, 2 * part.shape[0]) for part in self.edges)
            self.edges = (a, b, c)
            return
        size = 2 * codes.shape[0]
        self.keys = (
            np.resize(codes, size), np.resize(first, size + 1), np.resize(node, size), np.resize(state, size),
            np.resize(pool, 2 * pool.shape[0]), _slots(size),
        )  # fmt: skip
        kernels.rehash(self.keys[0], int(ctl[3]), self.keys[5])


def _slots(size: int) -> I32:
    return np.full(1 << (2 * size).bit_length(), NONE, np.int32)

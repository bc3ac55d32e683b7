"""From a list of transitions to the trimmed, minimal, canonically numbered table of its language."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from diffinity.constraints import kernels
from diffinity.constraints.kernels import I32, I64, Bools
from diffinity.constraints.kernels.refine import FIRST, LOCATION, PAST, SET
from diffinity.limits import OPERATION_STEPS, Budget

CHUNK = 4_000_000  # kernel steps between two reports to the budget: about 20 ms
DOING = "minimising the automaton"


class Edges(NamedTuple):
    """A deterministic machine as transitions: state `tail[i]` goes to `head[i]` on `label[i]`."""

    tail: I32
    label: I32
    head: I32


class Machine(NamedTuple):
    """A deterministic table over labels: start state 0, -1 for no transition."""

    table: I32  # (states, labels)
    accepting: Bools


def edges_of(table: I32) -> Edges:
    """The transitions of a table, in row order.

    >>> edges_of(np.array([[1, -1], [-1, 0]], np.int32)).head.tolist()
    [1, 0]
    """
    tail, label = np.nonzero(table >= 0)
    return Edges(tail.astype(np.int32), label.astype(np.int32), table[tail, label])


def minimise(edges: Edges, accepting: Bools, start: int, n_labels: int, budget: Budget) -> Machine:
    """Trim, merge equivalent states, and number the rest breadth first over the labels.

    The empty language is returned as one state that does not accept.

    >>> from diffinity.limits import Limits
    >>> twice = Edges(*np.array([[0, 0], [0, 1], [1, 2]], np.int32))   # a|b with two final states
    >>> minimise(twice, np.array([False, True, True]), 0, 2, Budget(Limits())).table.tolist()
    [[1, 1], [-1, -1]]
    """
    n, m = accepting.shape[0], edges.tail.shape[0]
    # Six int32 arrays per transition, four per state, and the sorted copies.
    budget.check("memory_bytes", 44 * m + 48 * n, DOING)
    budget.spend(OPERATION_STEPS + 30 * (m + n), DOING)
    useful = _useful(edges, accepting, start)
    if not useful[start]:
        return Machine(np.full((1, n_labels), -1, np.int32), np.zeros(1, np.bool_))
    number = np.cumsum(useful, dtype=np.int32) - 1
    number = number.astype(np.int32)
    on_a_path = useful[edges.tail] & useful[edges.head]
    edges = Edges(number[edges.tail[on_a_path]], edges.label[on_a_path], number[edges.head[on_a_path]])
    accepting = accepting[useful]
    block = _blocks(edges, accepting, n_labels, budget)
    n_blocks = int(block.max()) + 1
    budget.check("table_entries", n_blocks * n_labels, "the minimal automaton")
    table = np.full((n_blocks, n_labels), -1, np.int32)
    table[block[edges.tail], edges.label] = block[edges.head]
    final = np.zeros(n_blocks, np.bool_)
    final[block] = accepting
    return renumber(Machine(table, final), int(block[number[start]]))


def renumber(machine: Machine, start: int) -> Machine:
    """Number the states breadth first from `start`, over the labels in their order."""
    order = kernels.breadth_first(machine.table, start)
    rank = np.empty(order.shape[0] + 1, np.int32)
    rank[order] = np.arange(order.shape[0], dtype=np.int32)
    rank[-1] = -1
    return Machine(np.ascontiguousarray(rank[machine.table[order]]), machine.accepting[order])


def _useful(edges: Edges, accepting: Bools, start: int) -> Bools:
    """The states on some path from `start` to acceptance."""
    n = accepting.shape[0]
    forward = np.zeros(n, np.bool_)
    forward[start] = True
    kernels.reach(*kernels.group_by(edges.tail, n), edges.head, forward)
    backward = accepting.copy()
    kernels.reach(*kernels.group_by(edges.head, n), edges.tail, backward)
    return forward & backward


def _blocks(edges: Edges, accepting: Bools, n_labels: int, budget: Budget) -> I32:
    """The equivalence class of each state; every state must be useful."""
    n, m = accepting.shape[0], edges.tail.shape[0]
    if m == 0:
        return np.zeros(n, np.int32)
    final = int(accepting.sum())
    block = _partition(np.argsort(~accepting, kind="stable").astype(np.int32), [0, final, n])
    in_first, order = kernels.group_by(edges.head, n)
    tail, label = edges.tail[order], edges.label[order]
    by_label, order = kernels.group_by(label, n_labels)
    cord = _partition(order, by_label.tolist())
    n_blocks = 2 if 0 < final < n else 1
    # Blocks start at 1: splitting by all but one of the first blocks is enough.
    ctl = np.array([n_blocks, len({*by_label.tolist()}) - 1, 1, 0, CHUNK], np.int64)
    while kernels.refine(tail, in_first, block, cord, ctl) == kernels.TICK:
        settle(ctl, budget, DOING)
    settle(ctl, budget, DOING)
    return np.ascontiguousarray(block[1][:, SET])


def settle(ctl: I64, budget: Budget, doing: str) -> None:
    """Charge the steps that a kernel subtracted from the last entry of `ctl`, and refill it."""
    steps = CHUNK - int(ctl[-1])
    ctl[-1] = CHUNK
    budget.spend(steps, doing)


def _partition(element: I32, bounds: list[int]) -> tuple[I32, I32, I32]:
    """The arrays of a refinable partition whose sets are element[bounds[i]:bounds[i+1]], without empty sets."""
    n = element.shape[0]
    sizes = [high - low for low, high in pairwise(bounds) if high > low]
    place = np.empty((n, 2), np.int32)
    place[element, LOCATION] = np.arange(n, dtype=np.int32)
    place[element, SET] = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    sets = np.zeros((n + 1, 4), np.int32)
    ends = np.cumsum(sizes)
    sets[: len(sizes), PAST] = ends
    sets[1 : len(sizes), FIRST] = ends[:-1]
    return element.copy(), place, sets


def join_classes(table: I32, byte_class: I64 | I32) -> tuple[I32, I32]:
    """Merge bytes with equal columns into one class, numbered by first byte; returns the new classes and table.

    >>> classes, table = join_classes(np.array([[0, -1, 0]], np.int32), np.arange(256) % 3)
    >>> classes[:4].tolist(), table.tolist()
    ([0, 1, 0, 0], [[0, -1]])
    """
    columns = np.ascontiguousarray(table.T)
    by_content: dict[bytes, int] = {}
    alias = np.array([by_content.setdefault(column.tobytes(), i) for i, column in enumerate(columns)])
    of_byte = alias[byte_class]
    used = list(dict.fromkeys(of_byte.tolist()))
    rank = np.zeros(len(alias), np.int32)
    rank[used] = np.arange(len(used), dtype=np.int32)
    return rank[of_byte], np.ascontiguousarray(columns[used].T)

"""Subset construction: a nondeterministic machine over any alphabet of labels to a deterministic table."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from diffinity.constraints import kernels
from diffinity.constraints.kernels import I32, I64, Bools
from diffinity.constraints.minimise import CHUNK, Machine, settle
from diffinity.limits import Budget

T = TypeVar("T", bound=np.generic)
DOING = "making the automaton deterministic"


class Nfa(NamedTuple):
    """A nondeterministic machine: transitions (source, label, target) and ε-transitions between its states."""

    n_states: int
    source: I32
    label: I32
    target: I32
    eps_source: I32
    eps_target: I32


def determinise(nfa: Nfa, start: int, accepting: Bools, n_labels: int, budget: Budget) -> Machine:
    """The reachable subsets of the machine as a table, start state 0; neither trimmed nor minimal.

    >>> from diffinity.limits import Limits
    >>> ab = Nfa(2, *np.array([[0, 0, 1], [0, 0, 1], [0, 1, 1]], np.int32), *np.empty((2, 0), np.int32))
    >>> determinise(ab, 0, np.array([False, True]), 2, Budget(Limits())).table.tolist()   # a+b*
    [[1, -1], [1, 2], [-1, 2]]
    """
    n, m = nfa.n_states, nfa.source.shape[0]
    budget.check("nfa_states", n, DOING)
    budget.check("nfa_edges", m + nfa.eps_source.shape[0], DOING)
    budget.check("memory_bytes", 32 * n + 28 * m + 16 * nfa.eps_source.shape[0], DOING)
    budget.spend(20 * (n + m + nfa.eps_source.shape[0]), DOING)
    nfa, alive = _drop_dead_ends(nfa, accepting)
    edge_first, order = kernels.group_by(nfa.source, n)
    edge_class, edge_to = nfa.label[order], nfa.target[order]
    eps_first, eps_order = kernels.group_by(nfa.eps_source, n)
    eps_to = nfa.eps_target[eps_order]
    important = alive & ((np.diff(edge_first) > 0) | accepting)
    buffers = _Buffers(n, n_labels, budget)
    mark, memo = np.zeros(n, np.int32), np.full(n, -1, np.int32)
    stack, closure = np.empty(n, np.int32), np.empty(n, np.int32)
    sorted_to = np.empty(edge_to.shape[0], np.int32)
    ctl = np.array([0, 0, 0, 0, CHUNK], np.int64)
    begin, place = np.empty(n_labels + 1, np.int64), np.empty(n_labels, np.int64)
    first_state = np.array([start], np.int32)
    while True:
        status = kernels.subsets(
            first_state, edge_first, edge_class, edge_to, eps_first, eps_to, important, accepting,
            mark, stack, closure, sorted_to, memo, begin, place, *buffers.interning(), buffers.table, ctl,
        )  # fmt: skip
        settle(ctl, budget, DOING)
        if status == kernels.DONE:
            break
        if status == kernels.GROW_STATES:
            buffers.grow_states(int(ctl[0]))
        elif status == kernels.GROW_POOL:
            buffers.grow_pool(int(ctl[3]))
    n_subsets = int(ctl[0])
    budget.check("dfa_states", n_subsets, DOING)  # the initial arrays may exceed a low limit
    return Machine(buffers.table[:n_subsets].copy(), buffers.is_final[:n_subsets].copy())


def _drop_dead_ends(nfa: Nfa, accepting: Bools) -> tuple[Nfa, Bools]:
    """Remove states that cannot lead to acceptance: they would only add subsets."""
    alive = accepting.copy()
    source = np.concatenate([nfa.source, nfa.eps_source])
    target = np.concatenate([nfa.target, nfa.eps_target])
    kernels.reach(*kernels.group_by(target, nfa.n_states), source, alive)
    if alive.all():
        return nfa, alive
    keep, keep_eps = alive[nfa.target], alive[nfa.eps_target]
    trimmed = Nfa(
        nfa.n_states,
        nfa.source[keep],
        nfa.label[keep],
        nfa.target[keep],
        nfa.eps_source[keep_eps],
        nfa.eps_target[keep_eps],
    )
    return trimmed, alive


class _Buffers:
    """The arrays that grow during the construction, within the budget."""

    def __init__(self, n_nfa: int, n_labels: int, budget: Budget) -> None:
        self.budget = budget
        self.n_labels = n_labels
        size = 256
        self.pool: I32 = np.empty(n_nfa + 4 * size, np.int32)
        self.first: I64 = np.zeros(size + 1, np.int64)
        self.codes = np.zeros(size, np.uint64)
        self.slots: I32 = np.full(4 * size, -1, np.int32)
        self.is_final: Bools = np.zeros(size, np.bool_)
        self.table: I32 = np.empty((size, n_labels), np.int32)

    def interning(self) -> tuple[I32, I64, kernels.U64, I32, Bools]:
        return self.pool, self.first, self.codes, self.slots, self.is_final

    def grow_states(self, n_states: int) -> None:
        limits = self.budget.limits
        self.budget.check("dfa_states", n_states + 1, DOING)
        self.budget.check("table_entries", (n_states + 1) * self.n_labels, DOING)
        size = min(2 * n_states, limits.dfa_states, limits.table_entries // self.n_labels)
        self._check_memory(size, self.pool.shape[0])
        self.first = _longer(self.first, size + 1)
        self.codes = _longer(self.codes, size)
        self.is_final = _longer(self.is_final, size)
        table = np.empty((size, self.n_labels), np.int32)  # a row is written before it is read
        table[:n_states] = self.table[:n_states]
        self.table = table
        self.slots = np.full(1 << (2 * size).bit_length(), -1, np.int32)
        kernels.refill_slots(self.codes, n_states, self.slots)

    def grow_pool(self, required: int) -> None:
        size = required + required // 2
        self._check_memory(self.codes.shape[0], size)
        self.pool = _longer(self.pool, size)

    def _check_memory(self, states: int, pool: int) -> None:
        # An array and its smaller predecessor exist at the same time: 7 bytes for each int32.
        required_bytes = 7 * (states * (self.n_labels + 10) + pool)
        self.budget.check("memory_bytes", required_bytes, DOING)


def _longer(array: NDArray[T], size: int) -> NDArray[T]:
    longer = np.zeros(size, array.dtype)
    longer[: array.shape[0]] = array
    return longer

"""A mutable builder of nondeterministic byte machines: cheap composition, and one determinisation at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from diffinity.constraints import kernels
from diffinity.constraints.determinise import Nfa, determinise
from diffinity.constraints.kernels import I32
from diffinity.constraints.minimise import edges_of, join_classes, minimise, renumber
from diffinity.errors import InvalidArgument
from diffinity.limits import OPERATION_STEPS, PYTHON_STEPS, Budget, Limits, compiling

if TYPE_CHECKING:
    from diffinity.constraints.dfa import ByteDFA


class NfaBuilder:
    """States and edges of one machine under construction.

    >>> nfa = NfaBuilder()
    >>> start, end = nfa.state(), nfa.state()
    >>> nfa.literal(b"ab", start, end)
    >>> nfa.edge(end, ord("0"), ord("9"), end)
    >>> nfa.build(start, [end]).accepts(b"ab07")
    True
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits
        self._n_states = 0
        self._edges: list[tuple[int, int, int, int]] = []
        self._epsilons: list[tuple[int, int]] = []
        # Embedded machines are stored as arrays (4, edges) and (2, epsilons).
        self._edge_arrays: list[I32] = []
        self._epsilon_arrays: list[I32] = []

    @property
    def n_states(self) -> int:
        """The current number of states."""
        return self._n_states

    def state(self) -> int:
        """The number of a new state."""
        return self.states(1)

    def states(self, count: int) -> int:
        """The number of the first of `count` new states; the limit `nfa_states` is checked every 1,024 states."""
        first = self._n_states
        self._n_states += count
        # Checked only every 1,024 states, because this is called once per character.
        if count > 1000 or self._n_states % 1024 < count:
            with compiling(self._limits) as budget:
                budget.check("nfa_states", self._n_states, "composing the automaton")
                budget.spend(8 * count if count > 1000 else 1024 * 8, "composing the automaton")
        return first

    def edge(self, source: int, low: int, high: int, target: int) -> None:
        """Add a transition between two states for the bytes from `low` to `high` (both included)."""
        if not 0 <= low <= high <= 255:
            raise InvalidArgument(f"a byte range must lie within 0 to 255, not {low} to {high}")
        self._edges.append((source, low, high, target))

    def epsilon(self, source: int, target: int) -> None:
        """Add an ε-transition between two states."""
        self._epsilons.append((source, target))

    def edges(self, source: I32, low: I32, high: I32, target: I32) -> None:
        """Add many edges at once: from source[i] to target[i] for the bytes from low[i] to high[i]."""
        self._edge_arrays.append(np.array([source, low, high, target], np.int32))

    def epsilons(self, sources: I32, targets: I32) -> None:
        """Add many ε-transitions, from sources[i] to targets[i]."""
        self._epsilon_arrays.append(np.stack([sources, targets]).astype(np.int32))

    def literals(self, data: NDArray[np.uint8], entries: I32, exits: I32) -> None:
        """Add paths from entries[i] to exits[i] that read exactly data[i], strings of one length, at least 1."""
        count, length = data.shape
        first = self.states(count * (length - 1))
        between = first + np.arange(count * (length - 1), dtype=np.int32).reshape(count, length - 1)
        path = np.concatenate([entries[:, None], between, exits[:, None]], axis=1)
        bytes_read = data.ravel().astype(np.int32)
        self.edges(path[:, :-1].ravel(), bytes_read, bytes_read, path[:, 1:].ravel())

    def literal(self, data: bytes, entry: int, exit: int) -> None:  # noqa: A002 (entry and exit are a pair)
        """Add a path between two states that reads exactly `data`."""
        if not data:
            self.epsilon(entry, exit)
            return
        between = self.states(len(data) - 1) if len(data) > 1 else exit
        path = [entry, *range(between, between + len(data) - 1), exit]
        self._edges.extend((path[i], byte, byte, path[i + 1]) for i, byte in enumerate(data))

    def embed(self, dfa: ByteDFA, entry: int, exit: int) -> None:  # noqa: A002
        """Add paths between two states that read the strings of `dfa`."""
        if dfa.only_string is not None:
            self.literal(dfa.only_string, entry, exit)
        else:
            self.copy_states(dfa, entry, exit)

    def copy_states(self, dfa: ByteDFA, entry: int, exit: int) -> int:  # noqa: A002
        """Like `embed`, for a `dfa` that need not be minimal: copies its states and returns their first number."""
        first = self.states(dfa.n_states)
        self._edge_arrays.append(dfa.range_columns + np.array([[first], [0], [0], [first]], np.int32))
        final = np.empty((2, dfa.final_states.shape[0]), np.int32)
        final[0] = dfa.final_states
        final[0] += first
        final[1] = exit
        self._epsilon_arrays.append(final)
        self.epsilon(entry, first)
        return first

    def embed_row(self, dfa: ByteDFA, entry: int, count: int) -> range:
        """Append `count` copies of `dfa` to `entry`; returns the states after the first, second, … copy."""
        source, low, high, target = dfa.byte_ranges
        size = dfa.n_states
        ends = range(first := self.states(count), first + count)
        first = self.states(count * size)
        shift = (first + size * np.arange(count, dtype=np.int32))[:, None].astype(np.int32)
        copies = [(source + shift).ravel(), np.tile(low, count), np.tile(high, count), (target + shift).ravel()]
        self._edge_arrays.append(np.stack(copies))
        final = (np.flatnonzero(dfa.accepting).astype(np.int32) + shift).ravel()
        copy_ends = np.repeat(np.array(ends, np.int32), int(dfa.accepting.sum()))
        entries = np.array([entry, *ends][:count], np.int32)
        self._epsilon_arrays += [np.stack([final, copy_ends]), np.stack([entries, shift.ravel()])]
        return ends

    def build(self, start: int, accepting: Iterable[int], limits: Limits | None = None) -> ByteDFA:
        """The minimal automaton of the strings that lead from `start` to one of the states `accepting`."""
        with compiling(limits or self._limits) as budget:
            return self._build(start, accepting, budget)

    def _build(self, start: int, accepting: Iterable[int], budget: Budget) -> ByteDFA:
        budget.check("nfa_states", self._n_states, "composing the automaton")
        calls = len(self._edge_arrays) + len(self._epsilon_arrays)
        rows = len(self._edges) + len(self._epsilons)
        budget.spend(OPERATION_STEPS + PYTHON_STEPS * (2 * calls + rows // 5), "composing the automaton")
        edges, epsilons = (
            _joined(self._edge_arrays, self._edges, 4),
            _joined(self._epsilon_arrays, self._epsilons, 2),
        )
        # Schemas often describe the same values at many places.
        final_states = tuple(accepting)
        key = ("automaton", self._n_states, start, final_states, _digest(edges), _digest(epsilons))
        dfa = cast("ByteDFA | None", budget.kept(key))
        if dfa is None:
            dfa = self._determinised(edges, epsilons, start, final_states, budget)
            budget.keep(key, dfa, dfa.table.size)
        return dfa

    def _determinised(
        self, edges: I32, epsilons: I32, start: int, accepting: tuple[int, ...], budget: Budget
    ) -> ByteDFA:
        source, low, high, target = edges
        byte_class = _byte_classes(source, low, high, target)
        n_classes = int(byte_class.max()) + 1
        n_edges = kernels.count_class_edges(source, low, high, byte_class)
        budget.check("nfa_edges", n_edges, "composing the automaton")
        by_class = np.empty((3, n_edges), np.int32)
        kernels.expand_class_edges(source, low, high, target, byte_class, by_class[0], by_class[1], by_class[2])
        nfa = Nfa(self._n_states, by_class[0], by_class[1], by_class[2], epsilons[0], epsilons[1])
        final = np.zeros(self._n_states, np.bool_)
        final[list(accepting)] = True
        machine = determinise(nfa, start, final, n_classes, budget)
        return machine_to_dfa(edges_of(machine.table), machine.accepting, 0, byte_class, budget)


def machine_to_dfa(
    edges: tuple[I32, I32, I32], accepting: NDArray[np.bool_], start: int, byte_class: I32, budget: Budget
) -> ByteDFA:
    """The `ByteDFA` of a deterministic machine whose labels are the classes in `byte_class`."""
    from diffinity.constraints.dfa import ByteDFA
    from diffinity.constraints.minimise import Edges

    small = minimise(Edges(*edges), accepting, start, int(byte_class.max()) + 1, budget)
    classes, table = join_classes(small.table, byte_class)
    table, final = renumber(small._replace(table=table), 0)
    return ByteDFA(classes.astype(np.uint8), table, final)


def _joined(
    arrays: list[I32],
    rows: list[tuple[int, ...]] | list[tuple[int, int]] | list[tuple[int, int, int, int]],
    width: int,
) -> I32:
    """All edges as `width` contiguous columns."""
    row_columns = np.fromiter(chain.from_iterable(rows), np.int32, width * len(rows)).reshape(-1, width).T
    return (
        np.concatenate([row_columns, *arrays], axis=1, dtype=np.int32)
        if arrays
        else np.ascontiguousarray(row_columns)
    )


def _digest(array: I32) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(array).data, digest_size=16).digest()


def _byte_classes(source: I32, low: I32, high: I32, target: I32) -> I32:
    """The class of each byte: bytes that the same edges read are one class, numbered by first byte.

    The set of edges that read a byte is compared by two 64-bit sums of pseudo-random numbers, one per edge.
    """
    pair = (source.astype(np.uint64) << np.uint64(32)) | target.astype(np.uint64)
    signature = np.zeros((2, 257), np.uint64)
    for row, seed in zip(signature, (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03), strict=True):
        code = _scrambled(pair, np.uint64(seed))
        np.add.at(row, low, code)
        np.subtract.at(row, high + 1, code)
    # Most bytes are read by the same edges as the byte before them.
    changes = np.any(signature[:, :256] != 0, axis=0) | (np.arange(256) == 0)
    totals = np.cumsum(signature[:, :256], axis=1, dtype=np.uint64)[:, changes]
    number_of_signature: dict[tuple[int, int], int] = {}
    pairs = zip(totals[0].tolist(), totals[1].tolist(), strict=True)
    of_run = np.array([number_of_signature.setdefault(pair, len(number_of_signature)) for pair in pairs], np.int32)
    byte_class: I32 = of_run[np.cumsum(changes) - 1]
    return byte_class


def _scrambled(x: NDArray[np.uint64], seed: np.uint64) -> NDArray[np.uint64]:
    z = x * seed + seed
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return result

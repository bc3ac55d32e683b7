"""`align`: from an automaton over bytes and a vocabulary to an automaton over tokens.

The trie of the vocabulary is traversed once for all states together. All data is stored by class: time and memory
grow with the number of *distinct* effects that tokens have on states, not with states × vocabulary.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diffinity.alignment import kernels
from diffinity.alignment.automaton import FRAMINGS, Framing, TokenAutomaton
from diffinity.alignment.merge import merge_states
from diffinity.alignment.vocabulary import Vocabulary
from diffinity.constraints.base import Constraint
from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.minimise import Edges, Machine
from diffinity.errors import InvalidArgument
from diffinity.limits import Budget, Limits, compiling

CACHE_SIZE = 64
_cache: OrderedDict[tuple[str, str, Framing], TokenAutomaton] = OrderedDict()
_lock = threading.Lock()


def align(
    constraint: Constraint | ByteDFA,
    vocabulary: Vocabulary,
    framing: Framing = "eos",
    *,
    limits: Limits | None = None,
) -> TokenAutomaton:
    """The automaton of all token sequences whose text is in the language, in the given framing.

    `exact`: the whole sequence spells the text. `eos`: the text, the end token, then anything. `eos_strict`: the
    text, then end tokens only. `search`: the text occurs somewhere in the sequence. All tokenisations of a text
    are accepted, including tokens that contain part of a UTF-8 character. If the vocabulary has a start token,
    every sequence begins with it, and it counts towards the length.

    The last 64 results are cached.

    >>> from diffinity.constraints import Regex
    >>> cat = align(Regex("c(a|u)t"), Vocabulary([b"c", b"a", b"u", b"t", b"ca"]), framing="exact")
    >>> cat.accepts([4, 3]), cat.accepts([0, 2, 3]), cat.accepts([0, 3])
    (True, True, False)
    """
    if framing not in FRAMINGS:
        raise InvalidArgument(f"framing must be one of {', '.join(FRAMINGS)}, but is {framing!r}")
    if framing.startswith("eos") and vocabulary.eos_id is None:
        raise InvalidArgument(
            f"framing {framing!r} needs an end token and this vocabulary has none: give eos_id=…, or use 'exact'"
        )
    dfa = constraint if isinstance(constraint, ByteDFA) else constraint.dfa(limits)
    key = (dfa.fingerprint, vocabulary.fingerprint, framing)
    with _lock:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
    automaton = _align(dfa, vocabulary, framing, limits)
    with _lock:
        _cache[key] = automaton
        while len(_cache) > CACHE_SIZE:
            _cache.popitem(last=False)
    return automaton


def clear_cache() -> None:
    """Clear the cache of aligned automata.

    >>> clear_cache()
    """
    with _lock:
        _cache.clear()


def _align(dfa: ByteDFA, vocabulary: Vocabulary, framing: Framing, limits: Limits | None) -> TokenAutomaton:
    with compiling(limits) as budget:
        if framing == "search":
            dfa = ByteDFA.any_bytes().concat(dfa, ByteDFA.any_bytes())
        if vocabulary.leading:
            leading = ByteDFA.literal(vocabulary.leading)
            without_leading = dfa.difference(leading.concat(ByteDFA.any_bytes()))
            dfa = leading.concat(dfa)
            if vocabulary.leading_optional:
                dfa = dfa.union(without_leading)
        trie = vocabulary.trie
        max_pairs = budget.limits.memory_bytes // 8
        column, first, source, target, within_limit = kernels.node_columns(
            dfa.table, dfa.byte_class, trie.parent, trie.byte, max_pairs
        )
        if not within_limit:
            budget.check("memory_bytes", budget.limits.memory_bytes + 1, "aligning the constraint with the tokens")

        class_of, used = _classes(column[trie.node_of], len(first) - 1, vocabulary)
        tail, label, head = _pairs(used, first, source, target)
        framed = _frame(framing, dfa, class_of, len(used), vocabulary)
        edges = Edges(
            np.concatenate([tail, framed.tail]).astype(np.int32),
            np.concatenate([label, framed.label]).astype(np.int32),
            np.concatenate([head, framed.head]).astype(np.int32),
        )
        machine = _machine(edges, framed, dfa, vocabulary, budget)
        if vocabulary.start_id is not None:
            machine = _after_start_token(machine, int(class_of[vocabulary.start_id]))
    table, class_of = _join_columns(machine.table, class_of)
    unspelled = b"" if machine.accepting.any() else _unspelled(dfa, vocabulary)
    return TokenAutomaton(
        class_of, table, machine.accepting.copy(), framing, vocabulary.eos_id, unspelled=unspelled
    )


def _unspelled(dfa: ByteDFA, vocabulary: Vocabulary) -> bytes:
    """The bytes of the language that no token contains, such as upper-case letters in a lower-case vocabulary."""
    used = np.any(dfa.table >= 0, axis=0)[dfa.byte_class]
    spelled = {byte for token in vocabulary.tokens if token is not None for byte in token}
    return bytes(byte for byte in np.flatnonzero(used).tolist() if byte not in spelled)


def _machine(edges: Edges, framed: _Framed, dfa: ByteDFA, vocabulary: Vocabulary, budget: Budget) -> Machine:
    """The minimal table of the framed transitions.

    If every byte of the language is a token, the table is already minimal: single-byte tokens spell every string
    that distinguishes two states of the (minimal) byte automaton.
    """
    used = np.any(dfa.table >= 0, axis=0)[dfa.byte_class]
    if dfa.is_empty or not vocabulary.single_bytes[used].all():
        return merge_states(edges, framed.accepting, framed.n_labels, budget)
    n = len(framed.accepting)
    budget.check("memory_bytes", 8 * n * framed.n_labels, "the table of the token automaton")
    table = np.full((n, framed.n_labels), -1, np.int32)
    table[edges.tail, edges.label] = edges.head
    return Machine(table, framed.accepting)


def _classes(
    column_of: NDArray[np.int32], n_columns: int, vocabulary: Vocabulary
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The class of every token (V,), and the column of each class.

    Ordinary tokens without transitions get class C (one past the columns), special tokens C + 1, the end
    token C + 2, a start token that is not the end token C + 3.
    """
    present = np.zeros(n_columns + 1, np.bool_)  # index −1 refers to the last entry
    present[column_of] = True
    used = np.flatnonzero(present[:-1])
    n = len(used)
    rank = np.full(n_columns + 1, n, np.int32)
    rank[used] = np.arange(n, dtype=np.int32)
    ordinary = rank[column_of]
    class_of = np.full(len(vocabulary), n + 1, np.int32)
    class_of[vocabulary.ordinary] = ordinary
    if vocabulary.start_id is not None:
        class_of[vocabulary.start_id] = n + 3
    if vocabulary.eos_id is not None:
        class_of[vocabulary.eos_id] = n + 2
    return class_of, used.astype(np.int32)


def _pairs(
    used: NDArray[np.int32], first: NDArray[np.int64], source: NDArray[np.int32], target: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """The transitions (tail, class, head) of the used columns."""
    sizes = first[used + 1] - first[used]
    label = np.repeat(np.arange(len(used), dtype=np.int32), sizes)
    offset = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    at = np.repeat(first[used], sizes) + offset
    return source[at], label, target[at]


class _Framed(NamedTuple):
    """The transitions that a framing adds, and its accepting states."""

    tail: NDArray[np.int32]
    label: NDArray[np.int32]
    head: NDArray[np.int32]
    accepting: NDArray[np.bool_]
    n_labels: int


def _frame(
    framing: Framing, dfa: ByteDFA, class_of: NDArray[np.int32], n_columns: int, vocabulary: Vocabulary
) -> _Framed:
    end = n_columns + 2
    no_edges = np.zeros(0, np.int32)
    accepting_states = np.flatnonzero(dfa.accepting).astype(np.int32)
    accepting = dfa.accepting.copy()
    tail, label, head = no_edges, no_edges, no_edges
    if framing in ("eos", "eos_strict"):
        final = dfa.n_states
        allowed = np.array([end], np.int32)
        if framing == "eos":
            present = np.bincount(class_of, minlength=n_columns + 4) > 0
            present[[n_columns + 1, n_columns + 3]] = False  # special tokens are excluded
            allowed = np.flatnonzero(present).astype(np.int32)
        tail = np.concatenate([accepting_states, np.full(len(allowed), final, np.int32)])
        label = np.concatenate([np.full(len(accepting_states), end, np.int32), allowed])
        head = np.full(len(tail), final, np.int32)
        accepting = np.zeros(final + 1, np.bool_)
        accepting[final] = True
    elif framing == "search" and vocabulary.eos_id is not None:
        # An end token may occur anywhere, but a match does not extend across it.
        tail = np.arange(dfa.n_states, dtype=np.int32)
        label = np.full(dfa.n_states, end, np.int32)
        head = np.where(dfa.accepting, tail, 0).astype(np.int32)
    return _Framed(tail, label, head, accepting, n_columns + 4)


def _after_start_token(machine: Machine, label: int) -> Machine:
    """The machine with one more state at the beginning, whose only transition is the start token."""
    if not machine.accepting.any():
        return machine
    first = np.full((1, machine.table.shape[1]), -1, np.int32)
    first[0, label] = 1
    table = np.concatenate([first, np.where(machine.table >= 0, machine.table + 1, -1).astype(np.int32)])
    return Machine(table, np.concatenate([[False], machine.accepting]))


def _join_columns(
    table: NDArray[np.int32], class_of: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Merge classes that have become equal and drop classes without tokens."""
    columns = np.ascontiguousarray(table.T)
    present = np.flatnonzero(np.bincount(class_of, minlength=columns.shape[0]))
    numbers: dict[bytes, int] = {}
    rank = np.zeros(columns.shape[0], np.int32)
    representatives: list[int] = []
    for c in present:
        key = columns[c].tobytes()
        if key not in numbers:
            numbers[key] = len(representatives)
            representatives.append(int(c))
        rank[c] = numbers[key]
    return np.ascontiguousarray(columns[representatives].T), rank[class_of]

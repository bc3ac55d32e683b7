"""Regular expressions to automata: tree, machine over character classes, minimal table, bytes of UTF-8."""

from __future__ import annotations

from collections.abc import Sized
from itertools import pairwise

import numpy as np

from diffinity.constraints.anchors import Side, split_by_gaps
from diffinity.constraints.codepoints import LAST, Alphabet, CodeSet, partition
from diffinity.constraints.determinise import Nfa, determinise
from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.kernels import I32, Bools
from diffinity.constraints.minimise import Machine, edges_of, minimise
from diffinity.constraints.nfa import NfaBuilder
from diffinity.constraints.regex_syntax import (
    ANCHORS,
    NEWLINE,
    At,
    Chars,
    Either,
    Loop,
    Node,
    Sequence,
    has_anchors,
    parse,
    word_codes,
)
from diffinity.constraints.utf8 import to_bytes
from diffinity.limits import OPERATION_STEPS, PYTHON_STEPS, Budget, Limits, compiling

DOING = "this pattern"
MANY_CLASSES = 256  # with more character classes most of a table over them would be empty
ONE_CHARACTER = Machine(np.array([[1], [-1]], np.int32), np.array([False, True]))
SMALL = 64  # up to this number of states, copying state by state is faster than copying arrays
INDEX_OF_ANCHOR = {kind: k for k, kind in enumerate(ANCHORS)}


def compile_regex(pattern: str, flags: int = 0, limits: Limits | None = None) -> ByteDFA:
    """The automaton of all texts that `re.fullmatch(pattern, text, flags)` matches, in UTF-8.

    >>> compile_regex(r"[a-c]+|\\d").accepts("٣".encode())
    True
    """
    with compiling(limits) as budget:
        return compile_tree(parse(pattern, flags), budget)


def compile_tree(tree: Node, budget: Budget) -> ByteDFA:
    """The automaton of a parsed pattern."""
    tree = _without_outer_anchors(_simplified(tree), True, True)
    size = _size(tree)
    budget.check("nfa_states", size, DOING)
    budget.spend(OPERATION_STEPS + 100 * size, DOING)
    machine = _Machine(budget)
    start, end = machine.states(2), 1
    machine.add(tree, start, end)
    sets = machine.sets.listed()
    if anchored := has_anchors(tree):
        sets += [NEWLINE, word_codes(True), word_codes(False)]
    alphabet, members = partition(sets)
    nfa, anchors = machine.finish(members)
    accepting = np.zeros(nfa.n_states, np.bool_)
    accepting[end] = True
    if anchored:
        newline, ascii_word, word = ({*m.tolist()} for m in members[-3:])
        sides = [
            Side(word=c in word, ascii_word=c in ascii_word, newline=c in newline)
            for c in range(alphabet.n_labels)
        ]
        nfa, start, accepting = split_by_gaps(nfa, anchors, start, end, sides, budget)
    if alphabet.n_labels > MANY_CLASSES:
        return _through_bytes(nfa, start, accepting, alphabet, budget)
    n_labels = max(alphabet.n_labels, 1)
    table = determinise(nfa, start, accepting, n_labels, budget)
    small = minimise(edges_of(table.table), table.accepting, 0, n_labels, budget)
    return to_bytes(small, alphabet, budget)


def _through_bytes(nfa: Nfa, start: int, accepting: Bools, alphabet: Alphabet, budget: Budget) -> ByteDFA:
    """The automaton of the machine, by writing each set of characters in UTF-8 before determinisation.

    For patterns that distinguish very many characters (thousands of Chinese words): a table over so many classes
    would be mostly empty.
    """
    widths = np.diff(np.append(alphabet.starts, LAST + 1))
    has_label = alphabet.label >= 0
    sizes = np.bincount(alphabet.label[has_label], widths[has_label], alphabet.n_labels)
    first = np.zeros(alphabet.n_labels, np.int64)
    first[alphabet.label[has_label]] = alphabet.starts[has_label]
    order = np.lexsort((nfa.label, nfa.target, nfa.source))
    source, label, target = nfa.source[order], nfa.label[order], nfa.target[order]
    begins = np.flatnonzero(np.diff(source, prepend=-1) | np.diff(target, prepend=-1))
    builder = NfaBuilder()
    builder.states(nfa.n_states)
    builder.epsilons(nfa.eps_source, nfa.eps_target)
    sets: dict[bytes, ByteDFA] = {}
    for low, high in pairwise([*begins.tolist(), order.shape[0]]):
        labels = label[low:high]
        if high == low + 1 and sizes[labels[0]] == 1:
            builder.literal(chr(int(first[labels[0]])).encode(), int(source[low]), int(target[low]))
            continue
        key = labels.tobytes()
        if key not in sets:
            in_set = np.where(np.isin(alphabet.label, labels), 0, -1).astype(np.int32)
            sets[key] = to_bytes(ONE_CHARACTER, Alphabet(alphabet.starts, in_set, 1), budget)
            budget.spend(20 * PYTHON_STEPS, DOING)
        builder.embed(sets[key], int(source[low]), int(target[low]))
    return builder.build(start, np.flatnonzero(accepting).tolist())


class _Sets:
    """The different sets of characters of a pattern, numbered.

    A set is looked up by identity first. `\\w` has seven hundred ranges, and hashing it at each use would take
    seconds.
    """

    def __init__(self) -> None:
        self._by_content: dict[CodeSet, int] = {}
        self._by_identity: dict[int, int] = {}  # ids stay unique, because the tree keeps the sets alive

    def number(self, codes: CodeSet) -> int:
        number = self._by_identity.get(id(codes))
        if number is None:
            number = self._by_content.setdefault(codes, len(self._by_content))
            self._by_identity[id(codes)] = number
        return number

    def listed(self) -> list[CodeSet]:
        return list(self._by_content)


class _Machine:
    """A nondeterministic machine over sets of characters, built node by node."""

    def __init__(self, budget: Budget, sets: _Sets | None = None) -> None:
        self._budget = budget
        self.sets = _Sets() if sets is None else sets
        self._n_states = 0
        self._edges: list[tuple[int, int, int]] = []  # (source, set, target)
        self._eps: list[tuple[int, int]] = []
        self._anchors: list[tuple[int, int, int]] = []  # (source, index in ANCHORS, target)
        # Copied parts are stored as arrays.
        self._edge_arrays: list[I32] = []
        self._eps_arrays: list[I32] = []
        self._anchor_arrays: list[I32] = []

    def states(self, count: int = 1) -> int:
        first = self._n_states
        self._n_states += count
        return first

    def add(self, node: Node, entry: int, exit: int) -> None:  # noqa: A002 (entry and exit are a pair)
        """Add paths from `entry` to `exit` that read the texts of `node`."""
        match node:
            case Chars(codes):
                self._edges.append((entry, self.sets.number(codes), exit))
            case Sequence(items):
                for item in items[:-1]:
                    next_state = self.states()
                    self.add(item, entry, next_state)
                    entry = next_state
                if items:
                    self.add(items[-1], entry, exit)
                else:
                    self._eps.append((entry, exit))
            case Either(items):
                for item in items:
                    self.add(item, entry, exit)
            case Loop(item, low, high):
                self._loop(item, low, high, entry, exit)
            case At(kind):
                self._anchors.append((entry, INDEX_OF_ANCHOR[kind], exit))

    def _loop(self, item: Node, low: int, high: int | None, entry: int, exit: int) -> None:  # noqa: A002
        if high is None:
            loop_state = self.states()
            self._chain(item, low, entry, loop_state)
            self.add(item, loop_state, loop_state)
            self._eps.append((loop_state, exit))
            return
        # The loop has its own entry state; otherwise the other edges of `entry` could leave it in the middle.
        first = self.states()
        self._eps.append((entry, first))
        if low == 0:
            self._eps.append((first, exit))
        self._chain(item, high, first, None, low, exit)

    def _chain(
        self,
        item: Node,
        count: int,
        entry: int,
        last: int | None,
        low: int = 0,
        exit: int = 0,  # noqa: A002
    ) -> None:
        """Add `count` consecutive copies from `entry` to `last`, or to `exit` from the low-th copy on."""
        if count == 0:
            if last is not None:
                self._eps.append((entry, last))
            return
        if count <= 8 and count * _size(item) <= SMALL:
            for k in range(1, count + 1):
                next_state = last if last is not None and k == count else self.states()
                self.add(item, entry, next_state)
                if last is None and k >= low:
                    self._eps.append((next_state, exit))
                entry = next_state
            return
        part = _Machine(self._budget, self.sets)
        part.states(2)
        part.add(item, 0, 1)
        edges, eps, anchors = part.columns()
        # Copy k begins at first + k·n; its exit is the entry of the next copy.
        n = part._n_states
        first = self.states(count * n)
        shift = (first + n * np.arange(count, dtype=np.int32))[:, None].astype(np.int32)
        for columns_list, copied in ((self._edge_arrays, edges), (self._anchor_arrays, anchors)):
            columns_list.append(
                np.stack([(copied[0] + shift).ravel(), np.tile(copied[1], count), (copied[2] + shift).ravel()])
            )
        self._eps_arrays.append(np.stack([(eps[0] + shift).ravel(), (eps[1] + shift).ravel()]))
        self._eps.append((entry, first))
        exits = shift.ravel() + np.int32(1)
        self._eps_arrays.append(np.stack([exits[:-1], shift.ravel()[1:]]))
        ends = exits[-1:] if last is not None else exits[max(low - 1, 0) :]
        self._eps_arrays.append(np.stack([ends, np.full_like(ends, exit if last is None else last)]))
        self._budget.spend(20 * PYTHON_STEPS + 8 * count * n, DOING)

    def columns(self) -> tuple[I32, I32, I32]:
        """All edges (3, edges), ε-transitions (2, moves) and anchors (3, anchors)."""
        return (
            _columns(self._edges, self._edge_arrays, 3),
            _columns(self._eps, self._eps_arrays, 2),
            _columns(self._anchors, self._anchor_arrays, 3),
        )

    def finish(self, members: list[I32]) -> tuple[Nfa, I32]:
        """The machine over classes, one edge per class of each set; and its anchors."""
        (source, char_set, target), (eps_source, eps_target), anchors = self.columns()
        sizes = np.array([len(m) for m in members], np.int64)
        width = sizes[char_set] if char_set.size else np.zeros(0, np.int64)
        self._budget.check("nfa_edges", int(width.sum()), DOING)
        flat = np.concatenate([np.empty(0, np.int32), *members])
        begin = np.cumsum(sizes) - sizes
        offset = np.arange(int(width.sum())) - np.repeat(np.cumsum(width) - width, width)
        label = flat[np.repeat(begin[char_set], width) + offset] if char_set.size else np.empty(0, np.int32)
        columns = (np.repeat(source, width), label, np.repeat(target, width), eps_source, eps_target)
        return Nfa(self._n_states, *(np.ascontiguousarray(c, np.int32) for c in columns)), anchors


def _columns(rows: Sized, arrays: list[I32], width: int) -> I32:
    row_columns = np.array(rows, np.int32).reshape(-1, width).T
    return np.concatenate([row_columns, *arrays], axis=1).astype(np.int32)


def _simplified(node: Node) -> Node:
    """The tree with nested loops merged if the counts have no gaps: `(a?){9}` is `a{0,9}`."""
    match node:
        case Sequence(items):
            return Sequence(tuple(map(_simplified, items)))
        case Either(items):
            return Either(tuple(map(_simplified, items)))
        case Loop(item, low, high):
            inner = _simplified(item)
            if high == 0:
                return Sequence(())
            if isinstance(inner, Sequence) and len(inner.items) == 1:
                inner = inner.items[0]
            if isinstance(inner, Loop) and inner.low <= 1:
                largest = None if high is None or inner.high is None else high * inner.high
                return Loop(inner.item, inner.low * low, largest)
            return inner if (low, high) == (1, 1) else Loop(inner, low, high)
    return node


def _without_outer_anchors(node: Node, first: bool, last: bool) -> Node:
    """Drop `^` at the start and `$` at the end, where they always hold in a full match.

    Most hand-written patterns have them, and every remaining anchor costs copies of all states.
    """
    match node:
        case At("start" | "line_start") if first:
            return Sequence(())
        case At("end" | "line_end" | "text_end") if last:
            return Sequence(())
        case Either(items):
            return Either(tuple(_without_outer_anchors(item, first, last) for item in items))
        case Sequence(items) if items:
            inner = list(items)
            # Several anchors may follow one another: `^\b`, `$\Z`.
            for i in range(len(inner)):
                inner[i] = _without_outer_anchors(inner[i], first, last and i == len(inner) - 1)
                if inner[i] != Sequence(()):
                    break
            for i in reversed(range(len(inner))):
                inner[i] = _without_outer_anchors(inner[i], first and i == 0, last)
                if inner[i] != Sequence(()):
                    break
            return Sequence(tuple(inner))
    return node


def _size(node: Node) -> int:
    """The number of states that the machine of `node` will have."""
    match node:
        case Sequence(items) | Either(items):
            return len(items) + sum(map(_size, items))
        case Loop(item, low, high):
            inner = _size(item) + 2
            return 2 + inner * (low + 1 if high is None else high)
    return 1

"""`TokenAutomaton`: the token sequences that spell an accepted text, as an automaton over classes of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diffinity.errors import InfeasibleConstraint, InvalidArgument

Framing = Literal["exact", "eos", "eos_strict", "search"]
FRAMINGS: tuple[Framing, ...] = ("exact", "eos", "eos_strict", "search")


@dataclass(frozen=True)
class GroupedEdges:
    """The transitions as pairs of states, sorted by tail; the classes of a pair are those of its group.

    Pairs that read the same set of classes share a group, so sums over a set are computed once per group.
    Indices are unsigned, so compiled loops need not check for negative indices.
    """

    first: NDArray[np.int64]  # (S+1,) where the pairs of a tail begin
    head: NDArray[np.uint32]  # (P,)
    group: NDArray[np.uint32]  # (P,)
    members_first: NDArray[np.int64]  # (G+1,)
    members: NDArray[np.uint32]  # classes of each group

    @cached_property
    def tail(self) -> NDArray[np.uint32]:  # (P,)
        return np.repeat(np.arange(self.first.shape[0] - 1, dtype=np.uint32), np.diff(self.first))

    @property
    def n_groups(self) -> int:
        return int(self.members_first.shape[0] - 1)


class Arrows(NamedTuple):
    """The pairs of `GroupedEdges`, in two orders; pairs with the same head and group form one arrow.

    An arrow leaves a node: a state or, from S on, a hub. A hub is a set of states that share arrows; loops add up
    the masses of its states only once. An automaton has about a third fewer arrows than pairs.
    """

    in_first: NDArray[np.int64]  # (S+1,): where the arrows of a head begin
    in_node: NDArray[np.uint32]  # (A,)
    in_group: NDArray[np.uint32]  # (A,)
    out_first: NDArray[np.int64]  # (S+H+1,): where the arrows of a node begin
    out_head: NDArray[np.uint32]  # (A,)
    out_group: NDArray[np.uint32]  # (A,)
    hub_first: NDArray[np.int64]  # (H+1,)
    hub_states: NDArray[np.uint32]  # the states of each hub

    @property
    def n_nodes(self) -> int:
        return int(self.out_first.shape[0] - 1)


@dataclass(frozen=True, eq=False, repr=False)
class TokenAutomaton:
    """A trimmed, minimal automaton over token ids: `next[s, class_of[v]]` is the state after s on token v, or −1.

    `align` creates it with state 0 as the start; a window (see `window`) has its own start and accepting states.
    Tokens with equal columns are in one class; a special token other than the end token is in a class without
    transitions.
    """

    class_of: NDArray[np.int32]  # (V,)
    next: NDArray[np.int32]  # (S, C)
    accepting: NDArray[np.bool_]  # (S,)
    framing: Framing = "exact"
    eos_id: int | None = None
    start: int = 0
    unspelled: bytes = b""  # if nothing is accepted: bytes of the language that no token contains

    def __post_init__(self) -> None:
        for array in (self.class_of, self.next, self.accepting):
            array.flags.writeable = False
        self._live_cache: dict[int, NDArray[np.bool_]]
        object.__setattr__(self, "_live_cache", {})
        self._finishing_cache: dict[int, NDArray[np.bool_]]
        object.__setattr__(self, "_finishing_cache", {0: self.accepting})

    def __repr__(self) -> str:
        return (
            f"TokenAutomaton({self.n_states} states, {self.n_classes} classes, "
            f"{self.n_transitions:,} transitions, {self.vocab_size:,} tokens, framing={self.framing!r})"
        )

    @property
    def n_states(self) -> int:
        return int(self.next.shape[0])

    @property
    def n_classes(self) -> int:
        return int(self.next.shape[1])

    @property
    def vocab_size(self) -> int:
        return int(self.class_of.shape[0])

    @cached_property
    def n_transitions(self) -> int:
        """The number of transitions as the paper counts them: pairs of a state and a token with a next state."""
        sizes = np.bincount(self.class_of, minlength=self.n_classes)
        return int((self.next >= 0).sum(axis=0) @ sizes)

    @cached_property
    def useful(self) -> NDArray[np.bool_]:
        """(C,): the classes with a transition from some state."""
        return np.asarray((self.next >= 0).any(axis=0))

    @property
    def is_empty(self) -> bool:
        """Whether no token sequence is accepted."""
        if self.start != 0:  # some states may be unreachable from there
            return self.shortest() is None
        return not bool(self.accepting.any())

    def accepts(self, ids: Sequence[int]) -> bool:
        """Whether a token sequence is accepted."""
        state = self.state_after(ids)
        return state >= 0 and bool(self.accepting[state])

    def state_after(self, ids: Sequence[int]) -> int:
        """The state after a token sequence from the start; −1 if there is none.

        >>> automaton = TokenAutomaton(np.array([0, 1]), np.array([[1, -1], [-1, 0]]), np.array([True, False]))
        >>> automaton.state_after([0]), automaton.state_after([1])
        (1, -1)
        """
        state = self.start
        for token in ids:
            if not 0 <= token < self.vocab_size:
                raise InvalidArgument(f"token {token} is not in the vocabulary (0 to {self.vocab_size - 1})")
            state = int(self.next[state, self.class_of[token]])
            if state < 0:
                return -1
        return state

    def window(
        self, start: int, tokens_after: int = 0, *, accepting: NDArray[np.bool_] | None = None
    ) -> TokenAutomaton:
        """The automaton of a part of the text, from state `start`, with `tokens_after` more tokens to follow.

        It accepts the token sequences that lead from `start` to a state from which exactly `tokens_after` more
        tokens can be accepted; or, with `accepting` (S,), to one of these states. The window shares the
        transitions, so it costs one mask. A window can be used wherever an automaton can.

        >>> from diffinity.alignment import Vocabulary, align
        >>> from diffinity.constraints import Regex
        >>> abc = align(Regex("(abc)+"), Vocabulary([b"a", b"b", b"c"]), framing="exact")
        >>> window = abc.window(abc.state_after([0]), tokens_after=1)  # after "a", with one token to come
        >>> window.accepts([1]), window.accepts([1, 2]), window.feasible(4)
        (True, False, True)
        """
        if not 0 <= start < self.n_states:
            raise InvalidArgument(f"a window starts in a state from 0 to {self.n_states - 1}, not in {start}")
        shared = ["useful", "outside", "segments", "tokens_by_class", "edges", "arrows"]
        if accepting is None:
            accepting = self.finishing(tokens_after)
            shared.append("free")
        elif tokens_after:
            raise InvalidArgument("give a window accepting states or tokens_after, not both")
        elif accepting.shape != self.accepting.shape or accepting.dtype != np.bool_:
            raise InvalidArgument(
                f"accepting must be bool of shape {self.accepting.shape}, but is {accepting.dtype} of shape "
                f"{accepting.shape}"
            )
        window = TokenAutomaton(self.class_of, self.next, accepting.copy(), self.framing, self.eos_id, start)
        window.__dict__.update({name: getattr(self, name) for name in shared})
        return window

    def finishing(self, n: int) -> NDArray[np.bool_]:
        """(S,): the states from which some sequence of exactly `n` tokens is accepted.

        >>> TokenAutomaton(np.array([0]), np.array([[1], [-1]]), np.array([False, True])).finishing(1).tolist()
        [True, False]
        """
        if n < 0:
            raise InvalidArgument(f"the number of tokens must not be negative, but is {n}")
        rows, tail, head = self._finishing_cache, self.edges.tail, self.edges.head
        for k in range(min(n, len(rows) - 1), n):
            if k and rows[k] is rows[k - 1]:  # a fixed point for any number of tokens
                return rows[k]
            row = np.zeros(self.n_states, np.bool_)
            row[tail[rows[k][head]]] = True
            row.flags.writeable = False
            rows[k + 1] = rows[k] if np.array_equal(row, rows[k]) else row
        return rows[n]

    @property
    def unsigned_class_of(self) -> NDArray[np.uint32]:
        """`class_of` with unsigned indices for compiled loops, (V,)."""
        return self.class_of.view(np.uint32)

    @cached_property
    def tokens_by_class(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Token ids sorted by class, and where each class begins: (V,), (C+1,)."""
        order = np.argsort(self.class_of, kind="stable")
        first = np.searchsorted(self.class_of[order], np.arange(self.n_classes + 1))
        return order.astype(np.int64), first.astype(np.int64)

    @cached_property
    def free(self) -> NDArray[np.bool_]:
        """(S,): the states from which all token sequences are accepted, as after the end of a text."""
        free = self.accepting & (self.next >= 0).all(axis=1)
        while (smaller := free & free[self.next].all(axis=1)).sum() < free.sum():
            free = smaller
        return free

    @cached_property
    def outside(self) -> int:
        """The class with transitions only after the end, where all tokens are equivalent; −1 if there is none."""
        states = np.arange(self.n_states)
        ended = self.accepting & (self.next == states[:, None]).all(axis=1)
        only_after_end = ((self.next < 0) | ended[:, None]).all(axis=0) & self.useful
        return int(only_after_end.argmax()) if only_after_end.any() else -1

    @cached_property
    def segments(self) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64]]:
        """The input of a pass over logits by class: the tokens sorted by class (V,), where each class begins
        (C+1,), and the classes with transitions, without `outside`."""
        order, first = self.tokens_by_class
        is_read = self.useful.copy()
        if self.outside >= 0:
            is_read[self.outside] = False
        return order.astype(np.uint32), first, np.flatnonzero(is_read)

    @cached_property
    def edges(self) -> GroupedEdges:
        """The transitions grouped by (tail, head)."""
        tail, label = np.nonzero(self.next >= 0)
        head = self.next[tail, label]
        pair = tail.astype(np.int64) * self.n_states + head
        order = np.argsort(pair, kind="stable")  # labels stay sorted inside a pair
        pair, label = pair[order], label[order].astype(np.int32)
        begins = np.flatnonzero(np.diff(pair, prepend=-1))
        ends = np.append(begins, len(pair))[1:]
        group, members = _group_sets(label.astype(np.int32), begins, ends, self.n_classes)
        tails = pair[begins] // self.n_states
        return GroupedEdges(
            first=np.searchsorted(tails, np.arange(self.n_states + 1)).astype(np.int64),
            head=(pair[begins] % self.n_states).astype(np.uint32),
            group=group.astype(np.uint32),
            members_first=np.cumsum([0, *(len(m) for m in members)]).astype(np.int64),
            members=np.concatenate([np.zeros(0, np.uint32), *members], dtype=np.uint32, casting="unsafe"),
        )

    @cached_property
    def arrows(self) -> Arrows:
        """The pairs of `edges` as arrows, for the dynamic programme."""
        edges, n = self.edges, self.n_states
        order = np.lexsort((edges.tail, edges.group, edges.head))
        tail, group, head = edges.tail[order], edges.group[order], edges.head[order]
        begins = np.flatnonzero((np.diff(head, prepend=n) != 0) | (np.diff(group, prepend=0) != 0))
        set_of_arrow, sets = _group_sets(tail.view(np.int32), begins, np.append(begins, len(tail))[1:], n)
        node_of_set = np.array([tails[0] for tails in sets], np.uint32)
        shared = sorted((i for i, tails in enumerate(sets) if len(tails) > 1), key=node_of_set.__getitem__)
        hubs = [sets[i] for i in shared]  # hubs of neighbouring states are neighbours in memory
        node_of_set[shared] = n + np.arange(len(hubs))
        node, group, head = node_of_set[set_of_arrow], group[begins], head[begins]
        by_node = np.argsort(node, kind="stable")
        return Arrows(
            in_first=np.searchsorted(head, np.arange(n + 1)).astype(np.int64),
            in_node=node,
            in_group=group,
            out_first=np.searchsorted(node[by_node], np.arange(n + len(hubs) + 1)).astype(np.int64),
            out_head=head[by_node],
            out_group=group[by_node],
            hub_first=np.cumsum([0, *(len(hub) for hub in hubs)]).astype(np.int64),
            hub_states=np.concatenate([np.zeros(0, np.uint32), *hubs], dtype=np.uint32, casting="unsafe"),
        )

    def live(self, length: int) -> NDArray[np.bool_]:
        """(length+1, S): the states that an accepted sequence of `length` tokens can have after k tokens."""
        if length not in self._live_cache:
            tail, head = self.edges.tail, self.edges.head
            live = np.zeros((length + 1, self.n_states), np.bool_)
            live[0, self.start] = self.finishing(length)[self.start]
            for k in range(length):
                live[k + 1, head[live[k, tail]]] = True
                live[k + 1] &= self.finishing(length - k - 1)
            if len(self._live_cache) >= 8:
                self._live_cache.pop(next(iter(self._live_cache)))
            live.flags.writeable = False
            self._live_cache[length] = live
        return self._live_cache[length]

    def feasible(self, length: int) -> bool:
        """Whether some sequence of exactly `length` tokens is accepted."""
        if length < 0:
            raise InvalidArgument(f"length must not be negative, but is {length}")
        return bool(self.finishing(length)[self.start])

    def check_feasible(self, length: int) -> None:
        """Raise `InfeasibleConstraint` with the shortest sufficient length, unless `length` is feasible."""
        if self.feasible(length):
            return
        shortest = self.shortest()
        if shortest is None:
            characters = self.unspelled.decode("ascii", "ignore")[:8]
            explanation = f": no token of the model has {' or '.join(map(repr, characters))}" if characters else ""
            raise InfeasibleConstraint(f"no token sequence of any length satisfies the constraint{explanation}")
        note = "" if length < len(shortest) else "; not every longer length fits"
        raise InfeasibleConstraint(
            f"no sequence of {length} tokens satisfies the constraint: the shortest has {len(shortest)}{note}"
        )

    def shortest(self) -> list[int] | None:
        """A shortest accepted token sequence, or None if there is none."""
        if not self.accepting.any():
            return None
        end = None
        predecessor: dict[int, tuple[int, int]] = {self.start: (-1, -1)}
        layer = [self.start]
        edges = self.edges
        while layer:
            end = next((s for s in layer if self.accepting[s]), None)
            if end is not None:
                break
            following = []
            for s in layer:
                for i in range(edges.first[s], edges.first[s + 1]):
                    if (t := int(edges.head[i])) not in predecessor:
                        predecessor[t] = (s, i)
                        following.append(t)
            layer = following
        if end is None:
            return None
        order, first = self.tokens_by_class
        ids: list[int] = []
        state = end
        while state != self.start:
            previous, i = predecessor[state]
            label = edges.members[edges.members_first[edges.group[i]]]
            ids.append(int(order[first[label]]))
            state = previous
        return ids[::-1]

    def sample(self, rng: np.random.Generator, length: int) -> list[int]:
        """An accepted sequence of `length` tokens, drawn uniformly."""
        self.check_feasible(length)
        sizes = np.bincount(self.class_of, minlength=self.n_classes).astype(np.float64)
        padded = np.where(self.next >= 0, self.next, self.n_states)
        ways = np.zeros((length + 1, self.n_states + 1))
        ways[length, : self.n_states] = self.accepting
        for k in range(length - 1, -1, -1):
            ways[k, : self.n_states] = ways[k + 1][padded] @ sizes
            ways[k] /= ways[k].max()
        order, first = self.tokens_by_class
        ids, state = [], self.start
        for k in range(length):
            weights = sizes * ways[k + 1][padded[state]]
            label = int(rng.choice(self.n_classes, p=weights / weights.sum()))
            ids.append(int(order[rng.integers(first[label], first[label + 1])]))
            state = int(self.next[state, label])
        return ids


def _group_sets(
    label: NDArray[np.int32], begins: NDArray[np.int64], ends: NDArray[np.int64], n_classes: int
) -> tuple[NDArray[np.int32], list[NDArray[np.int32]]]:
    """Number the distinct sets label[b:e] (each sorted); sets with equal hashes are compared."""
    if len(begins) == 0:
        return np.zeros(0, np.int32), []
    code = np.random.default_rng(0).integers(0, 2**63, n_classes, dtype=np.uint64)
    signature = np.add.reduceat(code[label], begins)
    _, representative, group = np.unique(signature, return_index=True, return_inverse=True)
    sizes, representative_of = ends - begins, representative[group]
    at = np.repeat(begins[representative_of], sizes) + np.arange(len(label)) - np.repeat(begins, sizes)
    if (sizes != sizes[representative_of]).any() or (label[at] != label).any():  # two sets with one hash
        keys: dict[bytes, int] = {}
        group = np.array(
            [keys.setdefault(label[b:e].tobytes(), len(keys)) for b, e in zip(begins, ends, strict=True)]
        )
        return group.astype(np.int32), [np.frombuffer(key, np.int32) for key in keys]
    return group.astype(np.int32), [label[begins[i] : ends[i]] for i in representative]

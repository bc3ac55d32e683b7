"""Large values inside larger values: they are references during compilation, and are expanded once at the end.

A machine with a copy of each machine below it would be determinised and minimised again on every level. Instead a
large value is one transition on a byte that no JSON text contains (a control character, or a byte that UTF-8 never
uses). The last step replaces each such transition by the value's own machine, and only that result is determinised
as a whole. Its size is known in advance, so the depth of unconstrained values is decided last.
"""

from __future__ import annotations

import numpy as np

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.nfa import NfaBuilder
from diffinity.limits import compiling

LARGE = 250
# White space is excluded: `flexible` spellings use it.
_ANY = 0x00
_BYTES = bytes([*range(0x01, 0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0xC0, 0xC1, *range(0xF5, 0x100)])


class Assembly:
    """The values of one document that others refer to."""

    def __init__(self) -> None:
        self._byte: dict[ByteDFA, int] = {}
        self._value: dict[int, ByteDFA] = {}
        self._sizes: dict[ByteDFA, dict[ByteDFA, int]] = {}
        self.any = ByteDFA.literal(bytes([_ANY]))

    def bind_any(self, value: ByteDFA) -> None:
        """Bind `any`, the reference to an unconstrained value, to this machine."""
        self._value[_ANY] = value

    def embed(self, nfa: NfaBuilder, value: ByteDFA, entry: int, end: int) -> None:
        """Put a value between two states: a copy if it is small, otherwise a reference."""
        byte = self._byte.get(value)
        if byte is None and value.n_states > LARGE and len(self._byte) < len(_BYTES):
            byte = self._byte[value] = _BYTES[len(self._byte)]
            self._value[byte] = value
        if byte is None:
            nfa.embed(value, entry, end)
        else:
            nfa.edge(entry, byte, byte, end)

    def _references(self, dfa: ByteDFA) -> list[tuple[int, ByteDFA, int]]:
        """The references of a machine to others: (source, value, target)."""
        references = []
        for byte, value in self._value.items():
            column = dfa.table[:, dfa.byte_class[byte]]
            references += [(s, value, int(column[s])) for s in np.flatnonzero(column >= 0).tolist()]
        return references

    def size(self, dfa: ByteDFA, any_value: ByteDFA | None = None) -> int:
        """The number of states of a machine after expansion, with `any` bound to `any_value` if given."""
        bound = any_value or self._value.get(_ANY, self.any)
        return self._size(dfa, self._sizes.setdefault(bound, {}), bound)

    def _size(self, dfa: ByteDFA, known: dict[ByteDFA, int], bound: ByteDFA) -> int:
        if dfa not in known:
            inner = (bound if value is self._value.get(_ANY) else value for _, value, _ in self._references(dfa))
            known[dfa] = dfa.n_states + sum(self._size(value, known, bound) for value in inner)
        return known[dfa]

    def written_out(self, dfa: ByteDFA) -> ByteDFA:
        """The machine without references."""
        if not self._references(dfa):
            return dfa
        with compiling() as budget:
            for limit in ("nfa_states", "dfa_states"):
                budget.check(limit, self.size(dfa), "writing out the schema")
        nfa = NfaBuilder()
        start, end = nfa.state(), nfa.state()
        pending = [(dfa, start, end)]
        known: dict[ByteDFA, tuple[ByteDFA, list[tuple[int, ByteDFA, int]]]] = {}
        while pending:
            part, entry, leave = pending.pop()
            if part not in known:
                known[part] = self._without_references(part), self._references(part)
            plain, references = known[part]
            first = nfa.copy_states(plain, entry, leave)
            pending.extend((value, first + s, first + t) for s, value, t in references)
        return nfa.build(start, [end])

    def _without_references(self, dfa: ByteDFA) -> ByteDFA:
        classes = [int(dfa.byte_class[byte]) for byte in self._value]
        table = dfa.table.copy()
        table[:, classes] = -1
        byte_class = dfa.byte_class.copy()
        return ByteDFA(byte_class, table, dfa.accepting)

"""Sets of names as tries that share nodes: the names that may follow each property of a long list.

Inserting a name copies only the path of this name. So thousands of sets, each with one name less than the previous
set, take as many nodes as all names have bytes.
"""

from __future__ import annotations

from diffinity.constraints.nfa import NfaBuilder


class NameTries:
    """A family of tries, each identified by its root; a name leads to states of the machine that is being built.

    >>> tries = NameTries()
    >>> few = tries.insert(NameTries.EMPTY, b"ab", 0)
    >>> more = tries.insert(few, b"ac", 0)
    >>> nfa = NfaBuilder()
    >>> end, start = nfa.state(), nfa.state()
    >>> tries.emit(nfa, [(start, more)])
    >>> dfa = nfa.build(start, [end])
    >>> dfa.accepts(b"ac"), dfa.accepts(b"a")
    (True, False)
    """

    EMPTY = 0

    def __init__(self) -> None:
        self._children: list[dict[int, int]] = [{}]
        self._targets: list[tuple[int, ...]] = [()]

    def _node(self, children: dict[int, int], targets: tuple[int, ...]) -> int:
        self._children.append(children)
        self._targets.append(targets)
        return len(self._children) - 1

    def beside(self, root: int, target: int) -> int:
        """The trie with an additional empty name, which leads to `target`."""
        return self._node(self._children[root], (*self._targets[root], target))

    def insert(self, root: int, name: bytes, target: int) -> int:
        """The trie with an additional name (or an additional target of a name)."""
        path = [root]
        for byte in name:
            path.append(self._children[path[-1]].get(byte, self.EMPTY))
        node = self.beside(path.pop(), target)
        for byte in reversed(name):
            below = path.pop()
            node = self._node({**self._children[below], byte: node}, self._targets[below])
        return node

    def emit(self, nfa: NfaBuilder, entered: list[tuple[int, int]]) -> None:
        """Write the tries into a machine: from each state of `entered` the names of its root may be read."""
        state: dict[int, int] = {}
        pending: list[int] = []

        def state_of(node: int) -> int:
            if node not in state:
                state[node] = nfa.state()
                pending.append(node)
            return state[node]

        for source, root in entered:
            nfa.epsilon(source, state_of(root))
        while pending:
            node = pending.pop()
            for byte, child in self._children[node].items():
                nfa.edge(state[node], byte, byte, state_of(child))
            for target in self._targets[node]:
                nfa.epsilon(state[node], target)

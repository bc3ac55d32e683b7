"""The byte trie of a vocabulary, as arrays: every prefix of a token is a node, parents before children."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diffinity.compiled import njit


@dataclass(frozen=True)
class Trie:
    """`parent[n]` and `byte[n]` lead to node n; node 0 is the root; `node_of[i]` is where string i ends."""

    parent: NDArray[np.int32]
    byte: NDArray[np.uint8]
    node_of: NDArray[np.int32]

    @property
    def n_nodes(self) -> int:
        return int(self.parent.shape[0])


def build_trie(strings: Sequence[bytes]) -> Trie:
    """The trie of byte strings; equal strings end in the same node.

    >>> trie = build_trie([b"ab", b"a", b"b", b"ab"])
    >>> trie.n_nodes, trie.node_of.tolist()
    (4, [2, 1, 3, 2])
    """
    order = sorted(range(len(strings)), key=strings.__getitem__)
    data = np.frombuffer(b"".join(strings[i] for i in order), np.uint8)
    lengths = np.array([len(strings[i]) for i in order], np.int64)
    ends = np.cumsum(lengths)
    parent, byte = np.empty(len(data) + 1, np.int32), np.zeros(len(data) + 1, np.uint8)
    parent[0] = -1
    path = np.zeros(lengths.max(initial=0) + 1, np.int32)
    ending, node_of = np.empty(len(strings), np.int32), np.empty(len(strings), np.int32)
    n = _grow(data, ends - lengths, ends, path, parent, byte, ending)
    node_of[order] = ending
    return Trie(parent[:n].copy(), byte[:n].copy(), node_of)


@njit(nogil=True, cache=True)
def _grow(
    data: NDArray[np.uint8],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    path: NDArray[np.int32],  # the nodes of the current string's prefixes
    parent: NDArray[np.int32],
    byte: NDArray[np.uint8],
    ending: NDArray[np.int32],
) -> int:
    """Insert sorted strings in order: only the part that differs from the previous string creates nodes."""
    n = 1
    for i in range(begin.shape[0]):
        size = end[i] - begin[i]
        shared = 0
        if i > 0:
            previous_size = end[i - 1] - begin[i - 1]
            while (
                shared < size and shared < previous_size and data[begin[i] + shared] == data[begin[i - 1] + shared]
            ):
                shared += 1
        for j in range(shared, size):
            parent[n] = path[j]
            byte[n] = data[begin[i] + j]
            path[j + 1] = n
            n += 1
        ending[i] = path[size]
    return n

"""Many strings at once: their trie as transitions, ready to be minimised."""

from __future__ import annotations

import numpy as np

from diffinity.constraints import kernels
from diffinity.constraints.kernels import I32, Bools
from diffinity.constraints.minimise import Edges
from diffinity.limits import Budget


def trie_edges(words: list[bytes], budget: Budget) -> tuple[Edges, Bools, I32]:
    """The trie of sorted, distinct words: transitions, accepting states, and the class of each byte.

    >>> from diffinity.limits import Limits
    >>> edges, final, _ = trie_edges([b"a", b"ab"], Budget(Limits()))
    >>> edges.head.tolist(), final.tolist()
    ([1, 2], [False, True, True])
    """
    data = np.frombuffer(b"".join(words), np.uint8)
    # Three int32 per byte here, and the memory of minimisation.
    budget.check("memory_bytes", 80 * data.shape[0], "a list of strings")
    budget.spend(100 * len(words) + 8 * data.shape[0], "a list of strings")
    bounds = np.cumsum([0, *(len(w) for w in words)], dtype=np.int64)
    used = np.zeros(256, np.bool_)
    used[data] = True
    # Bytes that occur in no word share class 0.
    byte_class = np.where(used, np.cumsum(used), 0).astype(np.int32)
    if used.all():
        byte_class -= 1
    tail, label, head, final = kernels.trie(byte_class[data], bounds)
    return Edges(tail, label, head), final, byte_class

"""The hot loops of the automata, in numba: one module for each algorithm.

A compiled kernel stays in `__pycache__` (or $NUMBA_CACHE_DIR) until its own file changes. After a change to a
function that another module's kernel calls, remove that module's cache as well.
"""

from diffinity.constraints.kernels.arrays import (
    DONE,
    GROW_EDGES,
    GROW_POOL,
    GROW_STATES,
    I32,
    I64,
    TICK,
    U64,
    Bools,
)
from diffinity.constraints.kernels.graphs import (
    breadth_first,
    count_class_edges,
    expand_class_edges,
    group_by,
    reach,
)
from diffinity.constraints.kernels.pairs import pairs, refill_pairs
from diffinity.constraints.kernels.refine import refine
from diffinity.constraints.kernels.subsets import refill_slots, subsets
from diffinity.constraints.kernels.trie import trie
from diffinity.constraints.kernels.utf8 import NONE, Edges, Keys, States, expand, rehash

__all__ = [
    "DONE", "GROW_EDGES", "GROW_POOL", "GROW_STATES", "I32", "I64", "NONE", "TICK", "U64", "Bools", "Edges",
    "Keys", "States", "breadth_first", "count_class_edges", "expand", "expand_class_edges",
    "group_by", "pairs", "reach", "refill_pairs", "refill_slots", "refine", "rehash", "subsets", "trie",
]  # fmt: skip

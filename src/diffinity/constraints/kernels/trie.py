"""The loop that builds a trie of sorted words."""

from __future__ import annotations

import numpy as np

from diffinity.compiled import njit
from diffinity.constraints.kernels.arrays import I32, I64, Bools


@njit(nogil=True, cache=True)
def trie(data: I32, bounds: I64) -> tuple[I32, I32, I32, Bools]:
    """Insert the words in order; `path` is where each prefix of the last word ended."""
    size = data.shape[0]
    tail, label, head = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int32)
    final = np.zeros(size + 1, np.bool_)
    longest = 0
    for w in range(bounds.shape[0] - 1):
        longest = max(longest, bounds[w + 1] - bounds[w])
    path = np.zeros(longest + 1, np.int32)
    known, before, length = 0, 0, 0
    for w in range(bounds.shape[0] - 1):
        begin, end = bounds[w], bounds[w + 1]
        common = 0
        while common < length and common < end - begin and data[before + common] == data[begin + common]:
            common += 1
        for i in range(common, end - begin):
            tail[known] = path[i]
            label[known] = data[begin + i]
            known += 1
            head[known - 1] = known
            path[i + 1] = known
        final[path[end - begin]] = True
        before, length = begin, end - begin
    return tail[:known].copy(), label[:known].copy(), head[:known].copy(), final[: known + 1].copy()

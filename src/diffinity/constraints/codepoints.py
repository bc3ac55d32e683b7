"""Sets of Unicode characters as sorted ranges, and the classes of characters that a pattern distinguishes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diffinity.constraints.kernels import I32

LAST = 0x10FFFF
CodeSet = tuple[tuple[int, int], ...]  # (first, last) ranges, sorted, disjoint, not adjacent, no surrogates

SURROGATES = (0xD800, 0xDFFF)


def code_set(ranges: Iterable[tuple[int, int]]) -> CodeSet:
    """Any ranges, in any order, as a `CodeSet`; surrogates, which UTF-8 cannot encode, are removed.

    >>> code_set([(5, 9), (0, 4), (0xD7FF, 0xE000)])
    ((0, 9), (55295, 55295), (57344, 57344))
    """
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    out: list[tuple[int, int]] = []
    for low, high in merged:
        if low < SURROGATES[0]:
            out.append((low, min(high, SURROGATES[0] - 1)))
        if high > SURROGATES[1]:
            out.append((max(low, SURROGATES[1] + 1), high))
    return tuple(out)


def complement(codes: CodeSet) -> CodeSet:
    """All characters that are not in the set.

    >>> complement(((0, 9),))
    ((10, 55295), (57344, 1114111))
    """
    gaps, low = [], 0
    for first, last in codes:
        if low < first:
            gaps.append((low, first - 1))
        low = last + 1
    if low <= LAST:
        gaps.append((low, LAST))
    return code_set(gaps)


class Alphabet(NamedTuple):
    """Characters in classes: `label[i]` is the class of starts[i] … starts[i+1]-1; -1 if they are in no set."""

    starts: NDArray[np.int64]
    label: I32
    n_labels: int


def partition(sets: Sequence[CodeSet]) -> tuple[Alphabet, list[I32]]:
    """The coarsest classes of which every set is a union, and the classes that make up each set.

    >>> alphabet, members = partition([((97, 122),), ((97, 97), (120, 122))])
    >>> alphabet.n_labels, [m.tolist() for m in members]
    (2, [[0, 1], [0]])
    """
    ranges = [np.array(codes, np.int64).reshape(-1, 2) for codes in sets]
    ends = [r + np.array([0, 1]) for r in ranges]
    starts = np.unique(np.concatenate([np.array([0, LAST + 1]), *(e.reshape(-1) for e in ends)]))[:-1]
    # Two intervals are in one class if the same sets contain them: compare sums of one random number per set.
    signature = np.zeros((2, starts.shape[0] + 1), np.uint64)
    rng = np.random.default_rng(0)
    for end in ends:
        low, high = np.searchsorted(starts, end[:, 0]), np.searchsorted(starts, end[:, 1])
        for row, code in zip(signature, rng.integers(1, 2**63, 2, np.uint64), strict=True):
            row[low] += code  # the ranges of a set are not adjacent: no index is repeated
            row[high] -= code
    totals = np.cumsum(signature, axis=1, dtype=np.uint64)[:, :-1]
    # A dictionary: for the few intervals of most patterns, `np.unique` of columns takes longer.
    label_of_signature: dict[tuple[int, int], int] = {(0, 0): -1}
    pairs = zip(totals[0].tolist(), totals[1].tolist(), strict=True)
    label = np.array(
        [label_of_signature.setdefault(pair, len(label_of_signature) - 1) for pair in pairs], np.int32
    )
    members = []
    for end in ends:
        low, high = np.searchsorted(starts, end[:, 0]), np.searchsorted(starts, end[:, 1])
        inside = np.zeros(starts.shape[0] + 1, np.int32)
        inside[low] += 1
        inside[high] -= 1
        members.append(np.unique(label[np.cumsum(inside)[:-1] > 0]))
    return Alphabet(starts, label, len(label_of_signature) - 1), members

"""The product of two deterministic tables: intersection, union or difference."""

from __future__ import annotations

from typing import Literal

import numpy as np

from diffinity.constraints import kernels
from diffinity.constraints.kernels import I32
from diffinity.constraints.minimise import CHUNK, Machine, settle
from diffinity.limits import Budget

Operation = Literal["and", "or", "minus", "xor"]
DOING = "combining two automata"


def product(
    left: Machine, right: Machine, left_class: I32, right_class: I32, operation: Operation, budget: Budget
) -> Machine:
    """The reachable pairs as a table; label c of the result is `left_class[c]` on the left and so on.

    >>> from diffinity.limits import Limits
    >>> a = Machine(np.array([[1, -1], [-1, -1]], np.int32), np.array([False, True]))
    >>> same = np.array([0, 1], np.int32)
    >>> product(a, a, same, same, "minus", Budget(Limits())).accepting.any()
    np.False_
    """
    n_labels = left_class.shape[0]
    limits = budget.limits
    most = (left.table.shape[0] + 1) * (right.table.shape[0] + 1)  # no more pairs than that can exist
    size = min(most + n_labels, 1024 + n_labels)
    pair = np.zeros(size, np.int64)
    table: I32 = np.empty((size, n_labels), np.int32)  # a row is written before it is read
    slots = np.full(1 << (2 * size).bit_length(), -1, np.int32)
    width = right.table.shape[0] + 1
    pair[0] = width + 1
    ctl = np.array([1, 0, CHUNK], np.int64)
    kernels.refill_pairs(pair, 1, slots)
    needs_left, needs_right = operation in ("and", "minus"), operation == "and"
    left_table, right_table = left.table.copy(), right.table.copy()
    while True:
        why = kernels.pairs(
            left_table, right_table, left_class, right_class, needs_left, needs_right,
            pair, slots, table, ctl,
        )  # fmt: skip
        settle(ctl, budget, DOING)
        if why == kernels.DONE:
            break
        if why == kernels.GROW_STATES:
            known = int(ctl[0])
            budget.check("dfa_states", known, DOING)
            budget.check("table_entries", known * n_labels, DOING)
            size = min(2 * known, limits.dfa_states, limits.table_entries // n_labels) + n_labels
            budget.check("memory_bytes", 6 * size * (n_labels + 6), DOING)
            pair = np.concatenate([pair[:known], np.zeros(size - known, np.int64)])
            larger = np.empty((size, n_labels), np.int32)
            larger[:known] = table[:known]
            table = larger
            slots = np.full(1 << (2 * size).bit_length(), -1, np.int32)
            kernels.refill_pairs(pair, known, slots)
    known = int(ctl[0])
    budget.check("dfa_states", known, DOING)  # the first arrays may be larger than a low limit
    in_left = np.append(left.accepting, False)[pair[:known] // width - 1]
    in_right = np.append(right.accepting, False)[pair[:known] % width - 1]
    verdict = {
        "and": in_left & in_right,
        "or": in_left | in_right,
        "minus": in_left & ~in_right,
        "xor": in_left ^ in_right,
    }[operation]
    return Machine(table[:known].copy(), verdict)

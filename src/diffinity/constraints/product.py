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
    """The reachable pairs of states as a table.

    Label c of the result is label `left_class[c]` of the left machine and `right_class[c]` of the right machine.

    >>> from diffinity.limits import Limits
    >>> a = Machine(np.array([[1, -1], [-1, -1]], np.int32), np.array([False, True]))
    >>> same = np.array([0, 1], np.int32)
    >>> product(a, a, same, same, "minus", Budget(Limits())).accepting.any()
    np.False_
    """
    n_labels = left_class.shape[0]
    limits = budget.limits
    max_pairs = (left.table.shape[0] + 1) * (right.table.shape[0] + 1)
    size = min(max_pairs + n_labels, 1024 + n_labels)
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
        status = kernels.pairs(
            left_table, right_table, left_class, right_class, needs_left, needs_right,
            pair, slots, table, ctl,
        )  # fmt: skip
        settle(ctl, budget, DOING)
        if status == kernels.DONE:
            break
        if status == kernels.GROW_STATES:
            n_pairs = int(ctl[0])
            budget.check("dfa_states", n_pairs, DOING)
            budget.check("table_entries", n_pairs * n_labels, DOING)
            size = min(2 * n_pairs, limits.dfa_states, limits.table_entries // n_labels) + n_labels
            budget.check("memory_bytes", 6 * size * (n_labels + 6), DOING)
            pair = np.concatenate([pair[:n_pairs], np.zeros(size - n_pairs, np.int64)])
            larger = np.empty((size, n_labels), np.int32)
            larger[:n_pairs] = table[:n_pairs]
            table = larger
            slots = np.full(1 << (2 * size).bit_length(), -1, np.int32)
            kernels.refill_pairs(pair, n_pairs, slots)
    n_pairs = int(ctl[0])
    budget.check("dfa_states", n_pairs, DOING)  # the first arrays may be larger than a low limit
    in_left = np.append(left.accepting, False)[pair[:n_pairs] // width - 1]
    in_right = np.append(right.accepting, False)[pair[:n_pairs] % width - 1]
    verdict = {
        "and": in_left & in_right,
        "or": in_left | in_right,
        "minus": in_left & ~in_right,
        "xor": in_left ^ in_right,
    }[operation]
    return Machine(table[:n_pairs].copy(), verdict)

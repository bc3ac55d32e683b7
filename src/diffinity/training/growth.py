"""More blocks for a finished network, without a change of what it computes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor

from diffinity.errors import InvalidArgument

_BLOCK = re.compile(r"(.*\bblocks\.)(\d+)\.(.*)")
_BRANCH_ENDS = ("attn_out.weight", "mlp.fc2.weight")  # the last matrix of each residual branch


def count_blocks(weights: Mapping[str, Tensor]) -> int:
    """The number of blocks of a network with these weights."""
    return len({match[2] for match in map(_BLOCK.fullmatch, weights) if match})


def grown(weights: Mapping[str, Tensor], n_blocks: int) -> dict[str, Tensor]:
    """The weights of a network with `n_blocks` blocks that computes the same as the network of `weights`.

    The new blocks are spread evenly. A new block is a copy of the block before it, except that its residual
    branches end in zeros, so that at first it adds nothing. The network divides residuals by √blocks, which the
    ends of the old branches make up for.

    >>> weights = {f"blocks.{i}.attn_out.weight": torch.full((1, 1), 1.0 + i) for i in range(2)}
    >>> [round(float(weight), 3) for weight in grown(weights, 4).values()]
    [1.414, 0.0, 2.828, 0.0]
    """
    before = count_blocks(weights)
    if n_blocks < before:
        raise InvalidArgument(
            f"the model to start from has {before} blocks; a run can add blocks, not remove them"
        )
    if n_blocks == before:
        return dict(weights)
    first_copy = [block * n_blocks // before for block in range(before)]
    result: dict[str, Tensor] = {}
    for name, weight in weights.items():
        match = _BLOCK.fullmatch(name)
        if match is None:
            result[name] = weight
            continue
        prefix, block, part = match[1], int(match[2]), match[3]
        end = (*first_copy, n_blocks)[block + 1]
        for copy in range(first_copy[block], end):
            if part not in _BRANCH_ENDS:
                value = weight.clone()
            elif copy == first_copy[block]:
                value = weight * math.sqrt(n_blocks / before)
            else:
                value = torch.zeros_like(weight)
            result[f"{prefix}{copy}.{part}"] = value
    return result

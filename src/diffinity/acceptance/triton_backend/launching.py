"""Launching kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton

ROWS = 8  # maximum number of positions for which a program reads its token ids once, in a pass over the scores
PROGRAMS = 1024  # minimum number of programs in a pass over the scores: fewer would leave a GPU idle
PIECES = 128  # pieces of a tree that a program adds up at a time, one per thread
BLOCK = 256
WARP_BLOCK = 64  # block size of a program of one warp, whose steps depend on each other


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, num_warps: int = 4, **constants: Any) -> None:
    """One kernel launch, on the device of the first argument; all launches go through here."""
    if interpreted():
        with np.errstate(all="ignore"):  # the interpreter is numpy, and infinities are intended
            kernel[grid](*arguments, num_warps=num_warps, **constants)
        return
    with torch.cuda.device(arguments[0].device):
        kernel[grid](*arguments, num_warps=num_warps, **constants)


def rows_of(programs: int, length: int) -> int:
    """Positions per program in a pass over the scores, given the number of programs per position.

    It affects only the division of work, not the results.

    >>> rows_of(16, 1024), rows_of(16, 64)
    (8, 2)
    """
    return ROWS if programs * length >= ROWS * PROGRAMS else 2


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter."""
    return bool(triton.knobs.runtime.interpret)

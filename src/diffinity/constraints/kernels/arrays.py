"""The array types of the automata, and what a resumable kernel comes back for.

Every loop that may run long is resumable: it keeps its place in a `ctl` array, takes the steps that it makes off
the last entry of it and returns when none is left, so that its caller can count them and grow an array. Arrays
are C-contiguous and writable, so that each kernel is compiled for one signature only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Bools = NDArray[np.bool_]

DONE, TICK, GROW_STATES, GROW_POOL, GROW_EDGES = 0, 1, 2, 3, 4

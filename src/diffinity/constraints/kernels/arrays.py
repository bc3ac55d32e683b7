"""The array types of the automata, and the reasons why a resumable kernel returns.

Every loop that may run long is resumable. It stores its position in a `ctl` array, subtracts its steps from the
last entry and returns when none are left, so that its caller can count the steps and enlarge an array. Arrays are
C-contiguous and writable, so that each kernel is compiled for one signature only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Bools = NDArray[np.bool_]

DONE, TICK, GROW_STATES, GROW_POOL, GROW_EDGES = 0, 1, 2, 3, 4

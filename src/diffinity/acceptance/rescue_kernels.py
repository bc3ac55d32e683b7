"""Sums of classes whose probability is too small for the softmax's type, computed again from the logits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diffinity.acceptance.numba_kernels import I64, TINY, Bools, Floats
from diffinity.compiled import njit

REACH = 40.0  # nats below a class's largest logit; tokens further below add less than 1e-12 of the sum


@njit(nogil=True, cache=True)
def rescue_sums(
    logits: NDArray[np.float32],
    log_norm: Floats,
    members: I64,
    first: I64,
    useful: Bools,
    sums: Floats,
    log_sums: Floats,
) -> None:
    """log_sums[k, c] = log of the class sum, computed from the logits if the sum is too small for float32.

    Classes without transitions have −inf.
    """
    length, n_classes = sums.shape
    for k in range(length):
        row = logits[k]
        for c in range(n_classes):
            if not useful[c]:
                log_sums[k, c] = -np.inf
            elif sums[k, c] > TINY:
                log_sums[k, c] = np.log(sums[k, c])
            else:
                peak = -np.inf
                for i in range(first[c], first[c + 1]):
                    peak = max(peak, row[members[i]])
                total = 0.0
                if peak > -np.inf:
                    for i in range(first[c], first[c + 1]):
                        below = row[members[i]] - peak
                        if below > -REACH:
                            total += np.exp(below)
                    log_sums[k, c] = peak + np.log(total) - log_norm[k]
                else:
                    log_sums[k, c] = -np.inf


@njit(nogil=True, cache=True)
def scale_rows(log_sums: Floats, scaled: Floats, log_scale: Floats) -> None:
    """scaled = exp(log_sums − row maximum); the maxima go to log_scale (0 for a row of −inf)."""
    for k in range(log_sums.shape[0]):
        peak = -np.inf
        for c in range(log_sums.shape[1]):
            peak = max(peak, log_sums[k, c])
        log_scale[k] = peak if peak > -np.inf else 0.0
        for c in range(log_sums.shape[1]):
            scaled[k, c] = np.exp(log_sums[k, c] - log_scale[k])


@njit(nogil=True, cache=True)
def expand_rescued(
    logits: NDArray[np.float32],
    log_norm: Floats,
    members: I64,
    first: I64,
    sums: Floats,
    log_sums: Floats,
    mass: Floats,
    out: NDArray[np.float32],
) -> None:
    """For classes whose sum was computed from logits: out[k, v] = mass[k, c]·p(v | class c)."""
    for k in range(sums.shape[0]):
        for c in range(sums.shape[1]):
            if sums[k, c] <= TINY and mass[k, c] > 0.0:
                for i in range(first[c], first[c + 1]):
                    v = members[i]
                    out[k, v] = mass[k, c] * np.exp(logits[k, v] - log_norm[k] - log_sums[k, c])

"""The dynamic programme as Triton kernels, for a GPU; in Triton's interpreter on the CPU, for tests.

A step in closed form takes six launches, for any length: class sums, weights, recursions, posterior, q·E over
parts of the vocabulary, and the sum of these parts. It reads the logits twice and never waits for the host.
Results are bitwise reproducible, and a sample does not depend on its batch.
"""

from __future__ import annotations

from diffinity.acceptance.triton_backend.launching import interpreted
from diffinity.acceptance.triton_backend.outputs import marginals, mean
from diffinity.acceptance.triton_backend.strings import best_strings, draws, keys_of, top_strings
from diffinity.acceptance.triton_backend.tilts import path_tilt, posterior_tilt
from diffinity.acceptance.triton_backend.weights import weights_of

__all__ = [
    "best_strings",
    "draws",
    "interpreted",
    "keys_of",
    "marginals",
    "mean",
    "path_tilt",
    "posterior_tilt",
    "top_strings",
    "weights_of",
]

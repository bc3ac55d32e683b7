"""One token from logits: the mask, the temperature, the nucleus, and one uniform number."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diffinity.errors import InvalidArgument


def draw(
    logits: NDArray[np.floating[Any]],
    allowed: NDArray[np.bool_],
    generator: torch.Generator,
    temperature: float = 1.0,
    top_p: float = 1.0,
) -> int:
    """A token from softmax(logits / temperature) over the allowed tokens; logits and allowed are (V,).

    Temperature 0 takes the most probable. `top_p` below 1 keeps the fewest most probable tokens that have that
    much of what is allowed. Every call takes one number from the generator, whatever comes of it.

    >>> draw(np.array([0.0, 9.0, 1.0]), np.array([True, False, True]), torch.Generator(), temperature=0)
    2
    """
    candidates = np.flatnonzero(allowed)
    if len(candidates) == 0:
        raise InvalidArgument("no token is allowed")
    scores = logits[candidates].astype(np.float64)
    uniform = float(torch.rand((), generator=generator, dtype=torch.float64))
    if temperature == 0:
        return int(candidates[scores.argmax()])
    weights = np.exp((scores - scores.max()) / temperature)
    if top_p < 1:
        order = np.argsort(-weights, kind="stable")
        mass = np.cumsum(weights[order])
        weights[order[1:][mass[:-1] >= top_p * mass[-1]]] = 0.0
    total = np.cumsum(weights)
    chosen = np.searchsorted(total, uniform * total[-1], side="right")
    return int(candidates[min(chosen, np.flatnonzero(weights)[-1])])


def check_draw(temperature: float, top_p: float = 1.0) -> None:
    """Refuse a temperature or a nucleus that `draw` can't use.

    >>> check_draw(temperature=-1)
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: temperature must not be negative, but is -1
    """
    if not temperature >= 0:
        raise InvalidArgument(f"temperature must not be negative, but is {temperature}")
    if not 0 < top_p <= 1:
        raise InvalidArgument(f"top_p must be above 0 and at most 1, but is {top_p}")

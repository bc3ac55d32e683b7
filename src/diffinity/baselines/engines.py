"""Engines that compute which tokens may come next: the interface, the engine "none", and engines by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from diffinity.constraints.base import Constraint
from diffinity.errors import InvalidArgument
from diffinity.models.protocol import CausalModel, vocabulary_of

EngineName = Literal["llguidance", "outlines-core", "diffinity", "none"]  # diffinity: `processes/causal.py`


class Matcher(Protocol):
    """The state of one text in a constraint."""

    def allowed(self) -> NDArray[np.bool_]:
        """(V,): the allowed next tokens, including the end token if the text is complete."""
        ...

    def advance(self, token: int) -> None:
        """Append an allowed token, other than the end token."""
        ...


class Engine(Protocol):
    """A method to compute the allowed next tokens."""

    def matchers(self, constraint: Constraint, model: CausalModel, n: int, length: int) -> list[Matcher]:
        """n matchers at the start of a text of at most `length` tokens."""
        ...


@dataclass(frozen=True)
class AnyToken:
    """No constraint: every ordinary token and the end token."""

    tokens: NDArray[np.bool_]

    def allowed(self) -> NDArray[np.bool_]:
        return self.tokens

    def advance(self, token: int) -> None:
        return None


class NoEngine:
    """The engine `none`."""

    def matchers(self, constraint: Constraint, model: CausalModel, n: int, length: int) -> list[Matcher]:
        vocabulary = vocabulary_of(model)
        tokens = np.zeros(len(vocabulary), np.bool_)
        tokens[vocabulary.ordinary] = True
        tokens[vocabulary.eos_id] = True
        return [AnyToken(tokens)] * n


def engine_named(name: str) -> Engine:
    """The engine with this name; its package is imported here.

    >>> type(engine_named("none")).__name__
    'NoEngine'
    """
    try:
        if name == "llguidance":
            from diffinity.baselines.llguidance_engine import LlguidanceEngine

            return LlguidanceEngine()
        if name == "outlines-core":
            from diffinity.baselines.outlines_engine import OutlinesEngine

            return OutlinesEngine()
    except ImportError as error:
        raise InvalidArgument(
            f"the engine {name!r} needs a package that is not installed ({error}): pip install 'diffinity[bench]'"
        ) from None
    if name == "none":
        return NoEngine()
    raise InvalidArgument(f"engine must be 'llguidance', 'outlines-core', 'diffinity' or 'none', but is {name!r}")

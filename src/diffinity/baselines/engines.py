"""Engines that say which tokens may come next: the interface, ours, none at all, and the others by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from diffinity.alignment import TokenAutomaton, align
from diffinity.baselines.spelling import Spells, vocabulary_of
from diffinity.constraints.base import Constraint
from diffinity.errors import InvalidArgument

EngineName = Literal["llguidance", "outlines-core", "diffinity", "none"]


class Matcher(Protocol):
    """Where one text stands in a constraint."""

    def allowed(self) -> NDArray[np.bool_]:
        """(V,): the tokens that may come next; the end token is one of them when the text is complete."""
        ...

    def advance(self, token: int) -> None:
        """Take one of the allowed tokens, other than the end token."""
        ...


class Engine(Protocol):
    """One way to find what may come next."""

    def matchers(self, constraint: Constraint, model: Spells, n: int, length: int) -> list[Matcher]:
        """n matchers at the start of a text of at most `length` tokens."""
        ...


@dataclass
class AutomatonMatcher:
    """Our token automaton: allows what can still be completed, and ended, within the length.

    >>> import diffinity as dy
    >>> vocabulary = dy.Vocabulary([b"a", b"b", None], eos_id=2)
    >>> matcher = AutomatonMatcher(align(dy.Regex("a*b"), vocabulary, "eos"), length=3)
    >>> matcher.advance(0)
    >>> matcher.allowed().tolist()  # two tokens are left: "b" and the end
    [False, True, False]
    """

    automaton: TokenAutomaton
    length: int
    state: int = 0
    taken: int = 0
    _live: NDArray[np.bool_] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        live = self.automaton.live(self.length)
        # The last column is what the transition −1 falls on.
        self._live = np.concatenate([live, np.zeros((len(live), 1), np.bool_)], axis=1)

    def allowed(self) -> NDArray[np.bool_]:
        by_class = self._live[self.taken + 1][self.automaton.next[self.state]]
        return np.asarray(by_class[self.automaton.class_of])

    def advance(self, token: int) -> None:
        self.state = int(self.automaton.next[self.state, self.automaton.class_of[token]])
        self.taken += 1


class AutomatonEngine:
    """The engine `diffinity`; `InfeasibleConstraint` where no text fits the length."""

    def matchers(self, constraint: Constraint, model: Spells, n: int, length: int) -> list[Matcher]:
        automaton = align(constraint, vocabulary_of(model), "eos")
        automaton.check_feasible(length)
        return [AutomatonMatcher(automaton, length) for _ in range(n)]


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

    def matchers(self, constraint: Constraint, model: Spells, n: int, length: int) -> list[Matcher]:
        vocabulary = vocabulary_of(model)
        tokens = np.zeros(len(vocabulary), np.bool_)
        tokens[vocabulary.ordinary] = True
        tokens[vocabulary.eos_id] = True
        return [AnyToken(tokens)] * n


def engine_named(name: str) -> Engine:
    """The engine of that name; the package that it needs is imported here.

    >>> type(engine_named("diffinity")).__name__
    'AutomatonEngine'
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
            f"the engine {name!r} needs a package that is not here ({error}): pip install 'diffinity[bench]'"
        ) from None
    if name == "diffinity":
        return AutomatonEngine()
    if name == "none":
        return NoEngine()
    raise InvalidArgument(f"engine must be 'llguidance', 'outlines-core', 'diffinity' or 'none', but is {name!r}")

"""Guidance methods by name: the methods themselves, and the presets `auto`, `fast` and `best`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from diffinity.acceptance.chain import MOST_STATES
from diffinity.alignment import TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.guidance.base import Guidance
from diffinity.guidance.chain import ChainGuidance
from diffinity.guidance.gradient import GradientGuidance
from diffinity.guidance.mixed import MixedGuidance, SplitGuidance
from diffinity.guidance.path import PathGuidance
from diffinity.guidance.posterior import PosteriorGuidance

GuidanceName = Literal["auto", "fast", "best", "mixed", "gradient", "posterior", "path", "chain", "paper", "none"]
Automata = Sequence[TokenAutomaton]


GRADIENT_SHARE = 0.35  # share of the steps of "auto" with the gradient; it costs half the time of an unguided run


def _auto(automata: Automata, scale: float) -> Guidance:
    return MixedGuidance(GradientGuidance(automata, scale), PosteriorGuidance(automata, scale), GRADIENT_SHARE)


CHAIN_SHARE = 0.6  # factor on the guidance scale in chain guidance: 1.5 instead of 2.5


def chain_where_small(automata: Automata, scale: float) -> Guidance:
    """`auto` for a model with bigrams: `chain` for small automata, otherwise as for a model without bigrams."""
    is_small = [automaton.n_states <= MOST_STATES for automaton in automata]
    small_automata = [
        automaton for automaton, automaton_is_small in zip(automata, is_small, strict=True) if automaton_is_small
    ]
    large_automata = [
        automaton
        for automaton, automaton_is_small in zip(automata, is_small, strict=True)
        if not automaton_is_small
    ]
    return SplitGuidance(
        ChainGuidance(small_automata, CHAIN_SHARE * scale), _auto(large_automata, scale), tuple(is_small)
    )


def _mixed(automata: Automata, scale: float) -> Guidance:
    return MixedGuidance(GradientGuidance(automata, scale), PathGuidance(automata, scale))


_MAKERS: dict[str, Callable[[Automata, float], Guidance | None]] = {
    "auto": _auto,
    "fast": lambda automata, scale: PosteriorGuidance(automata, scale),
    "best": lambda automata, scale: GradientGuidance(automata, scale),
    "mixed": _mixed,
    "gradient": lambda automata, scale: GradientGuidance(automata, scale),
    "posterior": lambda automata, scale: PosteriorGuidance(automata, scale),
    "path": lambda automata, scale: PathGuidance(automata, scale),
    "chain": lambda automata, scale: ChainGuidance(automata, scale),
    "paper": lambda automata, scale: GradientGuidance(automata, scale, guided_selfcond=False),
    "none": lambda _automata, _scale: None,
}


def named_guidance(name: str, automata: Automata, scale: float = 2.5) -> Guidance | None:
    """The guidance with this name, for one automaton per sample; None for "none".

    "auto" and "best" are for a model without bigrams; for a model with bigrams use `chain_where_small`. "fast" is
    the cheapest and "best" the most expensive preset (docs/sampling.md has the figures).

    >>> named_guidance("path", [], scale=1.5).scale
    1.5
    """
    check_name(name)
    return _MAKERS[name](automata, scale)


def check_name(name: str) -> None:
    """Refuse an unknown guidance name.

    >>> check_name("auto")
    """
    if name not in _MAKERS:
        raise InvalidArgument(f"guidance must be one of {', '.join(_MAKERS)}, but is {name!r}")

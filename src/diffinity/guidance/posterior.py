"""Posterior guidance: x̂ + scale·(q − p)·E, the part of the paper's gradient that needs no backward pass."""

from __future__ import annotations

from dataclasses import dataclass

from diffinity.guidance.language import LanguageGuidance


@dataclass(frozen=True)
class PosteriorGuidance(LanguageGuidance):
    """The closed form; at guidance scale 1 the estimate is q·E, the conditional mean of independent positions."""

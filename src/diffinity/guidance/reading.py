"""Acceptance of the distributions at one step: log P(L), q, q − p and q·E, each computed on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from diffinity.acceptance import (
    Acceptance,
    Backend,
    GradientAcceptance,
    MeanAcceptance,
    acceptance,
    gradient_acceptance,
    mean_acceptance,
    path_acceptance,
)
from diffinity.alignment import TokenAutomaton


@dataclass(frozen=True)
class Reading:
    """The acceptance of a step's logits under the constraint: log P(L), and on demand q, q − p and q·E.

    With `path`, q is conditioned on one path of automaton states: the most probable path, or one drawn with
    `path_seed`.

    >>> import torch, diffinity as dy
    >>> ab = dy.align(dy.Regex("ab|ba"), dy.Vocabulary([b"a", b"b"]), framing="exact")
    >>> reading = Reading(torch.tensor([[[0.6, 0.4], [0.9, 0.1]]]).log(), [ab])
    >>> round(float(reading.log_p_language.exp()), 6), reading.marginals[0, 0].argmax().item()
    (0.42, 1)
    """

    logits: Tensor  # (B, L, V)
    automata: TokenAutomaton | Sequence[TokenAutomaton]
    path: bool = False
    path_seed: int | None = None
    backend: Backend = "auto"

    @property
    def log_p_language(self) -> Tensor:
        """log P(L), (B,), float64; with `path`, the log probability of the path."""
        return self._acceptance.log_p_language

    @property
    def marginals(self) -> Tensor:
        """q (B, L, V)."""
        return self._acceptance.marginals

    @cached_property
    def _acceptance(self) -> Acceptance:
        if self.path:
            return path_acceptance(
                self.logits, self.automata, logits=True, seed=self.path_seed, backend=self.backend
            )
        return acceptance(self.logits, self.automata, logits=True, backend=self.backend)

    def gradient(self, softmax: Tensor) -> GradientAcceptance:
        """log P(L) and q − p, which may overwrite the softmax."""
        return gradient_acceptance(
            self.logits, self.automata, softmax, path=self.path, seed=self.path_seed, backend=self.backend
        )

    def mean(self, softmax: Tensor, x: Tensor, embedding: Tensor, certain: float | None = None) -> MeanAcceptance:
        """log P(L) and q·E, where x is p·E; the softmax may be overwritten.

        Samples whose log P(L) is above −`certain` keep x.
        """
        return mean_acceptance(
            self.logits,
            self.automata,
            softmax,
            x,
            embedding,
            path=self.path,
            seed=self.path_seed,
            certain=certain,
            backend=self.backend,
        )

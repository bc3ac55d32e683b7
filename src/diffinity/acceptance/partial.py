"""Partially committed strings: log P(L), confidences and draws of the open positions, computed by token class.

A step of a discrete process needs log P(L), the confidence of each open position, and the tokens of a few
positions. None of these needs q over the whole vocabulary: one pass over the open rows (`class_scores`) gives the
sums and the maxima of the classes, and the rest is computed by class.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.acceptance import class_kernels, cpu, partial_kernels, path_kernels
from diffinity.acceptance import numba_kernels as kernels
from diffinity.acceptance.classes import ClassScores, class_scores, shift_tokens
from diffinity.alignment.automaton import TokenAutomaton

OPEN = -1  # a position without a token
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PartialString:
    """One sample: distributions at its open positions, tokens at the other positions.

    >>> import diffinity as dy
    >>> ab = dy.align(dy.Regex("ab|ba"), dy.Vocabulary([b"a", b"b"]), framing="exact")
    >>> string = PartialString.of(torch.tensor([[0.6, 0.4]]).log(), torch.tensor([OPEN, 0]), ab)
    >>> round(float(np.exp(string.log_p_language)), 6), string.best().tolist()  # "b", because "a" follows
    (0.4, [1])
    """

    logits: Tensor  # (M, V): of the open positions, on any device
    tokens: NDArray[np.int64]  # (L,), OPEN at open positions
    automaton: TokenAutomaton

    @staticmethod
    def of(logits: Tensor, tokens: Tensor, automaton: TokenAutomaton) -> PartialString:
        """From the logits (M, V) of the open positions of tokens (L,)."""
        return PartialString(logits.detach(), tokens.cpu().numpy(), automaton)

    @cached_property
    def at(self) -> NDArray[np.int64]:
        """(M,): the open positions."""
        return np.flatnonzero(self.tokens == OPEN)

    @cached_property
    def scores(self) -> ClassScores:
        """The sums and maxima of the classes at the open positions."""
        return class_scores(self.logits, self.automaton)

    @cached_property
    def _open(self) -> cpu.Weights:
        """The sums of the open rows in the form that the dynamic programme takes."""
        return self.scores.weights(self.automaton)

    @cached_property
    def _labels(self) -> NDArray[np.int64]:
        """(L,): the class of the token at each position, OPEN at open positions."""
        classes = self.automaton.class_of[np.maximum(self.tokens, 0)]
        return np.where(self.tokens == OPEN, OPEN, classes).astype(np.int64)

    @cached_property
    def _grouped(self) -> Floats:
        """(L, G): the weight of every group of classes."""
        edges, rows = self.automaton.edges, self._open
        grouped = np.empty((len(self.tokens), edges.n_groups))
        grouped[self.at] = rows.grouped
        partial_kernels.decided_groups(self._labels, edges.members_first, edges.members, grouped)
        return grouped

    @cached_property
    def _forward(self) -> tuple[float, Floats]:
        return self._log_p_language_of(self._grouped, float(self._open.log_scale.sum()))

    def _log_p_language_of(self, grouped: Floats, log_scale: float) -> tuple[float, Floats]:
        automaton, length = self.automaton, len(grouped)
        alpha = np.empty((length + 1, automaton.arrows.n_nodes))
        log_total = kernels.forward(grouped, automaton.arrows, automaton.live(length), automaton.accepting, alpha)
        return float(log_total) + log_scale, alpha

    @property
    def log_p_language(self) -> float:
        """log P(L) given the committed tokens."""
        return self._forward[0]

    @cached_property
    def confidence(self) -> Floats:
        """(M,): the largest probability of a token given acceptance, at each open position."""
        if self._ratio is None:  # P(L) = 0
            return np.asarray(np.exp(self.scores.best.max(axis=1)))
        return np.asarray((np.exp(self.scores.best - self._open.log_scale[:, None]) * self._ratio).max(axis=1))

    @cached_property
    def _ratio(self) -> Floats | None:
        """(M, C): q/p of the classes at the open positions, in units of the scaled sums; None if P(L) = 0."""
        if self.log_p_language == -np.inf:
            return None
        edges = self.automaton.edges
        posterior = np.empty_like(self._grouped)
        kernels.backward(
            self._grouped, self.automaton.arrows, self.automaton.accepting, self._forward[1], posterior
        )
        ratio = np.empty((len(self.at), self.automaton.n_classes))
        kernels.spread(posterior[self.at], edges.members_first, edges.members, ratio)
        return ratio

    def marginals(self) -> Tensor:
        """(M, V): q of the open positions, on the device of the logits; p if P(L) = 0."""
        logits = self.logits if self.logits.dtype == torch.float64 else self.logits.float()
        if self._ratio is None:
            return logits.softmax(dim=-1)
        with np.errstate(divide="ignore"):
            log_ratio = np.log(self._ratio) - (self._open.log_scale + self.scores.log_norm)[:, None]
        log_q = torch.empty_like(logits)
        shift_tokens(logits, self.automaton, log_ratio, log_q)
        return log_q.exp_()

    def draw(self, chosen: NDArray[np.int64], draws: Floats) -> NDArray[np.int64]:
        """The tokens of some open positions (indices into `at`) of a string drawn from p given acceptance.

        `draws` are L + 1 numbers from [0, 1) for the path, then one for the class and one for the token of each
        position, 3·L + 1 in all. If P(L) = 0, the tokens are those of the most probable accepted string.
        """
        length, edges = len(self.tokens), self.automaton.edges
        if self.log_p_language == -np.inf:
            return self.best()[chosen]
        path = np.zeros(length, np.int64)
        path_kernels.sample_path(
            self._grouped,
            self.automaton.arrows,
            self._forward[1],
            self.automaton.accepting,
            draws[: length + 1],
            path,
        )
        order, first = self.automaton.tokens_by_class
        scores, at = self.scores, self.at[chosen]
        labels, ids = np.empty(len(chosen), np.int64), np.empty(len(chosen), np.int64)
        partial_kernels.draw_classes(
            self._open.scaled, chosen, path[at], edges.members_first, edges.members, draws[length + 1 + at], labels
        )
        best = scores.best[chosen, labels]
        logits, rows = self._on_cpu(chosen)
        class_kernels.draw_tokens(
            logits,
            rows,
            labels,
            best + scores.log_norm[chosen],
            np.exp(scores.log_sums[chosen, labels] - best),
            order,
            first,
            draws[2 * length + 1 + at],
            ids,
        )
        return ids

    def _on_cpu(self, chosen: NDArray[np.int64]) -> tuple[cpu.Array, NDArray[np.int64]]:
        """Logits on the CPU and the rows of the chosen positions; from a device only these rows are copied."""
        logits = self.logits
        if logits.device.type != "cpu" or logits.dtype not in (torch.float32, torch.float64):
            logits = logits[torch.from_numpy(chosen).to(logits.device)].float().cpu()
            return logits.numpy(), np.arange(len(chosen))
        return logits.contiguous().numpy(), chosen

    def best(self, chosen: NDArray[np.int64] | None = None, noise: Floats | None = None) -> NDArray[np.int64]:
        """The tokens (M,) at the open positions of the most probable accepted string.

        With `chosen`, only the tokens of these positions are scored, and the other positions may have any tokens
        that complete the string (DINGO's programme); the result has the tokens of the chosen positions,
        (len(chosen),). `noise` (M, V) or (len(chosen), V) is added to log p.
        """
        automaton, edges, length = self.automaton, self.automaton.edges, len(self.tokens)
        rows = np.arange(len(self.at)) if chosen is None else chosen
        if noise is None:
            scores = self.scores if chosen is None else self.scores.at(chosen)
        else:
            noisy = self.logits[torch.from_numpy(rows).to(self.logits.device)].double().cpu()
            scores = class_scores(noisy + torch.from_numpy(noise), automaton)
        best_token = scores.best_token
        largest = np.where(best_token >= 0, np.maximum(scores.best, cpu.FLOOR), -np.inf)
        by_group = np.empty((len(rows), edges.n_groups))
        best_class = np.empty(by_group.shape, np.int32)
        path_kernels.group_maxima(largest, edges.members_first, edges.members, by_group, best_class)
        weight = np.zeros((length, edges.n_groups))
        partial_kernels.decided_groups(self._labels, edges.members_first, edges.members, weight)
        with np.errstate(divide="ignore"):
            weight = np.where(self._labels[:, None] == OPEN, weight, np.log(weight))
        weight[self.at[rows]] = by_group
        path, _ = cpu.best_path(weight, automaton)
        at = np.arange(len(rows))
        return best_token[at, best_class[at, path[self.at[rows]]]].astype(np.int64)

    def log_p_language_given(self, chosen: NDArray[np.int64], ids: NDArray[np.int64]) -> float:
        """log P(L) given these tokens at some open positions, with the distributions at the other positions."""
        labels = np.full(len(self.tokens), OPEN, np.int64)
        labels[self.at[chosen]] = self.automaton.class_of[ids]
        grouped = self._grouped.copy()
        partial_kernels.decided_groups(
            labels, self.automaton.edges.members_first, self.automaton.edges.members, grouped
        )
        other_scales = np.delete(self._open.log_scale, chosen)
        return self._log_p_language_of(grouped, float(other_scales.sum()))[0]

    def can_complete(self, chosen: NDArray[np.int64], ids: NDArray[np.int64]) -> bool:
        """Whether these tokens can be completed to an accepted string at the other open positions."""
        edges = self.automaton.edges
        labels = self._labels.copy()
        labels[self.at[chosen]] = self.automaton.class_of[ids]
        grouped = np.ones((len(self.tokens), edges.n_groups))
        partial_kernels.decided_groups(labels, edges.members_first, edges.members, grouped)
        automaton = self.automaton
        return bool(
            partial_kernels.reachable(
                grouped, edges.tail, edges.head, edges.group, automaton.start, automaton.accepting
            )
        )

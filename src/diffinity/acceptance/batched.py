"""The torch backend: all samples of an automaton at once, on any device; the tests' reference for other backends.

Everything is float64. Class sums of logits are computed as log-sum-exp per class, so nothing underflows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.alignment.automaton import TokenAutomaton


@dataclass(frozen=True)
class Programme:
    """The automaton's arrays on a device, for samples whose automata share their transitions."""

    class_of: Tensor  # (V,)
    tail: Tensor  # (P,)
    head: Tensor  # (P,)
    group: Tensor  # (P,)
    members: Tensor  # (M,): the classes of all groups, concatenated
    group_of_member: Tensor  # (M,)
    live: Tensor  # (B, L+1, S): the first row holds the start state
    accepting: Tensor  # (B, S)
    useless: Tensor  # (C,)

    @staticmethod
    def of(automata: Sequence[TokenAutomaton], length: int, device: torch.device) -> Programme:
        automaton, edges = automata[0], automata[0].edges
        sizes = np.diff(edges.members_first)
        return Programme(
            _index(automaton.class_of, device),
            _index(edges.tail, device),
            _index(edges.head, device),
            _index(edges.group, device),
            _index(edges.members, device),
            _index(np.repeat(np.arange(edges.n_groups), sizes), device),
            torch.from_numpy(np.stack([window.live(length) for window in automata])).to(device),
            torch.from_numpy(np.stack([window.accepting for window in automata])).to(device),
            torch.from_numpy(~automaton.useful).to(device),
        )

    @property
    def n_groups(self) -> int:
        return int(self.group_of_member.max()) + 1 if self.group_of_member.numel() else 0

    def class_mask(self) -> Tensor:
        """(G, C): whether a class is in a group."""
        mask = torch.zeros(self.n_groups, len(self.useless), dtype=torch.bool, device=self.members.device)
        mask[self.group_of_member, self.members] = True
        return mask


@dataclass(frozen=True)
class Weights:
    """Class and group sums, rescaled per position."""

    log_p: Tensor  # (B, L, V)
    log_scale: Tensor  # (B, L, 1)
    scaled: Tensor  # (B, L, C)
    grouped: Tensor  # (B, L, G)


def log_probs(scores: Tensor, logits: bool) -> Tensor:
    """log p (B, L, V) in float64."""
    return scores.double().log_softmax(dim=-1) if logits else scores.double().log()


def weights(log_p: Tensor, programme: Programme) -> Weights:
    log_sums = _class_log_sums(log_p, programme)
    log_scale = log_sums.amax(dim=-1, keepdim=True)
    log_scale = torch.where(log_scale.isfinite(), log_scale, torch.zeros_like(log_scale))
    scaled = (log_sums - log_scale).exp()
    grouped = scaled.new_zeros(*scaled.shape[:2], programme.n_groups)
    grouped.index_add_(2, programme.group_of_member, scaled[:, :, programme.members])
    return Weights(log_p, log_scale, scaled, grouped)


def marginals(scores: Tensor, automata: Sequence[TokenAutomaton], logits: bool) -> tuple[Tensor, Tensor]:
    """log P(L) (B,) and q (B, L, V) in float64 for scores (B, L, V); q is p where P(L) = 0.

    The automata, one per sample, are windows of one automaton.
    """
    programme = Programme.of(automata, scores.shape[1], scores.device)
    w = weights(log_probs(scores, logits), programme)
    alphas, log_p_language = forward(w, programme)
    posterior = _backward(w.grouped, programme, alphas)
    ratio = torch.zeros_like(w.scaled).index_add_(2, programme.members, posterior[:, :, programme.group_of_member])
    log_q = w.log_p + (ratio.log() - w.log_scale)[:, :, programme.class_of]
    q = torch.where((log_p_language > -torch.inf)[:, None, None], log_q.exp(), w.log_p.exp())
    return log_p_language, q


def _class_log_sums(log_p: Tensor, programme: Programme) -> Tensor:
    """log Σ p over each class, (B, L, C); −inf for classes without transitions."""
    batch, length, _ = log_p.shape
    index = programme.class_of.expand_as(log_p)
    peak = log_p.new_full((batch, length, len(programme.useless)), -torch.inf)
    peak = peak.scatter_reduce(2, index, log_p, reduce="amax")
    safe = torch.where(peak.isfinite(), peak, torch.zeros_like(peak))
    total = torch.zeros_like(peak).scatter_add_(2, index, (log_p - safe.gather(2, index)).exp())
    return (safe + total.log()).masked_fill(programme.useless, -torch.inf)


def forward(w: Weights, programme: Programme) -> tuple[list[Tensor], Tensor]:
    """The forward masses (B, S) before each position and after the last, normalised; log P(L) (B,)."""
    length = w.grouped.shape[1]
    live = programme.live
    alpha = live[:, 0].double()
    alphas, log_p_language = [alpha], w.log_scale.sum(dim=(1, 2))
    for k in range(length):
        moved = alpha[:, programme.tail] * w.grouped[:, k, programme.group]  # (B, P)
        alpha = torch.zeros_like(alpha).index_add_(1, programme.head, moved) * live[:, k + 1]
        total = alpha.sum(dim=1)
        log_p_language = log_p_language + total.log()
        alpha = alpha / torch.where(total > 0, total, torch.ones_like(total))[:, None]
        alphas.append(alpha)
    return alphas, log_p_language + (alpha * programme.accepting).sum(dim=1).log()


def _backward(grouped: Tensor, programme: Programme, alphas: list[Tensor]) -> Tensor:
    batch, length, n_groups = grouped.shape
    tail, head, group = programme.tail, programme.head, programme.group
    beta = programme.accepting.double()
    posterior = torch.zeros_like(grouped)
    for k in range(length - 1, -1, -1):
        beta = beta * programme.live[:, k + 1]
        reached = beta[:, head]  # (B, P)
        share = grouped.new_zeros(batch, n_groups).index_add_(1, group, alphas[k][:, tail] * reached)
        norm = (share * grouped[:, k]).sum(dim=1, keepdim=True)
        posterior[:, k] = share / torch.where(norm > 0, norm, torch.ones_like(norm))
        beta = torch.zeros_like(beta).index_add_(1, tail, grouped[:, k, group] * reached)
        peak = beta.amax(dim=1, keepdim=True)
        beta = beta / torch.where(peak > 0, peak, torch.ones_like(peak))
    return posterior


def _index(array: NDArray[np.integer], device: torch.device) -> Tensor:
    return torch.from_numpy(array.astype(np.int64)).to(device)

"""The torch backend: all samples of an automaton at once, on any device; the second opinion on the CPU.

Everything is float64. Class sums of logits are made as log-sum-exp per class, so nothing underflows.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.alignment.automaton import TokenAutomaton


def marginals(scores: Tensor, automaton: TokenAutomaton, logits: bool) -> tuple[Tensor, Tensor]:
    """log P(L) (B,) and q (B, L, V) in float64 for scores (B, L, V); q is p where P(L) = 0."""
    log_p = scores.double().log_softmax(dim=-1) if logits else scores.double().log()
    class_of = _index(automaton.class_of, scores.device)
    log_sums = _class_log_sums(log_p, class_of, automaton)
    log_scale = log_sums.amax(dim=-1, keepdim=True)
    log_scale = torch.where(log_scale.isfinite(), log_scale, torch.zeros_like(log_scale))
    scaled = (log_sums - log_scale).exp()  # (B, L, C)

    edges = automaton.edges
    tail, head = _index(edges.tail, scores.device), _index(edges.head, scores.device)
    group, members = _index(edges.group, scores.device), _index(edges.members, scores.device)
    sizes = np.diff(edges.members_first)
    group_of_member = _index(np.repeat(np.arange(edges.n_groups), sizes), scores.device)
    batch, length, _ = scaled.shape
    grouped = scaled.new_zeros(batch, length, edges.n_groups).index_add_(2, group_of_member, scaled[:, :, members])

    live = torch.from_numpy(automaton.live(length).copy()).to(scores.device)
    accepting = torch.from_numpy(automaton.accepting.copy()).to(scores.device).double()
    alphas, log_prob = _forward(grouped, tail, head, group, live, accepting)
    log_prob = log_prob + log_scale.sum(dim=(1, 2))
    posterior = _backward(grouped, tail, head, group, live, accepting, alphas)
    ratio = torch.zeros_like(scaled).index_add_(2, members, posterior[:, :, group_of_member])
    log_q = log_p + (ratio.log() - log_scale)[:, :, class_of]
    q = torch.where((log_prob > -torch.inf)[:, None, None], log_q.exp(), log_p.exp())
    return log_prob, q


def _class_log_sums(log_p: Tensor, class_of: Tensor, automaton: TokenAutomaton) -> Tensor:
    """log Σ p over each class, (B, L, C); −inf for classes without transitions."""
    batch, length, _ = log_p.shape
    index = class_of.expand_as(log_p)
    peak = log_p.new_full((batch, length, automaton.n_classes), -torch.inf)
    peak = peak.scatter_reduce(2, index, log_p, reduce="amax")
    safe = torch.where(peak.isfinite(), peak, torch.zeros_like(peak))
    total = torch.zeros_like(peak).scatter_add_(2, index, (log_p - safe.gather(2, index)).exp())
    useless = torch.from_numpy(~automaton.useful).to(log_p.device)
    return (safe + total.log()).masked_fill(useless, -torch.inf)


def _forward(
    grouped: Tensor, tail: Tensor, head: Tensor, group: Tensor, live: Tensor, accepting: Tensor
) -> tuple[list[Tensor], Tensor]:
    batch, length, _ = grouped.shape
    alpha = grouped.new_zeros(batch, live.shape[1])
    alpha[:, 0] = live[0, 0].double()
    alphas, log_prob = [alpha], grouped.new_zeros(batch)
    for k in range(length):
        moved = alpha[:, tail] * grouped[:, k, group]  # (B, P)
        alpha = torch.zeros_like(alpha).index_add_(1, head, moved) * live[k + 1]
        total = alpha.sum(dim=1)
        log_prob = log_prob + total.log()
        alpha = alpha / torch.where(total > 0, total, torch.ones_like(total))[:, None]
        alphas.append(alpha)
    return alphas, log_prob + (alpha @ accepting).log()


def _backward(
    grouped: Tensor,
    tail: Tensor,
    head: Tensor,
    group: Tensor,
    live: Tensor,
    accepting: Tensor,
    alphas: list[Tensor],
) -> Tensor:
    batch, length, n_groups = grouped.shape
    beta = accepting.expand(batch, -1)
    posterior = torch.zeros_like(grouped)
    for k in range(length - 1, -1, -1):
        beta = beta * live[k + 1]
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

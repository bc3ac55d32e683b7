"""Accepted strings in the torch backend: best strings and joint draws for all samples at once, on any device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from diffinity.acceptance.batched import Programme, Weights, forward, log_probs, weights
from diffinity.acceptance.cpu import FLOOR
from diffinity.alignment.automaton import TokenAutomaton


def best_strings(scores: Tensor, automata: Sequence[TokenAutomaton], logits: bool) -> tuple[Tensor, Tensor]:
    """log p (B,) and tokens (B, L) of each sample's most probable accepted string, for scores (B, L, V).

    The automata, one per sample, are windows of one automaton.
    """
    log_p = log_probs(scores, logits)
    programme = Programme.of(automata, scores.shape[1], scores.device)
    return _best(log_p, programme)


def draws(
    scores: Tensor, automata: Sequence[TokenAutomaton], logits: bool, generators: Sequence[np.random.Generator]
) -> tuple[Tensor, Tensor]:
    """Like `best_strings`, but each string is drawn from p given acceptance; the best string if P(L) = 0."""
    log_p = log_probs(scores, logits)
    length = scores.shape[1]
    programme = Programme.of(automata, length, scores.device)
    w = weights(log_p, programme)
    alphas, log_p_language = forward(w, programme)
    uniform = torch.from_numpy(np.stack([rng.random(2 * length + 1) for rng in generators])).to(scores.device)
    path = _drawn_path(w, programme, alphas, uniform[:, : length + 1])
    allowed = programme.class_mask()[path][:, :, programme.class_of]  # (B, L, V)
    within = log_p.masked_fill(~allowed, -torch.inf)
    shares = (within - within.amax(dim=-1, keepdim=True).clamp_min(FLOOR)).exp()
    tokens = _draw(shares, uniform[:, length + 1 :])
    possible = log_p_language > -torch.inf
    if bool(possible.all()):
        return _value(log_p, tokens), tokens
    best_value, best = _best(log_p, programme)
    tokens = torch.where(possible[:, None], tokens, best)
    return torch.where(possible, _value(log_p, tokens), best_value), tokens


def _best(log_p: Tensor, programme: Programme) -> tuple[Tensor, Tensor]:
    batch, length, _ = log_p.shape
    tail, head, group = programme.tail, programme.head, programme.group
    floored = log_p.clamp_min(FLOOR)
    by_class = log_p.new_full((batch, length, len(programme.useless)), -torch.inf)
    by_class = by_class.scatter_reduce(2, programme.class_of.expand_as(log_p), floored, reduce="amax")
    by_group = log_p.new_full((batch, length, programme.n_groups), -torch.inf).scatter_reduce(
        2,
        programme.group_of_member.expand(batch, length, -1),
        by_class[:, :, programme.members],
        reduce="amax",
    )
    blocked = log_p.new_zeros(programme.live.shape).masked_fill(~programme.live, -torch.inf)  # (B, L+1, S)
    value = blocked[:, 0]
    candidates: list[Tensor] = []  # (B, P) each: the best path that ends with this pair
    values = [value]
    for k in range(length):
        candidates.append(value[:, tail] + by_group[:, k, group])
        value = torch.full_like(value, -torch.inf)
        value = value.scatter_reduce(1, head.expand(batch, -1), candidates[-1], reduce="amax") + blocked[:, k + 1]
        values.append(value)
    state = value.masked_fill(~programme.accepting, -torch.inf).argmax(dim=1)  # (B,)
    path = torch.zeros(batch, length, dtype=torch.long, device=log_p.device)
    for k in range(length - 1, -1, -1):
        reached = values[k + 1].gather(1, state[:, None])
        pair = ((head == state[:, None]) & (candidates[k] == reached)).byte().argmax(dim=1)
        path[:, k], state = group[pair], tail[pair]
    allowed = programme.class_mask()[path][:, :, programme.class_of]
    tokens = floored.masked_fill(~allowed, -torch.inf).argmax(dim=-1)
    return _value(log_p, tokens), tokens


def _drawn_path(w: Weights, programme: Programme, alphas: list[Tensor], uniform: Tensor) -> Tensor:
    """The groups (B, L) along a path of states, drawn backwards through the forward masses."""
    batch, length, _ = w.grouped.shape
    tail, head, group = programme.tail, programme.head, programme.group
    path = torch.zeros(batch, length, dtype=torch.long, device=w.grouped.device)
    state = _draw(alphas[length] * programme.accepting, uniform[:, length])
    for k in range(length - 1, -1, -1):
        share = alphas[k][:, tail] * w.grouped[:, k, group] * (head == state[:, None])  # (B, P)
        pair = _draw(share, uniform[:, k])
        path[:, k], state = group[pair], tail[pair]
    return path


def _draw(shares: Tensor, uniform: Tensor) -> Tensor:
    """The index (...,) drawn in proportion to shares (..., N), by numbers (...,) from [0, 1)."""
    cumulative = shares.cumsum(dim=-1)
    at = (uniform * cumulative[..., -1])[..., None]
    drawn = torch.searchsorted(cumulative, at.contiguous(), right=True)[..., 0]
    last = shares.shape[-1] - 1 - (shares > 0).flip(-1).byte().argmax(dim=-1)  # rounding may exceed it
    return torch.minimum(drawn, last)


def _value(log_p: Tensor, tokens: Tensor) -> Tensor:
    return log_p.gather(2, tokens[:, :, None]).sum(dim=(1, 2))

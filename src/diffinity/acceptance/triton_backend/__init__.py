"""The dynamic programme as Triton kernels, for a GPU; in Triton's interpreter on the CPU, for tests.

A step in closed form takes six launches whatever the length, reads the logits twice and never waits for the host:
class sums, weights, recursions, posterior, q·E over shares of the vocabulary, their sum. Everything is in the same
order every time, and a sample does not depend on its batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from diffinity.acceptance.triton_backend import class_kernels, output_kernels, path_kernels, recursion_kernels
from diffinity.acceptance.triton_backend.device import Batch, Group, batch_of
from diffinity.alignment.automaton import TokenAutomaton
from diffinity.errors import InvalidArgument

ROWS = 8  # positions for which a program of the first pass reads its token ids once
PIECES = 128  # pieces of a tree that a program adds up at a time, one a thread
BLOCK = 256
FLOOR = -1e5  # what an impossible token counts when something has to be decoded all the same
NEVER = 1.0  # a log probability that none exceeds


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, num_warps: int = 4, **constants: Any) -> None:
    """One kernel launch; the only place that has them."""
    kernel[grid](*arguments, num_warps=num_warps, **constants)


@dataclass(frozen=True)
class Weights:
    """The class and group sums of a batch's positions, and the scores that they are from."""

    scores: Tensor  # (B, L, V): logits, or probabilities
    from_probs: bool
    batch: Batch
    peaks: Tensor  # (B, L, segments): the largest score of each segment of a class
    sums: Tensor  # (B, L, segments): Σ exp(score − peak)
    class_log: Tensor  # (B, L, class nodes), float64: logarithms of the class sums
    weight: Tensor  # (B, L, class nodes), float64: class sums over that of the largest useful class
    grouped: Tensor  # (B, L, group nodes), float64: their sums over groups, or the logarithms of these
    log_norm: Tensor  # (B, L), float64
    log_scale: Tensor  # (B, L), float64

    @property
    def rows(self) -> int:
        return self.batch.size * self.batch.length

    @property
    def accumulator(self) -> Any:
        """The type in which tokens are added up: that of the scores, float32 at least."""
        return tl.float64 if self.scores.dtype == torch.float64 else tl.float32

    def empty(self, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.scores.device)


def weights_of(
    scores: Tensor, automata: Sequence[TokenAutomaton], from_probs: bool, log_groups: bool = False
) -> Weights:
    """The weights of scores (B, L, V): the only pass over them until q is asked for."""
    scores = scores.detach().contiguous()
    if scores.dtype not in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        scores = scores.float()
    batch = batch_of(automata, scores.shape[1], scores.device)
    if batch.length * max(batch.vocab, batch.alpha_nodes) >= 1 << 31:
        raise InvalidArgument(f"{batch.length} positions of {batch.vocab} tokens are too many for 32-bit offsets")

    def empty(size: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.empty(batch.size, batch.length, size, dtype=dtype, device=scores.device)

    narrow = torch.float64 if scores.dtype == torch.float64 else torch.float32
    w = Weights(
        scores,
        from_probs,
        batch,
        peaks=empty(batch.n_segments, narrow),
        sums=empty(batch.n_segments, narrow),
        class_log=empty(batch.class_nodes),
        weight=empty(batch.class_nodes),
        grouped=empty(batch.group_nodes),
        log_norm=empty(1),
        log_scale=empty(1),
    )
    _segments(w, w.peaks, w.sums)
    launch(
        class_kernels.weigh,
        (w.rows,),
        w.peaks,
        w.sums,
        batch.classes,
        batch.class_base,
        w.class_log,
        w.weight,
        w.grouped,
        w.log_norm,
        w.log_scale,
        batch.length,
        batch.n_segments,
        batch.class_nodes,
        batch.group_nodes,
        FROM_PROBS=from_probs,
        LOG_GROUPS=log_groups,
        PIECES=PIECES,
    )
    return w


def _segments(w: Weights, peaks: Tensor, others: Tensor, best: bool = False, wanted: Tensor | None = None) -> None:
    batch = w.batch
    launch(
        class_kernels.segment_sums,
        (batch.n_tiles, triton.cdiv(batch.length, ROWS), batch.size),
        w.scores,
        batch.classes,
        batch.class_base,
        peaks if wanted is None else wanted,
        peaks,
        others,
        batch.length,
        batch.vocab,
        batch.n_segments,
        ROWS=ROWS,
        FROM_PROBS=w.from_probs,
        BEST=best,
        PREDICATE=wanted is not None,
        ACC=w.accumulator,
    )


@dataclass(frozen=True)
class Masses:
    """What the recursions leave behind."""

    log_prob: Tensor  # (B,), float64
    alpha: Tensor  # (B, L+1, alpha nodes), float64
    alpha_nodes: int


def _forward(w: Weights, grouped: Tensor, best: bool, wanted: Tensor | None = None) -> Masses:
    """Forward masses of all positions, or with `best` values of the best paths."""
    batch = w.batch
    nodes = batch.all_alpha_nodes
    log_prob = w.empty(batch.size)
    alpha = w.empty(batch.size, batch.length + 1, nodes)
    for group in batch.groups:
        _recursions(w, group, grouped, alpha, alpha, nodes, nodes, log_prob, backward=False, best=best, wanted=wanted)
    return Masses(log_prob, alpha, nodes)


def _recursions(
    w: Weights,
    group: Group,
    grouped: Tensor,
    alpha: Tensor,
    beta: Tensor,
    alpha_nodes: int,
    beta_nodes: int,
    log_prob: Tensor,
    *,
    backward: bool,
    best: bool = False,
    wanted: Tensor | None = None,
) -> None:
    dense = group.tier.name == "dense"
    launch(
        recursion_kernels.recursions_dense if dense else recursion_kernels.recursions,
        (len(group.which),),
        group.which,
        w.batch.programmes,
        w.batch.programme_base,
        grouped,
        w.log_scale,
        log_prob if wanted is None else wanted,
        alpha,
        beta,
        log_prob,
        w.batch.length,
        w.batch.group_nodes,
        alpha_nodes,
        beta_nodes,
        BACKWARD=backward,
        MAX=best,
        PREDICATE=wanted is not None,
        num_warps=group.tier.num_warps,
        **{"STATES" if dense else "PIECES": group.tier.size},
    )


@dataclass(frozen=True)
class Tilt:
    """How q differs from p: log q − score of the tokens of a class, in two parts."""

    log_prob: Tensor  # (B,), float64
    bias: Tensor  # (B, L, C)
    rest: Tensor  # (B, L, C)


def _tilt_room(w: Weights, log_prob: Tensor) -> Tilt:
    dtype = torch.float64 if w.scores.dtype == torch.float64 else torch.float32
    shape = (w.batch.size, w.batch.length, w.batch.n_classes)
    return Tilt(log_prob, w.empty(*shape, dtype=dtype), w.empty(*shape, dtype=dtype))


def posterior_tilt(w: Weights) -> Tilt:
    """log P(L), and q given acceptance."""
    batch = w.batch
    log_prob = w.empty(batch.size)
    share = w.empty(batch.size, batch.length, batch.pair_nodes)
    spread = w.empty(batch.size, batch.length, batch.spread_nodes)
    tilt = _tilt_room(w, log_prob)
    masses = [
        w.empty(batch.size, batch.length + 1, nodes) if not all(group.checkpointed for group in batch.groups) else share
        for nodes in (batch.alpha_nodes, batch.beta_nodes)
    ]
    for group in batch.groups:
        if group.checkpointed:
            _checkpointed_recursions(w, group, share, log_prob)
        else:
            _recursions(w, group, w.grouped, *masses, batch.alpha_nodes, batch.beta_nodes, log_prob, backward=True)
    for checkpointed in (False, True):
        which = [group.which for group in batch.groups if group.checkpointed == checkpointed]
        if which:
            _posterior(w, torch.cat(which) if len(which) > 1 else which[0], masses, share, spread, tilt, checkpointed)
    return tilt


def _posterior(
    w: Weights, which: Tensor, masses: Sequence[Tensor], share: Tensor, spread: Tensor, tilt: Tilt, shared: bool
) -> None:
    batch = w.batch
    launch(
        output_kernels.posterior,
        (len(which) * batch.length,),
        which,
        batch.programmes,
        batch.programme_base,
        batch.classes,
        batch.class_base,
        *masses,
        w.grouped,
        w.class_log,
        w.weight,
        w.log_norm,
        tilt.log_prob,
        share,
        spread,
        tilt.bias,
        tilt.rest,
        batch.length,
        batch.alpha_nodes,
        batch.beta_nodes,
        batch.group_nodes,
        batch.class_nodes,
        batch.pair_nodes,
        batch.spread_nodes,
        batch.n_classes,
        SHARED=shared,
        PIECES=PIECES,
    )


def _checkpointed_recursions(w: Weights, group: Group, share: Tensor, log_prob: Tensor) -> None:
    batch, samples = w.batch, len(group.which)
    stride = math.isqrt(max(1, batch.length - 1)) + 1
    stretches = -(-batch.length // stride)
    launch(
        recursion_kernels.recursions_checkpointed,
        (samples,),
        group.which,
        batch.programmes,
        batch.programme_base,
        w.grouped,
        w.log_scale,
        w.empty(samples, stretches + 1, batch.all_alpha_nodes),
        w.empty(samples, stride + 1, batch.all_alpha_nodes),
        w.empty(samples, 2, batch.all_beta_nodes),
        share,
        log_prob,
        batch.length,
        stride,
        batch.group_nodes,
        batch.all_alpha_nodes,
        batch.all_beta_nodes,
        batch.pair_nodes,
        num_warps=group.tier.num_warps,
        PIECES=group.tier.size,
    )


def path_tilt(w: Weights, keys: Tensor | None) -> Tilt:
    """The log probability of one path of states and q given it: the best, or with `keys` (B, 2) one drawn.

    The weights must have been made with `log_groups` for the best path, and without for a draw.
    """
    batch = w.batch
    masses = _forward(w, w.grouped, best=keys is None)
    path = w.empty(batch.size, batch.length, dtype=torch.int32)
    log_share = masses.log_prob
    if keys is None:
        _best_path(w, w.grouped, masses, path)
    else:
        log_share = _draw_path(w, masses, keys, path)
    tilt = _tilt_room(w, log_share)
    launch(
        output_kernels.path_bias,
        (w.rows,),
        path,
        batch.classes,
        batch.class_base,
        w.grouped,
        w.class_log,
        w.weight,
        w.log_norm,
        tilt.log_prob,
        tilt.bias,
        tilt.rest,
        batch.length,
        batch.group_nodes,
        batch.class_nodes,
        batch.n_classes,
        LOG_GROUPS=keys is None,
        PIECES=PIECES,
    )
    return tilt


def _best_path(w: Weights, grouped: Tensor, masses: Masses, path: Tensor) -> None:
    launch(
        path_kernels.best_path,
        (w.batch.size,),
        w.batch.programmes,
        w.batch.programme_base,
        grouped,
        masses.alpha,
        masses.log_prob,
        path,
        w.batch.length,
        w.batch.group_nodes,
        masses.alpha_nodes,
        BLOCK=BLOCK,
    )


def _draw_path(w: Weights, masses: Masses, keys: Tensor, path: Tensor) -> Tensor:
    log_share = w.empty(w.batch.size)
    launch(
        path_kernels.draw_path,
        (w.batch.size,),
        w.batch.programmes,
        w.batch.programme_base,
        w.grouped,
        w.log_scale,
        masses.alpha,
        keys,
        masses.log_prob,
        path,
        log_share,
        w.batch.length,
        w.batch.group_nodes,
        masses.alpha_nodes,
        BLOCK=BLOCK,
    )
    return log_share


def marginals(w: Weights, tilt: Tilt, dtype: torch.dtype, less_p: bool = False) -> Tensor:
    """q (B, L, V), or q − p, from one more pass over the scores."""
    batch = w.batch
    out = torch.empty(w.scores.shape, dtype=dtype, device=w.scores.device)
    launch(
        output_kernels.marginals,
        (triton.cdiv(batch.vocab, 1024), triton.cdiv(batch.length, ROWS), batch.size),
        w.scores,
        batch.classes,
        batch.class_base,
        tilt.bias,
        tilt.rest,
        w.log_norm,
        out,
        batch.length,
        batch.vocab,
        batch.n_classes,
        FROM_PROBS=w.from_probs,
        LESS=less_p,
        ACC=w.accumulator,
        BLOCK=1024,
        ROWS=ROWS,
    )
    return out


def mean(w: Weights, tilt: Tilt, embedding: Tensor, x: Tensor, certain: float | None = None) -> Tensor:
    """q·E (B, L, d) for embedding E (V, d), from one more pass over the scores, without writing q.

    x (B, L, d) is p·E, which samples keep whose log P(L) is above −`certain`.
    """
    batch, width = w.batch, embedding.shape[1]
    embedding, x = embedding.detach().contiguous(), x.detach().contiguous()
    columns = min(64, max(16, triton.next_power_of_2(width)))
    splits = shares_of_vocabulary(batch.vocab)
    double = w.scores.dtype == torch.float64
    parts = w.empty(batch.size, splits, batch.length, width, dtype=torch.float64 if double else torch.float32)
    above = NEVER if certain is None else -certain
    launch(
        output_kernels.mean_parts,
        (splits, triton.cdiv(batch.length, 16), batch.size * triton.cdiv(width, columns)),
        w.scores,
        batch.classes,
        batch.class_base,
        tilt.bias,
        tilt.rest,
        embedding.double() if double else embedding,
        tilt.log_prob,
        parts,
        batch.length,
        batch.vocab,
        batch.n_classes,
        width,
        splits,
        above,
        FROM_PROBS=w.from_probs,
        PRECISION="ieee" if embedding.dtype == torch.float64 or double else "tf32x3",
        ACC=w.accumulator,
        ROWS=16,
        BLOCK=64,
        COLUMNS=columns,
    )
    out = torch.empty(batch.size, batch.length, width, dtype=embedding.dtype, device=embedding.device)
    launch(
        output_kernels.add_parts,
        (triton.cdiv(batch.length * width, BLOCK), batch.size),
        parts,
        x,
        tilt.log_prob,
        out,
        batch.length * width,
        splits,
        above,
        BLOCK=BLOCK,
    )
    return out


def shares_of_vocabulary(vocab: int) -> int:
    """Into how many parts the vocabulary is cut for q·E: enough to fill a GPU, whatever the batch."""
    return max(1, min(64, vocab // 1024))


def keys_of(seeds: Sequence[tuple[int, int]] | Tensor, device: torch.device) -> Tensor:
    """(B, 2), int64: the keys of counter-based random numbers; a tensor on the device is taken as it is."""
    if isinstance(seeds, Tensor):
        return seeds
    signed = [[(part + (1 << 63)) % (1 << 64) - (1 << 63) for part in pair] for pair in seeds]
    return torch.tensor(signed, dtype=torch.int64).to(device, non_blocking=True)


def best_strings(
    scores: Tensor, automata: Sequence[TokenAutomaton], from_probs: bool
) -> tuple[Tensor, Tensor]:
    """The most probable accepted strings (B, L), and their log probabilities (B,)."""
    w = weights_of(scores, automata, from_probs)
    tokens = w.empty(w.batch.size, w.batch.length, dtype=torch.int64)
    _best_strings(w, tokens, None)
    return _value(w, tokens), tokens


def _best_strings(w: Weights, tokens: Tensor, wanted: Tensor | None) -> None:
    """Best strings into `tokens`; with `wanted` (B,) only for samples where that is −inf."""
    batch = w.batch
    rows = (batch.size, batch.length)
    peaks, best = torch.empty_like(w.peaks), w.empty(*rows, batch.n_segments, dtype=torch.int32)
    _segments(w, peaks, best, best=True, wanted=wanted)
    value, token = w.empty(*rows, batch.group_nodes), w.empty(*rows, batch.group_nodes, dtype=torch.int32)
    launch(
        class_kernels.best_in_groups,
        (w.rows,),
        peaks,
        best,
        batch.classes,
        batch.class_base,
        w.log_norm,
        w.log_norm if wanted is None else wanted,
        w.empty(*rows, batch.class_nodes),
        w.empty(*rows, batch.class_nodes, dtype=torch.int32),
        value,
        token,
        batch.length,
        batch.n_segments,
        batch.class_nodes,
        batch.group_nodes,
        FLOOR,
        PREDICATE=wanted is not None,
        PIECES=PIECES,
    )
    masses = _forward(w, value, best=True, wanted=wanted)
    path = w.empty(*rows, dtype=torch.int32)
    _best_path(w, value, masses, path)
    launch(
        path_kernels.pick_tokens,
        (batch.size, triton.cdiv(batch.length, 128)),
        path,
        token,
        w.log_norm if wanted is None else wanted,
        tokens,
        batch.length,
        batch.group_nodes,
        PREDICATE=wanted is not None,
        BLOCK=128,
    )


def draws(
    scores: Tensor, automata: Sequence[TokenAutomaton], from_probs: bool, seeds: Sequence[tuple[int, int]] | Tensor
) -> tuple[Tensor, Tensor]:
    """Strings (B, L) drawn from p given acceptance and their log probabilities (B,); the best where P(L) = 0."""
    w = weights_of(scores, automata, from_probs)
    batch, keys = w.batch, keys_of(seeds, scores.device)
    masses = _forward(w, w.grouped, best=False)
    path = w.empty(batch.size, batch.length, dtype=torch.int32)
    _draw_path(w, masses, keys, path)
    tokens = w.empty(batch.size, batch.length, dtype=torch.int64)
    launch(
        path_kernels.draw_tokens,
        (w.rows,),
        path,
        batch.classes,
        batch.class_base,
        w.weight,
        w.class_log,
        w.peaks,
        w.sums,
        w.scores,
        keys,
        masses.log_prob,
        tokens,
        batch.length,
        batch.vocab,
        batch.n_segments,
        batch.class_nodes,
        FROM_PROBS=from_probs,
        BLOCK=BLOCK,
    )
    _best_strings(w, tokens, wanted=masses.log_prob)
    return _value(w, tokens), tokens


def _value(w: Weights, tokens: Tensor) -> Tensor:
    log_prob = w.empty(w.batch.size)
    launch(
        path_kernels.string_log_prob,
        (w.batch.size,),
        tokens,
        w.scores,
        w.log_norm,
        log_prob,
        w.batch.length,
        w.batch.vocab,
        FROM_PROBS=w.from_probs,
        BLOCK=BLOCK,
    )
    return log_prob


def top_strings(
    scores: Tensor, automata: Sequence[TokenAutomaton], from_probs: bool, k: int
) -> tuple[Tensor, Tensor]:
    """The k best strings (B, K, L) and their log probabilities (B, K), −inf where there are no more.

    One launch a position: this is asked once a text, not once a step.
    """
    w = weights_of(scores, automata, from_probs)
    batch = w.batch
    rows = (batch.size, batch.length)
    class_value, class_token = (w.empty(*rows, batch.n_classes, k, dtype=t) for t in (torch.float64, torch.int32))
    group_value, group_token = (w.empty(*rows, batch.n_groups, k, dtype=t) for t in (torch.float64, torch.int32))
    launch(
        path_kernels.top_in_classes,
        (batch.n_classes, w.rows),
        w.scores,
        batch.classes,
        batch.class_base,
        w.log_norm,
        class_value,
        class_token,
        batch.length,
        batch.vocab,
        batch.n_classes,
        k,
        FROM_PROBS=from_probs,
        BLOCK=BLOCK,
    )
    launch(
        path_kernels.top_in_groups,
        (batch.n_groups, w.rows),
        class_value,
        class_token,
        batch.classes,
        batch.class_base,
        group_value,
        group_token,
        batch.length,
        batch.n_classes,
        batch.n_groups,
        k,
        BLOCK=BLOCK,
    )
    shape = (batch.size, batch.length + 1, batch.n_states, k)
    value = torch.full(shape, -torch.inf, dtype=torch.float64, device=scores.device)
    value[:, 0, 0, 0] = 0.0  # states are in the order in which they are met: the start is the first
    source, token = (w.empty(*shape, dtype=torch.int32) for _ in range(2))
    for position in range(batch.length):
        launch(
            path_kernels.top_step,
            (batch.n_states, batch.size),
            batch.programmes,
            batch.programme_base,
            group_value,
            group_token,
            value,
            source,
            token,
            position,
            batch.length,
            batch.n_groups,
            batch.n_states,
            k,
            BLOCK=BLOCK,
        )
    log_prob, strings = w.empty(batch.size, k), w.empty(batch.size, k, batch.length, dtype=torch.int32)
    launch(
        path_kernels.top_strings,
        (batch.size,),
        batch.programmes,
        batch.programme_base,
        value,
        source,
        token,
        log_prob,
        strings,
        batch.length,
        batch.n_states,
        k,
        BLOCK=BLOCK,
    )
    return log_prob, strings

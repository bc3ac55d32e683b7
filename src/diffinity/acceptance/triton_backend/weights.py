"""Class and group sums of a batch: the first pass over the scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from diffinity.acceptance.triton_backend import class_kernels
from diffinity.acceptance.triton_backend.device import Batch, batch_of
from diffinity.acceptance.triton_backend.launching import PIECES, launch, rows_of
from diffinity.alignment.automaton import TokenAutomaton
from diffinity.errors import InvalidArgument


@dataclass(frozen=True)
class Weights:
    """The class and group sums of a batch's positions, and their scores."""

    scores: Tensor  # (B, L, V): logits, or probabilities
    from_probs: bool
    batch: Batch
    peaks: Tensor  # (B, L, segments): the largest score of each segment of a class
    sums: Tensor  # (B, L, segments): Σ exp(score − peak)
    class_log: Tensor  # (B, L, class nodes), float64: logarithms of the class sums
    weight: Tensor  # (B, L, class nodes), float64: class sums divided by the sum of the largest useful class
    grouped: Tensor  # (B, L, group nodes), float64: sums of `weight` over groups, or their logarithms
    log_norm: Tensor  # (B, L), float64
    log_scale: Tensor  # (B, L), float64
    drift: Tensor  # (B, L), int32: the maximum change of masses at a position, in binary digits

    @property
    def rows(self) -> int:
        return self.batch.size * self.batch.length

    @property
    def accumulator(self) -> Any:
        """The type in which tokens are summed: the type of the scores, at least float32."""
        return tl.float64 if self.scores.dtype == torch.float64 else tl.float32

    def empty(self, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.scores.device)


def weights_of(
    scores: Tensor, automata: Sequence[TokenAutomaton], from_probs: bool, log_groups: bool = False
) -> Weights:
    """The weights of scores (B, L, V): the only pass over them until q is needed."""
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
        drift=empty(1, torch.int32),
    )
    launch_segments(w, w.peaks, w.sums)
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
        w.drift,
        batch.length,
        batch.n_segments,
        batch.class_nodes,
        batch.group_nodes,
        FROM_PROBS=from_probs,
        LOG_GROUPS=log_groups,
        PIECES=PIECES,
    )
    return w


def launch_segments(
    w: Weights, peaks: Tensor, sums: Tensor, best: bool = False, predicate: Tensor | None = None
) -> None:
    batch = w.batch
    rows = rows_of(batch.n_tiles * batch.size, batch.length)
    launch(
        class_kernels.segment_sums,
        (batch.n_tiles, triton.cdiv(batch.length, rows), batch.size),
        w.scores,
        batch.classes,
        batch.class_base,
        peaks if predicate is None else predicate,
        peaks,
        sums,
        batch.length,
        batch.vocab,
        batch.n_segments,
        ROWS=rows,
        FROM_PROBS=w.from_probs,
        BEST=best,
        PREDICATE=predicate is not None,
        ACC=w.accumulator,
    )

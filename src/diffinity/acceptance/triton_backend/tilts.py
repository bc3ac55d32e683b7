"""Recursions and paths: the ratio of q to p for each token class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from diffinity.acceptance.triton_backend import gathered_kernels, output_kernels, path_kernels, recursion_kernels
from diffinity.acceptance.triton_backend.device import TREE_512, Group
from diffinity.acceptance.triton_backend.launching import PIECES, WARP_BLOCK, launch
from diffinity.acceptance.triton_backend.weights import Weights


@dataclass(frozen=True)
class Masses:
    """The results of the recursions."""

    log_p_language: Tensor  # (B,), float64
    alpha: Tensor  # (B, L+1, alpha nodes), float64
    alpha_nodes: int


def forward(w: Weights, grouped: Tensor, best: bool, predicate: Tensor | None = None) -> Masses:
    """Forward masses of all positions, or with `best` values of the best paths."""
    batch = w.batch
    nodes = batch.all_alpha_nodes
    log_p_language = w.empty(batch.size)
    alpha = w.empty(batch.size, batch.length + 1, nodes)
    for group in batch.groups:
        _recursions(
            w,
            group,
            grouped,
            alpha,
            alpha,
            nodes,
            nodes,
            log_p_language,
            backward=False,
            best=best,
            predicate=predicate,
        )
    return Masses(log_p_language, alpha, nodes)


def _recursions(
    w: Weights,
    group: Group,
    grouped: Tensor,
    alpha: Tensor,
    beta: Tensor,
    alpha_nodes: int,
    beta_nodes: int,
    log_p_language: Tensor,
    *,
    backward: bool,
    best: bool = False,
    predicate: Tensor | None = None,
) -> None:
    batch, tier = w.batch, group.tier
    gathered = tier.name == "gathered"
    launch(
        gathered_kernels.recursions_gathered if gathered else recursion_kernels.recursions,
        (len(group.samples),),
        group.samples,
        batch.programmes,
        batch.programme_base,
        grouped,
        w.log_scale,
        *([w.drift] if gathered else []),
        log_p_language if predicate is None else predicate,
        alpha,
        beta,
        log_p_language,
        batch.length,
        batch.group_nodes,
        alpha_nodes,
        beta_nodes,
        BACKWARD=backward,
        MAX=best,
        PREDICATE=predicate is not None,
        num_warps=tier.num_warps,
        **({"ROWS": tier.size, "SECOND": tier.second} if gathered else {"PIECES": tier.size}),
    )


@dataclass(frozen=True)
class Tilt:
    """How q differs from p: log q − score for the tokens of each class, in two parts."""

    log_p_language: Tensor  # (B,), float64
    bias: Tensor  # (B, L, C)
    rest: Tensor  # (B, L, C): the remainder of the bias


def _empty_tilt(w: Weights, log_p_language: Tensor) -> Tilt:
    dtype = torch.float64 if w.scores.dtype == torch.float64 else torch.float32
    shape = (w.batch.size, w.batch.length, w.batch.n_classes)
    return Tilt(log_p_language, w.empty(*shape, dtype=dtype), w.empty(*shape, dtype=dtype))


def posterior_tilt(w: Weights) -> Tilt:
    """log P(L), and q given acceptance."""
    batch = w.batch
    log_p_language = w.empty(batch.size)
    share = w.empty(batch.size, batch.length, batch.pair_nodes)
    spread = w.empty(batch.size, batch.length, batch.spread_nodes)
    tilt = _empty_tilt(w, log_p_language)
    alpha, beta = (w.empty(batch.size, batch.length + 1, n) for n in (batch.alpha_nodes, batch.beta_nodes))
    for group in batch.groups:
        if group.checkpointed:
            _checkpointed_recursions(w, group, share, log_p_language)
        else:
            nodes = batch.alpha_nodes, batch.beta_nodes
            _recursions(w, group, w.grouped, alpha, beta, *nodes, log_p_language, backward=True)
    for checkpointed, samples in batch.by_checkpointing:
        _posterior(w, samples, (alpha, beta), share, spread, tilt, checkpointed)
    return tilt


def _posterior(
    w: Weights, samples: Tensor, masses: Sequence[Tensor], share: Tensor, spread: Tensor, tilt: Tilt, shared: bool
) -> None:
    batch = w.batch
    launch(
        output_kernels.posterior,
        (len(samples) * batch.length,),
        samples,
        batch.programmes,
        batch.programme_base,
        batch.classes,
        batch.class_base,
        *masses,
        w.grouped,
        w.class_log,
        w.weight,
        w.log_norm,
        tilt.log_p_language,
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


def _checkpointed_recursions(w: Weights, group: Group, share: Tensor, log_p_language: Tensor) -> None:
    batch, n_samples = w.batch, len(group.samples)
    stride = math.isqrt(max(1, batch.length - 1)) + 1
    stretches = -(-batch.length // stride)
    launch(
        recursion_kernels.recursions_checkpointed,
        (n_samples,),
        group.samples,
        batch.programmes,
        batch.programme_base,
        w.grouped,
        w.log_scale,
        w.empty(n_samples, stretches + 1, batch.all_alpha_nodes),
        w.empty(n_samples, stride + 1, batch.all_alpha_nodes),
        w.empty(n_samples, 2, batch.all_beta_nodes),
        share,
        log_p_language,
        batch.length,
        stride,
        batch.group_nodes,
        batch.all_alpha_nodes,
        batch.all_beta_nodes,
        batch.pair_nodes,
        num_warps=TREE_512.num_warps,
        PIECES=TREE_512.size,
    )


def path_tilt(w: Weights, keys: Tensor | None) -> Tilt:
    """The log probability of one path of states, and q given this path.

    It is the best path, or with `keys` (B, 2) a path drawn from the posterior. The weights must be computed with
    `log_groups` for the best path, and without it for a draw.
    """
    batch = w.batch
    masses = forward(w, w.grouped, best=keys is None)
    path = w.empty(batch.size, batch.length, dtype=torch.int32)
    log_share = masses.log_p_language
    if keys is None:
        launch_best_path(w, w.grouped, masses, path)
    else:
        log_share = launch_draw_path(w, masses, keys, path)
    tilt = _empty_tilt(w, log_share)
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
        tilt.log_p_language,
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


def launch_best_path(w: Weights, grouped: Tensor, masses: Masses, path: Tensor) -> None:
    launch(
        path_kernels.best_path,
        (w.batch.size,),
        w.batch.programmes,
        w.batch.programme_base,
        grouped,
        masses.alpha,
        masses.log_p_language,
        path,
        w.batch.length,
        w.batch.group_nodes,
        masses.alpha_nodes,
        num_warps=1,
        BLOCK=WARP_BLOCK,
    )


def launch_draw_path(w: Weights, masses: Masses, keys: Tensor, path: Tensor) -> Tensor:
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
        masses.log_p_language,
        path,
        log_share,
        w.batch.length,
        w.batch.group_nodes,
        masses.alpha_nodes,
        num_warps=1,
        BLOCK=WARP_BLOCK,
    )
    return log_share

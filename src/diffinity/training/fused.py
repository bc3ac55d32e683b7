"""Cross-entropy of a linear readout without the logits of all rows in memory at once.

The gradients are computed together with the loss, for a few rows at a time, while their logits are in the cache.
Otherwise the readout would take most of a training step if the vocabulary is large and the network small.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ROWS = 128  # number of rows whose logits are in memory at once
SMALLEST = 1e-37  # lower bound of probabilities before the logarithm: 85 nats


def _logits(
    hidden: Tensor, readout: Tensor, bias: Tensor, analytic: Tensor | None, embedding: Tensor | None
) -> Tensor:
    """Logits (N, V) in float32; the analytic part, whose values reach dozens, is never rounded to bfloat16."""
    logits = (hidden @ readout.T).float().add_(bias)
    return logits if analytic is None or embedding is None else logits.addmm_(analytic, embedding.T)


@torch.no_grad()
def readout_mean(
    hidden: Tensor, weight: Tensor, bias: Tensor, analytic: Tensor, embedding: Tensor, low_precision: bool = False
) -> Tensor:
    """The mean embedding (N, e) under the softmax of the logits of `readout_loss`.

    >>> one = torch.ones(1, 2)
    >>> readout_mean(one, torch.zeros(2, 2), torch.zeros(2), 0 * one, torch.eye(2)).tolist()
    [[0.5, 0.5]]
    """
    product_type = torch.bfloat16 if low_precision else weight.dtype
    readout = weight.to(product_type)
    mean = torch.empty(len(hidden), embedding.shape[1], device=hidden.device)
    for start in range(0, len(hidden), ROWS):
        part = slice(start, start + ROWS)
        logits = _logits(hidden[part].to(product_type), readout, bias, analytic[part], embedding)
        mean[part] = logits.softmax(dim=1) @ embedding
    return mean


class _ReadoutLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        analytic: Tensor | None,
        embedding: Tensor | None,
        targets: Tensor,
        weights: Tensor,
        low_precision: bool,
    ) -> tuple[Tensor, Tensor]:
        rows = hidden.shape[0]
        nats = torch.empty(rows, device=hidden.device)
        d_hidden, d_weight, d_bias = torch.empty_like(hidden), torch.zeros_like(weight), torch.zeros_like(bias)
        d_analytic = None if analytic is None else torch.empty_like(analytic)
        d_embedding = None if embedding is None else torch.zeros_like(embedding)
        product_type = torch.bfloat16 if low_precision else weight.dtype
        readout = weight.to(product_type)
        for start in range(0, rows, ROWS):
            part = slice(start, start + ROWS)
            x, target_ids = hidden[part].to(product_type), targets[part]
            skip = None if analytic is None else analytic[part]
            logits = _logits(x, readout, bias, skip, embedding)
            target_index = torch.arange(len(target_ids)), target_ids
            gradient = logits.softmax(dim=1)
            nats[part] = -gradient[target_index].clamp(min=SMALLEST).log()
            gradient[target_index] -= 1.0
            gradient *= weights[part, None]
            rounded = gradient.to(product_type)
            d_hidden[part] = (rounded @ readout).to(hidden.dtype)
            d_weight += rounded.T @ x
            d_bias += gradient.sum(dim=0)
            if skip is not None and embedding is not None and d_analytic is not None and d_embedding is not None:
                d_analytic[part] = gradient @ embedding
                d_embedding.addmm_(gradient.T, skip)
        ctx.save_for_backward(d_hidden, d_weight, d_bias, d_analytic, d_embedding)
        ctx.mark_non_differentiable(nats)
        return nats @ weights, nats

    @staticmethod
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients = (None if gradient is None else scale * gradient for gradient in ctx.saved_tensors)
        return (*gradients, None, None, None)


def readout_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    analytic: Tensor | None,
    embedding: Tensor | None,
    targets: Tensor,
    low_precision: bool = False,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The mean cross-entropy of `targets` (N,), and the cross-entropy of every row (N,), without a gradient.

    The logits are hidden (N, d) · weightᵀ (V, d) + bias (V,) + analytic (N, e) · embeddingᵀ (V, e), where the last
    term is optional. With `low_precision`, products with `weight` are in bfloat16. With `weights` (N,), the mean
    becomes a weighted sum over rows.

    >>> one = torch.ones(1, 2)
    >>> zeros = torch.zeros(4, 2)
    >>> mean, rows = readout_loss(one, zeros, torch.zeros(4), one, zeros, torch.tensor([3]))
    >>> round(float(mean), 4)  # log 4
    1.3863
    """
    if weights is None:
        weights = torch.full((len(targets),), 1.0 / len(targets), device=hidden.device)
    mean, rows = _ReadoutLoss.apply(hidden, weight, bias, analytic, embedding, targets, weights, low_precision)  # type: ignore[no-untyped-call]
    return mean, rows

"""What guidance asks for: q, q − p, and q·E without writing q."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from diffinity.acceptance.triton_backend import output_kernels
from diffinity.acceptance.triton_backend.launching import BLOCK, ROWS, launch
from diffinity.acceptance.triton_backend.tilts import Tilt
from diffinity.acceptance.triton_backend.weights import Weights

WIDEST = 64  # columns of an embedding up to which q need not be written
NEVER = 1.0  # a log probability that none exceeds


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

    x (B, L, d) is p·E, which samples keep whose log P(L) is above −`certain`. For wide embeddings the product is
    most of the work, and q is written for the library's.
    """
    batch, width = w.batch, embedding.shape[1]
    if width > WIDEST:
        q = marginals(w, tilt, embedding.dtype)
        product = torch.bmm(q, embedding.detach().expand(batch.size, -1, -1))  # one product a sample
        return product if certain is None else torch.where((tilt.log_prob > -certain).view(-1, 1, 1), x, product)
    embedding, x = embedding.detach().contiguous(), x.detach().contiguous()
    columns = max(16, triton.next_power_of_2(width))
    splits = shares_of_vocabulary(batch.vocab)
    double = w.scores.dtype == torch.float64
    parts = w.empty(batch.size, splits, batch.length, width, dtype=torch.float64 if double else torch.float32)
    above = NEVER if certain is None else -certain
    launch(
        output_kernels.mean_parts,
        (splits, triton.cdiv(batch.length, 16), batch.size),
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

"""The outputs that guidance uses: q, q − p, and q·E without writing q."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from diffinity.acceptance.triton_backend import output_kernels
from diffinity.acceptance.triton_backend.device import Outside
from diffinity.acceptance.triton_backend.launching import launch, rows_of
from diffinity.acceptance.triton_backend.tilts import Tilt
from diffinity.acceptance.triton_backend.weights import Weights

WIDEST = 64  # maximum number of columns of an embedding for which q need not be written
NEVER = 1.0  # larger than any log probability
# The maximum q/p = r of the largest class for which q·E is a difference: r·p·E loses log2(r) of the digits of p·E.
LARGEST_RATIO = {torch.bfloat16: 4.0, torch.float16: 16.0, torch.float32: 64.0, torch.float64: 64.0}


def marginals(w: Weights, tilt: Tilt, dtype: torch.dtype, minus_p: bool = False) -> Tensor:
    """q (B, L, V), or q − p, from one more pass over the scores."""
    batch = w.batch
    out = torch.empty(w.scores.shape, dtype=dtype, device=w.scores.device)
    blocks = triton.cdiv(batch.vocab, 1024)
    rows = rows_of(blocks * batch.size, batch.length)
    launch(
        output_kernels.marginals,
        (blocks, triton.cdiv(batch.length, rows), batch.size),
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
        MINUS_P=minus_p,
        ACC=w.accumulator,
        BLOCK=1024,
        ROWS=rows,
    )
    return out


def mean(w: Weights, tilt: Tilt, embedding: Tensor, x: Tensor, certain: float | None = None) -> Tensor:
    """q·E (B, L, d) for embedding E (V, d), from one more pass over the scores, without writing q.

    x (B, L, d) is p·E; samples with log P(L) above −`certain` keep x. For wide embeddings the product is most of
    the work, so `torch.bmm` multiplies only the tokens outside the automaton's largest class. If the samples have
    different automata, or there is no large class, it multiplies all tokens.
    """
    batch, width = w.batch, embedding.shape[1]
    above = NEVER if certain is None else -certain
    if width > WIDEST and batch.outside is not None and x.dtype == embedding.dtype:
        return _mean_outside(w, tilt, batch.outside, embedding, x, above)
    if width > WIDEST:
        q = marginals(w, tilt, embedding.dtype)
        product = torch.bmm(q, embedding.detach().expand(batch.size, -1, -1))  # one product per sample
        return (
            product
            if certain is None
            else torch.where((tilt.log_p_language > -certain).view(-1, 1, 1), x, product)
        )
    embedding, x = embedding.detach().contiguous(), x.detach().contiguous()
    columns = max(16, triton.next_power_of_2(width))
    splits = shares_of_vocabulary(batch.vocab, batch.length)
    double = w.scores.dtype == torch.float64
    parts = w.empty(batch.size, splits, batch.length, width, dtype=torch.float64 if double else torch.float32)
    launch(
        output_kernels.mean_parts,
        (splits, triton.cdiv(batch.length, 16), batch.size),
        w.scores,
        batch.classes,
        batch.class_base,
        tilt.bias,
        tilt.rest,
        embedding.double() if double else embedding,
        tilt.log_p_language,
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
        (triton.cdiv(batch.length * width, 16), batch.size),
        parts,
        x,
        tilt.log_p_language,
        out,
        batch.length * width,
        splits,
        above,
        SPLITS=triton.next_power_of_2(splits),
        BLOCK=16,
    )
    return out


def _mean_outside(w: Weights, tilt: Tilt, outside: Outside, embedding: Tensor, x: Tensor, above: float) -> Tensor:
    """q·E from p·E and the tokens outside the largest class: r·p·E + Σ (q − r·p)·E over them."""
    batch, width, n = w.batch, embedding.shape[1], len(outside.tokens)
    rows = outside.embeddings(embedding)
    embedding, x = embedding.detach().contiguous(), x.detach().contiguous()
    differences = torch.empty(batch.size, batch.length, n, dtype=embedding.dtype, device=x.device)
    shared = (w.scores, batch.classes, batch.class_base, tilt.bias, tilt.rest, w.log_norm)
    blocks = triton.cdiv(n, 1024)
    positions = rows_of(blocks * batch.size, batch.length)
    launch(
        output_kernels.differences,
        (blocks, triton.cdiv(batch.length, positions), batch.size),
        *shared,
        differences,
        batch.length,
        batch.vocab,
        batch.n_classes,
        n,
        ACC=w.accumulator,
        BLOCK=1024,
        ROWS=positions,
    )
    out = torch.bmm(
        differences, rows.expand(batch.size, -1, -1)
    )  # one product per sample, which rounds the same in every batch
    double = embedding.dtype == torch.float64
    launch(
        output_kernels.mean_from_differences,
        (triton.cdiv(width, 64), triton.cdiv(batch.length, 16), batch.size),
        *shared,
        embedding,
        tilt.log_p_language,
        x,
        out,
        batch.length,
        batch.vocab,
        batch.n_classes,
        width,
        above,
        LARGEST_RATIO[embedding.dtype],
        PRECISION="ieee" if double else "tf32x3",
        ACC=tl.float64 if double else tl.float32,
        ROWS=16,
        BLOCK=64,
        COLUMNS=64,
    )
    return out


def shares_of_vocabulary(vocab: int, length: int) -> int:
    """The number of parts of the vocabulary for q·E: enough to fill a GPU with one sample, for any batch.

    >>> shares_of_vocabulary(32768, 64), shares_of_vocabulary(32768, 1024)
    (256, 32)
    """
    return max(1, min(256, vocab // 128, max(vocab // 1024, 16384 // length)))

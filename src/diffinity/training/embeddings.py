"""The initial embeddings of PLAID: tokens with similar neighbours are close together.

With random embeddings a noisy token is either recognisable or could be any token. With these embeddings the
network can recognise the kind of a token (for example, a name) while the noise is still high, and use that as
context.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

OFFSETS = (-2, -1, 1, 2)  # neighbours at these offsets are counted, each offset separately
RANDOM_SHARE = 0.1  # the random share of a token's squared norm
MAX_PENDING_PAIRS = 4_000_000  # pairs that are collected in memory before they are counted
FREQUENCY_EXPONENT = 0.75  # exponent of a neighbour's frequency, so that rare neighbours do not dominate


def neighbour_embeddings(batches: Iterable[Tensor], vocab_size: int, dim: int, eos: int, seed: int = 0) -> Tensor:
    """Embeddings (vocab_size, dim) of unit norm from the neighbours of tokens in batches (B, L).

    They are the leading singular directions of the positive pointwise mutual information of token and neighbour.
    Padding end tokens do not count as their own neighbours.

    >>> text = torch.tensor([[1, 2, 5, 1, 3, 5, 1, 2, 5, 1, 3, 5, 4, 6, 4, 6, 4, 6]])
    >>> near = neighbour_embeddings([text] * 40, vocab_size=7, dim=4, eos=0)
    >>> bool(near[2] @ near[3] > 0.5 > near[2] @ near[6])
    True
    """
    pairs, counts = _pairs(batches, vocab_size, eos)  # sparse: a dense table of all pairs would be too large
    row, column = pairs
    row_counts = torch.bincount(row, counts, vocab_size)
    column_weights = torch.bincount(column, counts, len(OFFSETS) * vocab_size).pow(FREQUENCY_EXPONENT)
    expected = row_counts[row] * column_weights[column] / column_weights.sum()
    mutual_information = (counts / (expected + 1e-3)).clamp(min=1.0).log().float()
    shape = (vocab_size, len(OFFSETS) * vocab_size)
    matrix = torch.sparse_coo_tensor(pairs, mutual_information, shape, check_invariants=True).coalesce()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        rank = min(dim + 8, vocab_size)
        directions, strength, _ = torch.svd_lowrank(matrix, rank, niter=4)
        random_directions = F.normalize(torch.randn(vocab_size, dim), dim=1)
    neighbour_directions = torch.zeros(vocab_size, dim)
    n_directions = min(dim, rank - 1)  # the first direction is the frequency of a token
    neighbour_directions[:, :n_directions] = (
        directions[:, 1 : n_directions + 1] * strength[1 : n_directions + 1].sqrt()
    )
    return F.normalize(
        (1 - RANDOM_SHARE) ** 0.5 * F.normalize(neighbour_directions, dim=1)
        + RANDOM_SHARE**0.5 * random_directions,
        dim=1,
    )


def _pairs(batches: Iterable[Tensor], vocab_size: int, eos: int) -> tuple[Tensor, Tensor]:
    """The pairs of a token and a neighbour at an offset, (2, n), and their counts, (n,)."""
    n_columns = len(OFFSETS) * vocab_size
    keys, counts = torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.float64)
    pending_keys: list[Tensor] = []

    def merged_counts() -> tuple[Tensor, Tensor]:
        new_keys = torch.cat(pending_keys) if pending_keys else keys[:0]
        weights = torch.cat([counts, torch.ones(len(new_keys), dtype=torch.float64)])
        pairs, index_of_pair = torch.cat([keys, new_keys]).unique(return_inverse=True)  # type: ignore[no-untyped-call]
        return pairs, torch.bincount(index_of_pair, weights, len(pairs))

    for tokens in batches:
        for offset_index, offset in enumerate(OFFSETS):
            token = tokens[:, max(0, -offset) : tokens.shape[1] - max(0, offset)].flatten()
            neighbour = tokens[:, max(0, offset) : tokens.shape[1] + min(0, offset)].flatten()
            in_text = (token != eos) | (neighbour != eos)
            pending_keys.append((token * n_columns + offset_index * vocab_size + neighbour)[in_text])
        if sum(map(len, pending_keys)) > MAX_PENDING_PAIRS:
            keys, counts = merged_counts()
            pending_keys.clear()
    keys, counts = merged_counts()
    return torch.stack([keys // n_columns, keys % n_columns]), counts

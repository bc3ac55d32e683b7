"""The initial embeddings of PLAID: tokens with similar neighbours are close together.

With random embeddings a noisy token is either recognisable or could be any other token. With these embeddings the
network can recognise its kind (for example, a name) while the noise is still high, and use that as context.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

OFFSETS = (-2, -1, 1, 2)  # the counted neighbours, each offset separately
OWN = 0.1  # the random share of a token's squared norm
COUNTED_TOGETHER = 4_000_000  # pairs in memory before they are counted
SMOOTHED = 0.75  # exponent of a neighbour's frequency, so that rare neighbours do not dominate


def neighbour_embeddings(batches: Iterable[Tensor], vocab_size: int, dim: int, eos: int, seed: int = 0) -> Tensor:
    """Embeddings (vocab_size, dim) of unit norm from the neighbours of tokens in batches (B, L).

    They are the leading singular directions of the positive pointwise mutual information of token and neighbour.
    Padding end tokens do not count as their own neighbours.

    >>> text = torch.tensor([[1, 2, 5, 1, 3, 5, 1, 2, 5, 1, 3, 5, 4, 6, 4, 6, 4, 6]])
    >>> near = neighbour_embeddings([text] * 40, vocab_size=7, dim=4, eos=0)
    >>> bool(near[2] @ near[3] > 0.5 > near[2] @ near[6])
    True
    """
    places, counts = _pairs(
        batches, vocab_size, eos
    )  # sparse: a table of all pairs would not fit a large vocabulary
    row, column = places
    of_row = torch.bincount(row, counts, vocab_size)
    of_column = torch.bincount(column, counts, len(OFFSETS) * vocab_size).pow(SMOOTHED)
    expected = of_row[row] * of_column[column] / of_column.sum()
    information = (counts / (expected + 1e-3)).clamp(min=1.0).log().float()
    shape = (vocab_size, len(OFFSETS) * vocab_size)
    table = torch.sparse_coo_tensor(places, information, shape, check_invariants=True).coalesce()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        rank = min(dim + 8, vocab_size)
        directions, strength, _ = torch.svd_lowrank(table, rank, niter=4)
        random_directions = F.normalize(torch.randn(vocab_size, dim), dim=1)
    neighbour_directions = torch.zeros(vocab_size, dim)
    n_directions = min(dim, rank - 1)  # the first direction is the frequency of a token
    neighbour_directions[:, :n_directions] = (
        directions[:, 1 : n_directions + 1] * strength[1 : n_directions + 1].sqrt()
    )
    return F.normalize(
        (1 - OWN) ** 0.5 * F.normalize(neighbour_directions, dim=1) + OWN**0.5 * random_directions, dim=1
    )


def _pairs(batches: Iterable[Tensor], vocab_size: int, eos: int) -> tuple[Tensor, Tensor]:
    """The pairs of a token and a neighbour at an offset, (2, n), and their counts, (n,)."""
    wide = len(OFFSETS) * vocab_size
    keys, counts = torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.float64)
    waiting: list[Tensor] = []

    def counted() -> tuple[Tensor, Tensor]:
        new_keys = torch.cat(waiting) if waiting else keys[:0]
        weights = torch.cat([counts, torch.ones(len(new_keys), dtype=torch.float64)])
        pairs, index_of_pair = torch.cat([keys, new_keys]).unique(return_inverse=True)  # type: ignore[no-untyped-call]
        return pairs, torch.bincount(index_of_pair, weights, len(pairs))

    for tokens in batches:
        for offset_index, offset in enumerate(OFFSETS):
            token = tokens[:, max(0, -offset) : tokens.shape[1] - max(0, offset)].flatten()
            neighbour = tokens[:, max(0, offset) : tokens.shape[1] + min(0, offset)].flatten()
            inside = (token != eos) | (neighbour != eos)
            waiting.append((token * wide + offset_index * vocab_size + neighbour)[inside])
        if sum(map(len, waiting)) > COUNTED_TOGETHER:
            keys, counts = counted()
            waiting.clear()
    keys, counts = counted()
    return torch.stack([keys // wide, keys % wide]), counts

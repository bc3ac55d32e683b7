"""Where PLAID's embeddings start: tokens that have the same neighbours lie close together.

With random embeddings a noisy token is either known or it could be any other. With these it is first known to be,
say, a name, while the noise is still high: what the network can use as context long before it can read the token.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

OFFSETS = (-2, -1, 1, 2)  # the neighbours that are counted, each place by itself
OWN = 0.1  # the share of a token's squared norm that it has for itself, at random
SMOOTHED = 0.75  # exponent of a neighbour's frequency, so that rare neighbours do not stand out


def neighbour_embeddings(batches: Iterable[Tensor], vocab_size: int, dim: int, eos: int, seed: int = 0) -> Tensor:
    """Embeddings (vocab_size, dim) of unit norm from the neighbours of tokens in batches (B, L).

    The positive pointwise mutual information of token and neighbour, its leading singular directions. Of the end
    tokens that fill up a row none is its own neighbour.

    >>> text = torch.tensor([[1, 2, 5, 1, 3, 5, 1, 2, 5, 1, 3, 5, 4, 6, 4, 6, 4, 6]])
    >>> near = neighbour_embeddings([text] * 40, vocab_size=7, dim=4, eos=0)
    >>> bool(near[2] @ near[3] > 0.5 > near[2] @ near[6])
    True
    """
    counts = torch.zeros(vocab_size, len(OFFSETS), vocab_size)
    for tokens in batches:
        for place, offset in enumerate(OFFSETS):
            here = tokens[:, max(0, -offset) : tokens.shape[1] - max(0, offset)].flatten()
            there = tokens[:, max(0, offset) : tokens.shape[1] + min(0, offset)].flatten()
            at = (here, torch.full_like(here, place), there)
            counts.index_put_(at, torch.ones(here.numel()), accumulate=True)
    counts[eos, :, eos] = 0
    counts = counts.flatten(1)
    expected = counts.sum(1, keepdim=True) * counts.sum(0, keepdim=True).pow(SMOOTHED)
    expected *= counts.sum() / expected.sum()
    information = (counts / (expected + 1e-3)).clamp(min=1.0).log()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        rank = min(dim + 8, vocab_size)
        directions, strength, _ = torch.svd_lowrank(information, rank, niter=4)
        own = F.normalize(torch.randn(vocab_size, dim), dim=1)
    near = torch.zeros(vocab_size, dim)
    kept = min(dim, rank - 1)  # the first direction is how frequent a token is
    near[:, :kept] = directions[:, 1 : kept + 1] * strength[1 : kept + 1].sqrt()
    return F.normalize((1 - OWN) ** 0.5 * F.normalize(near, dim=1) + OWN**0.5 * own, dim=1)

"""The embedded network compared with an exact denoiser of the same text, with the same noise and embeddings.

    python -m benchmarks.markov_yardstick [--model FOLDER] [--order 3] [--documents 20000] [--texts 60]

The Markov model of the corpus denoises exactly. The network gets the same noisy embeddings, with its own first
estimate as self-conditioning, as in sampling. The measure is cross-entropy per token, in nats, on held-out
documents of the training distribution, each up to and including its end token.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

import diffinity as dy
from diffinity.models import DiffusionLM, MarkovLM, PlaidLM
from diffinity.models.schedule import NoiseLevel
from diffinity.training.data import pad
from diffinity.training.mixture import read_training_data

LEVELS = (-3.0, -2.0, -1.0, 0.0, 1.0)
LENGTH = 48


def texts_of(model: PlaidLM, unseen: Sequence[str], n: int, structured: bool) -> Tensor:
    """Token ids (n, LENGTH) of short held-out documents, English or structured."""
    rows: list[list[int]] = []
    for text in unseen:
        ids = model.tokenizer.encode(text).ids
        if 6 <= len(ids) < LENGTH and text.startswith(("{", "[")) == structured:
            rows.append(ids)
        if len(rows) == n:
            break
    return pad(rows, LENGTH, model.eos_token_id or 0)


def cross_entropy(model: DiffusionLM, tokens: Tensor, embedding: Tensor, noise_level: float) -> float:
    """Nats per token at one noise level, each text of tokens (B, L) up to its first end token."""
    level = NoiseLevel(torch.tensor(noise_level, dtype=torch.float64))
    generator = torch.Generator().manual_seed(0)
    x = embedding.double()[tokens]
    z = level.alpha * x + level.sigma * torch.randn(x.shape, generator=generator, dtype=torch.float64)
    z, levels = z.to(model.dtype), torch.full((len(tokens),), noise_level, dtype=model.dtype)
    estimate = torch.zeros_like(z)
    if isinstance(model, PlaidLM):
        estimate = model.denoise(z, levels, estimate).softmax(dim=-1) @ model.embedding
    nats = F.cross_entropy(model.denoise(z, levels, estimate).transpose(1, 2), tokens, reduction="none")
    ended = tokens == model.eos_token_id
    assert isinstance(ended, Tensor)
    counted = (ended.cumsum(dim=1) - ended.long()) == 0
    return float((nats * counted).sum() / counted.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="the corpus file that the model was trained on (diffinity corpus build)")
    parser.add_argument("--model", help="folder of a model to use instead of the embedded model")
    parser.add_argument("--order", type=int, default=3)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--texts", type=int, default=60)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    network = dy.load(arguments.model)
    assert isinstance(network, PlaidLM)
    data = read_training_data(arguments.corpus)
    corpus = data.first(arguments.documents)
    fitted = dy.fit_markov(corpus, order=arguments.order, tokenizer=network.tokenizer)
    assert fitted.eos_token_id is not None
    chain = MarkovLM(fitted.chain, network.embedding, network.tokenizer, fitted.eos_token_id, arguments.order)
    table = Table(title=f"nats per token, order {arguments.order}, {arguments.documents:,} documents")
    for column in ("text", "γ", "network", "exact Markov"):
        table.add_column(column)
    with torch.no_grad():
        for name, structured in (("English", False), ("structured", True)):
            tokens = texts_of(network, data.held_out, arguments.texts, structured)
            for noise_level in LEVELS:
                nats_of_models = (
                    cross_entropy(model, tokens, network.embedding, noise_level) for model in (network, chain)
                )
                table.add_row(name, f"{noise_level:+.0f}", *(f"{nats:.2f}" for nats in nats_of_models))
    Console().print(table)


if __name__ == "__main__":
    main()

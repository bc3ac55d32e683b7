"""The effect of PLAID's warm-up of the analytic term: how much context a small network uses with and without it.

    python -m benchmarks.bias_warmup [--steps 200]

Context gain: the increase of the loss at a noise level when the context of a token is taken from other texts. A
network that treats every position independently has a gain of zero.
"""

from __future__ import annotations

import argparse
import tempfile

import torch
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer
from torch import Tensor

from diffinity.models.tokenization import train_bpe
from diffinity.training.data import GeneratedCorpus, first_documents, pad
from diffinity.training.tasks import DiffusionTask
from diffinity.training.trainer import Trainer, TrainingSettings

LEVELS = (-2.0, -1.0, 0.0)
LENGTH = 32
UNSEEN = 77  # a seed that no run trains on


def held_out(tokenizer: Tokenizer) -> Tensor:
    """The first 32 tokens of 64 held-out documents (64, 32)."""
    encoded = tokenizer.encode_batch(first_documents(GeneratedCorpus(UNSEEN), 400))
    return pad([e.ids[:LENGTH] for e in encoded if len(e.ids) >= LENGTH][:64], LENGTH, 0)


@torch.no_grad()
def loss(task: DiffusionTask, tokens: Tensor, level: float) -> float:
    noise_level = torch.full((tokens.shape[0], 1), level)
    return float(task.nats(tokens, noise_level, torch.Generator().manual_seed(1), 0.0)[0])


def gains(warmup: int, steps: int, tokenizer: Tokenizer) -> list[float]:
    settings = TrainingSettings(dim=128, n_heads=4, embed_dim=32, steps=steps, cooldown=0, bias_warmup=warmup)
    tokens = held_out(tokenizer)
    order = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(0)).argsort(0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(settings, folder, tokenizer, 0, GeneratedCorpus(0), ["not looked at"])
        trainer.run(validate_every=10**9, save_every=10**9)
    assert isinstance(trainer.task, DiffusionTask)
    return [
        loss(trainer.task, tokens.gather(0, order), level) - loss(trainer.task, tokens, level) for level in LEVELS
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = train_bpe(first_documents(GeneratedCorpus(0), 60_000), 2048)
    table = Table("warm-up, steps", *(f"gain at γ = {level:+.0f}, nats" for level in LEVELS))
    for warmup in (0, 2_000):
        table.add_row(str(warmup), *(f"{gain:.2f}" for gain in gains(warmup, options.steps, tokenizer)))
    Console(width=100).print(f"after {options.steps} steps", table)


if __name__ == "__main__":
    main()

"""Small PLAID networks of different shapes, trained for the same processor time on the same documents.

    python -m benchmarks.architecture_trials CORPUS [--minutes 8] [--trials "4 blocks; looped blocks"] [--out FILE]

CORPUS is a file of `diffinity corpus build`. All trials use the embedded model's tokenizer, except those of the
vocabulary. The table shows held-out nats per token by noise level and the held-out characters per token. For
unconstrained texts and texts under sentence constraints it shows the grammar judge's clean share and nats per
token under the embedded autoregressive model (tokens of that model, so that all trials are comparable).

- "looped blocks": the middle blocks run twice, with the same parameters.
- "coarse channel": half of an embedding's squared norm lies in 8 further dimensions, which are the same for all
  tokens of a cluster. There are 16 clusters of the initial embeddings. So the cluster of a token is known at
  higher noise than the token. An exported model is an ordinary PLAID model in both cases.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from scipy.cluster.vq import kmeans2
from tokenizers import Tokenizer
from torch import Tensor, nn

import diffinity as dy
from diffinity.alignment.bigrams import Bigrams, fit_bigrams
from diffinity.bench import grammar
from diffinity.bench.natural_language import natural_language_cases
from diffinity.models import PlaidLM
from diffinity.models.plaid import Embedding
from diffinity.models.tokenization import train_bpe
from diffinity.models.transformer import AutoregressiveLM
from diffinity.training.command import end_token
from diffinity.training.mixture import TrainingData, read_training_data
from diffinity.training.quality import distinct_2, english_only, perplexity
from diffinity.training.release import BIGRAM_DOCUMENTS
from diffinity.training.tasks import DiffusionTask
from diffinity.training.trainer import Report, Trainer, TrainingSettings

MEASURED_STEPS = 61  # for the time of a step
CLUSTERS, COARSE_DIM, COARSE_SHARE = 16, 8, 0.5
FREE, CONSTRAINED, LENGTH, STEPS = 150, 44, 32, 64
SEED = 11  # of the constraints
HELD_OUT_DOCUMENTS = 400


class CoarseEmbedding(nn.Module):
    """Token embeddings of unit norm whose last dimensions depend only on the token's cluster."""

    cluster: Tensor  # (V,)

    def __init__(self, vocab_size: int, embed_dim: int) -> None:
        super().__init__()
        self.matrix = nn.Parameter(F.normalize(torch.randn(vocab_size, embed_dim), dim=1))
        self.coarse = nn.Parameter(F.normalize(torch.randn(CLUSTERS, COARSE_DIM), dim=1))
        self.register_buffer("cluster", torch.zeros(vocab_size, dtype=torch.long))

    def assign(self) -> None:
        """Assign every token to a cluster of the current embeddings."""
        points = F.normalize(self.matrix.detach(), dim=1).double().numpy()
        _, labels = kmeans2(points, CLUSTERS, minit="++", seed=0)
        self.cluster.copy_(torch.from_numpy(labels))

    def forward(self) -> Tensor:
        fine = F.normalize(self.matrix, dim=1) * (1 - COARSE_SHARE) ** 0.5
        coarse = F.normalize(self.coarse, dim=1) * COARSE_SHARE**0.5
        return torch.cat([fine, coarse[self.cluster]], dim=1)


@dataclass(frozen=True)
class TrialSettings(TrainingSettings):
    """Training settings, with the changes to PLAID's architecture and vocabulary that a trial makes."""

    looped: bool = False  # the inner blocks run twice: six blocks in the order 0, 1, 2, 1, 2, 3
    coarse: bool = False
    vocabulary: int | None = None  # size of a tokenizer that is trained for the trial

    def task(self, vocab_size: int, eos: int) -> DiffusionTask:
        widened = dataclasses.replace(self, embed_dim=self.embed_dim + COARSE_DIM * self.coarse)
        task = super(TrialSettings, widened).task(vocab_size, eos)
        assert isinstance(task, DiffusionTask)
        network = task.network
        if self.looped:
            blocks = list(network.model.blocks)
            first, last = blocks[: (len(blocks) - 2) // 2 + 1], blocks[-1]
            network.model.blocks = nn.ModuleList([*first, *first[1:], last])
        if self.coarse:
            network.embedding_matrix = CoarseEmbedding(vocab_size, self.embed_dim)  # type: ignore[assignment]
        return task


TRIALS = {
    "4 blocks": TrialSettings(n_blocks=4),
    "looped blocks": TrialSettings(n_blocks=6, looped=True),  # four blocks of parameters
    "coarse channel": TrialSettings(n_blocks=4, coarse=True),
    "6 blocks": TrialSettings(n_blocks=6),
    "width 160": TrialSettings(n_blocks=4, dim=160, n_heads=5),
    "width 96, 8 blocks": TrialSettings(n_blocks=8, dim=96, n_heads=3),
    "vocabulary 6144": TrialSettings(n_blocks=4, vocabulary=6144),
    "vocabulary 4096": TrialSettings(n_blocks=4, vocabulary=4096),
}


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer, its end token, and the bigrams of the corpus in its tokens."""

    tokenizer: Tokenizer
    eos: int
    bigrams: Bigrams | None


def vocabulary_of(settings: TrialSettings, like: PlaidLM, data: TrainingData) -> Vocabulary:
    if settings.vocabulary is None:
        return Vocabulary(like.tokenizer, like.eos_token_id or 0, like.bigrams)
    tokenizer = train_bpe(data.tokenizer_texts(), settings.vocabulary)
    eos = end_token(tokenizer)
    return Vocabulary(tokenizer, eos, fit_bigrams(data.first(BIGRAM_DOCUMENTS), tokenizer, eos))


class TrialTrainer(Trainer):
    """A trainer without checkpoints, because blocks that share parameters cannot be saved separately."""

    def save(self) -> None:
        return None


def trainer_of(settings: TrialSettings, folder: str, vocabulary: Vocabulary, data: TrainingData) -> TrialTrainer:
    held_out = data.held_out[:HELD_OUT_DOCUMENTS]
    trainer = TrialTrainer(settings, folder, vocabulary.tokenizer, vocabulary.eos, data.source, held_out)
    embedding = trainer.task.network.embedding_matrix
    if isinstance(embedding, CoarseEmbedding):
        embedding.assign()
    return trainer


def trained(
    settings: TrialSettings, minutes: float, like: PlaidLM, data: TrainingData
) -> tuple[PlaidLM, dict[str, float]]:
    """The model after the given processor time, and its held-out losses by noise level."""
    vocabulary = vocabulary_of(settings, like, data)
    common: dict[str, Any] = {"mixed": 0.3, "tokens_per_batch": 2048, "bias_warmup": 300, "cooldown": 10**9}
    settings = dataclasses.replace(settings, **common, steps=MEASURED_STEPS)
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(settings, folder, vocabulary, data)
        times: list[float] = []  # at steps 20, 40, 60 and the last, which also validates
        intervals: dict[str, Any] = {"validate_every": 10**9, "save_every": 10**9}
        trainer.run(on_report=lambda _: times.append(time.process_time()), **intervals)
        steps = round(60 * minutes * 40 / (times[2] - times[0]))
        trainer = trainer_of(
            dataclasses.replace(settings, steps=steps, cooldown=steps // 2), folder, vocabulary, data
        )
        reports: list[Report] = []
        trainer.run(on_report=reports.append, **intervals)
        encoded = vocabulary.tokenizer.encode_batch(data.held_out[:HELD_OUT_DOCUMENTS])
        characters = sum(map(len, data.held_out[:HELD_OUT_DOCUMENTS]))
        losses = (reports[-1].validation or {}) | {
            "tokens": float(trainer.progress.tokens),
            "characters per token": characters / sum(len(encoding.ids) for encoding in encoded),
        }
        assert isinstance(trainer.task, DiffusionTask)
        network = trainer.task.network
        with trainer.averaged():
            embedding: nn.Module = network.embedding_matrix
            vectors = embedding().detach()
            network.embedding_matrix = Embedding(*vectors.shape)
            network.embedding_matrix.matrix.data = vectors
            model = trainer.task.export(vocabulary.tokenizer, trainer.eos, like.sampling_defaults)
            network.embedding_matrix = embedding  # type: ignore[assignment]
    model.bigrams = vocabulary.bigrams
    return model, losses


def clean_share(texts: Sequence[str]) -> float:
    judged = grammar.judge(texts)
    return sum(bool(v) and all(verdict.clean for verdict in v) for v in judged) / max(1, len(texts))


def measured(model: PlaidLM, judge: AutoregressiveLM) -> dict[str, float]:
    """Clean share, nats per token and distinct-2 of free texts and of texts under constraints."""
    options: dict[str, Any] = {"num_inference_steps": STEPS, "best_of": 1}
    free_texts = english_only(t.text for t in dy.generate(model, None, FREE, 16, seed=0, **options))
    cases = natural_language_cases(SEED)
    constraints = [case.constraint for case in cases[:: len(cases) // CONSTRAINED][:CONSTRAINED]]
    constrained_texts = [
        dy.generate(model, c, 1, LENGTH, seed=i, **options)[0].text for i, c in enumerate(constraints)
    ]
    measures: dict[str, float] = {}
    for name, texts in (("free", free_texts), ("constrained", constrained_texts)):
        nats = torch.tensor(perplexity(judge, texts)).log().item()
        measures |= {
            f"{name} clean": clean_share(texts),
            f"{name} nats": nats,
            f"{name} distinct-2": distinct_2(texts),
        }
    return measures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--minutes", type=float, default=8.0, help="processor time of a trial, in minutes")
    parser.add_argument("--trials", default="; ".join(TRIALS), help=f"some of {'; '.join(TRIALS)}")
    parser.add_argument("--out", type=Path, help="file to which one JSON line per trial is added")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    like, judge = dy.load(), dy.load("embedded-autoregressive")
    assert isinstance(like, PlaidLM)
    assert isinstance(judge, AutoregressiveLM)
    data = read_training_data(arguments.corpus)
    for name in (name.strip() for name in arguments.trials.split(";")):
        model, losses = trained(TRIALS[name], arguments.minutes, like, data)
        row = {"trial": name, **losses, **measured(model, judge)}
        print(row, flush=True)
        if arguments.out:
            with arguments.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()

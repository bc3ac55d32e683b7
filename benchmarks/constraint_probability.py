"""How unlikely the benchmark's constraints are: −log P(L) under the embedded autoregressive model, by category.

    python -m benchmarks.constraint_probability [--suite natural-language] [--particles 64] [--runs 4] [--free 400]

E[−log p(text) | L] is the entropy of the texts given the constraint plus −log P(L). So the constraint alone costs
−log P(L) nats per text, however good the text is. P(L) is the mean weight of the particles of
`autoregressive-conditional` over all runs; the spread is the standard deviation of its logarithm over runs.
`--free N` also measures the nats of N unconstrained texts of the diffusion model, and of those that are sentences
(only words and spaces).
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections.abc import Sequence

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import diffinity as dy
from diffinity.baselines.conditional import ConditionalSystem
from diffinity.bench.cases import suite
from diffinity.constraints.sentences import ENGLISH
from diffinity.errors import ConstraintError
from diffinity.models.loading import EMBEDDED
from diffinity.models.transformer import AutoregressiveLM

LENGTHS = {"natural-language": 32, "json": 64}


def free_texts(n: int, length: int) -> list[str]:
    """Unconstrained texts of the diffusion model, with the number of steps of the suites."""
    model = dy.load()
    texts: list[str] = []
    for first in range(0, n, 16):
        batch = dy.sample(model, min(16, n - first), length, num_inference_steps=64, first_index=first)
        texts += dy.texts(model, batch.tokens)
    return texts


def cost(judge: AutoregressiveLM, texts: Sequence[str]) -> str:
    """Perplexity (geometric mean over texts), nats and tokens of texts, including end tokens."""
    nats, tokens = [], []
    for text in texts:
        ids = [*judge.tokenizer.encode(text).ids, judge.eos_token_id]
        nats.append(-float(judge.log_probs(torch.tensor([ids])).sum()))
        tokens.append(len(ids))
    perplexity = math.exp(statistics.mean(a / b for a, b in zip(nats, tokens, strict=True)))
    return (
        f"{len(texts)} texts: perplexity {perplexity:.1f}, {statistics.mean(nats):.1f} nats, "
        f"{statistics.mean(tokens):.1f} tokens"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=list(LENGTHS), default="natural-language")
    parser.add_argument("--particles", type=int, default=64)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument(
        "--free", type=int, default=0, help="number of unconstrained texts of the diffusion model to measure"
    )
    parser.add_argument("--each", type=int, help="constraints of each category (all)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=100)
    model = AutoregressiveLM.from_pretrained(str(EMBEDDED.parent / "autoregressive"))
    system = ConditionalSystem(model, particles=arguments.particles)
    nats: dict[str, list[float]] = {}
    spread: dict[str, list[float]] = {}
    count_of_category: dict[str, int] = {}
    for case in track(suite(arguments.suite), console=Console(stderr=True)):
        if arguments.each is not None and count_of_category.get(case.category, 0) >= arguments.each:
            continue
        count_of_category[case.category] = count_of_category.get(case.category, 0) + 1
        try:
            log_probability = system.draw(
                case.constraint, arguments.runs, LENGTHS[arguments.suite], seed=0
            ).log_probability
        except ConstraintError as error:
            console.print(f"{case.id}: {error}")
            continue
        mean = np.logaddexp.reduce(log_probability) - np.log(len(log_probability))
        for name in (case.category, "all"):
            nats.setdefault(name, []).append(-float(mean))
            spread.setdefault(name, []).append(float(np.std(log_probability)))
    title = f"{arguments.suite}: −log P(L) in nats, {arguments.particles} particles, {arguments.runs} runs"
    table = Table("category", "constraints", "mean", "smallest", "largest", "spread over runs", title=title)
    for name in [*(name for name in nats if name != "all"), "all"]:
        figures = [statistics.mean(nats[name]), min(nats[name]), max(nats[name]), statistics.mean(spread[name])]
        table.add_row(name, str(len(nats[name])), *(f"{figure:.1f}" for figure in figures))
    console.print(table)
    if arguments.free:
        sentence = re.compile(f"{ENGLISH.gap}*{ENGLISH.word}(?:{ENGLISH.gap}+{ENGLISH.word})*{ENGLISH.gap}*")
        texts = free_texts(arguments.free, LENGTHS[arguments.suite])
        console.print("free, all:", cost(model, texts), highlight=False)
        words = [text for text in texts if sentence.fullmatch(text)]
        console.print("free, words alone:", cost(model, words), highlight=False)


if __name__ == "__main__":
    main()

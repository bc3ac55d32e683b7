"""How unlikely the benchmark's constraints are: −log P(L) under the autoregressive companion, by category.

    python -m benchmarks.constraint_probability [--suite natural-language] [--particles 64] [--runs 4]

E[−log p(text) | L] is the entropy of the texts given the constraint plus −log P(L): so many nats a text pays for
the constraint alone, however well it is written. P(L) is the mean weight of `autoregressive-conditional`'s
particles, over all runs; the spread is the standard deviation of its logarithm over runs.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from diffinity.baselines.conditional import ConditionalSystem
from diffinity.bench.cases import suite
from diffinity.errors import ConstraintError
from diffinity.models.loading import EMBEDDED
from diffinity.models.transformer import AutoregressiveLM

LENGTHS = {"natural-language": 32, "json": 64}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=list(LENGTHS), default="natural-language")
    parser.add_argument("--particles", type=int, default=64)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--each", type=int, help="constraints of each category (all)")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=100)
    model = AutoregressiveLM.from_pretrained(str(EMBEDDED.parent / "autoregressive"))
    system = ConditionalSystem(model, particles=chosen.particles)
    nats: dict[str, list[float]] = {}
    spread: dict[str, list[float]] = {}
    taken: dict[str, int] = {}
    for case in track(suite(chosen.suite), console=Console(stderr=True)):
        if chosen.each is not None and taken.get(case.category, 0) >= chosen.each:
            continue
        taken[case.category] = taken.get(case.category, 0) + 1
        try:
            found = system.draw(case.constraint, chosen.runs, LENGTHS[chosen.suite], seed=0).log_probability
        except ConstraintError as error:
            console.print(f"{case.id}: {error}")
            continue
        mean = np.logaddexp.reduce(found) - np.log(len(found))
        for name in (case.category, "all"):
            nats.setdefault(name, []).append(-float(mean))
            spread.setdefault(name, []).append(float(np.std(found)))
    title = f"{chosen.suite}: −log P(L) in nats, {chosen.particles} particles, {chosen.runs} runs"
    table = Table("category", "constraints", "mean", "smallest", "largest", "spread over runs", title=title)
    for name in [*(name for name in nats if name != "all"), "all"]:
        figures = [statistics.mean(nats[name]), min(nats[name]), max(nats[name]), statistics.mean(spread[name])]
        table.add_row(name, str(len(nats[name])), *(f"{figure:.1f}" for figure in figures))
    console.print(table)


if __name__ == "__main__":
    main()

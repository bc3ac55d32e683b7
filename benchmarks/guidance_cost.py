"""The cost of guidance: the time ratio of guided and unguided runs, for several batches and automata.

    python -m benchmarks.guidance_cost [--models large embedded] [--batch 1 4 16] [--steps 8] [--rounds 5]
        [--methods auto path] [--share]

Two models: a randomly initialised network of 30 M parameters over PLAID's 32,768 tokens, with automata from 70
thousand to 5 million transitions, and the embedded model with its own automata. Guided and unguided runs
alternate, and each figure is the median of the ratios of adjacent runs, because other programs use the machine.
`--share` instead measures the time of the closed form as a share of a guided run. This is less noisy, but only
possible for path and posterior.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

import diffinity as dy
from benchmarks.automata import TEMPLATES, Sized, of_sizes, plaid_vocabulary, shared
from diffinity.acceptance import mean
from diffinity.alignment import TokenAutomaton, Vocabulary, align
from diffinity.guidance.presets import named_guidance
from diffinity.memory import keep_freed_memory
from diffinity.models import DiffusionLM, PlaidConfig, PlaidLM
from diffinity.models.plaid_lm import PlaidModules
from diffinity.models.protocol import vocabulary_of

SIZES = [70e3, 300e3, 1e6, 5e6]
METHODS = ["path", "posterior", "chain", "auto", "gradient", "paper"]
LENGTH = 64


def random_network() -> PlaidLM:
    """30 M random parameters over PLAID's tokenizer: only the cost is meaningful, not the output."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.from_file(str(shared() / "fixtures" / "plaid" / "owt2_tokenizer.json"))
    config = PlaidConfig(vocab_size=tokenizer.get_vocab_size(), dim=384, n_blocks=9, n_heads=6, embed_dim=16)
    eos = Vocabulary.from_tokenizer(tokenizer).eos_id
    model = PlaidLM(PlaidModules(config), tokenizer, eos)
    print(f"{sum(p.numel() for p in model.modules.parameters()) / 1e6:.1f} M parameters")
    return model


def one_run(
    model: DiffusionLM, automata: Sequence[TokenAutomaton], method: str, steps: int
) -> Callable[[], float]:
    def run() -> float:
        guidance = named_guidance(method, automata)
        started = time.perf_counter()
        dy.sample(model, len(automata), LENGTH, num_inference_steps=steps, guidance=guidance)
        return time.perf_counter() - started

    return run


def ratios(
    model: DiffusionLM, sized: Sized, batch: int, steps: int, rounds: int, methods: Sequence[str]
) -> dict[str, float]:
    """For each method the median over rounds of its time divided by that of the adjacent unguided runs."""
    automata = [sized.automaton] * batch
    unguided_run = one_run(model, automata, "none", steps)
    runs = {method: one_run(model, automata, method, steps) for method in methods}
    for run in (unguided_run, *runs.values()):
        run()
    measured: dict[str, list[float]] = {method: [] for method in methods}
    for _ in range(rounds):
        unguided_before = unguided_run()
        for method, run in runs.items():
            guided_seconds = run()
            unguided_after = unguided_run()
            measured[method].append(2 * guided_seconds / (unguided_before + unguided_after))
            unguided_before = unguided_after
    return {method: statistics.median(values) for method, values in measured.items()}


def shares(
    model: DiffusionLM, sized: Sized, batch: int, steps: int, rounds: int, methods: Sequence[str]
) -> dict[str, float]:
    """For each method the median over rounds of the share of `conditional_mean` in the time of the guided run."""
    closed_form_seconds = 0.0

    def timed(*arguments: Any) -> Any:
        nonlocal closed_form_seconds
        started = time.perf_counter()
        result = conditional_mean(*arguments)
        closed_form_seconds += time.perf_counter() - started
        return result

    conditional_mean = mean.conditional_mean
    mean.conditional_mean = timed  # type: ignore[assignment]
    try:
        measured: dict[str, list[float]] = {method: [] for method in methods}
        for method in methods:
            run = one_run(model, [sized.automaton] * batch, method, steps)
            run()
            for _ in range(rounds):
                closed_form_seconds = 0.0
                total_seconds = run()
                measured[method].append(closed_form_seconds / total_seconds)
        return {method: statistics.median(values) for method, values in measured.items()}
    finally:
        mean.conditional_mean = conditional_mean


def embedded_automata(model: DiffusionLM) -> list[Sized]:
    vocabulary = vocabulary_of(model)
    return [
        Sized(f"regex: {name}", align(dy.Regex(pattern), vocabulary))
        for name, pattern in list(TEMPLATES.items())[:3]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=["large", "embedded"], default=["large", "embedded"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=float, nargs="+", default=SIZES, help="target numbers of transitions")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--model", help="folder of a model to use instead of the embedded model")
    parser.add_argument("--share", action="store_true", help="the closed form's share of a guided run")
    arguments = parser.parse_args()
    if arguments.share:
        arguments.methods = [method for method in arguments.methods if method in ("path", "posterior")]
    if "large" in arguments.models:  # a random network has no bigrams
        arguments.methods = [method for method in arguments.methods if method != "chain"]
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    console = Console()
    cases: list[tuple[str, DiffusionLM, Sized, int]] = []
    if "large" in arguments.models:
        large = random_network()
        sized = of_sizes(arguments.sizes, plaid_vocabulary(), LENGTH)
        cases += [("30 M, V = 32,768", large, case, arguments.steps) for case in sized]
    if "embedded" in arguments.models:
        small = dy.load(arguments.model)
        cases += [("embedded", small, case, 8 * arguments.steps) for case in embedded_automata(small)]
    measure = shares if arguments.share else ratios
    title = "closed form over guided run" if arguments.share else "guided over unguided"
    table = Table(title=f"{title}, {LENGTH} tokens, {arguments.threads} thread")
    for column in ("model", "automaton", "transitions", "batch", *arguments.methods):
        table.add_column(column)
    for name, model, case, steps in cases:
        for batch in arguments.batch:
            row = measure(model, case, batch, steps, arguments.rounds, arguments.methods)
            figures = [
                f"{row[method]:.3f}" if arguments.share else f"{row[method]:.2f}" for method in arguments.methods
            ]
            table.add_row(name, case.name, f"{case.automaton.n_transitions:,}", str(batch), *figures)
            summary = " ".join(f"{method} {figure}" for method, figure in zip(row, figures, strict=True))
            console.print(name, case.name, batch, summary, highlight=False)
    console.print(table)


if __name__ == "__main__":
    main()

"""The dynamic programme and the paper's Algorithm 1 on automata of 72 thousand to 160 million transitions.

    python -m benchmarks.acceptance [--threads 1] [--batch 1 4 16]

Times are ratios to one pass that reads and writes the probabilities, measured in the same run.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.automata import of_sizes, plaid_vocabulary
from diffinity.acceptance import acceptance
from diffinity.alignment import TokenAutomaton

LENGTH = 64
SIZES = [72e3, 1e6, 3.4e6, 29e6, 160e6]
ALGORITHM_1_LIMIT = 12e9  # memory limit in bytes for Algorithm 1 with autograd


def seconds(work: Callable[[], object], rounds: int = 5) -> float:
    work()
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def algorithm_1(logits: torch.Tensor, automaton: TokenAutomaton) -> Callable[[], object]:
    """The paper's algorithm: a dense log-space matrix per position from all transitions, with autograd."""
    tail, label = np.nonzero(automaton.next >= 0)
    order, first = automaton.tokens_by_class
    sizes = first[label + 1] - first[label]
    token = np.concatenate([order[first[c] : first[c + 1]] for c in label])
    tail, head = np.repeat(tail, sizes), np.repeat(automaton.next[tail, label], sizes)
    cell = torch.from_numpy(tail.astype(np.int64) * automaton.n_states + head)
    tokens, n = torch.from_numpy(token), automaton.n_states
    accepting = torch.from_numpy(automaton.accepting.copy())

    def work() -> torch.Tensor:
        x = logits.clone().requires_grad_()
        log_p = x.log_softmax(-1)
        total = x.new_zeros(())
        for sample in log_p:
            alpha = torch.full((n,), -1e30)
            alpha[0] = 0.0
            for row in sample:
                weight = row[tokens].exp()
                matrix = torch.zeros(n * n).index_add(0, cell, weight).clamp(min=1e-38).log().view(n, n)
                alpha = torch.logsumexp(alpha[:, None] + matrix, 0)
            total = total + torch.logsumexp(alpha[accepting], 0)
        (gradient,) = torch.autograd.grad(total, x)
        return gradient

    return work


def algorithm_1_bytes(automaton: TokenAutomaton, batch: int) -> float:
    """The memory of Algorithm 1's backward pass: a float and an index per transition and position; matrices."""
    return batch * LENGTH * (8.0 * automaton.n_transitions + 12.0 * automaton.n_states**2)


def peak_mb(work: Callable[[], object]) -> float:
    """The peak memory that numpy and Python allocate during `work`."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return peak


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 4, 16])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    vocabulary = plaid_vocabulary()
    automata_of_sizes = of_sizes(SIZES, vocabulary, LENGTH)
    table = Table(
        *("automaton", "states", "classes", "transitions", "batch"),
        *("read+write", "ours", "ratio", "ours, MB", "Algorithm 1"),
    )
    for batch in options.batch:
        logits = 3 * torch.randn(batch, LENGTH, len(vocabulary), generator=torch.Generator().manual_seed(0))
        probs = logits.softmax(-1)
        copy_seconds = seconds(lambda p=probs: p.clone())  # type: ignore[misc]
        for sized in automata_of_sizes:
            automaton = sized.automaton
            run = lambda p=probs, a=automaton: acceptance(p, a)  # noqa: E731
            ours = seconds(run)
            algorithm_1_cell = "memory"
            if batch == 1 and algorithm_1_bytes(automaton, batch) < ALGORITHM_1_LIMIT:
                algorithm_1_cell = f"{seconds(algorithm_1(logits, automaton), 1) * 1e3:,.0f} ms"
            elif batch > 1:
                algorithm_1_cell = ""
            table.add_row(
                sized.name,
                f"{automaton.n_states:,}",
                f"{automaton.n_classes:,}",
                f"{automaton.n_transitions:,}",
                str(batch),
                f"{copy_seconds * 1e3:.1f} ms",
                f"{ours * 1e3:.1f} ms",
                f"{ours / copy_seconds:.1f}",
                f"{peak_mb(run):.0f}",
                algorithm_1_cell,
            )
    Console(width=150).print(table)


if __name__ == "__main__":
    main()

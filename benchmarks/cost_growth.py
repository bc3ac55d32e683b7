"""How the cost of one acceptance call grows with L, V, S, C and B, as a plot.

    python -m benchmarks.cost_growth [--out docs/images/cost_growth.svg]

Each curve varies one size and fixes the others at L = 64, V = 32,768, B = 1 and a medium automaton. The automata
are synthetic (chains with random classes), so that S and C can be set.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch

from diffinity.acceptance import acceptance
from diffinity.alignment import TokenAutomaton

BASE = {"L": 64, "V": 32_768, "S": 512, "C": 64, "B": 1}
VARIED = {
    "L": [8, 16, 32, 64, 128, 256],
    "V": [1_024, 4_096, 16_384, 32_768, 131_072],
    "S": [8, 64, 512, 4_096, 16_384],
    "C": [4, 16, 64, 256, 1_024],
    "B": [1, 2, 4, 8, 16],
}


def synthetic(states: int, classes: int, vocab: int) -> TokenAutomaton:
    """Every state has a few successors, one for each class; the last state accepts."""
    rng = np.random.default_rng(0)
    heads = rng.integers(0, states, (states, 6)).astype(np.int32)
    heads[:, 0] = np.minimum(np.arange(states) + 1, states - 1)
    table = heads[np.arange(states)[:, None], rng.integers(0, 6, (states, classes))]
    accepting = np.zeros(states, np.bool_)
    accepting[rng.integers(0, states, max(1, states // 8))] = True
    return TokenAutomaton(rng.integers(0, classes, vocab).astype(np.int32), table.astype(np.int32), accepting)


def seconds(sizes: dict[str, int]) -> float:
    automaton = synthetic(sizes["S"], sizes["C"], sizes["V"])
    probs = torch.randn(sizes["B"], sizes["L"], sizes["V"], generator=torch.Generator().manual_seed(0)).softmax(-1)
    acceptance(probs, automaton)
    times = []
    for _ in range(5):
        started = time.perf_counter()
        acceptance(probs, automaton)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("docs/images/cost_growth.svg"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    base = seconds(BASE)
    figure, axes = plt.subplots(figsize=(7, 4.5))
    for name, values in VARIED.items():
        times = [seconds({**BASE, name: value}) / base for value in values]
        axes.loglog(
            [value / BASE[name] for value in values], times, marker="o", label=f"{name} (base {BASE[name]:,})"
        )
        print(name, "  ".join(f"{value:,}: {ratio:.2f}" for value, ratio in zip(values, times, strict=True)))
    axes.set_xlabel("size, as a multiple of the base")
    axes.set_ylabel("time, as a multiple of the base")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    figure.tight_layout()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out)
    print(f"base {base * 1e3:.1f} ms; wrote {options.out}")


if __name__ == "__main__":
    main()

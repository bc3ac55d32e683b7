"""The cost of a constraint for a masked model: the time ratio of guided and unguided runs, per batch size.

    python -m benchmarks.token_cost [--models companion large] [--batch 1 16] [--steps 16] [--rounds 7]
        [--methods joint dingo marginals] [--patterns 3]

Two masked models: the embedded masked model (3.3 M parameters, 8,192 tokens) and a randomly initialised network of
29 M parameters over PLAID's 32,768 tokens. The framing is "exact", so that guided and unguided runs decide the
same number of positions in the same number of network calls. They alternate, and each figure is the median of the
ratios of adjacent runs, in CPU time of one thread, because other programs may use the machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from tokenizers import Tokenizer

import diffinity as dy
from benchmarks.automata import shared
from diffinity.alignment import Vocabulary
from diffinity.memory import keep_freed_memory
from diffinity.models.loading import EMBEDDED
from diffinity.models.transformer import MaskedLM, Transformer, TransformerConfig

LENGTH = 64
PATTERNS = {
    "a word anywhere": r"[A-Za-z ,.]*river[A-Za-z ,.]*",
    "a sentence": r"The [a-z ]+ in the [a-z ]+\.",
    "any JSON string": r'"[^"\\]*"',
}


def large_model() -> MaskedLM:
    """29 M random parameters over PLAID's tokenizer: only the cost is meaningful, not the output."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.from_file(str(shared() / "fixtures" / "plaid" / "owt2_tokenizer.json"))
    config = TransformerConfig(tokenizer.get_vocab_size(), dim=384, n_blocks=2, n_heads=6, causal=False)
    network = Transformer(config)
    torch.nn.init.normal_(network.output_linear.weight, std=0.05)
    print(f"{sum(p.numel() for p in network.parameters()) / 1e6:.1f} M parameters")
    return MaskedLM(network, tokenizer, Vocabulary.from_tokenizer(tokenizer).eos_id or 0)


def one_run(model: MaskedLM, pattern: str, method: str, batch: int, steps: int) -> Callable[[], float]:
    decode = "argmax" if method == "none" else "best"
    generator = dy.Generator(
        model,
        dy.Regex(pattern),
        length=LENGTH,
        num_inference_steps=steps,
        guidance=method,
        framing="exact",
        batch_size=batch,
        decode=decode,
    )

    def run() -> float:
        started = time.process_time()  # one thread: other programs do not count
        generator(batch)
        return time.process_time() - started

    return run


def ratios(
    model: MaskedLM, pattern: str, batch: int, steps: int, rounds: int, methods: Sequence[str]
) -> dict[str, float]:
    """For each method the median over rounds of its time divided by that of the adjacent unguided runs."""
    unguided_run = one_run(model, pattern, "none", batch, steps)
    runs = {method: one_run(model, pattern, method, batch, steps) for method in methods}
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=["companion", "large"], default=["companion", "large"])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--methods", nargs="+", default=["joint", "dingo", "marginals"])
    parser.add_argument("--patterns", type=int, default=len(PATTERNS), help="number of patterns")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    for name in arguments.models:
        model = large_model() if name == "large" else MaskedLM.from_pretrained(EMBEDDED.with_name("masked"))
        for title, pattern in list(PATTERNS.items())[: arguments.patterns]:
            for batch in arguments.batch:
                row = ratios(model, pattern, batch, arguments.steps, arguments.rounds, arguments.methods)
                summary = "  ".join(f"{method} {ratio:.3f}" for method, ratio in row.items())
                print(f"{name:10} {title:16} batch {batch:2}  {summary}", flush=True)


if __name__ == "__main__":
    main()

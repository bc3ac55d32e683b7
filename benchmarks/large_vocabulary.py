"""Gemma's 262,144 tokens: the cost of reading the tokenizer, of alignment and of one step on a canvas of 256.

    python -m benchmarks.large_vocabulary [--tokenizer tokenizer.json] [--size 262144] [--length 256]

Without a tokenizer file, a tokenizer of that size is made from a byte-level alphabet and words of letters. Times
are seconds of processor time on one thread. Memory is the increase of the peak. For alignment it is counted by
numpy and Python; for a step it is that of the process, because torch has its own allocator.
"""

from __future__ import annotations

import argparse
import resource
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

import diffinity as dy
from benchmarks.integrations import INVOICE, vocabulary
from diffinity.alignment.align import clear_cache
from diffinity.integrations.canvas import constrain_logits
from diffinity.integrations.texts import Texts

T = TypeVar("T")
CONSTRAINTS: dict[str, Any] = {
    "a date": dy.Regex(r"\d{4}-(0[1-9]|1[0-2])-\d\d"),
    "sentences": dy.Regex(r"([A-Z][a-z]+( [a-z]+)*\. )*The end\."),
    "an invoice (JSON Schema)": INVOICE,
    "one of 500 texts": dy.Choice([f"name {i} of {i * i}" for i in range(500)]),
    "text without a word": dy.Regex("(?s).*") & ~dy.Regex("(?s).*fox.*"),
}


def measured(work: Callable[[], T]) -> tuple[T, float]:
    started = time.process_time()
    result = work()
    return result, time.process_time() - started


def traced(work: Callable[[], object]) -> float:
    """The peak memory that numpy and Python allocate, in megabytes."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def resident() -> float:
    """The peak memory of the process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer")
    parser.add_argument("--size", type=int, default=262_144)
    parser.add_argument("--length", type=int, default=256)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=130)
    if arguments.tokenizer:
        tokenizer = Tokenizer.from_file(arguments.tokenizer)
        words, reading_seconds = measured(lambda: dy.Vocabulary.from_tokenizer(tokenizer))
    else:
        words, reading_seconds = measured(lambda: vocabulary(arguments.size))
    _, trie_seconds = measured(lambda: (words.fingerprint, words.trie))
    console.print(
        f"{len(words):,} tokens: read in {reading_seconds:.2f} s, fingerprint and trie {trie_seconds:.2f} s"
    )
    dy.align(dy.Regex("warm up"), words, "exact")

    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(1, arguments.length, len(words), generator=generator)
    _, softmax_seconds = measured(lambda: [float(logits[0, k].softmax(-1)[0]) for k in range(arguments.length)])
    console.print(f"a softmax of (1, {arguments.length}, {len(words):,}) logits takes {softmax_seconds:.2f} s")
    table = Table(title=f"a canvas of {arguments.length}")
    for column in (
        "constraint",
        "states",
        "classes",
        "aligned (s)",
        "peak (MB)",
        "a step (s)",
        "÷ softmax",
    ):
        table.add_column(column, justify="right" if column != "constraint" else "left")
    resident_before = resident()
    ends = (0,) if words.eos_id is None else (words.eos_id,)
    for name, constraint in CONSTRAINTS.items():
        dy.constraint(constraint).dfa()  # the alignment is measured, not the constraint's own compilation
        texts, alignment_seconds = measured(partial(Texts, constraint, words))
        automaton = texts.rows(1, len(words), ends).automata[0]
        clear_cache()
        peak = traced(partial(Texts, constraint, words))
        window = automaton.window(0, arguments.length)
        constrain_logits(logits[:, :8], [automaton.window(0, arguments.length)])
        constrain_logits(logits, [window], temperature=0.6)
        _, step_seconds = measured(partial(constrain_logits, logits, [window], temperature=0.6))
        table.add_row(
            name,
            f"{automaton.n_states:,}",
            f"{automaton.n_classes:,}",
            f"{alignment_seconds:.2f}",
            f"{peak:.0f}",
            f"{step_seconds:.2f}",
            f"{step_seconds / softmax_seconds:.1f}",
        )
    console.print(table)
    increase = resident() - resident_before
    console.print(f"the logits have {logits.nbytes / 1e6:.0f} MB; a step and its result took {increase:.0f} MB")


if __name__ == "__main__":
    main()

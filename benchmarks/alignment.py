"""Alignment beside outlines-core's full-vocabulary index, over the sentence templates and the real schemas.

python benchmarks/alignment.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from benchmarks.automata import TEMPLATES, compiled_schemas, plaid_vocabulary
from diffinity.alignment import Vocabulary, align, clear_cache
from diffinity.constraints import Constraint, Regex
from diffinity.errors import DiffinityError


def milliseconds(work: Callable[[], object], rounds: int = 3) -> float:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - started))
    return min(times)


def ours(constraint: Constraint, vocabulary: Vocabulary) -> float | None:
    dfa = constraint.dfa()

    def work() -> None:
        clear_cache()
        align(dfa, vocabulary, "eos")

    try:
        return milliseconds(work)
    except DiffinityError:
        return None


def outlines(pattern: str, vocabulary: Vocabulary) -> float:
    from outlines_core import Index
    from outlines_core import Vocabulary as OutlinesVocabulary

    by_bytes: dict[bytes, list[int]] = {}
    for i in vocabulary.ordinary.tolist():
        by_bytes.setdefault(vocabulary.tokens[i] or b"", []).append(i)
    theirs = OutlinesVocabulary(vocabulary.eos_id or 0, by_bytes)
    return milliseconds(lambda: Index(pattern, theirs), rounds=1)


SUFFIXES = [
    b"s",
    b"ed",
    b"ing",
    b"er",
    b"ly",
    b"ness",
    b"able",
    b"ers",
    b"'s",
    b"ment",
    b"ful",
    b"less",
    b"ish",
    b"ism",
]


def extended(vocabulary: Vocabulary, size: int) -> Vocabulary:
    """A larger vocabulary: the same tokens and more word forms, as a BPE with more merges would have them."""
    tokens = list(vocabulary.tokens)
    seen = set(tokens)
    words = [t for t in vocabulary.tokens if t and len(t) > 3 and t.strip().isalpha()]
    forms = (word + suffix for suffix in SUFFIXES for word in words)
    while len(tokens) < size:
        form = next(forms)
        if form not in seen:
            seen.add(form)
            tokens.append(form)
    return Vocabulary(tokens, vocabulary.eos_id)


def main() -> None:
    vocabulary = plaid_vocabulary()
    large = extended(vocabulary, 131_072)
    for one in (vocabulary, large):
        align(Regex("warm"), one, "eos")
    table = Table("constraint", "32,768 tokens", "131,072 tokens", "outlines-core, 32,768", "ratio")
    ratios = []
    small_times, large_times = [], []
    for name, pattern in TEMPLATES.items():
        mine, more = ours(Regex(pattern), vocabulary), ours(Regex(pattern), large)
        theirs = outlines(pattern, vocabulary)
        assert mine is not None
        assert more is not None
        small_times.append(mine)
        large_times.append(more)
        ratios.append(theirs / mine)
        table.add_row(name, f"{mine:.1f} ms", f"{more:.1f} ms", f"{theirs:,.0f} ms", f"{theirs / mine:.0f}")
    table.add_row(
        "median of the templates",
        f"{statistics.median(small_times):.1f} ms",
        f"{statistics.median(large_times):.1f} ms",
        "",
        f"{statistics.median(ratios):.0f}",
        style="bold",
    )
    schemas = [constraint for _, constraint in compiled_schemas()]
    small = [t for c in schemas if (t := ours(c, vocabulary)) is not None]
    more_times = [t for c in schemas[:40] if (t := ours(c, large)) is not None]
    table.add_row(
        f"median of {len(small)} schemas",
        f"{statistics.median(small):.1f} ms",
        f"{statistics.median(more_times):.1f} ms (of {len(more_times)})",
        "",
        "",
        style="bold",
    )
    Console(width=120).print(table)
    print(f"trie nodes: {vocabulary.trie.n_nodes:,} and {large.trie.n_nodes:,}")


if __name__ == "__main__":
    main()

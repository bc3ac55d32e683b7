"""Alignment compared with outlines-core's full-vocabulary index, on the sentence templates and the real schemas.

python -m benchmarks.alignment
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from functools import cache
from typing import Any

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

    outlines_vocabulary = _outlines_vocabulary(vocabulary)
    return milliseconds(lambda: Index(pattern, outlines_vocabulary), rounds=1)


@cache
def _outlines_vocabulary(vocabulary: Vocabulary) -> Any:
    from outlines_core import Vocabulary as OutlinesVocabulary

    by_bytes: dict[bytes, list[int]] = {}
    for i in vocabulary.ordinary.tolist():
        by_bytes.setdefault(vocabulary.tokens[i] or b"", []).append(i)
    return OutlinesVocabulary(vocabulary.eos_id or 0, by_bytes)


def outlines_schema(schema: object, vocabulary: Vocabulary, timeout: float) -> float | None:
    """Milliseconds of outlines-core's index for a schema, `timeout` if it takes longer, None if it refuses.

    It runs in a separate process, because it cannot be interrupted; the conversion of the schema to a regex is not
    counted.
    """
    _outlines_vocabulary(vocabulary)
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    process = fork.Process(target=_index_schema, args=(json.dumps(schema), vocabulary, answers), daemon=True)
    process.start()
    process.join(timeout)
    if process.is_alive():
        process.kill()
        process.join()
        return 1e3 * timeout
    return None if answers.empty() else float(answers.get())


def _index_schema(schema: str, vocabulary: Vocabulary, answers: Any) -> None:
    from outlines_core.json_schema import build_regex_from_schema

    try:
        answers.put(outlines(build_regex_from_schema(schema), vocabulary))
    except BaseException:  # any exception, including a Rust panic, is a refusal
        return


TIMEOUT = 5.0  # seconds
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
    """A larger vocabulary: the same tokens and more word forms, like a BPE with more merges."""
    tokens = list(vocabulary.tokens)
    known_tokens = set(tokens)
    words = [t for t in vocabulary.tokens if t and len(t) > 3 and t.strip().isalpha()]
    forms = (word + suffix for suffix in SUFFIXES for word in words)
    while len(tokens) < size:
        form = next(forms)
        if form not in known_tokens:
            known_tokens.add(form)
            tokens.append(form)
    return Vocabulary(tokens, vocabulary.eos_id)


def main() -> None:
    vocabulary = plaid_vocabulary()
    large = extended(vocabulary, 131_072)
    for sized_vocabulary in (vocabulary, large):
        align(Regex("warm"), sized_vocabulary, "eos")
    table = Table("constraint", "32,768 tokens", "131,072 tokens", "outlines-core, 32,768", "ratio")
    ratios = []
    small_times, large_times = [], []
    for name, pattern in TEMPLATES.items():
        small_time, large_time = ours(Regex(pattern), vocabulary), ours(Regex(pattern), large)
        outlines_time = outlines(pattern, vocabulary)
        assert small_time is not None
        assert large_time is not None
        small_times.append(small_time)
        large_times.append(large_time)
        ratios.append(outlines_time / small_time)
        table.add_row(
            name,
            f"{small_time:.1f} ms",
            f"{large_time:.1f} ms",
            f"{outlines_time:,.0f} ms",
            f"{outlines_time / small_time:.0f}",
        )
    table.add_row(
        "median of the templates",
        f"{statistics.median(small_times):.1f} ms",
        f"{statistics.median(large_times):.1f} ms",
        "",
        f"{statistics.median(ratios):.0f}",
        style="bold",
    )
    schemas = compiled_schemas()
    small_schema_times = [t for _, c in schemas if (t := ours(c, vocabulary)) is not None]
    large_schema_times = [t for _, c in schemas[::5] if (t := ours(c, large)) is not None]
    table.add_row(
        f"median of {len(small_schema_times)} schemas",
        f"{statistics.median(small_schema_times):.1f} ms",
        f"{statistics.median(large_schema_times):.1f} ms (of {len(large_schema_times)})",
        "",
        "",
        style="bold",
    )
    pairs = [
        (diffinity_time, outlines_schema_time)
        for _, c in schemas[::5]
        if (diffinity_time := ours(c, vocabulary)) is not None
        and (outlines_schema_time := outlines_schema(c.schema, vocabulary, TIMEOUT)) is not None
    ]
    table.add_row(
        f"median of {len(pairs)} schemas that both take",
        f"{statistics.median(small_time for small_time, _ in pairs):.1f} ms",
        "",
        f"{statistics.median(outlines_time for _, outlines_time in pairs):,.0f} ms (cut off at {TIMEOUT:.0f} s)",
        f"{statistics.median(outlines_time / small_time for small_time, outlines_time in pairs):.0f}",
        style="bold",
    )
    Console(width=120).print(table)
    print(f"trie nodes: {vocabulary.trie.n_nodes:,} and {large.trie.n_nodes:,}")


if __name__ == "__main__":
    main()

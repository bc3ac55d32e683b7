"""Compile time of regular expressions compared with outlines-core, pattern by pattern, in one run.

    python benchmarks/regex_compile.py

Both build an automaton over the 256 single bytes. outlines-core compiles `(?:R)\\x00`, without which it drops
valid strings (its matches are leftmost-first). Kernels and caches are warm; each time is the median of several
runs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import count

from rich.console import Console
from rich.table import Table

from diffinity.constraints import sentences
from diffinity.constraints.regex import compile_regex

STRING = r'"[^"\\\x00-\x1f]{0,20}"'
NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"


def json_object(fields: int) -> str:
    """A regex for a JSON object of string and number fields, as schema-to-regex converters write it."""
    members = [f'"field_{i}": ?{STRING if i % 2 else NUMBER}' for i in range(fields)]
    return r"\{" + ", ?".join(members) + r"\}"


PATTERNS = {
    "paper: infix": "[A-Za-z]+ to [A-Za-z .,]*",
    "paper: sentence": r"[A-Z][a-z ,]+ river[a-z ,]*\.",
    "paper: date": r"On (Monday|Tuesday|Friday), [A-Z][a-z]+ [0-9]{1,2}, [0-9]{4}[A-Za-z ,.]*",
    "third word": sentences.word_at(3, "river").pattern(),
    "two words, three between": sentences.between("old", "river", 3).pattern(),
    "three words, any order": sentences.contains_words("old", "river", "bridge").pattern(),
    "number": r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?",
    "e-mail, Unicode": r"[\w.+-]+@[\w-]+(\.[\w-]+)+",
    "any text with a word": r"(?s).*\briver\b.*",
    "JSON, 1 kB": json_object(28),
    "JSON, 15 kB": json_object(410),
    "a thousand choices": "|".join(f"option-{i * 7919 % 100_003}" for i in range(1000)),
}


def median_ms(build: Callable[[], object], max_rounds: int = 9, seconds: float = 2.0) -> float:
    times: list[float] = []
    while len(times) < max_rounds and sum(times) < seconds:
        began = time.perf_counter()
        build()
        times.append(time.perf_counter() - began)
    return 1000 * statistics.median(times)


def outlines_compiler() -> Callable[[str], object] | None:
    try:
        from outlines_core import Index, Vocabulary  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        return None
    vocabulary = Vocabulary(256, {bytes([b]): [b] for b in range(256)})
    return lambda pattern: Index(f"(?:{pattern})\\x00", vocabulary)


def main() -> None:
    compile_regex(r"(?i)\w\b\d\s")  # kernels and tables
    outlines_compile, comment_numbers = outlines_compiler(), count()
    table = Table("pattern", "characters", "states", "classes", "diffinity ms", "outlines-core ms", "ratio")
    for name, pattern in PATTERNS.items():
        # A new comment each time: parsed patterns are cached, and the figure includes the parser's time.
        our_ms = median_ms(lambda pattern=pattern: compile_regex(f"{pattern}(?#{next(comment_numbers)})"))  # type: ignore[misc]
        dfa = compile_regex(pattern)
        row = [name, f"{len(pattern):,}", f"{dfa.n_states:,}", str(dfa.n_classes), f"{our_ms:.1f}"]
        if outlines_compile is None:
            row += ["not installed", ""]
        else:
            try:
                outlines_ms = median_ms(lambda pattern=pattern: outlines_compile(pattern))  # type: ignore[misc]
                row += [f"{outlines_ms:.1f}", f"{outlines_ms / our_ms:.2f}×"]
            except ValueError as error:
                row += [f"refused: {str(error)[:30]}", ""]
        table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

"""200 real JSON Schemas in diffinity, outlines-core and llguidance: coverage, soundness, time and memory.

Run `python benchmarks/json_schema.py [--samples 1000] [--schemas 200]`. The data is found through the environment
variable DIFFINITY_SHARED or in a folder `shared` beside the checkout. Times are processor seconds of one thread.
The other two systems run in a child process with a timeout of `--patience` seconds per schema.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from diffinity.constraints.schema import JsonSchema
from diffinity.constraints.schema.spelling import spell
from diffinity.errors import ConstraintError

SHARED = Path(os.environ.get("DIFFINITY_SHARED", Path(__file__).parents[1].parent / "shared"))
BENCH = SHARED / "data" / "jsonschemabench-200.jsonl"
Row = dict[str, Any]


@dataclass
class Tally:
    """The results of one system on all schemas."""

    seconds: list[float] = field(default_factory=list)
    compiled: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    false_accepts: int = 0
    valid: int = 0
    valid_accepted: int = 0
    samples: int = 0
    bad_samples: int = 0
    peak: int = 0


def ours(rows: list[Row], is_open: bool, samples: int) -> Tally:
    """Compile everything and check it with an independent validator."""
    tally = Tally()
    for row in rows:
        began = time.thread_time()
        try:
            constraint = JsonSchema(row["schema"], open=is_open)
            constraint.dfa()
        except ConstraintError as refusal:
            reason = getattr(refusal, "keyword", "") or getattr(refusal, "limit", "") or type(refusal).__name__
            tally.refusals[str(reason)] += 1
            continue
        finally:
            tally.seconds.append(time.thread_time() - began)
        tally.compiled += 1
        tally.peak = max(tally.peak, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        for test in row["tests"]:
            accepted = constraint.accepts(spell(test["data"]))
            tally.valid += test["valid"]
            tally.valid_accepted += test["valid"] and accepted
            tally.false_accepts += accepted and not test["valid"]
        check_samples(row, constraint, samples, tally)
    return tally


def check_samples(row: Row, constraint: JsonSchema, samples: int, tally: Tally) -> None:
    """Random accepted strings must validate, with formats asserted and without."""
    import jsonschema_rs

    if constraint.dfa().is_empty:
        return
    validators = [jsonschema_rs.validator_for(row["schema"], validate_formats=formats) for formats in (None, True)]
    rng = random.Random(row["name"])
    for _ in range(samples):
        value = json.loads(constraint.dfa().sample(rng, 300))
        tally.samples += 1
        tally.bad_samples += not all(validator.is_valid(value) for validator in validators)


# ---- the other systems, in a child process


def outlines_core_compile(schema: Any) -> Callable[[str], bool]:
    """From schema to regex to an index over single bytes (its own vocabulary type needs tokens)."""
    import outlines_core
    from outlines_core import json_schema

    pattern = json_schema.build_regex_from_schema(json.dumps(schema))
    vocabulary = outlines_core.Vocabulary(256, {bytes([b]): [b] for b in range(256)})
    index = outlines_core.Index(pattern, vocabulary)

    def accepts(text: str) -> bool:
        state: int | None = index.get_initial_state()
        for byte in text.encode():
            state = None if state is None else index.get_next_state(state, byte)
        return state is not None and index.is_final_state(state)

    return accepts


def llguidance_compile(schema: Any) -> Callable[[str], bool]:
    """Schema to a grammar and a matcher over single bytes."""
    import llguidance

    tokens = [bytes([b]) for b in range(256)] + [b"<|end|>"]
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes(tokens)))
    grammar = llguidance.LLMatcher.grammar_from_json_schema(
        schema, {"key_separator": ": ", "item_separator": ", "}
    )
    problem = llguidance.LLMatcher.validate_grammar(grammar, tokenizer)
    if problem:
        raise ValueError(problem)
    matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
    if matcher.is_error():
        raise ValueError(matcher.get_error())

    def accepts(text: str) -> bool:
        copy = matcher.deep_copy()
        return copy.consume_tokens(list(text.encode())) and copy.is_accepting()

    return accepts


class _Bytes:
    """The tokenizer interface of llguidance, with one token per byte."""

    def __init__(self, tokens: list[bytes]) -> None:
        self.eos_token_id = len(tokens) - 1
        self.bos_token_id = None
        self.tokens = tokens
        self.special_token_ids = [len(tokens) - 1]

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


SYSTEMS = {"outlines-core": outlines_core_compile, "llguidance": llguidance_compile}


def serve(name: str, pipe: Connection) -> None:
    """Compile the schemas from the pipe; answer with time, reason of refusal and accepted instances."""
    while True:
        row = pipe.recv()
        began = time.thread_time()
        try:
            accepts = SYSTEMS[name](row["schema"])
            seconds = time.thread_time() - began
            accepted = [accepts(spell(test["data"])) for test in row["tests"]]
            pipe.send((seconds, None, accepted))
        except BaseException as refusal:
            reason = f"{type(refusal).__name__}: {refusal}".splitlines()[0][:40]
            pipe.send((time.thread_time() - began, reason, []))


def theirs(name: str, rows: list[Row], patience: float) -> Tally:
    """The same schemas in another system, with a timeout for each."""
    tally = Tally()
    context = multiprocessing.get_context("spawn")
    process, pipe = None, None
    for row in rows:
        if process is None or pipe is None:
            pipe, child = context.Pipe()
            process = context.Process(target=serve, args=(name, child), daemon=True)
            process.start()
        pipe.send(row)
        try:
            answer = pipe.recv() if pipe.poll(patience + (10 if not tally.seconds else 0)) else None
        except EOFError:
            answer = None
        if answer is None:
            process.kill()
            process.join()
            process = None
            tally.refusals[f"no answer in {patience:g} s"] += 1
            tally.seconds.append(patience)
            continue
        seconds, reason, accepted = answer
        tally.seconds.append(seconds)
        if reason is not None:
            tally.refusals["refused"] += 1
            continue
        tally.compiled += 1
        for test, is_accepted in zip(row["tests"], accepted, strict=True):
            tally.valid += test["valid"]
            tally.valid_accepted += test["valid"] and is_accepted
            tally.false_accepts += is_accepted and not test["valid"]
    if process is not None:
        process.kill()
    return tally


def shown(tallies: dict[str, Tally]) -> Table:
    """The figures side by side."""
    table = Table("", *tallies, title="JSONSchemaBench, 200 schemas")

    def row(name: str, figure: Callable[[Tally], str]) -> None:
        table.add_row(name, *(figure(tally) for tally in tallies.values()))

    row("compiled", lambda t: f"{t.compiled} of {len(t.seconds)} ({t.compiled / len(t.seconds):.1%})")
    row("refused", lambda t: "\n".join(f"{reason}: {n}" for reason, n in t.refusals.most_common()) or "–")
    row("invalid instances accepted", lambda t: str(t.false_accepts))
    row(
        "valid instances accepted",
        lambda t: f"{t.valid_accepted} of {t.valid} ({t.valid_accepted / max(1, t.valid):.1%})",
    )
    row("samples that validate", lambda t: f"{t.samples - t.bad_samples:,} of {t.samples:,}" if t.samples else "–")
    row("compile time, median", lambda t: f"{statistics.median(t.seconds) * 1000:.1f} ms")
    row("compile time, 95th percentile", lambda t: f"{sorted(t.seconds)[int(0.95 * len(t.seconds))]:.2f} s")
    row("compile time, longest", lambda t: f"{max(t.seconds):.2f} s")
    row("peak memory", lambda t: f"{t.peak / 2**20:.0f} MB" if t.peak else "–")
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1000, help="random strings per compiled schema")
    parser.add_argument("--schemas", type=int, default=200, help="number of schemas")
    parser.add_argument(
        "--patience", type=float, default=10.0, help="timeout of the other systems per schema, in seconds"
    )
    arguments = parser.parse_args()
    if not BENCH.is_file():
        print(f"{BENCH.name} is not here; set DIFFINITY_SHARED")
        return
    rows = [json.loads(line) for line in BENCH.read_text().splitlines()][: arguments.schemas]
    JsonSchema({"type": "object", "properties": {"a": {"pattern": "a"}}}).dfa()  # load the kernels once
    tallies = {
        "diffinity": ours(rows, False, arguments.samples),
        "diffinity, open=True": ours(rows, True, min(arguments.samples, 100)),
    }
    for name in SYSTEMS:
        tallies[name] = theirs(name, rows, arguments.patience)
    Console(width=130).print(shown(tallies))


if __name__ == "__main__":
    main()

"""How much of a schema's language is accepted: valid instances of 200 real schemas, as written and shuffled.

Run `python -m benchmarks.schema_completeness [--half held-out] [--order any] [--closed] [--missed]`. The schemas
are split by a hash of their names: the tuning half is for development, and reported figures come from the held-out
half. "Shuffled" writes each valid instance three times with the properties of every object in random order. Data
as in `benchmarks.json_schema`; times are processor seconds of one thread.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from benchmarks.json_schema import BENCH, Row
from diffinity.constraints.schema import JsonSchema
from diffinity.constraints.schema.spelling import spell
from diffinity.errors import ConstraintError
from diffinity.limits import Limits

SHUFFLES = 3
HALVES = ("tuning", "held-out")


@dataclass
class Completeness:
    """Counts of the accepted instances of some schemas."""

    schemas: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    states: list[int] = field(default_factory=list)
    valid: int = 0
    accepted: int = 0
    shuffled: int = 0
    shuffled_accepted: int = 0
    false_accepts: int = 0
    ordered: int = 0
    out_of_reach: int = 0  # refused shuffled texts that no automaton within the limits can accept
    missed: list[str] = field(default_factory=list)


def half_of(name: str) -> str:
    """The half that a schema belongs to.

    >>> half_of("a"), half_of("b")
    ('tuning', 'tuning')
    """
    return HALVES[hashlib.sha256(name.encode()).digest()[0] & 1]


def shuffled(value: Any, rng: random.Random) -> Any:
    """The same value with the properties of every object in random order.

    >>> shuffled({"a": 1, "b": 2}, random.Random(1))
    {'b': 2, 'a': 1}
    """
    if isinstance(value, list):
        return [shuffled(inner, rng) for inner in value]
    if not isinstance(value, dict):
        return value
    names = list(value)
    rng.shuffle(names)
    return {name: shuffled(value[name], rng) for name in names}


def widest(value: Any) -> int:
    """The largest number of properties of an object inside a value.

    >>> widest([{"a": {"b": 1, "c": 2, "d": 3}}])
    3
    """
    if isinstance(value, list):
        return max(map(widest, value), default=0)
    return max(len(value), *map(widest, value.values())) if isinstance(value, dict) and value else 0


def min_states(value: Any) -> int:
    """A lower bound on the states of an automaton that accepts all orders of the properties of a value.

    After two different sets of n/2 of the n names of an object, different names may follow, so the states differ.

    >>> min_states({"a": 1, "b": 2, "c": 3, "d": 4})
    6
    """
    names = widest(value)
    return math.comb(names, names // 2)


def measure(rows: list[Row], **options: Any) -> Completeness:
    """Compile each schema with these options and check all its instances."""
    result = Completeness(schemas=len(rows))
    for row in rows:
        began = time.thread_time()
        try:
            constraint = JsonSchema(row["schema"], **options)
            constraint.dfa()
        except ConstraintError as refusal:
            reason = getattr(refusal, "keyword", "") or getattr(refusal, "limit", "") or type(refusal).__name__
            result.refusals[str(reason)] += 1
            result.missed.append(f"{row['name']}: {refusal}")
            continue
        finally:
            result.seconds.append(time.thread_time() - began)
        result.states.append(constraint.dfa().n_states)
        result.ordered += bool(constraint.ordered_places)
        _try_instances(row, constraint, result)
    return result


def _try_instances(row: Row, constraint: JsonSchema, result: Completeness) -> None:
    rng = random.Random(row["name"])
    for test in row["tests"]:
        accepted = constraint.accepts(spell(test["data"]))
        if not test["valid"]:
            result.false_accepts += accepted
            continue
        shuffled_accepted = [constraint.accepts(spell(shuffled(test["data"], rng))) for _ in range(SHUFFLES)]
        result.valid += 1
        result.accepted += accepted
        result.shuffled += SHUFFLES
        result.shuffled_accepted += sum(shuffled_accepted)
        is_out_of_reach = min_states(test["data"]) > Limits().dfa_states
        result.out_of_reach += (SHUFFLES - sum(shuffled_accepted)) * is_out_of_reach
        if not accepted or not all(shuffled_accepted):
            order = f"{len(constraint.ordered_places)} places keep an order"
            shuffles = f"shuffled {sum(shuffled_accepted)} of {SHUFFLES}"
            bound = f"at least {min_states(test['data']):,} for all orders"
            report = f"as written {'yes' if accepted else 'NO'}, {shuffles}, {order}"
            report += f", {constraint.dfa().n_states:,} states, {bound}"
            result.missed.append(f"{row['name']}: {report}")


def shown(result: Completeness) -> str:
    """The figures as lines of text."""
    valid, mixed = max(1, result.valid), max(1, result.shuffled)
    compiled = len(result.states)
    refused = ", ".join(f"{reason} {count}" for reason, count in result.refusals.most_common()) or "none"
    return "\n".join(
        [
            f"compiled {compiled} of {result.schemas} (refused: {refused})",
            f"valid instances accepted as written {result.accepted} of {valid} ({result.accepted / valid:.1%})",
            f"shuffled {result.shuffled_accepted} of {mixed} ({result.shuffled_accepted / mixed:.1%})",
            f"of the shuffled texts that are refused, out of reach of {Limits().dfa_states:,} states:"
            f" {result.out_of_reach} of {mixed - result.shuffled_accepted}",
            f"invalid instances accepted {result.false_accepts}",
            f"schemas in which some object keeps an order {result.ordered}",
            f"compile time median {statistics.median(result.seconds) * 1000:.0f} ms,"
            f" 95th percentile {sorted(result.seconds)[int(0.95 * len(result.seconds))]:.2f} s,"
            f" sum {sum(result.seconds):.0f} s",
            f"states median {statistics.median(result.states):,.0f}, most {max(result.states):,}",
        ]
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--half", choices=[*HALVES, "both"], default="held-out", help="half of the schemas to measure"
    )
    parser.add_argument("--order", choices=["declared", "any"], default="any", help="order of properties")
    parser.add_argument("--closed", action="store_true", help="without open=True")
    parser.add_argument("--missed", action="store_true", help="list the schemas that refuse a valid instance")
    arguments = parser.parse_args()
    if not BENCH.is_file():
        print(f"{BENCH.name} is not here; set DIFFINITY_SHARED")
        return
    rows = [json.loads(line) for line in BENCH.read_text().splitlines()]
    rows = [row for row in rows if arguments.half in ("both", half_of(row["name"]))]
    JsonSchema({"type": "object", "properties": {"a": {"pattern": "a"}}}).dfa()  # load the kernels once
    result = measure(rows, open=not arguments.closed, order=arguments.order)
    print(shown(result))
    if arguments.missed:
        print("\n".join(result.missed))


if __name__ == "__main__":
    main()

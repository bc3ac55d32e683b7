"""Token automata of chosen sizes over PLAID's 32,768 tokens, for the other benchmarks."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from diffinity.alignment import TokenAutomaton, Vocabulary, align
from diffinity.constraints import Regex
from diffinity.constraints.schema import JsonSchema
from diffinity.errors import DiffinityError
from diffinity.limits import DEFAULT_LIMITS, Limits

TEMPLATES = {
    "word between": "[A-Za-z]+ to [A-Za-z .,]*",
    "fourth word": r"([A-Za-z]+ ){3}the( [A-Za-z]+)*\.",
    "word from the end": r"([A-Za-z]+,? )*news( [A-Za-z]+){2}\.",
    "two words": r"([A-Za-z]+ )*of( [A-Za-z]+)* and( [A-Za-z]+)*\.",
    "two words, two between": r"([A-Za-z]+ )*the( [A-Za-z]+){2} is( [A-Za-z]+)*\.",
    "a word of seven letters": r"([A-Za-z]+ )*[A-Za-z]{7}( [A-Za-z]+)*\.",
}


@dataclass(frozen=True)
class Sized:
    name: str
    automaton: TokenAutomaton


def shared() -> Path:
    """The folder of reference data; exits with a message if it is not set."""
    variable = os.environ.get("DIFFINITY_SHARED")
    folder = Path(variable) if variable else Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        sys.exit("this benchmark needs the reference data: set DIFFINITY_SHARED to its folder")
    return folder


def plaid_vocabulary() -> Vocabulary:
    return Vocabulary.from_tokenizer(shared() / "fixtures" / "plaid" / "owt2_tokenizer.json")


def schemas() -> list[tuple[str, object]]:
    """The real schemas of JSONSchemaBench with their names."""
    lines = (shared() / "data" / "jsonschemabench-200.jsonl").read_text().splitlines()
    return [(row["name"], row["schema"]) for row in map(json.loads, lines)]


def compiled_schemas(limits: Limits = DEFAULT_LIMITS) -> list[tuple[str, JsonSchema]]:
    """The schemas that compile within the limits."""
    constraints = []
    for name, schema in schemas():
        constraint = JsonSchema(schema)  # type: ignore[arg-type]
        try:
            constraint.dfa(limits)
        except DiffinityError:
            continue
        constraints.append((name, constraint))
    return constraints


def of_sizes(sizes: list[float], vocabulary: Vocabulary, length: int) -> list[Sized]:
    """For each number of transitions the closest schema (or template) that fits the length."""
    template = align(Regex(TEMPLATES["word between"]), vocabulary, "exact")
    candidates = [Sized("regex: word between", template)]
    for name, constraint in compiled_schemas():
        try:
            automaton = align(constraint, vocabulary, "eos")
        except DiffinityError:
            continue
        if automaton.feasible(length):
            candidates.append(Sized(f"schema {name}", automaton))
    closest = []
    for size in sizes:
        best = min(candidates, key=lambda sized: abs(sized.automaton.n_transitions / size - 1))
        if best not in closest:
            closest.append(best)
    return closest

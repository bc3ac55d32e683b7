"""500 random constraints, one text each: does every text satisfy its constraint, by independent validators?

    python -m benchmarks.always_satisfied [--n 500] [--steps 32] [--model FOLDER] [--seed 0]

Regexes are drawn from templates and at random (judged by `re`), schemas from JSONSchemaBench if they fit the
length and from a generator (judged by `jsonschema-rs` and by parsing), and combinations of them with and, or and
not (judged by the same validators). It reports satisfaction with exact decoding and, per method, with the plain
argmax of the same run.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.progress import track

import diffinity as dy
from benchmarks.automata import compiled_schemas
from diffinity.constraints.base import Constraint
from diffinity.errors import DiffinityError
from diffinity.guidance.presets import GuidanceName

WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "on",
    "that",
    "by",
    "this",
    "with",
    "you",
    "it",
    "not",
    "are",
    "from",
    "all",
]
ATOMS = [
    "[a-z]",
    "[A-Z][a-z]+",
    "[0-9]{2,4}",
    " ",
    r"\w+",
    "(?:yes|no|perhaps)",
    "[^x]",
    "a+b?",
    r"\.",
    "(?i:the)",
]
LENGTH = 64


@dataclass(frozen=True)
class Judged:
    """A constraint and its independent validator."""

    family: str
    constraint: Constraint
    judge: Callable[[str], bool]


def regex(pattern: str, family: str) -> Judged:
    compiled = re.compile(pattern)
    return Judged(family, dy.Regex(pattern), lambda text: compiled.fullmatch(text) is not None)


def random_regex(rng: random.Random) -> Judged:
    parts = [
        f"(?:{rng.choice(ATOMS)})" + rng.choice(["", "", "", "?", "{1,3}", "*"]) for _ in range(rng.randint(2, 7))
    ]
    return regex("".join(parts), "random regex")


def sentence(rng: random.Random) -> Judged:
    first, second = rng.sample(WORDS, 2)
    n = rng.randint(1, 3)
    templates: list[Callable[[], Constraint]] = [
        lambda: dy.sentences.word_at(n + 1, first),
        lambda: dy.sentences.word_from_end(n, first),
        lambda: dy.sentences.between(first, second, n - 1),
        lambda: dy.sentences.contains_words(first, second),
        lambda: dy.sentences.has_word_of_length(3 * n),
    ]
    constraint = rng.choice(templates)()
    return regex(constraint.pattern(), "sentence")


def valid(schema: Any) -> Callable[[str], bool]:
    import jsonschema_rs

    validator = jsonschema_rs.validator_for(schema)

    def judge(text: str) -> bool:
        try:
            return bool(validator.is_valid(json.loads(text)))
        except json.JSONDecodeError:
            return False

    return judge


def random_schema(rng: random.Random, depth: int = 2) -> dict[str, object]:
    kind = rng.choice(["string", "integer", "boolean", "enum", "object", "array"][: 6 if depth else 4])
    if kind == "string":
        return {"type": "string", "minLength": rng.randint(0, 2), "maxLength": rng.randint(3, 12)}
    if kind == "integer":
        low = rng.randint(-50, 50)
        return {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 500)}
    if kind == "boolean":
        return {"type": "boolean"}
    if kind == "enum":
        return {"enum": rng.sample(["red", "green", 1, 2.5, None, True], 3)}
    if kind == "array":
        return {"type": "array", "items": random_schema(rng, 0), "minItems": rng.randint(0, 2), "maxItems": 3}
    names = rng.sample(["id", "name", "tags", "size", "ok", "at"], rng.randint(1, 3))
    return {
        "type": "object",
        "properties": {name: random_schema(rng, depth - 1) for name in names},
        "required": names[: rng.randint(0, len(names))],
        "additionalProperties": False,
    }


def generated_schema(rng: random.Random) -> Judged:
    schema = random_schema(rng)
    return Judged("random schema", dy.JsonSchema(schema), valid(schema))


def combined(rng: random.Random) -> Judged:
    first, second = (rng.choice([sentence, random_regex])(rng) for _ in range(2))
    kind = rng.choice(["and not", "or", "and"])
    if kind == "or":
        return Judged("algebra", first.constraint | second.constraint, lambda t: first.judge(t) or second.judge(t))
    if kind == "and":
        pair = sentence(rng), sentence(rng)
        return Judged(
            "algebra", pair[0].constraint & pair[1].constraint, lambda t: pair[0].judge(t) and pair[1].judge(t)
        )
    return Judged(
        "algebra", first.constraint & ~second.constraint, lambda t: first.judge(t) and not second.judge(t)
    )


def constraints(n: int, seed: int) -> list[Judged]:
    """n constraints: at most n/5 real schemas, then the other families in rotation."""
    rng = random.Random(seed)
    real = [Judged("real schema", constraint, valid(constraint.schema)) for _, constraint in compiled_schemas()]
    rng.shuffle(real)
    constraints = real[: n // 5]
    makers = [random_regex, sentence, generated_schema, combined]
    constraints += [makers[i % len(makers)](rng) for i in range(n - len(constraints))]
    return constraints


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model")
    parser.add_argument("--methods", nargs="+", default=["auto", "path", "posterior", "gradient", "paper", "none"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = dy.load(arguments.model)
    console = Console()
    cases = constraints(arguments.n, arguments.seed)
    tried: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    exact: Counter[str] = Counter()
    argmax: dict[str, Counter[str]] = {method: Counter() for method in arguments.methods}
    for index, judged in enumerate(track(cases, "constraints", console=console)):
        try:
            text = write(model, judged, "auto", "best", index, arguments.steps)
        except DiffinityError as error:  # no text fits 64 tokens: refused before the first step
            refused[type(error).__name__] += 1
            continue
        tried[judged.family] += 1
        exact[judged.family] += judged.judge(text)
        if not judged.judge(text):
            console.print(f"NOT SATISFIED: {judged.constraint!r}: {text!r}", highlight=False)
        for method in arguments.methods:
            argmax[method][judged.family] += judged.judge(
                write(model, judged, method, "argmax", index, arguments.steps)
            )
    console.print(f"{sum(tried.values())} constraints tried: {dict(tried)}; refused beforehand: {dict(refused)}")
    total = sum(tried.values())
    console.print(f"exact decoding: {sum(exact.values())} of {total} satisfied")
    for method in arguments.methods:
        by_family = ", ".join(f"{family} {argmax[method][family] / n:.0%}" for family, n in tried.items())
        console.print(
            f"{method} by argmax: {sum(argmax[method].values()) / total:.1%} ({by_family})",
            highlight=False,
        )


def write(model: dy.DiffusionLM, judged: Judged, method: GuidanceName, decode: str, seed: int, steps: int) -> str:
    (sample,) = dy.generate(
        model,
        judged.constraint,
        length=LENGTH,
        num_inference_steps=steps,
        seed=seed,
        guidance=method,
        decode=decode,
    )
    return sample.text


if __name__ == "__main__":
    main()

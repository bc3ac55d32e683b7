"""Comparison of guidance methods on the embedded model: satisfaction by argmax, perplexity and time.

    python -m benchmarks.guidance_methods [--samples 8] [--steps 128] [--only REGEX]

Perplexity is that of exactly decoded texts under the embedded autoregressive model; time is divided by that of
unguided runs in the same round. There are fourteen constraints, from easy to very unlikely in the corpus.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import diffinity as dy
from diffinity.acceptance import decode
from diffinity.alignment import TokenAutomaton, align
from diffinity.guidance import (
    GradientGuidance,
    Guidance,
    MixedGuidance,
    PathGuidance,
    PosteriorGuidance,
)
from diffinity.models.loading import EMBEDDED
from diffinity.models.protocol import vocabulary_of
from diffinity.models.transformer import AutoregressiveLM
from diffinity.sampling import texts
from diffinity.training.quality import distinct_2, perplexity

Automata = Sequence[TokenAutomaton]
Maker = Callable[[Automata], Guidance | None]

CONSTRAINTS: list[dy.Constraint] = [
    dy.sentences.contains_words("garden"),
    dy.sentences.contains_words("old", "new"),
    dy.sentences.word_at(3, "time"),
    dy.sentences.word_at(1, "We"),
    dy.sentences.word_from_end(1, "home"),
    dy.sentences.word_from_end(3, "for"),
    dy.sentences.between("the", "was", 2),
    dy.sentences.between("not", "but"),
    dy.sentences.has_word_of_length(9),
    dy.Regex(r"[A-Z][a-z ,']{10,60}\?"),
    dy.Regex(r"The [a-z]+ [a-z]+ the [a-z]+ (?:on|in) [A-Z][a-z]+\."),
    dy.JsonSchema(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 20},
                "age": {"type": "integer", "maximum": 120},
            },
            "required": ["name", "age"],
        }
    ),
    dy.JsonSchema(
        {
            "type": "object",
            "properties": {
                "status": {"enum": ["ok", "error"]},
                "items": {
                    "type": "array",
                    "items": {"type": "string", "maxLength": 12},
                    "minItems": 1,
                    "maxItems": 3,
                },
                "total": {"type": "number", "minimum": 0},
            },
            "required": ["status", "items", "total"],
        }
    ),
    dy.Regex(r"[a-z]+=[a-z0-9]+(?: [a-z]+=[a-z0-9]+){1,3}"),
]


def every_other(first: Guidance, second: Guidance) -> Guidance:
    class Alternating:
        def predict(self, model, step):  # type: ignore[no-untyped-def]
            return (first if step.index % 2 == 0 else second).predict(model, step)

    return Alternating()


def methods() -> dict[str, Maker]:
    """The methods, by name."""
    makers: dict[str, Maker] = {"none": lambda _: None}
    for scale in (1.0, 2.5):
        makers[f"paper {scale}"] = lambda a, s=scale: GradientGuidance(a, s, guided_selfcond=False)  # type: ignore[misc]
        makers[f"gradient {scale}"] = lambda a, s=scale: GradientGuidance(a, s)  # type: ignore[misc]
        makers[f"posterior {scale}"] = lambda a, s=scale: PosteriorGuidance(a, s)  # type: ignore[misc]
        makers[f"path {scale}"] = lambda a, s=scale: PathGuidance(a, s)  # type: ignore[misc]
    for until in (0.15, 0.3, 0.5):
        makers[f"gradient {until:.0%}, then path"] = lambda a, u=until: MixedGuidance(  # type: ignore[misc]
            GradientGuidance(a, 2.5), PathGuidance(a, 2.5), u
        )
    makers["gradient of path 50%, then path"] = lambda a: MixedGuidance(
        PathGuidance(a, 2.5, jacobian=True), PathGuidance(a, 2.5), 0.5
    )
    makers["gradient every other step 60%, then path"] = lambda a: MixedGuidance(
        every_other(GradientGuidance(a, 2.5), PathGuidance(a, 2.5)), PathGuidance(a, 2.5), 0.6
    )
    makers["posterior 50%, then path"] = lambda a: MixedGuidance(
        PosteriorGuidance(a, 2.5), PathGuidance(a, 2.5), 0.5
    )
    makers["path drawn 50%, then path"] = lambda a: MixedGuidance(
        PathGuidance(a, 2.5, draw=1), PathGuidance(a, 2.5), 0.5
    )
    makers["path, scale 1 to 4"] = lambda a: PathGuidance(a, lambda share_done: 1.0 + 3.0 * share_done)
    makers["path, scale 4 to 1"] = lambda a: PathGuidance(a, lambda share_done: 4.0 - 3.0 * share_done)
    return makers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--score-temp", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=".*", help="methods whose name has a match")
    parser.add_argument("--model")
    parser.add_argument("--judge", type=Path, default=EMBEDDED.parent / "autoregressive")
    parser.add_argument("--show", action="store_true", help="print the texts")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model, judge = dy.load(arguments.model), AutoregressiveLM.from_pretrained(arguments.judge)
    vocabulary = vocabulary_of(model)
    automata = [align(constraint, vocabulary) for constraint in CONSTRAINTS]
    console = Console()
    table = Table("method", "satisfied (argmax)", "perplexity (exact)", "distinct-2", "time, unguided = 1")
    unguided = 1.0
    for name, make in methods().items():
        if not re.search(arguments.only, name) and name != "none":
            continue
        satisfied, generated, seconds = 0, [], 0.0
        for index, automaton in enumerate(automata):
            batch = [automaton] * arguments.samples
            started = time.perf_counter()
            samples = dy.sample(
                model,
                arguments.samples,
                arguments.length,
                num_inference_steps=arguments.steps,
                score_temp=arguments.score_temp,
                seed=arguments.seed + index,
                guidance=make(batch),
            )
            seconds += time.perf_counter() - started
            satisfied += sum(automaton.accepts(ids) for ids in samples.tokens.tolist())
            exact = samples.tokens if name == "none" else decode(samples.logits, batch, logits=True).tokens
            generated += texts(model, exact)
            if arguments.show:
                console.print(
                    name, CONSTRAINTS[index], *generated[-arguments.samples :], sep="\n  ", highlight=False
                )
        unguided = seconds if name == "none" else unguided
        row = (
            name,
            f"{satisfied / (len(automata) * arguments.samples):.1%}",
            f"{perplexity(judge, generated):.1f}",
            f"{distinct_2(generated):.2f}",
            f"{seconds / unguided:.2f}",
        )
        table.add_row(*row)
        console.print(*row, sep=" | ", highlight=False)
    console.print(table)


if __name__ == "__main__":
    main()

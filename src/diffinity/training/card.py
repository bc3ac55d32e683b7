"""The cards of the embedded models: what was measured, the data with its licences, every sample and output."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diffinity.bench.grammar import GrammarCounts
from diffinity.models.plaid_lm import PlaidLM
from diffinity.models.pretrained import PretrainedLM
from diffinity.models.protocol import SamplingDefaults
from diffinity.training.corpus.public.readers import SOURCES
from diffinity.training.quality import Quality
from diffinity.training.showcase import OUTPUTS, Task

FOLDERS = {"plaid": "default", "autoregressive": "autoregressive", "masked": "masked"}
HEADER = """---
library_name: diffinity
license: apache-2.0
tags:
- diffusion-language-model
- constrained-generation
---

"""
REPRODUCE = """## Reproduce

`diffinity corpus build` makes the corpus file from the sources; `make embedded CORPUS=corpus.jsonl` trains the
three models (many hours on one core; it resumes where it was stopped) and writes this folder. The recipe is in
docs/training.md.
"""


@dataclass(frozen=True)
class Measured:
    """The measurements on the card of the diffusion model."""

    quality: Quality
    samples: Sequence[str]  # unconstrained, not selected
    seconds: float  # for one text of `length` tokens in 128 steps, batch 1
    length: int
    lengths: Sequence[int]  # of the samples, equally often
    held_out: int
    training_documents: int
    free: GrammarCounts  # sentences of the unconstrained samples
    constrained: GrammarCounts  # sentences under the constraints of the benchmark's sentence suite
    real: GrammarCounts  # held-out sentences
    begun_json: Mapping[int, tuple[int, int]]  # by steps: texts that parse, of those that must begin with a brace
    choices: Mapping[str, int]  # the number of texts with each choice
    showcase: Sequence[tuple[Task, Sequence[str]]]


def last_row(run: Path) -> dict[str, Any]:
    """The last line of a run's metrics with a validation in it."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    row: dict[str, Any] = [row for row in rows if "validation" in row][-1]
    return row


def training_table(runs: Path) -> str:
    lines = ["| model | steps | tokens | hours | held out, nats per token |", "|---|---|---|---|---|"]
    for name in FOLDERS:
        if (runs / name / "metrics.jsonl").is_file():
            row = last_row(runs / name)
            losses = ", ".join(f"{key} {value:.2f}" for key, value in row["validation"].items())
            hours = row["seconds"] / 3600
            lines.append(f"| {name} | {row['step']:,} | {row['tokens'] / 1e6:.1f} M | {hours:.1f} | {losses} |")
    return "\n".join(lines)


def quality_table(measured: Measured) -> str:
    """The measures of free samples, of samples under constraints, and of real text.

    Perplexity is left out if there was no autoregressive model to measure it.
    """
    quality = measured.quality
    parsed = (
        "none to parse" if quality.json_parsed is None else f"{quality.json_parsed:.0%} of {quality.json_like}"
    )
    judged = (measured.free, measured.constrained, measured.real)
    rows = [
        ("clean sentences, by the grammar judge", *(_share(counts.clean_share) for counts in judged)),
        ("fully parsed", *(_share(counts.parsed_share) for counts in judged)),
        ("non-words", *(_percent(counts.non_word_share) for counts in judged)),
        ("sentences judged", *(str(counts.sentences) for counts in judged)),
        ("distinct-2", f"{quality.distinct_2:.2f}", "", f"{quality.held_out_distinct_2:.2f}"),
        (
            f"sentences that stand in {measured.training_documents:,} training documents, but for names",
            f"{quality.known_sentences:.0%}",
            "",
            "",
        ),
        ("of those that begin with a brace, parse as JSON", parsed, "", ""),
    ]
    if not math.isnan(quality.perplexity):
        rows.append(
            (
                "perplexity under the embedded autoregressive model",
                f"{quality.perplexity:.1f}",
                "",
                f"{quality.held_out_perplexity:.1f}",
            )
        )
    head = ["| measure | free samples | under sentence constraints | held-out text |", "|---|---|---|---|"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


def _parsed(counts: Mapping[int, tuple[int, int]]) -> str:
    return " and ".join(f"{parsed} of {texts} in {steps} steps" for steps, (parsed, texts) in counts.items())


def _share(value: float) -> str:
    return "not measured" if math.isnan(value) else f"{value:.2f}"


def _percent(value: float) -> str:
    return "not measured" if math.isnan(value) else f"{value:.1%}"


def parameters(model: PretrainedLM) -> int:
    return sum(tensor.numel() for tensor in model.tensors().values())


def data_section() -> str:
    """The sources of the training text, with licence and attribution."""
    rows = "\n".join(f"| {source.attribution} | {source.form} | {source.licence} |" for source in SOURCES.values())
    return f"""## Data

| source | what | licence |
|---|---|---|
{rows}
| diffinity's own generators | JSON, CSV, logs, SQL, calls, lists, recipes | Apache-2.0 |

Documents were cut to a few sentences or turns; repetitions, rare words, offensive and private content were left
out and stock names varied (`training/corpus/public/`). 1% of the public documents, chosen by a hash, are held out.
"""


def showcase_section(showcase: Sequence[tuple[Task, Sequence[str]]]) -> str:
    parts = [f"## Everyday tasks, {OUTPUTS} outputs each, unpicked"]
    for task, texts in showcase:
        parts.append(f"**{task.title}**\n\n" + "\n".join(f"- `{_code(text)}`" for text in texts))
    return "\n\n".join(parts) + "\n"


def diffusion_card(model: PlaidLM, runs: Path, measured: Measured, note: str = "") -> str:
    defaults = model.sampling_defaults
    listed = "\n".join(f"{number}. `{_code(text)}`" for number, text in enumerate(measured.samples, start=1))
    return (
        HEADER
        + f"""# diffinity's embedded model: a small PLAID for plain English and JSON

{parameters(model) / 1e6:.1f} M parameters, {model.embedding.shape[0]:,} tokens (byte-level BPE), texts of up to 96
tokens. `dy.load()` gives it. It is for trying things out, for tests and for benchmarks on a laptop; it knows plain
English and nothing about the world. For real work use one of the models of docs/models.md.

## What was measured

{len(measured.samples)} samples without a constraint, as many with room for {", ".join(map(str, measured.lengths))}
tokens each, {defaults.num_inference_steps} steps, best of {defaults.best_of_free or defaults.best_of} drafts
(under a constraint {defaults.best_of}){_chosen_by(defaults)},
score_temp {defaults.score_temp}, seed 0, none left out;
{measured.held_out} held-out documents. A sentence is clean if link-grammar parses all of it, hunspell knows every
word and no word stands twice in a row.

{quality_table(measured)}

Texts of which only the first character is given, a brace: {_parsed(measured.begun_json)} parse as JSON.
`Choice([{", ".join(f'"{name}"' for name in measured.choices)}])`, {sum(measured.choices.values())} texts with
`decode="sample"`: {", ".join(f"{name} {count}" for name, count in measured.choices.items())}.

One draft of {measured.length} tokens in 128 steps took {measured.seconds:.1f} s on one core of the machine that
made this card.

## Training

{training_table(runs)}

![losses](losses.png)

{note and note + chr(10)}
{data_section()}
{REPRODUCE}
## Limits

Small and trained for hours, not weeks: sentences are mostly right in form and often odd in sense, longer texts
lose their thread, JSON beyond a few keys may not close (under a constraint it always does). English only.

{showcase_section(measured.showcase)}
## All {len(measured.samples)} free samples, unpicked

{listed}
"""
    )


def transformer_card(name: str, model: PretrainedLM, runs: Path, note: str = "") -> str:
    use = {
        "autoregressive": "the reference for perplexity, and the model of autoregressive constrained decoding",
        "masked": "the model of masked diffusion",
    }[name]
    return (
        HEADER
        + f"""# diffinity's embedded {name} model

{parameters(model) / 1e6:.1f} M parameters, the tokenizer and the corpus of the embedded diffusion model:
{use} in the benchmarks. Read it with `dy.load("embedded-{name}")`.

## Training

{training_table(runs)}
{f"{chr(10)}{note}{chr(10)}" if note else ""}
{data_section()}
{REPRODUCE}"""
    )


def _chosen_by(defaults: SamplingDefaults) -> str:
    return f", chosen by `{defaults.draft_scorer}`" if defaults.draft_scorer else ""


def _code(text: str) -> str:
    return text.replace("`", "'").replace("\n", "⏎") or " "

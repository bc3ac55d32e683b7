"""The cards of the embedded models: measurements, training data with licences, all samples and outputs."""

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

`diffinity corpus build` writes the corpus file from the sources. `make embedded CORPUS=corpus.jsonl` trains the
three models (many hours on one core; an interrupted run is resumed) and writes this folder. docs/training.md
describes the training.
"""


@dataclass(frozen=True)
class Measured:
    """The measurements on the card of the diffusion model."""

    quality: Quality
    samples: Sequence[str]  # unconstrained, not selected
    seconds: float  # for one text of `length` tokens in 128 steps, batch 1
    length: int
    lengths: Sequence[int]  # lengths of the samples in tokens, each for the same number of samples
    held_out: int  # number of held-out documents
    training_documents: int  # number of training documents that were searched for the samples' sentences
    free: GrammarCounts  # sentences of the unconstrained samples
    constrained: GrammarCounts  # sentences under the constraints of the benchmark's sentence suite
    real: GrammarCounts  # held-out sentences
    brace_json: Mapping[int, tuple[int, int]]  # by steps: texts that parse, and texts that must begin with a brace
    choices: Mapping[str, int]  # the number of texts with each choice
    showcase: Sequence[tuple[Task, Sequence[str]]]


def last_row(run: Path) -> dict[str, Any]:
    """The last line of a run's metrics that has validation losses."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    row: dict[str, Any] = [row for row in rows if "validation" in row][-1]
    return row


def training_table(runs: Path) -> str:
    lines = ["| model | steps | tokens | hours | held-out loss, nats per token |", "|---|---|---|---|---|"]
    for name in FOLDERS:
        if (runs / name / "metrics.jsonl").is_file():
            row = last_row(runs / name)
            losses = ", ".join(f"{key} {value:.2f}" for key, value in row["validation"].items())
            hours = row["seconds"] / 3600
            lines.append(f"| {name} | {row['step']:,} | {row['tokens'] / 1e6:.1f} M | {hours:.1f} | {losses} |")
    return "\n".join(lines)


def quality_table(measured: Measured) -> str:
    """The measures of unconstrained samples, of samples under constraints, and of held-out text.

    Perplexity is left out if no autoregressive model was available.
    """
    quality = measured.quality
    parsed = (
        "no such samples" if quality.json_parsed is None else f"{quality.json_parsed:.0%} of {quality.json_like}"
    )
    grammar_counts = (measured.free, measured.constrained, measured.real)
    rows = [
        ("clean sentences, by the grammar judge", *(_share(counts.clean_share) for counts in grammar_counts)),
        ("fully parsed", *(_share(counts.parsed_share) for counts in grammar_counts)),
        ("non-words", *(_percent(counts.non_word_share) for counts in grammar_counts)),
        ("sentences judged", *(str(counts.sentences) for counts in grammar_counts)),
        ("distinct-2", f"{quality.distinct_2:.2f}", "", f"{quality.held_out_distinct_2:.2f}"),
        (
            f"sentences that occur in {measured.training_documents:,} training documents, except for names",
            f"{quality.known_sentences:.0%}",
            "",
            "",
        ),
        ("samples that begin with a brace: share that parses as JSON", parsed, "", ""),
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
    header_lines = [
        "| measure | unconstrained samples | samples under sentence constraints | held-out text |",
        "|---|---|---|---|",
    ]
    return "\n".join([*header_lines, *(f"| {' | '.join(row)} |" for row in rows)])


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

| source | form | licence |
|---|---|---|
{rows}
| diffinity's own generators | JSON, CSV, logs, SQL, calls, lists, recipes | Apache-2.0 |

Documents were cut to a few sentences or turns. Duplicates and documents with rare words, offensive or private
content were left out, and stock names were varied (`training/corpus/public/`). 1% of the public documents, chosen
by a hash, are held out.
"""


def showcase_section(showcase: Sequence[tuple[Task, Sequence[str]]]) -> str:
    parts = [f"## Everyday tasks, {OUTPUTS} outputs each, not selected"]
    for task, texts in showcase:
        parts.append(f"**{task.title}**\n\n" + "\n".join(f"- `{_code(text)}`" for text in texts))
    return "\n\n".join(parts) + "\n"


def diffusion_card(model: PlaidLM, runs: Path, measured: Measured, note: str = "") -> str:
    defaults = model.sampling_defaults
    sample_list = "\n".join(f"{number}. `{_code(text)}`" for number, text in enumerate(measured.samples, start=1))
    return (
        HEADER
        + f"""# diffinity's embedded model: a small PLAID for plain English and JSON

{parameters(model) / 1e6:.1f} M parameters, {model.embedding.shape[0]:,} tokens (byte-level BPE), texts of up to 96
tokens. `dy.load()` loads it. It is meant for first experiments, tests and benchmarks on a laptop. It knows plain
English and nothing about the world. For real work, use one of the models in docs/models.md.

## Measurements

{len(measured.samples)} unconstrained samples were generated, the same number for each of the lengths
{", ".join(map(str, measured.lengths))} (tokens), with {defaults.num_inference_steps} steps,
score_temp {defaults.score_temp} and seed 0. Each text is the best of
{defaults.best_of_free or defaults.best_of} drafts
(under a constraint {defaults.best_of}){_draft_scorer_note(defaults)}.
No sample was left out. The held-out text is {measured.held_out} documents. A sentence is clean if link-grammar
parses all of it, hunspell knows every word and no word occurs twice in a row.

{quality_table(measured)}

Under a constraint that only requires a brace as the first character, {_parsed(measured.brace_json)} parse as JSON.
`Choice([{", ".join(f'"{name}"' for name in measured.choices)}])`, {sum(measured.choices.values())} texts with
`decode="sample"`: {", ".join(f"{name} {count}" for name, count in measured.choices.items())}.

One draft of {measured.length} tokens in 128 steps took {measured.seconds:.1f} s on one core of the machine that
wrote this card.

## Training

{training_table(runs)}

![losses](losses.png)

{note and note + chr(10)}
{data_section()}
{REPRODUCE}
## Limits

The model is small and was trained for hours, not weeks. Most sentences are grammatical, but many make little
sense, and longer texts are incoherent. JSON with more than a few keys may be incomplete; under a constraint it is
always complete. The model knows only English.

{showcase_section(measured.showcase)}
## All {len(measured.samples)} unconstrained samples

{sample_list}
"""
    )


def transformer_card(name: str, model: PretrainedLM, runs: Path, note: str = "") -> str:
    purpose = {
        "autoregressive": "it measures perplexity and is the model for autoregressive constrained decoding",
        "masked": "it is the model for masked diffusion",
    }[name]
    return (
        HEADER
        + f"""# diffinity's embedded {name} model

{parameters(model) / 1e6:.1f} M parameters, with the tokenizer and the corpus of the embedded diffusion model. In
the benchmarks {purpose}. Load it with `dy.load("embedded-{name}")`.

## Training

{training_table(runs)}
{f"{chr(10)}{note}{chr(10)}" if note else ""}
{data_section()}
{REPRODUCE}"""
    )


def _draft_scorer_note(defaults: SamplingDefaults) -> str:
    return f", chosen by `{defaults.draft_scorer}`" if defaults.draft_scorer else ""


def _code(text: str) -> str:
    return text.replace("`", "'").replace("\n", "⏎") or " "

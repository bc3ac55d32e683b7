"""From training runs to the models that ship in the package, each with a card of what was measured.

    python -m diffinity.training.release RUNS

RUNS has plaid/, autoregressive/ and masked/, as `make embedded` trains them. Each run is exported in float16 to
models/embedded/; the diffusion model's card has all 200 samples, unpicked.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from diffinity.models.loading import EMBEDDED, load
from diffinity.models.plaid_lm import PlaidLM
from diffinity.models.pretrained import PretrainedLM
from diffinity.models.protocol import SamplingDefaults
from diffinity.models.transformer import AutoregressiveLM, MaskedLM
from diffinity.sampling import sample, texts
from diffinity.training.corpus import documents
from diffinity.training.quality import Quality, quality

FOLDERS = {"plaid": "default", "autoregressive": "autoregressive", "masked": "masked"}
KINDS: dict[str, type[PretrainedLM]] = {"plaid": PlaidLM, "autoregressive": AutoregressiveLM, "masked": MaskedLM}
SAMPLES, LENGTH = 200, 64
LENGTHS = (16, 32, 48, 64)  # of the samples, as many of each: what a text is depends on the room for it
HELD_OUT_DOCUMENTS = 500
TRAINING_DOCUMENTS = 400_000  # of the stream that the models saw, in which sentences are looked for


def export(runs: Path, folder: Path, defaults: SamplingDefaults) -> dict[str, PretrainedLM]:
    """Copy the models of the runs that are there, in float16, to their places under `folder`."""
    found: dict[str, PretrainedLM] = {}
    for name, place in FOLDERS.items():
        source = runs / name / "model"
        if not source.is_dir():
            continue
        model = KINDS[name].from_pretrained(str(source))
        model.half_storage = True  # type: ignore[attr-defined]
        if isinstance(model, PlaidLM):
            model.sampling_defaults = defaults
        if (folder / place).exists():
            shutil.rmtree(folder / place)
        model.save_pretrained(folder / place)
        found[name] = KINDS[name].from_pretrained(str(folder / place))
    return found


def free_samples(model: PlaidLM, n: int = SAMPLES) -> tuple[list[str], float]:
    """n texts written without a constraint, and the seconds that one took alone in a batch of one."""
    written: list[str] = []
    for length in LENGTHS:
        found = sample(model, n // len(LENGTHS), length, first_index=len(written))
        written += texts(model, found.tokens)
    started = time.perf_counter()
    sample(model, 1, LENGTH, num_inference_steps=128, seed=1)
    return written, time.perf_counter() - started


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


def quality_table(found: Quality) -> str:
    parsed = "none to parse" if found.json_parsed is None else f"{found.json_parsed:.0%} of {found.json_like}"
    return "\n".join(
        [
            "| measure | samples | held-out documents |",
            "|---|---|---|",
            f"| perplexity under the autoregressive companion | {found.perplexity:.1f} "
            f"| {found.held_out_perplexity:.1f} |",
            f"| ratio of the two | {found.perplexity / found.held_out_perplexity:.2f} | 1 |",
            f"| of those that begin with a brace, parse as JSON | {parsed} | |",
            f"| distinct-2 | {found.distinct_2:.2f} | {found.held_out_distinct_2:.2f} |",
            f"| sentences that stand word for word in {TRAINING_DOCUMENTS:,} training documents "
            f"| {found.known_sentences:.0%} | |",
        ]
    )


def parameters(model: PretrainedLM) -> int:
    return sum(tensor.numel() for tensor in model.tensors().values())


HEADER = """---
library_name: diffinity
license: apache-2.0
tags:
- diffusion-language-model
- constrained-generation
---

"""

RECIPE = """## Data

The package writes its own corpus (`diffinity corpus --seed 0`, docs/training.md): English from skeletons with
slots, the short ones more often, and JSON and other structured text from generators. No text from elsewhere. Held
out are 3% of the skeletons and a random stream of their own.

## Reproduce

`make embedded` trains the three models (many hours on one core; it resumes where it was stopped) and writes this
folder. The recipe is in docs/training.md.
"""


def diffusion_card(
    model: PlaidLM, runs: Path, found: Quality, written: list[str], seconds: float, note: str = ""
) -> str:
    defaults = model.sampling_defaults
    listed = "\n".join(f"{number}. `{_code(text)}`" for number, text in enumerate(written, start=1))
    return (
        HEADER
        + f"""# diffinity's embedded model: a small PLAID for plain English and JSON

{parameters(model) / 1e6:.1f} M parameters, {model.embedding.shape[0]:,} tokens (byte-level BPE), texts of up to 96
tokens. `dy.load()` gives it. For trying things out, for tests and for benchmarks on a laptop; it knows little
English and nothing about the world. It was trained on invented names, addresses and numbers only.

## What was measured

{SAMPLES} samples without a constraint, as many with room for {", ".join(map(str, LENGTHS))} tokens each,
{defaults.num_inference_steps} steps, score_temp {defaults.score_temp}, seed 0, none left out;
{HELD_OUT_DOCUMENTS} held-out documents.

{quality_table(found)}

One text of {LENGTH} tokens in 128 steps took {seconds:.1f} s on one core of the machine that made this card.

## Training

{training_table(runs)}

![losses](losses.png)

{note and note + chr(10)}
{RECIPE}
## Limits

Small and trained for hours, not weeks: sentences are often right in form and odd in sense, longer texts lose their
thread, JSON beyond a few keys may not close (under a constraint it always does). English only.

## All {SAMPLES} samples, unpicked

{listed}
"""
    )


def companion_card(name: str, model: PretrainedLM, runs: Path) -> str:
    use = {
        "autoregressive": "the reference for perplexity, and the baseline for autoregressive constrained decoding",
        "masked": "the baseline for masked diffusion (DINGO)",
    }[name]
    kind = type(model).__name__
    return (
        HEADER
        + f"""# diffinity's {name} companion

{parameters(model) / 1e6:.1f} M parameters, the tokenizer and the corpus of the embedded diffusion model:
{use} in the benchmarks. Read it with `diffinity.models.transformer.{kind}.from_pretrained`.

## Training

{training_table(runs)}

{RECIPE}"""
    )


def _code(text: str) -> str:
    return text.replace("`", "'").replace("\n", "⏎") or " "


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--out", type=Path, default=EMBEDDED.parent)
    parser.add_argument("--score-temp", type=float, default=0.6)
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--note", default="", help="what a reader must know about how these weights came about")
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    defaults = SamplingDefaults(chosen.steps, LENGTH, chosen.score_temp)
    models = export(chosen.runs, chosen.out, defaults)
    for name in ("autoregressive", "masked"):
        if name in models:
            card = companion_card(name, models[name], chosen.runs)
            (chosen.out / FOLDERS[name] / "README.md").write_text(card)
    judge = models.get("autoregressive")
    if not isinstance(judge, AutoregressiveLM) or "plaid" not in models:
        print("no card of the diffusion model: that needs the runs plaid and autoregressive")
        return
    model = load(chosen.out / FOLDERS["plaid"])
    assert isinstance(model, PlaidLM)
    written, seconds = free_samples(model)
    held_out = list(islice(documents(1, "validation"), HELD_OUT_DOCUMENTS))
    found = quality(written, held_out, judge, islice(documents(0, "train"), TRAINING_DOCUMENTS))
    folder = chosen.out / FOLDERS["plaid"]
    (folder / "README.md").write_text(diffusion_card(model, chosen.runs, found, written, seconds, chosen.note))
    picture = chosen.runs / "plaid" / "metrics.png"
    if picture.is_file():
        shutil.copy(picture, folder / "losses.png")
    print(quality_table(found))


if __name__ == "__main__":
    main()

"""From training runs to the models in the package, each with a card of its measurements.

    python -m diffinity.training.release RUNS CORPUS

RUNS is a folder with the runs plaid/, autoregressive/ and masked/, which `make embedded` trains on the file
CORPUS. Every run that exists is exported in float16 to models/embedded/.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from diffinity.alignment import fit_bigrams
from diffinity.bench import grammar
from diffinity.bench.grammar import GrammarCounts
from diffinity.bench.natural_language import natural_language_cases
from diffinity.constraints import Choice, Regex
from diffinity.generation import Generator
from diffinity.models.loading import EMBEDDED, load
from diffinity.models.plaid_lm import PlaidLM
from diffinity.models.pretrained import PretrainedLM
from diffinity.models.protocol import SamplingDefaults
from diffinity.models.transformer import AutoregressiveLM, MaskedLM
from diffinity.sampling import sample
from diffinity.training.card import FOLDERS, Measured, diffusion_card, quality_table, transformer_card
from diffinity.training.mixture import TrainingData, read_training_data
from diffinity.training.quality import english_only, parses, quality
from diffinity.training.showcase import outputs

KINDS: dict[str, type[PretrainedLM]] = {"plaid": PlaidLM, "autoregressive": AutoregressiveLM, "masked": MaskedLM}
SAMPLES, LENGTH = 400, 64
LENGTHS = (16, 24, 32, 64)  # in tokens; each for the same number of samples, because texts depend on the length
BRACE_TEXTS = 40  # texts that must begin with a brace, for each number of steps
COLOURS = ("red", "green", "blue")
HELD_OUT_DOCUMENTS = 500
BIGRAM_DOCUMENTS = 300_000  # training documents in which bigrams are counted
TRAINING_DOCUMENTS = 1_000_000  # training documents that are searched for the samples' sentences
CONSTRAINED_SEED = 3  # of the constraints; the benchmark uses another seed


def export(
    runs: Path, folder: Path, defaults: SamplingDefaults, data: TrainingData | None = None
) -> dict[str, PretrainedLM]:
    """Copy the models of the existing runs, in float16, to their folders under `folder`.

    The diffusion model gets the bigrams of the training documents `data`.
    """
    models: dict[str, PretrainedLM] = {}
    for name, folder_name in FOLDERS.items():
        source = runs / name / "model"
        if not source.is_dir():
            continue
        model = KINDS[name].from_pretrained(str(source))
        model.half_storage = True  # type: ignore[attr-defined]
        if isinstance(model, PlaidLM):
            model.sampling_defaults = defaults
            if data is not None:
                documents = data.first(BIGRAM_DOCUMENTS)
                model.bigrams = fit_bigrams(documents, model.tokenizer, model.eos_token_id or 0)
        if (folder / folder_name).exists():
            shutil.rmtree(folder / folder_name)
        model.save_pretrained(folder / folder_name)
        models[name] = KINDS[name].from_pretrained(str(folder / folder_name))
    return models


def free_samples(model: PlaidLM, n: int = SAMPLES) -> tuple[list[str], float]:
    """n unconstrained texts with the default settings, and the seconds of one run of 128 steps at batch size 1."""
    generated: list[str] = []
    for length in LENGTHS:
        seeds = [(0, len(generated) + i) for i in range(n // len(LENGTHS))]
        generated += [text.text for text in Generator(model, None, length=length)(len(seeds), seeds=seeds)]
    started = time.perf_counter()
    sample(model, 1, LENGTH, num_inference_steps=128, seed=1)
    return generated, time.perf_counter() - started


def constrained_samples(model: PlaidLM) -> list[str]:
    """One text of at most 32 tokens for each of 110 sentence constraints, with the default settings.

    The constraints are of the same kinds as in the benchmark.
    """
    cases = natural_language_cases(CONSTRAINED_SEED)
    return [text.text for text in Generator(model, [case.constraint for case in cases], length=32)(len(cases))]


def brace_json(model: PlaidLM) -> dict[int, tuple[int, int]]:
    """By number of steps: how many of the texts that must begin with a brace parse as JSON, and their number."""
    counts = {}
    for steps in dict.fromkeys((model.sampling_defaults.num_inference_steps, 64)):
        generator = Generator(model, Regex(r"(?s)\{.*"), length=LENGTH, num_inference_steps=steps)
        counts[steps] = sum(parses(text.text) for text in generator(BRACE_TEXTS)), BRACE_TEXTS
    return counts


def choices(model: PlaidLM) -> dict[str, int]:
    """The counts of three colours in 20 texts with `decode="sample"`."""
    generator = Generator(model, Choice(COLOURS), decode="sample", length=8)
    counts = Counter(text.text for text in generator(20))
    return {colour: counts[colour] for colour in COLOURS}


def grammar_counts(samples: Sequence[str]) -> GrammarCounts:
    """The grammar judge's counts for texts; empty if it is not installed."""
    if not grammar.available():
        return GrammarCounts()
    return GrammarCounts.of([verdict for verdicts in grammar.judge(samples) for verdict in verdicts])


def measure(model: PlaidLM, data: TrainingData, judge: AutoregressiveLM | None) -> Measured:
    """All measurements on the card of the diffusion model; takes some minutes."""
    samples, seconds = free_samples(model)
    held_out = data.held_out[:HELD_OUT_DOCUMENTS]
    return Measured(
        quality=quality(samples, held_out, judge, data.first(TRAINING_DOCUMENTS)),
        samples=samples,
        seconds=seconds,
        length=LENGTH,
        lengths=LENGTHS,
        held_out=len(held_out),
        training_documents=TRAINING_DOCUMENTS,
        free=grammar_counts(english_only(samples)),
        constrained=grammar_counts(constrained_samples(model)),
        real=grammar_counts(english_only(held_out)),
        brace_json=brace_json(model),
        choices=choices(model),
        showcase=list(outputs(model)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("corpus", help="the corpus file that the models were trained on")
    parser.add_argument("--out", type=Path, default=EMBEDDED.parent)
    parser.add_argument("--score-temp", type=float, default=0.45)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--best-of", type=int, default=8, help="drafts of a text under a constraint")
    parser.add_argument("--best-of-free", type=int, default=4, help="drafts of a text without a constraint")
    parser.add_argument("--note", default="", help="a paragraph for the card about the training of these weights")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    data = read_training_data(arguments.corpus)
    defaults = SamplingDefaults(
        arguments.steps,
        LENGTH,
        arguments.score_temp,
        best_of=arguments.best_of,
        best_of_free=arguments.best_of_free,
        draft_scorer="embedded-autoregressive",
    )
    models = export(arguments.runs, arguments.out, defaults, data)
    for name in ("autoregressive", "masked"):
        if name in models:
            card = transformer_card(name, models[name], arguments.runs, arguments.note)
            (arguments.out / FOLDERS[name] / "README.md").write_text(card)
    if "plaid" not in models:
        return
    folder = arguments.out / FOLDERS["plaid"]
    model = load(folder)
    assert isinstance(model, PlaidLM)
    judge = models.get("autoregressive") or load("embedded-autoregressive")
    assert isinstance(judge, AutoregressiveLM)
    measured = measure(model, data, judge)
    (folder / "README.md").write_text(diffusion_card(model, arguments.runs, measured, arguments.note))
    picture = arguments.runs / "plaid" / "metrics.png"
    if picture.is_file():
        shutil.copy(picture, folder / "losses.png")
    print(quality_table(measured))


if __name__ == "__main__":
    main()

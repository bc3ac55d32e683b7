"""What `make demo` shows: text from the model at hand, denoised before your eyes."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

from diffinity.guidance import infill, prefix
from diffinity.guidance.base import Guidance
from diffinity.models.loading import EMBEDDED, load
from diffinity.models.markov import MarkovLM, fit_markov
from diffinity.models.plaid_lm import PlaidLM
from diffinity.sampling import sample, texts
from diffinity.training.corpus import documents

MARKOV_DOCUMENTS = 600


def demo_model(folder: Path | None = None) -> tuple[PlaidLM | MarkovLM, str]:
    """The embedded model, or a Markov model of our corpus where there is none yet; with what to call it."""
    if (folder or EMBEDDED).is_dir():
        return load(folder), "the embedded model"
    corpus = list(islice(documents(0), MARKOV_DOCUMENTS))
    return fit_markov(corpus, order=2, vocab_size=2048), "an exact Markov model of the training corpus"


def run_demo(console: Console) -> None:
    """Sample freely, with a given beginning, and between two given ends."""
    started = time.monotonic()
    model, name = demo_model()
    console.print(f"[bold]diffinity[/bold]: text from {name}, all tokens of a text denoised at once\n")
    shows: list[tuple[str, Guidance | None]] = [
        ("nothing asked", None),
        ("starts with “The old”", prefix(model.tokenizer, "The old", weight=3.0)),
        ('starts with “{"name”', prefix(model.tokenizer, '{"name', weight=3.0)),
        ("“Once” … 20 tokens … “.”", infill(model.tokenizer, "Once", 20, ".", weight=3.0)),
    ]
    for title, guidance in shows:
        samples = sample(model, n=3, length=48, num_inference_steps=64, seed=1, guidance=guidance)
        lines = "\n".join(f"• {escape(text)}" for text in texts(model, samples.tokens))
        console.print(Panel(lines, title=title, title_align="left"))
    console.print(f"{time.monotonic() - started:.0f} s on this machine. Next: diffinity generate --help")

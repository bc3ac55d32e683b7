"""`make demo`: a regex, a JSON Schema and a boolean combination, with texts that always satisfy them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

from diffinity.constraints import Constraint, JsonSchema, Regex
from diffinity.generation import generate
from diffinity.models.loading import load

ORDER_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1, "maximum": 9999},
        "status": {"enum": ["open", "paid", "shipped"]},
        "email": {"type": "string", "format": "email", "maxLength": 24},
    },
    "required": ["id", "status", "email"],
}


def examples() -> list[tuple[str, Constraint]]:
    """The constraints of the demo, with titles."""
    sentence = Regex(r"(?:I|We) [a-z ]+ (?:every|on) Monday\.")
    question = Regex(r"[A-Z][A-Za-z ,']{10,80}\?")
    return [
        ('dy.Regex(r"(?:I|We) [a-z ]+ (?:every|on) Monday\\.")', sentence),
        ("dy.JsonSchema: an id up to 9999, a status of three, an e-mail address", JsonSchema(ORDER_SCHEMA)),
        ('a question & ~dy.Regex("(?i).*you.*")', question & ~Regex("(?i).*you.*")),
    ]


def demo() -> None:
    """Show what diffinity does, with the embedded model.

    Example: diffinity demo
    """
    run_demo(Console())


def run_demo(console: Console) -> None:
    """Generate under each constraint and show the texts."""
    started = time.monotonic()
    model = load()
    console.print(
        "[bold]diffinity[/bold]: text from the embedded model; every line satisfies the constraint above\n"
    )
    for title, constraint in examples():
        with _one_thread():
            samples = generate(model, constraint, n=3, length=40, seed=1)
        lines = "\n".join(f"• {escape(sample.text)}" for sample in samples)
        console.print(Panel(lines, title=escape(title), title_align="left"))
    console.print(f"{time.monotonic() - started:.0f} s on this machine. Next: diffinity generate --help")


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: a small network gains little from a second thread, and waits for it on a busy machine."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)

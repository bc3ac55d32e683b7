"""The command line: `diffinity generate | inspect | demo | train | corpus | import-plaid | download`."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import operator
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from diffinity.constraints import Constraint
from diffinity.errors import DiffinityError, InvalidArgument

app = typer.Typer(
    name="diffinity",
    help="Continuous diffusion language models that obey formal syntax.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
err = Console(stderr=True)
out = Console()


def main() -> None:
    """Run the command line: one clear sentence and a non-zero exit for anything that goes wrong."""
    try:
        app()
    except DiffinityError as error:
        err.print(Text(f"error: {error}", style="bold red"))
        sys.exit(1)
    except BrokenPipeError:  # the reader of our output went away: nothing to say to anyone
        sys.stderr.close()
        sys.exit(1)


RegexOption = Annotated[
    str | None, typer.Option("--regex", help="A regular expression, as Python's re.fullmatch has it.")
]
SchemaOption = Annotated[Path | None, typer.Option("--json-schema", help="A file with a JSON Schema.")]
ChoiceOption = Annotated[
    list[str] | None, typer.Option("--choice", help="One of these texts; may be given again.")
]
TypeOption = Annotated[str | None, typer.Option("--type", help="module:Name of a Python type or Pydantic model.")]
ContainsOption = Annotated[
    list[str] | None, typer.Option("--contains", help="A word that occurs; may be given again.")
]
NotOption = Annotated[
    list[str] | None, typer.Option("--not-regex", help="What must not match; may be given again.")
]


def requested_constraint(
    regex: str | None,
    json_schema: Path | None,
    choice: list[str] | None,
    type_name: str | None,
    contains: list[str] | None,
    not_regex: list[str] | None,
) -> Constraint | None:
    """All that was asked for, at once; None if nothing was."""
    from diffinity.constraints import Choice, JsonSchema, Regex, constraint, sentences

    parts: list[Constraint] = []
    if regex is not None:
        parts.append(Regex(regex))
    if json_schema is not None:
        parts.append(JsonSchema(read_text(json_schema)))
    if choice:
        parts.append(Choice(choice))
    if type_name is not None:
        parts.append(constraint(named_type(type_name)))
    if contains:
        parts.append(sentences.contains_words(*contains))
    parts += [~Regex(pattern) for pattern in not_regex or []]
    return functools.reduce(operator.and_, parts) if parts else None


def named_type(name: str) -> object:
    """The object that `module:Name` names; the current folder is looked in too."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise InvalidArgument(f"--type takes module:Name, not {name!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except ImportError as error:
        raise InvalidArgument(f"--type {name}: {error}") from None
    except AttributeError:
        raise InvalidArgument(f"--type {name}: the module {module_name!r} has no {attribute!r}") from None
    finally:
        sys.path.pop(0)


@app.command()
def generate(
    regex: RegexOption = None,
    json_schema: SchemaOption = None,
    choice: ChoiceOption = None,
    type_name: TypeOption = None,
    contains: ContainsOption = None,
    not_regex: NotOption = None,
    model: Annotated[str | None, typer.Option(help="Folder or hub id; the embedded model if not given.")] = None,
    n: Annotated[int, typer.Option("-n", "--n", help="How many texts.", min=1)] = 1,
    length: Annotated[int | None, typer.Option(help="Tokens per text.", min=1)] = None,
    steps: Annotated[int | None, typer.Option(help="Denoising steps.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Text i is drawn from (seed, i).", min=0)] = 0,
    guidance: Annotated[str, typer.Option(help="auto, mixed, gradient, posterior, path, paper or none.")] = "auto",
    scale: Annotated[float, typer.Option(help="How strongly the constraint steers.")] = 2.5,
    decode: Annotated[str, typer.Option(help="best, sample (both always match) or argmax.")] = "best",
    method: Annotated[str, typer.Option(help="ancestral or ddim.")] = "ancestral",
    score_temp: Annotated[float | None, typer.Option(help="Below 1: sharper.")] = None,
    prompt: Annotated[str, typer.Option(help="What the text starts with.")] = "",
    deadline: Annotated[
        float | None, typer.Option(help="Stop after so many seconds; what is there still matches.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Write texts that satisfy all the constraints given; without one, freely."""
    from diffinity import generate as write
    from diffinity import load
    from diffinity.constraints import Regex

    asked = requested_constraint(regex, json_schema, choice, type_name, contains, not_regex)
    lm = load(model)
    with live_draft(lm, enabled=out.is_terminal and not as_json) as show:
        found = write(
            lm,
            asked if asked is not None else Regex(r"(?s).*"),
            n,
            length,
            num_inference_steps=steps,
            seed=seed,
            guidance=guidance if asked is not None or prompt else "none",  # type: ignore[arg-type]
            guidance_scale=scale,
            decode=decode,  # type: ignore[arg-type]
            framing="eos",
            prompt=prompt,
            method=method,  # type: ignore[arg-type]
            score_temp=score_temp,
            deadline=deadline,
            callback_on_step_end=show,
        )
    for one in found:
        print(json.dumps(dataclasses.asdict(one), ensure_ascii=False) if as_json else one.text)


@contextmanager
def live_draft(model: Any, *, enabled: bool, title: str = "denoising") -> Iterator[Any]:
    """A callback that shows the first sample while it sharpens, ten times a second at most; or None."""
    from diffinity.models.protocol import text_of

    if not enabled:
        yield None
        return
    with Live(console=out, transient=True, auto_refresh=False) as live:
        last = 0.0

        def show(step: int, state: Any) -> None:
            nonlocal last
            if time.monotonic() - last < 0.1 or state.prediction is None:
                return
            last = time.monotonic()
            probs = state.prediction.logits[0].softmax(dim=-1)
            draft = Text(text_of(model, probs.argmax(dim=-1).tolist()))
            sure = float(probs.amax(dim=-1).mean())
            live.update(Panel(draft, title=f"{title}: step {step + 1}, {sure:.0%} sure"), refresh=True)

        yield show


@app.command()
def inspect(
    regex: RegexOption = None,
    json_schema: SchemaOption = None,
    choice: ChoiceOption = None,
    type_name: TypeOption = None,
    contains: ContainsOption = None,
    not_regex: NotOption = None,
    tokenizer: Annotated[Path | None, typer.Option(help="tokenizer.json to align with.")] = None,
    framing: Annotated[str, typer.Option(help="exact, eos, eos_strict or search.")] = "eos",
    samples: Annotated[int, typer.Option(help="How many random texts.", min=0)] = 5,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    svg: Annotated[Path | None, typer.Option(help="Write a picture of the byte automaton.")] = None,
    paper_counts: Annotated[bool, typer.Option(help="Also count transitions as the paper's code does.")] = False,
) -> None:
    """Show what constraints amount to: states, classes, transitions, shortest and random texts."""
    from diffinity.alignment import Vocabulary
    from diffinity.inspection import inspect as look

    asked = requested_constraint(regex, json_schema, choice, type_name, contains, not_regex)
    if asked is None:
        raise InvalidArgument(
            "give a constraint: --regex, --json-schema, --choice, --type, --contains or --not-regex"
        )
    vocabulary = Vocabulary.from_tokenizer(tokenizer) if tokenizer else None
    found = look(
        asked,
        vocabulary,
        framing=framing,  # type: ignore[arg-type]
        samples=samples,
        seed=seed,
        paper_counts=paper_counts,
    )
    table = Table(show_header=False)
    table.add_row("byte automaton", f"{found.byte_states:,} states, {found.byte_classes} classes of bytes")
    table.add_row("texts", "finitely many" if found.finite else "infinitely many")
    if found.tokens is not None:
        one = found.tokens
        table.add_row("token automaton", f"{one.n_states:,} states, {one.n_classes:,} classes of tokens")
        table.add_row("transitions", f"{one.n_transitions:,}")
        if found.paper_transitions is not None:
            table.add_row("as the paper's code counts", f"{found.paper_transitions:,}")
        shortest = found.shortest_tokens
        table.add_row("fewest tokens", "no sequence" if shortest is None else str(len(shortest)))
    table.add_row(
        "shortest", "no text at all" if found.shortest is None else escape(repr(found.shortest.decode()))
    )
    for text in found.samples:
        table.add_row("random", escape(repr(text.decode())))
    out.print(table)
    if svg is not None:
        svg.write_text(asked.dfa().to_svg())
        out.print(f"wrote {svg}")


def read_text(path: Path) -> str:
    """The text of a file that the user named."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} can't be read: {error}") from None


@app.command()
def demo() -> None:
    """Show what diffinity does, with the model that is there."""
    from diffinity.demo import run_demo

    run_demo(out)


@app.command("import-plaid")
def import_plaid_command(
    weights: Annotated[Path, typer.Argument(help="Folder with PLAID's four .pt files.")],
    tokenizer: Annotated[Path, typer.Option(help="PLAID's owt2_tokenizer.json.")],
    out_dir: Annotated[Path, typer.Option("--out", help="Where to write the model.")],
) -> None:
    """Turn a checkpoint in PLAID's own layout into a model folder."""
    from diffinity.models.plaid_import import import_plaid

    if (out_dir / "config.json").exists():
        raise InvalidArgument(f"{out_dir} already holds a model; name another folder")
    lm = import_plaid(weights, tokenizer)
    lm.save_pretrained(out_dir)
    out.print(f"wrote {out_dir}: {lm.config}")


@app.command()
def download(
    name: Annotated[str, typer.Argument(help="What to fetch: plaid-1b.")],
    out_dir: Annotated[Path, typer.Option("--out", help="Where to write the model.")],
    keep_parts: Annotated[bool, typer.Option(help="Keep the downloaded archive.")] = False,
) -> None:
    """Fetch published weights by name and import them; the same command resumes a broken download."""
    from diffinity.models.download import fetch_release

    with transfer_bars() as progress:
        folder = fetch_release(name, out_dir, keep_parts=keep_parts, progress=progress)
    out.print(f"wrote {folder}")


@contextmanager
def transfer_bars() -> Iterator[Any]:
    """A progress callback (name, bytes done, bytes in all) that draws one bar a file."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err) as bars:
        tasks: dict[str, TaskID] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done, total=total)

        yield show


@app.command()
def corpus(
    seed: Annotated[int, typer.Option(help="The same seed writes the same documents.", min=0)] = 0,
    documents: Annotated[int, typer.Option(help="How many.", min=1)] = 1000,
    split: Annotated[str, typer.Option(help="train or validation.")] = "train",
) -> None:
    """Write documents of the training corpus as JSON lines."""
    from itertools import islice

    from diffinity.training.corpus import documents as stream

    if split not in ("train", "validation"):
        raise InvalidArgument(f"split must be train or validation, but is {split!r}")
    for text in islice(stream(seed, split), documents):  # type: ignore[arg-type]
        print(json.dumps({"text": text}, ensure_ascii=False))


from diffinity.training.command import train  # noqa: E402

app.command()(train)

if __name__ == "__main__":
    main()

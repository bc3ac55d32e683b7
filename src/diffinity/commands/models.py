"""`diffinity import-plaid`, `download` and `corpus`: models and text from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from diffinity.commands.console import err, out
from diffinity.errors import InvalidArgument


def import_plaid(
    weights: Annotated[Path, typer.Argument(help="Folder with PLAID's four .pt files.")],
    tokenizer: Annotated[Path, typer.Option(help="PLAID's owt2_tokenizer.json.")],
    out_dir: Annotated[Path, typer.Option("--out", help="Where to write the model.")],
) -> None:
    """Turn a checkpoint in PLAID's own layout into a model folder."""
    from diffinity.models.plaid_import import import_plaid as read

    if (out_dir / "config.json").exists():
        raise InvalidArgument(f"{out_dir} already holds a model; name another folder")
    lm = read(weights, tokenizer)
    lm.save_pretrained(out_dir)
    out.print(f"wrote {out_dir}: {lm.config}")


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


def corpus(
    seed: Annotated[int, typer.Option(help="The same seed writes the same documents.", min=0)] = 0,
    documents: Annotated[int, typer.Option(help="How many.", min=1)] = 1000,
    split: Annotated[str, typer.Option(help="train or validation.")] = "train",
) -> None:
    """Write documents of the training corpus as JSON lines."""
    from diffinity.training.corpus import documents as stream

    if split not in ("train", "validation"):
        raise InvalidArgument(f"split must be train or validation, but is {split!r}")
    for text in islice(stream(seed, split), documents):  # type: ignore[arg-type]
        print(json.dumps({"text": text}, ensure_ascii=False))

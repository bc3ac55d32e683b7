"""`diffinity models`, `download` and `import-plaid`: published models and checkpoints of PLAID."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
from rich.table import Table

from diffinity.commands.console import err, out
from diffinity.errors import InvalidArgument


def import_plaid(
    weights: Annotated[Path, typer.Argument(help="Folder with PLAID's four .pt files.")],
    tokenizer: Annotated[Path, typer.Option(help="PLAID's owt2_tokenizer.json.")],
    out_dir: Annotated[Path, typer.Option("--out", help="Folder to write the model to.")],
) -> None:
    """Turn a checkpoint in PLAID's own layout into a model folder.

    Example: diffinity import-plaid weights --tokenizer owt2_tokenizer.json --out plaid-1b
    """
    from diffinity.models.plaid_import import import_plaid as read

    if (out_dir / "config.json").exists():
        raise InvalidArgument(f"{out_dir} already holds a model; name another folder")
    lm = read(weights, tokenizer)
    lm.save_pretrained(out_dir)
    out.print(f"wrote {out_dir}: {lm.config}")


def models() -> None:
    """List the published models that have a short name, and which of them have been downloaded.

    Example: diffinity models
    """
    from diffinity.models.known import KNOWN
    from diffinity.models.transfer import amount

    table = Table("name", "parameters", "download", "licence", "here", "good for")
    table.add_row("(embedded)", "", "", "Apache-2.0", "yes", "short sentences and JSON; inside the package")
    for model in KNOWN.values():
        size, is_local = amount(model.download_bytes), "yes" if model.is_here else "no"
        table.add_row(model.name, model.parameters, size, model.licence, is_local, model.good_for)
    out.print(table)


def download(
    name: Annotated[str, typer.Argument(help="Name of the model, from `diffinity models`.")],
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", help="Write a model folder here; by default the model goes into the cache."),
    ] = None,
    keep_parts: Annotated[bool, typer.Option(help="Keep the downloaded archive (plaid-1b).")] = False,
) -> None:
    """Fetch a published model by name; the same command resumes a broken download.

    Example: diffinity download langflow-owt
    """
    from diffinity.models.download import RELEASES, fetch_release
    from diffinity.models.known import known_folder
    from diffinity.models.loading import load

    if out_dir is not None and (out_dir / "config.json").exists():
        raise InvalidArgument(f"{out_dir} already holds a model; name another folder")
    with transfer_bars() as progress:
        if out_dir is not None and name in RELEASES:
            folder = fetch_release(name, out_dir, keep_parts=keep_parts, progress=progress)
        else:
            folder = known_folder(name, progress=progress)
    if out_dir is not None and name not in RELEASES:
        load(folder).save_pretrained(out_dir)
        folder = out_dir
    out.print(f"{name} is in {folder}", soft_wrap=True)


@contextmanager
def transfer_bars() -> Iterator[Any]:
    """A progress callback (name, bytes done, bytes in all) that draws one bar per file."""
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

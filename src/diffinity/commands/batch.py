"""`diffinity batch`: requests from a file, results to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from diffinity.commands.console import Interrupted, err, out
from diffinity.commands.options import DeviceOption, ModelOption, check_device


def batch(
    requests: Annotated[Path, typer.Argument(help="One request a line, as JSON.")],
    results: Annotated[Path, typer.Argument(help="One result a line; naming it again goes on.")],
    model: ModelOption = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Texts denoised together; by default what memory allows, up to 16.", min=1)
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Also write the token ids.")] = False,
    device: DeviceOption = "cpu",
    ray: Annotated[
        bool, typer.Option("--ray", help="Run on a Ray cluster, or on one that is started here.")
    ] = False,
    actors: Annotated[int, typer.Option(help="With --ray: how many models run at once.", min=1)] = 1,
    address: Annotated[str | None, typer.Option(help="With --ray: of the cluster, as ray.init has it.")] = None,
) -> None:
    """Answer one request a line; a wrong line gets an error, Ctrl-C loses nothing, the same command goes on."""
    from diffinity.batch import run_batch
    from diffinity.batch.cluster import ray_answers

    answers = None
    if not ray:
        check_device(device)
    else:
        answers = ray_answers(
            model, batch_size=batch_size, device=device, tokens=tokens, actors=actors, address=address
        )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal) as bar:
        task = bar.add_task("requests", total=None)

        def show(so_far: int, of: int) -> None:
            bar.update(task, completed=so_far, total=of)

        try:
            summary = run_batch(
                requests,
                results,
                model,
                batch_size=batch_size,
                device=device,
                tokens=tokens,
                answers=answers,
                progress=show,
            )
        except KeyboardInterrupt:
            done = whole_lines(results)
            raise Interrupted(
                f"interrupted: {done} results are in {results}, and the same command goes on from there"
            ) from None
    before = f", {summary.resumed} of them there already" if summary.resumed else ""
    out.print(f"{results}: {summary.total} results{before}, {summary.errors} of them errors", soft_wrap=True)


def whole_lines(path: Path) -> int:
    """How many results a file has; the last may be half written."""
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        return sum(line.endswith(b"\n") for line in file)

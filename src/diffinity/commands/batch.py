"""`diffinity batch`: reads requests from a file and writes results to another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from diffinity.commands.console import Interrupted, err, out
from diffinity.commands.options import DeviceOption, LimitOption, ModelOption, apply_limits, check_device

STANDARD = Path("-")


def batch(
    requests: Annotated[Path, typer.Argument(help="File with one JSON request per line; - for standard input.")],
    results: Annotated[
        Path, typer.Argument(help="One result per line; an existing file is resumed; - for standard output.")
    ],
    model: ModelOption = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Texts denoised together; by default as many as fit in memory, up to 16.", min=1),
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Also write the token ids.")] = False,
    device: DeviceOption = "cpu",
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", help="A module from which a request's type may be imported; repeatable."),
    ] = None,
    limit: LimitOption = None,
    ray: Annotated[
        bool, typer.Option("--ray", help="Run on a Ray cluster; without one, on a local cluster.")
    ] = False,
    actors: Annotated[int, typer.Option(help="With --ray: number of actors, each with its own model.", min=1)] = 1,
    address: Annotated[
        str | None, typer.Option(help="With --ray: address of the cluster, as for ray.init.")
    ] = None,
) -> None:
    """Answer one request per line. An invalid line gets an error; after Ctrl-C the same command resumes.

    Example: diffinity batch requests.jsonl results.jsonl

    Example: echo '{"regex": "[0-9]+", "length": 8}' | diffinity batch - -
    """
    from diffinity.batch import run_batch
    from diffinity.batch.cluster import ray_answers
    from diffinity.batch.lines import is_stream

    apply_limits(limit)
    answers = None
    if not ray:
        check_device(device)
    else:
        answers = ray_answers(
            model,
            batch_size=batch_size,
            device=device,
            tokens=tokens,
            modules=modules or (),
            actors=actors,
            address=address,
        )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal) as bar:
        task = bar.add_task("requests", total=None)

        def show(done: int, n_requests: int | None) -> None:
            bar.update(task, completed=done, total=n_requests)

        try:
            summary = run_batch(
                requests,
                results,
                model,
                batch_size=batch_size,
                device=device,
                tokens=tokens,
                modules=modules or (),
                answers=answers,
                progress=show,
            )
        except KeyboardInterrupt:
            if is_stream(results):
                raise Interrupted("interrupted: the results so far were written") from None
            n_results = complete_lines(results)
            raise Interrupted(
                f"interrupted: {n_results} results are in {results}, and the same command resumes there"
            ) from None
    resumed = f", {summary.resumed} of them there already" if summary.resumed else ""
    console = err if is_standard_output(results) else out
    console.print(f"{results}: {summary.total} results{resumed}, {summary.errors} of them errors", soft_wrap=True)


def is_standard_output(path: Path) -> bool:
    """Whether the results go to standard output, where the summary would be printed."""
    try:
        return path == STANDARD or os.path.samestat(path.stat(), os.fstat(1))
    except OSError:
        return False


def complete_lines(path: Path) -> int:
    """The number of complete results in a file; the last line may be incomplete."""
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        return sum(line.endswith(b"\n") for line in file)

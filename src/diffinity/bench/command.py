"""`diffinity bench run | join | report | compare | systems`: the benchmark on the command line."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table as Shown

from diffinity.errors import InvalidArgument

app = typer.Typer(name="bench", help="The paper's experiments, with every system in them.", no_args_is_help=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)
out_console = Console(highlight=False)
QUIET_SECONDS = 30.0  # between two lines of progress if stderr is not a terminal

SuiteArgument = Annotated[
    str,
    typer.Argument(help="natural-language, json, scale, latency, match, steps, framings, fidelity or fight-club."),
]
ModelOption = Annotated[str | None, typer.Option("--model", help="Diffusion model: folder or hub id.")]
ScorerOption = Annotated[
    str, typer.Option(help="Model that measures perplexity: embedded-autoregressive, a folder, hf:NAME, or none.")
]


@app.command()
def run(
    suite: SuiteArgument,
    out: Annotated[Path, typer.Option(help="Folder of the run; naming it again resumes it.")],
    quick: Annotated[bool, typer.Option("--quick", help="Few constraints, few samples: some minutes.")] = False,
    systems: Annotated[
        list[str] | None,
        typer.Option("--systems", help="Names or groups (all, ours, baselines), separated by commas; repeatable."),
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Samples of each constraint.", min=1)] = None,
    length: Annotated[int | None, typer.Option(help="Tokens of a text.", min=2)] = None,
    steps: Annotated[int | None, typer.Option(help="Denoising steps.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same run.", min=0)] = 0,
    jobs: Annotated[
        int | None, typer.Option(help="Number of processes. Default: one per core; 1 for latency.", min=1)
    ] = None,
    ray: Annotated[bool, typer.Option("--ray", help="On a Ray cluster, with --jobs actors.")] = False,
    schemas: Annotated[
        str | None, typer.Option(help="JSON Schemas to use: a file, a folder, or hub for JSONSchemaBench.")
    ] = None,
    selection: Annotated[str, typer.Option(help="Which schemas are taken: ours or paper.")] = "ours",
    every: Annotated[int, typer.Option(help="Only every K-th constraint of the suite.", min=1)] = 1,
    model: ModelOption = None,
    autoregressive: Annotated[str | None, typer.Option(help="Autoregressive model: folder or hf:NAME.")] = None,
    masked: Annotated[str | None, typer.Option(help="Masked model: folder or hf:NAME.")] = None,
    retry_errors: Annotated[
        bool, typer.Option("--retry-errors", help="Run failed constraints of earlier sessions again.")
    ] = False,
    judge_url: Annotated[str | None, typer.Option(help="Base URL of a judge of fluency, ending in /v1.")] = None,
    judge_model: Annotated[str | None, typer.Option(help="The judge's model.")] = None,
    judge_api: Annotated[str, typer.Option(help="openai or anthropic.")] = "openai",
    judge_key_variable: Annotated[
        str | None, typer.Option(help="Environment variable that holds the judge's key.")
    ] = None,
    judge_samples: Annotated[int, typer.Option(help="Samples of each system that are judged.", min=1)] = 50,
) -> None:
    """Run a suite. Every sample is stored at once, and the same command resumes a stopped run.

    Example: diffinity bench run natural-language --quick --out runs/first
    """
    from diffinity.baselines.registry import Models
    from diffinity.bench.session import Request, run_suite

    if (judge_url is None) != (judge_model is None):
        raise InvalidArgument("a judge needs both --judge-url and --judge-model")
    request = Request(
        suite,
        out,
        quick=quick,
        systems=tuple(name for argument in systems or () for name in argument.split(",") if name),
        samples=samples,
        length=length,
        steps=steps,
        seed=seed,
        jobs=jobs,
        ray=ray,
        schemas=schemas,
        selection=selection,
        every=every,
        models=Models(model, autoregressive, masked),
        retry_errors=retry_errors,
    )
    with _progress() as show:
        outcome = run_suite(request, on_progress=show, tell=err.print)
    for name, reason in outcome.unavailable.items():
        err.print(f"{name} did not run: {reason}", style="yellow")
    if not outcome.complete:
        err.print(
            f"stopped; the finished samples are in {out}, and the same command resumes the run", style="yellow"
        )
        raise typer.Exit(130)
    if judge_url is not None and judge_model is not None:
        _judge(out, judge_url, judge_model, judge_api, judge_key_variable, judge_samples)
    err.print(f"finished: {out}; see it with `diffinity bench report {out} --out FOLDER`")


@app.command()
def join(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs of one suite with the same settings.")],
    out: Annotated[Path, typer.Option(help="New folder for the joined run.")],
) -> None:
    """Join runs of one suite, for example of different systems or from different machines, into one run.

    Example: diffinity bench join runs/a runs/b --out runs/both
    """
    from diffinity.bench.join import join as joined

    run = joined(runs, out)
    print(f"{out}: {len(run.samples):,} lines of {len(run.systems)} systems")


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    out: Annotated[Path, typer.Option(help="Folder for report.md, report.html, results.csv and plots.")],
    scorer: ScorerOption = "embedded-autoregressive",
) -> None:
    """Write a report of runs: tables, plots and all samples, as Markdown, HTML, CSV and JSON lines.

    Example: diffinity bench report runs/first --out report
    """
    from diffinity.bench import plots
    from diffinity.bench.report import write_report

    with err.status("reading") as status:
        paths = write_report(runs, out, scorer=None if scorer == "none" else scorer, on_progress=status.update)
    for path in paths:
        print(path)
    if not plots.available():
        err.print("no plots: they need matplotlib, pip install 'diffinity[bench]'", style="yellow", markup=False)


@app.command()
def compare(
    a: Annotated[str, typer.Argument(help="Folder of a run, or FOLDER:SYSTEM.")],
    b: Annotated[str, typer.Argument(help="Folder of a run, or FOLDER:SYSTEM, to compare with A.")],
    scorer: ScorerOption = "embedded-autoregressive",
) -> None:
    """Compare B with A case by case: which measures are better, and which are worse.

    Example: diffinity bench compare runs/first:paper runs/first:auto
    """
    from diffinity.bench.compare import as_table
    from diffinity.bench.compare import compare as compared

    table = as_table(compared(a, b, scorer=None if scorer == "none" else scorer))
    if not out_console.is_terminal:
        print(table.markdown())
        return
    printed_table = Shown(caption=" ".join(table.notes))
    for column in table.columns:
        printed_table.add_column(column)
    for row in table.rows:
        printed_table.add_row(*row)
    out_console.print(printed_table)


@app.command()
def systems() -> None:
    """List the systems that a run can compare.

    Example: diffinity bench systems
    """
    from diffinity.baselines.registry import ENTRIES

    for entry in ENTRIES:
        print(f"{entry.name:30}{entry.group:11}{entry.role:16}{entry.about}")


def _judge(out: Path, url: str, model: str, api: str, key_variable: str | None, samples_per_system: int) -> None:
    from diffinity.bench.judge import Endpoint, Judge, JudgeError
    from diffinity.bench.scoring import ask_judge
    from diffinity.bench.store import read_run

    judge = Judge(Endpoint(url, model, key_variable, api))  # type: ignore[arg-type]
    with err.status("asking the judge") as status:

        def show(done: int, total: int) -> None:
            status.update(f"asking the judge: {done} of {total} texts")

        try:
            ask_judge(read_run(out), judge, samples_per_system, on_progress=show)
        except JudgeError as error:
            raise JudgeError(f"{error}. All samples are stored; the same command asks the judge again") from None


@contextmanager
def _progress() -> Iterator[Any]:
    """A callback that shows progress and the time left: a bar in a terminal, otherwise an occasional line."""
    from diffinity.bench.run import Progress

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    last = -QUIET_SECONDS
    with Bar(*columns, TextColumn("{task.fields[left]}"), console=err, disable=not err.is_terminal) as bar:
        task = bar.add_task("starting", total=None, left="")

        def show(progress: Progress) -> None:
            nonlocal last
            left = "" if progress.seconds_left is None else f"{_duration(progress.seconds_left)} left"
            description = "starting" if progress.last is None else f"{progress.last.system}, {progress.last.case}"
            bar.update(
                task, completed=progress.done, total=progress.total, description=description[-60:], left=left
            )
            time_now = time.monotonic()
            if not err.is_terminal and (time_now - last > QUIET_SECONDS or progress.done == progress.total):
                last = time_now
                err.print(f"{progress.done} of {progress.total} done{', ' if left else ''}{left}")

        yield show


def _duration(seconds: float) -> str:
    """A duration in hours and minutes, in minutes and seconds, or in seconds.

    >>> _duration(3700), _duration(42)
    ('1 h 01 min', '42 s')
    """
    minutes, remaining_seconds = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {remaining_seconds:02d} s" if minutes else f"{remaining_seconds} s"

"""The command line: `diffinity generate | demo | train | corpus | import-plaid | download`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
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
from rich.text import Text

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


@app.command()
def generate(
    model: Annotated[str | None, typer.Option(help="Folder or hub id; the embedded model if not given.")] = None,
    n: Annotated[int, typer.Option("-n", "--n", help="How many samples.", min=1)] = 1,
    length: Annotated[int | None, typer.Option(help="Tokens per sample.", min=1)] = None,
    steps: Annotated[int | None, typer.Option(help="Denoising steps.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Sample i is drawn from (seed, i).", min=0)] = 0,
    method: Annotated[str, typer.Option(help="ancestral or ddim.")] = "ancestral",
    score_temp: Annotated[float | None, typer.Option(help="Below 1: sharper.")] = None,
    prompt: Annotated[str, typer.Option(help="Text that the output is steered to start with.")] = "",
    ending: Annotated[str, typer.Option(help="Text that is steered to stand after the prompt and a gap.")] = "",
    gap: Annotated[int, typer.Option(help="Free tokens between prompt and ending.", min=0)] = 24,
    weight: Annotated[float, typer.Option(help="Strength of prompt and ending.")] = 2.0,
    deadline: Annotated[
        float | None, typer.Option(help="Stop after so many seconds and show what is there.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Write text with a model."""
    from diffinity import load, sample
    from diffinity.guidance import infill
    from diffinity.models.protocol import text_of

    lm = load(model)
    guidance = infill(lm.tokenizer, prompt, gap, ending, weight) if prompt or ending else None
    with live_draft(lm, enabled=out.is_terminal and not as_json) as show:
        samples = sample(
            lm,
            n,
            length,
            num_inference_steps=steps,
            seed=seed,
            guidance=guidance,
            method=method,  # type: ignore[arg-type]
            score_temp=score_temp,
            deadline=deadline,
            callback_on_step_end=show,
        )
    for index, ids in enumerate(samples.tokens.tolist()):
        text = text_of(lm, ids)
        if as_json:
            row = {"text": text, "tokens": ids, "seed": [seed, index], "finish_reason": samples.finish_reason}
            print(json.dumps(row, ensure_ascii=False))
        else:
            print(text)


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

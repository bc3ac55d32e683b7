"""`diffinity train`: train a model on the package's corpus or on your own text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from diffinity.commands.console import Interrupted
from diffinity.errors import InvalidArgument, require

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from diffinity.models.pretrained import PretrainedLM
    from diffinity.training.mixture import TrainingData
    from diffinity.training.trainer import Report

VALIDATION_DOCUMENTS = 256


def train(
    data: Annotated[
        str | None,
        typer.Argument(
            help='Corpus file (`diffinity corpus build`), text file (one document a line), .jsonl with "text", or '
            "hub:owner/name; else structured text of our own."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the run; naming it again resumes.")] = Path("run"),
    kind: Annotated[str, typer.Option(help="plaid, plaid-bound, autoregressive, masked or markov.")] = "plaid",
    start_from: Annotated[
        str | None,
        typer.Option(help="Folder or hub id of a finished model to go on from, with its shape and tokenizer."),
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="tokenizer.json to use; else a BPE is trained.")] = None,
    vocab_size: Annotated[int, typer.Option(help="Size of the BPE to train.")] = 3072,
    order: Annotated[int, typer.Option(help="Order of a Markov model.")] = 2,
    documents: Annotated[
        int, typer.Option(help="Documents that a Markov model is fitted to, unless a text file is given.")
    ] = 20_000,
    dim: Annotated[int, typer.Option(help="Width of the network.")] = 128,
    n_blocks: Annotated[
        int | None,
        typer.Option(
            help="Depth of the network (6); with --start-from at least that of the model.",
            min=1,
            show_default=False,
        ),
    ] = None,
    n_heads: Annotated[int, typer.Option(help="Attention heads.")] = 4,
    embed_dim: Annotated[int, typer.Option(help="Numbers in an embedding.")] = 32,
    length: Annotated[int, typer.Option(help="Longest sequence, in tokens.")] = 96,
    steps: Annotated[int, typer.Option(help="Optimiser steps.")] = 30_000,
    cooldown: Annotated[int, typer.Option(help="Last steps, over which the learning rate falls to zero.")] = 8_000,
    peak: Annotated[
        float, typer.Option(help="Highest learning rate as a share of the full one; about 0.3 with --start-from.")
    ] = 1.0,
    bias_warmup: Annotated[
        int, typer.Option(help="First steps, over which PLAID's analytic term grows to full.")
    ] = 1_500,
    mixed: Annotated[
        float,
        typer.Option(
            help="Share of a batch in which some tokens are given and the others asked for.", min=0, max=1
        ),
    ] = 0.75,
    batch_tokens: Annotated[int, typer.Option(help="Tokens a step.")] = 1024,
    seed: Annotated[int, typer.Option(help="The same seed gives the same run.", min=0)] = 0,
    bfloat16: Annotated[
        bool, typer.Option(help="Multiply in bfloat16: faster where the processor has units for it.")
    ] = False,
    threads: Annotated[int | None, typer.Option(help="CPU threads; 1 beside other work.")] = None,
) -> None:
    """Train a model; Ctrl-C stops it without loss, and the same command resumes.

    Example: diffinity train corpus.jsonl --out run --vocab-size 8192
    """
    if kind != "markov":
        require("train", "training", "accelerate")
    import torch

    from diffinity.models.protocol import SamplingDefaults
    from diffinity.training.data import training_lengths
    from diffinity.training.mixture import read_training_data
    from diffinity.training.trainer import Trainer, TrainingSettings

    if threads:
        torch.set_num_threads(threads)
    console = Console(stderr=True)
    start = None if start_from is None else starting_model(start_from, kind, tokenizer)
    corpus = read_training_data(data, seed)
    if kind == "markov":
        fit_markov_folder(corpus, out, order, documents, tokenizer, vocab_size, console)
        return
    check_width(dim, n_heads)
    settings = TrainingSettings(
        kind=kind,  # type: ignore[arg-type]
        dim=dim,
        n_blocks=n_blocks or TrainingSettings.n_blocks,
        n_heads=n_heads,
        embed_dim=embed_dim,
        lengths=training_lengths(length),
        tokens_per_batch=batch_tokens,
        steps=steps,
        cooldown=cooldown,
        peak=peak,
        bias_warmup=bias_warmup,
        mixed=mixed,
        seed=seed,
        data=corpus.fingerprint,
        bfloat16=bfloat16,
    )
    if start is not None:
        shape = shape_of(start)
        settings = replace(settings, **{**shape, "n_blocks": n_blocks or shape["n_blocks"]})
    used_tokenizer = run_tokenizer(
        out, tokenizer if start is None else start.tokenizer, corpus.tokenizer_texts, vocab_size
    )
    eos = end_token(used_tokenizer)
    trainer = Trainer(
        settings, out, used_tokenizer, eos, corpus.source, corpus.held_out[:VALIDATION_DOCUMENTS], start
    )
    finished = _watch(trainer, console)
    if trainer.accelerator.is_main_process:
        from diffinity.training.report import plot_metrics, write_samples

        model = trainer.export(SamplingDefaults(length=min(64, length)))
        model.save_pretrained(out / "model")
        if not finished:
            raise Interrupted(
                f"stopped at step {trainer.progress.step}; the same command resumes ({out / 'model'})"
            )
        if not plot_metrics(out / "metrics.jsonl", out / "metrics.png"):
            console.print("no plot of the losses: it needs matplotlib, pip install 'diffinity[train]'")
        write_samples(model, out / "samples.txt")
        console.print(f"finished: {out / 'model'}")
        if kind.startswith("plaid") and not start_from and trainer.progress.step < bias_warmup:
            console.print(
                "the analytic term is still in its warmup (--bias-warmup): samples will be poor until it ends"
            )


def _watch(trainer: object, console: Console) -> bool:
    """Run the trainer with a progress bar (in a terminal) or one line per report."""
    from diffinity.training.trainer import Trainer

    assert isinstance(trainer, Trainer)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("training", total=trainer.settings.steps, completed=trainer.progress.step)

        def show(report: Report) -> None:
            line = f"loss {report.loss:.3f}, {report.tokens_per_second:,.0f} tokens/s"
            bar.update(task, completed=report.progress.step, description=line)
            if report.validation:
                losses = "  ".join(f"{name} {value:.3f}" for name, value in report.validation.items())
                console.print(f"step {report.progress.step}: {line}; held out: {losses}", highlight=False)

        def say_stopping() -> None:
            console.print("stopping: finishing the step and writing the checkpoint")

        return trainer.run(on_report=show, on_interrupt=say_stopping)


def starting_model(source: str, kind: str, tokenizer: Path | None) -> PretrainedLM:
    """The finished model that a run starts from, checked before the run is created.

    >>> starting_model("runs/mine/model", "markov", None)
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: a Markov model is counted, not trained: it starts from nothing
    """
    from diffinity.models.loading import COMPANIONS, model_folder
    from diffinity.models.plaid_lm import PlaidLM
    from diffinity.models.pretrained import read_config
    from diffinity.training.trainer import check_same_kind

    if kind == "markov":
        raise InvalidArgument("a Markov model is counted, not trained: it starts from nothing")
    if tokenizer is not None:
        raise InvalidArgument("--tokenizer can't be combined with --start-from: the model brings its own")
    folder = model_folder(source)
    config = read_config(folder)
    model = {**COMPANIONS, PlaidLM.kind: PlaidLM}.get(config["kind"])
    if model is None:
        raise InvalidArgument(f"{source} holds a model of kind {config['kind']!r}, which can't be trained further")
    start: PretrainedLM = model.read(folder, config)
    check_same_kind(kind, start)
    return start


def check_width(dim: int, n_heads: int) -> None:
    """Refuse a width that can't be divided between the heads; the error names the command-line options.

    >>> check_width(130, 4)
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: --dim must be --n-heads times an even number, but they are 130 and 4
    """
    if n_heads < 1 or dim < 1 or dim % (2 * n_heads):
        raise InvalidArgument(f"--dim must be --n-heads times an even number, but they are {dim} and {n_heads}")


def shape_of(model: PretrainedLM) -> dict[str, Any]:
    """The settings of a run that define the model's shape: width, depth, heads and embedding dimension."""
    fields = model.config_fields()
    return {name: fields[name] for name in ("dim", "n_blocks", "n_heads", "embed_dim") if name in fields}


def run_tokenizer(
    out: Path, source: Path | Tokenizer | None, texts: Callable[[], list[str]], vocab_size: int
) -> Tokenizer:
    """The run's tokenizer: the stored tokenizer, otherwise the given one, otherwise a BPE trained on the text."""
    from diffinity.models.pretrained import read_tokenizer
    from diffinity.models.tokenization import train_bpe

    tokenizer_file = out / "tokenizer.json"
    if tokenizer_file.is_file():
        return read_tokenizer(tokenizer_file)
    if isinstance(source, Path):
        tokenizer = read_tokenizer(source)
    elif source is not None:
        tokenizer = source
    else:
        tokenizer = train_bpe(texts(), vocab_size)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(tokenizer_file))
    return tokenizer


def end_token(tokenizer: Tokenizer) -> int:
    """The tokenizer's only special token, which ends a document."""
    special = [token for token, added in tokenizer.get_added_tokens_decoder().items() if added.special]
    if len(special) != 1:
        raise InvalidArgument(f"the tokenizer has {len(special)} special tokens; expected one, which ends a text")
    return int(special[0])


def fit_markov_folder(
    corpus: TrainingData,
    out: Path,
    order: int,
    documents: int,
    tokenizer: Path | None,
    vocab_size: int,
    console: Console,
) -> None:
    """Fit a Markov model and write its folder."""
    from diffinity.models.hub import CONFIG
    from diffinity.models.markov import fit_markov
    from diffinity.models.pretrained import read_tokenizer

    if (out / CONFIG).exists():
        raise InvalidArgument(f"{out} already holds a model; name another folder")
    given_tokenizer = read_tokenizer(tokenizer) if tokenizer else None
    texts = corpus.first(documents)
    model = fit_markov(texts, order=order, tokenizer=given_tokenizer, vocab_size=vocab_size)
    model.save_pretrained(out)
    console.print(f"wrote {out}: {len(model.chain.token):,} contexts of {len(texts):,} documents")

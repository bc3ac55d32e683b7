"""The command line: `diffinity generate | inspect | batch | bench | demo | train | corpus | import-plaid | …`."""

from __future__ import annotations

import sys

import typer

from diffinity.bench.command import app as bench
from diffinity.commands.batch import batch
from diffinity.commands.console import INTERRUPTED, Commands, out, say_error
from diffinity.commands.corpus import app as corpus
from diffinity.commands.generate import generate
from diffinity.commands.inspect import inspect
from diffinity.commands.models import download, import_plaid, models
from diffinity.memory import keep_freed_memory
from diffinity.training.command import train

app = typer.Typer(
    name="diffinity",
    cls=Commands,
    help="Continuous diffusion language models that obey formal syntax.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; what goes wrong is one sentence and a non-zero exit (see `commands.console`)."""
    keep_freed_memory()
    try:
        app()
    except BrokenPipeError:  # the reader of our output went away: nothing to say to anyone
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:  # before a command had begun
        say_error("interrupted")
        sys.exit(INTERRUPTED)


def demo() -> None:
    """Show what diffinity does, with the model that is there."""
    from diffinity.demo import run_demo

    run_demo(out)


for command in (generate, inspect, batch, demo, train, models, download):
    app.command()(command)
app.command("import-plaid")(import_plaid)
app.add_typer(bench, name="bench")
app.add_typer(corpus, name="corpus")

if __name__ == "__main__":
    main()

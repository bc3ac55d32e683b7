"""The command line: `diffinity generate | inspect | batch | serve | bench | demo | train | corpus | …`.

Commands are imported when they are called: `diffinity --help` needs none of them.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer

from diffinity import __version__
from diffinity.commands.console import Commands, out
from diffinity.memory import keep_freed_memory
from diffinity.start import main as main


class CommandEntry(NamedTuple):
    """The location of a command, and its description in the list of commands."""

    target: str  # module:name of a function, or of a group of commands
    help: str


COMMANDS = {
    "generate": CommandEntry("diffinity.commands.generate:generate", "Write texts that satisfy constraints."),
    "inspect": CommandEntry(
        "diffinity.commands.inspect:inspect", "Describe a constraint: its size, and texts that satisfy it."
    ),
    "batch": CommandEntry("diffinity.commands.batch:batch", "Write a text for each request of a file."),
    "serve": CommandEntry("diffinity.commands.serve:serve", "Serve a model as OpenAI's API, with a live page."),
    "demo": CommandEntry("diffinity.demo:demo", "Show what diffinity does, with the embedded model."),
    "models": CommandEntry(
        "diffinity.commands.models:models", "List the published models that have a short name."
    ),
    "download": CommandEntry("diffinity.commands.models:download", "Fetch a published model by name."),
    "import-plaid": CommandEntry(
        "diffinity.commands.models:import_plaid", "Convert a checkpoint in PLAID's own layout."
    ),
    "train": CommandEntry(
        "diffinity.training.command:train", "Train a model; the same command resumes a stopped run."
    ),
    "corpus": CommandEntry("diffinity.commands.corpus:app", "Make and show documents to train on."),
    "bench": CommandEntry("diffinity.bench.command:app", "Run the paper's experiments and report them."),
}


def make_app(called: Collection[str]) -> typer.Typer:
    """The command line with the given commands; the other commands are only listed by name.

    >>> make_app(["inspect"]).info.name
    'diffinity'
    """
    app = typer.Typer(
        name="diffinity",
        cls=Commands,
        help="Structured output for diffusion language models: every text satisfies its constraint.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name, entry in COMMANDS.items():
        if name not in called:
            app.command(name, help=entry.help)(_by_name_only)
            continue
        module, _, attribute = entry.target.partition(":")
        command: Any = getattr(import_module(module), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, short_help=entry.help)
        else:
            app.command(name, short_help=entry.help)(command)
    return app


def _show_version(requested: bool) -> None:
    if requested:
        out.print(f"diffinity {__version__}", highlight=False)
        raise typer.Exit


def root(
    version: Annotated[  # noqa: ARG001 (its callback has shown it)
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Write the log of `diffinity` to stderr.")
    ] = False,
) -> None:
    """Structured output for diffusion language models: every text satisfies its constraint.

    Example: diffinity generate --regex '[A-Z][a-z ]+[.]' --length 24
    """
    if verbose:
        show_log()


def show_log() -> None:
    """Write the log of `diffinity` to stderr."""
    logger = logging.getLogger("diffinity")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)


def _by_name_only() -> None:
    """Stands for a command that was not called and is only listed."""


def called_commands(arguments: Sequence[str], environment: Mapping[str, str]) -> set[str]:
    """The commands that the arguments name; shell completion passes the arguments in the environment.

    >>> called_commands(["train", "--help"], {}), called_commands(["--help"], {})
    ({'train'}, set())
    """
    words = [*arguments, *environment.get("COMP_WORDS", "").split()]
    words += environment.get("_TYPER_COMPLETE_ARGS", "").split()
    return {word for word in words if word in COMMANDS}


def run() -> None:
    """Run the command that the arguments name; called by `diffinity.start`, which handles Ctrl-C."""
    keep_freed_memory()
    command_line = make_app(called_commands(sys.argv[1:], os.environ))
    gc.freeze()  # imported objects stay: the garbage collector need not scan them
    gc.set_threshold(10_000, *gc.get_threshold()[1:])  # numba's compiler makes many objects
    gc.enable()
    command_line()


def __getattr__(name: str) -> typer.Typer:
    """`app`: the command line with all commands, for tests and for documentation."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return make_app(COMMANDS)


if __name__ == "__main__":
    main()

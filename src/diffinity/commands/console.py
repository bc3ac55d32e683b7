"""The consoles of the command line, and its errors: one sentence and a non-zero exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from diffinity.commands.wording import in_flags
from diffinity.errors import DiffinityError, Failure
from diffinity.memory import is_out_of_memory
from diffinity.precompile import precompiling
from diffinity.start import INTERRUPTED

out = Console()
err = Console(stderr=True)

COMPILING = {"generate", "inspect", "batch", "demo"}  # commands that run compiled loops immediately
FAILED = 1  # the command was correct, but something else failed: a full disk, no memory, a network
MISUSED = 2  # wrong options, values, constraints, models or files, or an extra that is not installed


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with the message to show."""


class Commands(TyperGroup):
    """The group of all commands: shows a `DiffinityError` as a sentence on stderr, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        words = {*ctx._protected_args, *ctx.args}
        compiles = bool(COMPILING & words) and not words & {"--help", "-h"}
        try:
            with precompiling(compiles), show_compilation(compiles):
                return copy_context().run(super().invoke, ctx)
        except DiffinityError as error:
            say_error(f"error: {in_flags(error)}")
            raise typer.Exit(FAILED if isinstance(error, Failure) else MISUSED) from None
        except BrokenPipeError:  # the reader closed the pipe: `main` ends quietly
            raise
        except OSError as error:  # a full disk, a read-only folder
            file_name = f"{error.filename}: " if error.filename else ""
            say_error(f"error: {file_name}{error.strerror or error}")
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt as error:
            say_error(str(error) or "interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            say_error("error: there is not enough memory: use fewer texts at a time, or a smaller length")
            raise typer.Exit(FAILED) from None


@contextmanager
def show_compilation(needed: bool) -> Iterator[None]:
    """Show in a terminal which loops are being compiled; they are compiled once after installation."""
    if not needed or not err.is_terminal:
        yield
        return
    from diffinity.compiled import reporting_compilation

    names: list[str] = []

    def show_loop(name: str) -> None:
        names.append(name)
        err.file.write(f"\r\x1b[2Kcompiling, once after installation: {len(names)} loops, now {name} ")
        err.file.flush()

    try:
        with reporting_compilation(show_loop):
            yield
    finally:
        if names:
            err.file.write("\r\x1b[2K")
            err.file.flush()


def say_error(message: str) -> None:
    """Print a message on stderr, without wrapping its lines."""
    err.print(Text(message, style="bold red"), soft_wrap=True)


def visible(text: str) -> str:
    """A text that is safe to print in a terminal: control characters are replaced by visible symbols.

    >>> visible("a\\x1b[2Jb\\n")
    'a␛[2Jb\\n'
    """
    return text.translate(_PICTURES)


_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {0x7F: 0x2421}
_PICTURES |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)

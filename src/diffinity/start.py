"""The entry point of the command line: handles Ctrl-C and closed outputs, also while modules are imported.

This module imports only the standard library, so that Ctrl-C is handled from the first moment.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130  # the exit status of a program that Ctrl-C ended
IMPORTING = "<frozen importlib._bootstrap>"
SHOW_CURSOR = b"\x1b[?25h"


def end_interrupted() -> NoReturn:
    """Print a message and exit at once: an interrupted import can't be undone."""
    if os.isatty(2):
        os.write(2, SHOW_CURSOR)
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def on_interrupt(_signal: int, frame: FrameType | None) -> None:
    """Ctrl-C: exit during imports, otherwise raise KeyboardInterrupt as usual.

    An interrupted import of a compiled module gives a traceback, another error, or nothing.
    """
    while frame is not None:
        if frame.f_code.co_filename == IMPORTING:
            end_interrupted()
        frame = frame.f_back
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; an error is one sentence and a non-zero exit (see `commands.console`)."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # unless it is ignored
            signal.signal(signal.SIGINT, on_interrupt)
        gc.disable()  # modules create 300,000 objects and no garbage; `run` enables it again
        from diffinity.cli import run

        try:
            run()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:  # before or after a command
        end_interrupted()
    except OSError as error:
        _end_without_output(error)


def _end_without_output(error: OSError) -> NoReturn:
    """Output can't be written: exit without another attempt when the interpreter ends."""
    if not isinstance(error, BrokenPipeError):  # a closed pipe needs no message
        os.write(2, f"error: {error.strerror or error}\n".encode())
    os._exit(1)


if __name__ == "__main__":
    main()

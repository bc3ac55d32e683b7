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

INTERRUPTED = 130  # what a shell says of a program that Ctrl-C ended
IMPORTING = "<frozen importlib._bootstrap>"
SHOW_CURSOR = b"\x1b[?25h"


def end_interrupted() -> NoReturn:
    """Say so and end at once: an import that is cut short can't be taken back."""
    if os.isatty(2):
        os.write(2, SHOW_CURSOR)
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def on_interrupt(_signal: int, frame: FrameType | None) -> None:
    """Ctrl-C: while modules are being imported the end, else a KeyboardInterrupt as ever.

    An interrupted import of a compiled module shows as a traceback, or as another error, or not at all.
    """
    while frame is not None:
        if frame.f_code.co_filename == IMPORTING:
            end_interrupted()
        frame = frame.f_back
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; what goes wrong is one sentence and a non-zero exit (see `commands.console`)."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored
            signal.signal(signal.SIGINT, on_interrupt)
        gc.disable()  # modules make 300,000 objects, of which none is garbage; `run` enables it again
        from diffinity.cli import run

        try:
            run()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:  # before a command had begun, or after it
        end_interrupted()
    except OSError as error:
        _end_without_output(error)


def _end_without_output(error: OSError) -> NoReturn:
    """Our output can't be written: nothing may be tried again when the interpreter ends."""
    if not isinstance(error, BrokenPipeError):  # if nobody reads what we print there is nothing to say
        os.write(2, f"error: {error.strerror or error}\n".encode())
    os._exit(1)


if __name__ == "__main__":
    main()

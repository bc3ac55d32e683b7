"""The local variables of a running loop of another library, read from its frame.

A logits processor receives the tokens so far and the scores of the next tokens; a scheduler receives only a block.
Neither receives the number of tokens left, on which the guarantee depends. The loops have it in their local
variables.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any


def outermost_call(package: str, function: str, names: Sequence[str]) -> Mapping[str, Any] | None:
    """The local variables `names` of the outermost running `function` of a package that has the first of them.

    The result is None if no such function runs; missing variables are left out.

    >>> outermost_call("transformers", "generate", ["generation_config"]) is None
    True
    """
    outermost = None
    for frame in _callers(package):
        if frame.f_code.co_name == function and names[0] in frame.f_code.co_varnames:
            outermost = frame
    if outermost is None:
        return None
    variables = outermost.f_locals
    selected = {name: variables[name] for name in names if name in variables}
    if type(variables) is dict:  # up to Python 3.12 a copy, which would keep logits alive until the next step
        variables.clear()
    return selected if names[0] in selected else None


def is_running(package: str, function: str) -> bool:
    """Whether a function with this name of a package is running.

    >>> is_running("transformers", "_sample")
    False
    """
    return any(frame.f_code.co_name == function for frame in _callers(package))


def _callers(package: str) -> Iterator[FrameType]:
    """The calling frames in modules of a package, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).split(".")[0] == package:
            yield frame
        frame = frame.f_back

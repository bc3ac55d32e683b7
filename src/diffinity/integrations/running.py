"""The local variables of a running loop of another library, read from its frame.

A logits processor receives the tokens so far and their scores, a scheduler not even the tokens. Neither receives
the number of tokens left, on which the guarantee depends. The loops have it in their local variables.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any


def outermost_call(package: str, function: str, names: Sequence[str]) -> Mapping[str, Any] | None:
    """The named local variables of the outermost running `function` of a package that has the first of them.

    None if none runs; names that it does not have are left out.

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
    found_variables = {name: variables[name] for name in names if name in variables}
    if type(variables) is dict:  # up to Python 3.12 a copy, which would keep logits alive until the next step
        variables.clear()
    return found_variables if names[0] in found_variables else None


def runs(package: str, function: str) -> bool:
    """Whether a function of that name is running, of a package.

    >>> runs("transformers", "_sample")
    False
    """
    return any(frame.f_code.co_name == function for frame in _callers(package))


def _callers(package: str) -> Iterator[FrameType]:
    """The frames that called us, of modules in a package, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).split(".")[0] == package:
            yield frame
        frame = frame.f_back

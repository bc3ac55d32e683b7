"""The errors of diffinity: one base class; every message is one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any


class DiffinityError(Exception):
    """Base of all errors that name something the caller can change; all can be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[DiffinityError], args: tuple[object, ...], state: Mapping[str, object]) -> DiffinityError:
    """An error rebuilt from its state, without a call of its constructor."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class CheckpointError(DiffinityError):
    """A model's files are missing, damaged, unsafe or do not fit together."""


class Failure(DiffinityError):
    """A valid request failed for another reason: a full disk, a cluster, a network."""


class DownloadError(Failure):
    """A named download could not be completed; the received bytes stay on disk for the next attempt."""


class InvalidArgument(DiffinityError, ValueError):
    """An argument has a shape, type or value that the function does not take."""


class ModelError(Failure):
    """A model returned invalid logits; the message says what is wrong and where."""


class MissingExtra(InvalidArgument):
    """The request needs a package from an extra of diffinity."""


def require(extra: str, doing: str, *modules: str) -> None:
    """Raise an error, before any work, if packages of an extra are not installed.

    >>> require("train", "training", "no_such_package")
    Traceback (most recent call last):
    diffinity.errors.MissingExtra: training needs no_such_package: pip install 'diffinity[train]'
    """
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"{doing} needs {', '.join(missing)}: pip install 'diffinity[{extra}]'")


class ConstraintError(DiffinityError, ValueError):
    """A constraint cannot be used as it was written."""


class ConstraintSyntaxError(ConstraintError):
    """A pattern, grammar or schema is not well formed, or is not regular.

    The message shows the source with a caret under the place; `position` is that place, in characters.
    """

    def __init__(self, message: str, source: str = "", position: int | None = None) -> None:
        self.reason = message
        self.source = source
        self.position = position
        super().__init__(message if position is None else f"{message}\n{_excerpt(source, position)}")


class UnsupportedConstraint(ConstraintError):
    """A constraint is well formed but uses a feature that is not implemented; the message names it."""


class InfeasibleConstraint(ConstraintError):
    """No text satisfies the constraint, or no such text fits the length."""


class ConstraintTooLarge(ConstraintError):
    """A constraint would cost more than a limit of `diffinity.limits` allows."""

    def __init__(self, limit: str, allowed: float, needed: float, doing: str) -> None:
        self.limit = limit
        self.allowed = allowed
        self.needed = needed
        self.doing = doing
        super().__init__(
            f"{doing} needs {limit} of at least {needed:,}, and the limit is {allowed:,}. "
            f"Simplify the constraint, or raise the limit: "
            f"`with diffinity.limits.use_limits({limit}=...):`"
        )


def _excerpt(source: str, position: int, width: int = 72) -> str:
    """The line of `source` around `position`, at most `width` characters of it, with a caret below.

    >>> print(_excerpt("abc(?=d)", 3))
        abc(?=d)
           ^
    """
    start = source.rfind("\n", 0, position) + 1
    end = source.find("\n", position)
    line = source[start : end if end >= 0 else len(source)]
    column = position - start
    left = max(0, min(column - width // 2, len(line) - width))
    excerpt = line[left : left + width]
    head = "…" if left else ""
    tail = "…" if left + width < len(line) else ""
    # Tabs and wide characters would misplace the caret; control characters would be invisible.
    printable = "".join(c if c.isprintable() else "·" for c in excerpt)
    return f"    {head}{printable}{tail}\n    {' ' * (len(head) + column - left)}^"

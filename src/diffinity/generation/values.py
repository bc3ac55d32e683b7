"""The Python value of an accepted text, or the reason why the requested type refuses it."""

from __future__ import annotations

from typing import Any

from diffinity.constraints.python_types import value_of

LONGEST_REASON = 300  # characters


def value_or_reason(requested_type: object, text: str) -> tuple[Any, str | None]:
    """The Python value of an accepted text, or the reason why the type refuses it.

    >>> value_or_reason(int, "42"), value_or_reason(int, "x" * 9)[0]
    ((42, None), None)
    """
    if requested_type is None:
        return text, None
    try:
        return value_of(requested_type, text), None
    except Exception as error:  # a validator is the user's code, which may fail in any way
        return None, reason_of(error)


def reason_of(error: Exception) -> str:
    """The reason why a value was refused, on one line; for a Pydantic model, field by field.

    >>> reason_of(ValueError("must be even"))
    'ValueError: must be even'
    """
    list_errors = getattr(error, "errors", None)
    if callable(list_errors):
        problems = list_errors()
        places = [".".join(map(str, problem["loc"])) for problem in problems]
        messages = [
            f"{place}: {problem['msg']}" if place else problem["msg"]
            for place, problem in zip(places, problems, strict=True)
        ]
        reason = "; ".join(messages)
    else:
        reason = f"{type(error).__name__}: {error}"
    reason = " ".join(reason.split())
    return reason if len(reason) <= LONGEST_REASON else reason[: LONGEST_REASON - 1] + "…"

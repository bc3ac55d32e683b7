"""The one spelling of each JSON value, and the white space between its parts.

A value is spelled as `json.dumps(value, ensure_ascii=False)` does, except that a number without a fraction is
always an integer: `1.0` and `1e2` are `1` and `100`. Two values are equal exactly if their spellings are.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.schema.options import Options
from diffinity.errors import ConstraintSyntaxError
from diffinity.limits import charged_cache


def spell(value: Any, *, compact: bool = False) -> str:
    """The canonical spelling of a JSON value; an object's names stay in their order.

    >>> spell({"a": [1.0, "é"]}), spell([True, None], compact=True)
    ('{"a": [1, "é"]}', '[true,null]')
    """
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":") if compact else (", ", ": "))


def _plain(value: Any) -> Any:
    """The value with every whole number as an `int`."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def spell_number(value: int | float) -> str:
    """The canonical spelling of a number.

    >>> spell_number(1.0), spell_number(-0.0), spell_number(2.5), spell_number(1e-7)
    ('1', '0', '2.5', '1e-07')
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ConstraintSyntaxError(f"{value!r} is no JSON number")
        if value.is_integer():
            return str(int(value))
    return repr(value)


def spell_string(value: str) -> bytes:
    """The canonical spelling of a string, with its quotes.

    >>> spell_string('é "x"')
    b'"\\xc3\\xa9 \\\\"x\\\\""'
    """
    return utf8(json.dumps(value, ensure_ascii=False))


def utf8(text: str) -> bytes:
    """The UTF-8 bytes of a text; a lone surrogate is an error.

    >>> utf8("é")
    b'\\xc3\\xa9'
    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ConstraintSyntaxError(f"{text!r} has a surrogate, which UTF-8 cannot spell") from None


@dataclass(frozen=True)
class Spelling:
    """The punctuation of arrays and objects, each with the white space that may surround it."""

    comma: ByteDFA
    colon: ByteDFA
    open_array: ByteDFA
    close_array: ByteDFA
    open_object: ByteDFA
    close_object: ByteDFA


@charged_cache(maxsize=16)
def spelling(options: Options) -> Spelling:
    """The punctuation that the options ask for.

    >>> spelling(Options()).comma.accepts(b", "), spelling(Options(whitespace="compact")).comma.accepts(b", ")
    (True, False)
    """
    before = after = ByteDFA.epsilon()
    if options.whitespace == "flexible":
        before = after = ByteDFA.from_strings([b" ", b"\t", b"\n", b"\r"]).repeat(0, options.max_space)
    space = ByteDFA.literal(b" ") if options.whitespace == "dumps" else after
    lit = ByteDFA.literal
    return Spelling(
        comma=before.concat(lit(b","), space),
        colon=before.concat(lit(b":"), space),
        open_array=lit(b"[").concat(after),
        close_array=before.concat(lit(b"]")),
        open_object=lit(b"{").concat(after),
        close_object=before.concat(lit(b"}")),
    )

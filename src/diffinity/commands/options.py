"""The options that several commands share, and the constraint that they describe."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diffinity.errors import Failure, InvalidArgument
from diffinity.limits import Limits, set_limits

if TYPE_CHECKING:
    from diffinity.constraints import Constraint

GRAMMAR_DEPTH = 5  # the default of `request.combined`

RegexOption = Annotated[
    str | None, typer.Option("--regex", help="A regular expression, as in Python's re.fullmatch.")
]
SchemaOption = Annotated[Path | None, typer.Option("--json-schema", help="A file with a JSON Schema.")]
SchemaOptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--schema-option",
        metavar="NAME=VALUE",
        help="How the schema is read: open=true, order=any, lenient=true, max_depth=N …; repeatable.",
    ),
]
GrammarOption = Annotated[Path | None, typer.Option("--grammar", help="A file with a grammar (EBNF).")]
GrammarDepthOption = Annotated[
    int, typer.Option("--grammar-depth", help="Maximum depth of the grammar's recursion.", min=0)
]
LimitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=N",
        help="Raise or lower a limit on the cost of a constraint: "
        + ", ".join(limit.name for limit in fields(Limits))
        + "; "
        "repeatable.",
    ),
]
ChoiceOption = Annotated[list[str] | None, typer.Option("--choice", help="A text to choose from; repeatable.")]
TypeOption = Annotated[str | None, typer.Option("--type", help="module:Name of a Python type or Pydantic model.")]
ContainsOption = Annotated[
    list[str] | None, typer.Option("--contains", help="A word that must occur; repeatable.")
]
NotOption = Annotated[
    list[str] | None, typer.Option("--not-regex", help="A regular expression that must not match; repeatable.")
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", help="Folder, hub id or name (`diffinity models`); default: the embedded model."),
]
DeviceOption = Annotated[str, typer.Option("--device", help="Where the model runs: cpu, cuda, cuda:1 …")]


@dataclass(frozen=True)
class ConstraintOptions:
    """The constraints of a command line."""

    regex: str | None = None
    json_schema: Path | None = None
    choice: list[str] | None = None
    type_name: str | None = None
    contains: list[str] | None = None
    not_regex: list[str] | None = None
    grammar: Path | None = None
    grammar_depth: int = GRAMMAR_DEPTH
    schema_options: list[str] | None = None

    def constraint(self) -> Constraint | None:
        """The conjunction of all constraints; None if there is none."""
        from diffinity.constraints.python_types import OfType
        from diffinity.request import combined, named_type, schema_arguments

        options = schema_arguments(
            dict(read_pairs("--schema-option", self.schema_options)), has_schema=self.json_schema is not None
        )
        return combined(
            regex=self.regex,
            json_schema=None if self.json_schema is None else read_text(self.json_schema),
            schema_options=options,
            grammar=None if self.grammar is None else read_text(self.grammar),
            grammar_depth=self.grammar_depth,
            choice=self.choice,
            contains=self.contains,
            not_regex=self.not_regex,
            more=[] if self.type_name is None else [OfType(named_type(self.type_name, "--type"))],
        )

    def in_words(self, prefix: str = "") -> list[tuple[str, str]]:
        """The constraints in words: pairs of a description and the source."""
        from diffinity.request import in_words

        return in_words(
            regex=self.regex,
            json_schema=None if self.json_schema is None else self.json_schema.name,
            grammar=None if self.grammar is None else self.grammar.name,
            choice=self.choice,
            type_name=self.type_name,
            contains=self.contains,
            not_regex=self.not_regex,
            prefix=prefix,
        )


def check_device(name: str) -> None:
    """Refuse a device that torch does not know, or that is not available.

    >>> check_device("abacus")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: --device abacus can't be used: ...
    """
    from diffinity.models.loading import usable_device

    try:
        usable_device(name)
    except InvalidArgument as error:
        raise InvalidArgument(f"--{error}") from None


def read_text(path: Path) -> str:
    """The text of a file that the user named."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path} can't be read: it is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise InvalidArgument(f"{path} can't be read: {error.strerror}") from None


def write_text(path: Path, text: str) -> None:
    """Write a file that the user named, atomically."""
    if path.exists() and not path.is_file():  # a pipe or a device can't be replaced
        path.write_text(text, encoding="utf-8")
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise Failure(f"{path} can't be written: {error.strerror}") from None


def check_writable(path: Path) -> None:
    """Refuse a file that can't be written, before any work is done; an existing file is not changed."""
    if path.is_dir():
        raise InvalidArgument(f"{path} can't be written: it is a folder")
    if not path.parent.is_dir():
        raise InvalidArgument(f"{path} can't be written: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InvalidArgument(f"{path} can't be written: {os.strerror(errno.EACCES)}")


def read_pairs(flag: str, pairs: Sequence[str] | None) -> Iterator[tuple[str, Any]]:
    """The NAME=VALUE pairs of a flag; a value that is not JSON is a string.

    >>> dict(read_pairs("--schema-option", ["open=true", "max_depth=4", "order=any"]))
    {'open': True, 'max_depth': 4, 'order': 'any'}
    """
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name or not value:
            raise InvalidArgument(f"{flag} takes NAME=VALUE, not {pair!r}")
        try:
            yield name.replace("-", "_"), json.loads(value)
        except ValueError:
            yield name.replace("-", "_"), value


def apply_limits(pairs: Sequence[str] | None) -> None:
    """Apply the limits of `--limit` until the command ends; every command runs in a new `contextvars` context."""
    set_limits(**read_limits(pairs))


def read_limits(pairs: Sequence[str] | None) -> dict[str, float]:
    """The values of `--limit`, by name.

    >>> read_limits(["dfa_states=many"])
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: --limit dfa_states takes a whole number above 0, not 'many'
    """
    kinds = {limit.name: limit.type for limit in fields(Limits)}
    changes: dict[str, float] = {}
    for name, value in read_pairs("--limit", pairs):
        if name not in kinds:
            raise InvalidArgument(f"there is no limit {name!r}: there are {', '.join(kinds)}")
        is_integer = kinds[name] == "int"
        if isinstance(value, bool) or not isinstance(value, int if is_integer else int | float) or not value > 0:
            raise InvalidArgument(f"--limit {name} takes a {'whole ' * is_integer}number above 0, not {value!r}")
        changes[name] = value
    return changes

"""The options that several commands share: what the texts must satisfy."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diffinity.errors import InvalidArgument

if TYPE_CHECKING:
    from diffinity.constraints import Constraint

RegexOption = Annotated[
    str | None, typer.Option("--regex", help="A regular expression, as Python's re.fullmatch has it.")
]
SchemaOption = Annotated[Path | None, typer.Option("--json-schema", help="A file with a JSON Schema.")]
ChoiceOption = Annotated[
    list[str] | None, typer.Option("--choice", help="One of these texts; may be given again.")
]
TypeOption = Annotated[str | None, typer.Option("--type", help="module:Name of a Python type or Pydantic model.")]
ContainsOption = Annotated[
    list[str] | None, typer.Option("--contains", help="A word that occurs; may be given again.")
]
NotOption = Annotated[
    list[str] | None, typer.Option("--not-regex", help="What must not match; may be given again.")
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", help="Folder, hub id or name (`diffinity models`); else the embedded one."),
]
DeviceOption = Annotated[str, typer.Option("--device", help="Where the model runs: cpu, cuda, cuda:1 …")]


@dataclass(frozen=True)
class Asked:
    """The constraints of a command line."""

    regex: str | None = None
    json_schema: Path | None = None
    choice: list[str] | None = None
    type_name: str | None = None
    contains: list[str] | None = None
    not_regex: list[str] | None = None

    def constraint(self) -> Constraint | None:
        """All of them at once; None if there is none."""
        from diffinity.constraints import constraint
        from diffinity.request import combined

        return combined(
            regex=self.regex,
            json_schema=None if self.json_schema is None else read_text(self.json_schema),
            choice=self.choice,
            contains=self.contains,
            not_regex=self.not_regex,
            more=[] if self.type_name is None else [constraint(named_type(self.type_name))],
        )

    def in_words(self, prefix: str = "") -> list[tuple[str, str]]:
        """Each for a person."""
        from diffinity.request import in_words

        return in_words(
            regex=self.regex,
            json_schema=None if self.json_schema is None else self.json_schema.name,
            choice=self.choice,
            type_name=self.type_name,
            contains=self.contains,
            not_regex=self.not_regex,
            prefix=prefix,
        )


def check_device(name: str) -> None:
    """Refuse a device that torch does not know, or that is not here.

    >>> check_device("abacus")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: --device abacus can't be used: ...
    """
    from diffinity.models.loading import usable_device

    try:
        usable_device(name)
    except InvalidArgument as error:
        raise InvalidArgument(f"--{error}") from None


def named_type(name: str) -> object:
    """The object that `module:Name` names; the current folder is looked in too.

    >>> named_type("uuid:UUID").__name__
    'UUID'
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise InvalidArgument(f"--type takes module:Name, not {name!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # importing runs the user's code, which may fail in any way
        raise InvalidArgument(
            f"--type {name}: importing {module_name!r} failed with {type(error).__name__}: {error}"
        ) from None
    finally:
        sys.path.pop(0)
    if not hasattr(module, attribute):
        raise InvalidArgument(f"--type {name}: the module {module_name!r} has no {attribute!r}")
    return getattr(module, attribute)


def read_text(path: Path) -> str:
    """The text of a file that the user named."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path} can't be read: it is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise InvalidArgument(f"{path} can't be read: {error.strerror}") from None


def write_text(path: Path, text: str) -> None:
    """Write a file that the user named."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(f"{path} can't be written: {error.strerror}") from None


def check_writable(path: Path) -> None:
    """Refuse a file that can't be written before work is done for it; leaves what is there as it is."""
    if path.is_dir():
        raise InvalidArgument(f"{path} can't be written: it is a folder")
    if not path.parent.is_dir():
        raise InvalidArgument(f"{path} can't be written: there is no folder {path.parent}")

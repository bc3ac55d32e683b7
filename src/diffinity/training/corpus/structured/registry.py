"""The register of document kinds: a kind is a named function from a random generator to a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from random import Random
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

Family: TypeAlias = Literal["json", "line"]
Record: TypeAlias = dict[str, object]

# Weight of bare values and one-word lines: these documents contain little, so they are drawn less often.
TINY: Final = 0.25


class Absence(Enum):
    """The type of `ABSENT`, the value of an optional key that this document leaves out."""

    ABSENT = "absent"


ABSENT: Final = Absence.ABSENT


@dataclass(frozen=True)
class Kind:
    """One kind of document: its name, its family, the function that draws its value, its weight."""

    name: str
    family: Family
    function: Callable[[Random], object]
    weight: float = 1.0


_registered: dict[str, Kind] = {}
REGISTERED: Final[Mapping[str, Kind]] = MappingProxyType(_registered)


def json_kind(weight: float = 1.0) -> Callable[[Callable[[Random], object]], Callable[[Random], object]]:
    """Register a function whose value becomes one JSON document; `ABSENT` members are dropped from it.

    >>> present({"id": 7, "note": ABSENT, "tags": ["a", ABSENT]})
    {'id': 7, 'tags': ['a']}
    """

    def register(function: Callable[[Random], object]) -> Callable[[Random], object]:
        @wraps(function)
        def draw(rng: Random) -> object:
            return present(function(rng))

        _add(Kind(function.__name__, "json", draw, weight))
        return draw

    return register


def line_kind(weight: float = 1.0) -> Callable[[Callable[[Random], str]], Callable[[Random], str]]:
    """Register a function whose string is the document itself (one or a few lines of text).

    >>> Kind("seven", "line", lambda rng: "7").function(Random(0))
    '7'
    """

    def register(function: Callable[[Random], str]) -> Callable[[Random], str]:
        _add(Kind(function.__name__, "line", function, weight))
        return function

    return register


def present(value: object) -> object:
    """Return the value without its `ABSENT` members, at every level.

    >>> present({"user": {"name": "Ada", "phone": ABSENT}})
    {'user': {'name': 'Ada'}}
    """
    if isinstance(value, dict):
        return {key: present(member) for key, member in value.items() if member is not ABSENT}
    if isinstance(value, (list, tuple)):
        return [present(member) for member in value if member is not ABSENT]
    return value


def _add(kind: Kind) -> None:
    if kind.name in _registered:
        raise ValueError(f"two kinds of document are named {kind.name!r}")
    _registered[kind.name] = kind

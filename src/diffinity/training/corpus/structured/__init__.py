"""Short structured documents for training: JSON records of many kinds, and lines that follow a format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from random import Random
from statistics import median
from typing import Final

from diffinity.training.corpus.structured import (
    api,
    calls,
    commerce,
    config,
    events,
    generic,
    geo,
    kubernetes,
    lines,
    logs,
    media,
    people,
    plain,
    schemas,
    tokens,
    travel,
)
from diffinity.training.corpus.structured.registry import REGISTERED, Family, Kind

__all__ = [
    "KINDS",
    "LONGEST",
    "SEPARATORS",
    "Family",
    "Kind",
    "chance",
    "document",
    "rank_of_kinds",
    "structured_documents",
]

# Importing these modules is what registers their kinds.
THEMES: Final = (
    api,
    calls,
    commerce,
    config,
    events,
    generic,
    geo,
    kubernetes,
    lines,
    logs,
    media,
    people,
    plain,
    schemas,
    tokens,
    travel,
)
KINDS: Final[Mapping[str, Kind]] = REGISTERED

# In characters: what a model of 96 to 128 tokens a document can mostly hold.
LONGEST: Final = 330
SPACED_SHARE: Final = 0.6
LEVELLED: Final = 40  # how many of the shortest kinds have about the same chance
RARER: Final = 1.5  # the exponent with which the chance falls after those
SEPARATORS: Final = {"spaced": (", ", ": "), "compact": (",", ":")}


def document(kind: Kind, rng: Random) -> str:
    """Return one document of the kind; draws again until it has at most `LONGEST` characters.

    >>> json.loads(document(KINDS["geo_point"], Random(0)))["type"]
    'Point'
    """
    separators = SEPARATORS["spaced" if rng.random() < SPACED_SHARE else "compact"]
    while True:
        value = kind.function(rng)
        if isinstance(value, str) and kind.family == "line":
            text = value
        else:
            text = json.dumps(value, ensure_ascii=False, separators=separators)
        if len(text) <= LONGEST:
            return text


def structured_documents(rng: Random, kinds: Iterable[str] | None = None) -> Iterator[str]:
    """Yield documents without end, of all kinds or only of the kinds named: short kinds more often.

    >>> len(next(structured_documents(Random(0)))) <= LONGEST
    True
    """
    names = tuple(KINDS) if kinds is None else tuple(kinds)
    unknown = [name for name in names if name not in KINDS]
    if unknown or not names:
        raise ValueError(
            f"expected names of kinds among {len(KINDS)} known ones, got unknown {unknown} in {names}"
        )
    return _documents(rng, [KINDS[name] for name in names])


def _documents(rng: Random, chosen: list[Kind]) -> Iterator[str]:
    weights = [chance(kind) for kind in chosen]
    while True:
        yield document(rng.choices(chosen, weights)[0], rng)


def chance(kind: Kind) -> float:
    """How often a kind is drawn, up to a factor.

    >>> chance(KINDS["geo_point"]) > chance(KINDS["order"])
    True
    """
    return kind.weight * (rank_of_kinds()[kind.name] + LEVELLED) ** -RARER


@cache
def rank_of_kinds() -> Mapping[str, int]:
    """The place of every kind when they are ordered by the usual length of their documents, the shortest first.

    >>> rank_of_kinds()["geo_point"] < len(KINDS) / 2
    True
    """
    lengths = {
        name: median(len(document(kind, Random(f"{name}/{draw}"))) for draw in range(9))
        for name, kind in KINDS.items()
    }
    return {name: rank for rank, name in enumerate(sorted(lengths, key=lambda name: (lengths[name], name)))}

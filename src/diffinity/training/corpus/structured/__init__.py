"""Short structured documents for training: JSON records of many kinds, and lines that follow a format."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import accumulate
from random import Random
from typing import Final

from diffinity.training.corpus.structured import (
    api,
    calls,
    commerce,
    config,
    events,
    everyday,
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
    writing,
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
    "place_of_kinds",
    "structured_documents",
]

# Importing these modules registers their kinds.
THEMES: Final = (
    api,
    calls,
    commerce,
    config,
    events,
    everyday,
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
    writing,
)
KINDS: Final[Mapping[str, Kind]] = REGISTERED

# Maximum number of characters; most documents of this length fit in 96 to 128 tokens.
LONGEST: Final = 330
SPACED_SHARE: Final = 0.6  # share of the JSON documents with spaces after commas and colons
FREQUENCY_OFFSET: Final = 8  # about this many of the plainest kinds have about the same probability
FREQUENCY_EXPONENT: Final = 0.8  # exponent with which the probability of the other kinds falls
# Kinds that people ask for first, with weights: this share of the documents is of these kinds.
EVERYDAY_SHARE: Final = 0.65
EVERYDAY: Final = {
    "everyday_object": 14, "everyday_list": 4, "everyday_call": 5, "everyday_order": 6, "everyday_csv": 6,
    "everyday_lines": 4, "everyday_pairs": 2, "everyday_function_call": 3, "everyday_markdown": 1,
    "everyday_insert": 1, "everyday_select": 3, "generic_object": 3, "recipe_card": 5, "three_line_poem": 4,
    "price_line": 3, "email_text": 2, "date_text": 2, "one_word": 3, "list_of_errands": 2, "shopping_list": 2,
    "simple_person": 2, "email_call": 2, "flight_call": 1, "directions_call": 1, "translate_call": 1,
    "weather_call": 1, "lights_call": 1, "timer_call": 1, "appointment_line": 1, "sql_select": 1,
    "address_record": 1, "contact": 1, "string_list": 1, "integer_list": 1, "key_value_line": 1,
}  # fmt: skip
SAMPLED_DOCUMENTS: Final = 40  # number of sample documents that determine how plain a kind is
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
    """Yield an endless stream of documents of all kinds or of the named kinds; plain kinds are more frequent.

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
    """The probability of a kind among all kinds.

    >>> chance(KINDS["geo_point"]) > chance(KINDS["geo_polygon"])
    True
    >>> round(sum(chance(kind) for kind in KINDS.values()), 6)
    1.0
    """
    if kind.name in EVERYDAY:
        return EVERYDAY_SHARE * EVERYDAY[kind.name] / sum(EVERYDAY.values())
    return (1 - EVERYDAY_SHARE) * _plainness(kind) / _total_plainness()


def _plainness(kind: Kind) -> float:
    return kind.weight * (place_of_kinds()[kind.name] + FREQUENCY_OFFSET) ** -FREQUENCY_EXPONENT


@cache
def _total_plainness() -> float:
    return sum(_plainness(kind) for name, kind in KINDS.items() if name not in EVERYDAY)


@cache
def place_of_kinds() -> Mapping[str, float]:
    """For every kind, the total weight of all plainer kinds; a kind is plain if its documents compress well.

    >>> place_of_kinds()["lights_call"] < place_of_kinds()["bounding_box"]
    True
    """
    plainest_first = sorted(KINDS.values(), key=lambda kind: (_compressed_size(kind), kind.name))
    weight_of_plainer = accumulate((kind.weight for kind in plainest_first), initial=0.0)
    return {kind.name: place for kind, place in zip(plainest_first, weight_of_plainer, strict=False)}


def _compressed_size(kind: Kind) -> int:
    """The compressed size of sample documents in bytes, plus one per digit, because digits are unpredictable."""
    documents = "\n".join(document(kind, Random(f"{kind.name}/{draw}")) for draw in range(SAMPLED_DOCUMENTS))
    return len(zlib.compress(documents.encode(), 9)) + sum(character.isdigit() for character in documents)

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
# Kinds that people ask for first; they are drawn more often.
EVERYDAY: Final = (
    "invoice", "order", "customer_order", "cart", "shopping_receipt", "csv_with_header", "csv_rows",
    "email_text", "date_text", "one_word", "simple_person", "person_details", "contact", "user_profile",
    "recipe_card",
    "restaurant_call", "flight_call", "create_event_call", "email_call", "directions_call", "sql_select",
    "product_record", "price_line", "address_record", "employee", "reminder", "task", "booking",
)  # fmt: skip
EVERYDAY_FACTOR: Final = 4.0  # factor on the probability of these kinds
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
    """The unnormalised probability of a kind.

    >>> chance(KINDS["geo_point"]) > chance(KINDS["geo_polygon"])
    True
    """
    preference = EVERYDAY_FACTOR if kind.name in EVERYDAY else 1.0
    return preference * kind.weight * (place_of_kinds()[kind.name] + FREQUENCY_OFFSET) ** -FREQUENCY_EXPONENT


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

"""Kinds of JSON value without a subject: arrays, maps, matrices, ranges and bare values."""

from __future__ import annotations

from random import Random

from diffinity.training.corpus.structured.names import FIRST_NAMES, person
from diffinity.training.corpus.structured.phrases import message
from diffinity.training.corpus.structured.places import PLACES
from diffinity.training.corpus.structured.registry import TINY, Record, json_kind
from diffinity.training.corpus.structured.values import (
    COLOURS,
    FRUIT,
    STATUSES,
    TAGS,
    WORDS,
    day,
    decimal,
    flag,
    maybe,
    nullable,
    number_id,
    some,
    timestamp,
    url,
    uuid,
)

_POOLS: tuple[tuple[str, ...], ...] = (
    COLOURS,
    FRUIT,
    TAGS,
    WORDS,
    FIRST_NAMES,
    tuple(city.city for city in PLACES),
    STATUSES,
)


def _scalar(rng: Random) -> object:
    return rng.choice(
        (
            rng.randint(-100, 1000),
            decimal(rng, -10, 100),
            rng.choice(WORDS),
            flag(rng),
            None,
            day(rng).isoformat(),
        )
    )


@json_kind()
def integer_list(rng: Random) -> list[int]:
    low, high = rng.choice(((0, 9), (1, 6), (-20, 20), (0, 100), (1, 1000), (-5000, 90_000)))
    numbers = [rng.randint(low, high) for _ in range(rng.randint(1, 12))]
    return sorted(numbers) if flag(rng, 0.3) else numbers


@json_kind()
def decimal_list(rng: Random) -> list[float]:
    low, high, digits = rng.choice(((0, 1, 2), (0, 1, 3), (-1, 1, 2), (0, 100, 1), (-40, 40, 1), (0, 10, 2)))
    return [decimal(rng, low, high, digits) for _ in range(rng.randint(2, 10))]


@json_kind()
def string_list(rng: Random) -> list[str]:
    return some(rng, rng.choice(_POOLS), 1, 8)


@json_kind(weight=TINY)
def boolean_list(rng: Random) -> list[bool]:
    return [flag(rng) for _ in range(rng.randint(1, 12))]


@json_kind()
def mixed_list(rng: Random) -> list[object]:
    return [_scalar(rng) for _ in range(rng.randint(2, 7))]


@json_kind()
def date_list(rng: Random) -> list[str]:
    return sorted(day(rng).isoformat() for _ in range(rng.randint(1, 5)))


@json_kind()
def url_list(rng: Random) -> list[str]:
    return [url(rng) for _ in range(rng.randint(1, 4))]


@json_kind()
def uuid_list(rng: Random) -> list[str]:
    return [uuid(rng) for _ in range(rng.randint(1, 3))]


@json_kind()
def email_list(rng: Random) -> list[str]:
    return [person(rng).email for _ in range(rng.randint(1, 5))]


@json_kind()
def matrix(rng: Random) -> list[list[float]]:
    rows, columns = rng.randint(2, 4), rng.randint(2, 4)
    is_int = flag(rng, 0.6)
    return [[rng.randint(-9, 20) if is_int else decimal(rng, -1, 1) for _ in range(columns)] for _ in range(rows)]


@json_kind()
def list_of_lists(rng: Random) -> list[object]:
    return [[rng.choice(FRUIT), rng.randint(0, 99), flag(rng)] for _ in range(rng.randint(2, 5))]


@json_kind()
def id_name_list(rng: Random) -> list[object]:
    first = rng.choice((0, 1, 1, number_id(rng)))
    names = some(rng, rng.choice(_POOLS), 2, 5)
    return [{"id": first + offset, "name": name} for offset, name in enumerate(names)]


@json_kind()
def key_value_list(rng: Random) -> list[object]:
    return [{"key": key, "value": _scalar(rng)} for key in some(rng, WORDS, 1, 5)]


@json_kind()
def count_map(rng: Random) -> Record:
    return {name: rng.randint(0, 250) for name in some(rng, rng.choice(_POOLS), 1, 7)}


@json_kind()
def number_map(rng: Random) -> Record:
    return {name: decimal(rng, -5, 100) for name in some(rng, rng.choice(_POOLS[1:4]), 1, 5)}


@json_kind()
def string_map(rng: Random) -> Record:
    keys = some(rng, WORDS, 1, 5)
    return {key: rng.choice(rng.choice(_POOLS)) for key in keys}


@json_kind()
def list_map(rng: Random) -> Record:
    return {key: some(rng, rng.choice(_POOLS), 0, 3) for key in some(rng, TAGS, 1, 4)}


@json_kind()
def range_object(rng: Random) -> Record:
    low = rng.choice((0, rng.randint(-50, 50), decimal(rng, 0, 5, 1)))
    width = rng.choice((1, 10, rng.randint(2, 100)))
    return {
        "min": low,
        "max": round(low + width, 1),
        "step": maybe(rng, rng.choice([step for step in (1, 5, 0.5, 0.1) if step <= width])),
        "default": maybe(rng, nullable(rng, low)),
        "unit": maybe(rng, rng.choice(("cm", "kg", "px", "ms", "%", "km")), 0.6),
    }


@json_kind()
def coordinate_pair(rng: Random) -> Record:
    is_int = flag(rng)
    axes = ("x", "y", "z") if flag(rng, 0.4) else ("x", "y")
    point = {axis: rng.randint(-100, 500) if is_int else decimal(rng, -10, 10) for axis in axes}
    return {**point, "label": maybe(rng, rng.choice("ABCDEFG"), 0.4), "visible": maybe(rng, flag(rng), 0.3)}


@json_kind()
def rectangle(rng: Random) -> Record:
    return {
        "shape": rng.choice(("rectangle", "box", "ellipse", "image")),
        "x": rng.randint(0, 800),
        "y": rng.randint(0, 600),
        "width": rng.randint(4, 900),
        "height": rng.randint(4, 900),
        "fill": maybe(rng, nullable(rng, rng.choice(COLOURS))),
        "rotation": maybe(rng, rng.choice((0, 45, 90, -30, 12.5)), 0.4),
        "opacity": maybe(rng, rng.choice((0.25, 0.5, 0.8, 1)), 0.4),
    }


@json_kind()
def time_series(rng: Random) -> list[object]:
    times = sorted(timestamp(rng) for _ in range(rng.randint(1, 4)))
    return [{"time": time, "value": decimal(rng, -20, 120, 1)} for time in times]


@json_kind(weight=TINY)
def bare_number(rng: Random) -> float:
    return rng.choice((rng.randint(-99, 999), number_id(rng), decimal(rng, -100, 1000), decimal(rng, 0, 1, 3), 0))


@json_kind(weight=TINY)
def bare_string(rng: Random) -> str:
    return rng.choice(
        (rng.choice(WORDS), rng.choice(TAGS), person(rng).name, day(rng).isoformat(), message(rng), url(rng))
    )


@json_kind(weight=TINY / 5)
def bare_constant(rng: Random) -> object:
    return rng.choice((True, False, None, [], {}, ""))

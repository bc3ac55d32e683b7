"""`constraint(x)` against Python's own parsers of the same values."""

from __future__ import annotations

import datetime
import enum
import json
import random
import re
import uuid
from dataclasses import dataclass
from typing import Any, Literal, NewType, Optional

import pytest

from diffinity.constraints import Choice, Or, Regex, Text, constraint
from diffinity.errors import InvalidArgument


class Colour(enum.Enum):
    RED = "red"
    ONE = 1
    NONE = None


@dataclass
class Point:
    x: int
    name: str


def test_values_that_are_constraints_already() -> None:
    assert constraint("a+") == Text("a+")
    assert constraint(re.compile("A+", re.I)) == Regex("A+", re.I)
    assert constraint(["a", Text("b")]) == Choice(["a", Text("b")])
    assert constraint(Text("x")) == Text("x")


def test_every_day_of_a_millennium_and_no_other_date() -> None:
    dates = constraint(datetime.date)
    for year in (1, 4, 100, 400, 1000, 1900, 1999, 2000, 2023, 2024, 9999, 0):
        for month in range(14):
            for day in range(33):
                text = f"{year:04}-{month:02}-{day:02}"
                try:
                    datetime.date.fromisoformat(text)
                except ValueError:
                    assert not dates.accepts(text), text
                else:
                    assert dates.accepts(text), text
    days = (datetime.date.max - datetime.date.min).days + 1
    assert dates.dfa().count(10) == days


def _written(kind: Any, rng: random.Random) -> list[str]:
    return [constraint(kind).dfa().sample(rng, 40).decode() for _ in range(100)]


def test_samples_of_each_bare_type_are_read_by_python() -> None:
    rng = random.Random(0)
    for text in _written(datetime.datetime, rng):
        assert datetime.datetime.fromisoformat(text).isoformat() in (text, text.replace(".000000", ""))
    for text in _written(datetime.time, rng):
        datetime.time.fromisoformat(text)
    for text in _written(uuid.UUID, rng):
        assert str(uuid.UUID(text)) == text
    for text in _written(int, rng):
        assert str(int(text)) == text or text == "-0"
    for text in _written(float, rng):
        json.loads(text)


@pytest.mark.parametrize("value", [0, -7, 12345678901234567890, 1.5, -0.25, 1e300, 1e-7, True, False, None])
def test_what_json_writes_is_accepted(value: Any) -> None:
    assert constraint(type(value)).accepts(json.dumps(value))


def test_any_text_is_a_str() -> None:
    assert constraint(str).accepts("é\n\x00")
    assert not constraint(str).accepts(b"\xff")


def test_literals_enums_and_unions_are_choices() -> None:
    assert constraint(Literal["a", 3, True, None]) == Choice(["a", "3", "true", "null"])
    assert constraint(Literal[Colour.RED]) == Choice(["red"])
    assert constraint(Colour) == Choice(["red", "1", "null"])
    assert isinstance(constraint(Optional[int]), Or)  # noqa: UP045
    assert constraint(int | None).accepts("null")
    assert not constraint(int | None).accepts("true")


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (list[int], "[1, 2]", '["a"]'),
        (dict[str, bool], '{"a": true}', '{"a": 1}'),
        (tuple[int, str], '[1, "a"]', "[1]"),
        (Point, '{"x": 1, "name": "a"}', '{"x": 1}'),
        ({"type": "boolean"}, "true", "1"),
    ],
)
def test_containers_and_classes_are_json(kind: Any, good: str, bad: str) -> None:
    made = constraint(kind)
    spellings = [good, json.dumps(json.loads(good), separators=(",", ":"))]
    assert any(made.accepts(spelling) for spelling in spellings)
    assert not made.accepts(bad)


def test_a_pydantic_model_is_json() -> None:
    import pydantic

    class User(pydantic.BaseModel):
        age: int
        tag: Literal["a", "b"] = "a"

    rng = random.Random(0)
    for _ in range(20):
        User.model_validate_json(constraint(User).dfa().sample(rng))


def test_a_new_type_is_what_it_was_made_of() -> None:
    assert constraint(NewType("Age", int)) == constraint(int)


@pytest.mark.parametrize("value", [3, object(), complex, lambda: None, b"bytes"])
def test_what_has_no_constraint_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="no constraint for"):
        constraint(value)

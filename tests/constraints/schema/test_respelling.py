"""`spelling="any"`: other spellings of the same values, against Python's own reader of JSON."""

from __future__ import annotations

import json
import random
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diffinity.constraints.schema import JsonSchema
from diffinity.constraints.schema.spelling import spell
from diffinity.errors import InvalidArgument

CALM = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

SCHEMAS: dict[str, Any] = {
    "anything": True,
    "names and bounds": {
        "type": "object",
        "properties": {"größe": {"type": "number", "minimum": -2, "maximum": 300}, "a/b": {"type": "integer"}},
        "required": ["größe"],
    },
    "lists of values": {"items": {"enum": [1, 10, 200, 0.5, "é", "<b>", "\n", None]}, "type": "array"},
    "distinct values": {"items": {"enum": [0, 1, 10, "ü"]}, "uniqueItems": True, "type": "array"},
    "exactly one": {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 5}]},
    "not": {"not": {"enum": [1, "é", "日本"]}, "type": ["number", "string"]},
    "patterns": {"type": "string", "pattern": "^[a-zäé😀]{1,3}$"},
}


@lru_cache
def both(name: str) -> tuple[JsonSchema, JsonSchema]:
    """The constraint of one spelling and that of all."""
    shallow: dict[str, Any] = {"open": True, "any_depth": 1}
    return JsonSchema(SCHEMAS[name], **shallow), JsonSchema(SCHEMAS[name], **shallow, spelling="any")


def respelled(value: Any, rng: random.Random) -> str:
    """A spelling of the value that Python reads as the same, drawn at random."""
    if isinstance(value, list):
        return "[" + ", ".join(respelled(inner, rng) for inner in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{respelled(n, rng)}: {respelled(v, rng)}" for n, v in value.items()) + "}"
    canonical = spell(value)
    if isinstance(value, str):
        text = json.dumps(value) if rng.random() < 0.5 else canonical
        text = text.replace("/", "\\/") if rng.random() < 0.5 else text
        return text.replace("<", "\\u003C") if rng.random() < 0.5 else text
    if isinstance(value, bool) or value is None:
        return canonical
    forms = [canonical]
    if "e" not in canonical:
        zeros = "0" * rng.randint(1, 3)
        forms.append(canonical + zeros if "." in canonical else f"{canonical}.{zeros}")
    digits = canonical.lstrip("-")
    if digits[0] != "0" and digits[1:] == "0" * (len(digits) - 1) and len(digits) > 1:
        forms.append(canonical.rstrip("0") + rng.choice(("e", "E", "e+", "E+0")) + str(len(digits) - 1))
    if canonical == "0":
        forms += ["-0", "-0.0"]
    return rng.choice(forms)


scalars = st.sampled_from(
    [
        0,
        1,
        -1,
        10,
        200,
        5,
        0.5,
        2.25,
        -1.5,
        300,
        1e-7,
        10**6,
        "é",
        "<b>",
        "a/b",
        "\n",
        "日本",
        "ä😀",
        "ü",
        '"\\',
        None,
        True,
    ]
)
values = st.one_of(
    scalars,
    st.lists(scalars, max_size=3),
    st.dictionaries(st.sampled_from(["größe", "a/b", "x", "\u0001"]), scalars, max_size=3),
)


@pytest.mark.parametrize("name", SCHEMAS)
@CALM
@given(value=values, seed=st.integers(0, 99))
def test_a_text_is_accepted_exactly_if_its_canonical_spelling_is(name: str, value: Any, seed: int) -> None:
    canonical, free = both(name)
    text = respelled(value, random.Random(seed))
    assert json.loads(text) == value
    assert free.accepts(text) == canonical.accepts(spell(value)), text


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_drawn_has_a_canonical_spelling_that_is_accepted(name: str) -> None:
    canonical, constraint = both(name)
    free = constraint.dfa()
    rng = random.Random(5)
    other = 0
    for _ in range(150):
        text = free.sample(rng, 60).decode()
        respelt = spell(json.loads(text))
        other += respelt != text
        digits = max((len(run) for run in "".join(c if c.isdigit() else " " for c in text).split()), default=0)
        if digits <= 15 and text.count('"') == respelt.count('"'):  # more digits are rounded by the reader
            assert canonical.accepts(respelt), text
    assert other


def test_whole_numbers_of_draft_4_and_of_many_digits_get_no_fraction() -> None:
    integer = {"type": "integer"}
    assert JsonSchema(integer, spelling="any").accepts("10.0")
    assert not JsonSchema(integer, spelling="any").accepts("123456789012345678.0")
    fourth = {**integer, "$schema": "http://json-schema.org/draft-04/schema#"}
    assert not JsonSchema(fourth, spelling="any").accepts("10.0")
    assert not JsonSchema(integer).accepts("10.0")


def test_repeated_values_are_told_in_every_spelling() -> None:
    distinct = JsonSchema(SCHEMAS["distinct values"], spelling="any")
    assert distinct.accepts('[1.0, 1e1, "\\u00fc"]')
    assert not distinct.accepts("[1, 1.0]")
    assert not distinct.accepts('["ü", "\\u00FC"]')


def test_an_unknown_spelling_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="spelling is 'canonical' or 'any'"):
        JsonSchema(True, spelling="all")  # type: ignore[arg-type]

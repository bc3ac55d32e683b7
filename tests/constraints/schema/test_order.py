"""`order="any"`: which orders of properties are accepted, against permutations and a validator."""

from __future__ import annotations

import json
import random
from itertools import permutations
from typing import Any

import pytest

from diffinity.constraints.schema import JsonSchema
from diffinity.constraints.schema.spelling import spell

jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="pip install 'diffinity[dev]'")

OPTIONAL = [f"option{i}" for i in range(20)]
WIDE: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"type": "integer"} for name in ("a", "b", "c", *OPTIONAL)},
    "required": ["a", "b", "c"],
}


def shuffles(value: dict[str, Any], count: int) -> list[str]:
    """The value with its properties in `count` random orders, spelled."""
    rng = random.Random(1)
    return [spell(dict(rng.sample(list(value.items()), len(value)))) for _ in range(count)]


def test_a_wide_object_takes_all_orders_and_needs_all_required_names() -> None:
    constraint = JsonSchema(WIDE, open=True, order="any")
    value = dict.fromkeys(("a", "b", "c", *OPTIONAL[:6], "other"), 1)
    assert all(constraint.accepts(text) for text in shuffles(value, 20))
    for name in ("a", "b", "c"):
        without = {key: inner for key, inner in value.items() if key != name}
        assert not any(constraint.accepts(text) for text in shuffles(without, 5))


def test_every_permutation_of_a_small_object_is_accepted_once_each_name() -> None:
    constraint = JsonSchema({"properties": {n: {"type": "integer"} for n in "abcd"}}, order="any")
    for names in permutations("abcd"):
        assert constraint.accepts(spell(dict.fromkeys(names, 1)))
    assert not constraint.accepts('{"a": 1, "b": 1, "a": 1}')
    assert constraint.ordered_places == ()


@pytest.mark.parametrize(
    "more",
    [
        {"dependentRequired": {"option1": ["option2"]}},
        {"not": {"properties": {"option3": {"const": 1}}, "required": ["option3"]}},
        {"if": {"required": ["option4"]}, "then": {"required": ["option5"]}},
        {"maxProperties": 6},
        {"minProperties": 4},
    ],
    ids=lambda more: next(iter(more)),
)
def test_wide_objects_with_conditions_take_all_orders_of_valid_values_only(more: dict[str, Any]) -> None:
    schema = WIDE | more
    constraint = JsonSchema(schema, open=True, order="any")
    validator = jsonschema_rs.validator_for(schema)
    rng = random.Random(7)
    verdicts = set()
    for _ in range(60):
        names = ["a", "b", "c", *rng.sample(OPTIONAL[:6], rng.randint(0, 4))]
        rng.shuffle(names)
        value = {name: rng.choice((1, 2)) for name in names}
        valid = validator.is_valid(value)
        verdicts.add(valid)
        assert constraint.accepts(spell(value)) == valid, value
    assert verdicts == {True, False}
    for _ in range(30):
        text = constraint.dfa().sample(rng, 200)
        assert validator.is_valid(json.loads(text)), text


def test_arrays_under_undeclared_names_wait_where_memory_is_short() -> None:
    schema = {
        "properties": {f"r{i}": {"type": "string"} for i in range(8)},
        "required": [f"r{i}" for i in range(8)],
    }
    constraint = JsonSchema(schema, open=True, order="any")
    value = dict.fromkeys(schema["required"], "x")
    assert all(constraint.accepts(text) for text in shuffles(value | {"other": 1}, 10))
    assert constraint.accepts(spell(value | {"other": [1]}))
    assert not constraint.accepts(spell({"other": [1]} | value))
    assert constraint.ordered_places == ("#",)


def test_objects_with_too_many_required_names_keep_an_order_and_say_so() -> None:
    names = [f"r{i}" for i in range(30)]
    inner = {"properties": {name: {"type": "integer"} for name in names}, "required": names}
    constraint = JsonSchema({"properties": {"x": inner, "y": {}}}, open=True, order="any")
    value = dict.fromkeys(names, 1)
    assert constraint.accepts(spell({"y": 1, "x": value}))
    assert not constraint.accepts(spell({"x": dict(reversed(value.items()))}))
    assert constraint.ordered_places == ("#/properties/x",)


def test_open_places_hold_objects_eight_levels_deep() -> None:
    deep: Any = {"key": [1, "two"]}
    for level in range(5):
        deep = {f"level{level}": deep}
    assert JsonSchema(True, open=True).accepts(spell({"a": deep}))
    assert JsonSchema({"properties": {"a": {}, "b": {}}}, open=True).accepts(
        spell({"b": deep["level4"]["level3"]})
    )
    assert JsonSchema(True, open=True).accepts(spell([{"a": [{"b": [1]}]}]))

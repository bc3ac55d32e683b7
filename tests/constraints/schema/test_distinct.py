"""`uniqueItems` over few and over many values, against a validator."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from diffinity.constraints.schema import JsonSchema, UnsupportedKeyword
from diffinity.constraints.schema.spelling import spell

jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="pip install 'diffinity[dev]'")

ITEMS: dict[str, Any] = {
    "strings": {"type": "string"},
    "anything": True,
    "numbers": {"type": "number"},
    "strings or null": {"type": ["string", "null"]},
    "names that begin alike": {"type": "string", "pattern": "^kube-[a-z]+$"},
    "objects": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}},
    "thirty values": {"enum": [f"{letter}{i}" for letter in "abcdefghij" for i in range(3)]},
    "twelve long values": {"enum": [f"{letter}{'long' * 6}" for letter in "abcdefghijkl"]},
    "objects to choose from": {"enum": [{"a": 1, "b": 2}, {"b": 2, "a": 1, "c": 0}, [1], "x"]},
}


@pytest.mark.parametrize("order", ["declared", "any"])
@pytest.mark.parametrize("name", ITEMS)
def test_no_array_that_is_drawn_repeats_an_item(name: str, order: Any) -> None:
    schema = {"type": "array", "items": ITEMS[name], "uniqueItems": True}
    dfa = JsonSchema(schema, open=True, order=order).dfa()
    validator = jsonschema_rs.validator_for(schema)
    rng = random.Random(2)
    texts = [dfa.sample(rng, 80).decode() for _ in range(60)]
    assert all(validator.is_valid(json.loads(text)) for text in texts)
    assert any(len(json.loads(text)) > 1 for text in texts) or name == "objects"


@pytest.mark.parametrize("schema", [{"items": ITEMS["objects to choose from"]}, {"items": {"type": "number"}}])
def test_equal_items_are_refused_in_every_spelling(schema: Any) -> None:
    constraint = JsonSchema(
        {**schema, "type": "array", "uniqueItems": True}, open=True, order="any", spelling="any"
    )
    for text in (
        '[{"a": 1, "b": 2}, {"b": 2, "a": 1}]',
        "[0.99999999999999999999, 1]",
        "[1, 1.0]",
        "[0.1, 0.10000000000000000001]",
    ):
        assert not constraint.accepts(text)


def test_items_that_begin_differently_are_accepted() -> None:
    tags = JsonSchema({"type": "array", "items": {"type": "string"}, "uniqueItems": True})
    assert tags.accepts(spell(["red", "green", "blue"]))
    assert tags.accepts(spell(["kube", "1", "Zoo", "apple"]))
    assert not tags.accepts(spell(["red", "red"]))


def test_more_items_than_can_be_told_apart_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedKeyword, match="cannot tell 40 of these items apart") as refusal:
        JsonSchema({"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 40}).dfa()
    assert refusal.value.keyword == "uniqueItems"

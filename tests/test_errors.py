"""Errors cross processes whole."""

from __future__ import annotations

import pickle

import pytest

import diffinity as dy
from diffinity.constraints.schema.refusals import MalformedSchema, SchemaTooLarge, UnsupportedKeyword
from diffinity.errors import ConstraintSyntaxError, ConstraintTooLarge, DiffinityError, InvalidArgument


@pytest.mark.parametrize(
    "error",
    [
        InvalidArgument("n must be at least 1"),
        ConstraintSyntaxError("nothing to repeat", "a(*)", 2),
        ConstraintTooLarge("dfa_states", 10, 11, "this pattern"),
        MalformedSchema("#/type", "no JSON type is called 'text'"),
        SchemaTooLarge("max_branches", 256, 300, "the schema at #", option=True),
        UnsupportedKeyword("$ref", "#/items", "nothing is fetched"),
    ],
)
def test_an_error_is_the_same_in_another_process(error: DiffinityError) -> None:
    there = pickle.loads(pickle.dumps(error))
    assert type(there) is type(error)
    assert str(there) == str(error)
    assert vars(there) == vars(error)


def test_an_error_of_a_schema_crosses_too() -> None:
    with pytest.raises(MalformedSchema) as caught:
        dy.JsonSchema({"type": "text"}).dfa()
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)

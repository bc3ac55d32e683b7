"""One behaviour of JSON Schema a test, on texts written by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from diffinity.constraints.schema import JsonSchema, MalformedSchema, UnsupportedKeyword
from diffinity.errors import ConstraintSyntaxError, ConstraintTooLarge, InvalidArgument
from diffinity.limits import use_limits


def accepted(schema: Any, *texts: str, **options: Any) -> list[bool]:
    constraint = JsonSchema(schema, **options)
    return [constraint.accepts(text) for text in texts]


POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["y"]}


def test_optional_properties_keep_the_declared_order() -> None:
    assert accepted(POINT, '{"y": 1}', '{"x": 1, "y": 2}', '{"y": 1, "x": 2}', '{"x": 1}') == [
        True,
        True,
        False,
        False,
    ]


def test_any_order_accepts_every_permutation_but_no_name_twice() -> None:
    texts = ('{"y": 1, "x": 2}', '{"x": 1, "y": 2}', '{"y": 1, "y": 2}')
    assert accepted(POINT, *texts, order="any") == [True, True, False]


def test_undeclared_properties_need_open() -> None:
    assert accepted(POINT, '{"y": 1, "z": null}') == [False]
    assert accepted(POINT, '{"y": 1, "z": null}', '{"y": 1, "y": 2}', open=True) == [True, False]


def test_a_schema_for_other_properties_asks_for_them() -> None:
    schema = {"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}, "type": "object"}
    assert accepted(schema, '{"a": null, "b": 1}', '{"a": null, "b": ""}', '{"b": 1, "b": 2}') == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("whitespace", "text"),
    [("dumps", '{"x": 1, "y": 2}'), ("compact", '{"x":1,"y":2}'), ("flexible", '{ "x" :1,\n\t"y": 2}')],
)
def test_each_whitespace_style_accepts_its_own(whitespace: str, text: str) -> None:
    assert accepted(POINT, text, whitespace=whitespace) == [True]


def test_flexible_whitespace_is_bounded() -> None:
    assert accepted({"type": "array", "maxItems": 0}, "[ ]", "[" + " " * 9 + "]", whitespace="flexible") == [
        True,
        False,
    ]


def test_whole_numbers_have_no_fraction_and_fractions_no_trailing_zero() -> None:
    assert accepted({"type": "number"}, "1", "1.0", "1.5", "1.50", "-0", "01", "1e2") == [
        *(True, False, True, False, False, False, False)
    ]


def test_a_range_below_the_plain_decimals_has_exponents() -> None:
    assert accepted({"type": "number", "exclusiveMinimum": 0, "maximum": 1e-6}, "1e-06", "2e-06") == [True, False]


def test_length_counts_code_points_not_bytes_or_escapes() -> None:
    texts = ('"😀é"', '"\\n\\""', '"abc"')
    assert accepted({"type": "string", "minLength": 2, "maxLength": 2}, *texts) == [True, True, False]


def test_control_characters_are_spelled_as_escapes_only() -> None:
    schema = {"const": "\x01\n/"}
    assert accepted(schema, '"\\u0001\\n/"', '"\x01\n/"', '"\\u0001\\u000a/"') == [True, False, False]


def test_a_pattern_is_searched_and_its_dollar_is_the_very_end() -> None:
    assert accepted({"type": "string", "pattern": "b+$"}, '"abb"', '"bba"', '"b\\n"') == [True, False, False]


def test_a_lookahead_at_the_start_is_an_intersection() -> None:
    assert accepted({"type": "string", "pattern": "^(?!no)[a-z]+$"}, '"yes"', '"nope"') == [True, False]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2024-02-29", "1900-02-29"),
        ("time", "23:59:59.5Z", "24:00:00Z"),
        ("date-time", "2000-02-29T00:00:00+01:00", "2000-02-30T00:00:00Z"),
        ("duration", "P1Y2M3DT4H5M6S", "P1H"),
        ("email", "a.b@example.org", "a..b@example.org"),
        ("hostname", "my-host.example", "-host"),
        ("ipv4", "255.0.10.1", "256.0.0.1"),
        ("ipv6", "1:2::7:8", "1:2:3:4:5:6:7:8:9"),
        ("ipv6", "::ffff:10.0.0.1", "::1::"),
        ("uuid", "2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2eb8aa08-aa98-11ea-b4aa73b441d16380"),
        ("uri", "https://a.example/b?c#d", "/only/a/path"),
        ("uri-reference", "/only/a/path", "a b"),
        ("json-pointer", "/a~0/b~1", "/a~2"),
        ("relative-json-pointer", "1/a", "/a"),
        ("regex", "^[abc]+$", "("),
    ],
)
def test_formats_admit_their_own(name: str, good: str, bad: str) -> None:
    assert accepted({"type": "string", "format": name}, json.dumps(good), json.dumps(bad)) == [True, False]


def test_an_unknown_format_is_an_annotation() -> None:
    assert accepted({"type": "string", "format": "colour"}, '"anything"') == [True]


def test_enum_and_const_compare_values_not_spellings() -> None:
    schema = {"enum": [1.0, {"b": [True], "a": None}, "x"]}
    assert accepted(schema, "1", '{"b": [true], "a": null}', '"x"', "1.0", "true") == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_one_of_excludes_what_satisfies_both() -> None:
    schema = {"oneOf": [{"multipleOf": 2, "type": "integer"}, {"multipleOf": 3, "type": "integer"}]}
    assert accepted(schema, "2", "3", "6", "5") == [True, True, False, False]


def test_not_of_an_object_needs_a_witness() -> None:
    schema = {"type": "object", "not": {"properties": {"a": {"type": "string"}}}}
    assert accepted(schema, '{"a": 1}', '{"a": "x"}', "{}", open=True) == [True, False, False]


def test_if_then_else() -> None:
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": ["a", "b"]}, "n": {"type": "integer"}},
        "required": ["kind"],
        "if": {"properties": {"kind": {"const": "a"}}},
        "then": {"required": ["n"]},
    }
    assert accepted(schema, '{"kind": "a"}', '{"kind": "a", "n": 1}', '{"kind": "b"}') == [False, True, True]


def test_unique_items_of_a_small_set() -> None:
    schema = {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True}
    assert accepted(schema, "[1, 3, 2]", "[1, 3, 1]", "[]") == [True, False, True]


def test_contains_counts() -> None:
    schema = {
        "type": "array",
        "items": {"enum": [0, 1]},
        "contains": {"const": 1},
        "minContains": 2,
        "maxContains": 2,
    }
    assert accepted(schema, "[1, 0, 1]", "[1]", "[1, 1, 1]") == [True, False, False]


def test_recursion_goes_as_deep_as_asked() -> None:
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    texts = ("{}", '{"next": {}}', '{"next": {"next": {}}}')
    assert accepted(schema, *texts, max_depth=1) == [True, True, False]


def test_older_drafts_spellings() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "definitions": {"n": {"type": "number", "minimum": 0, "exclusiveMinimum": True}},
        "type": "array",
        "items": [{"$ref": "#/definitions/n", "maximum": -1}],
        "additionalItems": False,
    }
    assert accepted(schema, "[1]", "[0]", "[1, 1]") == [True, False, False]


def test_unevaluated_properties_see_through_references_and_branches() -> None:
    schema = {
        "$ref": "#/$defs/base",
        "anyOf": [{"properties": {"b": {"const": 1}}, "required": ["b"]}, True],
        "unevaluatedProperties": False,
        "$defs": {"base": {"type": "object", "properties": {"a": {"type": "null"}}}},
    }
    assert accepted(schema, '{"a": null, "b": 1}', '{"a": null, "b": 2}', '{"a": null}', open=True) == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("schema", "keyword", "pointer"),
    [
        ({"properties": {"a": {"$ref": "https://example.com/x"}}}, "$ref", "#/properties/a"),
        ({"items": {"type": "array", "uniqueItems": True, "minItems": 40}}, "uniqueItems", "#/items"),
        ({"items": {"pattern": "a(?=b)"}}, "pattern", "#/items"),
        ({"$schema": "https://example.com/mine"}, "$schema", "#"),
    ],
)
def test_what_cannot_be_honoured_is_named_with_its_place(schema: Any, keyword: str, pointer: str) -> None:
    with pytest.raises(UnsupportedKeyword) as refusal:
        JsonSchema(schema).dfa()
    assert (refusal.value.keyword, refusal.value.pointer) == (keyword, pointer)
    assert not JsonSchema(schema, lenient=True).dfa().is_empty


@pytest.mark.parametrize(
    "schema", [{"type": "text"}, {"properties": []}, {"minLength": -1}, {"$ref": "#/nowhere"}]
)
def test_a_malformed_schema_says_where(schema: Any) -> None:
    with pytest.raises(MalformedSchema, match="#/"):
        JsonSchema(schema).dfa()


def test_schemas_that_are_no_schemas_are_refused_at_once() -> None:
    for wrong in ("{", "[1]", 5, None):
        with pytest.raises(ConstraintSyntaxError):
            JsonSchema(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        JsonSchema(int)
    with pytest.raises(InvalidArgument):
        JsonSchema(True, whitespace="tabs")  # type: ignore[arg-type]


def test_limits_are_those_in_force() -> None:
    with use_limits(nfa_states=50), pytest.raises(ConstraintTooLarge):
        JsonSchema({"type": "string", "maxLength": 100}).dfa()


def test_a_pydantic_model_becomes_a_constraint_and_parses_into_an_instance() -> None:
    class Pet(BaseModel):
        name: str
        age: int | None = None

    constraint = JsonSchema(Pet)
    assert constraint.accepts('{"name": "Ada", "age": 3}')
    assert constraint.parse('{"name": "Ada", "age": 3}') == Pet(name="Ada", age=3)


def test_constraints_are_values_and_combine() -> None:
    number = JsonSchema({"type": "integer", "minimum": 0})
    assert number == JsonSchema({"type": "integer", "minimum": 0})
    assert (number & ~JsonSchema({"const": 7})).accepts("8")
    assert not (number & ~JsonSchema({"const": 7})).accepts("7")


def names(count: int, **more: Any) -> dict[str, Any]:
    """An object of that many integers."""
    return {"type": "object", "properties": {f"n{i}": {"type": "integer"} for i in range(count)}, **more}


def reversed_text(count: int) -> str:
    return "{" + ", ".join(f'"n{i}": {i}' for i in reversed(range(count))) + "}"


def test_properties_come_in_any_order_where_all_of_them_can_be_remembered() -> None:
    small = JsonSchema(names(3, required=["n1"], additionalProperties=False), order="any")
    assert small.accepts(reversed_text(3))
    assert not small.accepts('{"n2": 1, "n0": 2}')
    assert not small.accepts('{"n1": 1, "n1": 2}')
    assert small.ordered_places == ()


def test_of_many_properties_only_the_required_ones_are_remembered() -> None:
    many = JsonSchema(names(30, required=["n3", "n7"]), order="any", open=True)
    assert many.accepts(reversed_text(30))
    assert not many.accepts('{"n7": 1, "n0": 2}')
    assert many.accepts('{"n7": 1, "n0": 2, "n3": 0, "more": [{}]}')
    assert many.ordered_places == ()


def test_where_no_order_is_affordable_properties_keep_theirs_and_the_place_is_named() -> None:
    closed = JsonSchema(names(30, additionalProperties=False), order="any")
    assert closed.ordered_places == ("#",)
    assert not closed.accepts('{"n2": 1, "n0": 2}')
    assert closed.accepts('{"n0": 1, "n2": 2}')


def test_a_count_of_properties_is_never_passed_by_repeating_one() -> None:
    counted = JsonSchema(names(30, minProperties=2), order="any", open=True)
    assert not counted.accepts('{"n1": 1, "n1": 2}')


def test_a_declared_name_that_only_some_engines_find_to_match_a_pattern_satisfies_it() -> None:
    schema = {"required": ["é"], "patternProperties": {r"^\w$": {"type": "number"}}}
    assert accepted(schema, '{"é": 1}', '{"é": null}', open=True) == [True, False]


def test_a_name_whose_absence_makes_one_schema_fail_does_not_make_another_fail_by_its_value() -> None:
    schema = {
        "type": "object",
        "properties": {"": {"type": "array"}},
        "dependentSchemas": {"b": {"type": "null"}},
        "not": {"const": {}},
    }
    assert not any(accepted(schema, '{"b": 4096.76}', '{"b": null}', "{}"))

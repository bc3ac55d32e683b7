"""Random schemas and values: the automaton against an independent validator."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diffinity.constraints.schema import JsonSchema
from diffinity.constraints.schema.spelling import spell
from diffinity.errors import ConstraintError

jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="pip install 'diffinity[dev]'")

NAMES = ("a", "b", "cc")
CALM = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-12, 12),
    st.sampled_from([0.5, -1.5, 2.25, 100, 10**6, 0.125]),
    st.sampled_from(["", "a", "ab", "é", '"', "x\n", "2024-02-29", "b\\"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from((*NAMES, "x", "y-")), inner, max_size=3)
    ),
    max_leaves=5,
)

keywords: dict[str, st.SearchStrategy[Any]] = {
    "type": st.one_of(
        st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"]),
        st.lists(
            st.sampled_from(["null", "integer", "string", "object", "array"]), min_size=1, max_size=3, unique=True
        ),
    ),
    "enum": st.lists(st.one_of(scalars, st.just([1]), st.just({"a": 1})), min_size=1, max_size=3),
    "const": st.one_of(scalars, st.just([]), st.just({"b": "a"})),
    "minimum": st.sampled_from([-3, 0, 0.5, 4]),
    "maximum": st.sampled_from([-1.5, 0, 3, 7.25]),
    "exclusiveMinimum": st.sampled_from([-3, 0, 2.25]),
    "exclusiveMaximum": st.sampled_from([0, 0.5, 10]),
    "multipleOf": st.sampled_from([1, 2, 3, 0.5, 0.25, 10]),
    "minLength": st.integers(0, 2),
    "maxLength": st.integers(0, 2),
    "pattern": st.sampled_from(["^a", "b$", "^[a-z]*$", ".", "é|\\n", "\\d"]),
    "minItems": st.integers(0, 2),
    "maxItems": st.integers(0, 3),
    "minProperties": st.integers(0, 2),
    "maxProperties": st.integers(0, 3),
    "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
    "dependentRequired": st.dictionaries(
        st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=2, unique=True), max_size=2
    ),
    "minContains": st.integers(0, 2),
    "maxContains": st.integers(0, 2),
}


def composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas that hold up to three keywords, some of them with schemas inside."""
    lists = st.lists(inner, min_size=1, max_size=3)
    maps = st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    applicators = {
        "properties": maps,
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "c", "y-$"]), inner, max_size=2),
        "additionalProperties": inner,
        "propertyNames": st.sampled_from([{"maxLength": 1}, {"pattern": "^[a-c]"}, {"enum": ["a", "x"]}, True]),
        "dependentSchemas": maps,
        "items": inner,
        "prefixItems": lists,
        "contains": inner,
        "allOf": lists,
        "anyOf": lists,
        "oneOf": lists,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "unevaluatedProperties": inner,
        "unevaluatedItems": inner,
    }
    every = {**keywords, **applicators}
    names = st.lists(st.sampled_from(sorted(every)), min_size=1, max_size=4, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: every[name] for name in chosen}))


plain = st.lists(st.sampled_from(sorted(keywords)), min_size=1, max_size=3, unique=True).flatmap(
    lambda chosen: st.fixed_dictionaries({name: keywords[name] for name in chosen})
)
schemas = st.recursive(st.one_of(plain, st.booleans()), composed, max_leaves=5)


def compiled(schema: Any, **options: Any) -> JsonSchema | None:
    """The constraint, or None if it is refused."""
    try:
        found = JsonSchema(schema, **options)
        found.dfa()
        return found
    except ConstraintError:
        return None


@CALM
@given(schema=schemas, instances=st.lists(values, min_size=5, max_size=12))
def test_open_schemas_accept_exactly_what_validates(schema: Any, instances: list[Any]) -> None:
    found = compiled(schema, open=True, order="any", any_depth=3)
    if found is None:
        return
    validator = jsonschema_rs.validator_for(schema)
    declared = json.dumps(schema, ensure_ascii=False)
    for value in instances:
        accepted, valid = found.accepts(spell(value)), validator.is_valid(value)
        assert valid or not accepted, value
        assert accepted or not valid or free_names(value, declared) > 1, value


def free_names(value: Any, declared: str) -> int:
    """The most names in one object that the schema does not list: where they are counted, buckets limit them."""
    if isinstance(value, list):
        return max((free_names(inner, declared) for inner in value), default=0)
    if not isinstance(value, dict):
        return 0
    own = sum(f'"{name}"' not in declared for name in value)
    return max([own, *(free_names(inner, declared) for inner in value.values())])


@CALM
@given(schema=schemas, is_open=st.booleans(), seed=st.integers(0, 100))
def test_every_sample_validates_and_repeats_no_name(schema: Any, is_open: bool, seed: int) -> None:
    found = compiled(schema, open=is_open)
    if found is None or found.dfa().is_empty:
        return
    validator = jsonschema_rs.validator_for(schema)
    rng = random.Random(seed)
    for _ in range(15):
        text = found.dfa().sample(rng, 120)
        assert validator.is_valid(json.loads(text)), text
        if not is_open:
            json.loads(text, object_pairs_hook=distinct)


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, if no name comes twice."""
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


referring: list[dict[str, Any]] = [
    {"items": {"$ref": "#"}},
    {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#/$defs/t"}}},
    {"additionalProperties": {"$ref": "#"}},
    {"$ref": "#/$defs/t"},
    {"not": {"$ref": "#/$defs/t"}},
    {"format": "date"},
]
recursive = st.recursive(st.one_of(plain, st.sampled_from(referring)), composed, max_leaves=6)
drafts = st.sampled_from(
    [None, "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"]
)


@CALM
@given(schema=recursive, inner=schemas, draft=drafts, is_open=st.booleans(), seed=st.integers(0, 100))
def test_samples_of_recursive_schemas_of_any_draft_validate(
    schema: dict[str, Any], inner: Any, draft: str | None, is_open: bool, seed: int
) -> None:
    whole = {**schema, "$defs": {"t": inner}} | ({} if draft is None else {"$schema": draft})
    try:
        validator = jsonschema_rs.validator_for(whole)
    except jsonschema_rs.ValidationError:  # a keyword of another draft, in a form that this one forbids
        return
    found = compiled(whole, open=is_open)
    if found is None or found.dfa().is_empty:
        return
    rng = random.Random(seed)
    for _ in range(10):
        text = found.dfa().sample(rng, 120)
        assert validator.is_valid(json.loads(text)), text

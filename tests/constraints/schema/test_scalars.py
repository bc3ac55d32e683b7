"""Numbers, strings, patterns and formats against arithmetic and an independent validator."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diffinity.constraints.schema import JsonSchema
from diffinity.constraints.schema.ecma import searched
from diffinity.constraints.schema.formats import format_language
from diffinity.constraints.schema.numbers import UNCOUNTED, Bound, NumberFacets, exact, numbers
from diffinity.constraints.schema.spelling import spell, spell_number
from diffinity.constraints.schema.strings import StringFacets, strings

jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="pip install 'diffinity[dev]'")

CALM = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
FORMATS = (
    *("date", "time", "date-time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6"),
    *("uuid", "uri", "iri", "uri-reference", "iri-reference", "uri-template", "json-pointer"),
    *("relative-json-pointer", "regex"),
)
PATTERNS = (
    *("^a|b$", "[^a-c]", "\\w\\W", "^\\s*$", "(ab)+c?", "^.{2,3}$", "[\\d-]+", "\\bab\\b", "a{2}", "é+"),
    *("[\\]\\\\]", "^(?=a).b", "^(?!ab)", "\\u00e9", "\\x41", "(?<n>a)(?:b)", "^$|^[a-c]+$", "\\/", "a*?b"),
)

few = st.one_of(st.integers(-40, 40), st.sampled_from([0.5, -2.25, 12.125, 0.001, 99.9, 10**6, 10**14, 0.0001]))
bounds = st.one_of(st.none(), st.builds(Bound, few.map(exact), st.booleans()))
facets = st.builds(
    NumberFacets,
    integer=st.booleans(),
    low=bounds,
    high=bounds,
    multiples=st.lists(
        st.sampled_from([1, 3, 7, 10, 0.5, 0.25, 0.01, 1.5]).map(exact), max_size=2, unique=True
    ).map(tuple),
)


@CALM
@given(wanted=facets, unwanted=st.lists(facets, max_size=2), values=st.lists(few, min_size=8, max_size=20))
def test_number_machines_agree_with_arithmetic(
    wanted: NumberFacets, unwanted: list[NumberFacets], values: list[float]
) -> None:
    machine = numbers([wanted], unwanted)
    for value in values:
        expected = wanted.admits(value) and not any(facet.admits(value) for facet in unwanted)
        assert machine.accepts(spell_number(value).encode()) == expected, value


@CALM
@given(wanted=facets, seed=st.integers(0, 99))
def test_number_samples_are_canonical_and_within(wanted: NumberFacets, seed: int) -> None:
    machine = numbers([wanted])
    rng = random.Random(seed)
    for _ in range(0 if machine.is_empty else 10):
        text = machine.sample(rng, 40).decode()
        assert spell_number(json.loads(text)) == text
        assert wanted.admits(json.loads(text))


closed_bounds = st.one_of(st.none(), st.builds(Bound, few.map(exact)))


@CALM
@given(low=closed_bounds, high=closed_bounds, value=st.floats(-50, 50) | few, seed=st.integers(0, 99))
def test_numbers_of_any_digits_stay_within_closed_bounds(
    low: Bound | None, high: Bound | None, value: float, seed: int
) -> None:
    wanted = NumberFacets(low=low, high=high)
    machine = numbers([wanted], (), UNCOUNTED)
    if value == 0 or abs(value) >= 1e-4:
        assert machine.accepts(spell_number(value).encode()) == wanted.admits(value)
    rng = random.Random(seed)
    for _ in range(0 if machine.is_empty else 10):
        assert wanted.admits(json.loads(machine.sample(rng, 60)))


def test_every_double_is_a_number_of_an_open_schema() -> None:
    number = JsonSchema({"type": "number"}, open=True)
    rng = random.Random(3)
    for _ in range(200):
        value = rng.uniform(-1, 1) * 10.0 ** rng.randint(-90, 14)
        assert number.accepts(spell(value)), value


@CALM
@given(text=st.text(max_size=6), low=st.integers(0, 4), high=st.integers(0, 6))
def test_string_lengths_agree_with_len(text: str, low: int, high: int) -> None:
    machine = strings([StringFacets(min_length=low, max_length=high)])
    assert machine.accepts(spell(text).encode()) == (low <= len(text) <= high)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_agree_with_the_validator(pattern: str) -> None:
    schema = {"type": "string", "pattern": pattern}
    constraint, validator = JsonSchema(schema, open=True), jsonschema_rs.validator_for(schema)
    negated = JsonSchema({"type": "string", "not": schema}, open=True)
    rng = random.Random(3)
    for _ in range(300):
        text = "".join(rng.choice("aabbcé-19 A_x]\\/\n\x1f") for _ in range(rng.randrange(5)))
        matched, failed = constraint.accepts(spell(text)), negated.accepts(spell(text))
        if {*text} & {*"é\x1f"} and re.search(
            r"\\[wWbBsS]", pattern
        ):  # where engines disagree, neither may be accepted
            assert not (matched and not validator.is_valid(text)), text
            assert not (failed and validator.is_valid(text)), text
        else:
            assert (matched, failed) == (validator.is_valid(text), not validator.is_valid(text)), text


@pytest.mark.parametrize("name", FORMATS)
def test_every_string_of_a_format_is_valid(name: str) -> None:
    language = format_language(name)
    assert language is not None
    validator = jsonschema_rs.validator_for({"type": "string", "format": name}, validate_formats=True)
    rng = random.Random(11)
    for _ in range(300):
        text = language.sample(rng, rng.choice((8, 30, 120))).decode()
        assert validator.is_valid(text), text


@pytest.mark.parametrize("whitespace", ["dumps", "compact", "flexible"])
def test_samples_of_every_style_are_json(whitespace: Any) -> None:
    constraint = JsonSchema(True, whitespace=whitespace)
    rng = random.Random(5)
    for _ in range(50):
        text = constraint.dfa().sample(rng, 80)
        json.loads(text)
        if whitespace != "flexible":
            assert spell(json.loads(text), compact=whitespace == "compact") == text.decode()


@pytest.mark.parametrize("text", ["9007199254740993", "123456789012345678", "-9999999999999999"])
def test_multiples_stay_within_what_a_double_holds(text: str) -> None:
    step = NumberFacets(multiples=(exact(3),))
    assert not numbers([step]).accepts(text.encode())
    assert not numbers([NumberFacets()], [step]).accepts(text.encode())
    assert numbers([NumberFacets()]).accepts(text.encode())


@pytest.mark.parametrize(("pattern", "text"), [(r"^\w$", "é"), (r"^\W$", "é"), (r"\ba", "éa"), (r"^[^\d]$", "٣")])
def test_texts_that_engines_read_differently_neither_match_nor_fail(pattern: str, text: str) -> None:
    assert not searched(pattern).accepts(text.encode())
    assert searched(pattern, wide=True).accepts(text.encode())

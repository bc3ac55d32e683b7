"""A seeded run of the generator of random schemas; `python -m benchmarks.random_schemas` is the larger one."""

from __future__ import annotations

import json
import random

import pytest

pytest.importorskip("jsonschema_rs", reason="pip install 'diffinity[dev]'")
pytest.importorskip("jsonschema", reason="pip install 'diffinity[dev]'")

from benchmarks.random_schemas import Report, check, validators
from benchmarks.schema_source import DRAFTS, SchemaSource

OPTIONS = [{"open": False, "order": "declared"}, {"open": True, "order": "any"}]


def test_what_random_schemas_accept_validates_and_most_valid_values_are_accepted() -> None:
    report = Report()
    for seed in range(20_000, 20_060):
        check(seed, report, texts=4, values=12, options=OPTIONS)
    assert report.texts > 200
    assert not report.false_accepts
    assert report.accepted >= 0.85 * report.valid


def test_the_generator_draws_every_keyword_of_every_draft() -> None:
    words = set()
    for seed in range(600):
        rng = random.Random(seed)
        words |= set(json.dumps(SchemaSource(rng, rng.choice(list(DRAFTS))).document()).split('"'))
    assert {"dependencies", "unevaluatedItems", "minContains", "additionalItems", "$ref", "propertyNames"} <= words


def test_the_validators_judge_decimals_exactly_and_formats_apart() -> None:
    tenth = validators({"multipleOf": 0.1})
    assert tenth["jsonschema"](0.3)
    assert not tenth["jsonschema"](0.35)
    date = validators({"format": "date"})
    assert [judge("x") for judge in date.values()] == [True, False, True]

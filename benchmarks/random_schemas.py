"""Random JSON Schemas over all supported keywords: drawn texts must validate, most valid values must be accepted.

Run `python -m benchmarks.random_schemas [--schemas 1000] [--seed 0]`. For each schema

- soundness: texts are drawn from the constraint, which is compiled with several choices of options, and random
  values are written as JSON. Every text that the constraint accepts must be accepted by `jsonschema-rs` (with
  formats asserted or not) and by `jsonschema`;
- completeness: the share of the random values accepted by all validators that the constraint with `open=True` and
  `order="any"` accepts too.

`jsonschema` divides decimals as doubles (0.3 is no multiple of 0.1 there), so its `multipleOf` is replaced by an
exact one. Under draft 2019-09 it applies `unevaluatedProperties` to members that `additionalProperties` has
evaluated (under 2020-12 it does not), so it does not judge schemas of that draft that have both keywords.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import jsonschema
import jsonschema_rs

from benchmarks.schema_source import SchemaSource, ValueSource
from diffinity.constraints.schema import JsonSchema
from diffinity.constraints.schema.numbers import exact
from diffinity.constraints.schema.spelling import spell
from diffinity.errors import ConstraintError


def _exact_multiple(validator: Any, step: Any, instance: Any, _: Any) -> Any:
    if validator.is_type(instance, "number") and (exact(instance) / exact(step)).denominator != 1:
        yield jsonschema.ValidationError(f"{instance} is no multiple of {step}")


def validators(schema: Any) -> dict[str, Callable[[Any], bool]]:
    """The independent validators, by name; ValueError if one of them refuses the schema.

    >>> [judge(3) for judge in validators({"multipleOf": 2}).values()]
    [False, False, False]
    """
    try:
        rust = jsonschema_rs.validator_for(schema)
        asserting = jsonschema_rs.validator_for(schema, validate_formats=True)
        validator_class = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        validator_class.check_schema(schema)
        python = jsonschema.validators.extend(validator_class, {"multipleOf": _exact_multiple})(schema)
    except (jsonschema_rs.ValidationError, jsonschema.SchemaError) as error:
        raise ValueError(str(error)) from None
    judges: dict[str, Callable[[Any], bool]] = {
        "jsonschema-rs": rust.is_valid,
        "jsonschema-rs with formats": asserting.is_valid,
    }
    schema_text = json.dumps(schema)
    has_both_keywords = all(
        f'"{keyword}"' in schema_text for keyword in ("additionalProperties", "unevaluatedProperties")
    )
    if validator_class is jsonschema.Draft201909Validator and has_both_keywords:
        return judges
    return {**judges, "jsonschema": python.is_valid}


@dataclass
class Report:
    """The results of many schemas."""

    schemas: int = 0
    compiled: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    texts: int = 0
    values: int = 0
    false_accepts: list[tuple[Any, dict[str, Any], str, list[str]]] = field(default_factory=list)
    valid: int = 0
    accepted: int = 0
    missed: list[tuple[Any, str]] = field(default_factory=list)


OPTIONS = [
    *({"open": is_open, "order": order} for is_open, order in product((False, True), ("declared", "any"))),
    {"open": True, "order": "any", "spelling": "any"},
]
COMPLETE = {"open": True, "order": "any"}  # the options whose completeness is reported


def check(seed: int, report: Report, *, texts: int = 6, values: int = 20, options: list[Any] = OPTIONS) -> None:
    """Draw the schema of a seed; check soundness and completeness."""
    rng = random.Random(seed)
    schema = SchemaSource(rng, rng.choice((4, 6, 7, 2019, 2020, 2020, 2020))).document()
    try:
        judges = validators(schema)
    except ValueError:
        return
    report.schemas += 1
    candidates = ValueSource(rng, schema)
    instances = [candidates.value(schema) for _ in range(values)]
    spelled = list({spell(value): value for value in instances}.values())
    verdicts = [[name for name, judge in judges.items() if not judge(value)] for value in spelled]
    for chosen_options in options:
        try:
            constraint = JsonSchema(schema, **chosen_options)
            dfa = constraint.dfa()
        except ConstraintError as refusal:
            report.refused[str(getattr(refusal, "keyword", "") or getattr(refusal, "limit", ""))] += 1
            continue
        report.compiled += 1
        for _ in range(0 if dfa.is_empty else texts):
            text = dfa.sample(rng, 150).decode()
            value = json.loads(text)
            report.texts += 1
            if refused_by := [name for name, judge in judges.items() if not judge(value)]:
                report.false_accepts.append((schema, chosen_options, text, refused_by))
        for value, refused_by in zip(spelled, verdicts, strict=True):
            accepted = constraint.accepts(spell(value))
            report.values += 1
            if accepted and refused_by:
                report.false_accepts.append((schema, chosen_options, spell(value), refused_by))
            if chosen_options == COMPLETE and not refused_by:
                report.valid += 1
                report.accepted += accepted
                if not accepted:
                    report.missed.append((schema, spell(value)))


def main() -> None:
    """Check many schemas and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schemas", type=int, default=1000, help="number of schemas")
    parser.add_argument("--seed", type=int, default=0, help="the first schema's seed")
    parser.add_argument("--texts", type=int, default=6, help="texts drawn from each constraint")
    parser.add_argument(
        "--missed", type=int, default=0, help="number of valid values to print that were not accepted"
    )
    arguments = parser.parse_args()
    report = Report()
    for seed in range(arguments.seed, arguments.seed + arguments.schemas):
        check(seed, report, texts=arguments.texts)
    share = report.accepted / max(1, report.valid)
    print(f"{report.schemas:,} schemas, {report.compiled:,} constraints compiled, refused: {dict(report.refused)}")
    print(
        f"{report.texts:,} texts drawn, {report.values:,} values tried, {len(report.false_accepts)} false accepts"
    )
    print(f"{report.accepted:,} of {report.valid:,} valid values accepted ({share:.1%})")
    for schema, chosen_options, text, refused_by in report.false_accepts:
        print(f"FALSE ACCEPT {json.dumps(schema)} {chosen_options} {text!r} refused by {', '.join(refused_by)}")
    for schema, text in report.missed[: arguments.missed]:
        print(f"missed {json.dumps(schema)} {text}")


if __name__ == "__main__":
    main()

"""A request for texts as plain JSON: constraints and settings, checked key by key."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import operator
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from diffinity.constraints import Choice, Constraint, Grammar, JsonSchema, Regex, sentences
from diffinity.constraints.python_types import OfType
from diffinity.errors import InvalidArgument
from diffinity.generation.settings import GenerationSettings, Option, from_request_names, shown_options

ANY_TEXT = Regex(r"(?s).*")
Texts = tuple[str, ...]
ConstraintKeys = tuple[
    str | None, str | None, str | None, str | None, int, str | None, Texts | None, Texts | None, Texts | None
]
GRAMMAR_DEPTH = 5  # the default depth of a grammar's recursion
LONGEST_SHOWN = 60  # characters of a wrong value in an error


class _BaseFields(BaseModel):
    """The constraint fields, the number of texts and the seed; errors quote the descriptions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    id: str | int | None = Field(None, description="a text or a whole number")
    regex: str | None = Field(None, description="a regular expression")
    json_schema: dict[str, Any] | bool | None = Field(None, description="a JSON Schema: an object, true or false")
    schema_options: dict[str, Any] | None = Field(None, description="an object with arguments of JsonSchema")
    grammar: str | None = Field(None, description="a grammar, as dy.Grammar has it")
    grammar_depth: int = Field(GRAMMAR_DEPTH, ge=0, description="a whole number, at least 0")
    type: str | None = Field(None, description="module:Name of a Python type or Pydantic model")
    choice: tuple[str, ...] | None = Field(None, min_length=1, description="a list of texts, at least one")
    contains: tuple[str, ...] | None = Field(None, min_length=1, description="a list of words, at least one")
    not_regex: tuple[str, ...] | None = Field(None, description="a list of regular expressions")
    n: int = Field(1, ge=1, description="a whole number, at least 1")
    seed: int = Field(0, ge=0, description="a whole number, at least 0")
    deadline: float | None = Field(None, ge=0, description="a finite number of seconds, at least 0")

    def constraint(self) -> Constraint:
        """The combination of all constraint fields; any text if there are none."""
        return _compiled_once(*self.constraint_keys())

    def constraint_keys(self) -> ConstraintKeys:
        """A hashable key of the constraint: equal for requests with the same constraint."""
        schema = None if self.json_schema is None else json.dumps(self.json_schema)
        options = None if self.schema_options is None else json.dumps(self.schema_options, sort_keys=True)
        return (
            self.regex,
            schema,
            options,
            self.grammar,
            self.grammar_depth,
            self.type,
            self.choice,
            self.contains,
            self.not_regex,
        )

    def is_free(self) -> bool:
        """Whether there is no constraint."""
        constraints = (self.regex, self.json_schema, self.grammar, self.type, self.choice, self.contains)
        return all(part is None for part in constraints) and not self.not_regex

    def settings(self) -> GenerationSettings:
        """The generation settings: everything except the constraint, n and the seed.

        >>> read_request('{"steps": 8}').settings()
        GenerationSettings({'steps': 8, 'guidance': 'none'})
        """
        options = {option.name: getattr(self, option.name) for option in shown_options()}
        if self.is_free() and not options["prefix"] and options["guidance"] == "auto":
            options["guidance"] = "none"  # without a constraint there is no guidance
        return GenerationSettings.of(**from_request_names(options))


def _field(option: Option) -> tuple[Any, Any]:
    if option.name == "length":  # its type includes the bounds
        return option.type, Field(option.default, description=option.accepts)
    return option.type, Field(option.default, ge=option.minimum, gt=option.above, description=option.accepts)


class Request(create_model("_Request", __base__=_BaseFields, **{o.name: _field(o) for o in shown_options()})):  # type: ignore[misc]
    """The fields of one line of `diffinity batch`: `_BaseFields`, and all options of `GenerationSettings`.

    >>> request = read_request('{"regex": "[a-z]+", "not_regex": ["no"], "steps": 8}')
    >>> request.constraint().accepts("yes"), request.constraint().accepts("no")
    (True, False)
    """


def read_request(text: str | bytes) -> Request:
    """The request in a JSON object; an error explains the first problem in one sentence.

    >>> read_request('{"regexp": "a"}')  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: unknown key 'regexp': a request may have id, regex, ...
    """
    try:
        request: Request = Request.model_validate_json(text)
        request.settings()  # refuses unknown names
        schema_arguments(request.schema_options, has_schema=request.json_schema is not None)
        return request
    except ValidationError as error:
        raise InvalidArgument(_sentence(error)) from None


def _sentence(error: ValidationError) -> str:
    """The first error of pydantic, in our words."""
    problems = error.errors(include_url=False)
    first = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
    if first["type"] == "json_invalid":
        return f"a request is a JSON object, but this is not JSON: {first['msg'].removeprefix('Invalid JSON: ')}"
    if not first["loc"]:
        return f"a request is a JSON object, but this is {_shown(first['input'])}"
    key, *inner_location = first["loc"]
    if first["type"] == "extra_forbidden":
        return f"unknown key {str(key)!r}: a request may have {', '.join(Request.model_fields)}"
    accepted = Request.model_fields[str(key)].description
    verb = "has" if any(isinstance(part, int) for part in inner_location) else "is"
    return f"{key} must be {accepted}, but {verb} {_shown(first['input'])}"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


def combined(
    *,
    regex: str | None = None,
    json_schema: dict[str, Any] | bool | str | None = None,
    schema_options: Mapping[str, Any] | None = None,
    grammar: str | None = None,
    grammar_depth: int = GRAMMAR_DEPTH,
    choice: Sequence[str] | None = None,
    contains: Sequence[str] | None = None,
    not_regex: Sequence[str] | None = None,
    more: Sequence[Constraint] = (),
) -> Constraint | None:
    """All given constraints, combined with "and"; None if there are none. A schema may be given as text.

    >>> combined(regex="[a-z ]+", contains=["old"]).accepts("an old dog")
    True
    """
    parts: list[Constraint] = []
    if regex is not None:
        parts.append(Regex(regex))
    if json_schema is not None:
        parts.append(JsonSchema(json_schema, **schema_arguments(schema_options)))
    if grammar is not None:
        parts.append(Grammar(grammar, max_depth=grammar_depth))
    if choice:
        parts.append(Choice(choice))
    if contains:
        parts.append(sentences.contains_words(*contains))
    parts += more
    parts += [~Regex(pattern) for pattern in not_regex or ()]
    return functools.reduce(operator.and_, parts) if parts else None


def schema_arguments(options: Mapping[str, Any] | None, *, has_schema: bool = True) -> dict[str, Any]:
    """The keyword arguments of `JsonSchema` by name; refuses unknown names.

    >>> schema_arguments({"opened": True})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: there is no schema option 'opened': there are whitespace, order, open, ...
    """
    names = [name for name in inspect.signature(JsonSchema).parameters if name != "schema"]
    for name in options or ():
        if name not in names:
            raise InvalidArgument(f"there is no schema option {name!r}: there are {', '.join(names)}")
    for name in ("open", "lenient"):
        if options and not isinstance(options.get(name, False), bool):
            raise InvalidArgument(f"the schema option {name} must be true or false, but is {options[name]!r}")
    if options and not has_schema:
        raise InvalidArgument("schema options need a JSON Schema, but none was given")
    return dict(options or {})


def named_type(name: str, field_name: str = "type", modules: Collection[str] | None = None) -> object:
    """The object `module:Name`, also from the current folder. Only modules in `modules` are allowed.

    >>> named_type("uuid:UUID").__name__
    'UUID'
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise InvalidArgument(f"{field_name} takes module:Name, not {name!r}")
    if modules is not None and module_name not in modules:
        raise InvalidArgument(
            f"{field_name} {name}: importing runs code, so allow it first: --import {module_name}"
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # importing runs the user's code, which may raise anything
        raise InvalidArgument(
            f"{field_name} {name}: importing {module_name!r} failed with {type(error).__name__}: {error}"
        ) from None
    finally:
        sys.path.pop(0)
    if not hasattr(module, attribute):
        raise InvalidArgument(f"{field_name} {name}: the module {module_name!r} has no {attribute!r}")
    return getattr(module, attribute)


@functools.lru_cache(maxsize=64)
def _compiled_once(
    regex: str | None,
    json_schema: str | None,
    schema_options: str | None,
    grammar: str | None,
    grammar_depth: int,
    type_name: str | None,
    choice: tuple[str, ...] | None,
    contains: tuple[str, ...] | None,
    not_regex: tuple[str, ...] | None,
) -> Constraint:
    """Like `combined`, cached: requests that differ only in seed share a constraint and its automaton."""
    constraint = combined(
        regex=regex,
        json_schema=json_schema,
        schema_options=None if schema_options is None else json.loads(schema_options),
        grammar=grammar,
        grammar_depth=grammar_depth,
        choice=choice,
        contains=contains,
        not_regex=not_regex,
        more=[] if type_name is None else [OfType(named_type(type_name))],
    )
    return ANY_TEXT if constraint is None else constraint


def in_words(
    *,
    regex: str | None = None,
    json_schema: str | None = None,
    grammar: str | None = None,
    choice: Sequence[str] | None = None,
    type_name: str | None = None,
    contains: Sequence[str] | None = None,
    not_regex: Sequence[str] | None = None,
    prefix: str = "",
) -> list[tuple[str, str]]:
    """The constraints in words: pairs of a description and the source; a schema and a type by name.

    >>> in_words(regex="a+", contains=["cat", "dog"])
    [('matches the regular expression', 'a+'), ('contains the words', 'cat, dog')]
    """
    descriptions = []
    if prefix:
        descriptions.append(("starts with", prefix))
    if regex is not None:
        descriptions.append(("matches the regular expression", regex))
    if json_schema is not None:
        descriptions.append(("is JSON that is valid for the schema", json_schema))
    if grammar is not None:
        descriptions.append(("is derived by the grammar", grammar))
    if choice:
        descriptions.append(("is one of", " | ".join(choice)))
    if type_name is not None:
        descriptions.append(("is a value of the Python type", type_name))
    if contains:
        descriptions.append((f"contains the word{'s' if len(contains) > 1 else ''}", ", ".join(contains)))
    return descriptions + [("does not match the regular expression", pattern) for pattern in not_regex or ()]

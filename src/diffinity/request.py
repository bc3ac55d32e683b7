"""One request for texts as plain JSON: what to satisfy and how to write, checked key by key."""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from diffinity.constraints import Choice, Constraint, JsonSchema, Regex, sentences
from diffinity.errors import InvalidArgument
from diffinity.generation.settings import GenerationSettings, Option, from_spoken, shown_options

ANY_TEXT = Regex(r"(?s).*")
Texts = tuple[str, ...]
ConstraintKeys = tuple[str | None, str | None, Texts | None, Texts | None, Texts | None]
LONGEST_SHOWN = 60  # characters of a wrong value that an error repeats


class _Asked(BaseModel):
    """What to satisfy, how many texts and which seed; the descriptions are what an error calls acceptable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    id: str | int | None = Field(None, description="a text or a whole number")
    regex: str | None = Field(None, description="a regular expression")
    json_schema: dict[str, Any] | bool | None = Field(None, description="a JSON Schema: an object, true or false")
    choice: tuple[str, ...] | None = Field(None, min_length=1, description="a list of texts, at least one")
    contains: tuple[str, ...] | None = Field(None, min_length=1, description="a list of words, at least one")
    not_regex: tuple[str, ...] | None = Field(None, description="a list of regular expressions")
    n: int = Field(1, ge=1, description="a whole number, at least 1")
    seed: int = Field(0, ge=0, description="a whole number, at least 0")

    def constraint(self) -> Constraint:
        """All that was asked for at once; any text if nothing was."""
        return _compiled_once(*self.constraint_keys())

    def constraint_keys(self) -> ConstraintKeys:
        """What the constraint is made of, hashable: equal for requests that ask for the same."""
        schema = None if self.json_schema is None else json.dumps(self.json_schema)
        return self.regex, schema, self.choice, self.contains, self.not_regex

    def settings(self) -> GenerationSettings:
        """How to write: all but the constraint, n and the seed.

        >>> read_request('{"steps": 8}').settings()
        GenerationSettings({'steps': 8, 'guidance': 'none'})
        """
        asked = {option.name: getattr(self, option.name) for option in shown_options()}
        parts = (*self.constraint_keys(), asked["prefix"])
        if all(part is None or part in ((), "") for part in parts):
            asked["guidance"] = "none"  # nothing was asked for, so there is nothing to steer to
        return GenerationSettings.of(**from_spoken(asked))


def _field(option: Option) -> tuple[Any, Any]:
    if option.name == "length":  # its type has its bounds
        return option.type, Field(option.default, description=option.accepts)
    return option.type, Field(option.default, ge=option.least, gt=option.above, description=option.accepts)


class Request(create_model("_Request", __base__=_Asked, **{o.name: _field(o) for o in shown_options()})):  # type: ignore[misc]
    """What one line of `diffinity batch` may say: `_Asked`, and every option of `GenerationSettings`.

    >>> request = read_request('{"regex": "[a-z]+", "not_regex": ["no"], "steps": 8}')
    >>> request.constraint().accepts("yes"), request.constraint().accepts("no")
    (True, False)
    """


def read_request(text: str | bytes) -> Request:
    """The request that a JSON object spells; what is wrong with it is said in one sentence.

    >>> read_request('{"regexp": "a"}')  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: unknown key 'regexp': a request may have id, regex, ...
    """
    try:
        request: Request = Request.model_validate_json(text)
        request.settings()  # refuses names that are none
        return request
    except ValidationError as error:
        raise InvalidArgument(_sentence(error)) from None


def _sentence(error: ValidationError) -> str:
    """What pydantic found wrong first, in our words."""
    found = error.errors(include_url=False)
    first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
    if first["type"] == "json_invalid":
        return f"a request is a JSON object, but this is not JSON: {first['msg'].removeprefix('Invalid JSON: ')}"
    if not first["loc"]:
        return f"a request is a JSON object, but this is {_shown(first['input'])}"
    key, *deeper = first["loc"]
    if first["type"] == "extra_forbidden":
        return f"unknown key {str(key)!r}: a request may have {', '.join(Request.model_fields)}"
    accepted = Request.model_fields[str(key)].description
    verb = "has" if any(isinstance(place, int) for place in deeper) else "is"
    return f"{key} must be {accepted}, but {verb} {_shown(first['input'])}"


def _shown(value: object) -> str:
    spelled = json.dumps(value, ensure_ascii=False, default=repr)
    return spelled if len(spelled) <= LONGEST_SHOWN else spelled[: LONGEST_SHOWN - 1] + "…"


def combined(
    *,
    regex: str | None = None,
    json_schema: dict[str, Any] | bool | str | None = None,
    choice: Sequence[str] | None = None,
    contains: Sequence[str] | None = None,
    not_regex: Sequence[str] | None = None,
    more: Sequence[Constraint] = (),
) -> Constraint | None:
    """Everything given, joined with "and"; None if nothing was. A schema may be given as its text.

    >>> combined(regex="[a-z ]+", contains=["old"]).accepts("an old dog")
    True
    """
    parts: list[Constraint] = []
    if regex is not None:
        parts.append(Regex(regex))
    if json_schema is not None:
        parts.append(JsonSchema(json_schema))
    if choice:
        parts.append(Choice(choice))
    if contains:
        parts.append(sentences.contains_words(*contains))
    parts += more
    parts += [~Regex(pattern) for pattern in not_regex or ()]
    return functools.reduce(operator.and_, parts) if parts else None


@functools.lru_cache(maxsize=64)
def _compiled_once(
    regex: str | None,
    json_schema: str | None,
    choice: tuple[str, ...] | None,
    contains: tuple[str, ...] | None,
    not_regex: tuple[str, ...] | None,
) -> Constraint:
    """As `combined`; a constraint keeps its automaton, so many requests that differ only in seed share one."""
    asked = combined(regex=regex, json_schema=json_schema, choice=choice, contains=contains, not_regex=not_regex)
    return ANY_TEXT if asked is None else asked


def in_words(
    *,
    regex: str | None = None,
    json_schema: str | None = None,
    choice: Sequence[str] | None = None,
    type_name: str | None = None,
    contains: Sequence[str] | None = None,
    not_regex: Sequence[str] | None = None,
    prefix: str = "",
) -> list[tuple[str, str]]:
    """The constraints for a person: what each says of the text, and in which words; a schema and a type by name.

    >>> in_words(regex="a+", contains=["cat", "dog"])
    [('matches the regular expression', 'a+'), ('contains the words', 'cat, dog')]
    """
    said = []
    if prefix:
        said.append(("starts with", prefix))
    if regex is not None:
        said.append(("matches the regular expression", regex))
    if json_schema is not None:
        said.append(("is JSON that is valid for the schema", json_schema))
    if choice:
        said.append(("is one of", " | ".join(choice)))
    if type_name is not None:
        said.append(("is a value of the Python type", type_name))
    if contains:
        said.append((f"contains the word{'s' if len(contains) > 1 else ''}", ", ".join(contains)))
    return said + [("does not match the regular expression", pattern) for pattern in not_regex or ()]

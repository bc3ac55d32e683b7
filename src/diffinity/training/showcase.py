"""The everyday tasks on a model card, which a user might try first, and the model's outputs for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from diffinity.constraints.base import Constraint, Regex
from diffinity.constraints.schema import JsonSchema
from diffinity.generation import Generator
from diffinity.models.protocol import TextModel

OUTPUTS = 6


@dataclass(frozen=True)
class Task:
    """A task in words, its constraint, and its length in tokens."""

    title: str
    constraint: Constraint
    length: int = 32


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_WORD = {"type": "string", "pattern": "^[a-z]{2,10}$"}
_NAME = {"type": "string", "pattern": "^[A-Z][a-z]+( [A-Z][a-z]+)?$"}
_CALL = _object(
    {
        "city": _NAME,
        "day": {"enum": ["today", "tomorrow", "Monday", "Saturday"]},
        "guests": {"type": "integer", "minimum": 1, "maximum": 12},
        "cuisine": _WORD,
        "outside": {"type": "boolean"},
        "name": _NAME,
    }
)
_ITEM = _object(
    {
        "product": {"type": "string", "pattern": "^[A-Z][a-z]+( [A-Z][a-z]+)*$"},
        "quantity": {"type": "integer", "minimum": 1, "maximum": 20},
        "price": {"type": "number", "minimum": 1, "maximum": 500, "multipleOf": 0.01},
    }
)
_INVOICE = _object(
    {
        "number": {"type": "integer", "minimum": 100, "maximum": 9999},
        "customer": _NAME,
        "items": {"type": "array", "items": _ITEM, "minItems": 2, "maxItems": 2},
    }
)


def tasks() -> list[Task]:
    """The tasks, in the order of the card.

    >>> [task.title for task in tasks()][:2]
    ['a date', 'an e-mail address']
    """
    line = r"[A-Z][A-Za-z0-9 ,']+"
    river_and_morning = Regex(rf"{line}\.") & Regex(r".*\briver\b.*") & Regex(r".*\bmorning\b.*")
    return [
        Task("a date", Regex(r"(19|20)\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d)"), 16),
        Task("an e-mail address", Regex(r"[a-z]{2,10}(\.[a-z]{2,10})?@[a-z]{3,10}\.(com|org|net)"), 16),
        Task(
            "a letter of three lines",
            Regex(rf"Dear [A-Z][a-z]+,\n{line}\.\n(Yours|Love|Best wishes), [A-Z][a-z]+"),
        ),
        Task(
            "a recipe with two ingredients and two steps",
            Regex(rf"[A-Z][A-Za-z ]+\nIngredients:\n(- [a-z0-9 ]+\n){{2}}Steps:\n1\. {line}\.\n2\. {line}\."),
            64,
        ),
        Task("three CSV rows with a header", Regex(r"name,age,city(\n[A-Z][a-z]+,[1-9]\d,[A-Z][a-z]+){3}")),
        Task("a SELECT statement", Regex(r"SELECT [a-z_, ]+ FROM [a-z_]+ WHERE [a-z_]+ (=|<|>) ('[a-z]+'|\d+);")),
        Task("a call with six named arguments as JSON", JsonSchema(_CALL), 64),
        Task("an invoice as JSON with two items", JsonSchema(_INVOICE), 64),
        Task("a haiku-shaped text", Regex(r"[A-Z][a-z ]{10,28}\n[a-z ]{16,36}\n[a-z ]{10,28}")),
        Task("a sentence with the words river and morning", river_and_morning),
        Task("a question", Regex(r"[A-Z][A-Za-z ,']{10,60}\?")),
        Task("a product name with a price", Regex(r"([A-Z][a-z]+ ){1,3}- \$[1-9]\d{0,2}\.\d\d"), 16),
        Task("a support dialogue of two turns", Regex(rf"User: {line}[.?]\nSystem: {line}[.?]")),
    ]


def outputs(model: TextModel, seed: int = 0) -> Iterator[tuple[Task, list[str]]]:
    """Each task with the model's outputs at its default settings."""
    for task in tasks():
        texts = Generator(model, task.constraint, length=task.length)(OUTPUTS, seed=seed)
        yield task, [generated.text for generated in texts]

"""Kinds of document that describe other documents: schemas, columns, forms, endpoints, tools."""

from __future__ import annotations

from random import Random

from diffinity.training.corpus.structured.phrases import purpose
from diffinity.training.corpus.structured.registry import ABSENT, Record, json_kind
from diffinity.training.corpus.structured.values import (
    COLOURS,
    LEVELS,
    STATUSES,
    TAGS,
    flag,
    maybe,
    nullable,
    some,
)

# Common properties, each with its schema.
_PROPERTIES: dict[str, Record] = {
    "id": {"type": "integer"},
    "name": {"type": "string"},
    "email": {"type": "string", "format": "email"},
    "age": {"type": "integer", "minimum": 0},
    "price": {"type": "number"},
    "active": {"type": "boolean"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "created": {"type": "string", "format": "date"},
    "url": {"type": "string", "format": "uri"},
    "score": {"type": "number", "minimum": 0, "maximum": 1},
    "level": {"enum": list(LEVELS)},
    "notes": {"type": ["string", "null"]},
    "code": {"type": "string", "pattern": "^[A-Z]{3}$"},
    "count": {"type": "integer", "minimum": 1},
    "uuid": {"type": "string", "format": "uuid"},
}

_FIELDS = {
    "first_name": "text",
    "last_name": "text",
    "birth_date": "date",
    "country": "select",
    "newsletter": "checkbox",
    "amount": "number",
    "email": "email",
    "size": "select",
    "comment": "text",
    "quantity": "number",
    "start_date": "date",
    "color": "select",
}
_FIELD_OPTIONS = {
    "country": ("DE", "FR", "US", "JP", "BR", "IN"),
    "size": ("S", "M", "L", "XL"),
    "color": COLOURS,
}


@json_kind()
def object_schema(rng: Random) -> Record:
    chosen = some(rng, tuple(_PROPERTIES), 1, 4)
    return {
        "title": maybe(rng, rng.choice(("User", "Product", "Event", "Order", "Item", "Person")), 0.4),
        "type": "object",
        "properties": {name: _PROPERTIES[name] for name in chosen},
        "required": some(rng, chosen, 1, len(chosen)),
        "additionalProperties": maybe(rng, False, 0.3),
    }


@json_kind()
def value_schema(rng: Random) -> Record:
    low = rng.choice((0, 1, rng.randint(-20, 20)))
    schemas: tuple[Record, ...] = (
        {"type": "integer", "minimum": low, "maximum": low + rng.randint(1, 200)},
        {"type": "string", "minLength": rng.randint(0, 4), "maxLength": rng.randint(5, 80)},
        {"type": "string", "enum": some(rng, STATUSES, 2, 5)},
        {"type": "array", "items": {"type": "string"}, "maxItems": rng.randint(1, 20)},
        {"type": "string", "format": rng.choice(("date", "date-time", "email", "uuid", "uri", "ipv4"))},
        {"type": "number", "exclusiveMinimum": low, "multipleOf": rng.choice((0.5, 0.1, 0.01))},
    )
    return {"description": maybe(rng, purpose(rng), 0.5), **rng.choice(schemas)}


@json_kind()
def table_columns(rng: Random) -> Record:
    types = {
        "id": "int",
        "name": "text",
        "email": "text",
        "price": "decimal",
        "active": "bool",
        "created": "date",
    }
    chosen = set(some(rng, tuple(types), 1, 3))
    return {
        "table": rng.choice(("users", "orders", "books", "items", "events", "cities")),
        "columns": [
            {"name": name, "type": kind, "nullable": name != "id" and flag(rng)}
            for name, kind in types.items()
            if name in chosen
        ],
        "primary_key": maybe(rng, "id") if "id" in chosen else None,
    }


@json_kind()
def form_field(rng: Random) -> Record:
    name, kind = rng.choice(tuple(_FIELDS.items()))
    return {
        "name": name,
        "label": name.replace("_", " ").capitalize(),
        "type": kind,
        "required": flag(rng),
        "options": some(rng, _FIELD_OPTIONS[name], 2, 3) if kind == "select" else ABSENT,
        "placeholder": maybe(rng, nullable(rng, "Enter a value"), 0.3),
        "max_length": maybe(rng, rng.choice((20, 50, 100, 255))) if kind in ("text", "email") else ABSENT,
        "help": maybe(rng, rng.choice(("Optional", "Shown to everyone", "You can change it later")), 0.3),
    }


@json_kind()
def endpoint(rng: Random) -> Record:
    noun = rng.choice(
        (
            "user",
            "order",
            "file",
            "invoice",
            "event",
            "product",
            "task",
            "team",
            "book",
            "message",
            "report",
            "room",
        )
    )
    method, path, summary = rng.choice(
        (
            ("GET", f"/{noun}s", f"List all {noun}s"),
            ("GET", f"/{noun}s/{{id}}", f"Get one {noun}"),
            ("POST", f"/{noun}s", f"Create {noun}"),
            ("PUT", f"/{noun}s/{{id}}", f"Replace {noun}"),
            ("DELETE", f"/{noun}s/{{id}}", f"Delete {noun}"),
        )
    )
    return {
        "method": method,
        "path": path,
        "summary": summary,
        "parameters": [{"name": "id", "in": "path", "required": True}] if "{" in path else [],
        "responses": maybe(rng, {"200": "OK", "404": "Not found"} if "{" in path else {"200": "OK"}, 0.6),
        "tags": maybe(rng, [f"{noun}s"], 0.3),
        "deprecated": maybe(rng, flag(rng, 0.2), 0.3),
    }


@json_kind()
def tool_definition(rng: Random) -> Record:
    name, text, argument = rng.choice(
        (
            ("get_weather", "Get the weather of a city", "city"),
            ("search", "Search the web", "query"),
            ("send_email", "Send an e-mail", "to"),
            ("get_time", "Get the time in a zone", "timezone"),
            ("read_file", "Read a file", "path"),
            ("get_price", "Look up a price", "symbol"),
        )
    )
    extra = rng.choice(("limit", "verbose", "timeout"))
    properties: Record = {argument: {"type": "string"}}
    if flag(rng):
        properties[extra] = {"type": "boolean" if extra == "verbose" else "integer"}
    return {
        "name": name,
        "description": maybe(rng, text, 0.8),
        "parameters": {"type": "object", "properties": properties, "required": [argument]},
        "strict": maybe(rng, flag(rng), 0.4),
    }


@json_kind()
def enumeration(rng: Random) -> Record:
    fields, pool = rng.choice(
        (
            (("status", "state"), STATUSES),
            (("level", "priority", "severity"), ("lowest", *LEVELS, "highest")),
            (("category", "tag", "label"), TAGS),
            (("color", "background"), COLOURS),
        )
    )
    values = some(rng, pool, 2, 4)
    return {
        "field": rng.choice(fields),
        "values": values,
        "default": rng.choice(values),
        "multiple": maybe(rng, flag(rng)),
    }


def _new_value(rng: Random, key: str) -> object:
    pools: dict[str, tuple[object, ...]] = {
        "name": ("Alpha", "Beta", "North", "Lakeside", "Orchard"),
        "status": STATUSES,
        "price": (5, 9.99, 12.5, 20, 49.9),
        "tags/0": TAGS,
        "owner": ("alice", "bob", "carol", "david", None),
        "notes": (purpose(rng), "", None),
    }
    return rng.choice(pools[key])


@json_kind()
def json_patch(rng: Random) -> list[object]:
    operations: list[object] = []
    for key in some(rng, ("name", "status", "tags/0", "price", "owner", "notes"), 1, 3):
        operation = rng.choice(("replace", "add", "remove"))
        change: Record = {"op": operation, "path": f"/{key}"}
        if operation != "remove":
            change["value"] = _new_value(rng, key)
        operations.append(change)
    return operations

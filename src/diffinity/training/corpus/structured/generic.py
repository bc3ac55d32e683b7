"""Kinds of objects with arbitrary combinations of the common keys, flat and nested.

Unlike in the other kinds, the order of the keys is random (often after keys such as `id` and `name`), because it
varies in users' schemas.
"""

from __future__ import annotations

from random import Random

from diffinity.training.corpus.structured.keys import COMMON_KEYS, KEYS, SUBJECT_KEYS, Scene, scene
from diffinity.training.corpus.structured.registry import Record, json_kind
from diffinity.training.corpus.structured.values import TAGS, any_id, flag, nullable, some, timestamp

_FRONT = ("id", "uuid", "type", "kind", "name", "title")
# Keys with the same meaning: an object has at most one of them.
_SYNONYMS = (
    {"created_at", "createdAt"},
    {"updated_at", "updatedAt"},
    {"first_name", "firstName"},
    {"last_name", "lastName"},
    {"type", "kind"},
    {"birthday", "date_of_birth"},
    {"zip", "postal_code", "postalCode"},
    {"lat", "latitude"},
    {"lon", "lng", "longitude"},
    {"start", "start_date", "start_time", "startDate"},
    {"end", "end_date", "end_time", "endDate"},
    {"ip", "ip_address"},
    {"file", "filename"},
    {"host", "hostname"},
    {"job", "job_title"},
    {"text", "content", "message", "body"},
    {"active", "is_active", "enabled"},
    {"id", "uuid"},
    {"total", "amount"},
    {"language", "lang"},
    {"website", "url", "link"},
    {"email", "emails"},
    {"role", "roles"},
)
_GROUPS = {
    "user": "person",
    "owner": "person",
    "author": "person",
    "profile": "person",
    "address": "place",
    "location": "place",
    "product": "product",
    "item": "product",
    "event": "event",
    "schedule": "event",
    "settings": "system",
    "config": "system",
    "options": "system",
    "server": "system",
    "stats": "measure",
    "measurements": "measure",
    "metrics": "measure",
    "content": "text",
    "post": "text",
}
# Keys that often occur together, in this order.
_PARTNERS = {
    "created_at": "updated_at",
    "createdAt": "updatedAt",
    "first_name": "last_name",
    "firstName": "lastName",
    "start": "end",
    "start_date": "end_date",
    "start_time": "end_time",
    "startDate": "endDate",
    "min": "max",
    "lat": "lon",
    "latitude": "longitude",
    "city": "country",
    "width": "height",
    "x": "y",
    "price": "currency",
    "host": "port",
    "limit": "offset",
    "username": "email",
}
_WRAPPERS = ("data", "result", "response", "payload", "item", "record", "object", "attributes")


def _clashes(key: str, chosen: list[str]) -> bool:
    """Whether the key repeats a chosen key or its synonym, or mixes camelCase with snake_case."""
    if key in chosen or any(key in names and names & set(chosen) for names in _SYNONYMS):
        return True
    camel = key != key.lower()
    return any("_" in other if camel else other != other.lower() and "_" in key for other in chosen)


def _keys(rng: Random, context: Scene, low: int, high: int) -> list[str]:
    pool = list(SUBJECT_KEYS[context.subject]) + list(COMMON_KEYS)
    count = rng.randint(low, high)
    chosen: list[str] = []
    while len(chosen) < count:
        key = rng.choice(tuple(KEYS)) if flag(rng, 0.15) else rng.choice(pool)
        if _clashes(key, chosen):
            continue
        chosen.append(key)
        partner = _PARTNERS.get(key)
        if partner and len(chosen) < count and flag(rng, 0.7) and not _clashes(partner, chosen):
            chosen.append(partner)
    if flag(rng, 0.7):
        chosen.sort(key=lambda key: _FRONT.index(key) if key in _FRONT else len(_FRONT))
    return chosen


def _object(rng: Random, low: int, high: int, context: Scene | None = None) -> Record:
    context = context or scene(rng)
    return {key: KEYS[key](context) for key in _keys(rng, context, low, high)}


def _group(rng: Random, low: int, high: int) -> tuple[str, Record]:
    name, subject = rng.choice(tuple(_GROUPS.items()))
    context = scene(rng)
    keys = SUBJECT_KEYS[subject]
    chosen: list[str] = []
    for key in rng.sample(tuple(keys), rng.randint(low, high)):
        if not _clashes(key, chosen):
            chosen.append(key)
    return name, {key: keys[key](context) for key in chosen}


def _rows(rng: Random, count: int, max_keys: int) -> list[Record]:
    """Objects with the same keys; the values of a key have the same type in all rows."""
    first_row = _object(rng, 1, max_keys)
    rows: list[Record] = []
    while len(rows) < count:
        context = scene(rng)
        row = {key: KEYS[key](context) for key in first_row}
        if all(type(row[key]) is type(value) for key, value in first_row.items()):
            rows.append(row)
    return rows


@json_kind()
def generic_object(rng: Random) -> Record:
    return _object(rng, 1, 6)


@json_kind()
def generic_pair(rng: Random) -> Record:
    return _object(rng, 1, 2)


@json_kind()
def generic_wide_object(rng: Random) -> Record:
    return _object(rng, 5, 7)


@json_kind()
def generic_mixed_object(rng: Random) -> Record:
    context = scene(rng)
    return {key: KEYS[key](context) for key in rng.sample(tuple(KEYS), rng.randint(2, 5))}


@json_kind()
def generic_nested_object(rng: Random) -> Record:
    name, inner = _group(rng, 1, 4)
    outer = {key: value for key, value in _object(rng, 1, 3).items() if key != name}
    return {**outer, name: inner} if flag(rng, 0.7) else {name: inner, **outer}


@json_kind()
def generic_two_groups(rng: Random) -> Record:
    groups: Record = dict(_group(rng, 1, 3) for _ in range(2))
    return groups if len(groups) == 2 else {"id": any_id(rng), **groups}


@json_kind()
def generic_deep_object(rng: Random) -> Record:
    outer, (name, inner) = rng.choice(_WRAPPERS[:5]), _group(rng, 1, 3)
    return {outer: {**_object(rng, 0, 1), name: inner}}


@json_kind()
def generic_wrapped_object(rng: Random) -> Record:
    return (
        {rng.choice(_WRAPPERS): _object(rng, 1, 4), "success": True}
        if flag(rng)
        else {
            "status": rng.choice(("ok", "error", "success")),
            rng.choice(_WRAPPERS): _object(rng, 1, 4),
        }
    )


@json_kind()
def generic_object_list(rng: Random) -> list[Record]:
    return _rows(rng, rng.randint(2, 3), 3)


@json_kind()
def generic_items(rng: Random) -> Record:
    rows = _rows(rng, rng.randint(0, 3), 2)
    plural = rng.choice(("items", "data", "results", "rows", "entries", "records", "list", "elements"))
    return {plural: rows, "count": len(rows)} if flag(rng) else {"total": len(rows), plural: rows}


@json_kind()
def generic_nullable_object(rng: Random) -> Record:
    return {key: nullable(rng, value, 0.35) for key, value in _object(rng, 2, 6).items()}


@json_kind()
def generic_entity(rng: Random) -> Record:
    name, inner = _group(rng, 1, 3)
    return {
        "id": any_id(rng),
        "type": name,
        "attributes": inner,
        **({"meta": {"created_at": timestamp(rng)}} if flag(rng, 0.3) else {"tags": some(rng, TAGS, 0, 3)}),
    }

"""Kinds of records that people ask for first, in the usual layouts: JSON, CSV, lines, calls, statements.

A subject has fields, each with values that suit it. A document has a few of the fields, in their usual or in a
random order. So a model learns which values follow the name of a field, whatever other fields stand beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, TypeAlias

from diffinity.training.corpus.structured.keys import Scene, scene
from diffinity.training.corpus.structured.names import DEPARTMENTS, JOBS, TEAMS, company, person, products
from diffinity.training.corpus.structured.phrases import headline, task_title
from diffinity.training.corpus.structured.places import postal_code
from diffinity.training.corpus.structured.registry import Record, json_kind, line_kind
from diffinity.training.corpus.structured.values import COLOURS, LEVELS, WEEKDAYS, decimal, flag, phone, words

Maker: TypeAlias = Callable[[Scene], object]

_CUISINES: Final = words("italian french indian mexican japanese chinese greek spanish korean turkish vegan thai")
_HOBBIES: Final = words(
    "chess hiking music reading cooking tennis painting swimming dancing gardening fishing yoga"
)
_LANGUAGES: Final = words("English French German Spanish Italian Japanese Russian Chinese Arabic Portuguese")
_SPECIES: Final = words("dog cat rabbit bird fish horse mouse turtle parrot hamster")
_PET_NAMES: Final = words("Max Bella Luna Charlie Rocky Lucy Buddy Daisy Milo Coco Oscar Molly Ruby Leo Rex")
_GENRES: Final = words("drama comedy fantasy romance history crime poetry travel science adventure")
_SCHOOL: Final = words("math history physics music art biology chemistry geography English French")
_CONDITIONS: Final = words("sunny cloudy rainy windy snowy foggy clear stormy")
_EVENTS: Final = words("Birthday Concert Meeting Wedding Lunch Dinner Workshop Party Picnic")
_DRINKS: Final = words("tea coffee water juice milk beer wine lemonade")
_DISHES: Final = words("soup salad pizza pasta rice fish chicken curry bread cake")
_RESTAURANTS: Final = ("Blue Door", "Green Garden", "Old Mill", "Golden Lion", "Sea View", "Red House", "Corner")


def _name(s: Scene) -> str:
    return s.person.first if flag(s.rng, 0.4) else s.person.name


def _pick(*values: object) -> Maker:
    return lambda s: s.rng.choice(values)


def _whole(low: int, high: int) -> Maker:
    return lambda s: s.rng.randint(low, high)


def _yes(chance: float = 0.5) -> Maker:
    return lambda s: flag(s.rng, chance)


def _product_name(s: Scene) -> str:
    return s.product.name.split(",")[0]


def _date(s: Scene) -> str:
    return s.start.date().isoformat()


def _time(s: Scene) -> str:
    return f"{s.rng.randint(8, 21):02}:{s.rng.choice(('00', '15', '30', '45'))}"


def _city(s: Scene) -> str:
    return s.place.city


SUBJECTS: Final[Mapping[str, Mapping[str, Maker]]] = {
    "person": {
        "name": _name,
        "first_name": lambda s: s.person.first,
        "last_name": lambda s: s.person.last,
        "age": lambda s: s.rng.randint(18, 85),
        "city": _city,
        "country": lambda s: s.place.country,
        "email": lambda s: s.person.email,
        "phone": lambda s: phone(s.rng),
        "job": _pick(*(job.lower() for job in JOBS)),
        "birthday": lambda s: s.born.isoformat(),
        "married": _yes(),
        "student": _yes(0.3),
        "hobby": _pick(*_HOBBIES),
        "language": _pick(*_LANGUAGES),
        "children": _whole(0, 4),
        "height": _whole(150, 200),
    },
    "employee": {
        "name": _name,
        "department": _pick(*DEPARTMENTS),
        "title": _pick(*JOBS),
        "salary": lambda s: s.rng.randrange(25_000, 120_000, 500),
        "start_date": _date,
        "city": _city,
        "manager": lambda s: person(s.rng).name,
        "remote": _yes(),
        "email": lambda s: s.person.email,
        "age": lambda s: s.rng.randint(18, 65),
    },
    "restaurant": {
        "city": _city,
        "restaurant": _pick(*_RESTAURANTS),
        "day": _pick(*WEEKDAYS, "today", "tomorrow"),
        "date": _date,
        "time": _time,
        "guests": _whole(1, 12),
        "people": _whole(1, 12),
        "cuisine": _pick(*_CUISINES),
        "outside": _yes(),
        "name": _name,
        "drink": _pick(*_DRINKS),
        "dish": _pick(*_DISHES),
        "phone": lambda s: phone(s.rng),
    },
    "trip": {
        "from": _city,
        "to": lambda s: scene(s.rng).place.city,
        "date": _date,
        "passengers": _whole(1, 6),
        "class": _pick("economy", "business", "first"),
        "price": lambda s: decimal(s.rng, 20, 900),
        "direct": _yes(),
        "name": _name,
        "nights": _whole(1, 14),
        "transport": _pick("train", "bus", "plane", "car", "ship"),
    },
    "pet": {
        "name": _pick(*_PET_NAMES),
        "species": _pick(*_SPECIES),
        "animal": _pick(*_SPECIES),
        "age": _whole(1, 15),
        "color": _pick("black", "white", "brown", "gray", "orange", "gold"),
        "weight": lambda s: decimal(s.rng, 0.5, 40, 1),
        "owner": _name,
        "vaccinated": _yes(0.7),
        "friendly": _yes(0.8),
    },
    "product": {
        "product": _product_name,
        "name": _product_name,
        "price": lambda s: s.product.price,
        "quantity": _whole(1, 20),
        "category": lambda s: s.product.category,
        "color": _pick(*COLOURS[:10]),
        "size": _pick("small", "medium", "large", "S", "M", "L"),
        "in_stock": _yes(0.7),
        "brand": lambda s: company(s.rng).split()[0],
        "rating": lambda s: decimal(s.rng, 1, 5, 1),
        "currency": _pick("USD", "EUR", "GBP"),
    },
    "book": {
        "title": lambda s: headline(s.rng),
        "author": lambda s: s.person.name,
        "year": _whole(1950, 2026),
        "pages": _whole(60, 700),
        "genre": _pick(*_GENRES),
        "language": _pick(*_LANGUAGES),
        "price": lambda s: decimal(s.rng, 4, 40),
        "rating": lambda s: decimal(s.rng, 1, 5, 1),
        "read": _yes(),
    },
    "event": {
        "title": _pick(
            "Birthday", "Concert", "Meeting", "Wedding", "Lunch", "Dinner", "Workshop", "Party", "Picnic"
        ),
        "date": _date,
        "day": _pick(*WEEKDAYS, "today", "tomorrow"),
        "time": _time,
        "city": _city,
        "guests": _whole(2, 90),
        "host": _name,
        "price": lambda s: decimal(s.rng, 5, 80),
        "public": _yes(),
        "duration": _pick(30, 45, 60, 90, 120),
    },
    "weather": {
        "city": _city,
        "day": _pick(*WEEKDAYS, "today", "tomorrow"),
        "date": _date,
        "temperature": _whole(-8, 34),
        "condition": _pick(*_CONDITIONS),
        "wind": _whole(0, 60),
        "humidity": _whole(20, 99),
        "unit": _pick("celsius", "fahrenheit"),
        "rain": _yes(),
    },
    "task": {
        "title": lambda s: task_title(s.rng),
        "task": lambda s: task_title(s.rng),
        "priority": _pick(*LEVELS),
        "done": _yes(),
        "due": _date,
        "owner": _name,
        "status": _pick("open", "closed", "pending", "done", "active"),
        "hours": _whole(1, 40),
    },
    "home": {
        "street": lambda s: s.street,
        "city": _city,
        "zip": lambda s: postal_code(s.rng, s.place),
        "country": lambda s: s.place.country,
        "rooms": _whole(1, 8),
        "rent": lambda s: s.rng.randrange(400, 3000, 50),
        "garden": _yes(),
        "floor": _whole(0, 9),
        "owner": _name,
    },
    "pupil": {
        "name": _name,
        "subject": _pick(*_SCHOOL),
        "grade": _pick("A", "B", "C", "D", "A", "B"),
        "score": _whole(30, 100),
        "year": _whole(1, 12),
        "passed": _yes(0.8),
        "teacher": lambda s: person(s.rng).name,
        "age": _whole(6, 19),
    },
    "game": {
        "team": _pick(*TEAMS),
        "player": _name,
        "score": _whole(0, 9),
        "points": _whole(0, 90),
        "wins": _whole(0, 20),
        "city": _city,
        "date": _date,
        "home": _yes(),
    },
}
# A function that takes each subject's fields as its arguments.
_FUNCTIONS: Final = {
    "person": "add_person",
    "employee": "add_employee",
    "restaurant": "book_table",
    "trip": "book_trip",
    "pet": "add_pet",
    "product": "add_product",
    "book": "find_book",
    "event": "create_event",
    "weather": "get_weather",
    "task": "create_task",
    "home": "find_home",
    "pupil": "add_grade",
    "game": "add_result",
}
TABLES: Final = {
    "person": "users",
    "employee": "employees",
    "restaurant": "bookings",
    "trip": "trips",
    "pet": "pets",
    "product": "products",
    "book": "books",
    "event": "events",
    "weather": "weather",
    "task": "tasks",
    "home": "homes",
    "pupil": "grades",
    "game": "games",
}
_SAME: Final = (
    {"species", "animal"},
    {"title", "task"},
    {"guests", "people"},
    {"product", "name"},
    {"first_name", "name"},
    {"last_name", "name"},
)


_FREQUENT: Final = {"person": 4, "restaurant": 2, "product": 2, "pet": 2}  # weights of subjects; the others have 1


def _subject(rng: Random) -> str:
    return rng.choices(tuple(SUBJECTS), [_FREQUENT.get(name, 1) for name in SUBJECTS])[0]


def _fields(rng: Random, subject: str, low: int, high: int) -> list[str]:
    """Names of fields of the subject, without two of the same meaning."""
    names = list(SUBJECTS[subject])
    chosen: list[str] = []
    for name in rng.sample(names, len(names)):
        if not any(name in same and same & set(chosen) for same in _SAME):
            chosen.append(name)
    chosen = chosen[: rng.randint(low, high)]
    return chosen if flag(rng) else sorted(chosen, key=names.index)


def _record(rng: Random, subject: str, fields: list[str]) -> Record:
    context = scene(rng)
    return {field: SUBJECTS[subject][field](context) for field in fields}


def _rows(rng: Random, low: int, high: int, fields: int) -> tuple[str, list[Record]]:
    subject = _subject(rng)
    chosen = _fields(rng, subject, 2, fields)
    return subject, [_record(rng, subject, chosen) for _ in range(rng.randint(low, high))]


def _cell(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@json_kind()
def everyday_object(rng: Random) -> Record:
    subject = _subject(rng)
    return _record(rng, subject, _fields(rng, subject, 1, 6))


@json_kind()
def everyday_list(rng: Random) -> object:
    subject, rows = _rows(rng, 2, 3, 3)
    if flag(rng, 0.6):
        return rows
    return {rng.choice(("items", "data", "results", TABLES[subject])): rows}


@json_kind()
def everyday_call(rng: Random) -> Record:
    subject = _subject(rng)
    arguments = _record(rng, subject, _fields(rng, subject, 1, 5))
    return {
        rng.choice(("name", "name", "function", "tool")): _FUNCTIONS[subject],
        rng.choice(("arguments", "arguments", "args", "parameters")): arguments,
    }


@json_kind()
def everyday_order(rng: Random) -> Record:
    """An order or invoice with its items; a total is the sum of its items."""
    name, quantity, price = rng.choice(
        (("product", "quantity", "price"), ("name", "quantity", "price"), ("item", "qty", "unit_price"))
    )
    goods = [(good, rng.randint(1, 12)) for good in products(rng, rng.choice((1, 2, 2, 2, 3)))]
    items = [{name: good.name.split(",")[0], quantity: count, price: good.price} for good, count in goods]
    context = scene(rng)
    head: Record = {
        rng.choice(("number", "number", "invoice", "id", "order")): rng.randint(100, 9999),
        "customer": rng.choice((context.person.name, context.person.name, company(rng))),
        "date": context.start.date().isoformat(),
    }
    order = {key: value for key, value in head.items() if key == "customer" or flag(rng, 0.6)}
    order["items"] = items
    if flag(rng, 0.4):
        order["total"] = sum(good.cents * count for good, count in goods) / 100
    if flag(rng, 0.3):
        order["paid"] = flag(rng)
    return order


@line_kind()
def everyday_csv(rng: Random) -> str:
    _, rows = _rows(rng, 1, 3, 4)
    separator = rng.choice((",", ",", ",", ",", ";"))
    lines = [separator.join(rows[0]), *(separator.join(map(_cell, row.values())) for row in rows)]
    return "\n".join(lines)


@line_kind()
def everyday_lines(rng: Random) -> str:
    subject = _subject(rng)
    record = _record(rng, subject, _fields(rng, subject, 2, 5))
    if flag(rng, 0.7):
        return "\n".join(f"{key.replace('_', ' ').capitalize()}: {_cell(value)}" for key, value in record.items())
    return "\n".join(f"{key}: {_cell(value)}" for key, value in record.items())


@line_kind()
def everyday_pairs(rng: Random) -> str:
    subject = _subject(rng)
    record = _record(rng, subject, _fields(rng, subject, 2, 4))
    cells = {key: json.dumps(value) if " " in _cell(value) else _cell(value) for key, value in record.items()}
    return rng.choice((" ", "\n")).join(f"{key}={cell}" for key, cell in cells.items())


@line_kind()
def everyday_function_call(rng: Random) -> str:
    subject = _subject(rng)
    arguments = _record(rng, subject, _fields(rng, subject, 1, 4))
    inner = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
    return f"{_FUNCTIONS[subject]}({inner})"


@line_kind()
def everyday_markdown(rng: Random) -> str:
    _, rows = _rows(rng, 1, 3, 3)
    head = [key.replace("_", " ").capitalize() for key in rows[0]]
    lines = [head, ["---"] * len(head), *([_cell(value) for value in row.values()] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _sql(value: object) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else _cell(value).upper()


@line_kind()
def everyday_insert(rng: Random) -> str:
    subject = _subject(rng)
    record = _record(rng, subject, _fields(rng, subject, 2, 4))
    return f"INSERT INTO {TABLES[subject]} ({', '.join(record)}) VALUES ({', '.join(map(_sql, record.values()))});"


@line_kind()
def everyday_select(rng: Random) -> str:
    """A query whose condition compares a column of the table with a value that suits it."""
    subject = _subject(rng)
    columns = rng.choice(("*", "*", ", ".join(_fields(rng, subject, 1, 3)), "COUNT(*)"))
    ((column, value),) = _record(rng, subject, _fields(rng, subject, 1, 1)).items()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    comparison = rng.choice(("=", "<", ">", "<=", ">=") if is_number else ("=", "=", "=", "!="))
    query = f"SELECT {columns} FROM {TABLES[subject]} WHERE {column} {comparison} {_sql(value)}"
    if columns != "COUNT(*)" and flag(rng, 0.3):
        query += f" ORDER BY {rng.choice(tuple(SUBJECTS[subject]))}"
    if columns != "COUNT(*)" and flag(rng, 0.2):
        query += f" LIMIT {rng.choice((1, 5, 10, 20, 100))}"
    return query + ";"

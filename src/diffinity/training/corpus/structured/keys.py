"""The pool of common keys, each with values that suit it, for objects of arbitrary shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from random import Random
from typing import Final, TypeAlias

from diffinity.training.corpus.structured import values as v
from diffinity.training.corpus.structured.names import (
    DEPARTMENTS,
    JOBS,
    ROLES,
    Person,
    Product,
    company,
    person,
    product,
)
from diffinity.training.corpus.structured.phrases import description, headline, message, task_title
from diffinity.training.corpus.structured.places import Place, addressable, postal_code, street


@dataclass(frozen=True)
class Scene:
    """The data of one object, so that its values agree: a city is in its country, an end follows a start."""

    rng: Random
    subject: str
    person: Person
    place: Place
    product: Product
    start: datetime
    end: datetime
    born: date
    low: int
    high: int
    street: str
    quantity: int


Maker: TypeAlias = Callable[[Scene], object]
SUBJECTS: Final = ("person", "place", "product", "event", "system", "measure", "text")


def scene(rng: Random) -> Scene:
    """Return random data for a new object.

    >>> scene(Random(0)).start < scene(Random(0)).end
    True
    """
    where, start = addressable(rng), v.moment(rng)
    low = rng.choice((0, 1, rng.randint(-20, 60)))
    return Scene(
        rng=rng,
        subject=rng.choice(SUBJECTS),
        person=person(rng),
        place=where,
        product=product(rng),
        start=start,
        end=start + timedelta(minutes=rng.choice((15, 30, 45, 60, 120, rng.randint(1, 50_000)))),
        born=v.birthday(rng),
        low=low,
        high=low + rng.randint(1, 100),
        street=street(rng, where),
        quantity=rng.randint(1, 12),
    )


def _name_value(s: Scene) -> str:
    if s.subject == "person":
        return s.person.name
    if s.subject == "place":
        return s.place.city
    if s.subject == "product":
        return s.product.name
    if s.subject == "system":
        return s.rng.choice((s.rng.choice(v.SERVICES), v.slug(s.rng)))
    return s.rng.choice((s.person.name, s.rng.choice(v.WORDS), company(s.rng), s.rng.choice(v.WORDS).capitalize()))


def _title_value(s: Scene) -> str:
    return s.rng.choice(JOBS) if s.subject == "person" else s.rng.choice((headline(s.rng), task_title(s.rng)))


def _type_value(s: Scene) -> str:
    types = {
        "person": ("user", "admin", "customer", "student", "employee", "guest"),
        "place": ("city", "home", "office", "shop", "hotel", "station"),
        "product": ("book", "food", "tool", "toy", "gift", "basic", "premium"),
        "event": ("meeting", "concert", "update", "alert", "birthday", "deadline"),
        "system": ("server", "client", "service", "job", "string", "integer"),
        "measure": ("temperature", "weight", "length", "count", "number"),
        "text": ("note", "article", "comment", "message", "page", "text"),
    }
    return s.rng.choice(types[s.subject])


_COMMON: dict[str, Maker] = {
    "id": lambda s: v.any_id(s.rng),
    "name": _name_value,
    "type": _type_value,
    "title": _title_value,
    "description": lambda s: description(s.rng),
    "value": lambda s: s.rng.choice((s.rng.randint(0, 100), v.decimal(s.rng, 0, 100), s.rng.choice(v.WORDS))),
    "status": lambda s: s.rng.choice(v.STATUSES),
    "url": lambda s: v.url(s.rng),
    "count": lambda s: s.rng.randint(0, 100),
    "enabled": lambda s: v.flag(s.rng),
    "active": lambda s: v.flag(s.rng),
    "tags": lambda s: v.some(s.rng, v.TAGS, 1, 4),
    "created_at": lambda s: v.iso(s.start),
    "updated_at": lambda s: v.iso(s.end),
    "createdAt": lambda s: v.iso(s.start),
    "updatedAt": lambda s: v.iso(s.end),
    "category": lambda s: s.product.category if s.subject == "product" else s.rng.choice(v.TAGS),
    "code": lambda s: v.filled(s.rng, s.rng.choice(("@@##", "@@@", "##", "@-###"))),
    "key": lambda s: s.rng.choice(v.WORDS),
    "label": lambda s: s.rng.choice(v.TAGS),
    "notes": lambda s: v.nullable(s.rng, message(s.rng)),
    "uuid": lambda s: v.uuid(s.rng),
    "date": lambda s: s.start.date().isoformat(),
    "year": lambda s: s.start.year,
    "index": lambda s: s.rng.randint(0, 50),
    "order": lambda s: s.rng.randint(1, 30),
    "kind": _type_value,
    "group": lambda s: s.rng.choice(("A", "B", "C", "staff", "users", "default")),
    "owner": lambda s: s.person.name,
    "source": lambda s: s.rng.choice(("web", "api", "import", "email", "manual", "app")),
    "public": lambda s: v.flag(s.rng),
    "visible": lambda s: v.flag(s.rng),
    "is_active": lambda s: v.flag(s.rng),
    "is_default": lambda s: v.flag(s.rng, 0.3),
    "deleted": lambda s: v.flag(s.rng, 0.2),
    "priority": lambda s: s.rng.choice((*v.LEVELS, 1, 2, 3)),
    "level": lambda s: s.rng.choice((*v.LEVELS, s.rng.randint(1, 10))),
    "color": lambda s: s.rng.choice((*v.COLOURS, v.hex_colour_code(s.rng))),
    "language": lambda s: s.rng.choice(v.LANGUAGES),
    "parent_id": lambda s: v.nullable(s.rng, v.number_id(s.rng)),
}
_PERSON: dict[str, Maker] = {
    "email": lambda s: s.person.email,
    "username": lambda s: s.person.username,
    "first_name": lambda s: s.person.first,
    "last_name": lambda s: s.person.last,
    "firstName": lambda s: s.person.first,
    "lastName": lambda s: s.person.last,
    "full_name": lambda s: s.person.name,
    "age": lambda s: 2026 - s.born.year,
    "birthday": lambda s: s.born.isoformat(),
    "date_of_birth": lambda s: s.born.isoformat(),
    "phone": lambda s: v.phone(s.rng),
    "gender": lambda s: s.rng.choice(("female", "male", "other", None)),
    "role": lambda s: s.rng.choice(ROLES),
    "roles": lambda s: v.some(s.rng, ROLES, 1, 3),
    "job": lambda s: s.rng.choice(JOBS),
    "job_title": lambda s: s.rng.choice(JOBS),
    "company": lambda s: company(s.rng),
    "department": lambda s: s.rng.choice(DEPARTMENTS),
    "salary": lambda s: s.rng.randrange(25_000, 120_000, 500),
    "user_id": lambda s: v.number_id(s.rng),
    "avatar": lambda s: v.image_url(s.rng),
    "website": lambda s: v.url(s.rng),
    "bio": lambda s: v.nullable(s.rng, s.rng.choice(JOBS) + " from " + s.place.city + "."),
    "verified": lambda s: v.flag(s.rng),
    "is_admin": lambda s: v.flag(s.rng, 0.3),
    "friends": lambda s: [person(s.rng).first for _ in range(s.rng.randint(1, 3))],
    "hobbies": lambda s: v.some(s.rng, ("chess", "hiking", "music", "reading", "cooking", "tennis"), 1, 3),
    "skills": lambda s: v.some(s.rng, ("python", "sql", "design", "writing", "sales", "excel"), 1, 3),
    "languages": lambda s: v.some(s.rng, v.LANGUAGES, 1, 3),
    "emails": lambda s: [s.person.email],
    "last_login": lambda s: v.nullable(s.rng, v.iso(s.end)),
}
_PLACE: dict[str, Maker] = {
    "city": lambda s: s.place.city,
    "country": lambda s: s.place.country,
    "country_code": lambda s: s.place.code,
    "address": lambda s: f"{s.street}, {s.place.city}",
    "street": lambda s: s.street,
    "zip": lambda s: postal_code(s.rng, s.place),
    "postal_code": lambda s: postal_code(s.rng, s.place),
    "postalCode": lambda s: postal_code(s.rng, s.place),
    "latitude": lambda s: s.place.latitude,
    "longitude": lambda s: s.place.longitude,
    "lat": lambda s: s.place.latitude,
    "lon": lambda s: s.place.longitude,
    "lng": lambda s: s.place.longitude,
    "coordinates": lambda s: [s.place.longitude, s.place.latitude],
    "location": lambda s: s.rng.choice((s.place.city, f"{s.place.city}, {s.place.country}")),
    "timezone": lambda s: s.place.timezone,
    "floor": lambda s: s.rng.randint(0, 12),
    "room": lambda s: s.rng.choice((s.rng.randint(1, 420), f"Room {s.rng.randint(1, 30)}")),
    "distance": lambda s: v.decimal(s.rng, 0.1, 300, 1),
    "area": lambda s: s.rng.randint(12, 900),
}
_PRODUCT: dict[str, Maker] = {
    "price": lambda s: s.product.price,
    "currency": lambda s: s.rng.choice(v.CURRENCIES),
    "quantity": lambda s: s.quantity,
    "total": lambda s: s.product.cents * s.quantity / 100,
    "amount": lambda s: s.product.cents * s.quantity / 100,
    "discount": lambda s: s.rng.choice((0, 5, 10, 15, 0.1, 0.25)),
    "tax": lambda s: s.rng.choice((0, 7, 19, 20, 0.2)),
    "sku": lambda s: s.product.sku,
    "product": lambda s: s.product.name,
    "product_id": lambda s: v.number_id(s.rng),
    "stock": lambda s: s.rng.randint(0, 300),
    "in_stock": lambda s: v.flag(s.rng, 0.7),
    "available": lambda s: v.flag(s.rng, 0.7),
    "brand": lambda s: company(s.rng).split()[0],
    "rating": lambda s: v.decimal(s.rng, 1, 5, 1),
    "reviews": lambda s: s.rng.randint(0, 900),
    "size": lambda s: s.rng.choice(v.SIZES),
    "weight": lambda s: v.decimal(s.rng, 0.1, 40, 1),
    "material": lambda s: s.rng.choice(("wood", "cotton", "steel", "glass", "wool", "plastic", "paper")),
    "image": lambda s: v.image_url(s.rng),
    "images": lambda s: [v.image_url(s.rng)],
    "order_id": lambda s: v.number_id(s.rng),
    "customer": lambda s: s.person.name,
    "payment_method": lambda s: s.rng.choice(("card", "cash", "invoice", "wallet", "bank_transfer")),
    "paid": lambda s: v.flag(s.rng),
    "colors": lambda s: v.some(s.rng, v.COLOURS, 1, 4),
    "sizes": lambda s: v.some(s.rng, ("S", "M", "L", "XL"), 1, 4),
}
_EVENT: dict[str, Maker] = {
    "start": lambda s: v.iso(s.start),
    "end": lambda s: v.iso(s.end),
    "start_date": lambda s: s.start.date().isoformat(),
    "end_date": lambda s: s.end.date().isoformat(),
    "start_time": lambda s: v.iso(s.start),
    "end_time": lambda s: v.iso(s.end),
    "startDate": lambda s: s.start.date().isoformat(),
    "endDate": lambda s: s.end.date().isoformat(),
    "time": lambda s: f"{s.start:%H:%M}",
    "timestamp": lambda s: s.rng.choice((v.iso(s.start), int(s.start.timestamp()))),
    "day": lambda s: v.WEEKDAYS[s.start.weekday()],
    "month": lambda s: s.rng.choice((s.start.month, v.MONTHS[s.start.month - 1])),
    "duration": lambda s: s.rng.choice((15, 30, 45, 60, 90, 120)),
    "event": lambda s: s.rng.choice(("login", "signup", "purchase", "update", "click", "meeting")),
    "organizer": lambda s: s.person.name,
    "attendees": lambda s: [person(s.rng).first for _ in range(s.rng.randint(1, 3))],
    "participants": lambda s: s.rng.randint(2, 90),
    "expires_at": lambda s: v.nullable(s.rng, v.iso(s.end + timedelta(days=30))),
    "completed": lambda s: v.flag(s.rng),
    "all_day": lambda s: v.flag(s.rng, 0.3),
    "reminder": lambda s: v.flag(s.rng),
    "due_date": lambda s: v.nullable(s.rng, s.end.date().isoformat()),
}
_SYSTEM: dict[str, Maker] = {
    "version": lambda s: v.version(s.rng),
    "host": lambda s: v.hostname(s.rng),
    "port": lambda s: s.rng.choice((22, 80, 443, 3000, 5432, 8000, 8080)),
    "ip": lambda s: v.ipv4(s.rng),
    "ip_address": lambda s: v.ipv4(s.rng),
    "path": lambda s: v.relative_path(s.rng),
    "file": lambda s: v.file_name(s.rng)[0],
    "filename": lambda s: v.file_name(s.rng)[0],
    "file_size": lambda s: s.rng.randint(100, 5_000_000),
    "format": lambda s: s.rng.choice(("json", "csv", "pdf", "png", "xml", "text")),
    "method": lambda s: s.rng.choice(("GET", "POST", "PUT", "DELETE")),
    "endpoint": lambda s: f"/api/{s.rng.choice(v.SERVICES)}",
    "token": lambda s: v.filled(s.rng, "~~~~~~~~~~~~"),
    "hash": lambda s: v.filled(s.rng, "~~~~~~~~"),
    "mode": lambda s: s.rng.choice(("auto", "manual", "fast", "safe", "off")),
    "debug": lambda s: v.flag(s.rng),
    "timeout": lambda s: s.rng.choice((5, 10, 30, 60, 2.5)),
    "retries": lambda s: s.rng.randint(0, 5),
    "limit": lambda s: s.rng.choice((10, 20, 50, 100)),
    "offset": lambda s: s.rng.choice((0, 10, 20, 100)),
    "page": lambda s: s.rng.randint(1, 40),
    "success": lambda s: v.flag(s.rng, 0.8),
    "error": lambda s: s.rng.choice((None, None, "timeout", "not found", "invalid input")),
    "environment": lambda s: s.rng.choice(("production", "staging", "development")),
    "region": lambda s: s.rng.choice(("eu-west", "us-east", "us-west", "asia-south", "north")),
    "platform": lambda s: s.rng.choice(("linux", "windows", "macos", "android", "ios", "web")),
    "domain": lambda s: v.domain(s.rng),
    "hostname": lambda s: v.hostname(s.rng),
    "permissions": lambda s: v.some(s.rng, ("read", "write", "delete", "share"), 1, 3),
    "dependencies": lambda s: v.some(s.rng, v.SERVICES, 1, 3),
}
_MEASURE: dict[str, Maker] = {
    "min": lambda s: s.low,
    "max": lambda s: s.high,
    "average": lambda s: round(s.rng.uniform(s.low, s.high), 1),
    "unit": lambda s: s.rng.choice(("kg", "cm", "m", "km", "C", "%", "s", "ms", "l")),
    "score": lambda s: s.rng.choice((s.rng.randint(0, 100), v.decimal(s.rng, 0, 1))),
    "width": lambda s: s.rng.randint(1, 1920),
    "height": lambda s: s.rng.randint(1, 1080),
    "length": lambda s: s.rng.randint(1, 500),
    "depth": lambda s: v.decimal(s.rng, 0.1, 60, 1),
    "x": lambda s: s.rng.randint(-100, 500),
    "y": lambda s: s.rng.randint(-100, 500),
    "z": lambda s: s.rng.randint(-100, 100),
    "temperature": lambda s: v.decimal(s.rng, -12, 36, 1),
    "humidity": lambda s: s.rng.randint(15, 99),
    "speed": lambda s: v.decimal(s.rng, 0, 130, 1),
    "percentage": lambda s: s.rng.choice((s.rng.randint(0, 100), v.decimal(s.rng, 0, 100, 1))),
    "ratio": lambda s: v.decimal(s.rng, 0, 1),
    "values": lambda s: [s.rng.randint(0, 99) for _ in range(s.rng.randint(1, 6))],
    "scores": lambda s: [v.decimal(s.rng, 0, 10, 1) for _ in range(s.rng.randint(1, 5))],
    "numbers": lambda s: [s.rng.randint(-20, 100) for _ in range(s.rng.randint(1, 6))],
    "balance": lambda s: v.decimal(s.rng, -500, 9000),
    "calories": lambda s: s.rng.randint(20, 900),
    "points": lambda s: s.rng.randint(0, 500),
    "rank": lambda s: s.rng.randint(1, 50),
}
_TEXT: dict[str, Maker] = {
    "text": lambda s: message(s.rng),
    "content": lambda s: message(s.rng),
    "message": lambda s: message(s.rng),
    "body": lambda s: message(s.rng),
    "summary": lambda s: description(s.rng),
    "comment": lambda s: message(s.rng),
    "subject": lambda s: headline(s.rng),
    "author": lambda s: s.person.name,
    "slug": lambda s: v.slug(s.rng),
    "keywords": lambda s: v.some(s.rng, v.TAGS, 1, 4),
    "categories": lambda s: v.some(s.rng, v.TAGS, 1, 3),
    "link": lambda s: v.url(s.rng),
    "links": lambda s: [v.url(s.rng) for _ in range(s.rng.randint(1, 2))],
    "published": lambda s: v.flag(s.rng),
    "published_at": lambda s: v.nullable(s.rng, v.iso(s.end)),
    "likes": lambda s: s.rng.randint(0, 500),
    "views": lambda s: s.rng.randint(0, 20_000),
    "pages": lambda s: s.rng.randint(1, 700),
    "question": lambda s: s.rng.choice(("How old are you?", "Is it open today?", "Where do you live?")),
    "answer": lambda s: s.rng.choice(("yes", "no", "maybe", s.rng.randint(0, 99))),
    "words": lambda s: v.some(s.rng, v.WORDS, 1, 5),
    "genre": lambda s: s.rng.choice(("drama", "comedy", "fantasy", "jazz", "rock", "history")),
    "lang": lambda s: s.rng.choice(v.LANGUAGES),
}

SUBJECT_KEYS: Final[dict[str, dict[str, Maker]]] = {
    "person": _PERSON,
    "place": _PLACE,
    "product": _PRODUCT,
    "event": _EVENT,
    "system": _SYSTEM,
    "measure": _MEASURE,
    "text": _TEXT,
}
COMMON_KEYS: Final = _COMMON
KEYS: Final[dict[str, Maker]] = {
    **_COMMON,
    **{k: m for keys in SUBJECT_KEYS.values() for k, m in keys.items()},
}

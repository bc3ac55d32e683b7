"""Kinds of record about journeys: flights, hotels, trains, bookings, rentals."""

from __future__ import annotations

from datetime import timedelta
from random import Random

from diffinity.training.corpus.structured.names import person
from diffinity.training.corpus.structured.places import PLACES, Place, kilometres, place
from diffinity.training.corpus.structured.registry import Record, json_kind
from diffinity.training.corpus.structured.values import (
    WORDS,
    clock,
    day,
    decimal,
    filled,
    flag,
    iso,
    maybe,
    meeting_time,
    nullable,
    price,
    some,
)


def _pair(rng: Random) -> tuple[Place, Place]:
    start = place(rng)
    return start, rng.choice([end for end in PLACES if end.airport != start.airport])


@json_kind()
def flight(rng: Random) -> Record:
    start, end = _pair(rng)
    leaves = meeting_time(rng)
    minutes = 35 + round(kilometres(start, end) / 13 / 5) * 5
    return {
        "flight": filled(rng, "@@") + str(rng.randint(10, 2999)),
        "from": {"city": start.city, "airport": start.airport},
        "to": {"city": end.city, "airport": end.airport},
        "departure": iso(leaves),
        "arrival": iso(leaves + timedelta(minutes=minutes)),
        "gate": maybe(rng, nullable(rng, f"{rng.choice('ABCD')}{rng.randint(1, 40)}"), 0.6),
        "status": maybe(rng, rng.choice(("on time", "delayed", "boarding", "cancelled"))),
    }


@json_kind()
def booking(rng: Random) -> Record:
    start, end = _pair(rng)
    return {
        "booking_reference": filled(rng, "@@#@#@"),
        "passenger": person(rng).name,
        "route": [start.airport, end.airport],
        "date": day(rng).isoformat(),
        "seat": f"{rng.randint(1, 38)}{rng.choice('ABCDEF')}",
        "bags": maybe(rng, rng.randint(0, 3)),
        "meal": maybe(rng, nullable(rng, rng.choice(("vegetarian", "vegan", "standard", "kosher")))),
        "checked_in": maybe(rng, flag(rng)),
    }


@json_kind()
def hotel(rng: Random) -> Record:
    where, stars = place(rng), rng.randint(1, 5)
    currency = where.currency if where.currency in ("EUR", "USD", "GBP", "CHF", "CAD", "AUD") else "USD"
    return {
        "hotel": f"Hotel {rng.choice(WORDS).capitalize()}",
        "city": where.city,
        "country": maybe(rng, where.country),
        "stars": stars,
        "price_per_night": {"amount": price(rng, 3000 * stars, 4000 * stars + 4000), "currency": currency},
        "amenities": maybe(rng, some(rng, ("wifi", "pool", "parking", "breakfast", "gym", "bar", "sauna"), 1, 4)),
        "rating": maybe(rng, decimal(rng, 5.5, 9.8, 1)),
    }


@json_kind()
def hotel_stay(rng: Random) -> Record:
    arrives, nights = day(rng), rng.randint(1, 12)
    room, rate = rng.choice(
        (
            ("single", rng.randrange(45, 120, 5)),
            ("double", rng.randrange(70, 180, 5)),
            ("suite", rng.randrange(160, 400, 5)),
        )
    )
    return {
        "guest": person(rng).name,
        "check_in": arrives.isoformat(),
        "check_out": (arrives + timedelta(days=nights)).isoformat(),
        "nights": nights,
        "room": {"number": rng.randint(101, 640), "type": room},
        "rate": rate,
        "total": nights * rate,
        "breakfast": maybe(rng, flag(rng)),
    }


@json_kind()
def train(rng: Random) -> Record:
    start, end = rng.sample([city for city in PLACES if city.code in ("DE", "FR", "NL", "BE", "CH", "AT")], 2)
    leaves = meeting_time(rng).replace(minute=rng.randrange(60))
    minutes = round(kilometres(start, end) / rng.uniform(1.4, 2.6)) + 15
    return {
        "train": f"{rng.choice(('IC', 'EC', 'RE', 'ICE'))} {rng.randint(10, 999)}",
        "from": start.city,
        "to": end.city,
        "departs": f"{leaves:%H:%M}",
        "arrives": f"{leaves + timedelta(minutes=minutes):%H:%M}",
        "platform": maybe(rng, rng.randint(1, 24), 0.7),
        "delay_minutes": maybe(rng, rng.choice((0, 0, 0, 5, rng.randint(1, 60)))),
        "changes": maybe(rng, rng.randint(0, 3), 0.3),
    }


@json_kind()
def car_rental(rng: Random) -> Record:
    pickup, days, rate = day(rng), rng.randint(1, 14), rng.randrange(25, 120, 1)
    return {
        "vehicle": rng.choice(("compact", "sedan", "van", "electric", "suv", "convertible")),
        "pickup": {"place": place(rng).airport, "date": pickup.isoformat(), "time": maybe(rng, clock(rng))},
        "return_date": (pickup + timedelta(days=days)).isoformat(),
        "daily_rate": rate,
        "total": days * rate,
        "insurance": flag(rng),
    }


@json_kind()
def itinerary(rng: Random) -> Record:
    first = day(rng)
    stops: list[Record] = []
    for city in rng.sample(PLACES, rng.randint(2, 3)):
        nights = rng.randint(1, 5)
        stops.append({"city": city.city, "arrive": first.isoformat(), "nights": nights})
        first += timedelta(days=nights)
    return {
        "traveler": person(rng).name,
        "stops": stops,
        "end": first.isoformat(),
        "budget": maybe(rng, rng.randrange(300, 6000, 50)),
    }

"""Kinds of record about places and weather: GeoJSON, cities, routes, forecasts."""

from __future__ import annotations

from datetime import timedelta
from random import Random

from diffinity.training.corpus.structured.places import (
    PLACES,
    Place,
    addressable,
    kilometres,
    near,
    place,
    postal_code,
    street,
)
from diffinity.training.corpus.structured.registry import Record, json_kind
from diffinity.training.corpus.structured.values import WORDS, day, decimal, flag, maybe, number_id, timestamp

_SIGHTS = ("Museum", "Park", "Station", "Library", "Café", "School", "Bridge", "Market", "Hospital", "Tower")


def _position(rng: Random, where: Place) -> list[float]:
    """GeoJSON writes longitude before latitude."""
    latitude, longitude = near(rng, where)
    return [longitude, latitude]


def _sight(rng: Random) -> str:
    return f"{rng.choice(WORDS).capitalize()} {rng.choice(_SIGHTS)}"


def _sky(rng: Random, where: Place) -> tuple[str, float]:
    """Weather that the latitude allows: no snow in the south of Europe, no frost in the tropics."""
    condition, low, high = rng.choice(
        (
            ("sunny", 5, 34),
            ("clear", -8, 30),
            ("cloudy", -2, 26),
            ("partly cloudy", 0, 28),
            ("rain", 3, 24),
            ("light rain", 4, 22),
            ("fog", -2, 14),
            ("thunderstorm", 14, 30),
            ("windy", 2, 22),
            *((("snow", -12, 1),) if abs(where.latitude) > 42 else ()),
        )
    )
    coldest = 21 if abs(where.latitude) < 25 else 5 if abs(where.latitude) < 40 else -12
    return condition, decimal(rng, max(low, coldest), max(high, coldest + 8), 1)


@json_kind()
def geo_point(rng: Random) -> Record:
    return {"type": "Point", "coordinates": _position(rng, place(rng))}


@json_kind()
def geo_feature(rng: Random) -> Record:
    where = place(rng)
    return {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": _position(rng, where)},
        "properties": {
            "name": _sight(rng),
            "city": maybe(rng, where.city),
            "open": maybe(rng, flag(rng), 0.4),
            "rating": maybe(rng, decimal(rng, 2, 5, 1), 0.3),
        },
    }


@json_kind()
def geo_line_string(rng: Random) -> Record:
    where = place(rng)
    return {"type": "LineString", "coordinates": [_position(rng, where) for _ in range(rng.randint(2, 5))]}


@json_kind()
def geo_polygon(rng: Random) -> Record:
    latitude, longitude = near(rng, place(rng), digits=2)
    east, north = round(longitude + decimal(rng, 0.02, 0.3), 2), round(latitude + decimal(rng, 0.02, 0.3), 2)
    corners = [[longitude, latitude], [east, latitude], [east, north], [longitude, north]]
    return {"type": "Polygon", "coordinates": [[*corners, corners[0]]]}


@json_kind()
def bounding_box(rng: Random) -> Record:
    where = place(rng)
    south, west = near(rng, where)
    north, east = round(south + decimal(rng, 0.01, 0.2, 4), 4), round(west + decimal(rng, 0.01, 0.2, 4), 4)
    return {"name": maybe(rng, where.city, 0.7), "bbox": [west, south, east, north]}


@json_kind()
def city_record(rng: Random) -> Record:
    where = place(rng)
    return {
        "city": where.city,
        "country": where.country,
        "country_code": maybe(rng, where.code),
        "location": {"lat": where.latitude, "lon": where.longitude},
        "timezone": maybe(rng, where.timezone, 0.6),
        "currency": maybe(rng, where.currency),
        "airport": maybe(rng, where.airport, 0.4),
    }


@json_kind()
def address_record(rng: Random) -> Record:
    where = addressable(rng)
    latitude, longitude = near(rng, where)
    return {
        "address": {
            "street": street(rng, where),
            "city": where.city,
            "postal_code": postal_code(rng, where),
            "country": where.country,
        },
        "latitude": maybe(rng, latitude, 0.6),
        "longitude": maybe(rng, longitude, 0.6),
        "verified": maybe(rng, flag(rng, 0.8)),
    }


@json_kind()
def point_of_interest(rng: Random) -> Record:
    where = place(rng)
    latitude, longitude = near(rng, where)
    opens = rng.randint(6, 11)
    return {
        "id": number_id(rng),
        "name": _sight(rng),
        "lat": latitude,
        "lng": longitude,
        "city": maybe(rng, where.city),
        "hours": maybe(rng, {"open": f"{opens:02}:00", "close": f"{opens + rng.randint(5, 11)}:00"}),
        "distance_m": maybe(rng, rng.randint(20, 5000)),
    }


@json_kind()
def route(rng: Random) -> Record:
    start, end = rng.sample(
        [city for city in PLACES if city.currency == "EUR" and city.code not in ("IE", "FI")], 2
    )
    distance = round(kilometres(start, end) * rng.uniform(1.15, 1.4))
    return {
        "from": start.city,
        "to": end.city,
        "distance_km": distance,
        "duration_min": round(distance / rng.uniform(75, 105) * 60),
        "mode": "driving",
        "tolls": maybe(rng, flag(rng)),
    }


@json_kind()
def weather_answer(rng: Random) -> Record:
    where = place(rng)
    condition, temperature = _sky(rng, where)
    is_wet = condition in ("rain", "light rain", "snow", "fog", "thunderstorm")
    return {
        "city": where.city,
        "temperature": temperature,
        "unit": maybe(rng, "celsius", 0.7),
        "condition": condition,
        "humidity": rng.randint(70, 100) if is_wet else rng.randint(20, 75),
        "wind_kph": maybe(rng, rng.randint(35, 80) if condition == "windy" else rng.randint(0, 30)),
        "observed_at": maybe(rng, timestamp(rng)),
    }


@json_kind()
def forecast(rng: Random) -> Record:
    where, first = place(rng), day(rng)
    middle = rng.uniform(23, 29) if abs(where.latitude) < 25 else rng.uniform(4, 24)
    days: list[Record] = []
    for offset in range(rng.randint(1, 3)):
        low = round(middle + rng.uniform(-5, 0))
        days.append(
            {
                "date": (first + timedelta(days=offset)).isoformat(),
                "min": low,
                "max": low + rng.randint(2, 11),
                "rain_chance": rng.choice((0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9)),
            }
        )
    return {"location": where.city, "days": days}


@json_kind()
def air_quality(rng: Random) -> Record:
    index = rng.randint(8, 210)
    names = ((50, "good"), (100, "moderate"), (150, "unhealthy for sensitive groups"), (250, "unhealthy"))
    return {
        "station": f"{place(rng).city} {rng.choice(('North', 'South', 'Centre', 'Airport', 'Harbour'))}",
        "aqi": index,
        "category": next(name for limit, name in names if index <= limit),
        "pm25": maybe(rng, round(index * 0.3 + rng.uniform(-2, 2), 1), 0.6),
        "measured_at": timestamp(rng),
    }


@json_kind()
def earthquake(rng: Random) -> Record:
    return {
        "magnitude": decimal(rng, 2.0, 6.9, 1),
        "depth_km": decimal(rng, 2, 120, 1),
        "location": {"lat": decimal(rng, -60, 65), "lon": decimal(rng, -180, 180)},
        "time": timestamp(rng),
        "tsunami": maybe(rng, False),
        "felt_reports": maybe(rng, rng.choice((0, rng.randint(1, 900)))),
    }

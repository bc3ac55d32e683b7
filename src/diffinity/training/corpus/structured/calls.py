"""Kinds of function-call arguments that an assistant passes to a tool."""

from __future__ import annotations

from datetime import timedelta
from random import Random

from diffinity.training.corpus.structured.names import company, person, product
from diffinity.training.corpus.structured.phrases import message, task_title
from diffinity.training.corpus.structured.places import PLACES, addressable, place, street
from diffinity.training.corpus.structured.registry import ABSENT, Record, json_kind
from diffinity.training.corpus.structured.values import (
    CURRENCIES,
    LANGUAGES,
    clock,
    day,
    decimal,
    flag,
    iso,
    maybe,
    meeting_time,
    parts,
    some,
    uuid,
)

_ROOMS = ("kitchen", "bedroom", "living room", "office", "hallway", "bathroom", "garage", "garden")
_TOPICS = parts(
    "best hiking trails|python list comprehension|cheap flights|how to bake bread|history of chess"
    "|weather tomorrow|used bicycles|public holidays|solar panels|jazz festivals|learn spanish"
    "|healthy breakfast ideas|train timetable|population of iceland|electric cars|garden tools"
)
_SAYINGS = parts(
    "Good morning|Where is the station?|Thank you very much|How much does it cost?|I am hungry"
    "|See you tomorrow|The water is cold|We arrive at noon|Can you help me?|I do not understand"
    "|The shop is closed|What time is it?|My name is Anna|Two coffees, please|Have a nice day"
)
_CUISINES = ("italian", "thai", "indian", "mexican", "japanese", "vegan", "greek", "french", "korean")


@json_kind()
def weather_call(rng: Random) -> Record:
    where = place(rng)
    return {
        "location": rng.choice((where.city, f"{where.city}, {where.country}")),
        "unit": rng.choice(("celsius", "fahrenheit")),
        "days": maybe(rng, rng.randint(1, 10)),
        "include_hourly": maybe(rng, flag(rng), 0.3),
    }


@json_kind()
def search_call(rng: Random) -> Record:
    return {
        "query": rng.choice((rng.choice(_TOPICS), f"{rng.choice(_TOPICS)} {place(rng).city}")),
        "max_results": maybe(rng, rng.choice((3, 5, 10, 20, 50)), 0.7),
        "language": maybe(rng, rng.choice(LANGUAGES), 0.4),
        "safe": maybe(rng, flag(rng), 0.3),
        "filters": maybe(rng, {"after": day(rng).isoformat()}, 0.2),
    }


@json_kind()
def email_call(rng: Random) -> Record:
    return {
        "to": [person(rng).email for _ in range(rng.choice((1, 1, 2)))],
        "cc": maybe(rng, [person(rng).email], 0.2),
        "subject": rng.choice(("Hello", "Question", "News", "This week", "Quick note", "Today", "Hi", "Update")),
        "body": message(rng),
        "urgent": maybe(rng, flag(rng, 0.3), 0.4),
    }


@json_kind()
def flight_call(rng: Random) -> Record:
    start, end = rng.sample(PLACES, 2)
    leaves = day(rng)
    back = flag(rng)
    return {
        "origin": start.airport,
        "destination": end.airport if end.airport != start.airport else "LHR",
        "departure_date": leaves.isoformat(),
        "return_date": (leaves + timedelta(days=rng.randint(1, 30))).isoformat() if back else None,
        "passengers": rng.choice((1, 1, 2, 3, 4)),
        "class": maybe(rng, rng.choice(("economy", "premium", "business", "first")), 0.6),
        "direct_only": maybe(rng, flag(rng), 0.4),
    }


@json_kind()
def timer_call(rng: Random) -> Record:
    lengths: tuple[Record, ...] = (
        {"minutes": rng.randint(1, 90)},
        {"seconds": rng.choice((10, 30, 45, 60, 90, 120))},
        {"hours": rng.randint(1, 8), "minutes": rng.choice((0, 15, 30, 45))},
    )
    label = rng.choice(("pasta", "tea", "laundry", "workout", "nap", "oven", "parking", "eggs"))
    return {
        "label": maybe(rng, label, 0.7),
        **rng.choice(lengths),
        "sound": maybe(rng, rng.choice(("bell", "chime", "beep"))),
    }


@json_kind()
def alarm_call(rng: Random) -> Record:
    return {
        "time": f"{rng.randint(4, 10):02}:{rng.choice((0, 10, 15, 20, 30, 40, 45)):02}",
        "days": [name for name in ("mon", "tue", "wed", "thu", "fri", "sat", "sun") if flag(rng)],
        "label": maybe(rng, rng.choice(("work", "school", "gym", "train", "medicine"))),
        "snooze_minutes": maybe(rng, rng.choice((5, 9, 10, 15))),
        "volume": maybe(rng, decimal(rng, 0.1, 1, 1)),
    }


@json_kind()
def translate_call(rng: Random) -> Record:
    target = rng.choice(LANGUAGES[1:])
    return {
        "text": rng.choice(_SAYINGS),
        "source_language": maybe(rng, rng.choice(("en", "auto")), 0.7),
        "target_language": target,
        "formal": maybe(rng, flag(rng), 0.4),
    }


@json_kind()
def calculator_call(rng: Random) -> Record:
    a, b, c = rng.randint(1, 999), rng.randint(1, 99), rng.randint(1, 12)
    expression = rng.choice((f"{a} + {b}", f"{a} * {b}", f"({a} - {b}) / {c}", f"{a}.5 * {c}", f"{a} % {b}"))
    return {"expression": expression, "precision": maybe(rng, rng.randint(0, 6))}


@json_kind()
def currency_call(rng: Random) -> Record:
    base, target = rng.sample(sorted(set(CURRENCIES)), 2)
    return {
        "amount": rng.choice((rng.randint(1, 5000), decimal(rng, 1, 900))),
        "from": base,
        "to": target,
        "date": maybe(rng, day(rng).isoformat(), 0.3),
    }


@json_kind()
def lights_call(rng: Random) -> Record:
    is_on = flag(rng, 0.7)
    colour = rng.choice(("warm white", "cool white", "red", "green", "blue", "orange", "purple", "pink"))
    return {
        "room": rng.choice(_ROOMS),
        "on": is_on,
        "brightness": rng.choice((10, 25, 40, 50, 60, 75, 80, 100)) if is_on else 0,
        "color": maybe(rng, colour) if is_on else ABSENT,
        "transition": maybe(rng, rng.choice((0.5, 1, 2, 5))),
    }


@json_kind()
def thermostat_call(rng: Random) -> Record:
    return {
        "room": maybe(rng, rng.choice(_ROOMS[:5]), 0.8),
        "temperature": decimal(rng, 15, 25, 1),
        "mode": rng.choice(("heat", "cool", "auto", "off")),
        "schedule": maybe(rng, {"from": f"{rng.randint(5, 9):02}:00", "to": f"{rng.randint(17, 23)}:30"}),
    }


@json_kind()
def restaurant_call(rng: Random) -> Record:
    travel_day = day(rng)
    return {
        "city": place(rng).city,
        "cuisine": rng.choice(_CUISINES),
        "date": travel_day.isoformat(),
        "time": f"{rng.randint(17, 21)}:{rng.choice(('00', '15', '30', '45'))}",
        "people": rng.randint(1, 10),
        "name": maybe(rng, person(rng).last),
        "outdoor": maybe(rng, flag(rng), 0.3),
    }


@json_kind()
def directions_call(rng: Random) -> Record:
    where = addressable(rng)
    return {
        "from": f"{street(rng, where)}, {where.city}",
        "to": rng.choice(("airport", "train station", "city centre", f"{street(rng, where)}, {where.city}")),
        "mode": rng.choice(("walking", "driving", "cycling", "transit")),
        "depart_at": maybe(rng, clock(rng)),
        "avoid": maybe(rng, some(rng, ("tolls", "ferries", "highways"), 1, 2), 0.3),
    }


@json_kind()
def create_event_call(rng: Random) -> Record:
    start = meeting_time(rng)
    return {
        "title": rng.choice((task_title(rng), f"Call with {person(rng).first}", f"Visit {company(rng)}")),
        "start_time": iso(start),
        "duration_minutes": rng.choice((15, 30, 45, 60, 90)),
        "participants": maybe(rng, [person(rng).email for _ in range(rng.randint(1, 2))], 0.6),
        "online": maybe(rng, flag(rng), 0.4),
    }


@json_kind()
def tool_call(rng: Random) -> Record:
    name, arguments = rng.choice(
        (
            ("get_weather", weather_call),
            ("web_search", search_call),
            ("set_timer", timer_call),
            ("translate", translate_call),
            ("calculate", calculator_call),
            ("convert_currency", currency_call),
            ("set_lights", lights_call),
            ("set_alarm", alarm_call),
        )
    )
    return {"name": name, "arguments": arguments(rng)}


@json_kind()
def tool_answer(rng: Random) -> Record:
    item, count = product(rng), rng.choice((0, rng.randint(1, 40)))
    results: tuple[Record, ...] = (
        {"temperature": rng.randint(-8, 34), "unit": "celsius"},
        {"result": rng.randint(-500, 9000)},
        {"product": item.name, "price": item.price},
        {"status": "sent", "recipients": rng.randint(1, 9)},
        {"found": count > 0, "count": count},
    )
    return {
        "tool_call_id": rng.choice((f"call_{rng.randint(1, 9999)}", uuid(rng))),
        "ok": True,
        "output": rng.choice(results),
        "duration_ms": maybe(rng, rng.randint(3, 3000)),
    }


@json_kind()
def json_rpc(rng: Random) -> Record:
    low = rng.randint(-50, 50)
    method, params = rng.choice(
        (
            ("add", [low, rng.randint(1, 90)]),
            ("user.get", {"id": rng.randint(1, 9999)}),
            ("ping", []),
            ("list", {"limit": rng.choice((10, 20, 50)), "offset": rng.choice((0, 10, 100))}),
            ("range", {"min": low, "max": low + rng.randint(1, 100)}),
            ("echo", [message(rng)]),
        )
    )
    return {"jsonrpc": "2.0", "method": method, "params": params, "id": rng.randint(1, 999)}

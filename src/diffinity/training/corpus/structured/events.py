"""Kinds of record about things that happen: webhooks, calendar entries, clicks, reminders, matches."""

from __future__ import annotations

from datetime import timedelta
from random import Random

from diffinity.training.corpus.structured.names import TEAMS, company, person, product
from diffinity.training.corpus.structured.phrases import change_title, headline, message, task_title
from diffinity.training.corpus.structured.places import addressable, place, street
from diffinity.training.corpus.structured.registry import ABSENT, Record, json_kind
from diffinity.training.corpus.structured.values import (
    LEVELS,
    WEEKDAYS,
    WORDS,
    cents,
    day,
    decimal,
    domain,
    filled,
    flag,
    ipv4,
    iso,
    maybe,
    meeting_time,
    nullable,
    number_id,
    parts,
    price,
    slug,
    some,
    timestamp,
    url,
    uuid,
)

_MEETINGS = parts(
    "Weekly sync|Team lunch|Project review|Planning|Interview|Dentist|Yoga class|Piano lesson|Budget meeting"
    "|Design review|Parents' evening|Board meeting|Language course|Standup|Retrospective|Book club"
)
_REGULAR = tuple(name for name in _MEETINGS if name not in ("Interview", "Dentist", "Parents' evening"))
_ACTIONS = {
    "session": ("login", "logout"),
    "project": ("create", "update", "delete", "export"),
    "user": ("invite", "update", "delete"),
    "file": ("upload", "download", "delete"),
    "report": ("create", "export", "download"),
    "key": ("create", "rotate", "delete"),
}
_CLUBS = parts("Leeds|Porto|Lyon|Bremen|Turin|Malmö|Bergen|Graz|Basel|York|Lille|Bilbao")
_ROOMS = ("Room 1", "Room 12", "Room 204", "Blue Room", "Library", "Online", "Main Hall", "Office 3")


@json_kind()
def webhook(rng: Random) -> Record:
    subject = rng.choice(("order", "user", "invoice", "payment", "subscription", "file", "comment"))
    return {
        "event": f"{subject}.{rng.choice(('created', 'updated', 'deleted', 'failed', 'completed'))}",
        "id": rng.choice((filled(rng, "evt_~~~~~~~~"), uuid(rng))),
        "created": timestamp(rng),
        "data": {f"{subject}_id": number_id(rng), "amount": maybe(rng, cents(rng), 0.3)},
        "attempt": maybe(rng, rng.randint(1, 5), 0.4),
    }


@json_kind()
def push_webhook(rng: Random) -> Record:
    return {
        "ref": f"refs/heads/{rng.choice(('main', 'dev', 'fix-login', 'release', 'docs'))}",
        "before": filled(rng, "~~~~~~~"),
        "after": filled(rng, "~~~~~~~"),
        "pusher": person(rng).username,
        "commits": [
            {"id": filled(rng, "~~~~~~~"), "message": change_title(rng)} for _ in range(rng.randint(1, 2))
        ],
    }


@json_kind()
def calendar_entry(rng: Random) -> Record:
    start = meeting_time(rng)
    return {
        "title": rng.choice(_MEETINGS),
        "start": iso(start),
        "end": iso(start + timedelta(minutes=rng.choice((15, 30, 45, 60, 90, 120)))),
        "location": maybe(rng, nullable(rng, rng.choice(_ROOMS))),
        "attendees": maybe(rng, [person(rng).email for _ in range(rng.randint(1, 2))]),
        "all_day": maybe(rng, False, 0.2),
        "reminder_minutes": maybe(rng, rng.choice((5, 10, 15, 30, 60)), 0.4),
    }


@json_kind()
def recurring_event(rng: Random) -> Record:
    return {
        "name": rng.choice(_REGULAR),
        "repeat": {
            "frequency": "weekly",
            "interval": rng.choice((1, 1, 2, 4)),
            "days": [name for name in WEEKDAYS if flag(rng, 0.3)] or ["Monday"],
        },
        "time": f"{meeting_time(rng):%H:%M}",
        "duration_minutes": rng.choice((15, 30, 45, 60, 90)),
        "until": maybe(rng, nullable(rng, day(rng).isoformat()), 0.6),
    }


@json_kind()
def public_event(rng: Random) -> Record:
    where = addressable(rng)
    return {
        "event": rng.choice(("Jazz Night", "Book Fair", "Open Air Concert", "Film Festival", "Art Show")),
        "date": day(rng).isoformat(),
        "doors_open": f"{rng.randint(16, 20)}:{rng.choice(('00', '30'))}",
        "venue": {"address": street(rng, where), "city": where.city, "country": where.country},
        "price": rng.choice((0, 5, 12.5, 20, 35, price(rng, 500, 9000))),
        "sold_out": flag(rng, 0.2),
    }


@json_kind()
def audit_event(rng: Random) -> Record:
    target, actions = rng.choice(tuple(_ACTIONS.items()))
    return {
        "actor": rng.choice((person(rng).email, person(rng).username)),
        "action": rng.choice(actions),
        "target": f"{target}/{number_id(rng)}",
        "ip": ipv4(rng),
        "time": timestamp(rng),
        "success": maybe(rng, flag(rng, 0.9)),
    }


@json_kind()
def click_event(rng: Random) -> Record:
    return {
        "type": rng.choice(("click", "scroll", "hover", "submit", "page_view")),
        "page": "/" + rng.choice(("", "home", "cart", "search", "login", "about", slug(rng))),
        "element": maybe(rng, rng.choice(("button", "menu", "link", "banner", "form", "image"))),
        "x": rng.randint(0, 1919),
        "y": rng.randint(0, 1079),
        "user_id": nullable(rng, number_id(rng)),
        "timestamp": int(meeting_time(rng).timestamp()) * 1000 + rng.randint(0, 999),
    }


@json_kind()
def purchase_event(rng: Random) -> Record:
    item = product(rng)
    return {
        "event": "purchase",
        "user": {"id": number_id(rng), "country": place(rng).code, "new": flag(rng, 0.3)},
        "properties": {"product": item.name, "price": item.price, "category": item.category},
        "sent_at": timestamp(rng),
    }


@json_kind()
def reminder(rng: Random) -> Record:
    return {
        "text": task_title(rng),
        "remind_at": iso(meeting_time(rng)),
        "repeat": maybe(rng, nullable(rng, rng.choice(("daily", "weekly", "monthly"))), 0.6),
        "priority": maybe(rng, rng.choice(LEVELS)),
        "done": flag(rng, 0.3),
    }


@json_kind()
def notification(rng: Random) -> Record:
    return {
        "id": number_id(rng),
        "channel": rng.choice(("email", "sms", "push", "chat")),
        "title": maybe(rng, rng.choice(("New message", "Reminder", f"Message from {person(rng).first}")), 0.6),
        "body": message(rng),
        "read": flag(rng),
        "link": maybe(rng, url(rng), 0.3),
    }


@json_kind()
def match_result(rng: Random) -> Record:
    home, away = (f"{town} {name}" for town, name in zip(rng.sample(_CLUBS, 2), rng.sample(TEAMS, 2), strict=True))
    home_goals, away_goals = (rng.choice((0, 0, 1, 1, 2, 2, 3, 4)) for _ in range(2))
    winner = None if home_goals == away_goals else (home if home_goals > away_goals else away)
    return {
        "home": {"team": home, "goals": home_goals},
        "away": {"team": away, "goals": away_goals},
        "winner": winner,
        "date": maybe(rng, day(rng).isoformat()),
        "attendance": maybe(rng, rng.randint(300, 60_000)),
    }


@json_kind()
def race_result(rng: Random) -> Record:
    seconds = sorted(decimal(rng, 47, 59) for _ in range(rng.randint(2, 3)))
    return {
        "event": rng.choice(("400 m", "100 m freestyle")),
        "date": maybe(rng, day(rng).isoformat(), 0.6),
        "results": [
            {"rank": rank, "name": person(rng).name, "time": time} for rank, time in enumerate(seconds, start=1)
        ],
    }


@json_kind()
def standings(rng: Random) -> list[object]:
    points = sorted((rng.randint(0, 40) for _ in range(rng.randint(2, 4))), reverse=True)
    teams = rng.sample(TEAMS, len(points))
    return [
        {"position": position, "team": team, "points": won}
        for position, (team, won) in enumerate(zip(teams, points, strict=True), start=1)
    ]


@json_kind()
def poll(rng: Random) -> Record:
    question, choices = rng.choice(
        (
            ("Which day is best?", WEEKDAYS),
            ("Where shall we eat?", ("Pizza", "Sushi", "Thai", "Burgers", "Salad bar")),
            ("Which color do you like?", ("Red", "Blue", "Green", "Black", "White")),
            ("When do we start?", ("08:00", "09:00", "10:00", "11:00")),
            ("Which name is better?", tuple(word.capitalize() for word in WORDS)),
        )
    )
    votes = {choice: rng.randint(0, 25) for choice in some(rng, choices, 2, 4)}
    return {
        "question": question,
        "votes": votes,
        "total": sum(votes.values()),
        "closed": flag(rng),
        "multiple": maybe(rng, flag(rng), 0.3),
    }


@json_kind()
def invitation(rng: Random) -> Record:
    start = meeting_time(rng)
    guests = rng.randint(1, 3)
    host = person(rng)
    return {
        "host": {"name": host.name, "email": host.email},
        "subject": rng.choice((rng.choice(_MEETINGS), headline(rng), f"Visit to {company(rng)}")),
        "when": iso(start),
        "guests": [
            {"name": person(rng).first, "accepted": rng.choice((True, True, False, None))} for _ in range(guests)
        ],
        "video_link": f"https://{domain(rng)}/m/{filled(rng, '~~~~~~')}" if flag(rng, 0.4) else ABSENT,
    }

"""Kinds of record about people and their work: profiles, contacts, teams, chats, tasks, tickets."""

from __future__ import annotations

from datetime import timedelta
from random import Random

from diffinity.training.corpus.structured.names import (
    DEPARTMENTS,
    JOBS,
    JOBS_BY_DEPARTMENT,
    ROLES,
    company,
    person,
)
from diffinity.training.corpus.structured.phrases import message, problem, task_title
from diffinity.training.corpus.structured.places import addressable, place, street
from diffinity.training.corpus.structured.registry import Record, json_kind
from diffinity.training.corpus.structured.values import (
    LANGUAGES,
    LEVELS,
    TAGS,
    WEEKDAYS,
    any_id,
    birthday,
    day,
    decimal,
    filled,
    flag,
    image_url,
    iso,
    maybe,
    moment,
    nullable,
    number_id,
    phone,
    some,
    timestamp,
    url,
    uuid,
    words,
)

_SKILLS = words("Python SQL Excel Java Design Writing Cooking Photography Spanish German Marketing Teaching")

_TEAM_ROLES = ("developer", "designer", "tester", "analyst", "writer", "intern", "planner")
_INDUSTRIES = {"Foods": "food", "Books": "retail", "Travel": "travel", "Media": "media", "Energy": "energy"}


@json_kind()
def user_profile(rng: Random) -> Record:
    who = person(rng)
    return {
        "id": any_id(rng),
        "username": who.username,
        "name": maybe(rng, who.name, 0.8),
        "email": who.email,
        "role": maybe(rng, rng.choice(ROLES)),
        "active": flag(rng, 0.8),
        "created_at": maybe(rng, timestamp(rng), 0.6),
        "avatar_url": maybe(rng, nullable(rng, image_url(rng)), 0.3),
    }


@json_kind()
def simple_person(rng: Random) -> Record:
    who, age = person(rng), rng.randint(14, 85)
    return {
        "name": rng.choice((who.name, who.first)),
        "age": age,
        "city": maybe(rng, place(rng).city),
        "email": maybe(rng, who.email),
        "is_student": maybe(rng, age < 28 and flag(rng), 0.3),
    }


@json_kind()
def person_details(rng: Random) -> Record:
    who, born = person(rng), birthday(rng)
    return {
        "first_name": who.first,
        "last_name": who.last,
        "date_of_birth": born.isoformat(),
        "nationality": maybe(rng, place(rng).code),
        "height_cm": maybe(rng, rng.randint(150, 200)),
        "languages": maybe(rng, some(rng, LANGUAGES, 1, 3)),
        "married": maybe(rng, nullable(rng, flag(rng)), 0.4),
    }


@json_kind()
def contact(rng: Random) -> Record:
    who, where = person(rng), addressable(rng)
    return {
        "name": who.name,
        "phone": phone(rng),
        "email": maybe(rng, who.email, 0.7),
        "address": maybe(rng, {"street": street(rng, where), "city": where.city}),
        "favorite": maybe(rng, flag(rng, 0.3)),
        "notes": maybe(rng, nullable(rng, rng.choice(("Met at work", "Old friend", "Neighbour")), 0.4), 0.3),
    }


@json_kind()
def employee(rng: Random) -> Record:
    who = person(rng)
    department, titles = rng.choice(tuple(JOBS_BY_DEPARTMENT.items()))
    return {
        "employee_id": rng.choice((filled(rng, "E####"), number_id(rng))),
        "name": who.name,
        "title": rng.choice(titles),
        "department": department,
        "salary": maybe(rng, rng.randrange(28_000, 120_000, 500)),
        "hired": day(rng).isoformat(),
        "manager": maybe(rng, nullable(rng, person(rng).name)),
        "remote": maybe(rng, flag(rng)),
    }


@json_kind()
def team(rng: Random) -> Record:
    members = [{"name": person(rng).first, "role": rng.choice(_TEAM_ROLES)} for _ in range(rng.randint(1, 3))]
    return {
        "team": rng.choice((rng.choice(DEPARTMENTS), f"{rng.choice(DEPARTMENTS)} {rng.choice('ABC')}")),
        "lead": person(rng).name,
        "members": members,
        "size": maybe(rng, len(members) + 1),
        "active": maybe(rng, flag(rng, 0.9)),
    }


@json_kind()
def student_grades(rng: Random) -> Record:
    subjects = some(rng, ("math", "physics", "history", "biology", "english", "music", "art", "chemistry"), 2, 4)
    grades = {subject: rng.randint(40, 100) for subject in subjects}
    return {
        "student": person(rng).name,
        "grade": rng.randint(5, 12),
        "scores": grades,
        "average": round(sum(grades.values()) / len(grades), 1),
        "passed": min(grades.values()) >= 50,
    }


@json_kind()
def applicant(rng: Random) -> Record:
    who = person(rng)
    return {
        "applicant": {"name": who.name, "email": who.email},
        "position": rng.choice(JOBS),
        "experience_years": rng.randint(0, 25),
        "skills": some(rng, _SKILLS, 1, 4),
        "expected_salary": maybe(rng, nullable(rng, rng.randrange(25_000, 110_000, 1000))),
        "status": maybe(rng, rng.choice(("new", "interview", "offer", "rejected", "hired"))),
    }


@json_kind()
def company_record(rng: Random) -> Record:
    where, name = place(rng), company(rng)
    other_industry = rng.choice(("software", "retail", "health", "finance", "transport", "education"))
    return {
        "name": name,
        "industry": _INDUSTRIES.get(name.split()[1], other_industry),
        "founded": rng.randint(1890, 2024),
        "employees": rng.choice((rng.randint(1, 60), rng.randint(60, 20_000))),
        "headquarters": {"city": where.city, "country": where.country},
        "website": maybe(rng, url(rng), 0.4),
        "public": maybe(rng, flag(rng, 0.3)),
    }


@json_kind()
def chat_message(rng: Random) -> Record:
    return {
        "id": maybe(rng, number_id(rng), 0.7),
        "from": person(rng).username,
        "channel": maybe(rng, rng.choice(("#general", "#random", "#dev", "#help", "#sales"))),
        "text": message(rng),
        "sent_at": timestamp(rng),
        "reactions": maybe(
            rng, {name: rng.randint(1, 9) for name in some(rng, ("👍", "❤️", "😂", "🎉"), 1, 2)}, 0.3
        ),
        "edited": maybe(rng, flag(rng, 0.2), 0.4),
    }


@json_kind()
def task(rng: Random) -> Record:
    is_done = flag(rng, 0.4)
    return {
        "id": number_id(rng),
        "title": task_title(rng),
        "done": is_done,
        "priority": maybe(rng, rng.choice((*LEVELS, 1, 2, 3))),
        "due_date": maybe(rng, nullable(rng, day(rng).isoformat()), 0.7),
        "assignee": maybe(rng, nullable(rng, person(rng).first)),
        "tags": maybe(rng, some(rng, TAGS, 0, 3), 0.4),
    }


@json_kind()
def todo_list(rng: Random) -> Record:
    items = [{"task": task_title(rng), "done": flag(rng, 0.4)} for _ in range(rng.randint(1, 3))]
    return {
        "list": rng.choice(("Today", "Tomorrow", "This week", "Later", "My list", *WEEKDAYS)),
        "items": items,
        "open": sum(not item["done"] for item in items),
    }


@json_kind()
def ticket(rng: Random) -> Record:
    created = moment(rng)
    status = rng.choice(("open", "open", "pending", "resolved", "closed"))
    ended = status in ("resolved", "closed")
    return {
        "ticket": rng.choice((filled(rng, "TCK-####"), number_id(rng))),
        "subject": problem(rng),
        "status": status,
        "priority": rng.choice((*LEVELS, "urgent")),
        "requester": maybe(rng, person(rng).email),
        "created_at": iso(created),
        "resolved_at": iso(created + timedelta(hours=rng.randint(1, 400))) if ended else None,
    }


@json_kind()
def comment(rng: Random) -> Record:
    return {
        "id": rng.choice((number_id(rng), uuid(rng))),
        "post_id": number_id(rng),
        "author": {"name": person(rng).name, "verified": maybe(rng, flag(rng))},
        "body": message(rng),
        "likes": rng.choice((0, rng.randint(1, 300))),
        "parent_id": maybe(rng, nullable(rng, number_id(rng), 0.6), 0.4),
    }


@json_kind()
def login_request(rng: Random) -> Record:
    who = person(rng)
    return {
        "email": who.email,
        "password": filled(rng, "@~~~~#~~"),
        "remember_me": maybe(rng, flag(rng)),
        "device": maybe(rng, rng.choice(("iPhone", "Android", "Chrome", "Firefox", "Safari")), 0.4),
    }


@json_kind()
def fitness_day(rng: Random) -> Record:
    steps = rng.randint(500, 24_000)
    return {
        "date": day(rng).isoformat(),
        "steps": steps,
        "distance_km": round(steps * 0.00075, 2),
        "calories": 1500 + round(steps * 0.05) + rng.randint(0, 600),
        "sleep_hours": maybe(rng, decimal(rng, 4, 9.5, 1)),
        "weight_kg": maybe(rng, nullable(rng, decimal(rng, 48, 105, 1))),
        "heart_rate": maybe(rng, {"rest": rng.randint(48, 75), "max": rng.randint(100, 185)}),
    }


@json_kind()
def patient_visit(rng: Random) -> Record:
    symptoms = some(rng, ("fever", "cough", "headache", "back pain", "rash", "nausea", "fatigue"), 1, 3)
    has_fever = "fever" in symptoms
    return {
        "patient_id": filled(rng, "P######"),
        "visit_date": day(rng).isoformat(),
        "symptoms": symptoms,
        "temperature_c": maybe(rng, decimal(rng, 38, 39.8, 1) if has_fever else decimal(rng, 36.2, 37.3, 1), 0.7),
        "blood_pressure": maybe(rng, f"{rng.randint(105, 150)}/{rng.randint(65, 95)}"),
        "follow_up": flag(rng, 0.4),
    }

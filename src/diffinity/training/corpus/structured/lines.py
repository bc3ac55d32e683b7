"""Kinds of plain text of a few lines: tables, settings, headers, log lines, statements."""

from __future__ import annotations

import re
from datetime import datetime
from random import Random

from diffinity.training.corpus.structured.logs import LOG_MESSAGES
from diffinity.training.corpus.structured.names import DEPARTMENTS, person, product, products
from diffinity.training.corpus.structured.phrases import change_title, headline, message, task_title
from diffinity.training.corpus.structured.places import place
from diffinity.training.corpus.structured.registry import line_kind
from diffinity.training.corpus.structured.values import (
    LANGUAGES,
    LEVELS,
    MONTHS,
    SERVICES,
    TAGS,
    WEEKDAYS,
    WORDS,
    day,
    decimal,
    domain,
    filled,
    flag,
    hostname,
    ipv4,
    meeting_time,
    moment,
    number_id,
    relative_path,
    slug,
    some,
    timestamp,
    version,
)

_COLUMNS = ("id", "name", "city", "date", "price", "active", "email", "quantity")


def _row(rng: Random, columns: list[str]) -> list[str]:
    who = person(rng)
    cells = {
        "id": str(rng.randint(1, 500)),
        "name": who.name,
        "city": place(rng).city,
        "date": day(rng).isoformat(),
        "price": f"{decimal(rng, 1, 200):.2f}",
        "active": rng.choice(("true", "false")),
        "email": who.email,
        "quantity": str(rng.randint(1, 40)),
    }
    return [cells[column] for column in columns]


def _table(rng: Random, columns: int, rows: int) -> tuple[list[str], list[list[str]]]:
    chosen = rng.sample(_COLUMNS, columns)
    names = [name for name in _COLUMNS if name in chosen]
    return names, [_row(rng, names) for _ in range(rows)]


@line_kind()
def csv_with_header(rng: Random) -> str:
    names, rows = _table(rng, rng.randint(2, 5), rng.randint(1, 3))
    separator = rng.choice((",", ",", ",", ";", "\t"))
    return "\n".join(separator.join(row) for row in [names, *rows])


@line_kind()
def csv_rows(rng: Random) -> str:
    _, rows = _table(rng, rng.randint(3, 6), rng.randint(1, 3))
    return "\n".join(",".join(row) for row in rows)


@line_kind()
def csv_quoted(rng: Random) -> str:
    rows = [f'{number_id(rng)},"{task_title(rng)}","{message(rng)}"' for _ in range(rng.randint(1, 3))]
    return "\n".join(rows)


@line_kind()
def key_value_line(rng: Random) -> str:
    level, text = rng.choice(LOG_MESSAGES)
    fields = {
        "time": timestamp(rng),
        "level": level.lower(),
        "msg": f'"{text}"',
        "service": rng.choice(SERVICES),
        "user": person(rng).username,
        "status": str(rng.choice((200, 201, 400, 404, 500))),
        "duration": f"{rng.randint(1, 900)}ms",
    }
    chosen = set(some(rng, tuple(fields), 2, 5))
    return " ".join(f"{key}={value}" for key, value in fields.items() if key in chosen)


@line_kind()
def env_file(rng: Random) -> str:
    settings = {
        "APP_NAME": rng.choice(WORDS),
        "APP_ENV": rng.choice(("production", "development", "test")),
        "DEBUG": rng.choice(("true", "false", "0", "1")),
        "PORT": str(rng.choice((3000, 5000, 8000, 8080))),
        "DATABASE_URL": f"postgres://{hostname(rng)}:5432/{rng.choice(WORDS)}",
        "LOG_LEVEL": rng.choice(("debug", "info", "warning", "error")),
        "API_URL": f"https://{domain(rng)}/api",
        "SECRET_KEY": filled(rng, "~~~~~~~~~~"),
        "TZ": rng.choice(("UTC", "Europe/Paris", "Asia/Tokyo")),
        "MAX_WORKERS": str(rng.randint(1, 16)),
    }
    chosen = set(some(rng, tuple(settings), 2, 5))
    return "\n".join(f"{key}={value}" for key, value in settings.items() if key in chosen)


@line_kind()
def ini_section(rng: Random) -> str:
    who = person(rng)
    sections = {
        "server": {
            "host": hostname(rng),
            "port": str(rng.choice((80, 443, 8000, 8080))),
            "timeout": str(rng.choice((5, 10, 30, 60))),
            "debug": rng.choice(("true", "false", "yes", "no")),
        },
        "paths": {"data": relative_path(rng), "logs": f"logs/{rng.choice(SERVICES)}.log", "cache": "tmp/cache"},
        "user": {"name": who.name, "email": who.email, "language": rng.choice(LANGUAGES)},
        "window": {
            "width": str(rng.randint(300, 1920)),
            "height": str(rng.randint(200, 1080)),
            "title": rng.choice(WORDS),
        },
    }
    name, settings = rng.choice(tuple(sections.items()))
    chosen = set(some(rng, tuple(settings), 2, len(settings)))
    return "\n".join([f"[{name}]", *(f"{key} = {value}" for key, value in settings.items() if key in chosen)])


@line_kind()
def toml_section(rng: Random) -> str:
    lines = [
        f'name = "{slug(rng)}"',
        f'version = "{version(rng)}"',
        f"enabled = {rng.choice(('true', 'false'))}",
        f"count = {rng.randint(0, 90)}",
        f"ratio = {decimal(rng, 0, 1)}",
        "tags = [" + ", ".join(f'"{tag}"' for tag in some(rng, TAGS, 1, 3)) + "]",
        f"created = {day(rng).isoformat()}",
    ]
    chosen = sorted(rng.sample(range(len(lines)), rng.randint(2, 4)))
    return "\n".join([f"[{rng.choice(('project', 'tool', 'package', 'settings'))}]", *(lines[i] for i in chosen)])


@line_kind()
def query_string(rng: Random) -> str:
    pairs = {
        "q": rng.choice((rng.choice(WORDS), "+".join(rng.sample(WORDS, 2)))),
        "page": str(rng.randint(1, 40)),
        "limit": str(rng.choice((10, 20, 50, 100))),
        "sort": rng.choice(("name", "date", "price", "-date")),
        "lang": rng.choice(LANGUAGES),
        "from": day(rng).isoformat(),
        "category": rng.choice(TAGS),
        "id": str(number_id(rng)),
    }
    chosen = set(some(rng, tuple(pairs), 1, 5))
    prefix = rng.choice(("?", "", f"/{rng.choice(('search', 'items', 'api/users'))}?"))
    return prefix + "&".join(f"{key}={value}" for key, value in pairs.items() if key in chosen)


def _mail_date(at: datetime) -> str:
    return f"{WEEKDAYS[at.weekday()][:3]}, {at.day:02} {MONTHS[at.month - 1][:3]} {at:%Y %H:%M:%S} +0000"


@line_kind()
def email_header(rng: Random) -> str:
    sender, receiver = person(rng), person(rng)
    lines = [f"From: {sender.name} <{sender.email}>", f"To: {receiver.email}", f"Subject: {headline(rng)}"]
    if flag(rng, 0.7):
        lines.append(f"Date: {_mail_date(moment(rng))}")
    return "\n".join(lines)


@line_kind()
def http_request(rng: Random) -> str:
    method, path = rng.choice(
        (
            ("GET", "/"),
            ("GET", f"/search?q={rng.choice(WORDS)}"),
            ("GET", f"/{slug(rng)}"),
            ("POST", "/login"),
            ("PUT", f"/users/{number_id(rng)}"),
            ("DELETE", f"/items/{number_id(rng)}"),
        )
    )
    accept = rng.choice(("application/json", "text/html", "*/*"))
    extra = (f"Accept: {accept}", "Connection: close", f"Accept-Language: {rng.choice(LANGUAGES)}")
    return "\n".join([f"{method} {path} HTTP/1.1", f"Host: {domain(rng)}", *some(rng, extra, 0, 2)])


@line_kind()
def http_response_head(rng: Random) -> str:
    status = rng.choice(
        ("200 OK", "201 Created", "301 Moved Permanently", "404 Not Found", "500 Internal Server Error")
    )
    media = rng.choice(("application/json", "text/html", "text/plain", "image/png")[: 4 if "OK" in status else 2])
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {media}", f"Content-Length: {rng.randint(0, 90_000)}"]
    if status.startswith("301"):
        lines.append(f"Location: https://{domain(rng)}/{slug(rng)}")
    return "\n".join(lines)


@line_kind()
def access_log_line(rng: Random) -> str:
    at = moment(rng)
    path = rng.choice(("/", "/index.html", "/login", f"/items/{number_id(rng)}", f"/{slug(rng)}", "/favicon.ico"))
    stamp = f"{at.day:02}/{MONTHS[at.month - 1][:3]}/{at:%Y:%H:%M:%S} +0000"
    status = rng.choice((200, 200, 200, 301, 304, 404, 500))
    return (
        f'{ipv4(rng)} - - [{stamp}] "{rng.choice(("GET", "GET", "GET", "POST"))} {path} HTTP/1.1" '
        f"{status} {0 if status == 304 else rng.randint(120, 60_000)}"
    )


@line_kind()
def syslog_line(rng: Random) -> str:
    at = moment(rng)
    program = rng.choice(("sshd", "cron", "kernel", "systemd", "nginx", "postfix", "dhclient"))
    text = {
        "sshd": f"Accepted publickey for {person(rng).username} from {ipv4(rng)} port {rng.randint(1024, 65535)}",
        "cron": f"({rng.choice(('root', 'www', 'backup'))}) CMD (run-parts daily)",
        "kernel": f"eth0: link up, {rng.choice((100, 1000, 2500))} Mbps",
        "systemd": f"Started {rng.choice(SERVICES)}.service.",
    }.get(program, rng.choice(LOG_MESSAGES)[1])
    stamp = f"{MONTHS[at.month - 1][:3]} {at.day:2} {at:%H:%M:%S}"
    process = program if program == "kernel" else f"{program}[{rng.randint(200, 32_000)}]"
    return f"{stamp} {hostname(rng).split('.')[0]} {process}: {text}"


@line_kind()
def app_log_line(rng: Random) -> str:
    at, (level, text) = moment(rng), rng.choice(LOG_MESSAGES)
    stamp = f"{at:%Y-%m-%d %H:%M:%S},{rng.randint(0, 999):03}"
    return rng.choice(
        (
            f"{stamp} {level} {rng.choice(SERVICES)}: {text}",
            f"[{stamp}] [{level}] {text}",
            f"{level:<8}{rng.choice(SERVICES)}.{rng.choice(WORDS)}:{rng.randint(5, 700)} {text}",
        )
    )


@line_kind()
def sql_insert(rng: Random) -> str:
    item, who = product(rng), person(rng)
    table, columns, values = rng.choice(
        (
            ("users", "id, name, email", f"{number_id(rng)}, '{who.name}', '{who.email}'"),
            ("products", "sku, category, price", f"'{item.sku}', '{item.category}', {item.price:.2f}"),
            ("events", "id, day, level", f"{number_id(rng)}, '{day(rng)}', '{rng.choice(LEVELS)}'"),
            ("cities", "name, lat, lon", "'{0.city}', {0.latitude}, {0.longitude}".format(place(rng))),
        )
    )
    return f"INSERT INTO {table} ({columns}) VALUES ({values});"


@line_kind()
def sql_select(rng: Random) -> str:
    condition = rng.choice(
        (
            f"id = {number_id(rng)}",
            f"price < {rng.randint(2, 400)}",
            f"created >= '{day(rng)}'",
            "active = TRUE",
        )
    )
    columns = rng.choice(("*", "id", "id, name", "name, price", "COUNT(*)"))
    table = rng.choice(("users", "orders", "products", "events", "items"))
    order = (
        "" if columns == "COUNT(*)" else rng.choice(("", " ORDER BY id", " ORDER BY name", " ORDER BY id DESC"))
    )
    limit = rng.choice(("", f" LIMIT {rng.choice((1, 5, 10, 20, 100))}"))
    return f"SELECT {columns} FROM {table} WHERE {condition}{order}{limit};"


@line_kind()
def yaml_document(rng: Random) -> str:
    lines = [f"name: {slug(rng)}", f"version: {version(rng)}", f"enabled: {rng.choice(('true', 'false'))}"]
    selected = [line for line in lines if flag(rng, 0.7)] or lines[:1]
    if flag(rng, 0.6):
        selected += ["tags:", *(f"  - {tag}" for tag in some(rng, TAGS, 1, 3))]
    if flag(rng, 0.5):
        selected += ["server:", f"  host: {hostname(rng)}", f"  port: {rng.choice((80, 443, 8080, 9000))}"]
    return "\n".join(selected)


@line_kind()
def markdown_table(rng: Random) -> str:
    names, rows = _table(rng, rng.randint(2, 4), rng.randint(1, 3))
    head = [name.capitalize() for name in names]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


@line_kind()
def markdown_list(rng: Random) -> str:
    has_boxes = flag(rng)
    marks = [rng.choice(("[x] ", "[ ] ")) if has_boxes else "" for _ in range(rng.randint(2, 4))]
    return "\n".join(f"- {mark}{task_title(rng)}" for mark in marks)


@line_kind()
def shopping_receipt(rng: Random) -> str:
    goods = products(rng, rng.randint(1, 3))
    lines = [f"{item.name}: {item.price:.2f}" for item in goods]
    return "\n".join([*lines, f"Total: {sum(item.cents for item in goods) / 100:.2f}"])


@line_kind()
def xml_element(rng: Random) -> str:
    item = product(rng)
    inner = f"<name>{item.name}</name><price>{item.price:.2f}</price>"
    code = re.sub(r"\W", "", item.sku)
    return rng.choice(
        (
            f'<product id="{code}">{inner}</product>',
            f'<user id="{number_id(rng)}"><name>{person(rng).name}</name></user>',
            f'<a href="https://{domain(rng)}/{slug(rng)}">{headline(rng)}</a>',
            f"<li>{task_title(rng)}</li>",
        )
    )


@line_kind()
def commit_line(rng: Random) -> str:
    text = change_title(rng)
    kind = {"Fix": "fix", "Write": "test", "Document": "docs", "Speed": "perf"}.get(text.split()[0], "feat")
    return rng.choice(
        (
            f"{filled(rng, '~~~~~~~')} {kind}: {text[0].lower()}{text[1:]}",
            f"{filled(rng, '~~~~~~~')} {day(rng)} {person(rng).name}: {text}",
        )
    )


@line_kind()
def contact_line(rng: Random) -> str:
    who = person(rng)
    return rng.choice(
        (
            f"{who.name} <{who.email}>",
            f"{who.last}, {who.first}; {rng.choice(DEPARTMENTS)}; {who.email}",
            f"Name: {who.name}\nEmail: {who.email}\nCity: {place(rng).city}",
        )
    )


@line_kind()
def calendar_line(rng: Random) -> str:
    at = meeting_time(rng)
    return f"{WEEKDAYS[at.weekday()][:3]} {at:%Y-%m-%d %H:%M} {task_title(rng)}"

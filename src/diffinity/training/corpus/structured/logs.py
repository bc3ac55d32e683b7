"""Kinds of record that machines write about themselves: logs, metrics, traces, sensors, test runs."""

from __future__ import annotations

from random import Random

from diffinity.training.corpus.structured.names import person
from diffinity.training.corpus.structured.registry import Record, json_kind
from diffinity.training.corpus.structured.values import (
    SERVICES,
    WORDS,
    decimal,
    filled,
    flag,
    hostname,
    ipv4,
    maybe,
    moment,
    number_id,
    relative_path,
    slug,
    timestamp,
    version,
)

LOG_MESSAGES = (
    ("INFO", "server started"),
    ("INFO", "request completed"),
    ("INFO", "user logged in"),
    ("INFO", "cache refreshed"),
    ("INFO", "backup finished"),
    ("INFO", "configuration reloaded"),
    ("DEBUG", "opening connection"),
    ("DEBUG", "query returned no rows"),
    ("DEBUG", "retrying request"),
    ("WARNING", "disk almost full"),
    ("WARNING", "slow query"),
    ("WARNING", "certificate expires soon"),
    ("WARNING", "deprecated option used"),
    ("ERROR", "connection refused"),
    ("ERROR", "payment declined"),
    ("ERROR", "file not found"),
    ("ERROR", "timeout while reading"),
    ("ERROR", "out of memory"),
)
# quantity: (unit, low, high, decimals)
_QUANTITIES = {
    "temperature": ("C", -10, 38, 1),
    "humidity": ("%", 15, 98, 0),
    "pressure": ("hPa", 975, 1040, 1),
    "co2": ("ppm", 390, 1800, 0),
    "noise": ("dB", 25, 90, 1),
    "voltage": ("V", 2.8, 12.6, 2),
    "light": ("lx", 0, 900, 0),
    "water_level": ("m", 0.2, 4.5, 2),
    "wind_speed": ("m/s", 0, 25, 1),
    "power": ("W", 0, 2400, 0),
}


def _measured(rng: Random) -> tuple[str, str, float]:
    quantity = rng.choice(tuple(_QUANTITIES))
    unit, low, high, digits = _QUANTITIES[quantity]
    value = decimal(rng, low, high, digits)
    return quantity, unit, value if digits else int(value)


@json_kind()
def log_record(rng: Random) -> Record:
    level, text = rng.choice(LOG_MESSAGES)
    return {
        "timestamp": timestamp(rng),
        "level": rng.choice((level, level.lower())),
        "logger": maybe(rng, rng.choice((rng.choice(SERVICES), f"app.{rng.choice(SERVICES)}"))),
        "message": text,
        "host": maybe(rng, hostname(rng), 0.4),
        "request_id": maybe(rng, filled(rng, "~~~~~~~~"), 0.4),
    }


@json_kind()
def access_record(rng: Random) -> Record:
    item_path = f"/items/{number_id(rng)}"
    method, path, statuses = rng.choice(
        (
            ("GET", "/", (200, 304)),
            ("GET", item_path, (200, 200, 404)),
            ("GET", f"/{slug(rng)}", (200, 301, 404, 500)),
            ("GET", "/api/users", (200, 401, 500)),
            ("POST", "/login", (200, 401, 429)),
            ("POST", "/api/users", (201, 400, 409)),
            ("PUT", item_path, (200, 204, 400)),
            ("DELETE", item_path, (204, 403, 404)),
        )
    )
    return {
        "time": timestamp(rng),
        "ip": ipv4(rng),
        "method": method,
        "path": path,
        "status": rng.choice(statuses),
        "duration_ms": decimal(rng, 0.4, 900, 1),
        "user_agent": maybe(rng, rng.choice(("curl/8.5.0", "Mozilla/5.0", "python-requests/2.32")), 0.3),
    }


@json_kind()
def metric(rng: Random) -> Record:
    name, value = rng.choice(
        (
            ("cpu_usage", decimal(rng, 0, 100, 1)),
            ("memory_mb", rng.randint(40, 16_000)),
            ("requests_total", rng.randint(0, 2_000_000)),
            ("queue_length", rng.randint(0, 500)),
            ("latency_seconds", decimal(rng, 0.001, 2.5, 3)),
            ("error_rate", decimal(rng, 0, 0.2, 3)),
        )
    )
    return {
        "metric": name,
        "value": value,
        "labels": {
            "service": rng.choice(SERVICES),
            "region": maybe(rng, rng.choice(("eu", "us", "asia")), 0.6),
        },
        "timestamp": rng.choice((timestamp(rng), int(moment(rng).timestamp()))),
    }


@json_kind()
def sensor_reading(rng: Random) -> Record:
    quantity, unit, value = _measured(rng)
    return {
        "sensor_id": rng.choice((filled(rng, "S-###"), f"{quantity}-{rng.randint(1, 20)}", number_id(rng))),
        "type": quantity,
        "value": value,
        "unit": unit,
        "battery": maybe(rng, rng.randint(3, 100)),
        "recorded_at": timestamp(rng),
    }


@json_kind()
def sensor_series(rng: Random) -> Record:
    quantity, unit, value = _measured(rng)
    steps = [float(value) + rng.choice((-0.4, -0.2, -0.1, 0, 0.1, 0.2, 0.3)) for _ in range(rng.randint(3, 9))]
    readings = [max(0.0, round(step, 2)) if value >= 0 else round(step, 2) for step in steps]
    return {
        "quantity": quantity,
        "unit": unit,
        "interval_s": rng.choice((1, 5, 10, 60, 300)),
        "readings": readings,
        "min": min(readings),
        "max": max(readings),
    }


@json_kind()
def device_state(rng: Random) -> Record:
    online = flag(rng, 0.8)
    return {
        "device": f"{rng.choice(('lamp', 'lock', 'camera', 'plug', 'heater', 'router'))}-{rng.randint(1, 40)}",
        "online": online,
        "firmware": version(rng),
        "signal_dbm": -rng.randint(30, 92) if online else None,
        "last_seen": timestamp(rng),
        "errors": maybe(rng, [], 0.3),
    }


@json_kind()
def trace_span(rng: Random) -> Record:
    return {
        "trace_id": filled(rng, "~~~~~~~~~~~~"),
        "span_id": filled(rng, "~~~~~~~~"),
        "parent_id": rng.choice((None, filled(rng, "~~~~~~~~"))),
        "name": rng.choice(("GET /users", "db.query", "cache.get", "send_mail", "render", "POST /orders")),
        "duration_us": rng.randint(40, 900_000),
        "attributes": maybe(rng, {"service": rng.choice(SERVICES)}, 0.7),
    }


@json_kind()
def error_report(rng: Random) -> Record:
    name, text = rng.choice(
        (
            ("ValueError", "invalid literal for int"),
            ("KeyError", f"'{rng.choice(WORDS)}'"),
            ("TypeError", "expected a string"),
            ("TimeoutError", "no answer after 30 s"),
            ("FileNotFoundError", relative_path(rng)),
            ("ZeroDivisionError", "division by zero"),
        )
    )
    return {
        "exception": name,
        "message": text,
        "file": rng.choice(("app.py", "main.py", "src/server.py", "lib/parser.py", "tests/run.py")),
        "line": rng.randint(3, 800),
        "handled": flag(rng),
        "count": maybe(rng, rng.randint(1, 300)),
    }


@json_kind()
def suite_report(rng: Random) -> Record:
    passed, failed, skipped = (
        rng.randint(1, 400),
        rng.choice((0, 0, rng.randint(1, 9))),
        rng.choice((0, 0, 1, 4)),
    )
    return {
        "suite": rng.choice((rng.choice(SERVICES), f"tests/{rng.choice(WORDS)}")),
        "tests": passed + failed + skipped,
        "passed": passed,
        "failed": failed,
        "skipped": skipped,
        "ok": failed == 0,
        "seconds": decimal(rng, 0.1, 300, 2),
    }


@json_kind()
def build_result(rng: Random) -> Record:
    good = flag(rng, 0.75)
    return {
        "build": rng.randint(1, 5000),
        "branch": rng.choice(("main", "develop", "release", f"fix-{rng.choice(WORDS)}")),
        "commit": filled(rng, "~~~~~~~"),
        "author": maybe(rng, person(rng).username),
        "result": "success" if good else rng.choice(("failure", "cancelled", "timeout")),
        "duration_s": rng.randint(8, 1800),
        "artifacts": maybe(rng, ["dist.zip"] if good else []),
    }


@json_kind()
def histogram(rng: Random) -> Record:
    name, bounds = rng.choice(
        (
            ("latency_ms", [10, 50, 100, 500]),
            ("age", [0, 18, 30, 65]),
            ("size_kb", [1, 10, 100]),
            ("score", [0.25, 0.5, 0.75, 1.0]),
            ("rating", [1, 2, 3, 4, 5]),
        )
    )
    counts = [rng.randint(0, 300) for _ in bounds]
    return {"name": name, "buckets": bounds, "counts": counts, "total": sum(counts)}


@json_kind()
def disk_usage(rng: Random) -> Record:
    total = rng.choice((128, 256, 512, 1024, 2048))
    used = decimal(rng, 1, total, 1)
    return {
        "host": hostname(rng),
        "mount": rng.choice(("/", "/home", "/var", "/data", "/backup")),
        "total_gb": total,
        "used_gb": used,
        "percent": round(used / total * 100, 1),
        "alert": used / total > 0.9,
    }

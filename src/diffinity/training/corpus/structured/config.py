"""Kinds of configuration: services, databases, feature flags, editors, packages, builds."""

from __future__ import annotations

from random import Random

from diffinity.training.corpus.structured.names import person
from diffinity.training.corpus.structured.phrases import purpose
from diffinity.training.corpus.structured.registry import ABSENT, Record, json_kind
from diffinity.training.corpus.structured.values import (
    LANGUAGES,
    LEVELS,
    SERVICES,
    WORDS,
    decimal,
    domain,
    flag,
    hex_colour_code,
    hostname,
    maybe,
    nullable,
    relative_path,
    slug,
    some,
    url,
    version,
    words,
)

_ENVIRONMENTS = ("development", "staging", "production", "test")
_LICENSES = ("MIT", "Apache-2.0", "BSD-3-Clause", "MPL-2.0", "ISC")
_PACKAGES = words("express lodash react axios chalk jest eslint prettier vite typescript yargs debug uuid")
_FLAGS = words(
    """dark_mode new_checkout beta_search fast_upload chat_widget two_factor offline_mode auto_save
    show_banner live_preview smart_reply export_csv"""
)


@json_kind()
def service_config(rng: Random) -> Record:
    return {
        "name": rng.choice(SERVICES),
        "environment": maybe(rng, rng.choice(_ENVIRONMENTS), 0.7),
        "host": rng.choice(("localhost", hostname(rng), hostname(rng))),
        "port": rng.choice((80, 443, 3000, 5000, 8000, 8080, 8443, 9000)),
        "debug": flag(rng, 0.3),
        "timeout": maybe(rng, rng.choice((5, 10, 15, 30, 60, 2.5))),
        "workers": maybe(rng, rng.choice((1, 2, 4, 8, 16))),
    }


@json_kind()
def database_config(rng: Random) -> Record:
    driver, port = rng.choice((("postgres", 5432), ("mysql", 3306), ("mongodb", 27017), ("redis", 6379)))
    low = rng.randint(1, 5)
    return {
        "database": {
            "driver": driver,
            "host": hostname(rng),
            "port": port,
            "name": rng.choice((*SERVICES[:10], "app", "main", "test")),
            "user": maybe(rng, rng.choice(("app", "admin", "reader", "service")), 0.6),
            "ssl": maybe(rng, flag(rng, 0.7), 0.6),
        },
        "pool": maybe(rng, {"min": low, "max": low + rng.randint(1, 30)}),
    }


@json_kind()
def feature_flags(rng: Random) -> Record:
    return {name: flag(rng) for name in some(rng, _FLAGS, 2, 5)}


@json_kind()
def feature_flag(rng: Random) -> Record:
    enabled = flag(rng, 0.7)
    return {
        "key": rng.choice(_FLAGS),
        "enabled": enabled,
        "rollout": rng.choice((1, 5, 10, 25, 50, 100)) if enabled else 0,
        "environments": maybe(rng, some(rng, _ENVIRONMENTS, 1, 3), 0.6),
        "description": maybe(rng, purpose(rng), 0.4),
        "owner": maybe(rng, person(rng).email, 0.3),
    }


@json_kind()
def logging_config(rng: Random) -> Record:
    return {
        "logging": {
            "level": rng.choice(("DEBUG", "INFO", "WARNING", "ERROR")),
            "format": rng.choice(("json", "text", "pretty")),
            "file": nullable(rng, f"logs/{rng.choice(SERVICES)}.log"),
            "max_size_mb": maybe(rng, rng.choice((5, 10, 50, 100))),
            "backups": maybe(rng, rng.randint(1, 10)),
        }
    }


@json_kind()
def editor_settings(rng: Random) -> Record:
    return {
        "theme": rng.choice(("dark", "light", "high-contrast", "solarized")),
        "fontSize": rng.randint(9, 20),
        "fontFamily": maybe(rng, rng.choice(("monospace", "Fira Code", "Menlo", "Consolas"))),
        "tabSize": rng.choice((2, 4, 8)),
        "wordWrap": maybe(rng, flag(rng)),
        "autoSave": maybe(rng, rng.choice(("off", "afterDelay", "onFocusChange"))),
        "lineHeight": maybe(rng, rng.choice((1.2, 1.4, 1.5, 1.6)), 0.3),
    }


@json_kind()
def theme(rng: Random) -> Record:
    return {
        "name": slug(rng),
        "colors": {
            name: hex_colour_code(rng)
            for name in some(rng, ("primary", "accent", "background", "text", "border", "link"), 2, 4)
        },
        "radius": rng.choice((0, 2, 4, 8, 12)),
        "dark": flag(rng),
    }


@json_kind()
def package_manifest(rng: Random) -> Record:
    return {
        "name": slug(rng),
        "version": version(rng),
        "description": maybe(rng, purpose(rng)),
        "license": rng.choice(_LICENSES),
        "private": maybe(rng, flag(rng), 0.3),
        "dependencies": {name: rng.choice(("^", "~", "")) + version(rng) for name in some(rng, _PACKAGES, 1, 4)},
    }


@json_kind()
def package_scripts(rng: Random) -> Record:
    commands = {
        "build": rng.choice(("tsc", "vite build", "make all")),
        "test": rng.choice(("jest", "npm run lint && jest", "vitest", "node --test")),
        "start": rng.choice(("node index.js", "node dist/main.js", "vite")),
        "lint": rng.choice(("eslint .", "eslint src", "biome check")),
        "format": "prettier --write .",
        "clean": "rm -r dist",
    }
    chosen = set(some(rng, tuple(commands), 2, 4))
    return {
        "name": slug(rng),
        "scripts": {name: text for name, text in commands.items() if name in chosen},
        "engines": maybe(rng, {"node": f">={rng.choice((16, 18, 20, 22))}"}, 0.3),
    }


@json_kind()
def ci_job(rng: Random) -> Record:
    stages = ("install", "lint", "build", "test", "package", "upload")
    chosen = set(some(rng, stages, 1, 3))
    return {
        "job": rng.choice(("build", "test", "check", "docs", "release", "nightly")),
        "image": rng.choice(("python:3.11", "python:3.12", "node:20", "rust:1.80", "golang:1.22", "ubuntu:24.04")),
        "steps": ["checkout", *(stage for stage in stages if stage in chosen)],
        "timeout_minutes": maybe(rng, rng.choice((5, 10, 15, 30, 60)), 0.6),
        "allow_failure": maybe(rng, flag(rng, 0.2)),
        "needs": maybe(rng, some(rng, ("setup", "prepare"), 0, 2), 0.3),
    }


@json_kind()
def compiler_options(rng: Random) -> Record:
    return {
        "compilerOptions": {
            "target": rng.choice(("ES2018", "ES2020", "ES2022", "ESNext")),
            "module": maybe(rng, rng.choice(("commonjs", "ESNext", "NodeNext")), 0.8),
            "strict": flag(rng, 0.8),
            "outDir": maybe(rng, rng.choice(("dist", "build", "lib")), 0.7),
            "sourceMap": maybe(rng, flag(rng)),
        },
        "include": [rng.choice(("src", "src/**/*", "lib", "app"))],
        "exclude": maybe(rng, some(rng, ("node_modules", "dist", "tests"), 1, 2)),
    }


@json_kind()
def retry_policy(rng: Random) -> Record:
    kind = rng.choice(("fixed", "linear", "exponential"))
    return {
        "service": maybe(rng, rng.choice(SERVICES), 0.6),
        "retries": rng.randint(0, 10),
        "backoff": {
            "type": kind,
            "initial_ms": rng.choice((50, 100, 200, 500, 1000)),
            "factor": rng.choice((1.5, 2, 3)) if kind == "exponential" else ABSENT,
        },
        "retry_on": sorted(some(rng, (429, 500, 502, 503, 504), 1, 4)),
        "enabled": maybe(rng, flag(rng, 0.9)),
    }


@json_kind()
def locale_settings(rng: Random) -> Record:
    return {
        "language": rng.choice(LANGUAGES),
        "timezone": rng.choice(("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "Australia/Sydney")),
        "units": rng.choice(("metric", "imperial")),
        "date_format": maybe(rng, rng.choice(("YYYY-MM-DD", "DD.MM.YYYY", "MM/DD/YYYY")), 0.6),
        "notifications": {
            channel: flag(rng) for channel in ("email", "sms", "push") if channel == "email" or flag(rng)
        },
    }


@json_kind()
def server_route(rng: Random) -> Record:
    section = rng.choice(("users", "orders", "files", "login", "search", "items"))
    return {
        "path": rng.choice((f"/{section}", f"/api/{section}", f"/v1/{section}/{{id}}")),
        "methods": some(rng, ("GET", "POST", "PUT", "PATCH", "DELETE"), 1, 3),
        "upstream": f"http://{hostname(rng)}:{rng.choice((3000, 8000, 8080, 9000))}",
        "auth": flag(rng),
        "cache_seconds": maybe(rng, rng.choice((0, 60, 300, 3600))),
    }


@json_kind()
def model_config(rng: Random) -> Record:
    size, layers, heads = rng.choice((("tiny", 2, 2), ("small", 4, 4), ("base", 12, 12), ("large", 24, 16)))
    return {
        "model": f"{rng.choice(WORDS)}-{size}",
        "layers": layers,
        "heads": heads,
        "hidden_size": heads * rng.choice((32, 64)),
        "dropout": rng.choice((0.0, 0.1, 0.2)),
        "learning_rate": maybe(rng, rng.choice((0.01, 0.003, 0.001, 0.0005, 0.0003, 0.0001))),
        "seed": maybe(rng, rng.choice((0, 1, 7, 42, 123, 2024)), 0.4),
    }


@json_kind()
def monitor_rule(rng: Random) -> Record:
    return {
        "name": f"{rng.choice(SERVICES)}-{rng.choice(('latency', 'errors', 'disk', 'memory'))}",
        "condition": {"operator": rng.choice((">", ">=")), "threshold": decimal(rng, 0.5, 99, 1)},
        "window": rng.choice(("1m", "5m", "15m", "1h")),
        "severity": rng.choice(("info", "warning", "critical", *LEVELS)),
        "notify": maybe(rng, [f"ops@{domain(rng)}"], 0.6),
    }


@json_kind()
def web_manifest(rng: Random) -> Record:
    word = rng.choice(WORDS).capitalize()
    return {
        "name": f"{word} {rng.choice(('Notes', 'Maps', 'Music', 'Mail', 'Photos', 'Chess'))}",
        "short_name": word,
        "start_url": "/",
        "display": rng.choice(("standalone", "fullscreen", "browser")),
        "background_color": maybe(rng, hex_colour_code(rng)),
        "theme_color": hex_colour_code(rng),
        "lang": maybe(rng, rng.choice(LANGUAGES)),
    }


@json_kind()
def file_watch(rng: Random) -> Record:
    return {
        "files": [relative_path(rng) for _ in range(rng.randint(1, 4))],
        "recursive": maybe(rng, flag(rng)),
        "ignore": maybe(rng, some(rng, (".git", "node_modules", "*.tmp", "*.log", "dist"), 1, 3)),
        "delay_ms": maybe(rng, rng.choice((0, 100, 250, 500))),
        "on_change": maybe(rng, url(rng), 0.3),
    }

"""Kinds of responses of web APIs: results, errors, pages, tokens, jobs."""

from __future__ import annotations

from datetime import timedelta
from random import Random

from diffinity.training.corpus.structured.names import ROLES, company, person, products
from diffinity.training.corpus.structured.phrases import description, headline, headlines_about
from diffinity.training.corpus.structured.registry import Record, json_kind
from diffinity.training.corpus.structured.values import (
    SERVICES,
    TAGS,
    WORDS,
    any_id,
    decimal,
    domain,
    file_name,
    filled,
    flag,
    iso,
    maybe,
    moment,
    nullable,
    number_id,
    some,
    timestamp,
    url,
    uuid,
    version,
)

_ERRORS = (
    (400, "bad_request", "The request body is not valid JSON."),
    (400, "missing_parameter", "A required parameter is missing."),
    (401, "unauthorized", "Authentication is required."),
    (401, "token_expired", "The access token has expired."),
    (403, "forbidden", "You do not have access to this resource."),
    (404, "not_found", "The requested resource was not found."),
    (405, "method_not_allowed", "This method is not allowed here."),
    (409, "conflict", "The resource was changed by another request."),
    (413, "too_large", "The uploaded file is too large."),
    (422, "invalid_input", "One of the fields is not valid."),
    (429, "rate_limited", "Too many requests, try again later."),
    (500, "internal_error", "Something went wrong on our side."),
    (503, "unavailable", "The service is temporarily unavailable."),
    (504, "timeout", "The server took too long to answer."),
)
_FIELD_PROBLEMS = (
    ("email", "is not a valid email address"),
    ("password", "must have at least 8 characters"),
    ("name", "is required"),
    ("age", "must be a positive number"),
    ("phone", "has the wrong format"),
    ("start_date", "must not be in the past"),
    ("quantity", "must be greater than 0"),
    ("country", "is unknown"),
    ("title", "is too long"),
    ("url", "must start with https"),
)
_RESOURCES = ("users", "orders", "items", "posts", "products", "events", "comments", "files", "projects")


@json_kind()
def success_answer(rng: Random) -> Record:
    created = rng.choice(("created", "updated", "saved", "deleted", "accepted"))
    resource_name = rng.choice(("Order", "User", "File", "Comment", "Project", "Item", "Address", "Account"))
    return {
        "success": True,
        "message": f"{resource_name} {created}.",
        "data": maybe(rng, {"id": any_id(rng), "updated_at": maybe(rng, timestamp(rng))}, 0.8),
    }


@json_kind()
def error_answer(rng: Random) -> Record:
    status, code, text = rng.choice(_ERRORS)
    return {
        "error": {
            "code": rng.choice((status, code)),
            "message": text,
            "retry_after": rng.choice((5, 10, 30, 60, 120)) if status in (429, 503) else None,
        },
        "request_id": maybe(rng, filled(rng, "req_~~~~~~~~"), 0.7),
        "timestamp": maybe(rng, timestamp(rng), 0.4),
    }


@json_kind()
def problem_details(rng: Random) -> Record:
    status, code, text = rng.choice(_ERRORS)
    return {
        "type": f"https://{domain(rng)}/errors/{code.replace('_', '-')}",
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "detail": maybe(rng, text, 0.8),
        "instance": maybe(rng, f"/{rng.choice(_RESOURCES)}/{number_id(rng)}"),
    }


@json_kind()
def validation_error(rng: Random) -> Record:
    problems = some(rng, _FIELD_PROBLEMS, 1, 3)
    return {
        "status": 422,
        "error": rng.choice(("validation_failed", "Validation failed", "invalid_input")),
        "fields": [{"field": field, "message": text} for field, text in problems],
    }


@json_kind()
def page_of_results(rng: Random) -> Record:
    per_page = rng.choice((2, 3))
    pages = rng.randint(1, 40)
    page = rng.randint(1, pages)
    total = (pages - 1) * per_page + rng.randint(1, per_page)
    page_size = per_page if page < pages else total - (pages - 1) * per_page
    return {
        "page": page,
        "per_page": per_page,
        "total": total,
        "total_pages": maybe(rng, pages, 0.7),
        "items": [{"id": number_id(rng), "name": item.name} for item in products(rng, page_size)],
    }


@json_kind()
def cursor_page(rng: Random) -> Record:
    has_more = flag(rng, 0.6)
    return {
        "data": [filled(rng, "itm_~~~~~~") for _ in range(rng.randint(1, 4))],
        "has_more": has_more,
        "next_cursor": filled(rng, "~~~~~~~~~~~~") if has_more else None,
    }


@json_kind()
def page_links(rng: Random) -> Record:
    base = f"https://{domain(rng)}/{rng.choice(_RESOURCES)}"
    page = rng.randint(1, 30)
    return {
        "links": {
            "self": f"{base}?page={page}",
            "next": nullable(rng, f"{base}?page={page + 1}"),
            "prev": f"{base}?page={page - 1}" if page > 1 else None,
        },
        "meta": maybe(rng, {"count": rng.randint(1, 50)}),
    }


@json_kind()
def token_answer(rng: Random) -> Record:
    return {
        "access_token": filled(rng, "~~~~~~~~~~~~~~~~"),
        "token_type": "Bearer",
        "expires_in": rng.choice((300, 900, 1800, 3600, 7200, 86400)),
        "refresh_token": maybe(rng, filled(rng, "~~~~~~~~~~~~")),
        "scope": maybe(rng, " ".join(some(rng, ("read", "write", "profile", "email", "admin"), 1, 3))),
    }


@json_kind()
def health_answer(rng: Random) -> Record:
    checks = {
        name: rng.choice(("ok", "ok", "ok", "failed"))
        for name in some(rng, ("database", "cache", "queue", "storage", "disk", "mail"), 1, 4)
    }
    return {
        "status": "degraded" if "failed" in checks.values() else "ok",
        "version": maybe(rng, version(rng), 0.7),
        "uptime": rng.randint(10, 2_000_000),
        "checks": checks,
    }


@json_kind()
def search_answer(rng: Random) -> Record:
    count = rng.randint(1, 2)
    scores = sorted((decimal(rng, 0.05, 0.99) for _ in range(count)), reverse=True)
    query, titles = headlines_about(rng, count)
    return {
        "query": query,
        "total": count + rng.choice((0, rng.randint(0, 900))),
        "results": [
            {"title": title, "url": url(rng), "score": score} for title, score in zip(titles, scores, strict=True)
        ],
        "took_ms": maybe(rng, rng.randint(1, 400)),
    }


@json_kind()
def job_status(rng: Random) -> Record:
    created = moment(rng)
    status = rng.choice(("queued", "running", "running", "completed", "completed", "failed"))
    progress = {"queued": 0, "completed": 100}.get(status, rng.randint(1, 99))
    ended = status in ("completed", "failed")
    return {
        "job_id": rng.choice((number_id(rng), filled(rng, "job_~~~~~~"))),
        "status": status,
        "progress": progress,
        "created_at": iso(created),
        "finished_at": iso(created + timedelta(seconds=rng.randint(2, 9000))) if ended else None,
        "error": "timeout" if status == "failed" else None,
    }


@json_kind()
def upload_answer(rng: Random) -> Record:
    name, mime_type = file_name(rng)
    return {
        "filename": name,
        "content_type": mime_type,
        "size": rng.randint(200, 9_000_000),
        "checksum": maybe(rng, filled(rng, "~~~~~~~~~~~~~~~~")),
        "url": f"https://{domain(rng)}/files/{name}",
        "public": maybe(rng, flag(rng)),
    }


@json_kind()
def rate_limit(rng: Random) -> Record:
    limit = rng.choice((60, 100, 500, 1000, 5000))
    return {
        "limit": limit,
        "remaining": rng.randint(0, limit),
        "reset": rng.choice((timestamp(rng), int(moment(rng).timestamp()))),
        "resource": maybe(rng, rng.choice(_RESOURCES)),
    }


@json_kind()
def api_key(rng: Random) -> Record:
    created = moment(rng)
    return {
        "id": rng.choice((number_id(rng), uuid(rng))),
        "name": f"{rng.choice(SERVICES)} key",
        "prefix": filled(rng, "sk_~~~~"),
        "permissions": some(rng, ("read", "write", "delete", "list"), 1, 3),
        "created_at": iso(created),
        "expires_at": nullable(rng, iso(created + timedelta(days=rng.choice((30, 90, 365))))),
        "active": flag(rng, 0.8),
    }


@json_kind()
def repository(rng: Random) -> Record:
    owner: tuple[Record, Record] = (
        {"login": person(rng).username, "type": "User"},
        {"login": company(rng).split()[0].lower(), "type": "Organization"},
    )
    return {
        "id": number_id(rng),
        "name": f"{rng.choice(WORDS)}-{rng.choice(('app', 'lib', 'cli', 'api', 'tools', 'docs'))}",
        "owner": rng.choice(owner),
        "private": flag(rng, 0.3),
        "language": nullable(rng, rng.choice(("Python", "Rust", "Go", "Java", "TypeScript", "C")), 0.1),
        "stars": rng.choice((rng.randint(0, 20), rng.randint(0, 5000))),
        "topics": maybe(rng, some(rng, TAGS, 0, 3)),
    }


@json_kind()
def session(rng: Random) -> Record:
    created = moment(rng)
    return {
        "session_id": uuid(rng),
        "user": {"id": number_id(rng), "name": person(rng).name, "role": rng.choice(ROLES)},
        "created_at": iso(created),
        "expires_at": iso(created + timedelta(minutes=rng.choice((15, 30, 60, 480, 1440)))),
    }


@json_kind()
def resource(rng: Random) -> Record:
    created = moment(rng)
    return {
        "id": any_id(rng),
        "type": rng.choice(("document", "folder", "image", "note", "project", "dataset", "page")),
        "title": headline(rng),
        "description": maybe(rng, description(rng), 0.4),
        "created_at": iso(created),
        "updated_at": maybe(rng, iso(created + timedelta(hours=rng.randint(0, 5000))), 0.6),
        "tags": maybe(rng, some(rng, TAGS, 0, 3)),
    }

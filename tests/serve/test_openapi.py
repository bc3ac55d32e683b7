"""Requests made up from the OpenAPI document: none of them is answered with a 500."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

from tests.serve.running import Client

EXAMPLES = 25  # of each operation
OPERATIONS = [("GET", path) for path in ("/health", "/metrics", "/v1/models", "/v1/models/{name}")]
OPERATIONS += [("POST", path) for path in ("/v1/completions", "/v1/chat/completions", "/diffinity/inspect")]


@pytest.fixture(scope="module")
def document(server: Client) -> Any:
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


@pytest.mark.filterwarnings("default")  # its own
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_no_request_breaks_the_server(document: Any, method: str, path: str) -> None:
    @given(case=document[path][method].as_strategy())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        derandomize=True,
    )
    def check(case: Any) -> None:
        options = case.body.get("diffinity") if isinstance(case.body, dict) else None
        if isinstance(options, dict) and isinstance(options.get("steps"), int):
            options["steps"] = min(options["steps"], 4)  # they are made up by the hundred
        response = case.call(timeout=60)
        case.validate_response(response, checks=[not_a_server_error, response_schema_conformance])

    check()


def test_the_operations_are_all_there_are(document: Any) -> None:
    there = {(found.ok().method.upper(), found.ok().path) for found in document.get_all_operations()}
    assert there == set(OPERATIONS)


def test_the_document_describes_every_body(server: Client) -> None:
    _, found, _ = server.get("/openapi.json")
    for path, name in {
        "/v1/completions": "CompletionRequest",
        "/v1/chat/completions": "ChatRequest",
        "/diffinity/inspect": "InspectRequest",
    }.items():
        body = found["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert body["$ref"] == f"#/components/schemas/{name}"
        assert name in found["components"]["schemas"]

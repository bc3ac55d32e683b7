"""The API: answers, constraints as clients send them, and errors that name the field."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema_rs
import pytest

import diffinity as dy
from tests.serve.running import NAME, Client, tiny_model

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"enum": ["box", "cup"]}, "size": {"type": "integer"}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
GBNF = 'root ::= thing " " thing-two\nthing ::= "cat" | "dog"\nthing-two ::= [0-9]+ # a number'
EBNF = 'greeting = "the ", ("cat" | "dog"), " saw the box." ;'


def json_is_valid(text: str) -> bool:
    return bool(jsonschema_rs.is_valid(SCHEMA, json.loads(text)))


@pytest.mark.parametrize(
    ("asked", "holds"),
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "t", "schema": SCHEMA}}},
            json_is_valid,
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "t", "description": "d", "schema": SCHEMA, "strict": True},
                }
            },
            json_is_valid,
        ),
        ({"response_format": {"type": "json_object"}}, lambda text: isinstance(json.loads(text), dict)),
        (
            {"response_format": {"type": "text"}, "structured_outputs": {"regex": "yes|no"}},
            {"yes", "no"}.__contains__,
        ),
        ({"structured_outputs": {"json": SCHEMA}}, json_is_valid),
        ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, json_is_valid),
        ({"structured_outputs": {"regex": "the [a-z ]+\\."}}, lambda text: re.fullmatch("the [a-z ]+\\.", text)),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, {"yes", "no"}.__contains__),
        (
            {"structured_outputs": {"grammar": EBNF}},
            {f"the {a} saw the box." for a in ("cat", "dog")}.__contains__,
        ),
        ({"grammar": GBNF}, lambda text: re.fullmatch("(cat|dog) [0-9]+", text)),
        ({"json_schema": SCHEMA}, json_is_valid),
        ({"format": SCHEMA}, json_is_valid),
        ({"format": "json"}, lambda text: isinstance(json.loads(text), dict)),
        ({"structured_outputs": {"regex": "[a-z ]+"}, "stop": "a"}, lambda text: "a" not in text),
        (
            {"structured_outputs": {"regex": "[a-z ]+"}, "stop": ["a", "th"]},
            lambda text: not re.search("a|th", text),
        ),
        ({"diffinity": {"prefix": "the dog", "steps": 4}}, lambda text: text.startswith("the dog")),
    ],
)
def test_a_constraint_as_a_client_sends_it_holds(server: Client, asked: dict[str, Any], holds: Any) -> None:
    status, answer = server.complete(**asked, n=2)
    assert status == 200, answer
    for choice in answer["choices"]:
        assert holds(choice["text"]), choice["text"]
        assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("asked", "param", "said"),
    [
        ({"bogus": 1}, "bogus", "unknown field bogus"),
        ({"bogus": 1, "other": 2}, "bogus", "unknown fields bogus, other"),
        ({"guided_json": {}}, "guided_json", "structured_outputs.json"),
        ({"guided_regex": "a"}, "guided_regex", "structured_outputs.regex"),
        ({"guided_choice": ["a"]}, "guided_choice", "structured_outputs.choice"),
        ({"guided_grammar": "a"}, "guided_grammar", "structured_outputs.grammar"),
        ({"guided_decoding_backend": "x"}, "guided_decoding_backend", "was removed"),
        ({"diffinity": {"bogus": 1}}, "diffinity.bogus", "unknown field diffinity.bogus"),
        ({"diffinity": {"steps": 0}}, "diffinity.steps", "at least 1"),
        ({"diffinity": {"steps": 10**6}}, "diffinity.steps", "1024 are allowed"),
        ({"diffinity": {"particles": 1000}}, "diffinity.particles", "32 are allowed"),
        ({"diffinity": {"guidance": "magic"}}, "diffinity", "guidance must be one of"),
        ({"diffinity": {"framing": "frame"}}, None, "framing must be one of"),
        ({"diffinity": {"steps": 4, "num_inference_steps": 4}}, "diffinity.num_inference_steps", "twice"),
        ({"n": 0}, "n", "at least 1"),
        ({"n": 1.5}, "n", "at least 1"),
        ({"n": 17}, "n", "16 are allowed"),
        ({"seed": -1}, "seed", "from 0"),
        ({"max_tokens": 10**9}, "max_tokens", "1024 are allowed"),
        ({"max_tokens": 2, "structured_outputs": {"regex": "[0-9]{40}"}}, "max_tokens", "the shortest has"),
        ({"temperature": 3}, "temperature", "from 0 to 2"),
        ({"top_p": 0.5}, "top_p", "not supported"),
        ({"logprobs": 21}, "logprobs", "from 0 to 20"),
        ({"logprobs": 1, "diffinity": {"particles": 2}}, "logprobs", "particles"),
        ({"stop": ""}, "stop", "empty"),
        ({"stop": [1]}, "stop[0]", "a list of texts"),
        ({"stop": ["a"] * 17}, "stop", "16 are allowed"),
        ({"model": "gpt"}, "model", "there is no model 'gpt'"),
        ({"prompt": "Hello"}, "prompt", "reads no prompt"),
        ({"prompt": []}, "prompt", "empty list"),
        ({"prompt": [[1, 2]]}, "prompt[0]", "a text or a list of texts"),
        ({"structured_outputs": {}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"regex": "a(b"}}, "structured_outputs.regex", "unterminated"),
        ({"structured_outputs": {"grammar": "a = b"}}, "structured_outputs.grammar", "there is no rule 'b'"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "is not JSON"),
        ({"structured_outputs": {"json": {"type": "text"}}}, "structured_outputs.json", "type"),
        ({"structured_outputs": {"json": False}}, "structured_outputs.json", "no text satisfies"),
        ({"structured_outputs": {"regex": "a"}, "grammar": "a = 'b'"}, "grammar", "two constraints"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "needs json_schema"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "json_schema"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage", "true or false"),
    ],
)
def test_an_error_names_the_field(server: Client, asked: dict[str, Any], param: str | None, said: str) -> None:
    status, answer, _ = server.post("/v1/completions", asked)
    assert status == (404 if "model" in asked else 400), answer
    assert answer["error"]["param"] == param
    assert said in answer["error"]["message"]
    assert answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"a": \xff}', b'{"stop": "\xed\xa0\x80"}', b"[" * 50_000]
)
def test_a_body_that_is_no_object_is_said_so(server: Client, body: bytes) -> None:
    status, answer, _ = server.post("/v1/completions", body)
    assert status == 400
    assert "the body" in answer["error"]["message"]


def test_a_seed_gives_the_text_that_the_library_gives(server: Client) -> None:
    status, answer = server.complete(structured_outputs={"regex": "the [a-z ]+\\."}, seed=7, n=3, max_tokens=16)
    assert status == 200
    alone = dy.generate(tiny_model(), dy.Regex("the [a-z ]+\\."), n=3, length=16, seed=7, num_inference_steps=4)
    assert [choice["text"] for choice in answer["choices"]] == [text.text for text in alone]
    assert answer["diffinity"]["seed"] == 7


def test_without_a_constraint_any_text_comes(server: Client) -> None:
    status, answer = server.complete(seed=1)
    alone = dy.generate(tiny_model(), None, seed=1, num_inference_steps=4)
    assert status == 200
    assert answer["choices"][0]["text"] == alone[0].text


def test_every_option_of_the_settings_has_an_effect(server: Client) -> None:
    asked = {"structured_outputs": {"regex": "the [a-z ]+\\."}, "seed": 3, "max_tokens": 16}
    options = {"guidance": "posterior", "guidance_scale": 1.0, "steps": 6, "decode": "sample", "particles": 2}
    _, answer = server.complete(**asked, diffinity=options)
    alone = dy.generate(
        tiny_model(),
        dy.Regex("the [a-z ]+\\."),
        length=16,
        seed=3,
        guidance="posterior",
        guidance_scale=1.0,
        num_inference_steps=6,
        decode="sample",
        particles=2,
    )
    assert answer["choices"][0]["text"] == alone[0].text
    assert len(answer["diffinity"]["texts"][0]["log_acceptance"]) == len(alone[0].log_acceptance)


def test_temperature_one_is_the_models_own(server: Client) -> None:
    asked = {"structured_outputs": {"regex": "the [a-z ]+\\."}, "seed": 5, "max_tokens": 16, "n": 4}
    texts = [
        server.complete(**asked, **more)[1]["choices"] for more in ({}, {"temperature": 1}, {"temperature": 0})
    ]
    assert texts[0] == texts[1]
    assert [len(choices) for choices in texts] == [4, 4, 4]


def test_a_length_that_the_constraint_needs_is_found(server: Client) -> None:
    status, answer = server.complete(structured_outputs={"regex": "(?:[0-9]{10},){20}"})
    assert status == 200
    assert len(answer["choices"][0]["text"]) == 220


def test_usage_counts_the_tokens_of_the_texts(server: Client) -> None:
    _, answer = server.complete(structured_outputs={"choice": ["yes"]}, n=3)
    tokens = len(tiny_model().tokenizer.encode("yes").ids)
    usage = answer["usage"]
    assert usage["prompt_tokens"] == 0
    assert usage["total_tokens"] == usage["completion_tokens"] >= 3 * tokens


def test_logprobs_are_those_of_the_last_distributions(server: Client) -> None:
    asked = {"structured_outputs": {"regex": "the [a-z ]+\\."}, "seed": 2, "max_tokens": 16}
    _, answer = server.complete(**asked, logprobs=2)
    choice = answer["choices"][0]
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
    total = sum(choice["logprobs"]["token_logprobs"])
    assert (
        total >= answer["diffinity"]["texts"][0]["log_p_text"] - 1e-4
    )  # which counts what stands after the end too
    assert all(value <= 0 for value in choice["logprobs"]["token_logprobs"])
    assert [len(top) for top in choice["logprobs"]["top_logprobs"]] == [2] * len(choice["logprobs"]["tokens"])


def test_several_prompts_need_a_model_that_reads_them(server: Client) -> None:
    assert server.complete(prompt=["a", "b"])[1]["error"]["param"] == "prompt"
    status, answer = server.complete(prompt=["", ""], n=2, structured_outputs={"choice": ["yes"]})
    assert status == 200
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]


def test_models_health_and_metrics(server: Client) -> None:
    assert server.get("/health")[1]["status"] == "ok"
    listed = server.get("/v1/models")[1]
    assert [model["id"] for model in listed["data"]] == [NAME]
    assert server.get(f"/v1/models/{NAME}")[1]["object"] == "model"
    assert server.get("/v1/models/other")[0] == 404
    server.complete(structured_outputs={"choice": ["yes"]})
    text = server.get("/metrics")[1]
    assert 'diffinity_requests_total{path="/v1/completions",status="200"}' in text
    assert "diffinity_batch_texts_bucket" in text


def test_inspect_says_what_a_constraint_is(server: Client) -> None:
    status, found, _ = server.post("/diffinity/inspect", {"structured_outputs": {"regex": "[a-c]{2,4}"}})
    assert status == 200
    assert found["finite"]
    assert len(found["samples"]) == 3
    assert all(re.fullmatch("[a-c]{2,4}", text) for text in found["samples"])
    assert found["svg"].startswith("<svg")
    status, found, _ = server.post("/diffinity/inspect", {"structured_outputs": {"regex": "a{"}, "n": 2})
    assert (status, found["error"]["param"]) == (400, "n")


def test_what_is_not_there_is_an_error_object(server: Client) -> None:
    assert server.get("/nowhere")[1]["error"]["message"] == "there is nothing at /nowhere"
    status, answer, _ = server.get("/v1/completions")
    assert status == 405
    assert answer["error"]["type"] == "invalid_request_error"

"""The official openai client and curl, streaming included."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel

import diffinity as dy
from tests.serve.running import NAME, Client, running

MESSAGES: Any = [{"role": "user", "content": "Name a thing."}]
STEPS = {"diffinity": {"steps": 4}}


class Thing(BaseModel):
    name: str
    size: int


@pytest.fixture(scope="module")
def ignoring() -> Iterator[Client]:
    with running(ignore_prompt=True) as client:
        yield client


@pytest.fixture
def client(ignoring: Client) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{ignoring.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=NAME,
        messages=MESSAGES,
        n=2,
        seed=1,
        max_completion_tokens=16,
        temperature=0.7,
        extra_body={"structured_outputs": {"choice": ["yes", "no"]}, **STEPS},
    )
    assert {choice.message.content for choice in answer.choices} <= {"yes", "no"}
    assert answer.choices[1].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.completion_tokens > 0


def test_parse_returns_an_instance(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model=NAME, messages=MESSAGES, response_format=Thing, max_tokens=40, extra_body=STEPS
    )
    assert isinstance(answer.choices[0].message.parsed, Thing)


def test_chat_stream(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=NAME,
        messages=MESSAGES,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"structured_outputs": {"choice": ["yes", "no"]}, **STEPS},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text in ("yes", "no")
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0


def test_stream_helper_of_the_client(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=NAME, messages=MESSAGES, response_format=Thing, max_tokens=40, extra_body=STEPS
    ) as stream:
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Thing)


def test_completions_and_logprobs(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=NAME,
        prompt="Once",
        logprobs=3,
        extra_body={"structured_outputs": {"regex": "the [a-z ]+\\."}, **STEPS},
    )
    choice = answer.choices[0]
    assert choice.logprobs is not None
    assert "".join(choice.logprobs.tokens or []) == choice.text


def test_chat_logprobs(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=NAME,
        messages=MESSAGES,
        logprobs=True,
        top_logprobs=2,
        extra_body={"structured_outputs": {"choice": ["yes"]}, **STEPS},
    )
    content = (answer.choices[0].logprobs or pytest.fail("no logprobs")).content or []
    assert b"".join(bytes(token.bytes or []) for token in content) == b"yes"
    assert all(len(token.top_logprobs) == 2 for token in content)


def test_an_error_is_the_clients_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="unterminated") as caught:
        client.completions.create(model=NAME, prompt="", extra_body={"structured_outputs": {"regex": "a("}})
    assert caught.value.param == "structured_outputs.regex"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="")


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [NAME]


async def _asynchronous(url: str) -> list[str]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        stream = await client.completions.create(
            model=NAME,
            prompt="",
            stream=True,
            n=2,
            extra_body={"structured_outputs": {"choice": ["yes"]}, **STEPS},
        )
        return [chunk.choices[0].text async for chunk in stream]


def test_the_asynchronous_client(ignoring: Client) -> None:
    import asyncio

    assert asyncio.run(_asynchronous(ignoring.url)) == ["yes", "yes"]


def curl(client: Client, path: str, body: object) -> str:
    command = [
        "curl",
        "-sN",
        f"{client.url}{path}",
        "-H",
        "Content-Type: application/json",
        "-d",
        json.dumps(body),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_curl(server: Client) -> None:
    answer = json.loads(curl(server, "/v1/completions", {"structured_outputs": {"choice": ["yes"]}, **STEPS}))
    assert answer["choices"][0]["text"] == "yes"


def test_curl_streams_drafts_as_events_of_their_own_name(server: Client) -> None:
    asked = {"structured_outputs": {"choice": ["yes"]}, "stream": True, "diffinity": {"steps": 6, "drafts": 2}}
    events = [event.split("\n") for event in curl(server, "/v1/completions", asked).strip().split("\n\n")]
    names = [lines[0] for lines in events]
    assert names[:3] == ["event: diffinity.draft"] * 3
    assert names[3] == "event: diffinity.text"
    draft, text = (json.loads(events[i][1].removeprefix("data: ")) for i in (2, 3))
    assert (draft["step"], draft["steps"]) == (6, 6)
    assert len(draft["tokens"]) == len(draft["sure"]) == len(draft["path"])
    assert "".join(text["tokens"]) == text["text"] == "yes"
    assert text["path"][0][0] == 0  # the start
    assert -1 not in text["path"][-1]
    assert events[-1] == ["data: [DONE]"]
    assert json.loads(events[4][0].removeprefix("data: "))["object"] == "text_completion"


def test_without_drafts_every_event_is_a_chunk(server: Client) -> None:
    asked = {"structured_outputs": {"choice": ["yes"]}, "stream": True, **STEPS}
    lines = [line for line in curl(server, "/v1/completions", asked).splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)


def test_drafts_of_a_path_through_the_automaton_are_true(server: Client) -> None:
    asked = {
        "structured_outputs": {"regex": "the [a-z ]+\\."},
        "stream": True,
        "diffinity": {"steps": 6, "drafts": 1},
    }
    dfa = dy.Regex("the [a-z ]+\\.").dfa()
    for event in curl(server, "/v1/completions", asked).split("\n\n"):
        if event.startswith("event: diffinity.text"):
            found = json.loads(event.split("\n")[1].removeprefix("data: "))
            state = 0
            for piece, path in zip(found["tokens"], found["path"], strict=True):
                assert path[0] == state
                for byte, after in zip(piece.encode(), path[1:], strict=True):
                    state = int(dfa.table[state, dfa.byte_class[byte]])
                    assert after == state
            assert dfa.accepting[state]
            return
    pytest.fail("no text came")


def test_chat_of_a_model_without_prompts_is_refused_with_a_way_out(server: Client) -> None:
    status, answer, _ = server.post("/v1/chat/completions", {"messages": MESSAGES})
    assert status == 400
    assert answer["error"]["param"] == "messages"
    assert "--ignore-prompt" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "robot", "content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, None),
    ],
)
def test_a_wrong_message_is_named(ignoring: Client, message: dict[str, Any], param: str | None) -> None:
    status, answer, _ = ignoring.post("/v1/chat/completions", {"messages": [message]})
    assert status == 400
    assert answer["error"]["param"].startswith(param or "messages[0].content")


def test_parts_of_type_text_are_read(ignoring: Client) -> None:
    content = [{"type": "text", "text": "Say "}, {"type": "text", "text": "yes."}]
    asked = {
        "messages": [{"role": "user", "content": content}],
        "structured_outputs": {"choice": ["yes"]},
        **STEPS,
    }
    assert ignoring.post("/v1/chat/completions", asked)[0] == 200

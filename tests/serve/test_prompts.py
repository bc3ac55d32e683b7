"""Models that read prompts: what they are asked reaches them, and the texts are those of the library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import diffinity as dy
from tests.models.test_hugging_face import written
from tests.serve.running import Client, running, tiny_model

MESSAGES = [{"role": "user", "content": "cat?"}]
PATTERN = "[a-z ]{3,20}"
ASKED = {"structured_outputs": {"regex": PATTERN}, "seed": 4, "max_tokens": 10}


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return dy.load(written(tmp_path_factory.mktemp("llada"), "llada"), trust_remote_code=True)


@pytest.fixture(scope="module")
def client(chatty: Any) -> Iterator[Client]:
    with running(chatty, max_prompt_tokens=50) as made:
        yield made


def alone(model: Any, **options: Any) -> str:
    return dy.generate(model, dy.Regex(PATTERN), length=10, seed=4, num_inference_steps=4, **options)[0].text


def test_a_conversation_reaches_the_model(client: Client, chatty: Any) -> None:
    status, answer, _ = client.post(
        "/v1/chat/completions", {**ASKED, "messages": MESSAGES, "diffinity": {"steps": 4}}
    )
    assert status == 200, answer
    assert answer["choices"][0]["message"]["content"] == alone(chatty, messages=MESSAGES)
    assert answer["usage"]["prompt_tokens"] == len(chatty.encode_prompt(None, MESSAGES))


def test_every_prompt_of_a_list_has_its_own_text(client: Client, chatty: Any) -> None:
    prompts = ["the cat.", "yes no yes no"]
    status, answer = client.complete(**ASKED, prompt=prompts)
    assert status == 200, answer
    first, second = (choice["text"] for choice in answer["choices"])
    assert first == alone(chatty, prompt=prompts[0])
    assert second != first


def test_drafts_of_tokens(client: Client) -> None:
    body = {**ASKED, "prompt": "the cat.", "stream": True, "diffinity": {"steps": 4, "drafts": 1}}
    _, text, _ = client.post("/v1/completions", body)
    events = [event.split("\n") for event in text.strip().split("\n\n")]
    drafts = [json.loads(lines[1].removeprefix("data: ")) for lines in events if "draft" in lines[0]]
    assert [draft["step"] for draft in drafts][:2] == [1, 2]  # a text may be finished before its last step
    assert drafts[-1]["step"] == 4
    (last,) = (json.loads(lines[1].removeprefix("data: ")) for lines in events if "diffinity.text" in lines[0])
    assert "".join(drafts[-1]["tokens"]) == "".join(last["tokens"]) == last["text"]


@pytest.mark.parametrize(
    ("asked", "param", "said"),
    [
        ({"prompt": "the cat " * 50}, "prompt", "50 are allowed"),
        ({"diffinity": {"guidance": "gradient"}}, "diffinity", "guidance of a"),
        ({"diffinity": {"method": "ddim"}}, "diffinity", "method"),
        ({"logprobs": 1}, "logprobs", "commits tokens during the run"),
    ],
)
def test_what_such_a_model_can_t_do_is_said(client: Client, asked: Any, param: str, said: str) -> None:
    status, answer, _ = client.post("/v1/completions", asked)
    assert status == 400
    assert answer["error"]["param"] == param
    assert said in answer["error"]["message"]


def test_a_model_without_a_chat_template_refuses_a_conversation() -> None:
    with running(tiny_model().tokens("mask")) as client:
        status, answer, _ = client.post("/v1/chat/completions", {"messages": MESSAGES})
        assert (status, answer["error"]["param"]) == (400, "messages")
        assert "chat template" in answer["error"]["message"]
        status, answer = client.complete(
            prompt="the ", structured_outputs={"regex": "(cat|dog).*"}, temperature=0.5
        )
        assert status == 200
        assert answer["choices"][0]["text"][:3] in ("cat", "dog")

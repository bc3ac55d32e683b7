"""`batch`: one result for each request, in order, the same however often the run was killed and whoever ran it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import diffinity as dy
from diffinity.batch import Line, run_batch
from diffinity.batch.answers import Row, answer_lines, sentence
from diffinity.batch.cluster import Answerer, _check_resources, ray_answers
from diffinity.batch.results import opened_results
from diffinity.errors import ConstraintTooLarge
from diffinity.models.markov import MarkovLM
from diffinity.request import read_request
from tests.models.test_checkpoints import tiny_plaid

TEXTS = [f"the {a} {v} the {t}." for a in ("cat", "dog") for v in ("saw", "took") for t in ("box", "cup")]
REQUESTS: list[Any] = [
    {"id": "first", "regex": "the dog [a-z ]+.", "n": 3, "seed": 4},
    {"choice": ["the cat saw the box.", "the dog saw the cup."], "seed": 9},
    {"id": 3, "json_schema": {"type": "integer", "minimum": 10, "maximum": 12}, "guidance": "path"},
    {"contains": ["cup"], "not_regex": [".*dog.*"], "decode": "sample"},
    {"n": 2, "prefix": "the dog", "method": "ddim", "score_temp": 0.8},
    {"regex": "the cat [a-z ]+.", "steps": 9, "scale": 1.0},
]
SIZE = {"length": 16, "steps": 12}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("batch") / "model"
    dy.fit_markov(TEXTS, order=2, vocab_size=300).save_pretrained(path)
    return path


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(json.dumps({**SIZE, **request}) for request in REQUESTS) + "\n")
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def no_model(_: Iterator[Line]) -> Iterator[Row]:
    raise AssertionError("a request was answered")


def test_every_request_gives_what_generate_gives_for_it_alone(
    folder: Path, requests: Path, tmp_path: Path
) -> None:
    summary = run_batch(requests, tmp_path / "out.jsonl", str(folder), tokens=True)
    assert (summary.total, summary.resumed, summary.errors) == (6, 0, 0)
    found = rows(tmp_path / "out.jsonl")
    assert [row["line"] for row in found] == [1, 2, 3, 4, 5, 6]
    assert [row.get("id") for row in found] == ["first", None, 3, None, None, None]
    model = dy.load(folder)
    alone = [
        dy.generate(model, dy.Regex("the dog [a-z ]+."), 3, 16, num_inference_steps=12, seed=4),
        dy.generate(model, dy.Choice(REQUESTS[1]["choice"]), 1, 16, num_inference_steps=12, seed=9),
        dy.generate(
            model, dy.JsonSchema(REQUESTS[2]["json_schema"]), 1, 16, num_inference_steps=12, guidance="path"
        ),
        dy.generate(
            model,
            dy.sentences.contains_words("cup") & ~dy.Regex(".*dog.*"),
            1,
            16,
            num_inference_steps=12,
            decode="sample",
        ),
        dy.generate(
            model,
            dy.Regex("(?s).*"),
            2,
            16,
            num_inference_steps=12,
            prefix="the dog",
            method="ddim",
            score_temp=0.8,
        ),
        dy.generate(model, dy.Regex("the cat [a-z ]+."), 1, 16, num_inference_steps=9, guidance_scale=1.0),
    ]
    for row, expected in zip(found, alone, strict=True):
        assert row["texts"] == [sample.text for sample in expected]
        assert row["tokens"] == [list(sample.tokens) for sample in expected]
        assert row["satisfied"] == [True] * len(expected)
        assert row["seed"] == expected[0].seed[0]
        assert row["log_p_text"] == pytest.approx([sample.log_p_text for sample in expected], abs=1e-6)
    assert all(re.fullmatch("the dog [a-z ]+.", text) for text in found[0]["texts"])
    assert "dog" not in found[3]["texts"][0]
    assert int(found[2]["texts"][0]) in (10, 11, 12)


@pytest.mark.parametrize("size", [1, 2, 64])
def test_the_batch_size_changes_no_text(folder: Path, requests: Path, tmp_path: Path, size: int) -> None:
    run_batch(requests, tmp_path / "one.jsonl", str(folder), batch_size=size)
    run_batch(requests, tmp_path / "two.jsonl", str(folder))
    one, two = rows(tmp_path / "one.jsonl"), rows(tmp_path / "two.jsonl")
    assert [row["texts"] for row in one] == [row["texts"] for row in two]


def test_requests_with_the_same_settings_are_denoised_together(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(model: MarkovLM, constraints: list[Any], **options: Any) -> list[dy.Generated]:
        calls.append(len(constraints))
        return dy.generate(model, constraints, **options)

    monkeypatch.setattr("diffinity.batch.answers.generate", counted)
    asked: list[dict[str, Any]] = [
        {"regex": "the dog [a-z ]+.", "seed": 7, "n": 2},
        {"regex": "the cat [a-z ]+.", "seed": 1, "decode": "sample"},
        {"contains": ["cup"], "seed": 7},
        {"choice": ["the dog saw the cup.", "the cat took the box."], "seed": 3, "n": 3},
        {"contains": ["box"], "decode": "sample"},
    ]
    lines = [Line(i, json.dumps({**SIZE, **request}).encode()) for i, request in enumerate(asked, 1)]
    together = list(answer_lines(shared_model(), lines, tokens=True))
    assert calls == [6, 2]
    calls.clear()
    alone = [row for line in lines for row in answer_lines(shared_model(), [line], tokens=True)]
    assert calls == [2, 1, 1, 3, 1]
    assert [row["tokens"] for row in together] == [row["tokens"] for row in alone]


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("guidance", ["path", "gradient"])
def test_a_network_s_requests_are_the_same_alone(
    guidance: str, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    made: list[int] = []

    def counted(model: dy.PlaidLM, constraints: list[Any], **options: Any) -> list[dy.Generated]:
        made.append(len(constraints))
        return dy.generate(model, constraints, **options)

    monkeypatch.setattr("diffinity.batch.answers.generate", counted)
    model = tiny_plaid()
    asked = {"regex": "(?s).{1,6}", "length": 8, "steps": 6, "guidance": guidance}
    lines = [Line(i, json.dumps({**asked, "seed": i}).encode()) for i in range(3)]
    together = [row["tokens"] for row in answer_lines(model, lines, tokens=True)]
    assert made == [3]
    assert together == [
        [
            list(sample.tokens)
            for sample in dy.generate(
                model,
                dy.Regex("(?s).{1,6}"),
                1,
                8,
                num_inference_steps=6,
                seed=i,
                guidance=guidance,
            )
        ]
        for i in range(3)
    ]


def test_one_wrong_request_does_not_spoil_its_group() -> None:
    asked: list[dict[str, Any]] = [{"regex": "the [a-z ]+."}, {"regex": "x{90}"}, {"choice": ["the cat."]}]
    lines = [Line(i, json.dumps({**SIZE, **request}).encode()) for i, request in enumerate(asked, 1)]
    one, two, three = answer_lines(shared_model(), lines)
    assert re.fullmatch("the [a-z ]+.", one["texts"][0])
    assert "no sequence of 16 tokens" in two["error"]
    assert three["texts"] == ["the cat."]


def test_a_length_of_its_own_does_not_depend_on_the_others() -> None:
    asked: list[dict[str, Any]] = [
        {"regex": "the [a-z ]+."},
        {"regex": "[a-z]{50}"},
        {"regex": "the [a-z ]+.", "seed": 1},
    ]
    lines = [
        Line(i, json.dumps({"steps": 4, "length": "auto", **request}).encode())
        for i, request in enumerate(asked, 1)
    ]
    together = list(answer_lines(shared_model(), lines, tokens=True))
    for row, request in zip(together, asked, strict=True):
        wanted, seed = dy.Regex(request["regex"]), request.get("seed", 0)
        (expected,) = dy.generate(shared_model(), wanted, 1, "auto", num_inference_steps=4, seed=seed)
        assert row["tokens"] == [list(expected.tokens)]
    assert len(together[0]["tokens"][0]) < len(together[1]["tokens"][0])


def test_what_cannot_fit_into_memory_is_foreseen() -> None:
    (row,) = answer_lines(shared_model(), [Line(1, b'{"regex": "a*", "length": 999999999999}')])
    assert re.search(r"a length of 999,999,999,999 tokens needs about [0-9,.]+ GB of memory", row["error"])


def test_a_killed_run_goes_on_wherever_it_was_cut(folder: Path, requests: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.jsonl"
    run_batch(requests, whole, str(folder))
    data = whole.read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == ord("\n")]
    calls: list[int] = []
    recorded = {row["line"]: row for row in rows(whole)}

    def replay(lines: Iterator[Line]) -> Iterator[Row]:
        for line in lines:
            calls.append(line.number)
            yield {name: value for name, value in recorded[line.number].items() if name != "model"}

    for cut in sorted({0, 1, 5, 9, *ends, *(end - 1 for end in ends), *(end + 20 for end in ends[:-1])}):
        part = tmp_path / "part.jsonl"
        part.write_bytes(data[:cut])
        calls.clear()
        summary = run_batch(requests, part, str(folder), answers=replay)
        assert part.read_bytes() == data
        assert summary.resumed == sum(end <= cut for end in ends)
        assert calls == list(range(summary.resumed + 1, 7))


def test_a_finished_file_needs_no_model(folder: Path, requests: Path, tmp_path: Path) -> None:
    run_batch(requests, tmp_path / "out.jsonl", str(folder))
    told: list[tuple[int, int | None]] = []
    summary = run_batch(
        requests,
        tmp_path / "out.jsonl",
        str(folder),
        answers=no_model,
        progress=lambda done, total: told.append((done, total)),
    )
    assert (summary.resumed, told) == (6, [(6, 6)])


def test_what_is_written_is_on_disk_before_the_next_request(folder: Path, requests: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    seen: list[int] = []

    def answers(lines: Iterator[Line]) -> Iterator[Row]:
        for line in lines:
            seen.append(len(rows(out)))
            if line.number == 4:
                raise KeyboardInterrupt
            yield {"line": line.number, "request": line.fingerprint, "texts": []}

    with pytest.raises(KeyboardInterrupt):
        run_batch(requests, out, str(folder), answers=answers)
    assert seen == [0, 1, 2, 3]
    assert [row["line"] for row in rows(out)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda text: text.replace("the dog [a-z", "the cat [a-z"),
            "line 1 of .* does not belong to line 1",
        ),
        (lambda text: "\n" + text, "line 1 of .* does not belong to line 2"),
        (lambda text: "".join(text.splitlines(True)[:3]), "has more results than there are requests"),
    ],
)
def test_results_of_other_requests_are_left_alone(
    folder: Path, requests: Path, tmp_path: Path, change: Any, message: str
) -> None:
    out = tmp_path / "out.jsonl"
    run_batch(requests, out, str(folder))
    before = out.read_bytes()
    requests.write_text(change(requests.read_text()))
    with pytest.raises(dy.InvalidArgument, match=message):
        run_batch(requests, out, str(folder), answers=no_model)
    assert out.read_bytes() == before


def test_results_of_another_model_are_left_alone(folder: Path, requests: Path, tmp_path: Path) -> None:
    run_batch(requests, tmp_path / "out.jsonl", str(folder))
    dy.fit_markov(TEXTS[:3], vocab_size=300).save_pretrained(tmp_path / "other")
    with pytest.raises(dy.InvalidArgument, match="of another model"):
        run_batch(requests, tmp_path / "out.jsonl", str(tmp_path / "other"), answers=no_model)


@pytest.mark.parametrize("text", ["my notes", "my notes\n", '{"my": "data"}\n', "[]\n", '{"line": 10'])
def test_a_file_that_is_not_ours_is_left_alone(folder: Path, requests: Path, tmp_path: Path, text: str) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text(text)
    with pytest.raises(dy.InvalidArgument, match="result of this command: name another file"):
        run_batch(requests, out, str(folder), answers=no_model)
    assert out.read_text() == text


def test_the_requests_are_never_written_over(folder: Path, requests: Path) -> None:
    with pytest.raises(dy.InvalidArgument, match="holds the requests"):
        run_batch(requests, requests, str(folder))


def test_two_runs_do_not_write_one_file(folder: Path, requests: Path, tmp_path: Path) -> None:
    pytest.importorskip("fcntl", reason="only POSIX systems have fcntl")
    with (
        opened_results(tmp_path / "out.jsonl", "m"),
        pytest.raises(dy.InvalidArgument, match="another run is writing"),
    ):
        run_batch(requests, tmp_path / "out.jsonl", str(folder), answers=no_model)


def test_files_that_cannot_be_opened_are_named(requests: Path, tmp_path: Path) -> None:
    with pytest.raises(dy.InvalidArgument, match=r"gone\.jsonl can't be read"):
        run_batch(tmp_path / "gone.jsonl", tmp_path / "out.jsonl")
    with pytest.raises(dy.InvalidArgument, match=r"out\.jsonl can't be written"):
        run_batch(requests, tmp_path / "no folder" / "out.jsonl")
    with pytest.raises(dy.InvalidArgument, match="batch_size must be at least 1"):
        run_batch(requests, tmp_path / "out.jsonl", batch_size=0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"regex": "a(b"}', "missing ), unterminated subpattern, at character 2"),
        (b'{"regex": "(a)\\\\1"}', "at character"),
        (b'{"json_schema": {"type": "nothing"}}', "nothing"),
        (b'{"contains": ["two words"]}', "is not one word"),
        (b'{"regex": "x{40}", "length": 8}', "no sequence of 8 tokens satisfies the constraint"),
        (b'{"regex": "x", "not_regex": ["x"], "length": 8}', "satisf"),
        (b'{"regexp": "a"}', "unknown key 'regexp': a request may have id, regex, json_schema"),
        (b'{"regex": "a", "guidance": "magic", "length": 8}', "guidance must be one of auto"),
        (b'{"regex": "a", "decode": "beam", "length": 8}', "decode must be"),
        (b'{"regex": "a", "method": "euler", "length": 8}', "method must be"),
        (b'{"n": 0}', "n must be a whole number, at least 1, but is 0"),
        (b'{"length": "long"}', 'length must be a whole number of tokens, at least 1, or "auto", but is "long"'),
        (b'{"steps": 2.5}', "steps must be a whole number"),
        (b'{"seed": -1}', "seed must be a whole number, at least 0"),
        (b'{"scale": NaN}', "scale must be a finite number, at least 0, but is NaN"),
        (b'{"score_temp": 0}', "score_temp must be a finite number above 0"),
        (b'{"choice": []}', "choice must be a list of texts, at least one, but is []"),
        (b'{"choice": ["a", 7]}', "choice must be a list of texts, at least one, but has 7"),
        (b'{"id": [1]}', "id must be a text or a whole number"),
        (b'"a"', 'a request is a JSON object, but this is "a"'),
        (b"{", "a request is a JSON object, but this is not JSON"),
        (b"\xff", "a request is a JSON object, but this is not JSON"),
        (b"[" * 5000, "a request is a JSON object, but this is not JSON"),
    ],
)
def test_a_wrong_line_is_an_error_of_that_line(line: bytes, message: str) -> None:
    good = b'{"choice": ["the cat saw the box."], "length": 16, "steps": 2}'
    model = shared_model()
    found = list(answer_lines(model, [Line(1, line), Line(2, good)]))
    assert message in found[0]["error"]
    assert "\n" not in found[0]["error"]
    assert found[1]["texts"] == ["the cat saw the box."]


_model: list[MarkovLM] = []


def shared_model() -> MarkovLM:
    if not _model:
        _model.append(dy.fit_markov(TEXTS, order=2, vocab_size=300))
    return _model[0]


def test_an_error_keeps_the_id_of_its_request() -> None:
    (row,) = answer_lines(shared_model(), [Line(1, b'{"id": "x", "regex": "("}')])
    assert row["id"] == "x"
    assert "texts" not in row


def test_running_out_of_memory_is_an_error_of_that_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_much(*_: object, **__: object) -> list[dy.Generated]:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes")

    monkeypatch.setattr("diffinity.batch.answers.generate", too_much)
    (row,) = answer_lines(shared_model(), [Line(1, b"{}")])
    assert row["error"].startswith("there is not enough memory for this request")


def test_a_fault_of_ours_is_not_taken_for_an_error_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: object, **__: object) -> list[dy.Generated]:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr("diffinity.batch.answers.generate", wrong)
    with pytest.raises(RuntimeError, match="shapes differ"):
        list(answer_lines(shared_model(), [Line(1, b"{}")]))


def test_a_long_message_stays_on_one_line() -> None:
    assert sentence(ConstraintTooLarge("dfa_states", 1, 2, "this\npattern")).startswith("this pattern needs")


def test_equal_constraints_are_compiled_once() -> None:
    one, two = (read_request(f'{{"json_schema": {{"type": "integer"}}, "seed": {i}}}') for i in (1, 2))
    assert one.constraint() is two.constraint()


def test_an_actor_gives_the_same_rows(folder: Path, requests: Path, tmp_path: Path) -> None:
    run_batch(requests, tmp_path / "out.jsonl", str(folder))
    lines = [Line(i, text.encode()) for i, text in enumerate(requests.read_text().splitlines(), 1)]
    batch = {"number": [line.number for line in lines], "text": [line.text for line in lines]}
    found = [json.loads(row) for row in Answerer(str(folder), 16, "cpu", False)(batch)["row"]]
    assert [row["texts"] for row in found] == [row["texts"] for row in rows(tmp_path / "out.jsonl")]


def test_without_ray_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(dy.InvalidArgument, match=r"not installed .*: pip install 'diffinity\[ray\]'"):
        ray_answers(None)


@pytest.mark.parametrize(("found", "gpu"), [({"CPU": 2.0}, False), ({"CPU": 64.0}, True), ({}, False)])
def test_more_actors_than_a_machine_can_run_are_refused(found: dict[str, float], gpu: bool) -> None:
    with pytest.raises(dy.InvalidArgument, match=r"3 actors need 3 .* and this machine has"):
        _check_resources(found, 3, gpu)
    _check_resources({"CPU": 3.0, "GPU": 3.0}, 3, gpu)

"""`generate`: every text satisfies its constraint, by judges other than our own automata."""

from __future__ import annotations

import json
import re

import pytest
from pydantic import BaseModel, Field

import diffinity as dy
from diffinity.limits import use_limits
from diffinity.models.markov import MarkovLM

TEXTS = [f"the {a} {v} the {t}." for a in ("cat", "dog") for v in ("saw", "took") for t in ("box", "cup")]
TEXTS += ['{"name": "box", "size": 12}', '{"name": "cup", "size": 7}']
LENGTH = 24


@pytest.fixture(scope="module")
def model() -> MarkovLM:
    return dy.fit_markov(TEXTS, order=2, vocab_size=300)


@pytest.mark.parametrize("guidance", ["auto", "gradient", "posterior", "path", "paper", "none"])
def test_a_regex_is_always_matched(model: MarkovLM, guidance: str) -> None:
    found = dy.generate(
        model,
        dy.Regex(r"[a-z ]*dog[a-z ]*\."),
        n=4,
        length=LENGTH,
        num_inference_steps=24,
        guidance=guidance,
    )
    assert len(found) == 4
    for sample in found:
        assert sample.satisfied
        assert re.fullmatch(r"[a-z ]*dog[a-z ]*\.", sample.text)


def test_a_schema_is_always_valid(model: MarkovLM) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 5}, "size": {"type": "integer", "maximum": 99}},
        "required": ["name", "size"],
    }
    jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="pip install 'diffinity[dev]'")
    for sample in dy.generate(model, dy.JsonSchema(schema), n=4, length=LENGTH, num_inference_steps=24):
        assert jsonschema_rs.is_valid(schema, json.loads(sample.text))


def test_boolean_combinations_hold(model: MarkovLM) -> None:
    both = dy.Regex(r"the [a-z ]+\.") & ~dy.Regex(r"(?s).*cat.*")
    for sample in dy.generate(model, both, n=6, length=LENGTH, num_inference_steps=24):
        assert re.fullmatch(r"the [a-z ]+\.", sample.text)
        assert "cat" not in sample.text


def test_one_constraint_for_each_text(model: MarkovLM) -> None:
    found = dy.generate(
        model,
        [dy.Regex("the cat.*"), dy.Text("the dog saw the cup."), ["x", "y"]],
        length=LENGTH,
        num_inference_steps=16,
    )
    assert found[0].text.startswith("the cat")
    assert found[1].text == "the dog saw the cup."
    assert found[2].text in ("x", "y")


def test_a_prefix_is_how_the_text_starts(model: MarkovLM) -> None:
    for sample in dy.generate(
        model, dy.Regex(".*\\."), n=3, length=LENGTH, num_inference_steps=16, prefix="the dog"
    ):
        assert sample.text.startswith("the dog")


def test_a_text_is_the_same_whatever_its_batch(model: MarkovLM) -> None:
    constraint = dy.Regex("the [a-z ]+.")
    options = {"length": LENGTH, "num_inference_steps": 24, "seed": 4}
    whole = dy.generate(model, constraint, n=6, **options)  # type: ignore[arg-type]
    for size in (1, 4):
        parts = dy.generate(model, constraint, n=6, batch_size=size, **options)  # type: ignore[arg-type]
        assert [sample.text for sample in parts] == [sample.text for sample in whole]
    assert [sample.seed for sample in whole] == [(4, i) for i in range(6)]


def test_acceptance_along_the_way_is_reported(model: MarkovLM) -> None:
    (sample,) = dy.generate(
        model, dy.Regex("the dog.*"), length=LENGTH, num_inference_steps=30, guidance="posterior"
    )
    assert len(sample.log_acceptance) == 30
    assert sample.log_acceptance[-1] > sample.log_acceptance[0]


def test_an_impossible_length_is_refused_before_the_first_step(model: MarkovLM) -> None:
    with pytest.raises(dy.InfeasibleConstraint, match="the shortest has"):
        dy.generate(model, dy.Regex("(?:the dog saw the cat. ){9}"), length=12, callback_on_step_end=_never)


def _never(*_: object) -> bool:
    raise AssertionError("a step was made")


def test_sampled_decoding_satisfies_too(model: MarkovLM) -> None:
    for sample in dy.generate(
        model, dy.Regex("the dog.*"), n=3, length=LENGTH, num_inference_steps=4, decode="sample"
    ):
        assert sample.satisfied
        assert sample.text.startswith("the dog")


def test_argmax_says_whether_it_matched(model: MarkovLM) -> None:
    found = dy.generate(
        model, dy.Regex("x{3}"), n=4, length=LENGTH, num_inference_steps=4, decode="argmax", guidance="none"
    )
    assert [sample.satisfied for sample in found] == [
        re.fullmatch("x{3}", sample.text) is not None for sample in found
    ]
    assert not all(sample.satisfied for sample in found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"guidance": "magic"}, "guidance must be one of auto, fast, best, mixed, gradient"),
        ({"decode": "beam"}, "decode must be"),
        ({"n": 0}, "n must be at least 1"),
        ({"framing": "loose"}, "framing must be one of"),
    ],
)
def test_bad_options_are_refused(model: MarkovLM, options: dict[str, object], message: str) -> None:
    with pytest.raises(dy.InvalidArgument, match=message):
        dy.generate(model, dy.Regex("a"), **{"length": 4, **options})  # type: ignore[arg-type]


def test_lists_and_n_must_agree(model: MarkovLM) -> None:
    with pytest.raises(dy.InvalidArgument, match="n is 3, but there are 2 constraints"):
        dy.generate(model, [dy.Regex("a"), dy.Regex("b")], n=3)


class Size(BaseModel):
    name: str = Field(max_length=5)
    size: int = Field(ge=0, le=99)


def test_a_pydantic_model_in_instances_out(model: MarkovLM) -> None:
    for asked in (Size, dy.JsonSchema(Size), dy.JsonSchema(Size) & ~dy.Regex(".*box.*")):
        (sample,) = dy.generate(model, asked, length=LENGTH, num_inference_steps=16)
        assert isinstance(sample.value, Size)
        assert sample.value.model_dump() == json.loads(sample.text)


def test_a_type_in_its_value_out(model: MarkovLM) -> None:
    (number,) = dy.generate(model, int, length=LENGTH, num_inference_steps=8)
    assert number.value == int(number.text)
    (plain,) = dy.generate(model, dy.Regex("the [a-z]+"), length=LENGTH, num_inference_steps=8)
    assert plain.value == plain.text


def test_what_does_not_match_has_no_value(model: MarkovLM) -> None:
    (sample,) = dy.generate(
        model, dy.Regex("x{3}"), length=LENGTH, num_inference_steps=4, decode="argmax", guidance="none"
    )
    assert not sample.satisfied
    assert sample.value is None


def test_auto_length_is_comfortable_for_the_longest_need(model: MarkovLM) -> None:
    long = dy.Text("the dog saw the cup. " * 6)
    short, other = dy.generate(model, [dy.Text("the dog."), long], length="auto", num_inference_steps=4)
    assert (
        len(short.tokens)
        == len(other.tokens)
        > len([token for token in other.tokens if token != model.eos_token_id])
    )
    assert other.text == long.text


def test_streamed_drafts_end_in_what_generate_returns(model: MarkovLM) -> None:
    options = {"n": 3, "length": LENGTH, "num_inference_steps": 12, "seed": 2}
    constraint = dy.Regex("the [a-z ]+.")
    seen = list(dy.stream(model, constraint, every=4, batch_size=2, **options))  # type: ignore[arg-type]
    drafts = [event for event in seen if isinstance(event, dy.Draft)]
    texts = [event for event in seen if isinstance(event, dy.Generated)]
    assert texts == dy.generate(model, constraint, **options)  # type: ignore[arg-type]
    assert [(draft.step, len(draft.texts)) for draft in drafts] == [
        (4, 2),
        (8, 2),
        (12, 2),
        (4, 1),
        (8, 1),
        (12, 1),
    ]
    assert all(draft.log_acceptance is not None for draft in drafts)


def test_explicit_seeds_give_the_same_texts_in_any_company(model: MarkovLM) -> None:
    constraint = dy.Regex("the [a-z ]+.")
    options = {"length": LENGTH, "num_inference_steps": 12, "decode": "sample"}
    three = dy.generate(model, constraint, n=3, seed=9, **options)  # type: ignore[arg-type]
    mixed = dy.generate(
        model,
        [dy.Text("the cat."), constraint, constraint],
        seeds=[(1, 1), (9, 2), (9, 0)],
        batch_size=2,
        **options,  # type: ignore[arg-type]
    )
    assert [sample.text for sample in mixed[1:]] == [three[2].text, three[0].text]


def test_chunks_keep_within_the_memory_limit_and_change_no_text(model: MarkovLM) -> None:
    constraint = dy.Regex("the [a-z ]+.")
    rows: list[int] = []

    def note(_step: int, state: dy.SamplerState) -> None:
        rows.append(state.z.shape[0])

    options = {"n": 4, "length": LENGTH, "num_inference_steps": 4, "callback_on_step_end": note}
    whole = dy.generate(model, constraint, **options)  # type: ignore[arg-type]
    assert set(rows) == {4}
    rows.clear()
    with use_limits(memory_bytes=500_000):
        parts = dy.generate(model, constraint, **options)  # type: ignore[arg-type]
    assert max(rows) < 4
    assert [sample.text for sample in parts] == [sample.text for sample in whole]


def test_a_text_is_the_same_whoever_leaves_its_batch() -> None:
    model = dy.fit_markov(["the cat saw the box.", "the dog took the cup.", "a cat ran."])
    write = dy.Generator(model, dy.Regex("[a-z ]+."), length=12, num_inference_steps=8)
    whole = write(4, seed=3)
    batch = write.stepwise([(3, i) for i in range(4)])
    for _ in range(3):
        batch.step()
    batch.keep([1, 3])
    while batch.step():
        pass
    rest = batch.finish()
    assert [text.tokens for text in rest] == [whole[1].tokens, whole[3].tokens]
    assert [text.log_acceptance for text in rest] == [whole[1].log_acceptance, whole[3].log_acceptance]
    logits = batch.last_logits()
    assert logits is not None
    assert logits.shape[:2] == (2, 12)

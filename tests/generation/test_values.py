"""Values that a type refuses after all, lengths that nobody named, and models that return no distribution."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import Any

import pytest
import torch
from pydantic import BaseModel, Field, field_validator

import diffinity as dy
from diffinity.constraints.python_types import OfType
from diffinity.errors import InfeasibleConstraint, InvalidArgument, ModelError

MODEL = dy.fit_markov(["the cat sat.", "the dog ran.", '{"n": 1}', '{"n": 2}'])
SMALL: dict[str, Any] = {"num_inference_steps": 6}


class Even(BaseModel):
    """A constraint can't say that a number is even; a validator can."""

    n: int = Field(ge=1, le=9)

    @field_validator("n")
    @classmethod
    def even(cls, n: int) -> int:
        if n % 2:
            raise ValueError("must be even")
        return n


class Broken(BaseModel):
    n: int = Field(ge=1, le=9)

    @field_validator("n")
    @classmethod
    def fails(cls, n: int) -> int:
        raise RuntimeError("the database is away")


def test_a_text_that_a_validator_refuses_is_kept_with_the_reason() -> None:
    texts = dy.generate(MODEL, Even, n=8, length=12, decode="sample", **SMALL)
    assert len(texts) == 8
    assert all(sample.satisfied for sample in texts)
    refused = [sample for sample in texts if sample.value is None]
    assert refused
    for sample in refused:
        assert sample.value_error == "n: Value error, must be even"
        assert "must be even" in repr(sample)
        assert sample.as_json()["value_error"] == sample.value_error
    for sample in texts:
        if sample not in refused:
            assert isinstance(sample.value, Even)
            assert sample.value_error is None
            assert "value_error" not in sample.as_json()


def test_a_validator_that_fails_in_any_way_loses_no_text() -> None:
    (sample,) = dy.generate(MODEL, Broken, length=12, **SMALL)
    assert (sample.value, sample.value_error) == (None, "RuntimeError: the database is away")


def test_a_decimal_that_is_refused_is_a_reason() -> None:
    class Price(BaseModel):
        price: Decimal = Field(max_digits=3, decimal_places=1)

    results = dy.generate(MODEL, Price, n=4, length="auto", decode="sample", seed=2, **SMALL)
    assert len(results) == 4
    for sample in results:
        assert (sample.value is None) == (sample.value_error is not None)


def test_retry_invalid_writes_refused_texts_anew() -> None:
    options = {"n": 8, "length": 12, "decode": "sample", **SMALL}
    once = dy.generate(MODEL, Even, **options)
    again = dy.generate(MODEL, Even, retry_invalid=40, **options)
    assert all(isinstance(sample.value, Even) for sample in again)
    for before, after in zip(once, again, strict=True):
        if before.value_error is None:
            assert after == before
        else:
            assert after.seed != before.seed
            repeated = dy.generate(MODEL, Even, seeds=[after.seed], **{**options, "n": 1})
            assert repeated[0].text == after.text
    streamed = [
        event
        for event in dy.stream(MODEL, Even, retry_invalid=40, every=99, **options)
        if not hasattr(event, "texts")
    ]
    assert streamed == again


def test_retries_end_and_keep_the_text() -> None:
    (sample,) = dy.generate(MODEL, Broken, length=12, retry_invalid=2, **SMALL)
    assert sample.value_error is not None
    assert sample.satisfied


@pytest.mark.parametrize("value", [-1, 1.5, True, "2"])
def test_retry_invalid_is_a_whole_number(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="retry_invalid must be a whole number, at least 0"):
        dy.GenerationSettings(retry_invalid=value)


@pytest.mark.parametrize("name", ["particles", "block_length", "num_inference_steps", "batch_size"])
def test_numbers_of_things_are_whole(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} must be a whole number"):
        dy.GenerationSettings.of(None, **{name: 2.5})


def test_a_type_beside_other_constraints_has_values() -> None:
    (sample,) = dy.generate(MODEL, OfType(Even) & dy.Regex(".*4.*"), length=12, **SMALL)
    assert sample.value == Even(n=4)


def test_a_constraint_that_needs_more_than_the_default_length_gets_it(caplog: pytest.LogCaptureFixture) -> None:
    assert MODEL.sampling_defaults.length == 64
    with caplog.at_level(logging.INFO, logger="diffinity"):
        (sample,) = dy.generate(MODEL, dy.Regex("z{100}"), num_inference_steps=2)
    assert sample.text == "z" * 100
    assert "does not fit the model's 64 tokens" in caplog.text
    assert dy.Generator(MODEL, dy.Regex("z{9}")).length == 64


def test_a_default_length_that_does_not_do_says_where_it_comes_from() -> None:
    far, near = dy.Regex("z{1500}"), dy.Regex("z{100}")
    for constraint in (far, [near, dy.Regex("a")]):
        with pytest.raises(InfeasibleConstraint, match=r"64 is the model's default length.*length=\"auto\""):
            dy.Generator(MODEL, constraint)
    with pytest.raises(InfeasibleConstraint) as asked:
        dy.Generator(MODEL, near, length=64)
    assert "default" not in str(asked.value)


def test_a_search_shows_the_text_around_the_match_and_no_end_token() -> None:
    options: dict[str, Any] = {"length": 24, "framing": "search", "num_inference_steps": 8, "decode": "sample"}
    for sample in dy.generate(MODEL, dy.Regex("dog|cat"), n=12, **options):
        assert "<|endoftext|>" not in sample.text
        assert "dog" in sample.text or "cat" in sample.text
    for draft in dy.stream(MODEL, dy.Regex("dog"), **options):
        assert "<|endoftext|>" not in (draft.text if isinstance(draft, dy.Generated) else draft.texts[0])


class Sick(type(MODEL)):  # type: ignore[misc]
    """A model that returns what no distribution can be made of, from some call on."""

    def __init__(self, bad: float, healthy: int) -> None:
        self.__dict__.update(MODEL.__dict__)
        self.bad, self.left = bad, healthy

    def denoise(self, z: torch.Tensor, noise_level: torch.Tensor, x_selfcond: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = super().denoise(z, noise_level, x_selfcond)
        self.left -= 1
        return logits if self.left >= 0 else torch.full_like(logits, self.bad)


@pytest.mark.parametrize("guidance", ["none", "posterior", "path", "auto"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("healthy", [0, 3, 6])
def test_a_model_without_distributions_is_named(guidance: str, bad: float, healthy: int) -> None:
    with pytest.raises(ModelError, match=r"Sick returned logits that are not finite .* at position 0 of text 0"):
        dy.generate(Sick(bad, healthy), dy.Regex("the [a-z ]+."), length=12, guidance=guidance, **SMALL)


def test_a_model_of_tokens_without_distributions_is_named() -> None:
    model: Any = MODEL.tokens("mask")
    kind = type(model)
    sick = type(
        "SickTokens", (kind,), {"logits": lambda self, tokens, *_: kind.logits(self, tokens, *_) * torch.nan}
    )
    model.__class__ = sick
    with pytest.raises(ModelError, match="SickTokens returned logits that are not finite"):
        dy.generate(model, dy.Regex("the [a-z ]+."), length=12, **SMALL)


def test_logits_of_another_shape_are_named() -> None:
    class Short(type(MODEL)):  # type: ignore[misc]
        def __init__(self) -> None:
            self.__dict__.update(MODEL.__dict__)

        def denoise(self, *arguments: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = super().denoise(*arguments)
            return logits[:, :, :-1]

    with pytest.raises(ModelError, match="Short returned logits of shape"):
        dy.generate(Short(), dy.Regex("the [a-z ]+."), length=12, **SMALL)


def test_progress_is_a_bar_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    dy.generate(MODEL, "the cat sat.", length=12, progress=True, **SMALL)
    shown = capsys.readouterr()
    assert "6/6 steps" in shown.err
    assert shown.out == ""
    assert len(list(dy.stream(MODEL, "the cat sat.", length=12, progress=True, **SMALL))) == 7
    assert "6/6 steps" in capsys.readouterr().err


def test_a_deadline_is_of_the_whole_call() -> None:
    options: dict[str, Any] = {"n": 4, "length": 12, "batch_size": 1, "num_inference_steps": 10_000_000}
    results = dy.generate(MODEL, dy.Regex("the [a-z ]+."), deadline=0.2, **options)
    assert [sample.finish_reason for sample in results] == ["deadline"] * 4
    assert all(sample.satisfied for sample in results)
    assert [sample.log_acceptance for sample in results[1:]] == [()] * 3  # nothing was left for them

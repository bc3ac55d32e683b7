"""Scorers, against a walk over the tokens one at a time."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from diffinity.bench.scorers import AutoregressiveScorer, CausalScorer, load_scorer
from diffinity.errors import CheckpointError, InvalidArgument
from diffinity.models.transformer import AutoregressiveLM
from tests.models.test_transformer import autoregressive


def one_at_a_time(model: AutoregressiveLM, ids: list[int]) -> float:
    """Nats of the tokens, each from a separate pass over those before it."""
    nats, before = 0.0, [model.eos_token_id]
    for token in ids:
        logits = model.network(torch.tensor([before]))[0, -1].double()
        nats -= float(logits[token] - torch.logsumexp(logits, 0))
        before.append(token)
    return nats


def test_a_score_is_the_sum_over_tokens_and_the_end_token() -> None:
    model = autoregressive()
    texts = [model.tokenizer.decode(ids) for ids in ([1, 2], [3], [4, 5, 6, 1, 2, 3], [2, 2, 1])] + [""]
    scores = AutoregressiveScorer(model, batch_size=2).score(texts)
    for text, score in zip(texts, scores, strict=True):
        ids = [*model.tokenizer.encode(text).ids, model.eos_token_id]
        assert score.tokens == len(ids)
        assert score.nats == pytest.approx(one_at_a_time(model, ids), abs=1e-4)
    assert scores[-1].tokens == 1


def test_an_autoregressive_model_of_a_folder(tmp_path: Path) -> None:
    model = autoregressive()
    model.save_pretrained(tmp_path / "mine")
    scorer = load_scorer(tmp_path / "mine")
    text = model.tokenizer.decode([1, 2, 3])
    assert scorer.name == "mine"
    assert scorer.score([text])[0].nats == pytest.approx(AutoregressiveScorer(model).score([text])[0].nats)


def test_a_missing_model_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no autoregressive model at"):
        load_scorer(tmp_path / "none")


# ---- transformers, played by a table of next-character chances

LETTERS = "<ab"  # id 0 begins and ends a text
CHANCES = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.1, 0.8, 0.1]])


class Letters:
    bos_token_id: int | None = None
    eos_token_id: int | None = 0

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [LETTERS.index(letter) for letter in text]


class Table(torch.nn.Module):
    config = SimpleNamespace(max_position_embeddings=4)

    def forward(self, ids: Tensor) -> Any:
        return SimpleNamespace(logits=CHANCES[ids].log())


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    def tokenizer(name: str) -> Letters:
        if name != "letters":
            raise OSError(f"{name} is not there\nand a long explanation")
        return Letters()

    made = SimpleNamespace(
        AutoTokenizer=SimpleNamespace(from_pretrained=tokenizer),
        AutoModelForCausalLM=SimpleNamespace(from_pretrained=lambda name: Table()),
    )
    monkeypatch.setitem(sys.modules, "transformers", made)
    return made


def test_a_causal_language_model_by_name(transformers: SimpleNamespace) -> None:
    scores = load_scorer("hf:letters").score(["ab", "a", "bbb"])
    chances = [0.5 * 0.3 * 0.1, 0.5 * 0.6, 0.3 * 0.1 * 0.1 * 0.1]
    assert [score.tokens for score in scores] == [3, 2, 4]
    assert [score.nats for score in scores] == pytest.approx([-math.log(p) for p in chances])


def test_a_text_beyond_the_model_s_length_is_refused(transformers: SimpleNamespace) -> None:
    with pytest.raises(InvalidArgument, match="5 tokens is longer than hf:letters reads"):
        CausalScorer("hf:letters").score(["abab"])


def test_an_unknown_model_is_one_sentence(transformers: SimpleNamespace) -> None:
    with pytest.raises(CheckpointError, match=r"'nobody' could not be loaded .*: nobody is not there$"):
        CausalScorer("hf:nobody")


def test_without_transformers_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InvalidArgument, match="pip install transformers"):
        CausalScorer("hf:gpt2")

"""A sample is the same, bit for bit, whatever batch it is in: guidance amplifies the smallest difference."""

from __future__ import annotations

import pytest
import torch

import diffinity as dy
from diffinity.models.plaid_lm import PlaidLM, PlaidModules
from diffinity.models.tokenization import train_bpe


@pytest.fixture(scope="module")
def model() -> PlaidLM:
    torch.manual_seed(0)
    words = train_bpe(["the old river runs by the mill.", "a dog saw the river."], 300)
    modules = PlaidModules(dy.PlaidConfig(words.get_vocab_size(), 48, 3, 3, 24))
    for name, parameter in modules.named_parameters():
        if "schedule" not in name and "bounds" not in name and parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    return PlaidLM(modules, words, words.token_to_id("<|endoftext|>"))


@pytest.mark.parametrize("guidance", ["gradient", "auto"])
def test_texts_do_not_depend_on_the_batch(model: PlaidLM, guidance: str) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with more, one sample alone is divided over them in another way
    try:
        options = {"n": 5, "length": 20, "num_inference_steps": 12, "guidance": guidance, "decode": "argmax"}
        whole = dy.generate(model, dy.Regex("the [a-z ]+"), batch_size=5, **options)  # type: ignore[arg-type]
        for size in (1, 2):
            parts = dy.generate(model, dy.Regex("the [a-z ]+"), batch_size=size, **options)  # type: ignore[arg-type]
            assert [one.tokens for one in parts] == [one.tokens for one in whole]
            assert [one.log_prob for one in parts] == [one.log_prob for one in whole]
    finally:
        torch.set_num_threads(threads)

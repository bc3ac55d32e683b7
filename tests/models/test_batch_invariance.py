"""A sample is the same, bit for bit, whatever batch it is in: guidance amplifies the smallest difference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import diffinity as dy
from diffinity.models.plaid import PlaidConfig
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
            assert [sample.tokens for sample in parts] == [sample.tokens for sample in whole]
            assert [sample.log_p_text for sample in parts] == [sample.log_p_text for sample in whole]
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_sample_and_its_gradient_are_the_same_in_every_batch(threads: int) -> None:
    torch.manual_seed(0)
    network = PlaidModules(PlaidConfig(2048, 64, 2, 2, 16)).eval().requires_grad_(False)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    z, noise_level, zeros = torch.randn(3, 48, 16), torch.full((3,), -1.0), torch.zeros(3, 48, 16)
    weight = torch.randn(1, 48, 2048)

    def run(batch: int) -> tuple[Tensor, Tensor]:
        at = z[:batch].clone().requires_grad_()
        logits = network.model(at, noise_level[:batch], network.embedding_matrix(), zeros[:batch])
        (gradient,) = torch.autograd.grad(logits, at, weight.expand(batch, -1, -1).contiguous())
        return logits.detach(), gradient

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        whole = run(3)
        for batch in (1, 2):
            for alone, among in zip(run(batch), whole, strict=True):
                assert torch.equal(alone, among[:batch])
    finally:
        torch.set_num_threads(before)

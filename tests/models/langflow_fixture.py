"""The fixture checkpoint of LangFlow, what its own code computes from it, and small models of our own."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from diffinity.models.langflow import LangFlowConfig, LangFlowModules
from diffinity.models.langflow_lm import LangFlowLM
from diffinity.models.tokenization import END_OF_TEXT, train_bpe

TEXTS = ["the old river runs by the mill.", "a dog saw the river.", '{"id": 1, "name": "a dog"}']


def expected(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "expected.safetensors")


def largest_error(found: Tensor, wanted: Tensor) -> float:
    """max |found − wanted| / max |wanted|."""
    return float((found.double() - wanted.double()).abs().max() / wanted.double().abs().max())


def random_modules(config: LangFlowConfig, seed: int = 0, std: float = 0.2) -> LangFlowModules:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        modules = LangFlowModules(config)
        for name, parameter in modules.named_parameters():
            if parameter.ndim == 2 and "vocab_embed" not in name:
                nn.init.normal_(parameter, std=std)
    return modules


def small_langflow(tokenizer: Tokenizer | None = None, **shape: int) -> LangFlowLM:
    """Random weights over a byte-level tokenizer; texts stand between two end tokens, as with gpt2's."""
    tokenizer = tokenizer or train_bpe(TEXTS, 300)
    sizes = {"hidden_size": 32, "cond_dim": 32, "n_blocks": 2, "n_heads": 2} | shape
    config = LangFlowConfig(vocab_size=tokenizer.get_vocab_size(), **sizes)  # type: ignore[arg-type]
    end = tokenizer.token_to_id(END_OF_TEXT)
    return LangFlowLM(random_modules(config), tokenizer, end, start_token_id=end)

"""The fixture checkpoint as a model; its network has 512 tokens, PLAID's tokenizer 32,768, so it gets its own."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models

from diffinity import PlaidLM, import_plaid


def small_tokenizer(vocab_size: int) -> Tokenizer:
    return Tokenizer(models.WordLevel({f"w{i}": i for i in range(vocab_size)}, unk_token="w0"))


def import_fixture(folder: Path, scratch: Path) -> PlaidLM:
    settings = json.loads((folder / "settings.json").read_text())
    tokenizer = scratch / "tokenizer.json"
    small_tokenizer(settings["vocab_size"]).save(str(tokenizer))
    return import_plaid(folder, tokenizer)


def expected(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "expected.safetensors")


def relative_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """‖found − wanted‖ / ‖wanted‖."""
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())

"""Reads LangFlow's published checkpoints: `model.safetensors` and `config.json`, with a separate tokenizer.

The shape and the noise schedule are read from the tensors, because the config has the values that training started
with. Only the schedule's cutoff and three switches are taken from the config. The Python files that the config
names in `auto_map` are not downloaded and never run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from diffinity.errors import CheckpointError
from diffinity.models.hub import CONFIG, TOKENIZER, WEIGHTS, fetch_tokenizer, verify_cached
from diffinity.models.langflow import LangFlowConfig, LangFlowModules
from diffinity.models.langflow_lm import LANGFLOW_DEFAULTS, LangFlowLM, filled
from diffinity.models.pretrained import is_published_langflow, read_config, read_tensors, read_tokenizer, shapes_of
from diffinity.models.protocol import SamplingDefaults

# The tokenizers that the model cards name, by vocabulary size; the repositories contain none.
TOKENIZERS = {50257: "openai-community/gpt2", 30522: "google-bert/bert-base-uncased"}

# The token before and after a text in the training windows: with BERT's tokenizer it is [CLS] on both sides.
BOUNDARIES = ("[CLS]", "<|endoftext|>")

SWITCHES = {  # from the names in LangFlow's config to ours
    "use_normalized_embedding": "normalise_embedding",
    "self_conditioning": "self_conditioning",
    "use_bias": "skip_logits",
}

Parts = tuple[LangFlowModules, Tokenizer, int | None, SamplingDefaults, int | None]


def import_langflow(
    weights: str | Path, tokenizer: str | Path | None = None, *, verify: bool = True
) -> LangFlowLM:
    """The model in a folder with LangFlow's `config.json` and `model.safetensors`.

    The tokenizer is `tokenizer` (a file or a hub id), or the folder's tokenizer.json, or the tokenizer that the
    model cards name for a vocabulary of that size, from the hub.

    >>> import_langflow("no such folder")
    Traceback (most recent call last):
    diffinity.errors.CheckpointError: no such folder: there is no config.json; a model folder has \
config.json, model.safetensors and tokenizer.json
    """
    folder = Path(weights)
    config = read_config(folder)
    if not is_published_langflow(config):
        raise CheckpointError(f"{folder / CONFIG} does not say model_type LangFlow: it is not LangFlow's config")
    return LangFlowLM(*published_parts(folder, config, tokenizer, verify=verify))


def published_parts(
    folder: Path, config: dict[str, Any], tokenizer: str | Path | None = None, *, verify: bool = True
) -> Parts:
    """The parts of a `LangFlowLM` from a folder in LangFlow's layout; `verify` checks the files from the hub."""
    if verify:
        for name in (CONFIG, WEIGHTS):
            verify_cached(folder / name)
    tensors = read_tensors(folder / WEIGHTS)
    try:
        shape = infer_config(tensors, config)
        modules = filled(shape, tensors)
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from None
    tokenizer_file = _tokenizer_file(folder, shape.vocab_size, tokenizer)
    if verify:
        verify_cached(tokenizer_file)
    backend = read_tokenizer(tokenizer_file)
    boundary = _boundary(backend)
    return modules, backend, boundary, _defaults(config), boundary


def infer_config(tensors: Mapping[str, Tensor], config: dict[str, Any]) -> LangFlowConfig:
    """The network's shape from the shapes of its tensors, the rest from LangFlow's config."""
    shapes = shapes_of(tensors)
    try:
        vocab_size, width = shapes["backbone.vocab_embed.embedding"]
        cond_dim, _ = shapes["backbone.sigma_map.mlp.0.weight"]
        (half_head,) = shapes["backbone.rotary_emb.inv_freq"]
    except KeyError as error:
        raise CheckpointError(f"these are not LangFlow's weights: {error} is missing") from None
    except ValueError as error:
        raise CheckpointError(f"these are not LangFlow's weights: a tensor has the wrong rank ({error})") from None
    _check_rotary(tensors["backbone.rotary_emb.inv_freq"])
    blocks = {name.split(".")[2] for name in tensors if name.startswith("backbone.blocks.")}
    if config.get("n_blocks", len(blocks)) != len(blocks):  # otherwise a missing block would not be noticed
        raise CheckpointError(f"{CONFIG} says n_blocks {config['n_blocks']!r}, {WEIGHTS} has {len(blocks)}")
    cutoff = config.get("gumbel_cutoff")
    if not isinstance(cutoff, int | float):
        raise CheckpointError(f"{CONFIG}: gumbel_cutoff must be a number, but is {cutoff!r}; no tensor has it")
    switches = {ours: config.get(theirs, True) for theirs, ours in SWITCHES.items()}
    n_heads = max(1, width // max(1, 2 * half_head))
    try:
        return LangFlowConfig(vocab_size, width, cond_dim, len(blocks), n_heads, float(cutoff), **switches)
    except ValueError as error:
        raise CheckpointError(f"these are not LangFlow's weights: {error}") from None


def _check_rotary(frequencies: Tensor) -> None:
    half = max(1, len(frequencies))
    expected = torch.exp(-math.log(10000.0) * torch.arange(half, dtype=torch.float64) / half)
    if frequencies.shape != expected.shape or not torch.allclose(frequencies.double(), expected, rtol=1e-4):
        raise CheckpointError("backbone.rotary_emb.inv_freq does not hold the rotary frequencies of base 10000")


def _tokenizer_file(folder: Path, vocab_size: int, source: str | Path | None) -> Path:
    if source is not None:
        return Path(source) if Path(source).is_file() else fetch_tokenizer(str(source))
    if (folder / TOKENIZER).is_file():
        return folder / TOKENIZER
    if vocab_size not in TOKENIZERS:
        known_sizes = " and ".join(f"{size:,} ({name})" for size, name in TOKENIZERS.items())
        raise CheckpointError(
            f"{folder} has no {TOKENIZER}, and no known tokenizer has {vocab_size:,} tokens (known: "
            f"{known_sizes}): put the model's {TOKENIZER} into the folder, or give one with tokenizer=…"
        )
    return fetch_tokenizer(TOKENIZERS[vocab_size])


def _boundary(tokenizer: Tokenizer) -> int | None:
    """The token before and after a text."""
    ids = (tokenizer.token_to_id(name) for name in BOUNDARIES)
    return next((token for token in ids if token is not None), None)


def _defaults(config: dict[str, Any]) -> SamplingDefaults:
    trained_length = config.get("model_length")
    if isinstance(trained_length, int) and 0 < trained_length < LANGFLOW_DEFAULTS.length:
        return replace(LANGFLOW_DEFAULTS, length=trained_length)
    return LANGFLOW_DEFAULTS

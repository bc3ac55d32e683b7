"""Reads PLAID's published checkpoints, four pickled state dictionaries. No other module reads pickles."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import Tensor

from diffinity.errors import CheckpointError
from diffinity.models.plaid import PlaidConfig
from diffinity.models.plaid_lm import PlaidLM, PlaidModules
from diffinity.models.pretrained import load_strictly, read_tokenizer
from diffinity.models.protocol import SamplingDefaults

PARTS = ("model", "embedding_matrix", "noise_schedule", "gamma_bounds")

# The defaults of PLAID's sample.py, except its 4,096 steps.
PLAID_DEFAULTS = SamplingDefaults(num_inference_steps=256, length=256, score_temp=0.9)


def import_plaid(weights: str | Path, tokenizer: str | Path) -> PlaidLM:
    """The model in a folder of PLAID's four files (`model.pt`, `embedding_matrix.pt`, …), with its tokenizer.

    The shape is read from the tensors. Files are unpickled with `weights_only=True`: a file that contains code is
    refused, as is a file that is truncated or does not fit the others.

    >>> import_plaid("no such folder", "tokenizer.json")
    Traceback (most recent call last):
    diffinity.errors.CheckpointError: no such folder: model.pt is missing; PLAID's weights are four files: \
model.pt, embedding_matrix.pt, noise_schedule.pt, gamma_bounds.pt
    """
    folder = Path(weights)
    states = {part: _read_part(folder, part) for part in PARTS}
    config = infer_config(states)
    with torch.device("meta"):
        modules = PlaidModules(config)
    load_strictly(modules, {f"{part}.{name}": value for part in PARTS for name, value in states[part].items()})
    backend = read_tokenizer(Path(tokenizer))
    special = [token for token, added in backend.get_added_tokens_decoder().items() if added.special]
    return PlaidLM(modules, backend, special[0] if len(special) == 1 else None, PLAID_DEFAULTS)


def infer_config(states: dict[str, dict[str, Tensor]]) -> PlaidConfig:
    """The network's shape, from the shapes of its tensors."""
    model, embedding = states["model"], states["embedding_matrix"]
    try:
        dim, embed_dim = model["input_linear.weight"].shape
        vocab_size, table_dim = embedding["matrix"].shape
        half_head = model["rotary_emb.inv_freq"].shape[0]
    except KeyError as error:
        raise CheckpointError(f"these are not PLAID's weights: {error} is missing") from None
    except ValueError as error:
        raise CheckpointError(f"these are not PLAID's weights: a matrix has the wrong rank ({error})") from None
    if table_dim != embed_dim:
        raise CheckpointError(
            f"model.pt takes embeddings of {embed_dim} numbers, embedding_matrix.pt has {table_dim}: "
            "the files come from different models"
        )
    blocks = {name.split(".")[1] for name in model if name.startswith("blocks.")}
    n_heads = max(1, dim // (2 * half_head))
    expected = 1.0 / 10000.0 ** (torch.arange(half_head, dtype=torch.float64) / half_head)
    if not torch.allclose(model["rotary_emb.inv_freq"].double(), expected, rtol=1e-4):
        raise CheckpointError("model.pt: rotary_emb.inv_freq does not hold the rotary frequencies of base 10000")
    try:
        return PlaidConfig(vocab_size, dim, len(blocks), n_heads, embed_dim)
    except ValueError as error:
        raise CheckpointError(f"these are not PLAID's weights: {error}") from None


def _read_part(folder: Path, part: str) -> dict[str, Tensor]:
    path = folder / f"{part}.pt"
    if not path.is_file():
        names = ", ".join(f"{name}.pt" for name in PARTS)
        raise CheckpointError(f"{folder}: {path.name} is missing; PLAID's weights are four files: {names}")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError:
        raise CheckpointError(
            f"{path} holds something other than tensors (a pickle can run code when it is read): refused"
        ) from None
    except (RuntimeError, ValueError, EOFError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path} is truncated or not a PyTorch file: {reason}") from None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise CheckpointError(f"{path} is not a dictionary of tensors: refused")
    return dict(state)

"""What guidance and sampling need of a continuous diffusion language model, and nothing more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from tokenizers import Tokenizer
from torch import Tensor


@dataclass(frozen=True)
class SamplingDefaults:
    """How a model likes to be sampled when the caller does not say; stored in its config.

    >>> SamplingDefaults(num_inference_steps=128).score_temp
    0.9
    """

    num_inference_steps: int = 256
    length: int = 64
    score_temp: float = 0.9


@runtime_checkable
class DiffusionLM(Protocol):
    """A denoiser of token embeddings. Subclass it (or match it) to make any such model usable here.

    The contract: `z = α·E[x] + σ·ε` with α² = sigmoid(−γ), σ² = sigmoid(γ), and `denoise` returns the
    logits of p(token at position k | z) for every k.
    """

    eos_token_id: int | None = None
    start_token_id: int | None = None  # stands before every text, where the model was trained so
    sampling_defaults: SamplingDefaults = SamplingDefaults()

    @property
    def embedding(self) -> Tensor:
        """The embedding of every token, (V, d), in the model's dtype."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """From token ids to text and back."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """The type in which `denoise` takes z and returns logits."""
        ...

    def gamma(self, t: Tensor) -> Tensor:
        """The noise level at times t (n,) in [0, 1], increasing, as float64 (n,)."""
        ...

    def denoise(self, z: Tensor, gamma: Tensor, x_selfcond: Tensor) -> Tensor:
        """Logits (B, L, V) for z (B, L, d), gamma (B,) and the previous estimate x_selfcond (B, L, d)."""
        ...


def text_of(model: DiffusionLM, ids: list[int]) -> str:
    """The text that token ids spell: what stands before the first end token, without the start token."""
    ids = without_start(model, ids)
    if model.eos_token_id is not None and model.eos_token_id in ids:
        ids = ids[: ids.index(model.eos_token_id)]
    text: str = model.tokenizer.decode(ids, skip_special_tokens=False)
    return text


def without_start(model: DiffusionLM, ids: list[int]) -> list[int]:
    """Token ids without the model's start token, if they begin with it."""
    return ids[1:] if model.start_token_id is not None and ids[:1] == [model.start_token_id] else ids

"""The common part of models with a network: tokenizer, normalised embeddings, device, and consistency checks."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, Self, TypeVar

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from diffinity.errors import CheckpointError
from diffinity.models.plaid import store_transposed
from diffinity.models.pretrained import PretrainedLM
from diffinity.models.protocol import DiffusionLM, SamplingDefaults

Modules = TypeVar("Modules", bound=nn.Module)


class NetworkLM(PretrainedLM, DiffusionLM, Generic[Modules]):
    """A `DiffusionLM` made of torch modules, for sampling: its parameters do not require gradients."""

    def __init__(
        self,
        modules: Modules,
        tokenizer: Tokenizer,
        eos_token_id: int | None = None,
        sampling_defaults: SamplingDefaults | None = None,
    ) -> None:
        self.modules = modules.eval().requires_grad_(False)
        store_transposed(self._blocks)
        self._tokenizer = tokenizer
        self.eos_token_id = eos_token_id
        self.sampling_defaults = sampling_defaults or SamplingDefaults()
        self._normalised: tuple[tuple[int, int, torch.dtype], Tensor] | None = None
        vocab_size = self._stored_embedding.shape[0]
        if tokenizer.get_vocab_size() != vocab_size:
            raise CheckpointError(
                f"the tokenizer has {tokenizer.get_vocab_size()} tokens, the network {vocab_size}: "
                "they do not belong together"
            )

    @property
    @abstractmethod
    def _stored_embedding(self) -> Tensor:
        """The stored embeddings, (V, d)."""

    @abstractmethod
    def _normalise_embedding(self) -> Tensor:
        """The embeddings in the form that the model uses, (V, d)."""

    @property
    @abstractmethod
    def _blocks(self) -> nn.Module:
        """The part of the network that may run in bfloat16."""

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    @property
    def embedding(self) -> Tensor:
        """(V, d), normalised once and cached until the parameters change."""
        matrix = self._stored_embedding
        version = (matrix.data_ptr(), matrix._version, matrix.dtype)
        if self._normalised is None or self._normalised[0] != version:
            with torch.inference_mode(False):  # otherwise the cached tensor could not be used with gradients
                self._normalised = version, self._normalise_embedding()
        return self._normalised[1]

    @property
    def device(self) -> torch.device:
        return self._stored_embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    def to(self, device: str | torch.device, *, block_dtype: torch.dtype | None = None) -> Self:
        """Move to `device`; `block_dtype=torch.bfloat16` runs the blocks as the models' authors do on a GPU."""
        if block_dtype not in (None, torch.float32, torch.bfloat16):
            raise CheckpointError(f"block_dtype must be float32 or bfloat16, but is {block_dtype}")
        self.modules.to(device)
        if block_dtype is not None:
            self._blocks.to(block_dtype)
        return self

    def tensors(self) -> dict[str, Tensor]:
        return self.modules.state_dict()

"""A PLAID model, whole: network, embeddings, noise schedule and tokenizer as one `DiffusionLM`."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from diffinity.errors import CheckpointError
from diffinity.models.plaid import Embedding, PlaidConfig, PlaidNetwork
from diffinity.models.pretrained import PretrainedLM, load_strictly, unfilled
from diffinity.models.protocol import DiffusionLM, SamplingDefaults
from diffinity.models.schedule import GammaBounds, NoiseSchedule


class PlaidModules(nn.Module):
    """The four things that PLAID learns, under the names of its checkpoint files."""

    def __init__(self, config: PlaidConfig) -> None:
        super().__init__()
        self.model = PlaidNetwork(config)
        self.embedding_matrix = Embedding(config.vocab_size, config.embed_dim)
        self.noise_schedule = NoiseSchedule()
        self.gamma_bounds = GammaBounds()


class PlaidLM(PretrainedLM, DiffusionLM):
    """PLAID as a `DiffusionLM`, for sampling: its parameters do not require gradients.

    >>> from tokenizers import Tokenizer, models
    >>> letters = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    >>> lm = PlaidLM.create(PlaidConfig(vocab_size=2, dim=8, n_blocks=1, n_heads=2, embed_dim=4), letters)
    >>> lm.denoise(torch.zeros(1, 3, 4), torch.zeros(1), torch.zeros(1, 3, 4)).shape
    torch.Size([1, 3, 2])
    """

    kind: ClassVar[str] = "plaid"

    def __init__(
        self,
        modules: PlaidModules,
        tokenizer: Tokenizer,
        eos_token_id: int | None = None,
        sampling_defaults: SamplingDefaults | None = None,
    ) -> None:
        self.modules = modules.eval().requires_grad_(False)
        self._tokenizer = tokenizer
        self.eos_token_id = eos_token_id
        self.sampling_defaults = sampling_defaults or SamplingDefaults()
        self._normalised: tuple[tuple[int, int, torch.dtype], Tensor] | None = None
        self.half_storage = False  # save the network and embeddings as float16; the schedule stays float32
        vocab_size = modules.model.config.vocab_size
        if tokenizer.get_vocab_size() != vocab_size:
            raise CheckpointError(
                f"the tokenizer has {tokenizer.get_vocab_size()} tokens, the network {vocab_size}: "
                "they do not belong together"
            )

    @classmethod
    def create(cls, config: PlaidConfig, tokenizer: Tokenizer, *, eos_token_id: int | None = None) -> Self:
        """A model with random weights, as training begins with."""
        return cls(PlaidModules(config), tokenizer, eos_token_id)

    @property
    def config(self) -> PlaidConfig:
        return self.modules.model.config

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    @property
    def embedding(self) -> Tensor:
        """(V, d_e), normalised once for as long as the parameters stay as they are."""
        matrix = self.modules.embedding_matrix.matrix
        at = (matrix.data_ptr(), matrix._version, matrix.dtype)
        if self._normalised is None or self._normalised[0] != at:
            with torch.inference_mode(False):  # else what is kept could not be used where there are gradients
                self._normalised = at, self.modules.embedding_matrix()
        return self._normalised[1]

    @property
    def device(self) -> torch.device:
        return self.modules.embedding_matrix.matrix.device

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    def to(self, device: str | torch.device, *, block_dtype: torch.dtype | None = None) -> Self:
        """Move to `device`; `block_dtype=torch.bfloat16` runs the blocks as PLAID does on a GPU."""
        if block_dtype not in (None, torch.float32, torch.bfloat16):
            raise CheckpointError(f"block_dtype must be float32 or bfloat16, but is {block_dtype}")
        self.modules.to(device)
        if block_dtype is not None:
            self.modules.model.blocks.to(block_dtype)
        return self

    def gamma(self, t: Tensor) -> Tensor:
        low, high = self.modules.gamma_bounds()
        return low + (high - low) * self.modules.noise_schedule(t)

    def denoise(self, z: Tensor, gamma: Tensor, x_selfcond: Tensor) -> Tensor:
        logits: Tensor = self.modules.model(z, gamma, self.embedding, x_selfcond)
        return logits

    def config_fields(self) -> dict[str, Any]:
        return dataclasses.asdict(self.config)

    def tensors(self) -> dict[str, Tensor]:
        state = self.modules.state_dict()
        if self.half_storage:
            half = ("model.", "embedding_matrix.")
            state = {name: value.half() if name.startswith(half) else value for name, value in state.items()}
        return state

    @classmethod
    def from_parts(
        cls,
        fields: dict[str, Any],
        tensors: dict[str, Tensor],
        tokenizer: Tokenizer,
        eos_token_id: int | None,
        sampling_defaults: SamplingDefaults,
    ) -> Self:
        try:
            config = PlaidConfig(**fields)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"the config does not describe a PLAID network: {error}") from None
        modules = unfilled(lambda: PlaidModules(config), config.about_parameters)
        load_strictly(modules, tensors)
        return cls(modules, tokenizer, eos_token_id, sampling_defaults)

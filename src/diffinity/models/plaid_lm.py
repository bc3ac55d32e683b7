"""A complete PLAID model: network, embeddings, noise schedule and tokenizer as a `DiffusionLM`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from diffinity.errors import CheckpointError
from diffinity.models.network_lm import NetworkLM
from diffinity.models.plaid import Embedding, PlaidConfig, PlaidNetwork
from diffinity.models.pretrained import check_parameter_count, load_strictly, unfilled
from diffinity.models.protocol import SamplingDefaults
from diffinity.models.schedule import NEARLY_CLEAN, GammaBounds, NoiseSchedule

ROWS = 64  # maximum batch size of `pseudo_log_probs`; each row hides one position
PADDING = 2  # end tokens after a scored text


class PlaidModules(nn.Module):
    """The four learned modules of PLAID, under the names of its checkpoint files."""

    def __init__(self, config: PlaidConfig) -> None:
        super().__init__()
        self.model = PlaidNetwork(config)
        self.embedding_matrix = Embedding(config.vocab_size, config.embed_dim)
        self.noise_schedule = NoiseSchedule()
        self.gamma_bounds = GammaBounds()


class PlaidLM(NetworkLM[PlaidModules]):
    """PLAID as a `DiffusionLM`, for sampling: its parameters do not require gradients.

    >>> import torch
    >>> from tokenizers import Tokenizer, models
    >>> letters = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    >>> lm = PlaidLM.create(PlaidConfig(vocab_size=2, dim=8, n_blocks=1, n_heads=2, embed_dim=4), letters)
    >>> lm.denoise(torch.zeros(1, 3, 4), torch.zeros(1), torch.zeros(1, 3, 4)).shape
    torch.Size([1, 3, 2])
    """

    kind: ClassVar[str] = "plaid"
    half_storage: bool = False  # whether network and embeddings are saved as float16 (the schedule stays float32)
    position_levels: bool = False  # whether it was also trained with a noise level for each position

    @classmethod
    def create(cls, config: PlaidConfig, tokenizer: Tokenizer, *, eos_token_id: int | None = None) -> Self:
        """A model with random weights, for training."""
        return cls(PlaidModules(config), tokenizer, eos_token_id)

    @property
    def config(self) -> PlaidConfig:
        return self.modules.model.config

    @property
    def _stored_embedding(self) -> Tensor:
        return self.modules.embedding_matrix.matrix

    def _normalise_embedding(self) -> Tensor:
        normalised: Tensor = self.modules.embedding_matrix()
        return normalised

    @property
    def _blocks(self) -> nn.Module:
        return self.modules.model.blocks

    def noise_level(self, t: Tensor) -> Tensor:
        low, high = self.modules.gamma_bounds()
        return low + (high - low) * self.modules.noise_schedule(t)

    def denoise(self, z: Tensor, noise_level: Tensor, x_selfcond: Tensor) -> Tensor:
        logits: Tensor = self.modules.model(z, noise_level, self.embedding, x_selfcond)
        return logits

    @torch.no_grad()
    def pseudo_log_probs(self, ids: Tensor) -> Tensor:
        """The log-probability (n,) of each token of a text (n,) given all other tokens.

        This needs a model with `position_levels`: one position at a time is pure noise, the others are nearly
        clean. The noise is the same for every text.
        """
        eos = 0 if self.eos_token_id is None else self.eos_token_id
        padded = torch.cat([ids, ids.new_full((PADDING,), eos)]).to(self.device)
        low, high = self.noise_level(torch.tensor([0.0, 1.0], dtype=torch.float64)).tolist()
        generator = torch.Generator().manual_seed(0)
        x = self.embedding[padded]  # (n + 2, d)
        log_probs = []
        for positions in torch.split(torch.arange(len(ids)), ROWS):
            hidden = torch.zeros(len(positions), len(padded), dtype=torch.bool)
            hidden[torch.arange(len(positions)), positions] = True
            levels = torch.where(hidden, high, low + NEARLY_CLEAN * (high - low)).to(x.device)
            noise = torch.randn(*hidden.shape, x.shape[1], generator=generator).to(x)
            clean = x * (~hidden).to(x)[..., None]
            z = levels.neg().sigmoid().sqrt()[..., None] * clean + levels.sigmoid().sqrt()[..., None] * noise
            logits = self.denoise(z.to(x.dtype), levels.float(), torch.zeros_like(z))
            rows = logits[torch.arange(len(positions)), positions].float().log_softmax(dim=-1).cpu()
            log_probs.append(rows.gather(1, ids[positions, None])[:, 0])
        return torch.cat(log_probs)

    def config_fields(self) -> dict[str, Any]:
        shape = dataclasses.asdict(self.config)
        return {**shape, "position_levels": True} if self.position_levels else shape

    def tensors(self) -> dict[str, Tensor]:
        state = super().tensors()
        if self.half_storage:
            half = ("model.", "embedding_matrix.")
            state = {name: value.half() if name.startswith(half) else value for name, value in state.items()}
        return state

    @classmethod
    def from_parts(
        cls,
        fields: dict[str, Any],
        tensors: Mapping[str, Tensor],
        tokenizer: Tokenizer,
        eos_token_id: int | None,
        sampling_defaults: SamplingDefaults,
    ) -> Self:
        fields = dict(fields)
        position_levels = fields.pop("position_levels", False)
        if not isinstance(position_levels, bool):
            raise CheckpointError(f"position_levels in the config is true or false, not {position_levels!r}")
        try:
            config = PlaidConfig(**fields)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"the config does not describe a PLAID network: {error}") from None
        check_parameter_count(config.about_parameters, config.n_blocks, tensors)
        modules = unfilled(lambda: PlaidModules(config), config.about_parameters)
        load_strictly(modules, tensors)
        model = cls(modules, tokenizer, eos_token_id, sampling_defaults)
        model.position_levels = position_levels
        return model

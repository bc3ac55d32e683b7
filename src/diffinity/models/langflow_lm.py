"""A complete LangFlow model: network, embeddings, noise schedule and tokenizer as a `DiffusionLM`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from tokenizers import Tokenizer
from torch import Tensor, nn

from diffinity.errors import CheckpointError
from diffinity.models.langflow import LangFlowConfig, LangFlowModules
from diffinity.models.network_lm import NetworkLM
from diffinity.models.pretrained import check_parameter_count, is_published_langflow, load_strictly, unfilled
from diffinity.models.protocol import SamplingDefaults

# LangFlow's number of steps, sampler and temperature; windows of 1,024 tokens would take a laptop an hour.
LANGFLOW_DEFAULTS = SamplingDefaults(num_inference_steps=128, length=128, score_temp=1.0, method="ddim")


class LangFlowLM(NetworkLM[LangFlowModules]):
    """LangFlow as a `DiffusionLM`, for sampling: its parameters do not require gradients.

    Its training windows begin with a start token, which is not part of the text: `start_token_id`.

    >>> import torch
    >>> from tokenizers import models
    >>> letters = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    >>> shape = LangFlowConfig(vocab_size=2, hidden_size=8, cond_dim=4, n_blocks=1, n_heads=2)
    >>> lm = LangFlowLM.create(shape, letters)
    >>> lm.denoise(torch.zeros(1, 3, 8), torch.zeros(1), torch.zeros(1, 3, 8)).shape
    torch.Size([1, 3, 2])
    """

    kind: ClassVar[str] = "langflow"

    def __init__(
        self,
        modules: LangFlowModules,
        tokenizer: Tokenizer,
        eos_token_id: int | None = None,
        sampling_defaults: SamplingDefaults | None = None,
        start_token_id: int | None = None,
    ) -> None:
        super().__init__(modules, tokenizer, eos_token_id, sampling_defaults or LANGFLOW_DEFAULTS)
        self.start_token_id = start_token_id

    @classmethod
    def create(
        cls,
        config: LangFlowConfig,
        tokenizer: Tokenizer,
        *,
        eos_token_id: int | None = None,
        start_token_id: int | None = None,
    ) -> Self:
        """A model with random weights."""
        return cls(LangFlowModules(config), tokenizer, eos_token_id, start_token_id=start_token_id)

    @property
    def config(self) -> LangFlowConfig:
        return self.modules.backbone.config

    @property
    def _stored_embedding(self) -> Tensor:
        return self.modules.backbone.vocab_embed.embedding

    def _normalise_embedding(self) -> Tensor:
        normalised: Tensor = self.modules.backbone.vocab_embed()
        return normalised

    @property
    def _blocks(self) -> nn.Module:
        return self.modules.backbone.blocks

    def noise_level(self, t: Tensor) -> Tensor:
        levels: Tensor = self.modules.proposal(t)
        return levels

    def denoise(self, z: Tensor, noise_level: Tensor, x_selfcond: Tensor) -> Tensor:
        logits: Tensor = self.modules.backbone(z, noise_level, self.embedding, x_selfcond)
        return logits

    def config_fields(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self.config), "start_token_id": self.start_token_id}

    @classmethod
    def read(cls, folder: Path, config: dict[str, Any], *, verify: bool = True) -> Self:
        """Like `PretrainedLM.read`; a folder in LangFlow's own layout is imported."""
        if not is_published_langflow(config):
            return super().read(folder, config, verify=verify)
        from diffinity.models.langflow_import import published_parts

        return cls(*published_parts(folder, config, verify=verify))

    @classmethod
    def from_parts(
        cls,
        fields: dict[str, Any],
        tensors: Mapping[str, Tensor],
        tokenizer: Tokenizer,
        eos_token_id: int | None,
        sampling_defaults: SamplingDefaults,
    ) -> Self:
        shape = {name: value for name, value in fields.items() if name != "start_token_id"}
        try:
            config = LangFlowConfig(**shape)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"the config does not describe a LangFlow network: {error}") from None
        start = fields.get("start_token_id")
        if start is not None and not (isinstance(start, int) and 0 <= start < config.vocab_size):
            raise CheckpointError(f"start_token_id {start!r} is not a token: there are {config.vocab_size}")
        modules = filled(config, tensors)
        return cls(modules, tokenizer, eos_token_id, sampling_defaults, start)


def filled(config: LangFlowConfig, tensors: Mapping[str, Tensor]) -> LangFlowModules:
    """The modules of this shape, filled with the weights; names and shapes must match exactly."""
    check_parameter_count(config.about_parameters, config.n_blocks, tensors)
    modules = unfilled(lambda: LangFlowModules(config), config.about_parameters)
    load_strictly(modules, tensors)
    if not float(modules.proposal.scale) > 0:
        raise CheckpointError(f"proposal.scale must be positive, but is {float(modules.proposal.scale)}")
    return modules

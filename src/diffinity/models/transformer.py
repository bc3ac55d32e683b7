"""The embedded autoregressive and masked models: plain transformers over tokens, with PLAID's blocks.

With `causal=True` the network predicts the next token, and also measures perplexity. With `causal=False` it fills
in masked tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from diffinity.errors import CheckpointError, InvalidArgument
from diffinity.models.causal import CachedContinuations
from diffinity.models.plaid import Block, Linear, PlaidConfig, RMSNorm, Rotary, store_transposed
from diffinity.models.pretrained import PretrainedLM, check_parameter_count, load_strictly, unfilled
from diffinity.models.protocol import CausalModel, Messages, SamplingDefaults, TokenDiffusion, no_prompt


@dataclass(frozen=True)
class TransformerConfig:
    """The shape of an autoregressive (`causal`) or masked network.

    >>> TransformerConfig(vocab_size=512, dim=64, n_blocks=2, n_heads=2, causal=True).causal
    True
    """

    vocab_size: int
    dim: int
    n_blocks: int
    n_heads: int
    causal: bool

    def __post_init__(self) -> None:
        self.blocks()

    def blocks(self) -> PlaidConfig:
        """The config of the blocks."""
        return PlaidConfig(self.vocab_size, self.dim, self.n_blocks, self.n_heads)


class Transformer(nn.Module):
    """Logits (B, L, V) for token ids (B, L); id V is the mask."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size + 1, config.dim)
        nn.init.normal_(self.embedding.weight, std=0.5)
        self.rotary_emb = Rotary(config.dim // config.n_heads)
        self.blocks = nn.ModuleList(Block(config.blocks(), config.causal) for _ in range(config.n_blocks))
        self.output_norm = RMSNorm(config.dim)
        self.output_linear = Linear(config.dim, config.vocab_size)
        nn.init.zeros_(self.output_linear.weight)
        nn.init.zeros_(self.output_linear.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output_linear(self.features(tokens))

    def features(self, tokens: Tensor) -> Tensor:
        """The input of the readout: the last hidden state (B, L, dim)."""
        x = self.embedding(tokens)  # (B, L, dim)
        cos, sin = self.rotary_emb(tokens.shape[1])
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.output_norm(x)


class TransformerLM(PretrainedLM):
    """An autoregressive or masked network with its tokenizer and files."""

    def __init__(
        self,
        network: Transformer,
        tokenizer: Tokenizer,
        eos_token_id: int,
        sampling_defaults: SamplingDefaults | None = None,
    ) -> None:
        if network.config.causal != self.causal:
            raise CheckpointError(f"a {self.kind} model needs a network with causal={self.causal}")
        self.network = network.eval().requires_grad_(False)
        store_transposed(self.network.blocks)
        self._tokenizer = tokenizer
        self.eos_token_id: int = eos_token_id
        self.sampling_defaults = sampling_defaults or SamplingDefaults()
        self.half_storage = False
        if tokenizer.get_vocab_size() != network.config.vocab_size:
            raise CheckpointError(
                f"the tokenizer has {tokenizer.get_vocab_size()} tokens, the network {network.config.vocab_size}"
            )

    causal: ClassVar[bool]

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    @property
    def vocab_size(self) -> int:
        return self.network.config.vocab_size

    @property
    def device(self) -> torch.device:
        return self.network.embedding.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.network.output_linear.weight.dtype

    def to(self, device: str | torch.device) -> Self:
        """Move to `device`."""
        self.network.to(device)
        return self

    def config_fields(self) -> dict[str, Any]:
        return dataclasses.asdict(self.network.config)

    def tensors(self) -> dict[str, Tensor]:
        state = self.network.state_dict()
        return {name: value.half() for name, value in state.items()} if self.half_storage else state

    @classmethod
    def from_parts(
        cls,
        fields: dict[str, Any],
        tensors: Mapping[str, Tensor],
        tokenizer: Tokenizer,
        eos_token_id: int | None,
        sampling_defaults: SamplingDefaults,
    ) -> Self:
        try:
            config = TransformerConfig(**fields)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"the config does not describe a transformer: {error}") from None
        if eos_token_id is None:
            raise CheckpointError("the config has no eos_token_id")
        check_parameter_count(config.blocks().about_parameters, config.n_blocks, tensors)
        network = unfilled(lambda: Transformer(config), config.blocks().about_parameters)
        load_strictly(network, tensors)
        return cls(network, tokenizer, eos_token_id, sampling_defaults)


class AutoregressiveLM(TransformerLM, CausalModel):  # type: ignore[misc]  # its end token is never None
    """Predicts the next token; the end token is also the input before the first token.

    >>> from diffinity.models.tokenization import train_bpe
    >>> network = Transformer(TransformerConfig(257, dim=8, n_blocks=1, n_heads=1, causal=True))
    >>> model = AutoregressiveLM(network, train_bpe(["a"], 257), eos_token_id=0)
    >>> model.start(2, length=5).logits().shape
    torch.Size([2, 257])
    """

    kind: ClassVar[str] = "autoregressive"
    causal: ClassVar[bool] = True
    reads_prompts = True

    def start(self, n: int, length: int, context: Sequence[int] | None = None) -> CachedContinuations:
        return CachedContinuations(self.network, n, length, [self.eos_token_id, *(context or ())])

    def encode_prompt(self, prompt: str | None, messages: Messages | None) -> list[int]:
        """The prompt's tokens; there is no chat template."""
        if prompt is None:
            raise InvalidArgument("this model has no chat template: give prompt=, not messages=")
        ids: list[int] = self.tokenizer.encode(prompt).ids
        return ids

    @torch.no_grad()
    def log_probs(self, tokens: Tensor) -> Tensor:
        """log p(token k | tokens before it) (B, L) for tokens (B, L)."""
        inputs = torch.cat([torch.full_like(tokens[:, :1], self.eos_token_id), tokens[:, :-1]], dim=1)
        scores = F.log_softmax(self.network(inputs), dim=-1)
        return scores.gather(2, tokens[:, :, None])[:, :, 0]


class MaskedLM(TransformerLM, TokenDiffusion):  # type: ignore[misc]  # its end token is never None
    """Fills in masked tokens, all at once: a `TokenDiffusion` with masked noise.

    >>> from diffinity.models.tokenization import train_bpe
    >>> network = Transformer(TransformerConfig(257, dim=8, n_blocks=1, n_heads=1, causal=False))
    >>> model = MaskedLM(network, train_bpe(["a"], 257), eos_token_id=0)
    >>> model.logits(torch.full((2, 5), model.mask_id), torch.ones(2)).shape
    torch.Size([2, 5, 257])
    """

    kind: ClassVar[str] = "masked"
    causal: ClassVar[bool] = False
    temperature = 0.5  # by measurement: docs/discrete.md

    @property
    def mask_id(self) -> int:
        """The id of a masked token."""
        return self.network.config.vocab_size

    @torch.no_grad()
    def logits(self, tokens: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        """Logits (B, L, V) for tokens (B, L); the time is not used, because the number of masks determines it."""
        if context is not None:
            raise InvalidArgument(no_prompt(self))
        logits: Tensor = self.network(tokens)
        return logits

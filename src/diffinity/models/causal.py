"""Token sequences of a causal transformer with a key–value cache, and causal models by name."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from diffinity.errors import InvalidArgument
from diffinity.models.plaid import Block, rotate
from diffinity.models.protocol import CausalModel

if TYPE_CHECKING:
    from diffinity.models.transformer import Transformer


class CachedContinuations:
    """Sequences of a causal `Transformer` with a key–value cache.

    Every token goes through the network once: n·length token passes for a whole batch, not n·length²/2. The tokens
    of `context`, which precede the text (at least one), go through it in one pass.
    """

    @torch.no_grad()
    def __init__(self, network: Transformer, n: int, length: int, context: Sequence[int]) -> None:
        config, weight = network.config, network.embedding.weight
        self._network = network
        self._n_cached = 0
        capacity = len(context) + length
        self._cos, self._sin = network.rotary_emb(capacity)
        shape = (config.n_blocks, n, config.n_heads, capacity, config.dim // config.n_heads)
        self._keys = torch.zeros(shape, dtype=weight.dtype, device=weight.device)
        self._values = torch.zeros_like(self._keys)
        self._read(torch.tensor(list(context)).expand(n, -1))

    def logits(self) -> Tensor:
        return self._logits

    @torch.no_grad()
    def append(self, tokens: Tensor) -> None:
        self._read(tokens[:, None])

    def select(self, rows: Tensor) -> CachedContinuations:
        rows, selected = rows.to(self._keys.device), copy.copy(self)
        selected._keys, selected._values = self._keys[:, rows], self._values[:, rows]
        selected._logits = self._logits[rows]
        return selected

    def _read(self, tokens: Tensor) -> None:
        """Read tokens (n, t) after the cached tokens; t > 1 only at the beginning."""
        network = self._network
        x = network.embedding(tokens.to(self._keys.device))  # (n, t, dim)
        for i, block in enumerate(network.blocks):
            x = self._run_block(cast(Block, block), i, x)
        self._logits = network.output_linear(network.output_norm(x[:, -1:]))[:, 0]
        self._n_cached += tokens.shape[1]

    def _run_block(self, block: Block, i: int, x: Tensor) -> Tensor:
        """Compute `Block.forward` for t positions after the cached positions."""
        n, t, dim = x.shape
        positions, cached = slice(self._n_cached, self._n_cached + t), slice(0, self._n_cached + t)
        qkv = block.attn_qkv(block.rmsnorm1(x)).view(n, t, 3, block.n_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (n, heads, t, head_dim)
        cos, sin = self._cos[positions], self._sin[positions]
        self._keys[i, :, :, positions] = rotate(k, cos, sin)
        self._values[i, :, :, positions] = v
        mixed = F.scaled_dot_product_attention(
            rotate(q, cos, sin), self._keys[i, :, :, cached], self._values[i, :, :, cached], is_causal=t > 1
        )
        x = x + block.residual_scale * block.attn_out(mixed.transpose(1, 2).reshape(n, t, dim))
        return x + block.residual_scale * block.mlp(block.rmsnorm2(x))


def causal_model(model: CausalModel | str) -> CausalModel:
    """The model itself, or the model with the name `hf:NAME`, where NAME is a hub name or a folder.

    With `hf+code:` instead of `hf:` the repository's own Python code runs.

    >>> causal_model("gpt2")
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: a causal model is named as 'hf:NAME', for example 'hf:gpt2', not 'gpt2'
    """
    if isinstance(model, str):
        from diffinity.models.hugging_face import HuggingFaceCausal

        name, trusted = parse_hub_name(model, "a causal model is named as 'hf:NAME', for example 'hf:gpt2'")
        return HuggingFaceCausal.load(name, trust_remote_code=trusted)
    return model


def parse_hub_name(model: str, expected: str) -> tuple[str, bool]:
    """The name in `hf:NAME` or `hf+code:NAME`, and whether the repository's Python code may run (`hf+code:`).

    >>> parse_hub_name("hf+code:GSAI-ML/LLaDA-8B-Base", "")
    ('GSAI-ML/LLaDA-8B-Base', True)
    """
    prefix, _, name = model.partition(":")
    if prefix not in ("hf", "hf+code") or not name:
        raise InvalidArgument(f"{expected}, not {model!r}")
    return name, prefix == "hf+code"

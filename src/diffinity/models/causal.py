"""Models that predict the next token, behind one interface: our companion, with a cache, or any by name."""

from __future__ import annotations

from typing import Protocol, cast

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from diffinity.errors import InvalidArgument
from diffinity.models.plaid import Block, rotate
from diffinity.models.transformer import AutoregressiveLM, Transformer


class Continuations(Protocol):
    """Several token sequences that grow together."""

    def logits(self) -> Tensor:
        """The logits (n, V) of the next token of each sequence."""
        ...

    def append(self, tokens: Tensor) -> None:
        """Put one token (n,) behind each sequence."""
        ...

    def select(self, rows: Tensor) -> None:
        """Go on with the sequences at these places (n,), some perhaps more than once, in place of those there."""
        ...


class CausalModel(Protocol):
    """What autoregressive decoding needs of a model."""

    @property
    def tokenizer(self) -> Tokenizer:
        """From token ids to text and back."""
        ...

    @property
    def eos_token_id(self) -> int:
        """The token that ends a text."""
        ...

    @property
    def vocab_size(self) -> int:
        """How many logits there are; may be more than the tokenizer has tokens."""
        ...

    def start(self, n: int, length: int) -> Continuations:
        """n empty sequences that will have at most `length` tokens."""
        ...


class Companion:
    """Our `AutoregressiveLM` as a `CausalModel`."""

    def __init__(self, model: AutoregressiveLM) -> None:
        self._model = model

    @property
    def tokenizer(self) -> Tokenizer:
        return self._model.tokenizer

    @property
    def eos_token_id(self) -> int:
        return self._model.eos_token_id

    @property
    def vocab_size(self) -> int:
        return self._model.network.config.vocab_size

    def start(self, n: int, length: int) -> CachedContinuations:
        return CachedContinuations(self._model.network, n, length, self._model.eos_token_id)


class CachedContinuations:
    """Sequences of a causal `Transformer` with the keys and values of what stands already.

    Every token goes through the network once: n·length token passes for a whole batch, not n·length²/2.
    """

    @torch.no_grad()
    def __init__(self, network: Transformer, n: int, length: int, first: int) -> None:
        config, weight = network.config, network.embedding.weight
        self._network = network
        self._at = 0
        self._cos, self._sin = network.rotary_emb(length + 1)  # the first token is the one before the text
        shape = (config.n_blocks, n, config.n_heads, length + 1, config.dim // config.n_heads)
        self._keys = torch.zeros(shape, dtype=weight.dtype, device=weight.device)
        self._values = torch.zeros_like(self._keys)
        self.append(torch.full((n,), first))

    def logits(self) -> Tensor:
        return self._logits

    @torch.no_grad()
    def append(self, tokens: Tensor) -> None:
        network = self._network
        x = network.embedding(tokens.to(self._keys.device))[:, None]  # (n, 1, dim)
        for i, block in enumerate(network.blocks):
            x = self._through(cast(Block, block), i, x)
        self._logits = network.output_linear(network.output_norm(x))[:, 0]
        self._at += 1

    def select(self, rows: Tensor) -> None:
        rows = rows.to(self._keys.device)
        self._keys, self._values = self._keys[:, rows], self._values[:, rows]
        self._logits = self._logits[rows]

    def _through(self, block: Block, i: int, x: Tensor) -> Tensor:
        """`Block.forward` for one position behind those in the cache."""
        n, _, dim = x.shape
        here, until = slice(self._at, self._at + 1), slice(0, self._at + 1)
        qkv = block.attn_qkv(block.rmsnorm1(x)).view(n, 1, 3, block.n_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (n, heads, 1, head_dim)
        cos, sin = self._cos[here], self._sin[here]
        self._keys[i, :, :, here] = rotate(k, cos, sin)
        self._values[i, :, :, here] = v
        mixed = F.scaled_dot_product_attention(
            rotate(q, cos, sin), self._keys[i, :, :, until], self._values[i, :, :, until]
        )
        x = x + block.residual_scale * block.attn_out(mixed.transpose(1, 2).reshape(n, 1, dim))
        return x + block.residual_scale * block.mlp(block.rmsnorm2(x))


def causal_model(model: AutoregressiveLM | CausalModel | str) -> CausalModel:
    """The model behind the interface; a `str` is `hf:` and a name on the Hugging Face hub or a folder.

    With `hf+code:` instead of `hf:` the repository's own Python code runs.

    >>> causal_model("gpt2")
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: a causal model is named as 'hf:NAME', for example 'hf:gpt2', not 'gpt2'
    """
    if isinstance(model, AutoregressiveLM):
        return Companion(model)
    if isinstance(model, str):
        from diffinity.models.hugging_face import HuggingFaceCausal

        name, trusted = on_the_hub(model, "a causal model is named as 'hf:NAME', for example 'hf:gpt2'")
        return HuggingFaceCausal.load(name, trust_remote_code=trusted)
    return model


def on_the_hub(model: str, expected: str) -> tuple[str, bool]:
    """The name in `hf:NAME` or `hf+code:NAME`, and whether the repository's own Python code may run (the latter).

    >>> on_the_hub("hf+code:GSAI-ML/LLaDA-8B-Base", "")
    ('GSAI-ML/LLaDA-8B-Base', True)
    """
    prefix, _, name = model.partition(":")
    if prefix not in ("hf", "hf+code") or not name:
        raise InvalidArgument(f"{expected}, not {model!r}")
    return name, prefix == "hf+code"

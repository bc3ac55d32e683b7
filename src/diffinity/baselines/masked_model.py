"""Models that fill in masked tokens, behind one interface: our companion, or any by name."""

from __future__ import annotations

from typing import Protocol

import torch
from tokenizers import Tokenizer
from torch import Tensor

from diffinity.baselines.causal import on_the_hub
from diffinity.models.transformer import MaskedLM


class MaskedModel(Protocol):
    """What masked diffusion needs of a model."""

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

    @property
    def mask_id(self) -> int:
        """The token that stands for a masked one."""
        ...

    def logits(self, tokens: Tensor) -> Tensor:
        """Logits (B, L, V) of what stands at every position of tokens (B, L), some of them masked."""
        ...


class MaskedCompanion:
    """Our `MaskedLM` as a `MaskedModel`."""

    def __init__(self, model: MaskedLM) -> None:
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

    @property
    def mask_id(self) -> int:
        return self._model.mask_id

    @torch.no_grad()
    def logits(self, tokens: Tensor) -> Tensor:
        network = self._model.network
        logits: Tensor = network(tokens.to(network.embedding.weight.device))
        return logits


def masked_model(model: MaskedLM | MaskedModel | str) -> MaskedModel:
    """The model behind the interface; a `str` is `hf:` and a name on the Hugging Face hub or a folder.

    LLaDA's repositories bring Python code of their own, which runs only where it is asked for:
    `hf+code:GSAI-ML/LLaDA-8B-Base`.

    >>> masked_model("llada")
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: a masked model is named as 'hf:NAME', not 'llada'
    """
    if isinstance(model, MaskedLM):
        return MaskedCompanion(model)
    if isinstance(model, str):
        from diffinity.baselines.hugging_face import HuggingFaceMasked

        name, trusted = on_the_hub(model, "a masked model is named as 'hf:NAME'")
        return HuggingFaceMasked.load(name, trust_remote_code=trusted)
    return model

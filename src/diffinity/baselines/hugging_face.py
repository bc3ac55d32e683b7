"""Models of the Hugging Face `transformers` library by name, behind the interfaces of this folder.

`transformers` is imported, and anything fetched, only when a model is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from diffinity.errors import CheckpointError


@dataclass(frozen=True)
class HuggingFaceCausal:
    """A causal LM such as GPT-2 as a `CausalModel`; `first` is the token that stands before a text."""

    network: Any
    tokenizer: Tokenizer
    eos_token_id: int
    first: int
    vocab_size: int

    @staticmethod
    def load(name: str, *, device: str = "cpu", trust_remote_code: bool = False) -> HuggingFaceCausal:
        """The model called `name` on the hub, or in a folder."""
        network, tokenizer = _load("AutoModelForCausalLM", name, device, trust_remote_code)
        eos = _needed(tokenizer.eos_token_id, name, "end-of-text token")
        first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else eos
        size = int(network.get_output_embeddings().weight.shape[0])
        return HuggingFaceCausal(network, tokenizer.backend_tokenizer, eos, int(first), size)

    def start(self, n: int, length: int) -> HuggingFaceContinuations:
        return HuggingFaceContinuations(self.network, n, self.first)


class HuggingFaceContinuations:
    """Sequences of a `transformers` model with the library's own cache."""

    def __init__(self, network: Any, n: int, first: int) -> None:
        self._network = network
        self._cache: Any = None
        self.append(torch.full((n,), first))

    def logits(self) -> Tensor:
        return self._logits

    @torch.no_grad()
    def append(self, tokens: Tensor) -> None:
        ids = tokens[:, None].to(self._network.device)
        out = self._network(input_ids=ids, past_key_values=self._cache, use_cache=True)
        self._cache = out.past_key_values
        self._logits: Tensor = out.logits[:, -1]

    def select(self, rows: Tensor) -> None:
        rows = rows.to(self._network.device)
        self._cache.reorder_cache(rows)
        self._logits = self._logits[rows]


@dataclass(frozen=True)
class HuggingFaceMasked:
    """A masked diffusion LM such as LLaDA as a `MaskedModel`."""

    network: Any
    tokenizer: Tokenizer
    eos_token_id: int
    mask_id: int
    vocab_size: int

    @staticmethod
    def load(
        name: str, *, mask_id: int | None = None, device: str = "cpu", trust_remote_code: bool = False
    ) -> HuggingFaceMasked:
        """The model called `name` on the hub, or in a folder.

        LLaDA's own repositories hold Python code that `transformers` runs only with `trust_remote_code=True`;
        without it only the library's own masked models (BERT and its kin) are found. `mask_id` is the token that
        stands for a masked one where neither config nor tokenizer name it.
        """
        kind = "AutoModel" if trust_remote_code else "AutoModelForMaskedLM"
        network, tokenizer = _load(kind, name, device, trust_remote_code)
        if mask_id is None:
            mask_id = getattr(network.config, "mask_token_id", None)
        if mask_id is None:
            mask_id = tokenizer.mask_token_id
        mask_id = _needed(mask_id, name, "mask token (give mask_id=…)")
        eos = _needed(tokenizer.eos_token_id, name, "end-of-text token")
        with torch.no_grad():
            out = network(torch.full((1, 1), mask_id, device=network.device))
        if getattr(out, "logits", None) is None:
            raise CheckpointError(f"{name} gives no logits for tokens: it is no masked language model")
        return HuggingFaceMasked(network, tokenizer.backend_tokenizer, eos, mask_id, int(out.logits.shape[-1]))

    @torch.no_grad()
    def logits(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.network(tokens.to(self.network.device)).logits.float()
        scores[:, :, self.mask_id] = -torch.inf  # the mask is in the vocabulary, but is no prediction
        return scores


def _load(kind: str, name: str, device: str, trust_remote_code: bool) -> tuple[Any, Any]:
    try:
        transformers: Any = import_module("transformers")
    except ImportError:
        raise CheckpointError(
            f"reading {name!r} needs the transformers library: pip install transformers"
        ) from None
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
        network = getattr(transformers, kind).from_pretrained(name, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, ImportError) as error:
        raise CheckpointError(f"transformers can't load {name!r}: {error}") from None
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise CheckpointError(f"{name!r} has no fast tokenizer (tokenizer.json), which automata are built from")
    return network.to(device).eval().requires_grad_(False), tokenizer


def _needed(token: int | None, name: str, what: str) -> int:
    if token is None:
        raise CheckpointError(f"{name} does not say which token is its {what}")
    return int(token)

"""From a model's tokens to the bytes and texts that they spell."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from tokenizers import Tokenizer

from diffinity.alignment import Vocabulary


class Spells(Protocol):
    """A model with a tokenizer."""

    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def eos_token_id(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...


def vocabulary_of(model: Spells) -> Vocabulary:
    """The vocabulary of a model: one entry per logit, None for those that no token of the tokenizer has."""
    return _vocabulary(model.tokenizer.to_str(), model.eos_token_id, model.vocab_size)


@lru_cache(maxsize=8)
def _vocabulary(tokenizer_json: str, eos: int, size: int) -> Vocabulary:
    found = Vocabulary.from_tokenizer(Tokenizer.from_str(tokenizer_json), eos)
    tokens = (*found.tokens[:size], *([None] * (size - len(found))))
    return Vocabulary(tokens, eos, found.leading)


def text_before_end(model: Spells, ids: list[int]) -> str:
    """The text that token ids spell before the first end token."""
    if model.eos_token_id in ids:
        ids = ids[: ids.index(model.eos_token_id)]
    text: str = model.tokenizer.decode(ids, skip_special_tokens=False)
    return text

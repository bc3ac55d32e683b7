"""Models small enough for brute force: a handful of tokens, and logits that a test knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from diffinity.models.protocol import CausalModel, TokenDiffusion

END = 0
TOKENS = ["<end>", "a", "b", "c", "Ã", "©", "ab", "bc", "abc"]  # Ã© are the two bytes of é, each a token


def few_tokens(n: int = len(TOKENS)) -> Tokenizer:
    """A byte-level BPE of the first n of `TOKENS`; token 0 ends a text."""
    vocabulary = {token: i for i, token in enumerate(TOKENS[:n])}
    pairs = [("a", "b"), ("b", "c"), ("ab", "c")]
    merges = [pair for pair in pairs if "".join(pair) in vocabulary]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<end>", special=True)])
    return tokenizer


class KnownCausal(CausalModel):
    """A causal model whose next-token logits (V,) are a function of the tokens before."""

    eos_token_id = END

    def __init__(
        self, next_logits: Callable[[tuple[int, ...]], Tensor], tokenizer: Tokenizer, vocab_size: int
    ) -> None:
        self.next_logits, self._tokenizer, self._vocab_size = next_logits, tokenizer, vocab_size

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        return self.next_logits(()).dtype

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    def start(self, n: int, length: int, context: Sequence[int] | None = None) -> KnownContinuations:
        return KnownContinuations(self, [()] * n)


class KnownContinuations:
    def __init__(self, model: KnownCausal, before: list[tuple[int, ...]]) -> None:
        self._model, self._before = model, before

    def logits(self) -> Tensor:
        return torch.stack([self._model.next_logits(before) for before in self._before])

    def append(self, tokens: Tensor) -> None:
        self._before = [(*before, t) for before, t in zip(self._before, tokens.tolist(), strict=True)]

    def select(self, rows: Tensor) -> KnownContinuations:
        return KnownContinuations(self._model, [self._before[row] for row in rows.tolist()])


class KnownMasked(TokenDiffusion):
    """A masked model whose positions are independent: logits (L, V) whatever stands around them."""

    eos_token_id = END

    def __init__(self, table: Tensor, tokenizer: Tokenizer) -> None:
        self.table, self._tokenizer = table, tokenizer

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    @property
    def device(self) -> torch.device:
        return self.table.device

    @property
    def dtype(self) -> torch.dtype:
        return self.table.dtype

    @property
    def vocab_size(self) -> int:
        return int(self.table.shape[1])

    @property
    def mask_id(self) -> int:
        return self.vocab_size

    def logits(self, tokens: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        return self.table[: tokens.shape[1]].expand(len(tokens), -1, -1)


def strings(alphabet: str, longest: int) -> list[str]:
    """All strings of at most `longest` letters."""
    return ["".join(letters) for n in range(longest + 1) for letters in product(alphabet, repeat=n)]

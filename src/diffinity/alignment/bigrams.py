"""`Bigrams`: how much more often one token follows another than if tokens were independent.

A diffusion model gives a distribution for each position, but not the dependence between positions. Chain guidance
(`guidance/chain.py`) takes this dependence from bigrams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from diffinity.errors import CheckpointError, InvalidArgument

if TYPE_CHECKING:  # torch takes a second to import, and most of this module does not need it
    from tokenizers import Tokenizer
    from torch import Tensor

PREFIX = "bigrams."  # of their tensors in a model's weights file
DISCOUNT = 0.75  # subtracted from every count; its mass goes to unseen pairs


@dataclass(frozen=True, eq=False)
class Bigrams:
    """P(b after a) / P(b), for the pairs that occurred, and for all other successors of a token.

    The successors of token a are `successor[first[a]:first[a + 1]]`, in ascending order, with their `ratio`; every
    other successor has the ratio `unseen[a]`. Arrays are read-only.

    >>> pairs = Bigrams.count([[1, 2], [1, 2], [2, 1]], vocab_size=3, eos=0)
    >>> pairs.of(1, 2) > 1 > pairs.of(1, 1)
    True
    """

    first: NDArray[np.int64]  # (V+1,)
    successor: NDArray[np.int32]  # (N,)
    ratio: NDArray[np.float32]  # (N,)
    unseen: NDArray[np.float32]  # (V,)

    def __post_init__(self) -> None:
        if not self._has_rows() or not self._ascends() or not self._has_ratios():
            raise InvalidArgument("the arrays of the bigrams do not fit each other")
        for array in (self.first, self.successor, self.ratio, self.unseen):
            array.flags.writeable = False

    def _has_rows(self) -> bool:
        first = self.first
        return (
            first.shape == (self.unseen.shape[0] + 1,)
            and int(first[0]) == 0
            and int(first[-1]) == self.successor.shape[0]
            and bool((np.diff(first) >= 0).all())
        )

    def _ascends(self) -> bool:
        """Whether the successors of every token are tokens in ascending order."""
        row = np.repeat(np.arange(self.vocab_size), np.diff(self.first))
        pair_number = row * self.vocab_size + self.successor
        in_range = (self.successor >= 0) & (self.successor < self.vocab_size)
        return bool(in_range.all()) and bool((np.diff(pair_number) > 0).all())

    def _has_ratios(self) -> bool:
        positive = all(bool((np.isfinite(values) & (values > 0)).all()) for values in (self.ratio, self.unseen))
        return positive and self.ratio.shape == self.successor.shape

    @property
    def vocab_size(self) -> int:
        return int(self.unseen.shape[0])

    def of(self, before: int, after: int) -> float:
        """The ratio of one pair of tokens."""
        row = self.successor[self.first[before] : self.first[before + 1]]
        at = int(np.searchsorted(row, after))
        if at < len(row) and row[at] == after:
            return float(self.ratio[self.first[before] + at])
        return float(self.unseen[before])

    @classmethod
    def count(cls, documents: Iterable[Sequence[int]], vocab_size: int, eos: int, *, smallest: int = 1) -> Bigrams:
        """Count the neighbours in token ids, one sequence per document; after a document, `eos` repeats forever.

        Pairs that occur fewer than `smallest` times count as unseen. Counts are discounted (absolute discounting),
        and the discounted mass goes to unseen pairs, in proportion to P(b).
        """
        pairs = np.zeros(0, np.int64)
        counts = np.zeros(0, np.int64)
        block: list[NDArray[np.int64]] = []
        size = 0
        for document in documents:
            ids = np.array([*document, eos, eos], np.int64)
            block.append(ids[:-1] * vocab_size + ids[1:])
            size += len(ids)
            if size > 4_000_000:
                pairs, counts = _merged(pairs, counts, block)
                block, size = [], 0
        pairs, counts = _merged(pairs, counts, block)
        if not len(pairs):
            raise InvalidArgument("bigrams need at least one document")
        token, successor = pairs // vocab_size, pairs % vocab_size
        total = np.bincount(token, counts, vocab_size)
        share = np.bincount(successor, counts, vocab_size) + DISCOUNT
        share /= share.sum()
        frequent = counts >= smallest
        removed = np.bincount(token, np.where(frequent, DISCOUNT, counts), vocab_size)
        unseen = np.where(total > 0, removed / np.maximum(total, 1), 1.0)
        token, successor, frequent_counts = token[frequent], successor[frequent], counts[frequent]
        ratio = (frequent_counts - DISCOUNT) / (total[token] * share[successor]) + unseen[token]
        first = np.zeros(vocab_size + 1, np.int64)
        first[1:] = np.cumsum(np.bincount(token, minlength=vocab_size))
        return cls(first, successor.astype(np.int32), ratio.astype(np.float32), unseen.astype(np.float32))

    def tensors(self) -> dict[str, Tensor]:
        """The tensors for a model's weights file; ratios are rounded to half precision."""
        import torch

        id_type = torch.int16 if self.vocab_size <= 2**15 else torch.int32
        return {
            f"{PREFIX}size": torch.from_numpy(np.diff(self.first)).to(torch.int32),
            f"{PREFIX}successor": torch.from_numpy(self.successor.copy()).to(id_type),
            f"{PREFIX}log_ratio": torch.from_numpy(np.log(self.ratio)).half(),
            f"{PREFIX}log_unseen": torch.from_numpy(np.log(self.unseen)).half(),
        }

    @classmethod
    def from_tensors(cls, named: Mapping[str, Tensor]) -> Bigrams:
        """The inverse of `tensors`.

        >>> pairs = Bigrams.count([[1, 2], [1, 1]], vocab_size=3, eos=0)
        >>> abs(Bigrams.from_tensors(pairs.tensors()).of(1, 2) / pairs.of(1, 2) - 1) < 0.01
        True
        """
        tensors = {name.removeprefix(PREFIX): tensor for name, tensor in named.items()}
        try:
            size, successor = tensors["size"].long().numpy(), tensors["successor"].int().numpy()
            ratio, unseen = (tensors[name].float().exp().numpy() for name in ("log_ratio", "log_unseen"))
            return cls(np.concatenate([[0], np.cumsum(size)]), successor, ratio, unseen)
        except (KeyError, InvalidArgument, ValueError) as error:
            raise CheckpointError(f"the tensors are not those of bigrams: {error}") from None


def _merged(
    pairs: NDArray[np.int64], counts: NDArray[np.int64], block: list[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct pairs and their counts, after adding the pairs of a block of documents."""
    block_pairs, block_counts = np.unique(np.concatenate([*block, np.zeros(0, np.int64)]), return_counts=True)
    all_pairs, index_of_pair = np.unique(np.concatenate([pairs, block_pairs]), return_inverse=True)
    return all_pairs, np.bincount(index_of_pair, np.concatenate([counts, block_counts]), len(all_pairs)).astype(
        np.int64
    )


def fit_bigrams(texts: Iterable[str], tokenizer: Tokenizer, eos: int, *, smallest: int = 1) -> Bigrams:
    """The bigrams of `texts`, one document each, tokenized by `tokenizer`.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["the cat sat.", "the dog sat."])
    >>> fit_bigrams(["the cat sat."], model.tokenizer, model.eos_token_id).vocab_size == len(model.embedding)
    True
    """
    encoded = (encoding.ids for encoding in tokenizer.encode_batch(list(texts)))
    return Bigrams.count(encoded, tokenizer.get_vocab_size(), eos, smallest=smallest)

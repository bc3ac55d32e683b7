"""From documents to batches: one document per sequence, padded with end tokens, in a few lengths.

Each batch is a function of (seed, block), so a resumed run gets exactly the batches of an uninterrupted run.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Protocol

import torch
from tokenizers import Tokenizer
from torch import Tensor

from diffinity.errors import InvalidArgument
from diffinity.training.corpus.structured import structured_documents

BLOCK = 4096  # number of documents that are drawn, tokenized and assigned to lengths together


class DocumentSource(Protocol):
    """Documents in blocks; block i is always the same."""

    def block(self, index: int) -> list[str]: ...


@dataclass(frozen=True)
class GeneratedCorpus:
    """The structured documents that the package generates.

    >>> len(GeneratedCorpus(seed=0).block(3))
    4096
    """

    seed: int = 0

    def block(self, index: int) -> list[str]:
        return list(islice(structured_documents(Random(f"{self.seed}/{index}")), BLOCK))


@dataclass(frozen=True)
class TextCorpus:
    """A user's own documents, reshuffled for every pass."""

    texts: Sequence[str]
    seed: int = 0

    def block(self, index: int) -> list[str]:
        size = min(BLOCK, len(self.texts))
        per_pass = len(self.texts) // size
        order = list(range(len(self.texts)))
        Random(f"{self.seed}/{index // per_pass}").shuffle(order)
        start = (index % per_pass) * size
        return [self.texts[i] for i in order[start : start + size]]


def first_documents(source: DocumentSource, n: int) -> list[str]:
    """The first n documents of a source.

    >>> len(first_documents(GeneratedCorpus(), 5))
    5
    """
    return [text for index in range(-(-n // BLOCK)) for text in source.block(index)][:n]


def read_texts(path: str | Path) -> list[str]:
    """The documents of a file: one per line, or for `.jsonl` the "text" of each line's object.

    `hub:owner/name` (or `hub:owner/name:split:column`) names a data set on the Hugging Face hub.

    >>> read_texts("no such file.txt")
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: there is no data file 'no such file.txt'
    """
    if str(path).startswith("hub:"):
        return _read_hub(str(path)[4:])
    file = Path(path)
    if not file.is_file():
        raise InvalidArgument(f"there is no data file {str(path)!r}")
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"{path} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#x}"
        ) from None
    if file.suffix == ".jsonl":
        lines = [_text_field(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise InvalidArgument(f"{path} has no document: expected one a line")
    return texts


def _text_field(line: str, place: str) -> str:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"{place} is not JSON: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        raise InvalidArgument(f'{place}: expected an object with a string "text"')
    return str(value["text"])


def _read_hub(name: str) -> list[str]:
    try:
        from datasets import load_dataset  # an optional dependency, and slow to import
    except ImportError:
        raise InvalidArgument("data sets of the hub need the `datasets` package: pip install datasets") from None
    owner_name, _, split_and_column = name.partition(":")
    split, _, column = split_and_column.partition(":")
    column = column or "text"
    rows = load_dataset(owner_name, split=split or "train")
    if column not in rows.column_names:
        raise InvalidArgument(f"{name}: there is no column {column!r}; it has {', '.join(rows.column_names)}")
    return [str(text) for text in rows[column] if str(text).strip()]


def split_texts(texts: Sequence[str], share: float = 0.03) -> tuple[list[str], list[str]]:
    """Training and validation documents, divided by a hash of the text; there is at least one of each.

    >>> train, validation = split_texts([f"text {i}" for i in range(1000)])
    >>> len(train) + len(validation), 10 < len(validation) < 60
    (1000, True)
    """
    held_out = [zlib.crc32(text.encode()) % 10_000 < 10_000 * share for text in texts]
    train = [text for text, is_held_out in zip(texts, held_out, strict=True) if not is_held_out]
    validation = [text for text, is_held_out in zip(texts, held_out, strict=True) if is_held_out]
    return train or list(texts), validation or list(texts[:1])


def training_lengths(longest: int) -> tuple[int, ...]:
    """The sequence lengths of a run with this maximum: closely spaced for short documents.

    >>> training_lengths(96)
    (12, 16, 24, 32, 48, 64, 96)
    """
    return (*(length for length in (12, 16, 24, 32, 48, 64, 96, 128, 192, 256) if length < longest), longest)


@dataclass(frozen=True)
class Cursor:
    """The position of a run in the stream of batches."""

    block: int = 0
    batch: int = 0


@dataclass(frozen=True)
class Batches:
    """Batches of about `tokens` tokens, each of one of the `lengths`.

    A document is assigned to one of the lengths that fit it and its end token, with a probability proportional to
    length^-1.5. So a model also writes short sentences in long windows, and most tokens of a batch are still text.
    Documents that fit no length are left out.
    """

    source: DocumentSource
    tokenizer: Tokenizer
    eos: int
    lengths: tuple[int, ...] = (16, 32, 48, 64, 80, 96)
    tokens: int = 2048
    seed: int = 0

    def from_cursor(self, cursor: Cursor) -> Iterator[tuple[Tensor, Cursor]]:
        """An endless stream of (batch (B, L), cursor of the next batch)."""
        block = cursor.block
        first_batch = cursor.batch
        while True:
            batches = self.block(block)
            if not batches:
                raise InvalidArgument(
                    f"no document of block {block} fits {max(self.lengths)} tokens; split the documents or raise "
                    "the length"
                )
            for index in range(first_batch, len(batches)):
                is_last = index + 1 == len(batches)
                yield batches[index], Cursor(block + 1, 0) if is_last else Cursor(block, index + 1)
            block, first_batch = block + 1, 0

    def block(self, index: int) -> list[Tensor]:
        """The batches of one block, shuffled; an incomplete batch is dropped if there are complete batches."""
        rng = Random(f"{self.seed}/{index}/batches")
        buckets: dict[int, list[list[int]]] = {length: [] for length in self.lengths}
        for encoding in self.tokenizer.encode_batch(self.source.block(index)):
            fitting = [length for length in self.lengths if len(encoding.ids) < length]
            if fitting and encoding.ids:
                (length,) = rng.choices(fitting, [length**-1.5 for length in fitting])
                buckets[length].append(encoding.ids)
        batches: list[Tensor] = []
        leftovers: list[Tensor] = []
        for length, rows in buckets.items():
            size = max(1, self.tokens // length)
            for start in range(0, len(rows), size):
                part = rows[start : start + size]
                (batches if len(part) == size else leftovers).append(pad(part, length, self.eos))
        batches = batches or leftovers
        rng.shuffle(batches)
        return batches


def pad(rows: Sequence[Sequence[int]], length: int, eos: int) -> Tensor:
    """Token ids (B, length), each row filled up with `eos`.

    >>> pad([[5, 6], [7]], 4, eos=0).tolist()
    [[5, 6, 0, 0], [7, 0, 0, 0]]
    """
    padded = torch.full((len(rows), length), eos, dtype=torch.long)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = torch.tensor(row, dtype=torch.long)
    return padded

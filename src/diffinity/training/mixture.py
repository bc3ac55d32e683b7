"""The training mixture of the embedded models: public text, letters and verses made of it, structured text."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from diffinity.errors import InvalidArgument
from diffinity.training.corpus.public.build import Document, read_documents
from diffinity.training.corpus.public.names import MEN, WOMEN, vary_names
from diffinity.training.corpus.structured import structured_documents
from diffinity.training.data import (
    BLOCK,
    DocumentSource,
    GeneratedCorpus,
    TextCorpus,
    first_documents,
    read_texts,
    split_texts,
)

# Shares of the documents. Structured documents are longer, so they are a third of the tokens. The shares of
# missing sources are distributed to the others in proportion.
SHARES = {
    "tatoeba": 0.62,
    "commonvoice": 0.02,
    "storybooks": 0.06,
    "ebooks": 0.05,
    "star": 0.025,
    "taskmaster": 0.005,
    "letters": 0.03,
    "verses": 0.02,
    "corpora": 0.01,
    "schemastore": 0.005,
    "structured": 0.155,
}

TOKENIZER_BLOCKS = 40  # blocks of a corpus file that a tokenizer is trained on
GENERATED_TOKENIZER_BLOCKS = 15  # blocks of generated documents, if there is no corpus file
HELD_OUT_SEED = 1_000_000  # added to the seed for held-out documents
_VERSE = re.compile(r"[A-Z][a-z]*( [a-z]+){8,13}\.")  # one sentence of 9 to 14 words, without names
_GREETINGS = ("Dear {0},", "Hello {0},", "Hi {0},", "Dear {0},")
_CLOSINGS = ("Best wishes,", "Yours,", "Love,", "See you soon,", "Kind regards,", "Your friend,")
_LETTER_STARTS = (
    "I ",
    "I'm ",
    "We ",
    "Thank you",
    "Thanks for",
    "My ",
    "How ",
    "Please ",
    "I've ",
    "It ",
    "Yesterday",
)


class MixedCorpus:
    """Blocks of documents in fixed shares of their sources; block i is always the same.

    Each source has its own random order, which changes with every pass. Stock names are replaced at every draw.

    >>> corpus = MixedCorpus([Document("tatoeba", "Tom is here.")], seed=0)
    >>> len(corpus.block(0)) == BLOCK
    True
    """

    def __init__(self, documents: Sequence[Document], seed: int = 0) -> None:
        texts: dict[str, list[str]] = defaultdict(list)
        for document in documents:
            texts[document.source].append(document.text)
        unknown = sorted(set(texts) - set(SHARES))
        if unknown or not texts:
            raise InvalidArgument(
                f"the corpus must have documents of known sources; unknown: {', '.join(unknown) or 'none'}"
            )
        self.seed = seed
        self.texts = dict(texts)
        self._order = lru_cache(maxsize=64)(self._shuffled)

    @cached_property
    def counts(self) -> dict[str, int]:
        """The number of documents of each source in a block."""
        present = {name: share for name, share in SHARES.items() if name in self.texts or name == "structured"}
        if self.letter_sentences:
            present["letters"] = SHARES["letters"]
        if self.verse_sentences:
            present["verses"] = SHARES["verses"]
        total = sum(present.values())
        counts = {name: int(BLOCK * share / total) for name, share in present.items()}
        counts["structured"] += BLOCK - sum(counts.values())
        return counts

    @cached_property
    def letter_sentences(self) -> list[str]:
        """The sentences that are suitable for a letter."""
        return [
            text
            for text in self.texts.get("tatoeba", [])
            if text.startswith(_LETTER_STARTS) and len(text) <= 60 and '"' not in text
        ]

    @cached_property
    def verse_sentences(self) -> list[str]:
        """The sentences that can be divided into three lines."""
        return [text for text in self.texts.get("tatoeba", []) if _VERSE.fullmatch(text)]

    def block(self, index: int) -> list[str]:
        rng = Random(f"{self.seed}/{index}/mixture")
        documents: list[str] = []
        for name, count in self.counts.items():
            documents += self.draw(name, index, count, rng)
        rng.shuffle(documents)
        return documents

    def draw(self, name: str, index: int, count: int, rng: Random) -> list[str]:
        """The `count` documents of a source in block `index`."""
        if name == "structured":
            return list(islice(structured_documents(Random(rng.random())), count))
        if name == "letters":
            return [letter(rng, self.letter_sentences) for _ in range(count)]
        if name == "verses":
            return [verse(vary_names(rng.choice(self.verse_sentences), rng)) for _ in range(count)]
        return [vary_names(text, rng) for text in self._slice(name, index, count)]

    def _slice(self, name: str, index: int, count: int) -> Iterator[str]:
        texts = self.texts[name]
        for position in range(index * count, (index + 1) * count):
            yield texts[self._order(name, position // len(texts))[position % len(texts)]]

    def _shuffled(self, name: str, pass_index: int) -> NDArray[np.int64]:
        entropy = [self.seed, pass_index, *name.encode()]
        return np.random.default_rng(entropy).permutation(len(self.texts[name]))


@dataclass(frozen=True)
class TrainingData:
    """The data of a run: documents, held-out documents, documents for the tokenizer, and the file's identity."""

    source: DocumentSource
    held_out: list[str]
    tokenizer_texts: Callable[[], list[str]]
    fingerprint: str
    texts: Sequence[str] | None = None  # all documents, if they are the user's own

    def first(self, n: int) -> list[str]:
        """All documents of a user's own file, or the first n documents of other sources."""
        if self.texts is not None:
            return list(self.texts)
        return first_documents(self.source, n)


def read_training_data(data: str | None, seed: int = 0) -> TrainingData:
    """The documents of a corpus file or of a user's text; without `data`, generated structured documents.

    >>> len(read_training_data(None).first(3))
    3
    """
    if data is None:
        generated = GeneratedCorpus(seed)
        return TrainingData(
            generated,
            GeneratedCorpus(seed + HELD_OUT_SEED).block(0),
            lambda: [text for block in range(GENERATED_TOKENIZER_BLOCKS) for text in generated.block(block)],
            "",
        )
    fingerprint = "" if data.startswith("hub:") else _sha256(data)
    if is_corpus_file(data):
        documents = read_documents(data)
        corpus = MixedCorpus([document for document in documents if not document.held_out], seed)
        held_out_documents = [document for document in documents if document.held_out]
        held_out = (
            MixedCorpus(held_out_documents, seed + HELD_OUT_SEED).block(0)
            if held_out_documents
            else corpus.block(0)
        )
        return TrainingData(corpus, held_out, lambda: tokenizer_texts(corpus), fingerprint)
    texts = read_texts(data)
    train, held_out = split_texts(texts)
    return TrainingData(TextCorpus(train, seed), held_out, lambda: texts, fingerprint, texts)


def is_corpus_file(path: str) -> bool:
    """Whether a file was written by `diffinity corpus build`: JSON lines with a source."""
    if not path.endswith(".jsonl") or not Path(path).is_file():
        return False
    with Path(path).open(encoding="utf-8", errors="replace") as lines:
        first = lines.readline()
    return first.startswith('{"source": ')


def _sha256(path: str) -> str:
    if not Path(path).is_file():
        return ""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tokenizer_texts(corpus: MixedCorpus, blocks: int = TOKENIZER_BLOCKS) -> list[str]:
    """The documents that a tokenizer is trained on, from the first `blocks` blocks.

    Only a third of the structured documents is used. Otherwise names of JSON members and other parts of structured
    text would displace words from the vocabulary.

    >>> len(tokenizer_texts(MixedCorpus([Document("tatoeba", "Tom is here.")]), 1)) < BLOCK
    True
    """
    counts = {**corpus.counts, "structured": corpus.counts["structured"] // 3}
    rng = Random(f"{corpus.seed}/tokenizer")
    return [
        text
        for index in range(blocks)
        for name, count in counts.items()
        for text in corpus.draw(name, index, count, rng)
    ]


def letter(rng: Random, sentences: Sequence[str]) -> str:
    """A short letter with one to three of the sentences.

    >>> "I hope you are well." in letter(Random(1), ["I hope you are well."])
    True
    """
    receiver_names, sender_names = rng.choice((MEN, WOMEN)), rng.choice((MEN, WOMEN))
    body = [vary_names(rng.choice(sentences), rng) for _ in range(rng.choice((1, 1, 2, 2, 3)))]
    text = ("\n" if rng.random() < 0.3 else " ").join(body)
    greeting = rng.choice(_GREETINGS).format(rng.choice(receiver_names))
    closing = rng.choice((f"{rng.choice(_CLOSINGS)}\n{rng.choice(sender_names)}", rng.choice(sender_names)))
    return f"{greeting}\n{text}\n{closing}"


def verse(sentence: str) -> str:
    """A sentence without its full stop, as three lines.

    >>> verse("The old man sat down by the window and looked out.").splitlines()
    ['The old man', 'sat down by the', 'window and looked out']
    """
    words = sentence.rstrip(".").split(" ")
    first, second = round(len(words) * 0.3), round(len(words) * 0.65)
    return "\n".join((" ".join(words[:first]), " ".join(words[first:second]), " ".join(words[second:])))

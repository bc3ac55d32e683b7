"""The training corpus: seeded generators of short documents, built from skeletons and word lists."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from diffinity.training.corpus.english import Split, english_documents
from diffinity.training.corpus.structured import structured_documents

ENGLISH_SHARE = 0.65


def documents(seed: int, split: Split = "train") -> Iterator[str]:
    """An endless stream of documents, English and structured, the same for the same seed and split.

    Validation documents come from held-out skeletons and from a random stream of their own.

    >>> from itertools import islice
    >>> list(islice(documents(0), 3)) == list(islice(documents(0), 3))
    True
    """
    rng = Random(f"{split}/{seed}")
    english = english_documents(Random(rng.random()), split)
    structured = structured_documents(Random(rng.random()))
    while True:
        yield next(english if rng.random() < ENGLISH_SHARE else structured)

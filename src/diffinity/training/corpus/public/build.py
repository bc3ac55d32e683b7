"""Builds the corpus file from public sources: text is cleaned, cut to length, deduplicated, without rare words."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from diffinity.errors import InvalidArgument
from diffinity.training.corpus.public.cleaning import (
    acceptable,
    duplicate_key,
    json_shape,
    only_known_words,
    plain,
    well_formed,
    word_counts,
    word_triples,
)
from diffinity.training.corpus.public.names import MEN, WOMEN, without_names
from diffinity.training.corpus.public.pieces import pieces
from diffinity.training.corpus.public.readers import known_source, read_source

RAREST_WORD = 80  # minimum count of an English word; documents with rarer words are left out
RAREST_TRIPLE = 2  # minimum count of three words in a row; single sentences with rarer triples are left out
HELD_OUT_SHARE = 0.01
LARGEST_SHAPE = 150  # maximum number of JSON documents of one source with the same keys


@dataclass(frozen=True)
class Document:
    """One training document and the source that it comes from."""

    source: str
    text: str

    @property
    def held_out(self) -> bool:
        """Whether the document is in the held-out set, by a hash of its words: duplicates stay together."""
        key = duplicate_key(without_names(self.text))
        return zlib.crc32(key.encode()) % 10_000 < 10_000 * HELD_OUT_SHARE


def collect(
    places: Mapping[str, str | Path], rarest_word: int = RAREST_WORD, rarest_triple: int = RAREST_TRIPLE
) -> Iterator[Document]:
    """The documents of the sources in `places`, a mapping from the name of a source to its file or folder.

    English documents with a word that occurs fewer than `rarest_word` times in all English documents are left out,
    because the tokenizer would have to split such words. Single sentences with three words in a row that occur
    fewer than `rarest_triple` times in all sentences are left out too: a small network learns common phrases
    first, and rare phrases are noise to it.
    """
    if not places:
        raise InvalidArgument("name at least one source")
    for name in places:
        known_source(name)
    english: list[Document] = []
    for name, path in places.items():
        form = known_source(name).form
        documents = _distinct(name, path)
        if form == "json":
            yield from documents
        else:
            english.extend(documents)
    counts = word_counts(document.text for document in english)
    known_words = frozenset(word for word, count in counts.items() if count >= rarest_word)
    known_words |= {name.lower() for name in (*MEN, *WOMEN)}
    english = [document for document in english if only_known_words(document.text, known_words)]
    sentences = [document for document in english if known_source(document.source).form == "sentences"]
    triples = Counter(triple for document in sentences for triple in word_triples(without_names(document.text)))
    for document in english:
        if known_source(document.source).form != "sentences" or all(
            triples[triple] >= rarest_triple for triple in word_triples(without_names(document.text))
        ):
            yield document


def _distinct(name: str, path: str | Path) -> Iterator[Document]:
    form = known_source(name).form
    seen_keys: set[int] = set()
    shapes: Counter[str] = Counter()
    for raw in read_source(name, path):
        for text in pieces(raw if form == "json" else plain(raw), form):
            if not well_formed(text, form):
                continue
            shape = json_shape(text) if form == "json" else ""
            key = hash(text if form == "json" else duplicate_key(without_names(text)))
            if key not in seen_keys and shapes[shape] < LARGEST_SHAPE and acceptable(text):
                shapes[shape] += form == "json"
                seen_keys.add(key)
                yield Document(name, text)


def write_documents(
    places: Mapping[str, str | Path],
    out: str | Path,
    rarest_word: int = RAREST_WORD,
    rarest_triple: int = RAREST_TRIPLE,
    on_document: Callable[[Document], None] | None = None,
) -> dict[str, int]:
    """Write the documents as JSON lines with "source" and "text"; returns the number of documents by source."""
    target = Path(out)
    counts: dict[str, int] = {}
    unfinished = target.with_name(target.name + ".part")
    with unfinished.open("w", encoding="utf-8") as file:
        for document in collect(places, rarest_word, rarest_triple):
            file.write(json.dumps({"source": document.source, "text": document.text}, ensure_ascii=False) + "\n")
            counts[document.source] = counts.get(document.source, 0) + 1
            if on_document:
                on_document(document)
    if not counts:
        unfinished.unlink()
        raise InvalidArgument("no document of the sources passed the filters")
    unfinished.replace(target)
    return counts


def read_documents(path: str | Path) -> list[Document]:
    """The documents that `write_documents` wrote.

    >>> read_documents("no such file.jsonl")
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: there is no corpus file 'no such file.jsonl'
    """
    file = Path(path)
    if not file.is_file():
        raise InvalidArgument(f"there is no corpus file {str(path)!r}")
    documents = []
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                documents.append(Document(row["source"], row["text"]))
            except (json.JSONDecodeError, KeyError, TypeError):
                raise InvalidArgument(f'{path}:{number}: expected {{"source": …, "text": …}}') from None
    return documents

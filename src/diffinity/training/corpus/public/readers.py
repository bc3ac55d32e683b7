"""Readers of public text sources, in the layouts in which their publishers distribute them.

Every reader yields documents as text: a sentence, a story, a dialogue (one turn per line, after "User: " or
"System: "), or a JSON value. A `.txt` file with a blank line between documents is accepted for every source.
"""

from __future__ import annotations

import csv
import html
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from diffinity.errors import InvalidArgument

Form = Literal["sentences", "prose", "dialogue", "json"]


@dataclass(frozen=True)
class Source:
    """A public source: the form of its documents, its licence, its attribution, and the reader of its files."""

    name: str
    form: Form
    licence: str
    attribution: str
    read: Callable[[Path], Iterator[str]]


def read_source(name: str, path: str | Path) -> Iterator[str]:
    """The documents of a file or folder of a known source.

    >>> list(read_source("tatoeba", "no such file"))
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: there is no file or folder 'no such file' for the source tatoeba
    """
    source = known_source(name)
    source_path = Path(path)
    if not source_path.exists():
        raise InvalidArgument(f"there is no file or folder {str(path)!r} for the source {name}")
    if source_path.is_file() and source_path.suffix == ".txt" and _has_blank_lines(source_path):
        yield from read_blocks(source_path)
    else:
        yield from source.read(source_path)


def known_source(name: str) -> Source:
    """The source with this name.

    >>> known_source("tatoeba").licence
    'CC BY 2.0 FR'
    """
    if name not in SOURCES:
        raise InvalidArgument(f"unknown source {name!r}; known are {', '.join(SOURCES)}")
    return SOURCES[name]


def read_blocks(path: Path) -> Iterator[str]:
    """The documents of a text file with a blank line between them."""
    block: list[str] = []
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                block.append(line.rstrip("\n"))
            elif block:
                yield "\n".join(block)
                block = []
    if block:
        yield "\n".join(block)


def _has_blank_lines(path: Path) -> bool:
    with path.open(encoding="utf-8") as lines:
        return any(not line.strip() for _, line in zip(range(400), lines, strict=False))


def read_tatoeba(path: Path) -> Iterator[str]:
    """Tatoeba's sentence export: `sentences.csv` or `eng_sentences.tsv`, one row (id, language, text) per line."""
    csv.field_size_limit(sys.maxsize)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            if len(row) >= 3 and row[1] == "eng":
                yield row[2]


def read_lines(path: Path) -> Iterator[str]:
    """Sentences, one per line, of a `.txt` file or of all `.txt` files of a folder (Common Voice's sentences)."""
    for file in _files(path, ".txt"):
        with file.open(encoding="utf-8") as lines:
            yield from (line.strip() for line in lines if line.strip())


def read_markdown_stories(path: Path) -> Iterator[str]:
    """African Storybook's Markdown: a title after `#`, pages of text between `##` lines, credits at the end."""
    for file in _files(path, ".md"):
        lines: list[str] = []
        for line in file.read_text(encoding="utf-8").splitlines():
            plain = line.strip()
            if plain.startswith("* "):  # the list of licence, authors and illustrators ends a story
                break
            if plain.startswith("# "):
                lines.append(plain[2:].strip())
            elif plain and not plain.startswith(("#", "!", "<")):
                lines.append(plain)
        if lines:
            yield "\n".join(lines)


def read_ebooks(path: Path) -> Iterator[str]:
    """Standard Ebooks' XHTML: the paragraphs of each chapter file."""
    for file in _files(path, ".xhtml"):
        text = file.read_text(encoding="utf-8")
        paragraphs = re.findall(r"<(p|h2)\b[^>]*>(.*?)</\1>", text, flags=re.DOTALL)
        plain = (
            html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", inner))).strip() for _, inner in paragraphs
        )
        lines = [line for line in plain if line]
        if lines:
            yield "\n".join(lines)


def read_star(path: Path) -> Iterator[str]:
    """RasaHQ/STAR's dialogues: one JSON file per dialogue, with the turns of users and wizards in "Events"."""
    speakers = {"User": "User", "Wizard": "System"}
    for file in _files(path, ".json"):
        turns = [
            f"{speakers[event['Agent']]}: {event['Text'].strip()}"
            for event in _json(file).get("Events", [])
            if event.get("Agent") in speakers and event.get("Text")
        ]
        if turns:
            yield "\n".join(turns)


def read_taskmaster(path: Path) -> Iterator[str]:
    """Taskmaster's dialogues: JSON lists of conversations, whose "utterances" have a speaker and a text."""
    speakers = {"USER": "User", "user": "User", "ASSISTANT": "System", "assistant": "System"}
    for file in _files(path, ".json"):
        for conversation in _json(file):
            turns = [
                f"{speakers[turn['speaker']]}: {turn['text'].strip()}"
                for turn in conversation.get("utterances", [])
                if turn.get("speaker") in speakers and turn.get("text", "").strip()
            ]
            if turns:
                yield "\n".join(turns)


def read_json_files(path: Path) -> Iterator[str]:
    """The JSON documents of a folder."""
    for file in _files(path, ".json"):
        yield file.read_text(encoding="utf-8")


def _files(path: Path, suffix: str) -> list[Path]:
    files = [path] if path.is_file() else sorted(path.rglob(f"*{suffix}"))
    if not files:
        raise InvalidArgument(f"{path} has no {suffix} file")
    return files


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"{file} is not JSON: {error}") from None


SOURCES: Mapping[str, Source] = {
    source.name: source
    for source in (
        Source("tatoeba", "sentences", "CC BY 2.0 FR", "the contributors of tatoeba.org", read_tatoeba),
        Source("commonvoice", "sentences", "CC0", "Mozilla Common Voice", read_lines),
        Source("storybooks", "prose", "CC BY", "African Storybook, Pratham Books", read_markdown_stories),
        Source("ebooks", "prose", "CC0", "Standard Ebooks: children's books in the public domain", read_ebooks),
        Source("star", "dialogue", "MIT", "RasaHQ/STAR", read_star),
        Source("taskmaster", "dialogue", "CC BY 4.0", "Taskmaster-4, Google Research", read_taskmaster),
        Source("corpora", "json", "CC0", "dariusk/corpora", read_json_files),
        Source("schemastore", "json", "Apache-2.0", "SchemaStore's test files", read_json_files),
    )
}

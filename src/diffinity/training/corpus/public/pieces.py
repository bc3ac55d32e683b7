"""Cuts public documents into training documents: sentences, short passages, dialogue turns, JSON values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from diffinity.training.corpus.public.readers import Form

LONGEST = 260  # maximum number of characters of a passage, about 64 tokens
LONGEST_JSON = 330  # maximum number of characters of a JSON document
_SENTENCE_END = re.compile(
    r"(?<!\bMr\.)(?<!\bMrs\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bSt\.)(?<=[.!?])(?=\s)|(?<=[.!?][\"'])(?=\s+[\"'A-Z])"
)


def pieces(text: str, form: Form) -> Iterator[str]:
    """The training documents of one public document.

    >>> list(pieces("One day it rained. The goat ran home.", "prose"))
    ['One day it rained.', 'One day it rained. The goat ran home.', 'The goat ran home.']
    """
    if form == "sentences":
        if len(text) <= LONGEST:
            yield text
    elif form == "prose":
        for paragraph in text.split("\n"):
            yield from _passages(sentences_of(paragraph))
    elif form == "dialogue":
        yield from _turns(text.split("\n"))
    else:
        yield from _json_values(text)


def sentences_of(paragraph: str) -> list[str]:
    """The sentences of a paragraph.

    >>> sentences_of('"Who is it?" asked Mr. Fox. "Me!" said the hen.')
    ['"Who is it?" asked Mr. Fox.', '"Me!" said the hen.']
    """
    parts = [part.strip() for part in _SENTENCE_END.split(paragraph) if part and part.strip()]
    sentences: list[str] = []
    for part in parts:
        # A part inside an open quotation or with a lower-case initial continues the previous sentence.
        if sentences and (sentences[-1].count('"') % 2 or part[0].islower()):
            sentences[-1] += " " + part
        else:
            sentences.append(part)
    return sentences


def _passages(sentences: list[str]) -> Iterator[str]:
    """All passages of one to three adjacent sentences that are short enough."""
    for start in range(len(sentences)):
        for count in (1, 2, 3):
            passage = " ".join(sentences[start : start + count])
            if start + count <= len(sentences) and len(passage) <= LONGEST:
                yield passage


def _turns(lines: list[str]) -> Iterator[str]:
    """All pairs of a user's turn and its answer, and two such pairs in a row, that are short enough."""
    for start, line in enumerate(lines):
        if not line.startswith("User: "):
            continue
        for count in (2, 4):
            exchange = "\n".join(lines[start : start + count])
            if start + count <= len(lines) and len(exchange) <= LONGEST:
                yield exchange


def _json_values(text: str) -> Iterator[str]:
    """The document if it is short, otherwise the short objects and lists inside it."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return
    yield from _short_values(value)


def _short_values(value: Any) -> Iterator[str]:
    if not isinstance(value, dict | list) or not value:
        return
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= LONGEST_JSON:
        yield text
    else:
        for member in value.values() if isinstance(value, dict) else value:
            yield from _short_values(member)

"""Quality of unconstrained texts: perplexity under another model, parsing, diversity, memorisation."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from diffinity.models.transformer import AutoregressiveLM
from diffinity.training.corpus.public.names import one_name

STRUCTURED = re.compile(r"[][{}<>=_/|@#\\:]|\d\d|^[-*\d]|\n[-*\d]")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"']?\s+")


@dataclass(frozen=True)
class Quality:
    """Measures of some texts; a value is NaN or None if there was nothing to count or no judge."""

    texts: int
    perplexity: float  # geometric mean over all tokens, end tokens included
    held_out_perplexity: float
    json_like: int  # texts that begin with a brace
    json_parsed: float | None  # the share of these texts that parse
    english: int  # texts without the marks of structured text
    distinct_2: float  # of the English texts: share of distinct word pairs among all pairs
    held_out_distinct_2: float  # of the same number of held-out documents
    known_sentences: float  # of the English texts: share of sentences in the training text, except for names


def quality(
    texts: Sequence[str], held_out: Sequence[str], judge: AutoregressiveLM | None, training: Iterable[str]
) -> Quality:
    """Measure `texts`, and held-out documents for comparison.

    `training` is read once, to look for the texts' sentences; without a `judge` there is no perplexity.
    """
    json_texts = [text for text in texts if text.lstrip().startswith("{")]
    english = english_only(texts)
    return Quality(
        texts=len(texts),
        perplexity=perplexity(judge, texts) if judge else math.nan,
        held_out_perplexity=perplexity(judge, held_out) if judge else math.nan,
        json_like=len(json_texts),
        json_parsed=sum(map(parses, json_texts)) / len(json_texts) if json_texts else None,
        english=len(english),
        distinct_2=distinct_2(english),
        held_out_distinct_2=distinct_2(english_only(held_out)[: len(english)]),
        known_sentences=known_share(english, training),
    )


def english_only(texts: Iterable[str]) -> list[str]:
    """The texts of at least two words without the characters of structured text.

    >>> english_only(["It rains.", '{"a": 1}', "a = 2", "Hi"])
    ['It rains.']
    """
    return [text for text in texts if " " in text and not STRUCTURED.search(text)]


def perplexity(judge: AutoregressiveLM, texts: Sequence[str]) -> float:
    """exp of the mean nats per token of all texts, each with its end token; an empty text counts as one token."""
    nats, count = 0.0, 0
    for text in texts:
        ids = [*judge.tokenizer.encode(text).ids, judge.eos_token_id]
        nats -= float(judge.log_probs(torch.tensor([ids])).sum())
        count += len(ids)
    return math.exp(nats / count)


def parses(text: str) -> bool:
    """Whether a text is one JSON value.

    >>> parses('{"a": 1}'), parses('{"a": 1')
    (True, False)
    """
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True


def distinct_2(texts: Sequence[str]) -> float:
    """The share of distinct pairs of neighbouring words among all pairs.

    >>> distinct_2(["a b a b"])
    0.6666666666666666
    """
    pairs = [pair for text in texts for pair in zip(text.split(), text.split()[1:], strict=False)]
    return len(set(pairs)) / max(1, len(pairs))


def sentences(text: str) -> list[str]:
    """The sentences of a text that have at least four words.

    >>> sentences("No. This one is long enough. So is this one here!")
    ['This one is long enough.', 'So is this one here!']
    """
    return [part for part in SENTENCE_END.split(text.strip()) if len(part.split()) >= 4]


def known_share(texts: Sequence[str], training: Iterable[str]) -> float:
    """The share of the texts' sentences that occur in the training documents, verbatim except for names.

    >>> known_share(["The cat sat down. The dog ran away."], ["So it was. The cat sat down."])
    0.5
    """
    all_sentences = [one_name(sentence) for text in texts for sentence in sentences(text)]
    unseen = set(all_sentences)
    for document in training:
        unseen.difference_update(map(one_name, sentences(document)))
    return sum(sentence not in unseen for sentence in all_sentences) / max(1, len(all_sentences))

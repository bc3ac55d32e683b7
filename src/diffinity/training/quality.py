"""What a language model's free writing is worth: perplexity under another model, parsing, variety, memory."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from diffinity.models.transformer import AutoregressiveLM

SENTENCE_END = re.compile(r"(?<=[.!?])[\"']?\s+")


@dataclass(frozen=True)
class Quality:
    """Measures of some texts; shares are None where there was nothing to count."""

    texts: int
    perplexity: float  # geometric mean over all tokens, end tokens included
    held_out_perplexity: float
    json_like: int  # texts that begin with a brace
    json_parsed: float | None  # the share of those that parse
    distinct_2: float  # different pairs of neighbouring words over all pairs
    held_out_distinct_2: float
    known_sentences: float  # the share of sentences that stand word for word in the training text


def quality(
    texts: Sequence[str], held_out: Sequence[str], judge: AutoregressiveLM, training: Iterable[str]
) -> Quality:
    """Measure `texts` beside documents that no model has seen.

    `training` is read once, as far as one wishes to look for the texts' sentences.
    """
    begun = [text for text in texts if text.lstrip().startswith("{")]
    return Quality(
        texts=len(texts),
        perplexity=perplexity(judge, texts),
        held_out_perplexity=perplexity(judge, held_out),
        json_like=len(begun),
        json_parsed=sum(map(parses, begun)) / len(begun) if begun else None,
        distinct_2=distinct_2(texts),
        held_out_distinct_2=distinct_2(held_out[: len(texts)]),
        known_sentences=known_share(texts, training),
    )


def perplexity(judge: AutoregressiveLM, texts: Sequence[str]) -> float:
    """exp of the mean nats per token of all texts, each with its end token; those without a token count as one."""
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
    """Different pairs of neighbouring words over all pairs.

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
    """The share of the texts' sentences that stand word for word in the training documents.

    >>> known_share(["The cat sat down. The dog ran away."], ["So it was. The cat sat down."])
    0.5
    """
    wanted = [sentence for text in texts for sentence in sentences(text)]
    open_ones = set(wanted)
    for document in training:
        open_ones.difference_update(sentences(document))
    return sum(sentence not in open_ones for sentence in wanted) / max(1, len(wanted))

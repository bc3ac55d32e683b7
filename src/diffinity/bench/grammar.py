"""An independent judge of English sentences: the parser of link-grammar and the dictionaries of hunspell.

Both are independent of our models and their training text. They check grammar and spelling, not meaning. Both are
external programs (`apt-get install link-grammar link-grammar-dictionaries-en hunspell hunspell-en-us
hunspell-en-gb`). If they are not installed, nothing is measured.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise

from diffinity.errors import DiffinityError

PROGRAMS = ("link-parser", "hunspell")
MAX_WORDS = 30  # longer sentences are not parsed
SENTENCES_PER_PROCESS = 200  # that one process of the parser reads
PARSE_SECONDS = 4  # per sentence

_PLAIN = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": " - ", "…": "...", "\u00a0": " "})
_SENTENCE_END = re.compile(
    r"(?<!\bMr\.)(?<!\bMrs\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bSt\.)(?<! [A-Z]\.)"
    r"(?:(?<=[.!?])|(?<=[.!?][\"')]))\s+(?=[\"'(]*[A-Z0-9])"
)
_WORD = re.compile(r"[A-Za-z][A-Za-z']*[A-Za-z]|[A-Za-z]")
_NO_WORD = re.compile(r"\d|@|//|\.\w")
_VERDICT = re.compile(r"^(No complete linkages found|Found \d+ linkages? \((\d+) )", re.MULTILINE)
_MAY_DOUBLE = frozenset(
    ("had", "that", "very", "bye", "no", "so", "ha", "really", "many", "well", "there", "now", "big", "far")
)


class JudgeFailed(DiffinityError):
    """The parser or the dictionary ended with an error."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on one sentence. `parsed` is None for a sentence too short or too long to be parsed."""

    sentence: str
    words: int
    non_words: tuple[str, ...]
    doubled: int  # words that are repeated immediately
    parsed: bool | None

    @property
    def clean(self) -> bool | None:
        """Fully parsed, without a non-word or a doubled word."""
        return None if self.parsed is None else self.parsed and not self.non_words and not self.doubled


@dataclass(frozen=True)
class GrammarCounts:
    """Counts over the sentences of some texts, and shares; NaN if nothing was counted.

    >>> verdicts = [Verdict("It rains.", 2, (), 0, True), Verdict("It rains rains.", 3, (), 1, True)]
    >>> counts = GrammarCounts.of(verdicts)
    >>> counts.clean_share, (counts + counts).sentences
    (0.5, 4)
    """

    sentences: int = 0  # with a suitable length for the parser
    parsed: int = 0  # completely
    clean: int = 0  # parsed, without a non-word or a doubled word
    words: int = 0
    non_words: int = 0  # in no dictionary

    @classmethod
    def of(cls, verdicts: Sequence[Verdict]) -> GrammarCounts:
        judged = [verdict for verdict in verdicts if verdict.parsed is not None]
        return cls(
            len(judged),
            sum(bool(verdict.parsed) for verdict in judged),
            sum(bool(verdict.clean) for verdict in judged),
            sum(verdict.words for verdict in verdicts),
            sum(len(verdict.non_words) for verdict in verdicts),
        )

    def __add__(self, other: GrammarCounts) -> GrammarCounts:
        return GrammarCounts(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def parsed_share(self) -> float:
        return self.parsed / self.sentences if self.sentences else math.nan

    @property
    def clean_share(self) -> float:
        return self.clean / self.sentences if self.sentences else math.nan

    @property
    def non_word_share(self) -> float:
        return self.non_words / self.words if self.words else math.nan


def available() -> bool:
    """Whether the parser and the dictionary are installed."""
    return all(shutil.which(program) for program in PROGRAMS)


def sentences(text: str) -> list[str]:
    """The sentences of a text, one or more per line; the names of speakers are removed.

    >>> sentences("User: Hello there. How are you?")
    ['Hello there.', 'How are you?']
    """
    text_sentences = []
    for line in text.translate(_PLAIN).splitlines():
        utterance = re.sub(r"^(User|System|Assistant):\s*", "", line.strip())
        for part in _SENTENCE_END.split(utterance):
            sentence = part.strip()
            if sentence.count('"') % 2:  # the parser fails on an unpaired quotation mark
                sentence = sentence.strip("\"'").strip()
            if re.search("[A-Za-z]", sentence):
                text_sentences.append(sentence)
    return text_sentences


def judge(texts: Sequence[str]) -> list[list[Verdict]]:
    """The verdicts on the sentences of each text; `available()` must hold."""
    sentences_of_texts = [sentences(text) for text in texts]
    unique_sentences = list(
        dict.fromkeys(sentence for text_sentences in sentences_of_texts for sentence in text_sentences)
    )
    words = {sentence: _words(sentence) for sentence in unique_sentences}
    unknown = _misspelt(
        {form for sentence_words in words.values() for word in sentence_words for form in _forms(word)}
    )
    to_parse = [sentence for sentence in unique_sentences if 1 < len(words[sentence]) <= MAX_WORDS]
    parsed = dict(zip(to_parse, _parse(to_parse), strict=True))
    verdicts = {
        sentence: Verdict(
            sentence,
            len(sentence_words),
            tuple(word for word in sentence_words if _forms(word) <= unknown),
            _doubled(sentence_words),
            parsed.get(sentence),
        )
        for sentence, sentence_words in words.items()
    }
    return [[verdicts[sentence] for sentence in text_sentences] for text_sentences in sentences_of_texts]


def _words(sentence: str) -> list[str]:
    """The words of a sentence, without addresses and words with digits."""
    return [word for token in sentence.split() if not _NO_WORD.search(token) for word in _WORD.findall(token)]


def _forms(word: str) -> set[str]:
    """The spellings of a word to look up: unchanged, in lower case, without a genitive."""
    stem = re.sub(r"'s$|'$", "", word)
    return {word, word.lower(), stem, stem.lower()}


def _doubled(words: Sequence[str]) -> int:
    lower = [word.lower() for word in words]
    return sum(a == b and a not in _MAY_DOUBLE for a, b in pairwise(lower))


def _misspelt(words: set[str]) -> set[str]:
    """The words that are in neither the American nor the British dictionary."""
    if not words:
        return set()
    command = ["hunspell", "-d", "en_US,en_GB", "-l", "-i", "utf-8"]
    return set(_run(command, "\n".join(sorted(words)) + "\n").split("\n")) - {""}


def _parse(sentence_list: Sequence[str]) -> list[bool | None]:
    """Whether each sentence has a complete parse; None if the parser gave up."""
    return [
        verdict
        for first in range(0, len(sentence_list), SENTENCES_PER_PROCESS)
        for verdict in _parse_some(sentence_list[first : first + SENTENCES_PER_PROCESS])
    ]


def _parse_some(sentence_list: Sequence[str]) -> list[bool | None]:
    """Parse sentences together; if the parser runs out of time, divide them and parse each half."""
    verdicts = _parse_together(sentence_list)
    if len(verdicts) == len(sentence_list):
        return verdicts
    if len(sentence_list) == 1:
        return [None]
    middle = len(sentence_list) // 2
    return _parse_some(sentence_list[:middle]) + _parse_some(sentence_list[middle:])


def _parse_together(batch: Sequence[str]) -> list[bool | None]:
    options = ["-verbosity=1", "-null=0", "-graphics=0", "-limit=50", f"-timeout={PARSE_SECONDS}", "-spell=0"]
    lines = [sentence.replace("\n", " ").lstrip("!%*") for sentence in batch]  # these characters begin a command
    output = _run(["link-parser", "en", *options], "\n".join(lines) + "\n")
    return [match.group(2) not in (None, "0") for match in _VERDICT.finditer(output)]


def _run(command: list[str], text: str) -> str:
    process = subprocess.run(
        command, input=text, capture_output=True, text=True, encoding="utf-8", errors="replace"
    )
    if process.returncode:
        raise JudgeFailed(f"{command[0]} ended with {process.returncode}: {process.stderr.strip()[-300:]}")
    return process.stdout

"""Plain-English documents from skeletons: one line with typed slots becomes many correct short texts.

A slot is `{name}` or `{name.form}`: `{A.intro}`, `{thing.a}`, `{Time}`. The first letter of the name or of
the form, when capital, asks for a capital in the text. `[big|large|]` picks one of its alternatives.
"""

import random
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import accumulate
from typing import Literal

from diffinity.training.corpus import fillers
from diffinity.training.corpus.fillers import Entry, article

Split = Literal["train", "validation"]

HELD_OUT_PERCENT = 3
COMMON = 3.0  # a filler's place in its list is a uniform draw to this power: the head is common, the tail rare
LEVELLED = 60  # how many of the shortest skeletons have about the same chance
RARER = 1.5  # the exponent with which the chance falls after those

_PRONOUN_FORMS = frozenset({"he", "him", "his", "himself"})
_CHARACTER_FORMS = _PRONOUN_FORMS | {"", "the", "intro"}
_NOUN_FORMS = frozenset({"", "a", "the", "pl"})
_PLACE_FORMS = frozenset({"", "in", "to", "the", "a"})

# Every slot: the kind of its filler, and the forms that this kind has.
_SLOTS: Mapping[str, tuple[str, frozenset[str]]] = {
    **dict.fromkeys(("A", "B", "C"), ("character", _CHARACTER_FORMS)),
    **dict.fromkeys(("P", "Q"), ("person", _CHARACTER_FORMS)),
    **dict.fromkeys(("thing", "thing2"), ("thing", _NOUN_FORMS)),
    **dict.fromkeys(("place", "place2"), ("place", _PLACE_FORMS)),
    **dict.fromkeys(("food", "food2"), ("food", frozenset({"", "the"}))),
    **dict.fromkeys(("animal", "animal2"), ("animal", _NOUN_FORMS)),
    **dict.fromkeys(("job", "job2"), ("job", _NOUN_FORMS)),
    **dict.fromkeys(("feeling", "feeling2"), ("feeling", frozenset({"", "a"}))),
    **dict.fromkeys(("adj", "adj2"), ("adj", frozenset({"", "a"}))),
    **dict.fromkeys(("color", "color2"), ("color", frozenset({"", "a"}))),
    **dict.fromkeys(("number", "number2"), ("number", frozenset({"", "a"}))),
    **dict.fromkeys(("day", "day2"), ("day", frozenset({""}))),
    **dict.fromkeys(("month", "month2"), ("month", frozenset({""}))),
    "season": ("season", frozenset({""})),
    "time": ("time", frozenset({""})),
    "weather": ("weather", frozenset({""})),
}
_ENTRIES: Mapping[str, tuple[Entry, ...]] = {
    "person": fillers.NAMES,
    "thing": fillers.THINGS,
    "place": fillers.PLACES,
    "food": fillers.FOODS,
    "animal": fillers.ANIMALS,
    "job": fillers.JOBS,
    "feeling": fillers.FEELINGS,
    "adj": fillers.CHARACTER,
    "color": fillers.COLORS,
    "number": fillers.NUMBERS,
    "day": fillers.DAYS,
    "month": fillers.MONTHS,
    "season": fillers.SEASONS,
    "opening time": fillers.OPENING_TIMES,
    "time": fillers.TIMES,
    "weather": fillers.WEATHER,
}
# The casts of a story: who its characters may be. Most stories keep to one kind.
_CASTS: tuple[tuple[tuple[Entry, ...], ...], ...] = (
    (fillers.NAMES,),
    (fillers.NAMES, fillers.ROLES),
    (fillers.ROLES,),
    (fillers.ANIMAL_CHARACTERS,),
    (fillers.ANIMAL_CHARACTERS,),
    (fillers.NAMES, fillers.ROLES, fillers.ANIMAL_CHARACTERS),
)
_DESCRIBED_SHARE = 0.75
_DRAWS = 60

_TOKEN = re.compile(r"\{([^{}\[\]|]*)\}|\[([^\[\]]*)\]|([{}\[\]|])")
_SLOT_TEXT = re.compile(r"\{[^}]*\}")
_ARTICLE_BEFORE_SLOT = re.compile(r"(?:^|(?<=[\s\"(]))([Aa])n? $")
# A stop or a quotation mark that opens a sentence; a mark that closes one ('"Yes!" {A} said') does not match.
_SENTENCE_START = re.compile(r"(?:^|[.!?] )\"?$")


class SkeletonError(ValueError):
    """A skeleton that cannot be read; the message names its line."""


@dataclass(frozen=True)
class Slot:
    """A place in the text for one form of one filler."""

    name: str
    kind: str
    form: str
    capital: bool


@dataclass(frozen=True)
class Article:
    """An indefinite article whose sound depends on the word that comes next."""

    capital: bool


@dataclass(frozen=True)
class Choice:
    """Alternatives, of which each document has one."""

    alternatives: tuple[tuple["Part", ...], ...]


Part = str | Slot | Article | Choice


@dataclass(frozen=True)
class Template:
    """A parsed skeleton: its line, its parts in order, and its fixed words, which no filler repeats."""

    source: str
    parts: tuple[Part, ...]
    words: frozenset[str]


@dataclass
class _Cast:
    """The fillers chosen so far for one document."""

    rng: random.Random
    used: set[str]
    characters: tuple[tuple[Entry, ...], ...]
    avoided: set[str] = field(default_factory=set)
    chosen: dict[str, Entry] = field(default_factory=dict)

    def entry(self, slot: Slot) -> Entry:
        """The filler of the slot, drawn at its first use in the document."""
        if slot.name not in self.chosen:
            self.chosen[slot.name] = self._draw(slot.kind)
        return self.chosen[slot.name]

    def _draw(self, kind: str) -> Entry:
        candidates = self.rng.choice(self.characters) if kind == "character" else _ENTRIES[kind]
        # The fixed words may name every season: then the last draw stands.
        for _ in range(_DRAWS):
            entry = candidates[int(len(candidates) * self.rng.random() ** COMMON)]
            if self._fits(entry):
                break
        if entry.adjectives and self.rng.random() < _DESCRIBED_SHARE:
            fresh = [adjective for adjective in entry.adjectives if adjective not in self.used]
            entry = entry.with_adjective(self.rng.choice(fresh)) if fresh else entry
        self.used |= entry.keys
        self.avoided |= entry.avoid
        return entry

    def _fits(self, entry: Entry) -> bool:
        return (
            self.used.isdisjoint(entry.keys)
            and self.used.isdisjoint(entry.avoid)
            and self.avoided.isdisjoint(entry.keys)
        )


def parse(line: str, location: str = "skeleton") -> Template:
    """Read a skeleton line; `location` (file and line number) is for the error message.

    >>> parse("{A.Intro} ate [some|all the] {food}.").parts[0]
    Slot(name='A', kind='character', form='intro', capital=True)
    """
    words = frozenset(re.findall(r"[a-z]+", _SLOT_TEXT.sub(" ", line).lower()))
    return Template(line, _parts(line, "", f"{location}: {line}"), words)


def _parts(text: str, before: str, where: str) -> tuple[Part, ...]:
    """The parts of `text`, where `before` is what precedes it, each slot in it written as `x`."""
    parts: list[Part] = []
    position = 0
    for match in _TOKEN.finditer(text):
        literal = text[position : match.start()]
        position = match.end()
        before += literal
        parts += _with_article_open(literal)
        slot, alternatives, stray = match.groups()
        if stray:
            raise SkeletonError(f"stray {stray!r} in {where}")
        if slot is not None:
            parts.append(_slot(slot, before, where))
            before += "x." if slot == "weather" else "x"
        else:
            choices = alternatives.split("|")
            parts.append(Choice(tuple(_parts(choice, before, where) for choice in choices)))
            before += _SLOT_TEXT.sub("x", next((choice for choice in choices if choice), ""))
    parts.append(text[position:])
    return tuple(part for part in parts if part != "")


def _with_article_open(literal: str) -> list[Part]:
    """The literal before a slot, its last word left to be a or an by what comes next."""
    match = _ARTICLE_BEFORE_SLOT.search(literal)
    if match is None:
        return [literal]
    return [literal[: match.start()], Article(capital=match.group(1) == "A"), " "]


def _slot(text: str, before: str, where: str) -> Slot:
    written, dot, written_form = text.partition(".")
    name = written if written in _SLOTS else written.lower()
    if name not in _SLOTS:
        raise SkeletonError(f"unknown slot {{{text}}} in {where}")
    kind, forms = _SLOTS[name]
    form = "" if written_form == "Cap" else written_form.lower()
    if form not in forms or (dot and not written_form):
        raise SkeletonError(f"slot {{{name}}} has no form {written_form!r}, in {where}")
    if kind == "time" and not re.search(r"[.!?]", before):
        kind = "opening time"
    asked = written != name or written_form[:1].isupper()
    return Slot(name, kind, form, capital=asked or _SENTENCE_START.search(before) is not None)


def render(template: Template, rng: random.Random) -> str:
    """One document from the template.

    >>> render(parse("{P} lost {P.his} hat."), random.Random(3)).endswith(" hat.")
    True
    """
    cast = _Cast(rng, set(template.words), rng.choice(_CASTS))
    texts = list(_texts(template.parts, cast))
    for index, text in enumerate(texts):
        if text in ("\0a", "\0A"):
            following = "".join(texts[index + 1 : index + 4]).strip()
            texts[index] = article(following).capitalize() if text == "\0A" else article(following)
    return "".join(texts)


def _texts(parts: tuple[Part, ...], cast: _Cast) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Slot):
            text = cast.entry(part).forms[part.form]
            yield text[:1].upper() + text[1:] if part.capital else text
        elif isinstance(part, Article):
            yield "\0A" if part.capital else "\0a"
        else:
            yield from _texts(cast.rng.choice(part.alternatives), cast)


def is_held_out(line: str) -> bool:
    """Whether a skeleton belongs to the validation split, by a hash of its text that never changes.

    >>> is_held_out("There is no place like home.")
    False
    """
    return zlib.crc32(line.encode()) % 100 < HELD_OUT_PERCENT


@cache
def load_skeletons(split: Split) -> tuple[Template, ...]:
    """All skeletons of a split, from the `skeletons` folder of this package.

    >>> len(load_skeletons("train")) > 10 * len(load_skeletons("validation"))
    True
    """
    held_out = {"train": False, "validation": True}[split]
    templates: dict[str, Template] = {}
    for file in sorted((files(__package__) / "skeletons").iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".txt"):
            continue
        for number, raw in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            line = raw.strip()
            if line and not line.startswith("#") and is_held_out(line) == held_out:
                templates.setdefault(line, parse(line, f"{file.name}:{number}"))
    return tuple(templates.values())


def plain_length(line: str) -> int:
    """About how long the texts of a skeleton are: a slot counts five letters, a choice its first alternative.

    >>> plain_length("{P} ate [some|all the] {food.the}.")
    21
    """
    return len(_SLOT_TEXT.sub("xxxxx", re.sub(r"\[([^|\]]*)[^\]]*\]", r"\1", line)))


def english_documents(rng: random.Random, split: Split) -> Iterator[str]:
    """Documents without end: the r-th shortest skeleton with a chance of (r + LEVELLED)^−RARER, always new words.

    As in any language few forms are frequent and most are rare: a small network learns to write the former
    well long before it has seen enough of the latter, and short sentences before stories.

    >>> len([text for text, _ in zip(english_documents(random.Random(0), "train"), range(3))])
    3
    """
    templates = sorted(load_skeletons(split), key=lambda one: (plain_length(one.source), one.source))
    chances = list(accumulate((rank + LEVELLED) ** -RARER for rank in range(len(templates))))
    while True:
        yield render(rng.choices(templates, cum_weights=chances)[0], rng)

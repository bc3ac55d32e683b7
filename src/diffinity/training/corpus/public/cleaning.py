"""Filters for training documents: plain characters, no private data, nothing offensive, known words only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from diffinity.training.corpus.public.readers import Form

_PLAIN = str.maketrans(
    {"“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": " - ", "…": "...", "\u00a0": " ", "\t": " ", "\r": ""}
)
_WRITABLE = re.compile(r"[ -~\n]*")
_PRIVATE = re.compile(
    r"@|https?:|www\.|\d[\d\s-]{5,}\d|\bPIN\b|\bpassword\b|\baccount number\b|\bssn\b", re.IGNORECASE
)

# Stems: a document is left out if a word begins with a stem or, for a stem with "=", is equal to it.
_OFFENSIVE = """
abort abus anal= ass= asses= asshole bastard bitch blowjob bomb bondage boob bra= breast brothel bullshit butt=
cannib cock= cocks= cocaine condom corpse crap crucif cunt damn dead= decapit dick= dicks= drug drunk dyke= erect=
erection ejacul execut= executed= fag fart fascis= fatso fuck gay= gays= genital genocid gore= gun= gunm guns=
gunshot hang= hanged= hell= heroin= hitler holocaust homosex hooker horny incest infidel islamist jerk= jihad
kidnap kill lesbian lynch massacr masturb molest moron= morons= murder naked nazi negro nigg nude nudi orgasm
orgy pedo peni= penis pimp piss poison= poisoned= poop porn prostitut pussy queer racis rape= raped= raper rapist
retard satan scum sex shit shoot= shot= slaughter slave slut sodom spastic stab= stabb= stabbed= strangl stupid
suicid terroris tits= tortur trannie tranny transgender turd vagina virgin= virgins= viagra whore zionis
"""


def _offensive_pattern() -> re.Pattern[str]:
    stems = _OFFENSIVE.split()
    words = "|".join(stem[:-1] for stem in stems if stem.endswith("="))
    prefixes = "|".join(stem for stem in stems if not stem.endswith("="))
    return re.compile(rf"\b(?:(?:{words})\b|(?:{prefixes}))", re.IGNORECASE)


_OFFENSIVE_WORD = _offensive_pattern()
WORD = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)?")


def plain(text: str) -> str:
    """The text with plain quotes and dashes and single spaces, without spaces at the ends of lines.

    >>> plain("“Come  in,” he said…")
    '"Come in," he said...'
    """
    lines = (re.sub(r" {2,}", " ", line).strip() for line in text.translate(_PLAIN).split("\n"))
    return "\n".join(line for line in lines if line)


def acceptable(text: str) -> bool:
    """Whether a text may be trained on: ASCII, quotes in pairs, nothing private, nothing offensive.

    >>> acceptable("Call me at 555-123-4567."), acceptable("The river is wide.")
    (False, True)
    """
    return (
        _WRITABLE.fullmatch(text) is not None
        and text.count('"') % 2 == 0
        and _PRIVATE.search(text) is None
        and _OFFENSIVE_WORD.search(text) is None
    )


_WORD_OR_MARK = re.compile(r"[a-z0-9']+|[^\sa-z0-9']")
_SENTENCE = re.compile(r"""["']?[A-Z0-9].*\w.*[.!?]["')]?""", re.DOTALL)
_EXCHANGE = re.compile(r"(?:(?:User|System): [A-Z0-9][^\n_]*[.!?](?:\n|$))+")


def well_formed(text: str, form: Form) -> bool:
    """Whether a text, or every turn of a dialogue, begins and ends like a sentence; always True for JSON.

    >>> well_formed("It rains.", "prose"), well_formed("page 4", "prose"), well_formed("User: ok", "dialogue")
    (True, False, False)
    """
    if form == "json":
        return True
    return (_EXCHANGE if form == "dialogue" else _SENTENCE).fullmatch(text) is not None


def json_shape(text: str) -> str:
    """The member names of a JSON text, in order: equal for documents that differ only in their values.

    >>> json_shape('{"a": "x", "b": 1}') == json_shape('{"a": "y", "b": 22}')
    True
    """
    return ",".join(re.findall(r'"[^"]*"(?=\s*:)', text)) or "[]"


def word_counts(texts: Iterable[str]) -> Counter[str]:
    """The number of occurrences of every word, in lower case.

    >>> word_counts(["The cat.", "the end"])["the"]
    2
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(WORD.findall(text))
    lower: Counter[str] = Counter()
    for word, count in counts.items():
        lower[word.lower()] += count
    return lower


def only_known_words(text: str, known: frozenset[str]) -> bool:
    """Whether every word of a text is known.

    >>> only_known_words("The cat.", frozenset(["the"]))
    False
    """
    return all(word.lower() in known for word in WORD.findall(text))


def word_triples(text: str) -> list[tuple[str, str, str]]:
    """All triples of adjacent words or marks, in lower case, with an empty string at the start and the end.

    >>> word_triples("It rains.")
    [('', 'it', 'rains'), ('it', 'rains', '.'), ('rains', '.', '')]
    """
    words = ["", *_WORD_OR_MARK.findall(text.lower()), ""]
    return list(zip(words, words[1:], words[2:], strict=False))


def duplicate_key(text: str) -> str:
    """A key that is equal for texts that differ only in case, punctuation or white space.

    >>> duplicate_key("Go away!") == duplicate_key("Go away.")
    True
    """
    return " ".join(re.findall(r"[a-z0-9']+", text.lower()))

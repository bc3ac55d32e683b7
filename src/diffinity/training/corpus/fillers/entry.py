"""What a slot is filled with: an entry with its written forms, and the words it must not stand next to."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

# Spelling and sound disagree on these; everything else goes by its first letter.
_VOWEL_SOUND = re.compile(r"(?:[aeiou]|hour|honest|hono|heir|8|11\b|18\b)", re.IGNORECASE)
_CONSONANT_SOUND = re.compile(r"(?:uni(?![nmd])|us[eau]|uku|ut[ei]n|util|eu|ewe|one\b|once\b)", re.IGNORECASE)

_PRONOUNS = {
    "he": {"he": "he", "him": "him", "his": "his", "himself": "himself"},
    "she": {"he": "she", "him": "her", "his": "her", "himself": "herself"},
    "it": {"he": "it", "him": "it", "his": "its", "himself": "itself"},
}


@dataclass(frozen=True)
class Entry:
    """One filler: its forms by name ("" is the bare form), and what tells it apart from the others.

    `keys` are the words that this entry puts on the page: no other filler and no fixed word of the
    skeleton may share one. `avoid` are words that would contradict it (snow, in July). An entry with
    `adjectives` gets its `described` form ("a", "intro") anew in each document, with one of them or none.
    """

    forms: Mapping[str, str]
    keys: frozenset[str]
    avoid: frozenset[str] = frozenset()
    described: str = ""
    adjectives: tuple[str, ...] = ()

    def with_adjective(self, adjective: str) -> "Entry":
        """The same entry, its described form starting with `adjective`."""
        phrase = with_article(f"{adjective} {self.forms['noun']}")
        return replace(self, forms={**self.forms, self.described: phrase}, keys=self.keys | {adjective})


def article(phrase: str) -> str:
    """The indefinite article by sound.

    >>> article("hour"), article("university"), article("umbrella")
    ('an', 'a', 'an')
    """
    return "an" if _VOWEL_SOUND.match(phrase) and not _CONSONANT_SOUND.match(phrase) else "a"


def with_article(phrase: str) -> str:
    """The phrase after its indefinite article.

    >>> with_article("old key")
    'an old key'
    """
    return f"{article(phrase)} {phrase}"


def pronouns(gender: str) -> Mapping[str, str]:
    """The pronoun forms of a gender, under the names of the masculine ones.

    >>> pronouns("she")["his"]
    'her'
    """
    return _PRONOUNS[gender]


def plural(noun: str) -> str:
    """The regular plural; irregular nouns carry theirs in the word list.

    >>> plural("fox"), plural("puppy"), plural("key")
    ('foxes', 'puppies', 'keys')
    """
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def listed(text: str) -> list[str]:
    """The items of a comma-separated word list, which may run over several lines.

    >>> listed('''red, dark
    ... blue''')
    ['red', 'dark blue']
    """
    return [" ".join(item.split()) for item in text.split(",") if item.strip()]


def noun_forms(item: str) -> dict[str, str]:
    """The forms of a count noun, written "noun" or "noun/irregular plural".

    >>> noun_forms("mouse/mice")["pl"], noun_forms("owl")["a"]
    ('mice', 'an owl')
    """
    noun, _, irregular = item.partition("/")
    many = irregular or plural(noun)
    return {"": noun, "noun": noun, "a": with_article(noun), "the": f"the {noun}", "pl": many}


def noun_keys(forms: Mapping[str, str]) -> frozenset[str]:
    """The words by which a noun is recognised: itself, its head and its plural's head."""
    noun, many = forms[""], forms["pl"]
    return frozenset({noun, noun.split()[-1], many.split()[-1]})


def plain_entries(words: Iterable[str]) -> tuple[Entry, ...]:
    """Entries with a bare form and the form after an article, as for adjectives.

    >>> plain_entries(["honest"])[0].forms["a"]
    'an honest'
    """
    return tuple(Entry({"": word, "a": with_article(word)}, frozenset({word})) for word in words)

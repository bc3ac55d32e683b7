"""The natural-language suite: 110 constraints from the paper's six sentence templates, drawn with a seed.

Words are case-insensitive. The list is the top of a web-scale frequency list, which is in lower case; taken
literally, "the first word is *the*" would require a sentence that begins with a small letter.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from diffinity.bench.cases import Case
from diffinity.constraints.sentences import Sentence, Template

_LIST = """
the of and to a in for is on that by this with i you it not or be are from at as your all have new more an was we
will home can us about if page my has search free but our one other do no information time they site he up may what
which their news out use any there see only so his when contact here business who web also now help get pm view
online c e first am been would how were me s services some these click its like service x than find
"""
WORDS = tuple(_LIST.split())
CASES_PER_TEMPLATE = 20
N_WORDS: dict[Template, int] = {"prefix": 1, "suffix": 1, "appearance": 2, "between-n": 2, "between": 2}
MAX_N: dict[Template, int] = {"prefix": 5, "suffix": 3, "between-n": 3}
LENGTHS = range(3, 13)  # ten word lengths, from common to rare


def natural_language_cases(seed: int = 0) -> list[Case]:
    """The 110 cases, all different: 20 of each template with words, and 10 word lengths.

    Positions and distances cycle from 1 to their maximum, so that all are equally frequent. Words are drawn
    uniformly from all 100; the two words of a pair always differ.

    >>> cases = natural_language_cases()
    >>> len(cases), cases[0].id
    (110, 'natural-language/prefix/01-have-1')
    """
    return [_case(k + 1, sentence) for group in _sentences(seed) for k, sentence in enumerate(group)]


def _sentences(seed: int) -> Iterator[list[Sentence]]:
    for template, n_words in N_WORDS.items():
        yield _distinct(template, n_words, seed)
    yield [Sentence("length", n=n) for n in LENGTHS]


def _distinct(template: Template, n_words: int, seed: int) -> list[Sentence]:
    """The first 20 distinct draws of a template."""
    rng = Random(f"{seed}/{template}")
    sentences: dict[object, Sentence] = {}
    while len(sentences) < CASES_PER_TEMPLATE:
        words = _draw(rng, n_words)
        largest = MAX_N.get(template)
        n = None if largest is None else 1 + len(sentences) % largest
        # For "appearance" the order of the two words does not matter: both orders are the same constraint.
        key = frozenset(words) if template == "appearance" else (words, n)
        sentences.setdefault(key, Sentence(template, words, n, ignore_case=True))
    return list(sentences.values())


def _draw(rng: Random, n: int) -> tuple[str, ...]:
    """`n` different words. Only `random()` is guaranteed to give the same numbers in every version of Python."""
    remaining = list(WORDS)
    return tuple(remaining.pop(int(rng.random() * len(remaining))) for _ in range(n))


def _case(number: int, sentence: Sentence) -> Case:
    parts = [*sentence.wanted, *([] if sentence.n is None else [str(sentence.n)])]
    name = f"natural-language/{sentence.template}/{number:02d}-{'-'.join(parts)}"
    return Case(name, sentence.template, sentence, "sentence", sentence.pattern())

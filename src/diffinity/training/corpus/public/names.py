"""Varies names in training text, because sentence collections use few: "Tom" is in a quarter of all sentences.

The stock names of a document are replaced whenever it is drawn. All occurrences of a name get the same
replacement.
"""

from __future__ import annotations

import re
from random import Random

STOCK_MEN = ("Tom", "Sami", "Ziri", "John", "Fadil", "Mennad", "Yanni", "Jim", "Ken", "Bob", "Dan")
STOCK_WOMEN = ("Mary", "Layla", "Alice", "Linda", "Rima", "Skura", "Jane", "Nancy", "Kate", "Emily")
MEN = (
    "Tom", "John", "Ben", "Daniel", "David", "Jack", "James", "Leo", "Mark", "Max", "Michael", "Oliver",
    "Paul", "Peter", "Robert", "Sam", "Simon", "Victor", "Alex", "Omar", "Luis", "Marco", "Henry", "Lucas",
    "Noah", "Ali", "Ravi", "Kenji", "George", "Adam",
)  # fmt: skip
WOMEN = (
    "Mary", "Anna", "Alice", "Clara", "Emma", "Eva", "Grace", "Jane", "Julia", "Karen", "Kate", "Laura",
    "Lena", "Lucy", "Maria", "Mia", "Nina", "Olivia", "Rosa", "Sara", "Sofia", "Susan", "Tina", "Zoe",
    "Linda", "Ella", "Nora", "Amina", "Mei", "Helen",
)  # fmt: skip
UNCHANGED_SHARE = 0.1  # share of the documents whose names are not replaced
_STOCK = re.compile(rf"\b({'|'.join((*STOCK_MEN, *STOCK_WOMEN))})\b")
_MEN = frozenset(STOCK_MEN)


def vary_names(text: str, rng: Random) -> str:
    """The text with its stock names replaced by random names.

    >>> vary_names("Tom likes Tom's dog.", Random(3))
    "Victor likes Victor's dog."
    """
    stock = dict.fromkeys(_STOCK.findall(text))
    if not stock or rng.random() < UNCHANGED_SHARE:
        return text
    replacements = dict(
        zip(
            (name for name in stock if name in _MEN),
            rng.sample(MEN, min(len(MEN), sum(name in _MEN for name in stock))),
            strict=False,
        )
    )
    women = [name for name in stock if name not in _MEN]
    replacements.update(zip(women, rng.sample(WOMEN, min(len(WOMEN), len(women))), strict=False))
    return _STOCK.sub(lambda match: replacements.get(match.group(), match.group()), text)


def without_names(text: str) -> str:
    """The text with Tom for each stock name of a man and Mary for each of a woman, to recognise duplicates.

    >>> without_names("Mary knows Ziri.") == without_names("Layla knows Tom.")
    True
    """
    return _STOCK.sub(lambda match: "Tom" if match.group() in _MEN else "Mary", text)


_ANY = re.compile(rf"\b({'|'.join(dict.fromkeys((*STOCK_MEN, *STOCK_WOMEN, *MEN, *WOMEN)))})\b")


def one_name(text: str) -> str:
    """The text with Tom for every known name, so that texts that differ only in names become equal.

    >>> one_name("Zoe met Ravi.") == one_name("Mary met Tom.")
    True
    """
    return _ANY.sub("Tom", text)

"""The numbers that the paper reports, so that tables can show them beside ours.

Only numbers with a source are included. They were measured with PLAID 1B on another machine, so they show how the
methods compare there, not how our implementation would perform there.
"""

from __future__ import annotations

from dataclasses import dataclass

HEADING = "paper (PLAID 1B, other machine)"
PAPER = "Continuous Diffusion Models Can Obey Formal Syntax (Kim, Berg-Kirkpatrick and D'Antoni, 2026)"
STATED = "stated in the paper"
COPIED = "as copied by a public index of results (wizwand.com); not checked against the paper"


@dataclass(frozen=True)
class Published:
    """One number of the paper's own method.

    >>> NUMBERS[0].shown
    '93%'
    """

    suite: str
    category: str | None  # None: all
    measure: str
    shown: str
    source: str


NUMBERS = (
    Published("natural-language", None, "satisfaction", "93%", STATED),
    Published("natural-language", "prefix", "satisfaction", "95.7%", COPIED),
    Published("natural-language", "suffix", "satisfaction", "96.8%", COPIED),
    Published("natural-language", "appearance", "satisfaction", "92.5%", COPIED),
    Published("natural-language", "between-n", "satisfaction", "85.5%", COPIED),
    Published("natural-language", "between", "satisfaction", "93.8%", COPIED),
    Published("natural-language", None, "overhead", "2.1–2.9 (batch 1)", STATED),
    Published("json", None, "satisfaction", "68%", STATED),
    Published("json", None, "overhead", "2.1–2.9 (batch 1)", STATED),
)


def published(suite: str, measure: str, category: str | None = None) -> Published | None:
    """The number that the paper reports for its method, or None.

    >>> published("json", "satisfaction").shown, published("json", "perplexity")
    ('68%', None)
    """
    for number in NUMBERS:
        if (number.suite, number.measure, number.category) == (suite, measure, category):
            return number
    return None

"""`inspect` against the automata that it describes, and the paper's published count."""

from __future__ import annotations

import re
from pathlib import Path

from diffinity.alignment import Vocabulary
from diffinity.constraints import Regex
from diffinity.inspection import inspect

PATTERN = "[A-Za-z]+ to [A-Za-z .,]*"


def test_samples_and_shortest_match() -> None:
    found = inspect(Regex(r"[0-9]{2,4}-[a-z]+"), samples=8)
    assert found.shortest is not None
    for text in (found.shortest, *found.samples):
        assert re.fullmatch(r"[0-9]{2,4}-[a-z]+", text.decode())
    assert not found.finite


def test_an_empty_language_has_neither() -> None:
    found = inspect(Regex("a") & Regex("b"))
    assert (found.shortest, found.samples) == (None, ())


def test_the_paper_s_count_is_reproduced(plaid_fixtures: Path) -> None:
    """Published: 71,735 transitions; without its look-up by text, 72,166."""
    vocabulary = Vocabulary.from_tokenizer(plaid_fixtures / "owt2_tokenizer.json")
    found = inspect(Regex(PATTERN), vocabulary, framing="exact", paper_counts=True)
    assert found.paper_transitions == 71_735
    assert found.tokens is not None
    assert found.tokens.n_transitions == 72_166

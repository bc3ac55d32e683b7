"""Inspection of a constraint: the sizes of its automata, its shortest text, random texts, a picture."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from diffinity.alignment import Framing, TokenAutomaton, Vocabulary, align
from diffinity.constraints.base import Constraint
from diffinity.constraints.dfa import ByteDFA


@dataclass(frozen=True)
class Inspection:
    """Facts about a constraint; those about tokens are None without a vocabulary."""

    byte_states: int
    byte_classes: int
    finite: bool
    shortest: bytes | None
    samples: tuple[bytes, ...]
    tokens: TokenAutomaton | None = None
    shortest_tokens: tuple[int, ...] | None = None
    paper_transitions: int | None = None


def inspect(
    constraint: Constraint | ByteDFA,
    vocabulary: Vocabulary | None = None,
    *,
    framing: Framing = "eos",
    samples: int = 5,
    seed: int = 0,
    paper_counts: bool = False,
) -> Inspection:
    """Compile a constraint, align it if there is a vocabulary, and describe the automata.

    `paper_counts` adds the number of transitions as counted by the paper's code. That code looks tokens up by
    their decoded text. There are fewer decoded texts than tokens, so it never uses the last ids.

    >>> from diffinity.constraints import Regex
    >>> found = inspect(Regex("c(a|u)t"), samples=1)
    >>> found.byte_states, found.finite, found.shortest
    (4, True, b'cat')
    """
    dfa = constraint if isinstance(constraint, ByteDFA) else constraint.dfa()
    rng = random.Random(seed)
    random_texts = () if dfa.is_empty else tuple(dict.fromkeys(dfa.sample(rng, 64) for _ in range(samples)))
    inspection = Inspection(dfa.n_states, dfa.n_classes, dfa.is_finite, dfa.shortest(), random_texts)
    if vocabulary is None:
        return inspection
    automaton = align(dfa, vocabulary, framing)
    shortest = automaton.shortest()
    inspection = replace(
        inspection, tokens=automaton, shortest_tokens=None if shortest is None else tuple(shortest)
    )
    if paper_counts:
        paper_automaton = align(dfa, _by_text(vocabulary), "exact")
        inspection = replace(inspection, paper_transitions=paper_automaton.n_transitions)
    return inspection


def _by_text(vocabulary: Vocabulary) -> Vocabulary:
    """The first ids, as many as there are different decoded texts: the ids that a look-up by text uses."""
    texts = {
        (token or f"special {i}".encode()).decode(errors="replace") for i, token in enumerate(vocabulary.tokens)
    }
    return Vocabulary(vocabulary.tokens[: len(texts)], vocabulary.eos_id, vocabulary.leading)

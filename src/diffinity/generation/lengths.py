"""The length of a text in tokens: as requested, the model's default, or as the constraint needs."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from diffinity.alignment import TokenAutomaton
from diffinity.errors import InfeasibleConstraint
from diffinity.generation.settings import Length

LONGEST_DEFAULT = 1024  # the longest default length, in tokens
log = logging.getLogger("diffinity.generation")


def chosen_length(requested: Length, default: int, automata: Sequence[TokenAutomaton]) -> int:
    """The length of a batch of texts; every automaton accepts a text of this length.

    `default` is the model's default length. If no length was requested and a single constraint needs more tokens,
    the length grows, up to `LONGEST_DEFAULT`. With several constraints it does not, because the length that one
    constraint needs would change the texts of the others.

    >>> from diffinity.alignment import Vocabulary, align
    >>> from diffinity.constraints import Text
    >>> long = align(Text("a" * 20), Vocabulary([b"a", b""], eos_id=1))
    >>> chosen_length(None, 64, [long]), chosen_length(None, 16, [long]), chosen_length(30, 16, [long])
    (64, 40, 30)
    """
    if requested == "auto":
        length = max(comfortable_length(automaton) for automaton in automata)
    elif requested is not None:
        length = requested
    else:
        length = _default_length(default, automata)
    for automaton in automata:
        try:
            automaton.check_feasible(length)
        except InfeasibleConstraint as error:
            if requested is not None or not automaton.accepting.any():
                raise
            raise InfeasibleConstraint(
                f'{error} ({length} is the model\'s default length: choose another with length=, or length="auto" '
                "for a length that fits the constraint)"
            ) from None
    return length


def _default_length(default: int, automata: Sequence[TokenAutomaton]) -> int:
    if len(automata) > 1 or automata[0].feasible(default) or not automata[0].accepting.any():
        return default
    required = comfortable_length(automata[0])
    if required > max(default, LONGEST_DEFAULT):
        return default
    log.info("the constraint does not fit the model's %d tokens: the length is %d", default, required)
    return required


def comfortable_length(automaton: TokenAutomaton) -> int:
    """The length of `length="auto"`: 1.5 times the shortest text, plus 8 tokens, rounded up to a multiple of 8.

    It is at least 24. If no accepted text has this length, it is the length of the shortest text.

    >>> from diffinity.alignment import Vocabulary, align
    >>> from diffinity.constraints import Text
    >>> comfortable_length(align(Text("a" * 20), Vocabulary([b"a", b""], eos_id=1)))
    40
    """
    shortest = automaton.shortest()
    if shortest is None:
        raise InfeasibleConstraint("no text satisfies the constraint")
    length = max(24, -(-(len(shortest) * 3 // 2 + 8) // 8) * 8)
    return length if automaton.feasible(length) else len(shortest)

"""From automata over bytes to automata over the tokens of a vocabulary."""

from diffinity.alignment.align import align, clear_cache
from diffinity.alignment.automaton import FRAMINGS, Framing, GroupedEdges, TokenAutomaton
from diffinity.alignment.bigrams import Bigrams, fit_bigrams
from diffinity.alignment.vocabulary import Vocabulary

__all__ = [
    "FRAMINGS",
    "Bigrams",
    "Framing",
    "GroupedEdges",
    "TokenAutomaton",
    "Vocabulary",
    "align",
    "clear_cache",
    "fit_bigrams",
]

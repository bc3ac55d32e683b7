"""PLAID's token guidance as a baseline: single tokens at given positions, or anywhere.

Token guidance can require a token at a given position or a token anywhere. So it can express a fixed prefix, a
whole text, and words that occur. It cannot express the n-th word beyond the first, a word counted from the end, an
order or a distance, because words have different numbers of tokens and the position of the end is unknown. Those
constraints are refused.

Even for constraints that it can express, the objective is a sum of one term per token: the tokens of a word must
occur, but not necessarily side by side, and a word may continue ("the" in "there").
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from diffinity.baselines.guided import guided_texts
from diffinity.constraints.base import Concat, Constraint, Regex, Text
from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.sentences import Sentence
from diffinity.errors import InfeasibleConstraint, InvalidArgument, UnsupportedConstraint
from diffinity.guidance.tokens import TokenGuidance, TokenTarget
from diffinity.models.protocol import DiffusionLM, vocabulary_of

REASONS = {
    "prefix": "words have varying numbers of tokens, so only the first word has a fixed position",
    "suffix": "the position of the end is not fixed",
    "between-n": "it knows neither order nor distance",
    "between": "it knows no order",
    "length": "it names tokens, not lengths of words",
}


@dataclass(frozen=True)
class TokenGuidanceSystem:
    """Token guidance with one weight for all targets, decoded by argmax as PLAID does.

    >>> import diffinity as dy
    >>> system = TokenGuidanceSystem(dy.fit_markov(["the cat sat.", "a dog sat."]))
    >>> system.name
    'token-guidance'
    """

    model: DiffusionLM
    weight: float = 2.0
    num_inference_steps: int | None = None
    score_temp: float | None = None
    batch_size: int = 16
    name: str = "token-guidance"

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise InvalidArgument(f"batch_size must be at least 1, but is {self.batch_size}")

    def generate(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        """`n` texts of at most `length` tokens; text i has the seed (seed, i)."""
        targets = self.targets(constraint)
        required = 1 + max((target.position for target in targets if isinstance(target.position, int)), default=0)
        if required > length:
            raise InfeasibleConstraint(f"the requested tokens need {required} positions, not {length}")
        guidance = TokenGuidance(targets)
        return guided_texts(
            self.model,
            guidance,
            n,
            length,
            seed,
            batch_size=self.batch_size,
            num_inference_steps=self.num_inference_steps,
            score_temp=self.score_temp,
        )

    def targets(self, constraint: Constraint) -> list[TokenTarget]:
        """The constraint as tokens and positions, or `UnsupportedConstraint` with the reason.

        >>> import diffinity as dy
        >>> system = TokenGuidanceSystem(dy.fit_markov(["the cat sat.", "a dog sat."]))
        >>> [target.position for target in system.targets(dy.sentences.Sentence("appearance", ("cat", "dog")))]
        ['any', 'any']
        """
        if isinstance(constraint, Sentence):
            return self._sentence(constraint)
        if isinstance(constraint, Regex | Text | Concat):
            return self._beginning(constraint)
        raise UnsupportedConstraint(
            f"token guidance cannot express a {type(constraint).__name__}: it takes a Sentence, "
            "a fixed text, or a fixed beginning followed by anything"
        )

    def _sentence(self, sentence: Sentence) -> list[TokenTarget]:
        if sentence.template == "appearance":
            if len(set(sentence.wanted)) < len(sentence.wanted):
                raise UnsupportedConstraint("token guidance cannot ask for the same word twice: it does not count")
            tokens = [token for word in sentence.wanted for token in self._tokens(word, first=False)]
            return [TokenTarget(token, self.weight, "any") for token in dict.fromkeys(tokens)]
        if sentence.template == "prefix" and sentence.n == 1:
            return self._from_start(sentence.wanted[0])
        raise UnsupportedConstraint(
            f"token guidance cannot express the template {sentence.template!r}"
            f"{'' if sentence.n is None else f' with n = {sentence.n}'}: {REASONS[sentence.template]}; "
            "it takes 'appearance', and 'prefix' with n = 1"
        )

    def _beginning(self, constraint: Constraint) -> list[TokenTarget]:
        dfa = constraint.dfa()
        start = forced_beginning(dfa)
        literal = ByteDFA.literal(start)
        if start and dfa in (literal.concat(ByteDFA.utf8()), literal.concat(Regex(".*").dfa())):
            return self._from_start(start.decode())
        eos = self.model.eos_token_id
        if dfa == literal and eos is not None:
            targets = self._from_start(start.decode())
            return [*targets, TokenTarget(eos, self.weight, self._first + len(targets))]
        raise UnsupportedConstraint(
            f"token guidance cannot express {constraint!r:.80}: of patterns it takes a fixed text, "
            "or a fixed beginning followed by anything"
        )

    def _from_start(self, text: str) -> list[TokenTarget]:
        tokens = self._tokens(text, first=True)
        return [TokenTarget(token, self.weight, position) for position, token in enumerate(tokens, self._first)]

    @property
    def _first(self) -> int:
        """The position at which a text begins."""
        return int(self.model.start_token_id is not None)

    def _tokens(self, text: str, *, first: bool) -> list[int]:
        """The tokens of a text at the start, or of a later word with the space before it."""
        spaced = text if first or self._leading_space else " " + text
        ids: list[int] = self.model.tokenizer.encode(spaced, add_special_tokens=False).ids
        return ids

    @cached_property
    def _leading_space(self) -> bool:
        """Whether the tokenizer itself adds a space before a text."""
        return bool(vocabulary_of(self.model).leading)


def forced_beginning(dfa: ByteDFA) -> bytes:
    """The longest string that every accepted string starts with.

    >>> forced_beginning(Regex("abc.*").dfa()), forced_beginning(Regex("ab|ac").dfa())
    (b'abc', b'a')
    """
    state, beginning = 0, bytearray()
    while not dfa.is_empty and not dfa.accepting[state]:
        moves = [byte for byte in range(256) if dfa.table[state, dfa.byte_class[byte]] >= 0]
        if len(moves) != 1:
            break
        beginning += bytes(moves)
        state = int(dfa.table[state, dfa.byte_class[moves[0]]])
    return bytes(beginning)

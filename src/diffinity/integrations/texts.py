"""The texts of a batch in another library's loop: the constraint and the automaton state of each row.

A loop writes one token, one canvas or one block of masks at a time. Every loop knows the tokens so far, the number
of tokens left, and the end tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from diffinity.acceptance import class_kernels, foreseen_bytes
from diffinity.alignment import TokenAutomaton, Vocabulary, align
from diffinity.constraints import Constraint
from diffinity.constraints.python_types import constraint as as_constraint
from diffinity.errors import InfeasibleConstraint, InvalidArgument
from diffinity.limits import Budget, Limits, current_limits

MAX_CACHED_WINDOWS = 256


class Texts:
    """The constraints of a batch's rows over one tokenizer's vocabulary.

    `constraint` is anything that `dy.constraint` takes, or a list with one constraint per row.

    >>> import diffinity as dy
    >>> texts = Texts(dy.Regex("a+b"), dy.Vocabulary([b"a", b"b", None], eos_id=2))
    >>> rows = texts.rows(1, vocab_size=4, ends=(2,))  # the model has one token more than the tokenizer
    >>> rows.window(0, written=[0], tokens_after=0).accepts([1, 2])
    True
    """

    def __init__(self, constraint: Any, tokenizer: Any, limits: Limits | None = None) -> None:
        self.vocabulary = vocabulary_of(tokenizer)
        constraints = _constraints(constraint)
        self._aligned = [align(constraint, self.vocabulary, "exact", limits=limits) for constraint in constraints]
        self._automata: dict[tuple[int, tuple[int, ...]], list[TokenAutomaton]] = {}
        self._rows: dict[tuple[int, int, tuple[int, ...]], Rows] = {}
        for i, automaton in enumerate(self._aligned):
            if automaton.is_empty:
                name = f"constraint {i}" if len(constraints) > 1 else "the constraint"
                raise InfeasibleConstraint(f"no sequence of this tokenizer's tokens satisfies {name}")

    def rows(self, n: int, vocab_size: int, ends: Sequence[int] | None) -> Rows:
        """The automata of a batch of n rows, over logits of `vocab_size` tokens; the tokens `ends` end a text.

        If `ends` is None, the tokenizer's end token is used, if it has one.
        """
        if n % len(self._aligned):
            raise InvalidArgument(
                f"{len(self._aligned)} constraints for {n} rows: give one, or one for each row of the batch"
            )
        if ends is None:
            ends = () if self.vocabulary.eos_id is None else (self.vocabulary.eos_id,)
        key = vocab_size, tuple(sorted(set(ends)))
        if (n, *key) not in self._rows:
            if key not in self._automata:
                self._automata[key] = [generation_automaton(automaton, *key) for automaton in self._aligned]
            copies = n // len(self._aligned)  # rows of one prompt (beams, several answers) are adjacent
            self._rows[n, *key] = Rows([automaton for automaton in self._automata[key] for _ in range(copies)])
        return self._rows[n, *key]


class Rows:
    """One automaton per row, with a cache of windows."""

    def __init__(self, automata: Sequence[TokenAutomaton]) -> None:
        self.automata = automata
        self._windows: OrderedDict[tuple[int, int, int], TokenAutomaton] = OrderedDict()

    def __len__(self) -> int:
        return len(self.automata)

    def state(self, row: int, written: Sequence[int] | NDArray[np.int64]) -> int:
        """The state of a row after its tokens; −1 if they violate the constraint."""
        automaton, ids = self.automata[row], np.asarray(written, np.int64)
        if len(ids) and not 0 <= ids.min() <= ids.max() < automaton.vocab_size:
            raise InvalidArgument(f"row {row} holds a token outside the vocabulary of {automaton.vocab_size}")
        walk: Any = class_kernels.states_after
        return int(walk(automaton.next, automaton.class_of, automaton.start, ids))

    def states(self, written: Tensor) -> list[int]:
        """The state of every row after written (B, n)."""
        ids = written.cpu().numpy()
        return [self.state(i, ids[i]) for i in range(len(self))]

    def window(
        self, row: int, written: Sequence[int] | NDArray[np.int64], tokens_after: int, length: int = 0
    ) -> TokenAutomaton:
        """The automaton of a row's next tokens, followed by `tokens_after` more tokens.

        With a `length`, a text of this length must be possible.
        """
        automaton, state = self.automata[row], self.state(row, written)
        if state < 0:
            raise InvalidArgument(
                f"row {row} has left its constraint after {len(written)} tokens: something else changed them, "
                "for example a logits processor or callback that runs after this one"
            )
        key = id(automaton), state, tokens_after
        if key not in self._windows:
            self._windows[key] = automaton.window(state, tokens_after)
            if len(self._windows) > MAX_CACHED_WINDOWS:
                self._windows.popitem(last=False)
        window = self._windows[key]
        if length and not window.feasible(length):
            raise _infeasible(row, automaton.window(state), length + tokens_after)
        if length:
            required_bytes = foreseen_bytes(automaton, length)
            Budget(current_limits()).check("memory_bytes", required_bytes, "the dynamic programme for one row")
        return window


def _infeasible(row: int, automaton: TokenAutomaton, tokens_left: int) -> InfeasibleConstraint:
    shortest = automaton.shortest()
    shortest_note = (
        "there is no such text of any length" if shortest is None else f"the shortest text has {len(shortest)}"
    )
    return InfeasibleConstraint(
        f"row {row}: no text that satisfies the constraint fits the {tokens_left} tokens that are left "
        f"({shortest_note})"
    )


def generation_automaton(exact: TokenAutomaton, vocab_size: int, ends: Sequence[int]) -> TokenAutomaton:
    """The automaton of a loop's output: an accepted text, which fills the window or is followed by an end token.

    Any tokens may follow the end token.

    `exact` is the constraint aligned in the framing `exact`. Tokens beyond the tokenizer's vocabulary have no
    bytes and, like special tokens, never occur in a text.

    >>> import diffinity as dy
    >>> exact = dy.align(dy.Regex("a+"), dy.Vocabulary([b"a", b"b"]), "exact")
    >>> automaton = generation_automaton(exact, 4, ends=(2, 3))
    >>> automaton.accepts([0, 0]), automaton.accepts([0, 3, 1]), automaton.accepts([0, 1]), automaton.accepts([2])
    (True, True, False, False)
    """
    if vocab_size < exact.vocab_size and (exact.useful[exact.class_of[vocab_size:]]).any():
        raise InvalidArgument(
            f"the logits are over {vocab_size} tokens, the tokenizer has {exact.vocab_size}: "
            "they do not belong together"
        )
    invalid_ends = [end for end in ends if not 0 <= end < vocab_size]
    if invalid_ends:
        raise InvalidArgument(f"the end token {invalid_ends[0]} is not a token: there are {vocab_size}")
    used_classes = np.flatnonzero(exact.useful)
    outside, end, final = len(used_classes), len(used_classes) + 1, exact.n_states
    new_class = np.full(exact.n_classes, outside, np.int32)
    new_class[used_classes] = np.arange(len(used_classes))
    class_of = np.full(vocab_size, outside, np.int32)
    n_shared = min(vocab_size, exact.vocab_size)
    class_of[:n_shared] = new_class[exact.class_of[:n_shared]]
    class_of[list(ends)] = end
    table = np.full((final + 1, end + 1), -1, np.int32)
    table[:final, : len(used_classes)] = exact.next[:, used_classes]
    table[:final, end][exact.accepting] = final
    table[final] = final
    accepting = np.append(exact.accepting, True)
    present = np.bincount(class_of, minlength=end + 1) > 0  # classes without a token are dropped
    column = np.cumsum(present, dtype=np.int32) - 1
    return TokenAutomaton(
        column[class_of].astype(np.int32), np.ascontiguousarray(table[:, present]), accepting, "eos"
    )


def _constraints(constraint: Any) -> list[Constraint]:
    if not isinstance(constraint, list):
        return [as_constraint(constraint)]
    if not constraint:
        raise InvalidArgument("an empty list of constraints: give one, or one for each row of the batch")
    if any(isinstance(item, str) for item in constraint):
        raise InvalidArgument(
            "a list holds one constraint for each row of the batch: write dy.Choice([...]) for one of several "
            "texts, dy.Text(...) for a row's literal text"
        )
    return [as_constraint(item) for item in constraint]


_vocabularies: WeakKeyDictionary[Any, tuple[int, Vocabulary]] = WeakKeyDictionary()


def vocabulary_of(tokenizer: Any) -> Vocabulary:
    """The vocabulary of a `transformers` tokenizer or processor, or of a `tokenizers` object or file."""
    if isinstance(tokenizer, Vocabulary):
        return tokenizer
    if hasattr(tokenizer, "tokenizer") and not hasattr(tokenizer, "backend_tokenizer"):
        tokenizer = tokenizer.tokenizer  # a processor
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        if isinstance(tokenizer, Tokenizer | str) or hasattr(tokenizer, "__fspath__"):
            return Vocabulary.from_tokenizer(tokenizer)
        raise InvalidArgument(
            f"{type(tokenizer).__name__} is not a tokenizer that can be read: give a fast `transformers` "
            "tokenizer (backed by `tokenizers`), a `tokenizers.Tokenizer`, a tokenizer.json or a dy.Vocabulary"
        )
    if getattr(tokenizer, "clean_up_tokenization_spaces", False) and not _is_bpe(backend):
        raise InvalidArgument(
            "this tokenizer changes texts after decoding (clean_up_tokenization_spaces): set it to False; "
            "otherwise a decoded text may violate the constraint"
        )
    size, vocabulary = _vocabularies.get(tokenizer, (-1, None))
    if vocabulary is None or size != len(tokenizer):
        vocabulary = Vocabulary.from_tokenizer(backend, eos_id=getattr(tokenizer, "eos_token_id", None))
        _vocabularies[tokenizer] = len(tokenizer), vocabulary
    return vocabulary


def _is_bpe(backend: Tokenizer) -> bool:
    return type(backend.model).__name__ == "BPE"


def as_ends(eos: Any) -> tuple[int, ...] | None:
    """The end tokens of a configuration: an int, a list, a tensor or None."""
    if eos is None:
        return None
    if isinstance(eos, Tensor):
        eos = eos.flatten().tolist()
    return (int(eos),) if isinstance(eos, int | np.integer) else tuple(int(token) for token in eos)


def fits(window: TokenAutomaton, ids: NDArray[np.int64]) -> bool:
    """Whether a window accepts token ids (L,)."""
    walk: Any = class_kernels.states_after
    state = walk(window.next, window.class_of, window.start, np.ascontiguousarray(ids, np.int64))
    return state >= 0 and bool(window.accepting[state])

"""The process of a causal model: from left to right, one token of each text per step.

Every token is drawn among the tokens after which the text can be completed within the length, so every text
satisfies its constraint. The texts do not follow p(text | L). A weighted process, for particles, proposes tokens
by the probability of acceptance after them (`guidance/next_token.py`), and the weights correct the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.acceptance.partial import OPEN
from diffinity.alignment import TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.guidance.next_token import (
    Floats,
    Ints,
    allowed_tokens,
    completable,
    draw_tokens,
    free_frequencies,
    has_end,
    look_ahead,
)
from diffinity.models.protocol import CausalModel, Continuations, check_logits
from diffinity.processes.base import Draws, Ending
from diffinity.processes.tokens import TokenPrediction

Method = Literal["auto", "none"]
METHODS: tuple[Method, ...] = ("auto", "none")
PINNED = -1e9  # logit of all other tokens at a position with a committed token
END_LOGIT = 50.0  # logit of the end token at open positions, so that a stopped text ends as soon as it can


class Reader:
    """The logits after token strings, computed with a cache of the tokens that the network has already read.

    Any strings may be requested, in any order, and rows may be dropped or repeated.
    """

    def __init__(self, model: CausalModel, length: int, context: Sequence[int] | None) -> None:
        self._model, self._length, self._context = model, length, context
        self.end = model.eos_token_id or 0  # shown in drafts at unwritten positions
        self._cached: Tensor | None = None  # (n, k): the tokens in the cache
        self._continuations: Continuations

    def logits(self, tokens: Tensor) -> Tensor:
        """Logits (R, V) of the token after tokens (R, k)."""
        rows = self._rows(tokens)
        if rows is None or self._cached is None:
            self._continuations = self._model.start(len(tokens), self._length, self._context)
            self._cached = tokens[:, :0]
        elif rows != list(range(len(self._cached))):
            self._continuations = self._continuations.select(torch.tensor(rows))
        for column in tokens[:, self._cached.shape[1] :].T:
            self._continuations.append(column)
        self._cached = tokens
        return self._continuations.logits()

    def _rows(self, tokens: Tensor) -> list[int] | None:
        """The cache row with the beginning of each string; None if a string is not cached."""
        if self._cached is None or self._cached.shape[1] > tokens.shape[1]:
            return None
        beginnings = tokens[:, : self._cached.shape[1]]
        if torch.equal(beginnings, self._cached):
            return list(range(len(beginnings)))
        row_of_tokens = {tuple(row): i for i, row in enumerate(self._cached.tolist())}
        rows = [row_of_tokens.get(tuple(row), -1) for row in beginnings.tolist()]
        return None if -1 in rows else rows


@dataclass(frozen=True)
class CausalState:
    """A batch of texts between two tokens."""

    tokens: Tensor  # (B, L) on the CPU, OPEN at unwritten positions
    step: int  # tokens written
    log_p_text: Tensor  # (B,), float64: of the tokens under the model
    states: Ints  # (B,): automaton state of each row; the start without guidance
    reader: Reader
    prediction: TokenPrediction | None = None  # of the last step
    log_ratio: Tensor | None = None  # (B,), float64

    def select(self, rows: Tensor) -> CausalState:
        """The state of some rows."""
        return replace(
            self, tokens=self.tokens[rows], log_p_text=self.log_p_text[rows], states=self.states[rows.numpy()]
        )

    def draft(self) -> tuple[Tensor, Tensor]:
        """The tokens so far (B, L), with probability 1; after them the end token, with probability 0."""
        is_written = self.tokens != OPEN
        return self.tokens.masked_fill(~is_written, self.reader.end), is_written.double()


@dataclass(frozen=True)
class CausalProcess:
    """Generation from left to right: the model, the automata (one per row), the temperature.

    `method` "none" draws from the model alone. Temperature 0 takes the most probable token; `top_p` below 1 keeps
    the smallest set of most probable allowed tokens whose share reaches `top_p`. `context` are the token ids of a
    prompt. Each step writes one token, with one network call for the rows that have not ended.
    """

    model: CausalModel
    automata: Sequence[TokenAutomaton]
    length: int
    method: Method = "auto"
    temperature: float = 1.0
    top_p: float = 1.0
    context: Sequence[int] | None = None
    weighted: bool = False
    _tables: dict[int, Floats] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InvalidArgument(f"guidance of a causal model must be auto or none, but is {self.method!r}")
        check_draw(self.temperature, self.top_p)
        if self.weighted and (self.method != "auto" or self.temperature == 0 or self.top_p != 1):
            raise InvalidArgument("particles of a causal model need guidance, a temperature above 0 and top_p 1")

    @property
    def num_inference_steps(self) -> int:
        return self.length

    def begin(self, draws: Draws, length: int) -> CausalState:
        """Empty texts."""
        tokens = torch.full((len(draws), length), OPEN)
        states = np.array([automaton.start for automaton in self.automata], np.int64)
        log_p_text = torch.zeros(len(draws), dtype=torch.float64)
        return CausalState(tokens, 0, log_p_text, states, Reader(self.model, length, self.context))

    def predict(self, state: CausalState) -> TokenPrediction:
        """The next-token distributions of the texts that have not ended; for particles, log ψ of all texts."""
        batch, length = state.tokens.shape
        running = np.flatnonzero(~self._ended(state))
        log_psi = None
        if self.weighted:
            log_psi = torch.zeros(batch, dtype=torch.float64)
            for i in running.tolist():
                log_psi[i] = float(self._table(self.automata[i])[state.step, state.states[i]])
        logits = torch.empty(0, 1, 1)
        if len(running):
            logits = state.reader.logits(state.tokens[running, : state.step])[:, None]
            if logits.device.type == "cpu" or state.step == 0:  # on a GPU the check would wait for the device
                check_logits(self.model, logits, len(running), 1, f"at step {state.step + 1}")
        rows = torch.from_numpy(running)
        return TokenPrediction(rows, logits, state.step, batch, length, None, log_psi)

    def step(self, state: CausalState, prediction: TokenPrediction, draws: Draws) -> CausalState:
        """One more token of the texts that have not ended."""
        uniforms, running = draws.uniform(1)[:, 0].numpy(), prediction.running.numpy()
        log_ratio = torch.zeros(len(state.tokens), dtype=torch.float64) if self.weighted else None
        next_state = replace(state, step=state.step + 1, prediction=prediction, log_ratio=log_ratio)
        if not len(running):
            return replace(next_state, step=self.length)
        log_p = self._log_p(prediction.network_logits[:, 0])
        log_psi = self._log_psi(state, running)
        scores = log_p if log_psi is None else log_p + log_psi
        dead = scores.max(axis=1) == -np.inf  # the model gives all allowed tokens probability 0
        if log_psi is not None:
            scores[dead] = log_psi[dead]
        if self.temperature == 0:
            ids = scores.argmax(axis=1)
        else:
            ids, log_total = draw_tokens(scores, uniforms[running], self.top_p)
        rows = np.arange(len(running))
        tokens, log_p_text, states = state.tokens.clone(), state.log_p_text.clone(), state.states.copy()
        tokens[running, state.step] = torch.from_numpy(ids)
        log_p_text[running] += torch.from_numpy(log_p[rows, ids])
        if log_psi is not None:
            for i, token in zip(running, ids, strict=True):
                automaton = self.automata[i]
                states[i] = automaton.next[states[i], automaton.class_of[token]]
            if log_ratio is not None:
                log_ratio[running] = torch.from_numpy(np.where(dead, -np.inf, log_total - log_psi[rows, ids]))
        return replace(next_state, tokens=tokens, log_p_text=log_p_text, states=states)

    def finish(self, state: CausalState) -> Ending:
        """The tokens of finished texts; otherwise distributions around the tokens, for the shortest completion."""
        tokens, is_open = state.tokens.clone(), state.tokens == OPEN
        if bool((self._ended(state) | ~is_open.numpy().any(axis=1)).all()):
            for i, automaton in enumerate(self.automata):
                if has_end(automaton) and automaton.eos_id is not None:
                    tokens[i, is_open[i]] = automaton.eos_id
            return Ending(tokens=tokens, log_p_text=state.log_p_text)
        logits = torch.zeros(*tokens.shape, self.model.vocab_size)
        if self.model.eos_token_id is not None:
            logits[:, :, self.model.eos_token_id] = END_LOGIT
        pinned = torch.full_like(logits, PINNED).scatter_(2, tokens.clamp(min=0)[:, :, None], 0.0)
        return Ending(torch.where(is_open[:, :, None], logits, pinned))

    def _ended(self, state: CausalState) -> NDArray[np.bool_]:
        """(B,): whether a text has an end token."""
        ends = np.array([automaton.eos_id if has_end(automaton) else OPEN - 1 for automaton in self.automata])
        return np.asarray((state.tokens.numpy() == ends[:, None]).any(axis=1))

    def _log_p(self, logits: Tensor) -> Floats:
        """log p of the next tokens (R, V), float64, at the temperature; at temperature 0 the model's own."""
        scores = logits.double().cpu()
        log_p: Floats = (scores / (self.temperature or 1.0)).log_softmax(dim=1).numpy()
        return log_p

    def _log_psi(self, state: CausalState, running: Ints) -> Floats | None:
        """log ψ after each token (R, V) of the running rows; None without a constraint."""
        if self.method == "none":
            return None
        log_psi = np.empty((len(running), self.model.vocab_size))
        for automaton in {id(automaton): automaton for automaton in self.automata}.values():
            indices = [j for j, i in enumerate(running) if self.automata[i] is automaton]
            row = self._table(automaton)[state.step + 1]
            log_psi[indices] = allowed_tokens(automaton, row, state.states[running[indices]])
        return log_psi

    def _table(self, automaton: TokenAutomaton) -> Floats:
        if id(automaton) not in self._tables:
            if self.weighted:
                frequencies = free_frequencies(self.model, self.length, self.context)
                self._tables[id(automaton)] = look_ahead(automaton, frequencies)
            else:
                self._tables[id(automaton)] = completable(automaton, self.length)
        return self._tables[id(automaton)]


def check_draw(temperature: float, top_p: float = 1.0) -> None:
    """Refuse an invalid temperature or top-p.

    >>> check_draw(temperature=-1)
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: temperature must not be negative, but is -1
    """
    if not temperature >= 0:
        raise InvalidArgument(f"temperature must not be negative, but is {temperature}")
    if not 0 < top_p <= 1:
        raise InvalidArgument(f"top_p must be above 0 and at most 1, but is {top_p}")

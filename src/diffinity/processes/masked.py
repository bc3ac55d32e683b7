"""Masked noise on tokens: all positions start masked, and each step commits a few of them.

The process of LLaDA, Dream and MDLM. The order of positions and their number at a step are those of LLaDA (*Large
Language Diffusion Models*, Nie et al., 2025): block after block, the most confident positions or random positions;
or those of MDLM, where every position is unmasked at its own random time ("ancestral").

With every method of `guidance/unmasking.py` except `none`, the tokens that a step commits can be completed to an
accepted string. By induction over the steps, the finished text is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.acceptance.cpu import over_batch
from diffinity.acceptance.partial import OPEN, PartialString
from diffinity.alignment import TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.guidance.unmasking import METHODS, ORDERS, Choice, Commit, Method, Opening, Order, commit
from diffinity.processes.base import Draws, Ending
from diffinity.processes.tokens import Network, TokenPrediction, TokenState, Windows


@dataclass(frozen=True)
class Planned:
    """The plan of a step: the open block, the number of positions to commit, and the time for the network."""

    block: slice
    count: int
    rate: float  # for ancestral order: the probability that a masked position is unmasked
    t: float


@dataclass(frozen=True)
class MaskedProcess:
    """A masked process: the network, the automata (one per row), the order and the method.

    `steps` are divided between the blocks, and a block has at most one step per position (unless the order is
    ancestral). With `canvas` "block" the network sees the text only up to the end of the block, as in models that
    generate block by block.
    """

    network: Network
    automata: Sequence[TokenAutomaton]
    length: int
    steps: int
    method: Method | Commit = "joint"
    order: Order = "confidence"
    block_length: int | None = None
    temperature: float = 1.0
    canvas: str = "full"
    weighted: bool = False
    _windows: Windows = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, value, choices in (("method", self.method, METHODS), ("order", self.order, ORDERS)):
            if not callable(value) and value not in choices:
                raise InvalidArgument(f"{name} must be one of {', '.join(choices)}, but is {value!r}")
        if self.weighted and (self.method != "joint" or self.temperature == 0):
            raise InvalidArgument("particles of a masked process are proposed by 'joint' at a temperature above 0")
        object.__setattr__(self, "_windows", Windows(self.length))

    @cached_property
    def plan(self) -> list[Planned]:
        """The plans of all steps."""
        ancestral = self.order == "ancestral"
        planned = list(schedule(self.length, self.block_length or self.length, self.steps, ancestral))
        return [
            Planned(block, count, rate, 1.0 - i / len(planned)) for i, (block, count, rate) in enumerate(planned)
        ]

    @property
    def num_inference_steps(self) -> int:
        return len(self.plan)

    def begin(self, draws: Draws, length: int) -> TokenState:
        """All positions masked."""
        n = len(draws)
        return TokenState(torch.full((n, length), OPEN), 0, torch.zeros(n, dtype=torch.float64))

    def predict(self, state: TokenState) -> TokenPrediction:
        """The network's prediction for the unfinished rows, and their partial strings."""
        planned = self.plan[state.step]
        running = [i for i in range(len(state.tokens)) if not self._is_finished(state.tokens[i], i)]
        first, stop = self._visible(planned)
        batch, length = state.tokens.shape
        if not running:
            no_logits, zeros = torch.empty(0, stop - first, 1), torch.zeros(batch, dtype=torch.float64)
            return TokenPrediction(torch.empty(0, dtype=torch.long), no_logits, first, batch, length, (), zeros)
        visible = state.tokens[running, :stop]
        mask_id = self.network.model.mask_id
        logits = self.network(visible.masked_fill(visible == OPEN, mask_id), planned.t)[:, first:]
        prediction = TokenPrediction(torch.tensor(running), logits, first, batch, length)
        if self.method == "none":
            return prediction
        strings = tuple(self._string(logits[j], state.tokens[i], i, first, stop) for j, i in enumerate(running))
        if self.method not in ("joint", "marginals"):  # the other methods do not need log P(L)
            return replace(prediction, strings=strings)
        log_acceptance = torch.zeros(batch, dtype=torch.float64)
        log_acceptance[running] = torch.tensor(
            over_batch(lambda j: strings[j].log_p_language, len(strings))
        ).double()
        return replace(prediction, strings=strings, log_acceptance=log_acceptance)

    def step(self, state: TokenState, prediction: TokenPrediction, draws: Draws) -> TokenState:
        """The state after committing some tokens."""
        planned, running = self.plan[state.step], prediction.running.tolist()
        first = prediction.first
        numbers = draws.uniform(4 * (self.length - first) + 1).numpy()

        def work(j: int) -> Choice:
            row = state.tokens[running[j], first : first + prediction.network_logits.shape[1]]
            opening = self._opening(planned, prediction, j, row, numbers[running[j]])
            return commit(self.method, self.order, opening)

        choices = over_batch(work, len(running))
        tokens, log_p_text = state.tokens.clone(), state.log_p_text.clone()
        log_ratio = torch.zeros(len(tokens), dtype=torch.float64) if self.weighted else None
        for j, (i, choice) in enumerate(zip(running, choices, strict=True)):
            at = first + torch.from_numpy(np.flatnonzero(tokens[i, first:].numpy() == OPEN)[choice.chosen])
            tokens[i, at] = torch.from_numpy(choice.ids)
            log_p_text[i] += choice.log_p_text
            if log_ratio is not None:
                log_ratio[i] = _log_ratio(prediction, j, choice)
        next_step = state.step + 1 if running else len(self.plan)
        return TokenState(tokens, next_step, log_p_text, prediction, log_ratio)

    def finish(self, state: TokenState) -> Ending:
        """The tokens if no position is masked; otherwise the distributions of one more network call."""
        tokens = state.tokens.clone()
        finished = [self._is_finished(row, i) for i, row in enumerate(tokens)]
        if all(finished):
            for i, automaton in enumerate(self.automata):
                if automaton.framing == "eos" and automaton.eos_id is not None:
                    tokens[i, tokens[i] == OPEN] = automaton.eos_id
            return Ending(tokens=tokens, log_p_text=state.log_p_text)
        model = self.network.model
        logits = self.network(tokens.masked_fill(tokens == OPEN, model.mask_id), self.plan[-1].t).float()
        committed = (tokens != OPEN).to(logits.device)
        pinned = torch.full_like(logits, -1e9)
        pinned.scatter_(2, tokens.clamp(min=0).to(logits.device)[:, :, None], 0.0)
        return Ending(torch.where(committed[:, :, None], pinned, logits))

    def _visible(self, planned: Planned) -> tuple[int, int]:
        """The first position and the end of the window of a step: from the block to the end, or only the block."""
        return planned.block.start, self.length if self.canvas == "full" else planned.block.stop

    def _string(self, logits: Tensor, tokens: Tensor, row: int, first: int, stop: int) -> PartialString:
        automaton = self._windows.at(self.automata[row], tokens[:first].tolist(), stop)
        window = tokens[first:stop]
        return PartialString.of(self._cooled(logits[(window == OPEN).to(logits.device)]), window, automaton)

    def _cooled(self, logits: Tensor) -> Tensor:
        return logits if self.temperature in (0, 1) else logits / self.temperature

    def _opening(
        self, planned: Planned, prediction: TokenPrediction, j: int, window: Tensor, numbers: NDArray[np.float64]
    ) -> Opening:
        is_open = window == OPEN
        string = None if prediction.strings is None else prediction.strings[j]
        if string is None:
            logits = self._cooled(prediction.network_logits[j][is_open.to(prediction.network_logits.device)])
        else:
            logits = string.logits
        at = np.flatnonzero(is_open.numpy())
        in_block = at < planned.block.stop - planned.block.start
        length = len(window)
        draws = numbers[: 4 * length + 1]
        return Opening(
            logits, string, at, in_block, planned.count, planned.rate, draws, greedy=self.temperature == 0
        )

    def _is_finished(self, tokens: Tensor, row: int) -> bool:
        """Whether a row is finished: no position is masked, or none before the first end token."""
        automaton = self.automata[row]
        if automaton.framing == "eos" and automaton.eos_id is not None:
            ends = (tokens == automaton.eos_id).nonzero()
            if len(ends):
                tokens = tokens[: int(ends[0])]
        return not bool((tokens == OPEN).any())


def schedule(
    length: int, block_length: int, steps: int, ancestral: bool = False
) -> list[tuple[slice, int, float]]:
    """For each step: the block, the number of positions to commit, and the unmasking rate of an ancestral step.

    Steps are divided evenly between the blocks, and the positions of a block between its steps. The first blocks
    and steps get the remainder.

    >>> [(block.start, block.stop, count) for block, count, _ in schedule(length=5, block_length=3, steps=4)]
    [(0, 3, 2), (0, 3, 1), (3, 5, 1), (3, 5, 1)]
    """
    starts = range(0, length, block_length)
    planned = []
    for start, share in zip(starts, _shares(steps, len(starts)), strict=True):
        block = slice(start, min(start + block_length, length))
        size = block.stop - block.start
        block_steps = max(share, 1) if ancestral else min(max(share, 1), size)
        planned += [(block, count, 1.0 / (block_steps - i)) for i, count in enumerate(_shares(size, block_steps))]
    return planned


def _shares(total: int, parts: int) -> list[int]:
    return [total // parts + (i < total % parts) for i in range(parts)]


def _log_ratio(prediction: TokenPrediction, j: int, choice: Choice) -> float:
    """log P(L) − log P(L given the tokens): the log ratio of the model's kernel to the guided kernel."""
    assert prediction.strings is not None
    string = prediction.strings[j]
    if string.log_p_language == -np.inf:
        return 0.0
    return string.log_p_language - string.log_p_language_given(choice.chosen, choice.ids)

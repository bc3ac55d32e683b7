"""The common part of processes on tokens: state, prediction, network call, and windows of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from diffinity.acceptance.partial import PartialString
from diffinity.alignment import TokenAutomaton
from diffinity.models.protocol import TokenDiffusion, check_logits
from diffinity.processes.base import most_probable


@dataclass(frozen=True)
class TokenPrediction:
    """The network's prediction for the unfinished rows, and its acceptance.

    A guided prediction has a partial string for each of these rows; an unguided prediction has none.
    """

    running: Tensor  # (R,): the rows of the network call
    network_logits: Tensor  # (R, l, V): at the positions of the network call
    first: int  # the first of these positions
    batch: int
    length: int
    strings: tuple[PartialString, ...] | None = None
    log_acceptance: Tensor | None = None  # (B,), float64; 0 for rows that are finished

    @property
    def logits(self) -> Tensor:
        """(B, L, V), zero at rows and positions that the network did not compute."""
        if self.network_logits.shape[:2] == (self.batch, self.length):
            return self.network_logits
        logits = self.network_logits.new_zeros(self.batch, self.length, self.network_logits.shape[2])
        stop = self.first + self.network_logits.shape[1]
        logits[self.running.to(logits.device), self.first : stop] = self.network_logits
        return logits

    def select(self, rows: Tensor) -> TokenPrediction:
        """The prediction of some rows."""
        index_of_row = {int(row): i for i, row in enumerate(self.running.tolist())}
        index_pairs = [(new, index_of_row[old]) for new, old in enumerate(rows.tolist()) if old in index_of_row]
        indices = [i for _, i in index_pairs]
        return replace(
            self,
            running=torch.tensor([new for new, _ in index_pairs], dtype=torch.long),
            network_logits=self.network_logits[indices],
            batch=len(rows),
            strings=None if self.strings is None else tuple(self.strings[i] for i in indices),
            log_acceptance=None if self.log_acceptance is None else self.log_acceptance[rows],
        )


@dataclass(frozen=True)
class TokenState:
    """A batch of token strings between two steps."""

    tokens: Tensor  # (B, L) on the CPU; for masked noise OPEN at masked positions
    step: int  # steps done
    log_p_text: Tensor  # (B,), float64: log-probability of the committed tokens when drawn
    prediction: TokenPrediction | None = None  # of the last step
    log_ratio: Tensor | None = None  # (B,), float64

    def select(self, rows: Tensor) -> TokenState:
        """The state of some rows."""
        return replace(self, tokens=self.tokens[rows], log_p_text=self.log_p_text[rows])

    def draft(self) -> tuple[Tensor, Tensor]:
        """The committed tokens (B, L), with probability 1; at open positions the most probable tokens."""
        tokens, probabilities = most_probable(self.prediction)
        committed = self.tokens >= 0
        return torch.where(committed, self.tokens, tokens), torch.where(committed, 1.0, probabilities)


@dataclass(frozen=True)
class Network:
    """The only place that calls the model: tokens in, logits out, after a prompt if there is one.

    `cfg_scale` w above 0 is LLaDA's classifier-free guidance: logits (1 + w)·conditional − w·unconditional,
    where the unconditional logits see a masked prompt.
    """

    model: TokenDiffusion
    context: Sequence[int] | None = None
    cfg_scale: float = 0.0

    def __call__(self, tokens: Tensor, t: float) -> Tensor:
        """Logits (B, l, V) for tokens (B, l) at time t, in the model's type and on its device."""
        logits = self._logits(tokens, t)
        if logits.device.type == "cpu" or t >= 1.0:  # on a GPU the check would wait for the device
            check_logits(self.model, logits, tokens.shape[0], tokens.shape[1], f"at time {t:.3g}")
        return logits

    def _logits(self, tokens: Tensor, t: float) -> Tensor:
        model, batch = self.model, tokens.shape[0]
        tokens = tokens.to(model.device)
        times = torch.full((batch,), t, dtype=torch.float64, device=model.device)
        if self.context is None:
            return model.logits(tokens, times)
        prompt = torch.tensor(list(self.context), dtype=torch.long, device=model.device).expand(batch, -1)
        if self.cfg_scale == 0:
            return model.logits(tokens, times, prompt)
        prompts = torch.cat([prompt, torch.full_like(prompt, model.mask_id)])
        conditional, unconditional = model.logits(
            torch.cat([tokens, tokens]), torch.cat([times, times]), prompts
        ).chunk(2)
        impossible = torch.isneginf(conditional) | torch.isneginf(
            unconditional
        )  # such as the mask: −inf − (−inf) is NaN
        return (unconditional + (self.cfg_scale + 1) * (conditional - unconditional)).masked_fill(
            impossible, -torch.inf
        )


@dataclass
class Windows:
    """The windows of one text's automaton, cached."""

    length: int
    _cache: dict[tuple[int, int, int, int], TokenAutomaton] = field(default_factory=dict)

    def at(self, automaton: TokenAutomaton, prefix: Sequence[int], stop: int) -> TokenAutomaton:
        """The automaton of the positions from `len(prefix)` to `stop`, after the tokens `prefix`."""
        if not prefix and stop == self.length:
            return automaton
        state = automaton.state_after(prefix)
        key = (id(automaton), state, len(prefix), stop)
        if key not in self._cache:
            self._cache[key] = automaton.window(state, self.length - stop)
        return self._cache[key]

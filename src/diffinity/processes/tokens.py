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
    """What the network says of the rows that are still being written, and acceptance on top of it.

    A guided prediction has a string for each of these rows; an unguided one has none.
    """

    running: Tensor  # (R,): the rows that the network was asked for
    own_logits: Tensor  # (R, l, V): of the positions that it was asked for
    first: int  # where these positions begin
    batch: int
    length: int
    strings: tuple[PartialString, ...] | None = None
    log_acceptance: Tensor | None = None  # (B,), float64; 0 for rows that are finished

    @property
    def logits(self) -> Tensor:
        """(B, L, V), zero where the network was not asked."""
        if self.own_logits.shape[:2] == (self.batch, self.length):
            return self.own_logits
        whole = self.own_logits.new_zeros(self.batch, self.length, self.own_logits.shape[2])
        stop = self.first + self.own_logits.shape[1]
        whole[self.running.to(whole.device), self.first : stop] = self.own_logits
        return whole

    def select(self, rows: Tensor) -> TokenPrediction:
        """That of some rows."""
        place = {int(row): i for i, row in enumerate(self.running.tolist())}
        moved = [(new, place[old]) for new, old in enumerate(rows.tolist()) if old in place]
        at = [i for _, i in moved]
        return replace(
            self,
            running=torch.tensor([new for new, _ in moved], dtype=torch.long),
            own_logits=self.own_logits[at],
            batch=len(rows),
            strings=None if self.strings is None else tuple(self.strings[i] for i in at),
            log_acceptance=None if self.log_acceptance is None else self.log_acceptance[rows],
        )


@dataclass(frozen=True)
class TokenState:
    """A batch of token strings between two steps."""

    tokens: Tensor  # (B, L) on the CPU; for masked noise OPEN where there is none yet
    step: int  # steps done
    log_p_text: Tensor  # (B,), float64: of the tokens that stand, as they were taken
    prediction: TokenPrediction | None = None  # of the last step
    log_ratio: Tensor | None = None  # (B,), float64

    def select(self, rows: Tensor) -> TokenState:
        """The state of some rows."""
        return replace(self, tokens=self.tokens[rows], log_p_text=self.log_p_text[rows])

    def draft(self) -> tuple[Tensor, Tensor]:
        """The committed tokens (B, L), with probability 1; at open positions the most probable tokens."""
        tokens, sure = most_probable(self.prediction)
        known = self.tokens >= 0
        return torch.where(known, self.tokens, tokens), torch.where(known, 1.0, sure)


@dataclass(frozen=True)
class Network:
    """The only place that calls the model: tokens in, logits out, behind a prompt if there is one.

    `cfg_scale` w above 0 is LLaDA's classifier-free guidance: logits (1 + w)·conditional − w·unconditional,
    where the unconditional ones see a masked prompt.
    """

    model: TokenDiffusion
    context: Sequence[int] | None = None
    cfg_scale: float = 0.0

    def __call__(self, tokens: Tensor, t: float) -> Tensor:
        """Logits (B, l, V) for tokens (B, l) at time t, in the model's type and on its device."""
        logits = self._logits(tokens, t)
        if logits.device.type == "cpu" or t >= 1.0:  # elsewhere looking means waiting for the device
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
        both = torch.cat([prompt, torch.full_like(prompt, model.mask_id)])
        given, free = model.logits(torch.cat([tokens, tokens]), torch.cat([times, times]), both).chunk(2)
        impossible = torch.isneginf(given) | torch.isneginf(free)  # such as the mask itself: −inf less −inf is NaN
        return (free + (self.cfg_scale + 1) * (given - free)).masked_fill(impossible, -torch.inf)


@dataclass
class Windows:
    """The windows of one text's automaton, each made once."""

    length: int
    _made: dict[tuple[int, int, int, int], TokenAutomaton] = field(default_factory=dict)

    def at(self, automaton: TokenAutomaton, before: Sequence[int], stop: int) -> TokenAutomaton:
        """The automaton of the positions from `len(before)` to `stop`, after these tokens."""
        if not before and stop == self.length:
            return automaton
        state = automaton.state_after(before)
        key = (id(automaton), state, len(before), stop)
        if key not in self._made:
            self._made[key] = automaton.window(state, self.length - stop)
        return self._made[key]

"""Proposed tokens for a block, of which a loop commits some: the tokens of one accepted string.

The model's own tokens are drawn first. If they form an accepted string, they are used; otherwise the row gets a
string drawn from p given acceptance. The result of both cases has exactly this distribution:
p(x)·[x ∈ L] + (1 − P(L))·p(x | L) = p(x | L).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.acceptance.classes import (
    Choice,
    ClassScores,
    best_string,
    class_scores,
    draw_string,
    log_ratios,
    settle,
)
from diffinity.alignment import TokenAutomaton
from diffinity.integrations.texts import fits


@dataclass(frozen=True)
class Settled:
    """The positions of a block that already have a token, and those that may be edited."""

    tokens: NDArray[np.int64]  # (B, L)
    fixed: NDArray[np.bool_]  # (B, L)
    editable: NDArray[np.bool_]  # (B, L)
    edit_above: float = np.inf  # a token replaces a settled one if its probability is larger

    def at(self, part: slice) -> Settled:
        """The same data for a part of the positions."""
        return Settled(self.tokens[:, part], self.fixed[:, part], self.editable[:, part], self.edit_above)


@dataclass(frozen=True)
class Proposal:
    """The distributions softmax(logits / temperature) that a row's tokens may be drawn from."""

    logits: Tensor  # (L, V)
    temperature: float = 1.0
    scores: ClassScores | None = None  # of these logits at this temperature, if already computed

    def read(self, window: TokenAutomaton, choices: Mapping[int, Choice]) -> ClassScores:
        if self.scores is not None:
            return settle(self.scores, window, choices) if choices else self.scores
        return class_scores(self.logits, window, temperature=self.temperature, choices=choices)


def joint_tokens(
    proposals: Callable[[int], Sequence[Proposal]],
    windows: Sequence[TokenAutomaton | None],
    settled: Settled,
    tokens: Tensor,
    probs: Tensor,
    new_generator: Callable[[], np.random.Generator] | None,
) -> None:
    """Replace the tokens (B, L) and their probabilities (B, L), in place, in rows that would not be accepted.

    `proposals(i)` are the distributions of row i, in order of preference: the next one is used if no accepted
    string has a positive probability under the previous one. `new_generator()` creates a generator for a draw;
    with None the best string is used. A settled position keeps its token, or takes the sampled token if that may
    replace it.
    """
    for i, window in enumerate(windows):
        if window is None or window.free[window.start]:
            continue
        proposed, confidence = tokens[i].cpu().numpy(), probs[i].double().cpu().numpy()
        fixed, current = settled.fixed[i], settled.tokens[i]
        edits = fixed & settled.editable[i] & (proposed != current) & (confidence > settled.edit_above)
        if fits(window, np.where(fixed & ~edits, current, proposed)):
            continue
        ids, probability = _accepted_tokens(
            proposals(i), window, current, proposed, confidence, fixed, edits, new_generator
        )
        tokens[i] = torch.from_numpy(ids).to(tokens)
        unchanged = fixed & (ids == proposed)
        probs[i] = torch.from_numpy(np.where(unchanged, confidence, probability)).to(probs)


def _accepted_tokens(
    proposals: Sequence[Proposal],
    window: TokenAutomaton,
    current: NDArray[np.int64],
    proposed: NDArray[np.int64],
    confidence: NDArray[np.float64],
    fixed: NDArray[np.bool_],
    edits: NDArray[np.bool_],
    new_generator: Callable[[], np.random.Generator] | None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The tokens (L,) of an accepted string and their probabilities given acceptance (L,)."""
    choices = {int(k): Choice.of(int(current[k])) for k in np.flatnonzero(fixed & ~edits)}
    for k in map(int, np.flatnonzero(edits)):
        row = proposals[0].logits[k].float() / proposals[0].temperature
        p_current = float(row.softmax(-1)[current[k]])
        choices[k] = Choice(np.array([current[k], proposed[k]]), np.log([max(p_current, 1e-12), confidence[k]]))
    for proposal in proposals:
        scores = proposal.read(window, choices)
        log_p_language, shift = log_ratios(scores, window)
        if log_p_language > -np.inf:
            break
    logits, temperature = proposal.logits, proposal.temperature
    if new_generator is None:
        ids = best_string(scores, window)
    else:
        reused = proposed if proposal is proposals[0] else None  # the tokens were drawn from the first proposal
        ids = draw_string(scores, window, logits, new_generator(), temperature=temperature, drawn_tokens=reused)
    if shift is None:
        return ids, np.zeros(len(ids))
    positions = torch.arange(len(ids), device=logits.device)
    chosen = logits[positions, torch.from_numpy(ids).to(logits.device)].double().cpu().numpy()
    log_p = (chosen - scores.log_norm) / temperature
    with np.errstate(invalid="ignore"):
        probability = np.exp(np.minimum(log_p + shift[np.arange(len(ids)), window.class_of[ids]], 0.0))
    return ids, np.where(fixed, 1.0, np.nan_to_num(probability))

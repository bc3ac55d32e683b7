"""One step of masked diffusion for one sequence: which positions are unmasked, and which tokens they get.

The order is LLaDA's: as many positions as the schedule says, the most confident ones or random ones. The tokens
are those of one of four decodings, each a function of `Unmasking`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from diffinity.acceptance import acceptance, decode
from diffinity.alignment import TokenAutomaton
from diffinity.baselines.dingo import best_completable
from diffinity.baselines.drawing import draw
from diffinity.baselines.engines import AutomatonMatcher

Remasking = Literal["low-confidence", "random"]
MASKED = -1


def schedule(length: int, block_length: int, steps: int) -> Iterator[tuple[slice, int]]:
    """The positions that are open at each step and how many of them it unmasks, block after block.

    Blocks share the steps evenly, and the steps of a block its positions; what is left over goes to the first.

    >>> list(schedule(length=5, block_length=3, steps=4))
    [(slice(0, 3, None), 2), (slice(0, 3, None), 1), (slice(3, 5, None), 1), (slice(3, 5, None), 1)]
    """
    starts = range(0, length, block_length)
    for start, share in zip(starts, _shares(steps, len(starts)), strict=True):
        block = slice(start, min(start + block_length, length))
        size = block.stop - block.start
        for count in _shares(size, min(max(share, 1), size)):
            yield block, count


def _shares(total: int, parts: int) -> list[int]:
    return [total // parts + (i < total % parts) for i in range(parts)]


@dataclass(frozen=True)
class Unmasking:
    """What a step has to go by."""

    logits: Tensor  # (L, V), float64
    tokens: Tensor  # (L,), −1 where masked
    block: slice  # where positions may be unmasked
    count: int
    temperature: float
    remasking: Remasking
    generator: torch.Generator

    @cached_property
    def log_probs(self) -> Tensor:
        """(L, V): log p of every token."""
        return self.logits.log_softmax(dim=-1)

    @cached_property
    def open(self) -> Tensor:
        """(L,): the masked positions of the block."""
        inside = torch.zeros_like(self.tokens, dtype=torch.bool)
        inside[self.block] = True
        return inside & (self.tokens == MASKED)

    def chosen(self, confidence: Tensor) -> Tensor:
        """(k,): the positions to unmask now, by confidence (L,) or at random."""
        if self.remasking == "random":
            confidence = torch.rand(len(self.tokens), generator=self.generator, dtype=torch.float64)
        count = min(self.count, int(self.open.sum()))
        return confidence.masked_fill(~self.open, -torch.inf).topk(count).indices

    def perturbed(self) -> Tensor:
        """(L, V): log p + temperature·Gumbel noise, whose largest entry is a draw from p^(1/temperature)."""
        if self.temperature == 0:
            return self.log_probs
        noisy = self.log_probs.clone()
        shape = (int(self.open.sum()), noisy.shape[1])  # the other positions are not looked at
        uniform = torch.rand(shape, generator=self.generator, dtype=torch.float64).clamp(min=1e-300)
        noisy[self.open] -= self.temperature * (-uniform.log()).log()
        return noisy

    def pinned(self, scores: Tensor) -> Tensor:
        """The scores (L, V) with 0 for the token of every position that has one and −inf for all others there."""
        known = self.tokens != MASKED
        scores = scores.clone()
        scores[known] = -torch.inf
        scores[known, self.tokens[known]] = 0.0
        return scores


def unconstrained(step: Unmasking) -> Tensor:
    """LLaDA's own step: draw all tokens (L,), keep the most confident."""
    drawn = step.perturbed().argmax(dim=-1)
    at = step.chosen(_confidence(step, drawn))
    return step.tokens.index_copy(0, at, drawn[at])


def dingo(step: Unmasking, automaton: TokenAutomaton) -> Tensor:
    """DINGO's: the positions as LLaDA chooses them, their tokens (L,) the best that can be completed."""
    scores = step.perturbed()
    at = step.chosen(_confidence(step, scores.argmax(dim=-1)))
    stays = step.tokens == MASKED
    stays[at] = False
    scores = step.pinned(scores)
    scores[stays] = -torch.inf
    mask_score = torch.where(stays, 0.0, -torch.inf).double()
    return best_completable(scores[None], mask_score[None], automaton).tokens[0]


def exact(step: Unmasking, automaton: TokenAutomaton) -> Tensor:
    """Tokens (L,) drawn jointly from the model's distributions given that the whole sequence is accepted.

    The positions are chosen before the draw, by the posterior marginals, so that the choice does not bend it.
    """
    logits = step.pinned(step.logits / step.temperature)[None]
    confidence = torch.zeros(len(step.tokens), dtype=torch.float64)
    if step.remasking == "low-confidence":
        confidence = acceptance(logits, automaton, logits=True).marginals[0].max(dim=-1).values
    at = step.chosen(confidence)
    seed = int(torch.randint(2**62, (), generator=step.generator))
    drawn = decode(logits, automaton, "sample", logits=True, seed=seed).tokens[0]
    return step.tokens.index_copy(0, at, drawn[at])


def left_to_right(step: Unmasking, automaton: TokenAutomaton) -> Tensor:
    """The first masked positions in order, each token (L,) from those that can be completed within the length."""
    matcher = AutomatonMatcher(automaton, len(step.tokens))
    tokens = step.tokens.clone()
    logits = step.logits.numpy()
    first = int(step.open.nonzero()[0])
    for token in tokens[:first].tolist():
        matcher.advance(token)
    for k in range(first, min(first + step.count, len(tokens))):
        tokens[k] = draw(logits[k], matcher.allowed(), step.generator, step.temperature)
        matcher.advance(int(tokens[k]))
    return tokens


def _confidence(step: Unmasking, tokens: Tensor) -> Tensor:
    """(L,): how probable the model finds the tokens (L,)."""
    return step.log_probs.gather(1, tokens[:, None])[:, 0]

"""`MaskedSystem`: texts from a masked diffusion model, under a constraint in one of four ways.

The loop is LLaDA's (*Large Language Diffusion Models*, Nie et al., 2025): all positions start masked; every step
predicts them all and unmasks a few, which then stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import torch
from torch import Tensor

from diffinity.acceptance.cpu import over_batch
from diffinity.alignment import align
from diffinity.baselines.dingo import prefixes
from diffinity.baselines.drawing import check_draw
from diffinity.baselines.masked_model import MaskedModel, masked_model
from diffinity.baselines.spelling import text_before_end, vocabulary_of
from diffinity.baselines.unmasking import (
    MASKED,
    Remasking,
    Unmasking,
    dingo,
    exact,
    left_to_right,
    schedule,
    unconstrained,
)
from diffinity.constraints.base import Constraint
from diffinity.errors import InvalidArgument
from diffinity.models.transformer import MaskedLM
from diffinity.sampling import sample_generator

Decoding = Literal["dingo", "exact", "left-to-right", "unconstrained"]
Promise = Literal["complete", "prefix"]


@dataclass(frozen=True)
class MaskedSystem:
    """Masked diffusion as LLaDA does it, with a constraint on the tokens that each step unmasks.

    `dingo` gives them the most probable string that can be completed, `exact` draws them from the model's
    distributions given the constraint, `left-to-right` goes in order and leaves out what can't be completed,
    `unconstrained` takes what the model says. The first three always satisfy the constraint, except `dingo` with
    `promise="prefix"`: its paper promises a beginning of an accepted text, ours one that fits the length.

    `steps` is the number of network calls (None: one for each position), `block_length` that of the blocks that
    are finished one after another (None: one block), `remasking` LLaDA's rule for what stays masked. `temperature`
    0 is greedy, and every text the same then.

    >>> import diffinity as dy
    >>> from diffinity.models.tokenization import train_bpe
    >>> from diffinity.models.transformer import Transformer, TransformerConfig
    >>> network = Transformer(TransformerConfig(257, dim=8, n_blocks=1, n_heads=1, causal=False))
    >>> system = MaskedSystem(MaskedLM(network, train_bpe(["a"], 257), eos_token_id=0), decoding="dingo")
    >>> system.name, system.generate(dy.Regex("(ab)?c"), n=1, length=4, seed=0)[0] in ("c", "abc")
    ('masked-dingo', True)
    """

    model: MaskedLM | MaskedModel | str
    decoding: Decoding = "dingo"
    steps: int | None = None
    block_length: int | None = None
    remasking: Remasking = "low-confidence"
    temperature: float = 1.0
    promise: Promise = "complete"
    batch_size: int = 32
    name: str = ""

    def __post_init__(self) -> None:
        for field, values in _CHOICES.items():
            if getattr(self, field) not in values:
                raise InvalidArgument(
                    f"{field} must be one of {', '.join(values)}, but is {getattr(self, field)!r}"
                )
        for field in ("steps", "block_length", "batch_size"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise InvalidArgument(f"{field} must be at least 1, but is {value}")
        check_draw(self.temperature)
        if self.decoding == "exact" and self.temperature == 0:
            raise InvalidArgument("decoding 'exact' draws from a distribution: temperature must be above 0")
        if self.promise == "prefix" and self.decoding != "dingo":
            raise InvalidArgument(f"promise 'prefix' is one of 'dingo', not of {self.decoding!r}")
        if not self.name:
            suffix = "-prefix" if self.promise == "prefix" else ""
            object.__setattr__(self, "name", f"masked-{self.decoding}{suffix}")

    @cached_property
    def _masked(self) -> MaskedModel:
        return masked_model(self.model)

    def generate(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        """`n` texts of at most `length` tokens, the end token among them; text i is drawn from (seed, i).

        `InfeasibleConstraint` is raised where no text fits the length.
        """
        if n < 1 or length < 1:
            raise InvalidArgument(f"n and length must be at least 1, but are {n} and {length}")
        unmask = self._unmasker(constraint, length)
        texts: list[str] = []
        for first in range(0, n, self.batch_size):
            indices = range(first, min(first + self.batch_size, n))
            found = self._denoise([sample_generator(seed, i) for i in indices], length, unmask)
            texts += [text_before_end(self._masked, ids) for ids in found.tolist()]
        return texts

    def _unmasker(self, constraint: Constraint, length: int) -> Callable[[Unmasking], Tensor]:
        if self.decoding == "unconstrained":
            return unconstrained
        automaton = align(constraint, vocabulary_of(self._masked), "eos")
        if self.promise == "prefix":
            automaton = prefixes(automaton)
        automaton.check_feasible(length)
        under = {"dingo": dingo, "exact": exact, "left-to-right": left_to_right}[self.decoding]
        return partial(under, automaton=automaton)

    def _denoise(
        self, generators: list[torch.Generator], length: int, unmask: Callable[[Unmasking], Tensor]
    ) -> Tensor:
        """Tokens (B, L), one row per generator; masks may be left behind the first end token."""
        model = self._masked
        tokens = torch.full((len(generators), length), MASKED)
        for block, count in schedule(length, self.block_length or length, self.steps or length):
            running = [i for i in range(len(tokens)) if not _is_decided(tokens[i], model.eos_token_id)]
            if not running:
                break
            shown = tokens[running].masked_fill(tokens[running] == MASKED, model.mask_id)
            logits = model.logits(shown).cpu().double()
            parts = [
                Unmasking(scores, tokens[i], block, count, self.temperature, self.remasking, generators[i])
                for scores, i in zip(logits, running, strict=True)
            ]
            tokens[running] = _each(unmask, parts)
        return tokens


_CHOICES = {
    "decoding": ("dingo", "exact", "left-to-right", "unconstrained"),
    "remasking": ("low-confidence", "random"),
    "promise": ("complete", "prefix"),
}


def _each(unmask: Callable[[Unmasking], Tensor], parts: list[Unmasking]) -> Tensor:
    """The tokens (B, L) after a step, in as many threads as torch uses."""
    return torch.stack(list(over_batch(lambda row: unmask(parts[row]), len(parts))))


def _is_decided(tokens: Tensor, end: int) -> bool:
    """Whether the text of tokens (L,) can't change any more: nothing is masked before the first end token."""
    before = tokens[: int((tokens == end).nonzero()[0])] if bool((tokens == end).any()) else tokens
    return not bool((before == MASKED).any())

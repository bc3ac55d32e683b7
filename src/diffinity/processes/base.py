"""The interface of a denoising process: begin, predict, step, finish; and the random numbers of a sample.

The loop (`generation/loop.py`) uses only these methods. Only `predict` calls the network; `step` is a pure
function of the state, the prediction and the draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from diffinity.acceptance import Decoded, acceptance
from diffinity.acceptance import decode as decode_strings
from diffinity.alignment import TokenAutomaton
from diffinity.errors import InvalidArgument

FinishReason = Literal["complete", "stopped", "cancelled", "deadline"]
Decoding = Literal["best", "sample", "argmax"]
Seeds = Sequence[tuple[int, int]]


class Cancellation(Protocol):
    """Anything with `is_set()`, such as a `threading.Event`."""

    def is_set(self) -> bool: ...


class StepPrediction(Protocol):
    """The prediction of the network and the guidance at one step."""

    @property
    def logits(self) -> Tensor:
        """(B, L, V)."""
        ...

    @property
    def log_acceptance(self) -> Tensor | None:
        """(B,): log P(L) of the distributions at this step, with a constraint."""
        ...

    def select(self, rows: Tensor) -> Self:
        """The prediction of some rows; rows may repeat."""
        ...


class State(Protocol):
    """A batch between two steps."""

    @property
    def step(self) -> int:
        """Steps done."""
        ...

    @property
    def prediction(self) -> StepPrediction | None:
        """The prediction of the last step."""
        ...

    @property
    def log_ratio(self) -> Tensor | None:
        """(B,), float64: log p/r of the last step (p: the model's kernel, r: the guided kernel)."""
        ...

    def select(self, rows: Tensor) -> Self:
        """The state of some rows; rows may repeat."""
        ...

    def draft(self) -> tuple[Tensor, Tensor]:
        """The text of the state if it were decoded now: tokens (B, L), and their probabilities, float64."""
        ...


S = TypeVar("S", bound=State)
P = TypeVar("P", bound=StepPrediction)


class Process(Protocol[S, P]):
    """A process from noise to text."""

    @property
    def num_inference_steps(self) -> int: ...

    def begin(self, draws: Draws, length: int) -> S:
        """Noise: the state before the first step."""
        ...

    def predict(self, state: S) -> P:
        """The prediction of the network and the guidance."""
        ...

    def step(self, state: S, prediction: P, draws: Draws) -> S:
        """The state after one more step."""
        ...

    def finish(self, state: S) -> Ending:
        """The ending of the current state."""
        ...


@dataclass(frozen=True)
class Ending:
    """The result of a run: distributions to decode, or tokens if all positions are decided."""

    logits: Tensor | None = None  # (B, L, V)
    tokens: Tensor | None = None  # (B, L)
    log_p_text: Tensor | None = None  # (B,), float64: log-probability of the tokens when drawn

    def select(self, rows: Tensor) -> Ending:
        """The ending of some rows."""
        return Ending(*(None if part is None else part[rows.to(part.device)] for part in self._parts()))

    def log_acceptance(self, automata: Sequence[TokenAutomaton]) -> Tensor:
        """log P(L) of every row, (B,). For tokens it is 0 if they are accepted, otherwise −inf."""
        if self.tokens is None:
            assert self.logits is not None
            return acceptance(self.logits, automata, logits=True).log_p_language
        accepted = [automaton.accepts(ids) for automaton, ids in zip(automata, self.tokens.tolist(), strict=True)]
        return torch.where(torch.tensor(accepted), 0.0, -torch.inf).double()

    def decode(self, automata: Sequence[TokenAutomaton], how: Decoding, seeds: Seeds) -> Decoded:
        """The tokens of every row; "best" and "sample" always give accepted strings."""
        if self.tokens is None:
            assert self.logits is not None
            return decode_strings(self.logits, automata, how, logits=True, seed=seeds)
        assert self.log_p_text is not None
        tokens = self.tokens if how == "argmax" else _repaired(self.tokens, automata)
        return Decoded(tokens, self.log_p_text)

    def _parts(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        return self.logits, self.tokens, self.log_p_text


def _repaired(tokens: Tensor, automata: Sequence[TokenAutomaton]) -> Tensor:
    """The tokens (B, L); a row that is not accepted is replaced by the accepted string with the fewest changes.

    Only texts written without guidance need this.
    """
    refused = [i for i, ids in enumerate(tokens.tolist()) if not automata[i].accepts(ids)]
    for i in refused:
        scores = torch.zeros(1, tokens.shape[1], automata[i].vocab_size)
        scores.scatter_(2, tokens[i].clamp(max=automata[i].vocab_size - 1)[None, :, None], 1.0)
        repaired = decode_strings(scores, automata[i], "best", logits=True).tokens
        tokens = torch.cat([tokens[:i], repaired.to(tokens), tokens[i + 1 :]])
    return tokens


def draft_of(state: State) -> tuple[Tensor, Tensor]:
    """The text of a state if it were decoded now: tokens (B, L), and their probabilities, float64."""
    if state.prediction is None:
        raise InvalidArgument("a state before the first step has no prediction to show")
    return state.draft()


def most_probable(prediction: StepPrediction | None) -> tuple[Tensor, Tensor]:
    """The most probable token at every position (B, L), and its probability, float64, on the CPU."""
    assert prediction is not None
    top, tokens = prediction.logits.max(dim=-1)
    probability = (top.double() - prediction.logits.double().logsumexp(dim=-1)).exp()
    return tokens.cpu(), probability.cpu()


class Draws:
    """Random numbers with one generator per sample, so that a sample does not depend on its batch.

    A sample's seed is the pair (seed, index); its K rows (particles) share its generator. Numbers are drawn on the
    CPU and then moved, so a sample is the same on every device, up to the network's rounding.

    >>> alone, beside = Draws([(0, 7)]), Draws([(0, 5), (0, 7)])
    >>> bool((alone.normal(2, 3)[0] == beside.normal(2, 3)[1]).all())
    True
    """

    def __init__(self, seeds: Seeds, rows: int = 1) -> None:
        self._rows = rows
        self._generators = [sample_generator(*seed) for seed in seeds]

    def select(self, samples: Sequence[int]) -> Draws:
        """The draws of some samples, continued from their current state."""
        chosen = Draws((), self._rows)
        chosen._generators = [self._generators[i] for i in samples]
        return chosen

    def __len__(self) -> int:
        return len(self._generators) * self._rows

    def normal(self, length: int, width: int) -> Tensor:
        """Standard normal draws (B, length, width), float64."""
        return self._draw_rows((length, width), torch.randn)

    def uniform(self, *shape: int) -> Tensor:
        """Draws from [0, 1), (B, *shape), float64."""
        return self._draw_rows(shape, torch.rand)

    def seeds(self) -> list[tuple[int, int]]:
        """A separate seed for every row."""
        return [
            (int(seed), 0)
            for generator in self._generators
            for seed in torch.randint(2**62, (self._rows,), generator=generator).tolist()
        ]

    def _draw_rows(self, shape: tuple[int, ...], draw: Callable[..., Tensor]) -> Tensor:
        first, *other_sizes = shape if shape else (1,)
        drawn = [
            draw((self._rows * first, *other_sizes), generator=generator, dtype=torch.float64)
            for generator in self._generators
        ]
        return torch.stack(drawn).view(len(self), *shape)


def sample_generator(seed: int, index: int) -> torch.Generator:
    """The generator of sample `index` of a run with `seed`.

    >>> sample_generator(0, 1).initial_seed() == sample_generator(0, 2).initial_seed()
    False
    """
    if seed < 0 or index < 0:
        raise InvalidArgument(f"seed and index must not be negative, but are {seed} and {index}")
    state = np.random.SeedSequence((seed, index)).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))

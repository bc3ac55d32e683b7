"""`ConditionalSystem`: a causal model's own texts given the constraint, by twisted sequential Monte Carlo.

Masking tokens step by step does not give p(text | L): what is likely now may leave only unlikely ways to finish.
Here K beginnings of a text grow together. Each is drawn towards tokens from which the constraint is likely to be
met, is weighed by what that changed, and the light ones give way to copies of the heavy ones. With many particles
the texts are draws from p(text | L), and the mean weight is an unbiased estimate of P(L).

How likely the constraint is to be met from a state of its automaton with so many tokens left is asked of a model
without memory, ψ_k[s] = Σ_v u_k[v]·ψ_{k+1}[δ(s, v)], with u_k the causal model's own distribution at position k,
averaged over free texts. Any ψ that is positive where the constraint can be met leaves the limit as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.alignment import TokenAutomaton, align
from diffinity.baselines.spelling import text_before_end, vocabulary_of
from diffinity.constraints.base import Constraint
from diffinity.errors import InvalidArgument
from diffinity.generation.particles import Population
from diffinity.models.causal import CausalModel, causal_model
from diffinity.models.transformer import AutoregressiveLM
from diffinity.processes.base import Draws

ROWS = 256  # particles in one pass of the network
FREE_TEXTS = 128  # from which the memoryless model is taken
FREE_SEED = 0

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Drawn:
    """Texts given the constraint, and the logarithm of the estimate of P(L), one of each run of K particles."""

    texts: list[str]
    log_probability: list[float]


@dataclass(frozen=True)
class ConditionalSystem:
    """Texts of a causal model given that they satisfy the constraint within the length, `particles` for each.

    What the length and its end token mean is as in `AutoregressiveSystem` with the engine `diffinity`; every text
    satisfies the constraint, whatever the number of particles.

    >>> import diffinity as dy
    >>> from diffinity.models.tokenization import train_bpe
    >>> from diffinity.models.transformer import Transformer, TransformerConfig
    >>> network = Transformer(TransformerConfig(257, dim=8, n_blocks=1, n_heads=1, causal=True))
    >>> system = ConditionalSystem(AutoregressiveLM(network, train_bpe(["a"], 257), eos_token_id=0), particles=4)
    >>> system.name, system.generate(dy.Regex("(ab)?c"), n=1, length=4, seed=0)[0] in ("c", "abc")
    ('autoregressive-conditional', True)
    """

    model: AutoregressiveLM | CausalModel | str
    particles: int = 32
    name: str = "autoregressive-conditional"
    _free: dict[int, Floats] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.particles < 1:
            raise InvalidArgument(f"particles must be at least 1, but is {self.particles}")

    @cached_property
    def _causal(self) -> CausalModel:
        return causal_model(self.model)

    def generate(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        """`n` texts of at most `length` tokens; text i is drawn from (seed, i)."""
        return self.draw(constraint, n, length, seed).texts

    def draw(self, constraint: Constraint, n: int, length: int, seed: int) -> Drawn:
        """As `generate`, with the estimates of log P(L) that come with the texts.

        `InfeasibleConstraint` is raised where no text fits the length.
        """
        if n < 1 or length < 1:
            raise InvalidArgument(f"n and length must be at least 1, but are {n} and {length}")
        automaton = align(constraint, vocabulary_of(self._causal), "eos")
        automaton.check_feasible(length)
        ahead = look_ahead(automaton, self._frequencies(length), self._causal.eos_token_id)
        found = Drawn([], [])
        together = max(1, ROWS // self.particles)
        for first in range(0, n, together):
            seeds = [(seed, i) for i in range(first, min(first + together, n))]
            run = _Run(self._causal, automaton, ahead, self.particles, seeds)
            ids, log_probability = run.finish(length)
            found.texts.extend(text_before_end(self._causal, one) for one in ids)
            found.log_probability.extend(log_probability)
        return found

    def _frequencies(self, length: int) -> Floats:
        """(length, V): the distribution of the next token, averaged over free texts that have not ended before."""
        if length not in self._free:
            self._free[length] = free_frequencies(self._causal, length)
        return self._free[length]


def free_frequencies(model: CausalModel, length: int) -> Floats:
    """The model's distribution at each position, (length, V), averaged over free texts that go on that far.

    Where all have ended before, it is that of the position before.
    """
    generator = torch.Generator().manual_seed(FREE_SEED)
    continuations = model.start(FREE_TEXTS, length)
    going_on = torch.ones(FREE_TEXTS, dtype=torch.bool)
    found: list[Floats] = []
    for k in range(length):
        probs = continuations.logits().double().cpu().softmax(dim=1)
        found.append(probs[going_on].mean(dim=0).numpy() if bool(going_on.any()) else found[-1])
        drawn = torch.multinomial(probs, 1, generator=generator)[:, 0]
        going_on &= drawn != model.eos_token_id
        if k + 1 < length:
            continuations.append(drawn)
    return np.stack(found)


def look_ahead(automaton: TokenAutomaton, frequencies: Floats, end: int) -> Floats:
    """log ψ (length + 1, S + 1): how likely acceptance is from each state, for tokens drawn independently.

    The last column, −inf, is what the transition −1 falls on. A text that has ended is accepted for good.

    >>> import diffinity as dy
    >>> automaton = align(dy.Regex("a*b"), dy.Vocabulary([b"a", b"b", None], eos_id=2), "eos")
    >>> psi = np.exp(look_ahead(automaton, np.full((3, 3), 1 / 3), end=2))
    >>> psi[0, 0].round(4).item() == round(1 / 9 + 1 / 27, 4)  # "b" or "ab", each with its end
    True
    """
    length, classes = frequencies.shape[0], automaton.n_classes
    live = automaton.live(length)
    mass = np.zeros((length, classes))
    for k in range(length):
        mass[k] = np.bincount(automaton.class_of, frequencies[k, : len(automaton.class_of)], classes)
    found = np.full((length + 1, automaton.n_states + 1), -np.inf)
    found[length, :-1][automaton.accepting & live[length]] = 0.0
    ending = automaton.next[:, automaton.class_of[end]]
    with np.errstate(divide="ignore"):
        for k in range(length - 1, -1, -1):
            found[k + 1, ending[live[k] & (ending >= 0)]] = 0.0
            terms = np.log(mass[k]) + found[k + 1][automaton.next]  # (S, C)
            found[k, :-1] = np.where(live[k], np.logaddexp.reduce(terms, axis=1), -np.inf)
    return found


class _Run:
    """Some texts, K particles for each, one row a particle; the weights are those of every other process."""

    def __init__(
        self,
        model: CausalModel,
        automaton: TokenAutomaton,
        ahead: Floats,
        particles: int,
        seeds: list[tuple[int, int]],
    ) -> None:
        self.model, self.automaton, self.ahead, self.k = model, automaton, ahead, particles
        self.draws, self.population = Draws(seeds, particles), Population(seeds, particles)
        rows = particles * len(seeds)
        self.state: Ints = np.zeros(rows, np.int64)
        self.ended: NDArray[np.bool_] = np.zeros(rows, np.bool_)
        self.tokens: Ints = np.zeros((rows, 0), np.int64)

    def finish(self, length: int) -> tuple[list[list[int]], list[float]]:
        """The token ids of one particle of each text, with the end token where it was reached; log P(L)."""
        continuations = self.model.start(len(self.state), length)
        for step in range(length):
            self._extend(continuations.logits(), step)
            if self.ended.all() or step + 1 == length:
                break
            survivors = self.population.resample(self._log_twist(step + 1))
            if survivors is not None:
                rows = survivors.numpy()
                self.state, self.ended, self.tokens = self.state[rows], self.ended[rows], self.tokens[rows]
                continuations.select(survivors)
            continuations.append(torch.from_numpy(self.tokens[:, -1]))
        chosen = self.population.choose(self._log_twist(self.tokens.shape[1]))
        return self.tokens[chosen.numpy()].tolist(), self.population.log_evidence.tolist()

    def _log_twist(self, step: int) -> Tensor:
        """log ψ of every row after so many tokens; a text that has ended is accepted."""
        return torch.from_numpy(np.where(self.ended, 0.0, self.ahead[step, self.state]))

    def _extend(self, logits: Tensor, step: int) -> None:
        """One token for every row, drawn in proportion to p[v]·ψ[δ(s, v)], and what that does to its weight."""
        end = self.model.eos_token_id
        uniform, drawn = self.draws.uniform(1)[:, 0].numpy(), np.full(len(self.state), end)
        log_ratio, rows = np.zeros(len(self.state)), np.flatnonzero(~self.ended)
        log_p = logits.double().cpu().log_softmax(dim=1).numpy()[rows, : len(self.automaton.class_of)]
        by_class = self.ahead[step + 1][self.automaton.next[self.state[rows]]]  # (R, C)
        scores = log_p + by_class[:, self.automaton.class_of]
        peak = scores.max(axis=1)
        cumulated = np.exp(scores - peak[:, None]).cumsum(axis=1)
        taken = (cumulated <= (uniform[rows] * cumulated[:, -1])[:, None]).sum(axis=1)
        drawn[rows] = taken
        self.state[rows] = self.automaton.next[self.state[rows], self.automaton.class_of[taken]]
        log_ratio[rows] = peak + np.log(cumulated[:, -1]) - self.ahead[step + 1, self.state[rows]]
        self.population.moved(torch.from_numpy(log_ratio))
        self.tokens = np.concatenate([self.tokens, drawn[:, None]], axis=1)
        self.ended |= drawn == end

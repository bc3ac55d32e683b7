"""`ConditionalSystem`: texts of a causal model given the constraint, by twisted sequential Monte Carlo.

It is `dy.generate(model, constraint, particles=K)` (`processes/causal.py`): with many particles the texts are
draws from p(text | L), and the mean weight is an unbiased estimate of P(L).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from diffinity.alignment import align
from diffinity.constraints.base import Constraint
from diffinity.errors import InvalidArgument
from diffinity.models.causal import causal_model
from diffinity.models.protocol import CausalModel, text_of, vocabulary_of
from diffinity.sampling import sample_particles

ROWS = 256  # particles in one pass of the network


@dataclass(frozen=True)
class Drawn:
    """Texts given the constraint, and the log of the estimate of P(L), one for each run of K particles."""

    texts: list[str]
    log_probability: list[float]


@dataclass(frozen=True)
class ConditionalSystem:
    """Texts of a causal model, drawn given that they satisfy the constraint within the length.

    Each text is chosen from `particles` weighted sequences.

    The length and the end token have the same meaning as in `AutoregressiveSystem` with the engine `diffinity`.
    Every text satisfies the constraint, with any number of particles.

    >>> import diffinity as dy
    >>> from diffinity.models.tokenization import train_bpe
    >>> from diffinity.models.transformer import AutoregressiveLM, Transformer, TransformerConfig
    >>> network = Transformer(TransformerConfig(257, dim=8, n_blocks=1, n_heads=1, causal=True))
    >>> system = ConditionalSystem(AutoregressiveLM(network, train_bpe(["a"], 257), eos_token_id=0), particles=4)
    >>> system.name, system.generate(dy.Regex("(ab)?c"), n=1, length=4, seed=0)[0] in ("c", "abc")
    ('autoregressive-conditional', True)
    """

    model: CausalModel | str
    particles: int = 32
    name: str = "autoregressive-conditional"

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
        """Like `generate`, with the estimates of log P(L).

        Raises `InfeasibleConstraint` if no text fits the length.
        """
        if n < 1 or length < 1:
            raise InvalidArgument(f"n and length must be at least 1, but are {n} and {length}")
        automaton = align(constraint, vocabulary_of(self._causal), "eos")
        result = Drawn([], [])
        batch = max(1, ROWS // self.particles)
        for first in range(0, n, batch):
            seeds = [(seed, i) for i in range(first, min(first + batch, n))]
            run = sample_particles(
                self._causal, [automaton] * len(seeds), self.particles, length, seeds=seeds, temperature=1.0
            )
            result.texts.extend(text_of(self._causal, ids) for ids in run.tokens.tolist())
            result.log_probability.extend(run.log_evidence.tolist())
        return result

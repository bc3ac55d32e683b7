"""`AutoregressiveSystem`: decoding from left to right, with only those tokens that an engine allows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from diffinity.alignment import align
from diffinity.baselines.engines import Engine, EngineName, Matcher, engine_named
from diffinity.constraints.base import Constraint
from diffinity.errors import InvalidArgument
from diffinity.generation.loop import Run
from diffinity.guidance.next_token import draw_tokens
from diffinity.models.causal import causal_model
from diffinity.models.protocol import CausalModel, text_of, vocabulary_of
from diffinity.processes.base import Draws, sample_generator
from diffinity.processes.causal import CausalProcess, check_draw


@dataclass(frozen=True)
class AutoregressiveSystem:
    """Constrained decoding of a causal language model, as Guidance and Outlines do it.

    `model` is the embedded autoregressive model or `hf:NAME` for any causal model of `transformers`. At every step
    the engine's mask is applied to the logits and a token is drawn, until the end token (allowed if the text is
    complete) or until `length` tokens, including the end token. `llguidance` and `outlines-core` do not know the
    length, so their texts may be cut off; `none` allows all tokens. `diffinity` is our own process, as in
    `dy.generate`: it allows only tokens after which the text can be completed within the length.

    >>> import diffinity as dy
    >>> from diffinity.models.tokenization import train_bpe
    >>> from diffinity.models.transformer import AutoregressiveLM, Transformer, TransformerConfig
    >>> network = Transformer(TransformerConfig(257, dim=8, n_blocks=1, n_heads=1, causal=True))
    >>> model = AutoregressiveLM(network, train_bpe(["a"], 257), eos_token_id=0)
    >>> system = AutoregressiveSystem(model, engine="diffinity")
    >>> system.name, system.generate(dy.Regex("(ab)?c"), n=1, length=4, seed=0)[0] in ("c", "abc")
    ('autoregressive-diffinity', True)
    """

    model: CausalModel | str
    engine: EngineName = "llguidance"
    temperature: float = 1.0
    top_p: float = 1.0
    batch_size: int = 32
    name: str = ""

    def __post_init__(self) -> None:
        check_draw(self.temperature, self.top_p)
        if self.batch_size < 1:
            raise InvalidArgument(f"batch_size must be at least 1, but is {self.batch_size}")
        if self.engine != "diffinity":
            self._engine  # noqa: B018 (reports an unknown name or a missing package now)
        if not self.name:
            object.__setattr__(self, "name", f"autoregressive-{self.engine}")

    @cached_property
    def _engine(self) -> Engine:
        return engine_named(self.engine)

    @cached_property
    def _causal(self) -> CausalModel:
        return causal_model(self.model)

    def generate(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        """`n` texts of at most `length` tokens; text i is drawn from (seed, i).

        A constraint that the engine can't take raises `UnsupportedConstraint` with the engine's reason.
        """
        if n < 1 or length < 1:
            raise InvalidArgument(f"n and length must be at least 1, but are {n} and {length}")
        if self.engine == "diffinity":
            return self._by_automaton(constraint, n, length, seed)
        matchers = self._engine.matchers(constraint, self._causal, n, length)
        texts: list[str] = []
        for first in range(0, n, self.batch_size):
            batch = matchers[first : first + self.batch_size]
            generators = [sample_generator(seed, first + i) for i in range(len(batch))]
            texts += [text_of(self._causal, ids) for ids in self._decode(batch, generators, length)]
        return texts

    def _by_automaton(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        automaton = align(constraint, vocabulary_of(self._causal), "eos")
        automaton.check_feasible(length)
        texts: list[str] = []
        for first in range(0, n, self.batch_size):
            draws = Draws([(seed, i) for i in range(first, min(first + self.batch_size, n))])
            process = CausalProcess(
                self._causal, [automaton] * len(draws), length, temperature=self.temperature, top_p=self.top_p
            )
            run = Run(process, process.begin(draws, length), draws)
            for _ in run:
                pass
            tokens = run.ending().tokens
            assert tokens is not None
            texts += [text_of(self._causal, ids) for ids in tokens.tolist()]
        return texts

    def _decode(self, matchers: list[Matcher], generators: list[torch.Generator], length: int) -> list[list[int]]:
        """The token ids of each text, with the end token if it was reached."""
        end = self._causal.eos_token_id
        assert end is not None
        sequences: list[list[int]] = [[] for _ in matchers]
        running = set(range(len(matchers)))
        continuations = self._causal.start(len(matchers), length)
        for step in range(length):
            logits = continuations.logits().double().cpu().numpy()
            last = torch.full((len(matchers),), end)
            for i in sorted(running):
                allowed = matchers[i].allowed()
                if not allowed.any():  # the engine is at a dead end: the text stops here
                    running.remove(i)
                    continue
                token = self._drawn(np.where(allowed, logits[i], -np.inf), generators[i])
                sequences[i].append(token)
                last[i] = token
                if token == end:
                    running.remove(i)
                else:
                    matchers[i].advance(token)
            if not running or step + 1 == length:
                break
            continuations.append(last)
        return sequences

    def _drawn(self, scores: NDArray[np.float64], generator: torch.Generator) -> int:
        """One token drawn by scores (V,); every call takes exactly one number from the generator."""
        uniform = torch.rand((1,), generator=generator, dtype=torch.float64).numpy()
        if self.temperature == 0:
            return int(scores.argmax())
        return int(draw_tokens(scores[None] / self.temperature, uniform, self.top_p)[0][0])

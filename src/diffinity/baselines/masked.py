"""`MaskedSystem`: masked diffusion baselines in our sampling loop: DINGO, left to right, and unconstrained.

DINGO (*DINGO: Constrained Inference for Diffusion LLMs*, Suresh et al., 2025) unmasks the most confident
positions, with the most probable tokens that can still be completed. Its paper guarantees a prefix of an accepted
text (`promise="prefix"`); by default our implementation guarantees a complete text within the length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from diffinity.alignment import TokenAutomaton, align
from diffinity.constraints.base import Constraint, Regex
from diffinity.errors import InvalidArgument
from diffinity.generation.generator import ANY_TEXT
from diffinity.generation.loop import Run
from diffinity.guidance.next_token import allowed_tokens, completable, draw_tokens
from diffinity.guidance.unmasking import Ints, Opening, Order
from diffinity.models.causal import parse_hub_name
from diffinity.models.hugging_face import HuggingFaceDiffusion
from diffinity.models.protocol import TokenDiffusion, text_of, vocabulary_of
from diffinity.processes.base import Draws, sample_generator
from diffinity.processes.causal import check_draw
from diffinity.processes.masked import MaskedProcess
from diffinity.processes.tokens import Network

Decoding = Literal["dingo", "exact", "left-to-right", "unconstrained"]
Promise = Literal["complete", "prefix"]
Remasking = Literal["low-confidence", "random"]
METHODS: dict[Decoding, str] = {"dingo": "dingo", "exact": "joint", "unconstrained": "none"}


@dataclass(frozen=True)
class MaskedSystem:
    """Masked diffusion as in LLaDA, with a constraint on the tokens that each step unmasks.

    `dingo` takes the most probable string that can be completed, `exact` is our joint draw, `left-to-right`
    unmasks in order and excludes tokens that can't be completed, `unconstrained` takes the model's tokens. `steps`
    is the number of network calls (None: one per position), `block_length` the length of the blocks that are
    finished in sequence (None: one block), `remasking` LLaDA's rule for the positions that stay masked.
    `temperature` 0 is greedy: all texts are equal.

    >>> import diffinity as dy
    >>> from diffinity.models.tokenization import train_bpe
    >>> from diffinity.models.transformer import MaskedLM, Transformer, TransformerConfig
    >>> network = Transformer(TransformerConfig(257, dim=8, n_blocks=1, n_heads=1, causal=False))
    >>> system = MaskedSystem(MaskedLM(network, train_bpe(["a"], 257), eos_token_id=0), decoding="dingo")
    >>> system.name, system.generate(dy.Regex("(ab)?c"), n=1, length=4, seed=0)[0] in ("c", "abc")
    ('masked-dingo', True)
    """

    model: TokenDiffusion | str
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
            raise InvalidArgument(f"promise 'prefix' needs decoding 'dingo', not {self.decoding!r}")
        if not self.name:
            suffix = "-prefix" if self.promise == "prefix" else ""
            object.__setattr__(self, "name", f"masked-{self.decoding}{suffix}")

    @cached_property
    def _masked(self) -> TokenDiffusion:
        return masked_model(self.model)

    def generate(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        """`n` texts of at most `length` tokens, including the end token; text i is drawn from (seed, i).

        Raises `InfeasibleConstraint` if no text fits the length.
        """
        if n < 1 or length < 1:
            raise InvalidArgument(f"n and length must be at least 1, but are {n} and {length}")
        automaton = self._automaton(constraint, length)
        texts: list[str] = []
        for first in range(0, n, self.batch_size):
            seeds = [(seed, i) for i in range(first, min(first + self.batch_size, n))]
            process, draws = self._process([automaton] * len(seeds), length), Draws(seeds)
            run = Run(process, process.begin(draws, length), draws)
            for _ in run:
                pass
            tokens = run.ending().tokens
            assert tokens is not None
            texts += [text_of(self._masked, ids) for ids in tokens.tolist()]
        return texts

    def _automaton(self, constraint: Constraint, length: int) -> TokenAutomaton:
        vocabulary = vocabulary_of(self._masked)
        if self.decoding == "unconstrained":  # an unused constraint must not be refused
            return align(Regex(ANY_TEXT), vocabulary, "eos")
        automaton = align(constraint, vocabulary, "eos")
        if self.promise == "prefix":
            automaton = prefixes(automaton)
        automaton.check_feasible(length)
        return automaton

    def _process(self, automata: list[TokenAutomaton], length: int) -> MaskedProcess:
        order: Order = "confidence" if self.remasking == "low-confidence" else "random"
        method: Any = METHODS.get(self.decoding, left_to_right)
        return MaskedProcess(
            Network(self._masked),
            automata,
            length,
            self.steps or length,
            method,
            order,
            self.block_length,
            self.temperature,
        )


_CHOICES = {
    "decoding": ("dingo", "exact", "left-to-right", "unconstrained"),
    "remasking": ("low-confidence", "random"),
    "promise": ("complete", "prefix"),
}


def left_to_right(opening: Opening, _order: Order) -> tuple[Ints, Ints]:
    """The first masked positions in order, each with a token after which the text can be completed."""
    string = opening.string
    assert string is not None
    automaton = string.automaton
    table, chosen = (
        completable(automaton, len(string.tokens)),
        np.arange(min(opening.count, int(opening.in_block.sum()))),
    )
    state = automaton.state_after(string.tokens[: opening.at[0]].tolist())
    logits, ids = opening.logits.double().cpu().numpy(), np.empty(len(chosen), np.int64)
    generator = sample_generator(int(opening.draws[0] * 2**52), 0)
    for i in chosen:  # the logits are already divided by the temperature
        uniform = torch.rand((1,), generator=generator, dtype=torch.float64).numpy()
        row = table[opening.at[i] + 1]
        scores = logits[i] + allowed_tokens(automaton, row, np.array([state]))
        ids[i] = scores.argmax() if opening.greedy else draw_tokens(scores, uniform)[0][0]
        state = automaton.next[state, automaton.class_of[ids[i]]]
    return chosen, ids


def prefixes(automaton: TokenAutomaton) -> TokenAutomaton:
    """The automaton of all prefixes of the language: DINGO's own guarantee.

    >>> import diffinity as dy
    >>> abc = dy.align(dy.Text("abc"), dy.Vocabulary([b"a", b"b", b"c"]), framing="exact")
    >>> prefixes(abc).accepts([0, 1]), prefixes(abc).accepts([1])
    (True, False)
    """
    return replace(automaton, accepting=np.ones(automaton.n_states, np.bool_))  # trimmed: acceptance is reachable


def masked_model(model: TokenDiffusion | str) -> TokenDiffusion:
    """The model itself, or the model that a string names: `hf:` and a hub name or folder.

    LLaDA's repositories contain Python code, which runs only with `hf+code:`, as in
    `hf+code:GSAI-ML/LLaDA-8B-Base`.

    >>> masked_model("llada")
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: a masked model is named as 'hf:NAME', not 'llada'
    """
    if not isinstance(model, str):
        return model
    name, trusted = parse_hub_name(model, "a masked model is named as 'hf:NAME'")
    return HuggingFaceDiffusion.load(name, trust_remote_code=trusted)

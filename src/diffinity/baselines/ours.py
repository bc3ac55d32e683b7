"""Our methods, the paper's method and the unconstrained model as systems: all of them call `dy.generate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from diffinity.constraints.base import Constraint, Regex
from diffinity.generation import ANY_TEXT, GenerationSettings, generate
from diffinity.generation.settings import from_request_names
from diffinity.models.protocol import TextModel


@dataclass(frozen=True)
class GuidedSystem:
    """A diffusion model with settings: a guidance method and a decoding method.

    The paper's system as published is `guidance="paper", decode="argmax"`; the plain model is `guidance="none",
    decode="argmax"`, and with `decode="best"` it is the plain model with only our decoder.

    >>> import diffinity as dy
    >>> settings = dy.GenerationSettings(guidance="path", num_inference_steps=8)
    >>> system = GuidedSystem(dy.fit_markov(["the cat sat.", "a dog ran."]), settings)
    >>> system.generate(dy.Regex("a dog [a-z]+."), n=1, length=8, seed=0)
    ['a dog ran.']
    """

    model: TextModel
    settings: GenerationSettings = field(default_factory=GenerationSettings)
    name: str = "auto"

    @staticmethod
    def of(model: TextModel, name: str, **options: Any) -> GuidedSystem:
        """The system with options by their names on the command line.

        >>> import diffinity as dy
        >>> GuidedSystem.of(dy.fit_markov(["a"]), "mine", scale=1.5).settings
        GenerationSettings({'scale': 1.5})
        """
        return GuidedSystem(model, GenerationSettings.of(None, **from_request_names(options)), name)

    def generate(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        """`n` texts of at most `length` tokens; text i has the seed (seed, i)."""
        # The plain model must neither pay for unused automata nor refuse constraints that they can't express.
        ignores_constraint = self.settings.guidance == "none" and self.settings.decode == "argmax"
        used_constraint = Regex(ANY_TEXT) if ignores_constraint else constraint
        return [
            text.text
            for text in generate(self.model, used_constraint, n, length, settings=self.settings, seed=seed)
        ]

"""Our own methods as a compared system, and the paper's, and the plain model: all of them `dy.generate`."""

from __future__ import annotations

from dataclasses import dataclass

from diffinity.alignment import Framing
from diffinity.constraints.base import Constraint, Regex
from diffinity.generation import ANY_TEXT, Decoding, generate
from diffinity.guidance.presets import GuidanceName
from diffinity.models.protocol import DiffusionLM


@dataclass(frozen=True)
class GuidedSystem:
    """A diffusion model with one of our guidance methods and one way to decode.

    The paper's system as published is `guidance="paper", scale=2.5, decode="argmax"`; the plain model is
    `guidance="none", decode="argmax"`, and with `decode="best"` it is the plain model with only our decoder.

    >>> import diffinity as dy
    >>> system = GuidedSystem(dy.fit_markov(["the cat sat.", "a dog ran."]), "path", steps=8)
    >>> system.generate(dy.Regex("a dog [a-z]+."), n=1, length=8, seed=0)
    ['a dog ran.']
    """

    model: DiffusionLM
    guidance: GuidanceName = "auto"
    decode: Decoding = "best"
    scale: float = 2.5
    particles: int | None = None
    framing: Framing = "eos"
    steps: int | None = None
    name: str = "auto"

    def generate(self, constraint: Constraint, n: int, length: int, seed: int) -> list[str]:
        """`n` texts of at most `length` tokens; text i has the seed (seed, i)."""
        # The plain model must not pay for automata that it does not use, nor refuse what they can't do.
        ignored = self.guidance == "none" and self.decode == "argmax"
        found = generate(
            self.model,
            Regex(ANY_TEXT) if ignored else constraint,
            n,
            length,
            num_inference_steps=self.steps,
            seed=seed,
            guidance=self.guidance,
            guidance_scale=self.scale,
            decode=self.decode,
            particles=self.particles,
            framing=self.framing,
        )
        return [one.text for one in found]

"""Chain guidance: x̂ + scale·(q − p)·E, where q is given L with neighbouring tokens that depend on each other.

∇_z log P(L | z) is (α/σ²)·(E[x | z, L] − E[x | z]), so the closed form is exact if q is. Independent positions
make q wrong wherever the words of L go together with others; a chain of neighbours repairs most of that, without
a pass back through the network (docs/fidelity.md has the distances).
"""

from __future__ import annotations

from dataclasses import dataclass

from diffinity.acceptance.chain import chain_acceptance
from diffinity.alignment import Bigrams, TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.guidance.base import DenoisingStep, Prediction
from diffinity.guidance.language import LanguageGuidance
from diffinity.models.plaid import matmul_per_sample
from diffinity.models.protocol import EmbeddingDiffusion


def no_bigrams(model: object) -> str:
    """What to say of a model without bigrams.

    >>> no_bigrams(3)[:42]
    'chain guidance needs bigrams, and this int'
    """
    return (
        f"chain guidance needs bigrams, and this {type(model).__name__} has none: count them with model.bigrams = "
        "dy.fit_bigrams(texts, model.tokenizer, model.eos_token_id)"
    )


@dataclass(frozen=True)
class ChainGuidance(LanguageGuidance):
    """The closed form with a chain over neighbours; `bigrams` are the model's own unless given."""

    bigrams: Bigrams | None = None

    def _guided(self, model: EmbeddingDiffusion, step: DenoisingStep, scale: float) -> Prediction:
        bigrams = self.bigrams or getattr(model, "bigrams", None)
        if bigrams is None:
            raise InvalidArgument(no_bigrams(model))
        logits = step.denoise(model)
        p, embedding = logits.softmax(dim=-1), model.embedding
        automata = [self.automata] * len(logits) if isinstance(self.automata, TokenAutomaton) else self.automata
        given = chain_acceptance(logits, automata, bigrams, softmax=p, backend=self.backend)
        x = matmul_per_sample(p, embedding)
        mean = matmul_per_sample(given.marginals.to(embedding.dtype), embedding)
        guided = mean if self.guided_selfcond else x
        return Prediction(logits, x, guided, scale * (mean - x).double(), given.log_p_language)

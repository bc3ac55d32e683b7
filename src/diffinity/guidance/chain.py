"""Chain guidance: x̂ + scale·(q − p)·E, with q given L under a chain of dependent neighbouring tokens.

∇_z log P(L | z) is (α/σ²)·(E[x | z, L] − E[x | z]), so the closed form is exact if q is exact. With independent
positions q is wrong if the words of L depend on other words. A chain over neighbouring tokens corrects most of
this error without a backward pass (docs/fidelity.md has the distances).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from diffinity.acceptance.chain import chain_acceptance
from diffinity.alignment import Bigrams, TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.guidance.base import DenoisingStep, Prediction
from diffinity.guidance.language import LanguageGuidance
from diffinity.models.plaid import matmul_per_sample
from diffinity.models.protocol import EmbeddingDiffusion

CERTAIN = 0.9  # a token this probable given the constraint is decided,
EXPECTED = 0.95  # unless the model alone already gives it this probability


def no_bigrams(model: object) -> str:
    """The error message for a model without bigrams.

    >>> no_bigrams(3)[:42]
    'chain guidance needs bigrams, and this int'
    """
    return (
        f"chain guidance needs bigrams, and this {type(model).__name__} has none: count them with model.bigrams = "
        "dy.fit_bigrams(texts, model.tokenizer, model.eos_token_id)"
    )


@dataclass(frozen=True)
class ChainGuidance(LanguageGuidance):
    """The closed form with a chain over neighbouring tokens; `bigrams` defaults to the model's own."""

    bigrams: Bigrams | None = None

    def _guided(self, model: EmbeddingDiffusion, step: DenoisingStep, scale: float) -> Prediction:
        bigrams = self.bigrams or getattr(model, "bigrams", None)
        if bigrams is None:
            raise InvalidArgument(no_bigrams(model))
        logits = step.denoise(model)
        p, embedding = logits.softmax(dim=-1), model.embedding
        automata = [self.automata] * len(logits) if isinstance(self.automata, TokenAutomaton) else self.automata
        acceptance = chain_acceptance(logits, automata, bigrams, softmax=p)
        x = matmul_per_sample(p, embedding)
        mean = matmul_per_sample(acceptance.marginals.to(embedding.dtype), embedding)
        guided = mean if self.guided_selfcond else x
        shift = scale * (mean - x).double()
        shows_decided = scale > 0 and getattr(model, "position_levels", False)
        decided = decided_tokens(acceptance.marginals, p, step.decided) if shows_decided else None
        return Prediction(logits, x, guided, shift, acceptance.log_p_language, decided)


def decided_tokens(q: Tensor, p: Tensor, before: Tensor | None) -> Tensor | None:
    """The tokens (B, L) that the constraint decides, −1 at the other positions; None if there are none.

    A token is decided if it is nearly certain given the constraint (q, (B, L, V)) and the model alone
    (p, (B, L, V)) does not expect it. A token decided `before` stays decided while it is nearly certain: the
    network has seen it and therefore expects it. The next step shows decided tokens to the network without noise.
    Otherwise, at high noise, the network would not see the required tokens and would write text that does not fit
    them.

    >>> q, p = torch.tensor([[[0.98, 0.02], [0.05, 0.95]]]), torch.tensor([[[0.1, 0.9], [0.02, 0.98]]])
    >>> decided_tokens(q, p, None).tolist()
    [[0, -1]]
    """
    probability = q.amax(dim=-1)
    if not bool((probability >= CERTAIN).any()):
        return None
    # At most one token of a position is certain, so that a product with the indices gives it, faster than argmax.
    indices = torch.arange(q.shape[2], device=q.device, dtype=q.dtype)  # exact in float32 up to 2^24
    tokens = ((q >= CERTAIN).to(q.dtype) @ indices).long()
    by_constraint = p.gather(-1, tokens[..., None])[..., 0] < EXPECTED
    if before is not None:
        by_constraint |= before == tokens
    decided = (probability >= CERTAIN) & by_constraint
    return tokens.where(decided, -1) if bool(decided.any()) else None

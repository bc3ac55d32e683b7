"""Texts of baselines that use guidance and argmax, without exact decoding."""

from __future__ import annotations

from diffinity.guidance.base import Guidance
from diffinity.models.protocol import DiffusionLM
from diffinity.sampling import sample, texts


def guided_texts(
    model: DiffusionLM,
    guidance: Guidance,
    n: int,
    length: int,
    seed: int,
    *,
    batch_size: int,
    num_inference_steps: int | None,
    score_temp: float | None,
) -> list[str]:
    """`n` guided texts of at most `length` tokens, decoded by argmax; text i has the seed (seed, i).

    >>> import diffinity as dy
    >>> from diffinity.guidance.tokens import TokenGuidance, TokenTarget
    >>> model = dy.fit_markov(["a b.", "a c."])
    >>> target = TokenTarget(model.tokenizer.token_to_id("c"), 2.0, "any")
    >>> options = {"num_inference_steps": 8, "score_temp": None}
    >>> alone = guided_texts(model, TokenGuidance([target]), 3, 6, 0, batch_size=1, **options)
    >>> alone == guided_texts(model, TokenGuidance([target]), 3, 6, 0, batch_size=2, **options)
    True
    """
    generated: list[str] = []
    for first in range(0, n, batch_size):
        samples = sample(
            model,
            min(batch_size, n - first),
            length,
            num_inference_steps=num_inference_steps,
            seed=seed,
            first_index=first,
            guidance=guidance,
            score_temp=score_temp,
        )
        generated += texts(model, samples.tokens)
    return generated

"""The exact Markov model under masked and uniform noise: the reference for processes on tokens.

p(x₀ | x_t) is a hidden Markov model with the noise as its emissions. At a masked position every token has
likelihood 1; at an unmasked position only the visible token has. Under uniform noise a token is unchanged with
probability α and is replaced by a token drawn from all V with probability 1 − α.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from diffinity.errors import InvalidArgument
from diffinity.models import markov_kernels as kernels
from diffinity.models.markov import SMALLEST, MarkovLM, _over_batch
from diffinity.models.protocol import Noise, SamplingDefaults, TokenDiffusion


class MarkovTokens(TokenDiffusion):
    """A `MarkovLM` as a `TokenDiffusion`, with the exact posterior at every position.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["a cat.", "a dog."]).tokens("mask")
    >>> dy.generate(model, dy.Regex("a d.*"), length=8)[0].text
    'a dog.'
    """

    reads_prompts = True  # a context is the beginning of a text

    def __init__(self, chain_model: MarkovLM, noise: Noise) -> None:
        if noise not in ("mask", "uniform"):
            raise InvalidArgument(f"noise must be 'mask' or 'uniform', but is {noise!r}")
        self.markov, self.noise = chain_model, noise
        self.eos_token_id = chain_model.eos_token_id
        defaults = chain_model.sampling_defaults
        self.sampling_defaults = SamplingDefaults(64, defaults.length, defaults.score_temp)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.markov.tokenizer

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64

    @property
    def vocab_size(self) -> int:
        return int(self.markov.embedding.shape[0])

    @property
    def mask_id(self) -> int:
        return self.vocab_size

    def encode_prompt(self, prompt: str | None, messages: object) -> list[int]:
        if prompt is None:
            raise InvalidArgument("a MarkovTokens model has no chat template: give prompt=, not messages=")
        ids: list[int] = self.tokenizer.encode(prompt).ids
        return ids

    def logits(self, tokens: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        """log P(token | tokens) (B, L, V), exactly."""
        context_length = 0 if context is None else context.shape[1]
        sequence = tokens if context is None else torch.cat([context, tokens], dim=1)
        emission = self._emission(sequence, t, context_length)
        marginals = np.zeros_like(emission)
        _over_batch(kernels.marginals, self.markov.chain, emission, marginals)
        return torch.from_numpy(marginals[:, context_length:]).clamp(min=SMALLEST).log()

    def _emission(self, tokens: Tensor, t: Tensor, context_length: int) -> NDArray[np.float64]:
        """(B, L, V): the likelihood of every token; the first `context_length` positions have no noise."""
        batch, length = tokens.shape
        masked = tokens == self.mask_id
        one_hot = torch.zeros(batch, length, self.vocab_size, dtype=torch.float64)
        one_hot.scatter_(2, tokens.masked_fill(masked, 0)[:, :, None], 1.0)
        if self.noise == "mask":
            one_hot[masked] = 1.0
            return one_hot.clamp(min=SMALLEST).numpy()
        alpha = (1.0 - t.double())[:, None, None]
        noisy = alpha * one_hot + (1 - alpha) / self.vocab_size
        noisy[:, :context_length] = one_hot[:, :context_length]
        return noisy.clamp(min=SMALLEST).numpy()

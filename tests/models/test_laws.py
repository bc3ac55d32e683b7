"""The laws of adapters hold for every model here, and a model that breaks one fails it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import diffinity as dy
from diffinity.models.causal import CachedContinuations
from diffinity.models.tokenization import train_bpe
from diffinity.models.transformer import AutoregressiveLM, MaskedLM, Transformer, TransformerConfig
from diffinity.testing import CausalModelLaws, EmbeddingDiffusionLaws, TokenDiffusionLaws
from tests.models.langflow_fixture import small_langflow


@cache
def markov() -> dy.MarkovLM:
    return dy.fit_markov(["a cat.", "a dog sat."])


class TestMarkov(EmbeddingDiffusionLaws):
    @staticmethod
    def model() -> Any:
        return markov()


class TestPlaid(EmbeddingDiffusionLaws):
    @staticmethod
    @cache
    def model() -> Any:
        torch.manual_seed(0)
        tokenizer = train_bpe(["a cat"], 257)
        shape = dy.PlaidConfig(vocab_size=257, dim=16, n_blocks=1, n_heads=2, embed_dim=4)
        return dy.PlaidLM.create(shape, tokenizer, eos_token_id=0)


class TestLangFlow(EmbeddingDiffusionLaws):
    @staticmethod
    @cache
    def model() -> Any:
        return small_langflow()


class TestMarkovMasked(TokenDiffusionLaws):
    @staticmethod
    @cache
    def model() -> Any:
        return markov().tokens("mask")


class TestMarkovUniform(TokenDiffusionLaws):
    @staticmethod
    @cache
    def model() -> Any:
        return markov().tokens("uniform")


class TestCompanion(TokenDiffusionLaws):
    @staticmethod
    @cache
    def model() -> Any:
        torch.manual_seed(0)
        network = Transformer(TransformerConfig(257, dim=16, n_blocks=1, n_heads=2, causal=False))
        torch.nn.init.normal_(network.output_linear.weight)
        return MaskedLM(network, train_bpe(["a cat"], 257), eos_token_id=0)


class TestAutoregressive(CausalModelLaws):
    @staticmethod
    @cache
    def model() -> Any:
        torch.manual_seed(0)
        network = Transformer(TransformerConfig(257, dim=16, n_blocks=1, n_heads=2, causal=True))
        torch.nn.init.normal_(network.output_linear.weight)
        return AutoregressiveLM(network, train_bpe(["a cat"], 257), eos_token_id=0)


def test_sequences_that_are_selected_in_place_break_a_law() -> None:
    class InPlace(CachedContinuations):
        def select(self, rows: Tensor) -> CachedContinuations:
            self.__dict__.update(super().select(rows).__dict__)
            return self

    class Selecting(AutoregressiveLM):
        def start(self, n: int, length: int, context: Any = None) -> CachedContinuations:
            return InPlace(self.network, n, length, [0])

    good = TestAutoregressive.model()

    class Laws(CausalModelLaws):
        @staticmethod
        def model() -> Any:
            return Selecting(good.network, good.tokenizer, 0)

    with pytest.raises(AssertionError):
        Laws().test_selected_sequences_continue_and_the_originals_stay()


def test_a_model_that_mixes_its_batch_breaks_a_law() -> None:
    class Mixing(MaskedLM):
        def logits(self, tokens: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
            logits = super().logits(tokens, t, context)
            return logits - logits.mean(dim=0, keepdim=True)

    good = TestCompanion.model()

    class Laws(TokenDiffusionLaws):
        @staticmethod
        def model() -> Any:
            return Mixing(good.network, good.tokenizer, 0)

    with pytest.raises(AssertionError):
        Laws().test_a_sample_does_not_depend_on_its_batch()

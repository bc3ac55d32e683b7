"""Test classes that a model adapter must pass.

Inherit from the class of your model's kind in a test module, give it your model, and run pytest:

    class TestMyModel(TokenDiffusionLaws):
        @staticmethod
        def model() -> TokenDiffusion:
            return MyModel()

No test depends on what a model has learned: a network with random weights passes all of them.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from diffinity.constraints.base import Regex
from diffinity.generation.generator import generate
from diffinity.models.protocol import (
    CausalModel,
    Continuations,
    EmbeddingDiffusion,
    TextModel,
    TokenDiffusion,
    check_model,
    vocab_size_of,
    vocabulary_of,
)

M = TypeVar("M", bound=TextModel)


class TextModelLaws(Generic[M]):
    """The laws of every model."""

    length = 6  # of the tested strings
    tolerance = 1e-4  # between logits in different batches
    constraint = Regex("[a-z ]{1,3}")  # the tokenizer must have these letters

    @staticmethod
    def model() -> Any:
        """The model under test."""
        raise NotImplementedError

    def test_the_protocol_is_complete(self) -> None:
        assert check_model(self.model()) in ("embedding", "token", "causal")

    def test_there_is_a_vocabulary_entry_for_every_logit(self) -> None:
        model = self.model()
        assert len(vocabulary_of(model)) == vocab_size_of(model)
        assert vocabulary_of(model) is vocabulary_of(model)  # cached

    def test_the_end_token_is_a_token(self) -> None:
        model = self.model()
        assert model.eos_token_id is None or 0 <= model.eos_token_id < vocab_size_of(model)

    def test_texts_satisfy_their_constraint(self) -> None:
        framing = "exact" if self.model().eos_token_id is None else "eos"
        steps = None if check_model(self.model()) == "causal" else 2
        texts = generate(
            self.model(), self.constraint, n=2, length=self.length, num_inference_steps=steps, framing=framing
        )
        assert all(self.constraint.accepts(text.text) for text in texts)


class EmbeddingDiffusionLaws(TextModelLaws[EmbeddingDiffusion]):
    """The laws of a denoiser of embeddings.

    >>> import diffinity as dy
    >>> class Laws(EmbeddingDiffusionLaws):
    ...     @staticmethod
    ...     def model():
    ...         return dy.fit_markov(["a cat.", "a dog."])
    >>> Laws().test_noise_levels_increase()
    """

    def _inputs(self, model: EmbeddingDiffusion, batch: int) -> tuple[Tensor, Tensor, Tensor]:
        shape = (batch, self.length, model.embedding.shape[1])
        z = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(model.device, model.dtype)
        noise_level = model.noise_level(torch.full((batch,), 0.5, dtype=torch.float64, device=model.device))
        return z, noise_level.to(model.dtype), torch.zeros_like(z)

    def test_logits_have_the_shape_of_the_embedding(self) -> None:
        model = self.model()
        with torch.no_grad():
            logits = model.denoise(*self._inputs(model, 2))
        assert logits.shape == (2, self.length, model.embedding.shape[0])
        assert logits.dtype == model.dtype
        assert bool((logits < torch.inf).all())

    def test_noise_levels_increase(self) -> None:
        model = self.model()
        levels = model.noise_level(torch.linspace(0, 1, 11, dtype=torch.float64, device=model.device))
        assert levels.shape == (11,)
        assert bool((levels.diff() > 0).all())

    def test_a_sample_does_not_depend_on_its_batch(self) -> None:
        model = self.model()
        with torch.no_grad():
            together = model.denoise(*self._inputs(model, 3))
            alone = model.denoise(*(part[1:2] for part in self._inputs(model, 3)))
        assert torch.allclose(together[1:2], alone, atol=self.tolerance)

    def test_gradients_go_back_to_the_latent(self) -> None:
        model = self.model()
        z, noise_level, x_selfcond = self._inputs(model, 1)
        with torch.enable_grad():
            z.requires_grad_()
            (gradient,) = torch.autograd.grad(model.denoise(z, noise_level, x_selfcond)[0, 0].sum(), z)
        assert gradient.shape == z.shape


class TokenDiffusionLaws(TextModelLaws[TokenDiffusion]):
    """The laws of a denoiser of tokens.

    >>> import diffinity as dy
    >>> class Laws(TokenDiffusionLaws):
    ...     @staticmethod
    ...     def model():
    ...         return dy.fit_markov(["a cat.", "a dog."]).tokens("mask")
    >>> Laws().test_logits_have_an_entry_for_every_token()
    """

    def _tokens(self, model: TokenDiffusion, batch: int) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(len(model.tokenizer.get_vocab()), (batch, self.length), generator=generator)
        if model.noise == "mask":
            tokens[:, ::2] = model.mask_id
        return tokens.to(model.device)

    def _logits(self, model: TokenDiffusion, tokens: Tensor, context: Tensor | None = None) -> Tensor:
        times = torch.full((len(tokens),), 0.5, dtype=torch.float64, device=model.device)
        with torch.no_grad():
            return model.logits(tokens, times, context)

    def test_the_noise_is_mask_or_uniform(self) -> None:
        assert self.model().noise in ("mask", "uniform")

    def test_logits_have_an_entry_for_every_token(self) -> None:
        model = self.model()
        logits = self._logits(model, self._tokens(model, 2))
        assert logits.shape == (2, self.length, model.vocab_size)
        assert logits.dtype == model.dtype
        assert bool((logits < torch.inf).all())
        assert bool((logits > -torch.inf).any(dim=-1).all())

    def test_a_sample_does_not_depend_on_its_batch(self) -> None:
        model = self.model()
        tokens = self._tokens(model, 3)
        together, alone = self._logits(model, tokens), self._logits(model, tokens[1:2])
        assert torch.allclose(together[1:2].float(), alone.float(), atol=self.tolerance)

    def test_the_mask_is_never_predicted(self) -> None:
        model = self.model()
        if model.noise == "mask" and model.mask_id < model.vocab_size:
            logits = self._logits(model, self._tokens(model, 1))
            assert bool((logits[:, :, model.mask_id] == -torch.inf).all())

    def test_a_prompt_precedes_the_text(self) -> None:
        model = self.model()
        if model.reads_prompts:
            ids = torch.tensor([model.encode_prompt("a", None)], device=model.device)
            logits = self._logits(model, self._tokens(model, 1), ids)
            assert logits.shape == (1, self.length, model.vocab_size)


class CausalModelLaws(TextModelLaws[CausalModel]):
    """The laws of a model that predicts the next token.

    >>> from diffinity.models.tokenization import train_bpe
    >>> from diffinity.models.transformer import AutoregressiveLM, Transformer, TransformerConfig
    >>> network = Transformer(TransformerConfig(257, dim=8, n_blocks=1, n_heads=1, causal=True))
    >>> class Laws(CausalModelLaws):
    ...     @staticmethod
    ...     def model():
    ...         return AutoregressiveLM(network, train_bpe(["a"], 257), eos_token_id=0)
    >>> Laws().test_logits_have_an_entry_for_every_token()
    """

    def _tokens(self, model: CausalModel, batch: int) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        return torch.randint(len(model.tokenizer.get_vocab()), (batch, self.length), generator=generator)

    def _read(self, model: CausalModel, tokens: Tensor) -> Continuations:
        sequences = model.start(len(tokens), self.length + 1)
        for column in tokens.T:
            sequences.append(column)
        return sequences

    def test_logits_have_an_entry_for_every_token(self) -> None:
        model = self.model()
        logits = self._read(model, self._tokens(model, 2)).logits()
        assert logits.shape == (2, model.vocab_size)
        assert logits.dtype == model.dtype
        assert bool((logits < torch.inf).all())
        assert bool((logits > -torch.inf).any(dim=-1).all())

    def test_a_sample_does_not_depend_on_its_batch(self) -> None:
        model = self.model()
        tokens = self._tokens(model, 3)
        together, alone = self._read(model, tokens).logits(), self._read(model, tokens[1:2]).logits()
        assert torch.allclose(together[1:2].float(), alone.float(), atol=self.tolerance)

    def test_selected_sequences_continue_and_the_originals_stay(self) -> None:
        model = self.model()
        tokens, rows = self._tokens(model, 3), torch.tensor([2, 0, 0, 1])
        sequences, expected = self._read(model, tokens), self._read(model, tokens[rows])
        logits_before = sequences.logits().clone()
        selected = sequences.select(rows)
        assert torch.equal(sequences.logits(), logits_before)
        for continuation in (selected, expected):
            continuation.append(torch.arange(4))
        assert torch.allclose(selected.logits().float(), expected.logits().float(), atol=self.tolerance)

    def test_a_prompt_precedes_the_text(self) -> None:
        model = self.model()
        if model.reads_prompts:
            ids = model.encode_prompt("a", None)
            assert model.start(1, self.length, ids).logits().shape == (1, model.vocab_size)

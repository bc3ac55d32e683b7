"""PlaidLM keeps its normalised embeddings; what is kept must follow the parameters."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, models

from diffinity.models import PlaidConfig, PlaidLM

LETTERS = Tokenizer(models.WordLevel({letter: i for i, letter in enumerate("abcdef")}, unk_token="a"))


def small_model() -> PlaidLM:
    torch.manual_seed(0)
    return PlaidLM.create(PlaidConfig(vocab_size=6, dim=8, n_blocks=1, n_heads=2, embed_dim=4), LETTERS)


def test_embeddings_follow_the_parameters() -> None:
    model = small_model()
    before = model.embedding.clone()
    with torch.no_grad():
        model.modules.embedding_matrix.matrix[2] = torch.tensor([0.0, 3.0, 0.0, 0.0])
    assert model.embedding[2].tolist() == [0.0, 1.0, 0.0, 0.0]
    assert torch.equal(model.embedding[3], before[3])


def test_embeddings_follow_loaded_weights() -> None:
    model, other = small_model(), small_model()
    with torch.no_grad():
        other.modules.embedding_matrix.matrix.add_(0.5)
    first = model.embedding
    model.modules.load_state_dict(other.modules.state_dict())
    assert not torch.equal(model.embedding, first)
    assert torch.equal(model.embedding, other.embedding)


def test_embeddings_met_in_inference_mode_serve_gradients_afterwards() -> None:
    model = small_model()
    with torch.inference_mode():
        _ = model.embedding
    z = torch.randn(1, 3, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(model.denoise(z, torch.zeros(1), torch.zeros(1, 3, 4)).sum(), z)
    assert gradient.shape == z.shape

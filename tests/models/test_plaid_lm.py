"""PlaidLM caches its normalised embeddings and packed weights; both must follow the parameters."""

from __future__ import annotations

import copy
import pickle

import torch
from tokenizers import Tokenizer, models
from torch import Tensor

from diffinity.models import PlaidConfig, PlaidLM

LETTERS = Tokenizer(models.WordLevel({letter: i for i, letter in enumerate("abcdef")}, unk_token="a"))


def small_model() -> PlaidLM:
    torch.manual_seed(0)
    return PlaidLM.create(PlaidConfig(vocab_size=6, dim=8, n_blocks=1, n_heads=2, embed_dim=4), LETTERS)


def with_random_readout(model: PlaidLM) -> PlaidLM:
    """A new model's readout is zero; random numbers there."""
    readout = model.modules.model.output_linear
    with torch.no_grad():
        readout.weight.normal_()
        readout.bias.normal_()
    return model


def logits(model: PlaidLM, *, packed: bool = True) -> Tensor:
    """Logits for the same noisy embeddings; with gradients the packed weights are not used."""
    z = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1)).requires_grad_(not packed)
    return model.denoise(z, torch.zeros(2), torch.zeros(2, 3, 4)).detach()


def assert_packed_is_exact(model: PlaidLM) -> None:
    """Packed weights may sum in another order, so logits near zero differ by the rounding of the largest."""
    packed, plain = logits(model), logits(model, packed=False)
    torch.testing.assert_close(packed, plain, rtol=0, atol=1e-5 * float(plain.abs().max()))


def test_packed_weights_give_the_same_logits() -> None:
    assert_packed_is_exact(with_random_readout(small_model()))


def test_packed_weights_follow_the_parameters() -> None:
    model = with_random_readout(small_model())
    before = logits(model)
    with torch.no_grad():
        model.modules.model.output_linear.weight.mul_(2)
    assert not torch.equal(before, logits(model))
    assert_packed_is_exact(model)
    with torch.no_grad():
        model.modules.embedding_matrix.matrix.normal_()
    assert_packed_is_exact(model)
    model.modules.load_state_dict(with_random_readout(small_model()).modules.state_dict())
    assert_packed_is_exact(model)


def test_a_model_whose_weights_are_packed_can_be_copied_and_pickled() -> None:
    model = with_random_readout(small_model())
    expected = logits(model)
    assert torch.equal(logits(copy.deepcopy(model)), expected)
    model.modules = pickle.loads(pickle.dumps(model.modules))
    assert torch.equal(logits(model), expected)


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

"""The fused readout: the same loss and gradients as torch's own cross-entropy on whole logits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from diffinity.models.plaid import Block, PlaidConfig, Rotary
from diffinity.models.transformer import Transformer, TransformerConfig
from diffinity.training.fused import readout_loss, readout_mean
from diffinity.training.gelu import compiled_gelu
from diffinity.training.tasks import end_token_weights, transformer_loss

Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
ROWS, DIM, EMBED, VOCABULARY = 300, 12, 5, 40  # more rows than are held at once


@pytest.fixture
def parts() -> Parts:
    generator = torch.Generator().manual_seed(0)
    shapes = [(ROWS, DIM), (VOCABULARY, DIM), (VOCABULARY,), (ROWS, EMBED), (VOCABULARY, EMBED)]
    hidden, weight, bias, analytic, embedding = (
        torch.randn(shape, generator=generator).requires_grad_() for shape in shapes
    )
    return hidden, weight, bias, analytic, embedding


def test_loss_and_gradients_are_those_of_cross_entropy(parts: Parts) -> None:
    targets = torch.randint(VOCABULARY, (ROWS,), generator=torch.Generator().manual_seed(1))
    hidden, weight, bias, analytic, embedding = parts
    mean, rows = readout_loss(hidden, weight, bias, analytic, embedding, targets)
    ours = torch.autograd.grad(3.0 * mean, parts)
    logits = hidden @ weight.T + bias + analytic @ embedding.T
    expected_rows = F.cross_entropy(logits, targets, reduction="none")
    theirs = torch.autograd.grad(3.0 * expected_rows.mean(), parts)
    torch.testing.assert_close(rows, expected_rows)
    torch.testing.assert_close(mean, expected_rows.mean())
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_bfloat16_stays_close(parts: Parts) -> None:
    targets = torch.zeros(ROWS, dtype=torch.long)
    exact, _ = readout_loss(*parts, targets)
    rounded, _ = readout_loss(*parts, targets, low_precision=True)
    assert abs(float(exact.detach() - rounded.detach())) < 0.02


def test_mean_is_the_softmax_times_the_embeddings(parts: Parts) -> None:
    hidden, weight, bias, analytic, embedding = parts
    logits = hidden @ weight.T + bias + analytic @ embedding.T
    torch.testing.assert_close(readout_mean(*parts), (logits.softmax(dim=1) @ embedding).detach())


@pytest.mark.parametrize("causal", [True, False])
def test_plain_attention_in_training_is_the_attention_of_inference(causal: bool) -> None:
    torch.manual_seed(0)
    block = Block(PlaidConfig(10, 16, 1, 2, 4), causal)
    cos, sin = Rotary(8)(6)
    x = torch.randn(3, 6, 16)
    torch.testing.assert_close(block.train()(x, cos, sin), block.eval()(x, cos, sin))


@pytest.mark.parametrize("causal", [True, False])
def test_companions_lose_what_cross_entropy_says(causal: bool) -> None:
    torch.manual_seed(0)
    network = Transformer(TransformerConfig(30, 16, 2, 2, causal))
    torch.nn.init.normal_(network.output_linear.weight, std=0.3)
    seen, targets = torch.randint(30, (4, 7)), torch.randint(30, (4, 7))
    weights = torch.rand(4, 7) * (torch.rand(4, 7) < 0.6)
    nats = F.cross_entropy(network(seen).transpose(1, 2), targets, reduction="none")
    expected = (nats * weights).sum() / weights.sum()
    torch.testing.assert_close(transformer_loss(network, seen, targets, weights, bfloat16=False), expected)


def test_compiled_gelu_and_its_gradient_are_torchs() -> None:
    x = torch.cat([torch.linspace(-12, 12, 4001), torch.tensor([-1e4, 1e4, 0.0])]).requires_grad_()
    weights = torch.randn(len(x), generator=torch.Generator().manual_seed(0))
    for ours, theirs in (
        (compiled_gelu(x), F.gelu(x, approximate="tanh")),
        *zip(
            torch.autograd.grad(compiled_gelu(x), x, weights),
            torch.autograd.grad(F.gelu(x, approximate="tanh"), x, weights),
            strict=True,
        ),
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_end_tokens_that_are_read_out_count_for_all() -> None:
    tokens = torch.tensor([[7, 7, 0] + [0] * 29]).repeat(4000, 1)
    weights = end_token_weights(tokens, 0, torch.Generator().manual_seed(0))
    assert (weights[:, :4] == 1).all()
    assert 0.1 < (weights[:, 4:] > 0).float().mean() < 0.15
    assert abs(float(weights[:, 4:].mean()) - 1) < 0.05

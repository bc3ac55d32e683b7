"""The companions: what they may see, that their probabilities are probabilities, and their files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import diffinity as dy
from diffinity.models.transformer import AutoregressiveLM, MaskedLM, Transformer, TransformerConfig
from tests.models.plaid_fixture import small_tokenizer

VOCAB = 7


def network(causal: bool) -> Transformer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = Transformer(TransformerConfig(VOCAB, dim=16, n_blocks=2, n_heads=2, causal=causal))
        torch.nn.init.normal_(made.output_linear.weight)
    return made


def autoregressive() -> AutoregressiveLM:
    return AutoregressiveLM(network(causal=True), small_tokenizer(VOCAB), eos_token_id=0)


def test_a_causal_network_does_not_see_what_comes_later() -> None:
    model = autoregressive()
    tokens = torch.tensor([[1, 2, 3, 4, 5]])
    other = torch.tensor([[1, 2, 3, 6, 6]])
    assert torch.allclose(model.log_probs(tokens)[:, :3], model.log_probs(other)[:, :3], atol=1e-6)
    assert not torch.allclose(model.log_probs(tokens)[:, 4], model.log_probs(other)[:, 4])


def test_a_masked_network_sees_both_sides() -> None:
    model = MaskedLM(network(causal=False), small_tokenizer(VOCAB), eos_token_id=0)
    tokens, other = torch.tensor([[model.mask_id, 2, 3]]), torch.tensor([[model.mask_id, 2, 4]])
    assert not torch.allclose(model.network(tokens)[:, 0], model.network(other)[:, 0])


def test_next_token_probabilities_sum_to_one() -> None:
    continuations = torch.tensor([[3, 1, v] for v in range(VOCAB)])
    probabilities = autoregressive().log_probs(continuations)[:, 2].exp()
    assert float(probabilities.sum()) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(("kind", "causal"), [(AutoregressiveLM, True), (MaskedLM, False)])
def test_a_companion_is_read_back(
    kind: type[AutoregressiveLM] | type[MaskedLM], causal: bool, tmp_path: Path
) -> None:
    model = kind(network(causal), small_tokenizer(VOCAB), eos_token_id=0)
    model.save_pretrained(tmp_path)
    loaded = kind.from_pretrained(tmp_path)
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(loaded.network(tokens), model.network(tokens))
    assert isinstance(dy.load(tmp_path), kind)


def test_a_network_of_the_other_kind_is_refused() -> None:
    with pytest.raises(dy.CheckpointError, match="needs a network with causal=True"):
        AutoregressiveLM(network(causal=False), small_tokenizer(VOCAB), eos_token_id=0)

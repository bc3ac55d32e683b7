"""A network with more blocks computes what it computed before."""

from __future__ import annotations

import torch

from diffinity.models.plaid import PlaidConfig
from diffinity.models.plaid_lm import PlaidModules
from diffinity.training.growth import grown


def random_modules(config: PlaidConfig) -> PlaidModules:
    torch.manual_seed(0)
    modules = PlaidModules(config).eval()
    for parameter in modules.model.parameters():
        parameter.data.normal_(std=0.3)
    return modules


def logits(modules: PlaidModules, z: torch.Tensor, level: torch.Tensor, x_selfcond: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = modules.model(z, level, modules.embedding_matrix(), x_selfcond)
    return result


def test_new_blocks_do_not_change_the_logits() -> None:
    config = PlaidConfig(vocab_size=11, dim=16, n_blocks=2, n_heads=2, embed_dim=4)
    before = random_modules(config)
    after = PlaidModules(PlaidConfig(vocab_size=11, dim=16, n_blocks=5, n_heads=2, embed_dim=4)).eval()
    after.load_state_dict(grown(before.state_dict(), 5))
    inputs = torch.randn(2, 3, 4), torch.tensor([-1.0, 2.0]), torch.randn(2, 3, 4)
    torch.testing.assert_close(logits(after, *inputs), logits(before, *inputs), rtol=1e-4, atol=1e-4)

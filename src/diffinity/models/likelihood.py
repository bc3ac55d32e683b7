"""The likelihood of a text: PLAID's variational bound, in nats per token.

−log p(x) ≤ reconstruction + diffusion + prior, with
  reconstruction = E[−log p(x | z₀)],  z₀ at γ(0);
  diffusion      = ½ ∫₀¹ (−SNR′(t)) E‖x − x̂(z_t, t)‖² dt,  SNR = e^−γ(t);
  prior          = KL(q(z₁ | x) ‖ N(0, 1)).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from diffinity.errors import InvalidArgument
from diffinity.models.protocol import DiffusionLM
from diffinity.models.schedule import NoiseLevel


@dataclass(frozen=True)
class Bound:
    """The three terms of the variational bound for each sequence, nats per token, (B,)."""

    reconstruction: Tensor
    diffusion: Tensor
    prior: Tensor

    @property
    def total(self) -> Tensor:
        return self.reconstruction + self.diffusion + self.prior


@torch.no_grad()
def variational_bound(
    model: DiffusionLM, tokens: Tensor, *, n_times: int = 32, seed: int = 0, selfcond: bool = True
) -> Bound:
    """Estimate the bound for tokens (B, L) at `n_times` noise levels per sequence.

    Times are stratified, with a random offset per sequence; the estimate is unbiased for every `n_times`.
    With `selfcond` each prediction gets the model's own first prediction as input, as in PLAID's evaluation.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["a b.", "b a."])
    >>> variational_bound(model, torch.zeros(2, 3, dtype=torch.long)).total.shape
    torch.Size([2])
    """
    if tokens.ndim != 2 or tokens.is_floating_point():
        raise InvalidArgument(
            f"tokens must be whole numbers of shape (B, L), but are {tokens.dtype} of shape {tuple(tokens.shape)}"
        )
    tokens = tokens.to(model.device)
    generator = torch.Generator().manual_seed(seed)
    x = model.embedding[tokens].double()  # (B, L, d)
    batch = tokens.shape[0]

    zeros = torch.zeros(batch, dtype=torch.float64, device=model.device)
    logits, _ = _predict(model, x, model.noise_level(zeros), generator, selfcond)
    reconstruction = F.cross_entropy(logits.double().transpose(1, 2), tokens, reduction="none").mean(dim=1)

    last = NoiseLevel(model.noise_level(zeros[:1] + 1).double())
    mean_squared, variance = (last.alpha_squared * x.pow(2)), last.sigma_squared
    prior = (0.5 * (mean_squared + variance - 1 - variance.log())).sum(dim=2).mean(dim=1)

    offsets = torch.rand(batch, generator=generator, dtype=torch.float64).to(model.device)
    diffusion = torch.zeros_like(zeros)
    for index in range(n_times):
        with torch.enable_grad():
            t = ((index + offsets) / n_times).requires_grad_()
            noise_level = model.noise_level(t)
            (slope,) = torch.autograd.grad(noise_level.sum(), t)
        noise_level = noise_level.detach()
        _, estimate = _predict(model, x, noise_level, generator, selfcond)
        error = (x - estimate).pow(2).sum(dim=2).mean(dim=1)  # (B,)
        diffusion += 0.5 * torch.exp(-noise_level) * slope * error / n_times
    return Bound(reconstruction, diffusion, prior)


def _predict(
    model: DiffusionLM, x: Tensor, noise_level: Tensor, generator: torch.Generator, selfcond: bool
) -> tuple[Tensor, Tensor]:
    """Logits and x̂ for a fresh noising of x (B, L, d) at noise levels (B,)."""
    level = NoiseLevel(noise_level.double())
    epsilon = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.device)
    z = level.alpha[:, None, None] * x + level.sigma[:, None, None] * epsilon
    z, noise_level = z.to(model.dtype), noise_level.to(model.dtype)
    estimate = torch.zeros_like(z)
    for _ in range(2 if selfcond else 1):
        logits = model.denoise(z, noise_level, estimate)
        estimate = logits.softmax(dim=-1) @ model.embedding
    return logits, estimate.double()

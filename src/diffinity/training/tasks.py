"""The training tasks: a network, its loss on a batch, its optimisation, and the exported model.

`DiffusionTask` is PLAID (by cross-entropy at adaptive noise levels, or by its variational bound),
`AutoregressiveTask` and `MaskedTask` train the other embedded models. The trainer uses only the `Task` protocol.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from diffinity.models.plaid import PlaidConfig
from diffinity.models.plaid_lm import PlaidLM, PlaidModules
from diffinity.models.pretrained import PretrainedLM
from diffinity.models.protocol import SamplingDefaults
from diffinity.models.schedule import NoiseLevel
from diffinity.models.transformer import AutoregressiveLM, MaskedLM, Transformer
from diffinity.training.fused import readout_loss, readout_mean
from diffinity.training.noise import AdaptiveNoise, fit_schedule

SELF_CONDITIONED = 0.3  # share of a batch with its own first estimate as input
GIVEN_LEVELS = (-5.0, -3.0)  # range of noise levels of given positions: their tokens are easy to read
TARGET_LEVELS = (-1.0, 4.0)  # and of target positions: their tokens must be inferred from context
TARGET_SHARE = (0.15, 0.7)  # range of the share of target positions in a sequence
END_TOKENS_READ = 2  # number of end tokens of a sequence, from the first, that always have a loss
PADDING_SHARE = 0.125  # share of the other end tokens that have a loss, weighted to represent all of them
VALIDATION_LEVELS = (-2.0, -1.0, 0.0, 1.0, 2.0)
HIDDEN_SHARE = 0.15  # share of the tokens that validation hides in otherwise clean text


class Task(Protocol):
    """One kind of model to train."""

    @property
    def network(self) -> nn.Module:
        """The network to optimise."""
        ...

    def loss(self, tokens: Tensor, generator: torch.Generator) -> Tensor:
        """The training loss of tokens (B, L), a scalar."""
        ...

    def validate(self, tokens: Tensor, generator: torch.Generator) -> dict[str, float]:
        """Named losses of held-out tokens (B, L), nats per token."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """The state besides the parameters that a resumed run needs."""
        ...

    def load(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `tensors`."""
        ...

    def export(self, tokenizer: Tokenizer, eos: int, defaults: SamplingDefaults) -> PretrainedLM:
        """The finished model with the current parameters."""
        ...


def given_and_target_levels(batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noise levels (batch, length), and a mask of the target positions; the other positions are given.

    The share of target positions differs between sequences.

    >>> levels, is_target = given_and_target_levels(2, 64, torch.Generator().manual_seed(0))
    >>> levels.unique().numel(), bool((levels[is_target] > levels[~is_target].max()).all())
    (4, True)
    """

    def between(bounds: tuple[float, float]) -> Tensor:
        return bounds[0] + (bounds[1] - bounds[0]) * torch.rand(batch, 1, generator=generator)

    is_target = torch.rand(batch, length, generator=generator) < between(TARGET_SHARE)
    return torch.where(is_target, between(TARGET_LEVELS), between(GIVEN_LEVELS)), is_target


def end_token_weights(tokens: Tensor, eos: int, generator: torch.Generator) -> Tensor:
    """The weight of each position of tokens (B, L) in the loss; 0: its logits need not be computed.

    The sequence of a short sentence is mostly end tokens, which carry little information. The readout of a
    position costs as much as several blocks. So only a random share of the end tokens after the first two is read
    out. Their weight is larger, so that the expected loss is that of all positions.

    >>> tokens = torch.tensor([[5, 6] + [0] * 96])
    >>> weights = end_token_weights(tokens, 0, torch.Generator().manual_seed(0))
    >>> weights[0, :4].tolist(), sorted(set(weights[0, 4:].tolist()))
    ([1.0, 1.0, 1.0, 1.0], [0.0, 8.0])
    """
    padding = tokens.eq(eos).long().cumsum(dim=1) > END_TOKENS_READ
    is_sampled = torch.rand(tokens.shape, generator=generator).to(tokens.device) < PADDING_SHARE
    return torch.where(padding, is_sampled / PADDING_SHARE, 1.0)


def is_hidden_matrix(name: str, parameter: Tensor) -> bool:
    """Whether Muon optimises this parameter: the matrices inside the blocks.

    >>> is_hidden_matrix("model.blocks.0.mlp.fc1.weight", torch.zeros(8, 2))
    True
    """
    return "blocks." in name and parameter.ndim == 2


class BiasWarmUp:
    """The share of the analytic term (α/σ²)·z·Eᵀ in the logits, which grows from 0 to 1 over the first steps.

    With the full term from the start, the network need not learn to read tokens from their noisy embeddings. But a
    token that it can't read is no context for other positions. `benchmarks/bias_warmup.py` measures the effect.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.steps_done = 0

    @property
    def scale(self) -> float:
        return min(1.0, (self.steps_done + 1) / (self.steps + 1))

    def tensor(self) -> Tensor:
        return torch.tensor(self.steps_done)


class DiffusionTask:
    """PLAID by cross-entropy: −log p(x | z) averaged over noise levels from an adaptive density.

    In a share `mixed` of the sequences some positions have almost no noise and the others are almost pure noise.
    So the network learns from clean context, as masked models do, before it must infer all positions at once.
    """

    def __init__(
        self,
        config: PlaidConfig,
        noise: AdaptiveNoise | None = None,
        bias_warmup: int = 0,
        mixed: float = 0.0,
        bfloat16: bool = False,
        eos: int | None = None,
    ) -> None:
        self.eos = eos
        self.mixed = mixed
        self.bfloat16 = bfloat16
        self.bias = BiasWarmUp(bias_warmup)
        self.network = PlaidModules(config)
        self.noise = noise or AdaptiveNoise()
        self._until_refresh = self.noise.refresh_every
        for unused in (self.network.noise_schedule, self.network.gamma_bounds):
            unused.requires_grad_(False)

    def loss(self, tokens: Tensor, generator: torch.Generator) -> Tensor:
        batch, length = tokens.shape
        n_uniform = batch - round(self.mixed * batch)
        gamma = self.noise.draw(n_uniform, generator)
        mixed, is_target = given_and_target_levels(batch - n_uniform, length, generator)
        levels = torch.cat([gamma[:, None].expand(n_uniform, length), mixed]).to(tokens.device)
        # Given positions have a loss of nearly zero, so they skip the readout, which costs as much as four blocks.
        weights = torch.cat([torch.ones(n_uniform, length), is_target.float()]).to(tokens.device)
        if self.eos is not None:
            weights *= end_token_weights(tokens, self.eos, generator)
        mean, nats = self.nats(tokens, levels, generator, SELF_CONDITIONED, weights)
        self.bias.steps_done += 1
        self.noise.record(gamma, (weights * nats)[:n_uniform].mean(dim=1).cpu())
        self._until_refresh -= 1
        if self._until_refresh <= 0:
            self.noise.refresh()
            self._until_refresh = self.noise.refresh_every
        return mean

    def nats(
        self,
        tokens: Tensor,
        gamma: Tensor,
        generator: torch.Generator,
        selfcond_share: float,
        weights: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The cross-entropy over B·L, and that of every token (B, L), at noise levels gamma (B, 1 or L).

        Positions have `weights` (B, L); positions of weight 0 are not read out and have 0 nats.
        """
        model = self.network.model
        embedding = self.network.embedding_matrix()
        level = NoiseLevel(gamma)
        x = embedding[tokens]  # (B, L, d)
        epsilon = torch.randn(x.shape, generator=generator).to(x.device)
        z = level.alpha[..., None] * x + level.sigma[..., None] * epsilon
        x_selfcond = torch.zeros_like(z)
        readout = (model.output_linear.weight, model.output_linear.bias)
        n = round(selfcond_share * tokens.shape[0])
        if n:  # the levels are in random order, so evenly spaced rows are a random sample
            chosen = torch.arange(n, device=tokens.device) * tokens.shape[0] // n
            with torch.no_grad():
                hidden, analytic = self._features(z[chosen], gamma[chosen], x_selfcond[chosen])
                estimate = readout_mean(hidden, *readout, analytic, embedding, self.bfloat16)
                x_selfcond[chosen] = estimate.view(n, *z.shape[1:])
        hidden, analytic = self._features(z, gamma, x_selfcond)
        flat = torch.ones(tokens.numel(), device=hidden.device) if weights is None else weights.flatten()
        chosen = flat.nonzero().squeeze(1)
        mean, nats = readout_loss(
            hidden[chosen],
            *readout,
            analytic[chosen],
            embedding,
            tokens.flatten()[chosen],
            self.bfloat16,
            flat[chosen] / tokens.numel(),
        )
        return mean, torch.zeros_like(flat).index_copy(0, chosen, nats).view(tokens.shape)

    def _features(self, z: Tensor, gamma: Tensor, x_selfcond: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(z.device.type, torch.bfloat16, enabled=self.bfloat16):
            hidden, analytic = self.network.model.features(z, gamma, x_selfcond, self.bias.scale)
        return hidden.float().flatten(0, 1), analytic.float().flatten(0, 1)

    @torch.no_grad()
    def validate(self, tokens: Tensor, generator: torch.Generator) -> dict[str, float]:
        losses = {}
        for level in VALIDATION_LEVELS:
            gamma = torch.full((tokens.shape[0], 1), level, device=tokens.device)
            losses[f"gamma={level:+.0f}"] = float(self.nats(tokens, gamma, generator, 1.0)[0])
        return {**losses, "hidden": self._hidden_nats(tokens, generator)}

    def _hidden_nats(self, tokens: Tensor, generator: torch.Generator) -> float:
        """The mean cross-entropy of tokens that are pure noise in otherwise clean text: how context is used."""
        in_text = torch.ones_like(tokens) if self.eos is None else tokens.ne(self.eos).long()
        scores = torch.rand(tokens.shape, generator=generator).to(tokens.device) + in_text
        n_hidden = (HIDDEN_SHARE * in_text.sum(dim=1, keepdim=True)).ceil()  # (B, 1), at least one of a text
        hidden = scores.argsort(dim=1, descending=True).argsort(dim=1) < n_hidden
        gamma = torch.where(hidden, self.noise.gamma_1, self.noise.gamma_0)
        _, nats = self.nats(tokens, gamma, generator, 0.0, hidden.float())
        return float(nats.sum() / hidden.sum())

    def tensors(self) -> dict[str, Tensor]:
        return {
            **self.noise.tensors(),
            "until_refresh": torch.tensor(self._until_refresh),
            "bias_steps": self.bias.tensor(),
        }

    def load(self, tensors: dict[str, Tensor]) -> None:
        self.noise.load(tensors)
        self._until_refresh = int(tensors["until_refresh"])
        self.bias.steps_done = int(tensors["bias_steps"])

    def export(self, tokenizer: Tokenizer, eos: int, defaults: SamplingDefaults) -> PlaidLM:
        modules = PlaidModules(self.network.model.config)
        modules.load_state_dict(self.network.state_dict())
        modules.noise_schedule = fit_schedule(self.noise)
        modules.gamma_bounds.gamma_0.data.fill_(self.noise.gamma_0)
        modules.gamma_bounds.gamma_1.data.fill_(self.noise.gamma_1)
        model = PlaidLM(modules, tokenizer, eos, defaults)
        model.position_levels = self.mixed > 0
        return model


class BoundTask:
    """PLAID by its own objective: the variational bound, with a learned schedule and learned end points.

    The bound does not depend on the schedule. So the schedule is trained to minimise the variance of the estimate:
    its gradient is that of the squared loss.
    """

    def __init__(self, config: PlaidConfig, bias_warmup: int = 0) -> None:
        self.network = PlaidModules(config)
        self.bias = BiasWarmUp(bias_warmup)

    def loss(self, tokens: Tensor, generator: torch.Generator) -> Tensor:
        batch = tokens.shape[0]
        n_reconstruct = max(1, batch // 8)
        embedding = self.network.embedding_matrix()
        x = embedding[tokens]
        low, high = self.network.gamma_bounds()

        offset = torch.rand((), generator=generator, dtype=torch.float64)
        times = (
            (torch.arange(batch - n_reconstruct, dtype=torch.float64) + offset) / max(1, batch - n_reconstruct)
        ).to(tokens.device)
        times = times[torch.randperm(times.shape[0], generator=generator)].requires_grad_()
        unit = self.network.noise_schedule(times)
        (unit_slope,) = torch.autograd.grad(unit.sum(), times, create_graph=True)
        weight = _SquaredLossGradient()
        gamma = low + (high - low) * weight.watch(unit)
        slope = (high - low) * weight.watch(unit_slope)

        all_gammas = torch.cat([low.expand(n_reconstruct), gamma])
        logits = self._logits(x, all_gammas, embedding, generator)
        self.bias.steps_done += torch.is_grad_enabled() and self.network.training
        reconstruction = F.cross_entropy(
            logits[:n_reconstruct].transpose(1, 2), tokens[:n_reconstruct], reduction="none"
        ).mean()
        estimate = logits[n_reconstruct:].softmax(dim=-1) @ embedding
        error = (x[n_reconstruct:] - estimate).pow(2).sum(dim=2).mean(dim=1).double()
        diffusion = 0.5 * torch.exp(-gamma) * slope * error
        weight.loss = diffusion.detach()
        last = NoiseLevel(high)
        variance = last.sigma_squared
        prior = (0.5 * (last.alpha_squared * x.double().pow(2) + variance - 1 - variance.log())).sum(2).mean()
        return (reconstruction + diffusion.mean() + prior).float()

    def _logits(self, x: Tensor, gamma: Tensor, embedding: Tensor, generator: torch.Generator) -> Tensor:
        level = NoiseLevel(gamma)
        epsilon = torch.randn(x.shape, generator=generator).to(x.device)
        z = (level.alpha[:, None, None] * x + level.sigma[:, None, None] * epsilon).float()
        gamma = gamma.float()
        x_selfcond = torch.zeros_like(z)
        chosen = torch.rand(x.shape[0], generator=generator).to(x.device) < SELF_CONDITIONED
        if bool(chosen.any()):
            with torch.no_grad():
                zeros = x_selfcond[chosen]
                first = self.network.model(z[chosen], gamma[chosen], embedding, zeros, self.bias.scale)
                x_selfcond[chosen] = first.softmax(dim=-1) @ embedding
        return self.network.model(z, gamma, embedding, x_selfcond, self.bias.scale)

    def validate(self, tokens: Tensor, generator: torch.Generator) -> dict[str, float]:
        with torch.no_grad():
            low, high = self.network.gamma_bounds()
        with torch.enable_grad():
            bound = float(self.loss(tokens, generator).detach())
        return {"bound": bound, "gamma_0": float(low), "gamma_1": float(high)}

    def tensors(self) -> dict[str, Tensor]:
        return {"bias_steps": self.bias.tensor()}

    def load(self, tensors: dict[str, Tensor]) -> None:
        self.bias.steps_done = int(tensors["bias_steps"])

    def export(self, tokenizer: Tokenizer, eos: int, defaults: SamplingDefaults) -> PlaidLM:
        modules = PlaidModules(self.network.model.config)
        modules.load_state_dict(self.network.state_dict())
        return PlaidLM(modules, tokenizer, eos, defaults)


class _SquaredLossGradient:
    """Turns the gradient of Σ loss that reaches a watched tensor into that of Σ loss²."""

    def __init__(self) -> None:
        self.loss: Tensor | None = None

    def watch(self, tensor: Tensor) -> Tensor:
        watched = tensor.clone()
        watched.register_hook(self._reweigh)  # type: ignore[no-untyped-call]
        return watched

    def _reweigh(self, gradient: Tensor) -> Tensor:
        assert self.loss is not None
        return gradient * 2.0 * self.loss


def transformer_loss(
    network: Transformer,
    inputs: Tensor,
    targets: Tensor,
    weights: Tensor,
    bfloat16: bool,
    total: float | None = None,
) -> Tensor:
    """The weighted mean cross-entropy of `targets` (B, L), given the network's `inputs` (B, L).

    `weights` is (B, L); positions of weight 0 are not read out. The weighted sum is divided by `total`, by default
    the sum of the weights.
    """
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=bfloat16):
        hidden = network.features(inputs).flatten(0, 1)
    weights = (weights / (weights.sum() if total is None else total)).flatten()
    has_weight = weights > 0
    readout = network.output_linear
    rows = hidden[has_weight].float()
    return readout_loss(
        rows,
        readout.weight,
        readout.bias,
        None,
        None,
        targets.flatten()[has_weight],
        bfloat16,
        weights[has_weight],
    )[0]


class AutoregressiveTask:
    """Cross-entropy of the next token, up to and including the first end token."""

    def __init__(self, network: Transformer, eos: int, bfloat16: bool = False) -> None:
        self.network = network
        self.eos = eos
        self.bfloat16 = bfloat16

    def loss(self, tokens: Tensor, generator: torch.Generator) -> Tensor:
        before = torch.cat([torch.full_like(tokens[:, :1], self.eos), tokens[:, :-1]], dim=1)
        is_end = tokens.eq(self.eos).long()
        ended_before = is_end.cumsum(dim=1) - is_end
        return transformer_loss(self.network, before, tokens, (ended_before == 0).float(), self.bfloat16)

    @torch.no_grad()
    def validate(self, tokens: Tensor, generator: torch.Generator) -> dict[str, float]:
        return {"nats per token": float(self.loss(tokens, generator))}

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def load(self, tensors: dict[str, Tensor]) -> None:
        return None

    def export(self, tokenizer: Tokenizer, eos: int, defaults: SamplingDefaults) -> AutoregressiveLM:
        network = Transformer(self.network.config)
        network.load_state_dict(self.network.state_dict())
        return AutoregressiveLM(network, tokenizer, eos, defaults)


class MaskedTask:
    """The masked diffusion bound: cross-entropy of masked tokens at a random mask share, weighted by 1/share."""

    smallest_share = 0.02

    def __init__(self, network: Transformer, eos: int, bfloat16: bool = False) -> None:
        self.network = network
        self.eos = eos
        self.bfloat16 = bfloat16

    def loss(self, tokens: Tensor, generator: torch.Generator) -> Tensor:
        batch = tokens.shape[0]
        offset = torch.rand((), generator=generator)
        share = (torch.arange(batch) + offset) / batch
        share = share[torch.randperm(batch, generator=generator)].clamp(min=self.smallest_share)
        masked = (torch.rand(tokens.shape, generator=generator) < share[:, None]).to(tokens.device)
        share = share.to(tokens.device)
        inputs = tokens.masked_fill(masked, self.network.config.vocab_size)
        weights = masked / share[:, None] * end_token_weights(tokens, self.eos, generator)
        return transformer_loss(self.network, inputs, tokens, weights, self.bfloat16, total=tokens.numel())

    @torch.no_grad()
    def validate(self, tokens: Tensor, generator: torch.Generator) -> dict[str, float]:
        return {"bound": float(self.loss(tokens, generator))}

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def load(self, tensors: dict[str, Tensor]) -> None:
        return None

    def export(self, tokenizer: Tokenizer, eos: int, defaults: SamplingDefaults) -> MaskedLM:
        network = Transformer(self.network.config)
        network.load_state_dict(self.network.state_dict())
        return MaskedLM(network, tokenizer, eos, defaults)

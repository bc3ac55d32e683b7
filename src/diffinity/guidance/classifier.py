"""Classifier guidance: x̂ + scale·(σ²/α)·∇_z log P(the text is in L | z), with P from a small trained network.

The network has one of three inputs at every position: the latent (`latent`), the latent and the denoiser's hidden
features (`backbone`), or the denoiser's output: its estimate x̂ and the probabilities of the most informative
tokens (`full`). For `backbone` and `full` the gradient goes through the denoiser.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diffinity.errors import InvalidArgument
from diffinity.guidance.base import DenoisingStep, Prediction
from diffinity.models.plaid import MUP_BASE_WIDTH
from diffinity.models.plaid_lm import PlaidLM
from diffinity.models.protocol import EmbeddingDiffusion
from diffinity.models.schedule import NoiseLevel

Form = Literal["full", "latent", "backbone"]
FORMS: tuple[Form, ...] = get_args(Form)
LEVEL_FEATURES = 4


@dataclass(frozen=True)
class Observation:
    """The input of a classifier for a noisy text."""

    features: Tensor  # (B, L, F)
    logits: Tensor | None  # (B, L, V), if the denoiser was called


def observe(
    model: EmbeddingDiffusion,
    form: Form,
    informative_tokens: Sequence[int],
    z: Tensor,
    noise_level: Tensor,
    x_selfcond: Tensor,
) -> Observation:
    """The features (B, L, F) of z (B, L, d) at noise_level (B,); differentiable in z.

    `informative_tokens` are the tokens whose probabilities `full` reads.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["a cat.", "a dog."], embed_dim=8)
    >>> z = torch.zeros(1, 5, 8, dtype=torch.float64)
    >>> observe(model, "full", [3, 4], z, torch.zeros(1), z).features.shape
    torch.Size([1, 5, 10])
    """
    check_form(model, form)
    if form == "latent":
        return Observation(_scaled(z, noise_level), None)
    if form == "backbone":
        assert isinstance(model, PlaidLM)
        with _hidden_features(model) as hidden:
            logits = model.denoise(z, noise_level, x_selfcond)
        # The network's features do not contain the evidence of z at its own position: PLAID adds it after them.
        return Observation(torch.cat([hidden[0], _scaled(z, noise_level)], dim=-1), logits)
    logits = model.denoise(z, noise_level, x_selfcond)
    p = logits.softmax(dim=-1)
    x = p @ model.embedding * z.shape[-1] ** 0.5  # coordinates of order 1: embeddings have unit norm
    # From −2 to 2; the gradient vanishes for very improbable tokens.
    log_p = ((p[..., list(informative_tokens)] + 1e-9).log() + 10) / 5
    return Observation(torch.cat([log_p, x], dim=-1), logits)


def token_readers(model: EmbeddingDiffusion, form: Form, informative_tokens: Sequence[int]) -> Tensor:
    """The directions (K, F) in feature space that indicate each informative token at a position.

    A classifier is initialised with them, because there are too few examples to learn the direction of a token.

    >>> import diffinity as dy
    >>> token_readers(dy.fit_markov(["a cat."], embed_dim=8), "full", [3, 4]).shape
    torch.Size([2, 10])
    """
    check_form(model, form)
    token_ids = list(informative_tokens)
    embedded = model.embedding[token_ids].detach()  # (K, d)
    if form == "latent":
        return embedded
    if form == "full":
        return torch.cat([torch.eye(len(token_ids)).to(embedded), torch.zeros_like(embedded)], dim=1)
    assert isinstance(model, PlaidLM)
    readout = model.modules.model.output_linear.weight[token_ids] * (MUP_BASE_WIDTH / model.config.dim)
    return torch.cat([0.5 * readout, embedded], dim=1)


def check_form(model: EmbeddingDiffusion, form: Form) -> None:
    """Refuse an unknown form, or a form for which the model has no features.

    >>> import diffinity as dy
    >>> check_form(dy.fit_markov(["a cat."]), "latent")
    """
    if form not in FORMS:
        raise InvalidArgument(f"form must be one of {', '.join(FORMS)}, but is {form!r}")
    if form == "backbone" and not isinstance(model, PlaidLM):
        raise InvalidArgument(
            f"the form 'backbone' reads the hidden features of a PlaidLM, which a {type(model).__name__} has not; "
            "use 'full' or 'latent'"
        )


def _scaled(z: Tensor, noise_level: Tensor) -> Tensor:
    """z with coordinates of unit variance, whatever the noise level."""
    level = NoiseLevel(noise_level.to(z.dtype)[:, None, None])
    return z / (level.alpha_squared / z.shape[-1] + level.sigma_squared).sqrt()


@contextmanager
def _hidden_features(model: PlaidLM) -> Iterator[list[Tensor]]:
    """The output (B, L, dim) of the network's last normalisation, captured while this thread calls the model."""
    outputs: list[Tensor] = []
    thread = threading.get_ident()

    def store(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        if threading.get_ident() == thread:  # other threads may use the model too
            outputs.append(output)

    handle = model.modules.model.output_norm.register_forward_hook(store)
    try:
        yield outputs
    finally:
        handle.remove()


class ClassifierHead(nn.Module):
    """Log-odds (B,) that a noisy text is in the language, from features (B, L, F) and γ (B,).

    Dilated convolutions over positions, then the maximum and the mean over positions. The maximum finds a feature
    that must occur somewhere; the mean measures a feature that must occur everywhere.

    >>> ClassifierHead(features=8, length=5)(torch.zeros(2, 5, 8), torch.zeros(2)).shape
    torch.Size([2])
    """

    def __init__(
        self, features: int, length: int, width: int = 32, dilations: tuple[int, ...] = (1, 2, 4)
    ) -> None:
        super().__init__()
        self.read = nn.Linear(features, width)
        self.level = nn.Linear(LEVEL_FEATURES, 2 * width)
        self.position = nn.Parameter(0.1 * torch.randn(length, width))
        self.blocks = nn.ModuleList(DilatedBlock(width, dilation) for dilation in dilations)
        self.judge = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, 1))

    def begin_with(self, readers: Tensor) -> None:
        """Initialise the first channels with these directions (K, F)."""
        k = min(readers.shape[0], self.read.weight.shape[0])
        with torch.no_grad():
            self.read.weight[:k] = readers[:k].to(self.read.weight)

    def forward(self, features: Tensor, noise_level: Tensor) -> Tensor:
        dtype = self.position.dtype
        scale, offset = self.level(_level_features(noise_level.to(dtype)))[:, None, :].chunk(
            2, dim=-1
        )  # (B, 1, width)
        x = self.read(features.to(dtype)) * (1 + scale) + offset + self.position  # (B, L, width)
        for block in self.blocks:
            x = block(x)
        pooled = torch.cat([x.amax(dim=1), x.mean(dim=1)], dim=-1)  # (B, 2·width)
        log_odds: Tensor = self.judge(pooled)[:, 0]
        return log_odds


class DilatedBlock(nn.Module):
    """A residual convolution of three positions, `dilation` apart, on x (B, L, width)."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.mix = nn.Linear(3 * width, width)  # as a matrix product: faster than Conv1d at this size

    def forward(self, x: Tensor) -> Tensor:
        d, length = self.dilation, x.shape[1]
        padded = F.pad(F.gelu(F.layer_norm(x, x.shape[-1:])), (0, 0, d, d))
        around = torch.cat([padded[:, k * d : k * d + length] for k in range(3)], dim=-1)  # (B, L, 3·width)
        mixed: Tensor = self.mix(around)
        return x + mixed


def _level_features(noise_level: Tensor) -> Tensor:
    """Smooth functions (B, 4) of the noise level (B,)."""
    level = NoiseLevel(noise_level)
    return torch.stack([noise_level / 4, level.alpha, level.sigma, torch.tanh(noise_level)], dim=-1)


@dataclass(frozen=True)
class NoisyClassifier:
    """A classifier head with its input features: log-odds that the clean text is in the language.

    >>> NoisyClassifier("latent", (), ClassifierHead(8, 5)).form
    'latent'
    """

    form: Form
    informative_tokens: tuple[int, ...]
    head: ClassifierHead

    def log_odds(
        self, model: EmbeddingDiffusion, z: Tensor, noise_level: Tensor, x_selfcond: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """The log-odds (B,) for z (B, L, d) at noise_level (B,), and the denoiser's logits if it was called."""
        observation = observe(model, self.form, self.informative_tokens, z, noise_level, x_selfcond)
        return self.head(observation.features, noise_level), observation.logits


@dataclass(frozen=True)
class ClassifierGuidance:
    """Guidance by a trained classifier, the same for every sample of the batch.

    >>> ClassifierGuidance(NoisyClassifier("latent", (), ClassifierHead(8, 5))).scale
    20.0
    """

    classifier: NoisyClassifier
    scale: float = 20.0

    def predict(self, model: EmbeddingDiffusion, step: DenoisingStep) -> Prediction:
        with torch.enable_grad():
            z = step.z.detach().requires_grad_()
            log_odds, logits = self.classifier.log_odds(
                model, z.to(model.dtype), step.noise_level(model), step.x_selfcond
            )
            (gradient,) = torch.autograd.grad(F.logsigmoid(log_odds).sum(), z)
        if logits is None:
            logits = step.denoise(model)
        logits = logits.detach()
        x = logits.softmax(dim=-1) @ model.embedding
        shift = self.scale * gradient.double() * (step.level.sigma_squared / step.level.alpha)
        return Prediction(logits, x, x_selfcond=x, shift=shift)

"""The PLAID network: from noisy embeddings and a noise level to logits over the vocabulary.

The architecture of *Likelihood-Based Diffusion Language Models* (Gulrajani and Hashimoto, 2023), in plain
PyTorch, with its parameter names, so that its published weights fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

GAMMA_FEATURES = 64
PLAIN_ATTENTION = 128  # up to this length, plain products are faster than the fused kernel (training on a CPU)
MUP_BASE_WIDTH = 256  # the width at which μP's readout multiplier is 1
LARGEST_TRANSPOSED = 2**20  # maximum size of a weight matrix that `store_transposed` changes
LARGEST_PACKED = 2**24  # maximum size of a weight matrix of which a second, packed copy is kept
GELU_SLOPE = 2 * math.sqrt(2 / math.pi)


@dataclass(frozen=True)
class PlaidConfig:
    """The shape of a PLAID network.

    >>> PlaidConfig(vocab_size=512, dim=128, n_blocks=3, n_heads=4, embed_dim=16).head_dim
    32
    """

    vocab_size: int = 32768
    dim: int = 2048
    n_blocks: int = 24
    n_heads: int = 32
    embed_dim: int = 16

    def __post_init__(self) -> None:
        for name in ("vocab_size", "dim", "n_blocks", "n_heads", "embed_dim"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a positive whole number, not {value!r}")
        if self.dim % self.n_heads or (self.dim // self.n_heads) % 2:
            raise ValueError(
                f"dim must be n_heads times an even number, but dim is {self.dim} and n_heads is {self.n_heads}"
            )

    @property
    def head_dim(self) -> int:
        return self.dim // self.n_heads

    @property
    def about_parameters(self) -> int:
        """The number of parameters, without small tensors such as biases and norms."""
        return 12 * self.n_blocks * self.dim**2 + self.vocab_size * (self.dim + self.embed_dim)


class RMSNorm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        normed = F.rms_norm(x.float(), x.shape[-1:], eps=1e-5)
        return (normed * self.weight.float()).to(x.dtype)


class LayerNorm(nn.Module):
    """Layer normalisation with a weight and no bias, always in float32."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x.float(), x.shape[-1:], eps=1e-5) * self.weight


class Rotary(nn.Module):
    inv_freq: Tensor

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        self.register_buffer("inv_freq", 1.0 / 10000.0**exponents)  # (head_dim / 2,)

    def forward(self, length: int) -> tuple[Tensor, Tensor]:
        positions = torch.arange(length, dtype=torch.float32, device=self.inv_freq.device)
        angles = torch.outer(positions, self.inv_freq.float())
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)  # (L, head_dim) each


def rotate(x: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """Rotate pairs (i, i + head_dim/2) of `x` (…, L, head_dim) by the angles of their positions."""
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * signed_sin


def gelu(x: Tensor) -> Tensor:
    """GELU in its tanh form. On a CPU it is written with the sigmoid, (1 + tanh u) / 2 = σ(2u), which is faster.

    >>> x = torch.linspace(-6, 6, 1001)
    >>> bool((gelu(x) - F.gelu(x, approximate="tanh")).abs().max() < 1e-6)
    True
    """
    if x.device.type != "cpu" or x.dtype != torch.float32 or x.requires_grad:
        return F.gelu(x, approximate="tanh")
    return x * (x * x).mul_(0.044715 * GELU_SLOPE).add_(GELU_SLOPE).mul_(x).sigmoid_()


def matmul_per_sample(x: Tensor, weight: Tensor) -> Tensor:
    """x (B, L, d) @ weight (d, k) as one product per sample, (B, L, k).

    In one product over all rows the rounding of a row depends on the number of rows, and a denoising run amplifies
    it until texts differ. With one product per sample, a sample is the same in every batch. In the backward pass a
    single product would be divided between threads and rounded differently, so it is computed for two copies and
    one is dropped.
    """
    batch = x.shape[0]
    if batch == 1 and x.requires_grad and x.device.type == "cpu" and torch.get_num_threads() > 1:
        return torch.bmm(x.expand(2, -1, -1), weight.expand(2, -1, -1))[:1]
    return torch.bmm(x, weight.expand(batch, -1, -1))


class Linear(nn.Linear):
    """A linear layer with one product per sample, except in training, where one large product is faster."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return super().forward(x)
        product = matmul_per_sample(x, self.weight.T)
        return product if self.bias is None else product + self.bias


def store_transposed(blocks: nn.Module) -> None:
    """Store the weights of linear layers column by column, in place; shapes and values stay the same.

    For the few rows of a text, MKL multiplies by such weights faster (64 × 640 by 640 × 160: 0.11 ms instead of
    0.27 ms on a processor with AVX-512). Large weights stay as they are, because there it makes no difference.

    >>> layer = Linear(3, 2)
    >>> store_transposed(layer)
    >>> layer.weight.shape, layer.weight.T.is_contiguous()
    (torch.Size([2, 3]), True)
    """
    for layer in blocks.modules():
        if isinstance(layer, nn.Linear) and layer.weight.numel() <= LARGEST_TRANSPOSED:
            layer.weight.data = layer.weight.data.T.contiguous().T


class PackedWeight:
    """A weight matrix (k, d) in the layout that the CPU's matrix products read fastest.

    It is packed at the first use, and again when its parts have changed. A copy or a pickle of it is empty.
    """

    def __init__(self) -> None:
        self._parts: list[Tensor] = []  # references, so that no other tensor gets their addresses
        self._states: list[tuple[int, int, int]] = []
        self._packed: Tensor | None = None

    def product(self, x: Tensor, parts: list[Tensor], bias: Tensor | None) -> Tensor:
        """x (B, L, d) @ torch.cat(parts, 1).T + bias, (B, L, k), with one product per sample.

        >>> x, parts, bias = torch.rand(2, 3, 5), [torch.rand(7, 4), torch.rand(7, 1)], torch.rand(7)
        >>> product = PackedWeight().product(x, parts, bias)
        >>> bool((product - (x @ torch.cat(parts, 1).T + bias)).abs().max() < 1e-5)
        True
        """
        states = [(id(part), part.data_ptr(), part._version) for part in parts]
        if self._packed is None or self._states != states:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(torch.cat(parts, dim=1), x.shape[1])
            self._parts, self._states = parts, states
        linear = torch.ops.mkldnn._linear_pointwise
        if len(x) == 1:
            product: Tensor = linear(x, self._packed, bias, "none", [], "")
            return product
        return torch.stack([linear(sample, self._packed, bias, "none", [], "") for sample in x])

    def __reduce__(self) -> tuple[type[PackedWeight], tuple[()]]:
        return PackedWeight, ()


def can_pack(x: Tensor, weight: Tensor) -> bool:
    """Whether `PackedWeight` can compute a product with x: on a CPU, in float32, without gradients, and with a
    weight small enough for a second copy."""
    return (
        x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and not (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad))
        and not weight.is_inference()
        and weight.numel() <= LARGEST_PACKED
        and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
    )


class MLP(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc1 = Linear(dim, 4 * dim, bias=False)
        self.fc2 = Linear(4 * dim, dim, bias=False)
        self.activation: Callable[[Tensor], Tensor] = gelu

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.fc2(self.activation(self.fc1(x)))
        return hidden


class Block(nn.Module):
    def __init__(self, config: PlaidConfig, causal: bool = False) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.causal = causal
        self.residual_scale = 1.0 / math.sqrt(config.n_blocks)
        self.rmsnorm1 = RMSNorm(config.dim)
        self.attn_qkv = Linear(config.dim, 3 * config.dim, bias=False)
        self.attn_out = Linear(config.dim, config.dim, bias=False)
        self.rmsnorm2 = RMSNorm(config.dim)
        self.mlp = MLP(config.dim)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, dim = x.shape
        qkv = self.attn_qkv(self.rmsnorm1(x))  # (B, L, 3·dim)
        qkv = qkv.view(batch, length, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)  # (3, B, heads, L, head_dim)
        (q, k), v = rotate(qkv[:2], cos, sin), qkv[2]
        if self.training and length <= PLAIN_ATTENTION:
            scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5  # (B, heads, L, L)
            if self.causal:
                later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
                scores = scores.masked_fill(later, -math.inf)
            mixed = scores.softmax(dim=-1) @ v
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        mixed = mixed.transpose(1, 2).reshape(batch, length, dim)
        x = torch.add(x, self.attn_out(mixed), alpha=self.residual_scale)
        return torch.add(x, self.mlp(self.rmsnorm2(x)), alpha=self.residual_scale)


class Embedding(nn.Module):
    """Token embeddings of unit norm."""

    def __init__(self, vocab_size: int, embed_dim: int) -> None:
        super().__init__()
        self.matrix = nn.Parameter(F.normalize(torch.randn(vocab_size, embed_dim), dim=1))

    def forward(self) -> Tensor:  # (V, d_e)
        norm = torch.linalg.vector_norm(self.matrix, dim=1, keepdim=True)
        return self.matrix / (norm + 1e-8)


class PlaidNetwork(nn.Module):
    def __init__(self, config: PlaidConfig) -> None:
        super().__init__()
        self.config = config
        self.input_linear = Linear(config.embed_dim, config.dim, bias=False)
        self.selfcond_linear = Linear(config.embed_dim, config.dim, bias=False)
        self.gamma_linear = Linear(GAMMA_FEATURES, config.dim, bias=False)
        self.rotary_emb = Rotary(config.head_dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_blocks))
        self.output_norm = LayerNorm(config.dim)
        self.output_linear = Linear(config.dim, config.vocab_size)
        self.packed_readout = PackedWeight()
        for zero_initialised in (self.selfcond_linear, self.gamma_linear, self.output_linear):
            nn.init.zeros_(zero_initialised.weight)
        nn.init.zeros_(self.output_linear.bias)

    def forward(
        self, z: Tensor, noise_level: Tensor, embedding: Tensor, x_selfcond: Tensor, bias_scale: float = 1.0
    ) -> Tensor:
        """Logits (B, L, V) for z (B, L, d_e), noise_level (B,), embedding (V, d_e), x_selfcond (B, L, d_e).

        `noise_level` may also be (B, L), a noise level for each position, as in part of our training.
        """
        hidden, analytic = self.features(z, noise_level, x_selfcond, bias_scale)
        readout = self.output_linear
        if not self.training and can_pack(hidden, readout.weight) and can_pack(analytic, embedding):
            inputs = torch.cat([hidden, analytic], dim=-1)
            return self.packed_readout.product(inputs, [readout.weight, embedding], readout.bias)
        logits: Tensor = readout(hidden) + matmul_per_sample(analytic, embedding.T)
        return logits

    def features(
        self, z: Tensor, noise_level: Tensor, x_selfcond: Tensor, bias_scale: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """The inputs of the readout: the last hidden state (B, L, dim) and the analytic part (B, L, d_e).

        The analytic part times the embeddings is the part of log p(token | z) that is known in closed form. The
        network only adds the effect of the context.
        """
        noise_level = noise_level if noise_level.ndim == 2 else noise_level[:, None]  # (B, 1 or L)
        alpha_squared = torch.sigmoid(-noise_level)[:, :, None]  # (B, 1 or L, 1)
        sigma_squared = torch.sigmoid(noise_level)[:, :, None]

        scaled = z / (alpha_squared / self.config.embed_dim + sigma_squared).sqrt()
        x = self.input_linear(scaled)  # (B, L, dim)
        x = x + self.selfcond_linear(x_selfcond * math.sqrt(self.config.embed_dim))
        x = x + self.gamma_linear(gamma_features(noise_level))

        analytic = bias_scale * (alpha_squared.sqrt() / sigma_squared) * z  # (B, L, d_e)
        block_dtype = self.blocks[0].attn_out.weight.dtype  # type: ignore[union-attr]
        cos, sin = (angle.to(block_dtype) for angle in self.rotary_emb(z.shape[1]))
        x = x.to(block_dtype)
        for block in self.blocks:
            x = block(x, cos, sin)

        return self.output_norm(x) * (MUP_BASE_WIDTH / self.config.dim), analytic


def gamma_features(noise_level: Tensor) -> Tensor:
    """Fourier features (…, 64) of noise levels (…); angles reach hundreds of radians, hence float64."""
    frequencies = torch.linspace(
        -5.0, 5.0, GAMMA_FEATURES // 2, dtype=torch.float64, device=noise_level.device
    ).exp()
    angles = frequencies * noise_level.double()[..., None]
    return torch.cat([angles.sin(), angles.cos()], dim=-1).float()

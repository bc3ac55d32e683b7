"""The LangFlow network and its noise schedule: from noisy embeddings and a noise level to logits.

The architecture of *LangFlow: Continuous Diffusion Rivals Discrete in Language Modeling* (2026), in plain PyTorch,
with the parameter names of its published weights. Embeddings are as wide as the network, so they are not
projected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diffinity.models.plaid import LayerNorm, Linear, Rotary, matmul_per_sample, rotate

GAMMA_FEATURES = 256
SHORTEST_ROW = 1e-12  # lower bound of the length of an embedding


@dataclass(frozen=True)
class LangFlowConfig:
    """The shape of a LangFlow network; the defaults are those of langflow-owt.

    `normalise_embedding`, `self_conditioning` and `skip_logits` are true in every published model.

    >>> LangFlowConfig(vocab_size=512, hidden_size=64, cond_dim=32, n_blocks=3, n_heads=4).head_dim
    16
    """

    vocab_size: int = 50257
    hidden_size: int = 768
    cond_dim: int = 128
    n_blocks: int = 12
    n_heads: int = 12
    gumbel_cutoff: float = 1e-5
    normalise_embedding: bool = True
    self_conditioning: bool = True
    skip_logits: bool = True

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "cond_dim", "n_blocks", "n_heads"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a positive whole number, not {value!r}")
        if self.hidden_size % self.n_heads or (self.hidden_size // self.n_heads) % 2:
            raise ValueError(
                f"hidden_size must be n_heads times an even number, but hidden_size is {self.hidden_size} and "
                f"n_heads is {self.n_heads}"
            )
        if not isinstance(self.gumbel_cutoff, float) or not 0.0 < self.gumbel_cutoff < 0.5:
            raise ValueError(f"gumbel_cutoff must be a number between 0 and 0.5, not {self.gumbel_cutoff!r}")
        for name in ("normalise_embedding", "self_conditioning", "skip_logits"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false, not {getattr(self, name)!r}")

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.n_heads

    @property
    def about_parameters(self) -> int:
        """The number of parameters, without small tensors such as biases and norms."""
        block = 12 * self.hidden_size**2 + 6 * self.hidden_size * self.cond_dim
        return self.n_blocks * block + 2 * self.vocab_size * self.hidden_size


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Scale and shift the normalised x (B, L, D) by (B, 1, D) values, the same at all positions."""
    return x * (1 + scale) + shift


class Block(nn.Module):
    """Attention and MLP; the noise level shifts and scales their inputs and gates their outputs."""

    def __init__(self, config: LangFlowConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.n_heads = config.n_heads
        self.norm1 = LayerNorm(width)
        self.attn_qkv = Linear(width, 3 * width, bias=False)
        self.attn_out = Linear(width, width, bias=False)
        self.norm2 = LayerNorm(width)
        self.mlp = nn.Sequential(Linear(width, 4 * width), nn.GELU(approximate="tanh"), Linear(4 * width, width))
        self.adaLN_modulation = Linear(config.cond_dim, 6 * width)

    def forward(self, x: Tensor, c: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # c: (B, 1, cond_dim)
        dtype = self.attn_out.weight.dtype
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaLN_modulation(c.to(dtype)).chunk(6, dim=-1)
        x = x + gate1 * self.attend(modulate(self.norm1(x), shift1, scale1).to(dtype), cos, sin)
        return x + gate2 * self.mlp(modulate(self.norm2(x), shift2, scale2).to(dtype))

    def attend(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.attn_qkv(x)  # (B, L, 3·D)
        q, k, v = qkv.view(batch, length, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)  # (B, heads, L, head_dim)
        mixed = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v)
        attended: Tensor = self.attn_out(mixed.transpose(1, 2).reshape(batch, length, width))
        return attended


class Embedding(nn.Module):
    """Token embeddings of length √D: each component is of order one, like the noise."""

    def __init__(self, config: LangFlowConfig) -> None:
        super().__init__()
        self.normalise = config.normalise_embedding
        self.embedding = nn.Parameter(torch.randn(config.vocab_size, config.hidden_size))

    def forward(self) -> Tensor:  # (V, D)
        if not self.normalise:
            return self.embedding
        return F.normalize(self.embedding, dim=1, eps=SHORTEST_ROW) * math.sqrt(self.embedding.shape[1])


class NoiseLevelEmbedding(nn.Module):
    """The embedding of γ for the blocks: (B,) to (B, 1, cond_dim)."""

    def __init__(self, config: LangFlowConfig) -> None:
        super().__init__()
        width = config.cond_dim
        self.mlp = nn.Sequential(Linear(GAMMA_FEATURES, width), nn.SiLU(), Linear(width, width))

    def forward(self, noise_level: Tensor) -> Tensor:
        half = GAMMA_FEATURES // 2
        exponents = torch.arange(half, dtype=torch.float32, device=noise_level.device) / half
        angles = noise_level.float()[:, None, None] * torch.exp(-math.log(10000.0) * exponents)
        embedded: Tensor = F.silu(self.mlp(torch.cat([angles.cos(), angles.sin()], dim=-1)))
        return embedded


class OutputLayer(nn.Module):
    """The readout; its matrix is not tied to the embeddings."""

    def __init__(self, config: LangFlowConfig) -> None:
        super().__init__()
        self.norm_final = LayerNorm(config.hidden_size)
        self.linear = Linear(config.hidden_size, config.vocab_size)
        self.adaLN_modulation = Linear(config.cond_dim, 2 * config.hidden_size)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift, scale = self.adaLN_modulation(c).chunk(2, dim=-1)
        logits: Tensor = self.linear(modulate(self.norm_final(x), shift, scale))
        return logits


class LangFlowNetwork(nn.Module):
    def __init__(self, config: LangFlowConfig) -> None:
        super().__init__()
        self.config = config
        self.vocab_embed = Embedding(config)
        if config.self_conditioning:
            self.self_cond_proj = Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.sigma_map = NoiseLevelEmbedding(config)
        self.rotary_emb = Rotary(config.head_dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_blocks))
        self.output_layer = OutputLayer(config)

    def forward(self, z: Tensor, noise_level: Tensor, embedding: Tensor, x_selfcond: Tensor) -> Tensor:
        """Logits (B, L, V) for z (B, L, D), noise_level (B,), embedding (V, D), x_selfcond (B, L, D)."""
        logits = self.context_logits(z, noise_level, x_selfcond)
        if not self.config.skip_logits:
            return logits
        # log p(z | token) up to a constant: all embeddings have the same length, which cancels.
        return logits + matmul_per_sample(skip_coefficient(noise_level)[:, None, None] * z, embedding.T)

    def context_logits(self, z: Tensor, noise_level: Tensor, x_selfcond: Tensor) -> Tensor:
        """The network's own part of the logits, (B, L, V)."""
        x = z
        if self.config.self_conditioning:  # also if x_selfcond is 0: the projection reads z too
            x = x + self.self_cond_proj(torch.cat([z, x_selfcond], dim=-1))
        c = self.sigma_map(noise_level)  # (B, 1, cond_dim)
        block_dtype = self.blocks[0].attn_out.weight.dtype  # type: ignore[union-attr]
        cos, sin = (angle.to(block_dtype) for angle in self.rotary_emb(z.shape[1]))
        for block in self.blocks:
            x = block(x, c, cos, sin)
        logits: Tensor = self.output_layer(x, c)
        return logits


def skip_coefficient(noise_level: Tensor) -> Tensor:
    """α/σ² for noise levels γ, in a form that does not overflow.

    >>> level = torch.tensor(0.5)
    >>> bool(torch.isclose(skip_coefficient(level), torch.sigmoid(-level).sqrt() / torch.sigmoid(level)))
    True
    """
    return torch.exp(0.5 * (F.softplus(-noise_level) - noise_level))


class GumbelSchedule(nn.Module):
    """γ(t), the quantile function of a Gumbel distribution, cut off at both ends.

    It uses float32 and `torch.distributions.Gumbel`, as in the training of the published models. Near t = 1 the
    rounding of t matters: float64 would give noise levels up to 0.01 higher.
    """

    loc: Tensor
    scale: Tensor
    entropy: Tensor  # used in training only; here because it is in the checkpoint

    def __init__(self, cutoff: float, loc: float = 4.723, scale: float = 0.852, entropy: float = 7.02) -> None:
        super().__init__()
        self.cutoff = cutoff
        for name, value in (("loc", loc), ("scale", scale), ("entropy", entropy)):
            self.register_buffer(name, torch.tensor(value))

    def bounds(self) -> tuple[Tensor, Tensor]:
        """The lowest and the highest γ."""
        low = self.loc - self.scale * math.log(-math.log(self.cutoff))
        high = self.loc - self.scale * math.log(self.cutoff)
        return low, high

    def forward(self, t: Tensor) -> Tensor:  # (n,) -> (n,), float64
        gumbel = torch.distributions.Gumbel(self.loc.float(), self.scale.float(), validate_args=False)
        low, high = self.bounds()
        noise_level: Tensor = gumbel.icdf(t.float())  # type: ignore[no-untyped-call]
        return noise_level.clamp(low, high).double()


class LangFlowModules(nn.Module):
    """The learned modules of LangFlow, under the names of its checkpoint."""

    def __init__(self, config: LangFlowConfig) -> None:
        super().__init__()
        self.backbone = LangFlowNetwork(config)
        self.proposal = GumbelSchedule(config.gumbel_cutoff)

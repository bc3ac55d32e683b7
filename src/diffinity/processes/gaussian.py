"""Gaussian noise on token embeddings: the process of PLAID and of every other `EmbeddingDiffusion`.

Ancestral sampling is equation 33 of *Variational Diffusion Models* (Kingma et al., 2021), as PLAID does it;
DDIM is the deterministic variant. The state is float64; the network runs in its own dtype.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from diffinity.errors import InvalidArgument, ModelError
from diffinity.guidance.base import DenoisingStep, Guidance, Prediction, Unguided, given_level
from diffinity.models.protocol import EmbeddingDiffusion, Method, check_logits
from diffinity.models.schedule import NoiseLevel
from diffinity.processes.base import Draws, Ending, most_probable

Grid = Literal["uniform", "plaid", "langflow"]
LANGFLOW_END = 1e-5  # distance of LangFlow's times from 0 and 1


@dataclass(frozen=True)
class SamplerState:
    """The state between two denoising steps."""

    z: Tensor  # (B, L, d), float64
    x_selfcond: Tensor  # (B, L, d), model dtype
    step: int  # steps done
    noise_level: Tensor  # (), float64: the noise level of z
    prediction: Prediction | None = None  # of the last step
    log_ratio: Tensor | None = None  # (B,), float64: log p/r of the last move, in a weighted process
    decided: Tensor | None = None  # (B, L), int64: tokens that the constraint decides, −1 at the other positions

    def select(self, rows: Tensor) -> SamplerState:
        """The state of some rows."""
        index = rows.to(self.z.device)
        decided = None if self.decided is None else self.decided[index]
        return replace(self, z=self.z[index], x_selfcond=self.x_selfcond[index], decided=decided)

    def draft(self) -> tuple[Tensor, Tensor]:
        """The most probable token at every position (B, L), and its probability, float64."""
        return most_probable(self.prediction)


@dataclass(frozen=True)
class GaussianProcess:
    """A denoising process of embeddings: the model, the guidance, the grid of times and the update.

    `grid="uniform"` takes T equal steps from t = 1 to t = 0. `grid="plaid"` reproduces PLAID's loop: times
    linspace(1, 0, T) with steps of 1/T between them; the last step changes nothing. `grid="langflow"` reproduces
    LangFlow's loop: T steps between the times linspace(1 − 1e-5, 1e-5, T + 1). LangFlow counts network calls, and
    the last call updates nothing: its 128 steps are 127 here.

    `score_temp` below 1 sharpens: the predicted noise is divided by it. A `weighted` process is for particles: its
    base is the model's own sampler, so self-conditioning uses the unguided estimate, and its states have the log
    ratio of the model's kernel to the guided kernel. `show_decided` shows the network, without noise, the tokens
    that the constraint decides. A weighted process never does this, because its weights need the network's own
    prediction.
    """

    model: EmbeddingDiffusion
    guidance: Guidance = field(default_factory=Unguided)
    num_inference_steps: int = 256
    method: Method = "ancestral"
    grid: Grid = "uniform"
    score_temp: float = 0.9
    weighted: bool = False
    show_decided: bool = True

    def __post_init__(self) -> None:
        if self.num_inference_steps < 1:
            raise InvalidArgument(f"num_inference_steps must be at least 1, but is {self.num_inference_steps}")
        if self.method not in ("ancestral", "ddim"):
            raise InvalidArgument(f"method must be 'ancestral' or 'ddim', but is {self.method!r}")
        if self.grid not in ("uniform", "plaid", "langflow"):
            raise InvalidArgument(f"grid must be 'uniform', 'plaid' or 'langflow', but is {self.grid!r}")
        if not self.score_temp > 0:
            raise InvalidArgument(f"score_temp must be positive, but is {self.score_temp}")
        if self.weighted and (self.method, self.grid) != ("ancestral", "uniform"):
            raise InvalidArgument("particles go with ancestral sampling on the uniform grid")

    def begin(self, draws: Draws, length: int) -> SamplerState:
        """Noise of `length` positions."""
        return self.start(draws.normal(length, self.model.embedding.shape[1]))

    def start(self, z: Tensor) -> SamplerState:
        """The state before the first step, for standard normal z (B, L, d)."""
        model = self.model
        if z.ndim != 3 or z.shape[2] != model.embedding.shape[1]:
            raise InvalidArgument(
                f"z must have shape (B, L, {model.embedding.shape[1]}), but has {tuple(z.shape)}"
            )
        z = z.to(model.device, torch.float64)
        noise_level, _ = self._noise_levels(0)
        return SamplerState(z, torch.zeros_like(z, dtype=model.dtype), step=0, noise_level=noise_level)

    def predict(self, state: SamplerState) -> Prediction:
        """The prediction of the model and the guidance for the state."""
        gamma_t, _ = self._noise_levels(state.step)
        step = DenoisingStep(
            state.z,
            NoiseLevel(gamma_t),
            state.x_selfcond,
            state.step,
            self.num_inference_steps,
            state.decided,
            None if state.decided is None else self._given_level,
        )
        prediction = self.guidance.predict(self.model, step)
        if state.z.device.type == "cpu":  # a GPU would wait; `finish` checks at the end
            self._check(prediction, state)
        return prediction

    def _check(self, prediction: Prediction, state: SamplerState) -> None:
        """Refuse estimates that are not finite, which would propagate to all later steps."""
        if bool(torch.isfinite(prediction.x).all()):
            return
        when = f"at step {state.step + 1} of {self.num_inference_steps}"
        check_logits(self.model, prediction.logits, state.z.shape[0], state.z.shape[1], when)
        raise ModelError(f"the estimate of the embeddings is not finite {when}, although the logits are")

    def step(self, state: SamplerState, prediction: Prediction, draws: Draws) -> SamplerState:
        """The state after one more step."""
        noise = draws.normal(*state.z.shape[1:]) if self._is_noisy(state) else None
        if not self.weighted:
            return self.update(state, prediction, noise)
        assert noise is not None  # a weighted process is ancestral
        prediction = replace(prediction, x_selfcond=prediction.x)
        gamma_t, gamma_s = self._noise_levels(state.step)
        level_s, share = NoiseLevel(gamma_s), -torch.expm1(gamma_s - gamma_t)
        if prediction.shift is None or not share * level_s.sigma_squared > 0:
            # A step without noise is the model's own step.
            after = self.update(state, replace(prediction, shift=None), noise)
            return replace(after, log_ratio=torch.zeros(state.z.shape[0], dtype=torch.float64))
        # The mean moves by c·α_s·shift and the standard deviation is √c·σ_s.
        offset = share.sqrt() * (level_s.alpha / level_s.sigma) * prediction.shift
        after = self.update(state, prediction, noise)
        return replace(after, log_ratio=log_move_ratio(offset, noise.to(offset)).cpu())

    def update(self, state: SamplerState, prediction: Prediction, noise: Tensor | None) -> SamplerState:
        """z_s from z_t, the estimate and standard normal noise (B, L, d), a pure function."""
        gamma_t, gamma_s = self._noise_levels(state.step)
        level_t, level_s = NoiseLevel(gamma_t), NoiseLevel(gamma_s)
        after = replace(
            state,
            x_selfcond=prediction.x_selfcond,
            step=state.step + 1,
            prediction=prediction,
            noise_level=gamma_t,
            decided=prediction.decided if self.show_decided and not self.weighted else None,
        )
        if self._stands_still(state):
            return after
        alpha, sigma = level_t.alpha, level_t.sigma
        x = prediction.x.double()
        x = (state.z - (state.z - alpha * x) / self.score_temp) / alpha
        if prediction.shift is not None:
            x = x + prediction.shift
        if noise is None:
            z = level_s.alpha * x + level_s.sigma * ((state.z - alpha * x) / sigma)
        else:
            c = -torch.expm1(gamma_s - gamma_t)  # the share of x̂ in the mean of z_s
            mean = (1 - c) * (level_s.alpha / alpha) * state.z + c * level_s.alpha * x
            z = mean + (c * level_s.sigma_squared).sqrt() * noise.to(mean)
        return replace(after, z=z, noise_level=gamma_s)

    def _is_noisy(self, state: SamplerState) -> bool:
        return self.method == "ancestral" and not self._stands_still(state)

    def _stands_still(self, state: SamplerState) -> bool:
        """Whether the step changes nothing: PLAID's last step is already at t = 0."""
        return self.grid == "plaid" and 0 < state.step == self.num_inference_steps - 1

    def finish(self, state: SamplerState) -> Ending:
        """The logits of the current state, from one more network call."""
        noise_level = state.noise_level.to(self.model.dtype).expand(state.z.shape[0])
        logits = self.model.denoise(state.z.to(self.model.dtype), noise_level, state.x_selfcond)
        check_logits(self.model, logits, state.z.shape[0], state.z.shape[1], "after the last step")
        return Ending(logits)

    def _noise_levels(self, index: int) -> tuple[Tensor, Tensor]:
        """The noise levels before and after a step."""
        gamma_t, gamma_s = self._levels[:, index]
        return gamma_t, gamma_s

    @cached_property
    def _levels(self) -> Tensor:
        """The noise levels before and after every step, (2, T)."""
        steps = self.num_inference_steps
        if self.grid == "plaid":
            t = torch.linspace(1.0, 0.0, steps, dtype=torch.float64)
            times = torch.stack([t, t - 1.0 / steps])
        elif self.grid == "langflow":  # in float32: near t = 1 rounding changes the noise level
            t = torch.linspace(1.0 - LANGFLOW_END, LANGFLOW_END, steps + 1)
            times = torch.stack([t[:-1], t[1:]]).double()
        else:
            t = 1.0 - torch.arange(steps + 1, dtype=torch.float64) / steps
            times = torch.stack([t[:-1], t[1:]])
        with torch.no_grad():
            levels = self.model.noise_level(times.flatten().to(self.model.device)).double()
        if levels.shape != (2 * steps,) or not bool(torch.isfinite(levels).all()):
            name = type(self.model).__name__
            raise ModelError(f"{name}.noise_level gave {levels.tolist()[:4]}, not a finite level for each time")
        return levels.view(2, steps)

    @cached_property
    def _given_level(self) -> NoiseLevel:
        with torch.no_grad():
            return given_level(self.model)


def log_move_ratio(offset: Tensor, noise: Tensor) -> Tensor:
    """log p(z_s | z_t) − log r(z_s | z_t), (B,), for z_s = mean of p + sd·(offset + noise), both (B, L, d).

    p = N(mean, sd²) and r = N(mean + sd·offset, sd²). The quadratic terms cancel to −offset·noise − offset²/2.

    >>> one = torch.ones(1, 1, 1)
    >>> float(log_move_ratio(-1 * one, one)), float(log_move_ratio(2 * one, one))
    (0.5, -4.0)
    """
    return -(offset * (noise + 0.5 * offset)).flatten(1).sum(dim=1)

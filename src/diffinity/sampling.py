"""The denoising loop: from Gaussian noise to token logits.

Ancestral sampling is equation 33 of *Variational Diffusion Models* (Kingma et al., 2021), as PLAID does it;
DDIM is its deterministic sibling. The state is float64, the network runs in its own type.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from diffinity.errors import InvalidArgument
from diffinity.guidance.base import DenoisingStep, Guidance, Prediction, Unguided
from diffinity.models.protocol import DiffusionLM, text_of
from diffinity.models.schedule import NoiseLevel

Method = Literal["ancestral", "ddim"]
Grid = Literal["uniform", "plaid", "langflow"]
LANGFLOW_END = 1e-5  # how far from 0 and 1 LangFlow's times stay
FinishReason = Literal["complete", "stopped", "cancelled", "deadline"]


class Cancellation(Protocol):
    """Anything with `is_set()`, such as a `threading.Event`."""

    def is_set(self) -> bool: ...


@dataclass(frozen=True)
class SamplerState:
    """The state between two denoising steps."""

    z: Tensor  # (B, L, d), float64
    x_selfcond: Tensor  # (B, L, d), model dtype
    step: int  # steps done
    gamma: Tensor  # (), float64: the noise level of z
    prediction: Prediction | None = None  # of the last step


@dataclass(frozen=True)
class Sampler:
    """One way to denoise: the model, the guidance, the grid of times and the update.

    `grid="uniform"` takes T equal steps from t = 1 to t = 0. `grid="plaid"` repeats PLAID's own loop: times
    linspace(1, 0, T) with steps of 1/T between them, the last of which changes nothing. `grid="langflow"` repeats
    LangFlow's: T steps between the times linspace(1 − 1e-5, 1e-5, T + 1). LangFlow counts network calls, and the
    last one updates nothing: its 128 steps are 127 here.

    `score_temp` below 1 sharpens: the predicted noise is divided by it.
    """

    model: DiffusionLM
    guidance: Guidance = field(default_factory=Unguided)
    num_inference_steps: int = 256
    method: Method = "ancestral"
    grid: Grid = "uniform"
    score_temp: float = 0.9

    def __post_init__(self) -> None:
        if self.num_inference_steps < 1:
            raise InvalidArgument(f"num_inference_steps must be at least 1, but is {self.num_inference_steps}")
        if self.method not in ("ancestral", "ddim"):
            raise InvalidArgument(f"method must be 'ancestral' or 'ddim', but is {self.method!r}")
        if self.grid not in ("uniform", "plaid", "langflow"):
            raise InvalidArgument(f"grid must be 'uniform', 'plaid' or 'langflow', but is {self.grid!r}")
        if not self.score_temp > 0:
            raise InvalidArgument(f"score_temp must be positive, but is {self.score_temp}")

    def start(self, z: Tensor) -> SamplerState:
        """The state before the first step, for standard normal z (B, L, d)."""
        model = self.model
        if z.ndim != 3 or z.shape[2] != model.embedding.shape[1]:
            raise InvalidArgument(
                f"z must have shape (B, L, {model.embedding.shape[1]}), but has {tuple(z.shape)}"
            )
        z = z.to(model.device, torch.float64)
        gamma, _ = self._gammas(0)
        return SamplerState(z, torch.zeros_like(z, dtype=model.dtype), step=0, gamma=gamma)

    def step(self, state: SamplerState, noise: Callable[[], Tensor]) -> SamplerState:
        """The state after one more step; `noise()` gives standard normal draws (B, L, d)."""
        gamma_t, gamma_s = self._gammas(state.step)
        now = NoiseLevel(gamma_t)
        prediction = self.guidance.predict(
            self.model,
            DenoisingStep(state.z, now, state.x_selfcond, state.step, self.num_inference_steps),
        )
        after = replace(
            state, x_selfcond=prediction.x_selfcond, step=state.step + 1, prediction=prediction, gamma=gamma_t
        )
        if self.grid == "plaid" and state.step > 0 and state.step == self.num_inference_steps - 1:
            return after  # PLAID's last step stands at t = 0 already

        alpha, sigma = now.alpha, now.sigma
        x = prediction.x.double()
        x = (state.z - (state.z - alpha * x) / self.score_temp) / alpha
        if prediction.shift is not None:
            x = x + prediction.shift
        then = NoiseLevel(gamma_s)
        if self.method == "ddim":
            z = then.alpha * x + then.sigma * ((state.z - alpha * x) / sigma)
        else:
            c = -torch.expm1(gamma_s - gamma_t)  # the share of x̂ in the mean of z_s
            mean = (1 - c) * (then.alpha / alpha) * state.z + c * then.alpha * x
            z = mean + (c * then.sigma_squared).sqrt() * noise().to(mean)
        return replace(after, z=z, gamma=gamma_s)

    def finish(self, state: SamplerState) -> Tensor:
        """The logits (B, L, V) of the state as it stands, from one more network call."""
        gamma = state.gamma.to(self.model.dtype).expand(state.z.shape[0])
        return self.model.denoise(state.z.to(self.model.dtype), gamma, state.x_selfcond)

    def _gammas(self, index: int) -> tuple[Tensor, Tensor]:
        steps = self.num_inference_steps
        if self.grid == "plaid":
            t = float(torch.linspace(1.0, 0.0, steps, dtype=torch.float64)[index])
            s = t - 1.0 / steps
        elif self.grid == "langflow":  # in float32: near t = 1 a rounded time is another noise level
            t, s = torch.linspace(1.0 - LANGFLOW_END, LANGFLOW_END, steps + 1)[index : index + 2].tolist()
        else:
            t, s = 1.0 - index / steps, 1.0 - (index + 1) / steps
        times = torch.tensor([t, s], dtype=torch.float64, device=self.model.device)
        with torch.no_grad():
            gamma_t, gamma_s = self.model.gamma(times).double()
        return gamma_t, gamma_s


class SeededNoise:
    """Standard normal draws with one generator per sample, so that a sample does not depend on its batch.

    A sample's seed is the pair (seed, index). Drawn on the CPU and moved: a sample is the same on every device,
    up to the network's rounding.

    >>> one, two = SeededNoise([(0, 7)], (2, 3)), SeededNoise([(0, 5), (0, 7)], (2, 3))
    >>> bool((one()[0] == two()[1]).all())
    True
    """

    def __init__(self, seeds: Sequence[tuple[int, int]], shape: tuple[int, int]) -> None:
        self._shape = shape
        self._generators = [sample_generator(*seed) for seed in seeds]

    def __call__(self) -> Tensor:
        draws = [torch.randn(self._shape, generator=g, dtype=torch.float64) for g in self._generators]
        return torch.stack(draws)  # (B, L, d)


def sample_generator(seed: int, index: int) -> torch.Generator:
    """The generator of sample `index` of a run with `seed`.

    >>> sample_generator(0, 1).initial_seed() == sample_generator(0, 2).initial_seed()
    False
    """
    if seed < 0 or index < 0:
        raise InvalidArgument(f"seed and index must not be negative, but are {seed} and {index}")
    state = np.random.SeedSequence((seed, index)).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))


@dataclass(frozen=True)
class Samples:
    """What a run of the sampler ends in."""

    logits: Tensor  # (B, L, V)
    state: SamplerState
    finish_reason: FinishReason

    @property
    def tokens(self) -> Tensor:
        """The most probable token at every position, (B, L)."""
        return self.logits.argmax(dim=-1)


def steps(
    sampler: Sampler,
    z: Tensor,
    noise: Callable[[], Tensor],
    *,
    cancel: Cancellation | None = None,
    deadline: float | None = None,
) -> Generator[SamplerState, bool | None, Samples]:
    """Denoise z (B, L, d), giving the state after every step; sending True stops early. Returns the samples.

    `cancel.is_set()` and `deadline` (seconds from now) are looked at between steps.
    """
    started = time.monotonic()
    reason: FinishReason = "complete"
    state = sampler.start(z)
    while state.step < sampler.num_inference_steps:
        if cancel is not None and cancel.is_set():
            reason = "cancelled"
            break
        if deadline is not None and time.monotonic() - started >= deadline:
            reason = "deadline"
            break
        with torch.no_grad(), no_denormals():
            state = sampler.step(state, noise)
        if (yield state):
            reason = "stopped" if state.step < sampler.num_inference_steps else reason
            break
    with torch.no_grad():
        return Samples(sampler.finish(state), state, reason)


@contextmanager
def no_denormals() -> Iterator[None]:
    """Inside, this thread takes numbers below the smallest normal float for zero.

    Softmaxes of a sharp network and what is multiplied with them are full of such numbers, which a CPU handles
    far slower than others: a step with a gradient takes a third longer with them.

    >>> with no_denormals():
    ...     float(torch.tensor(1e-40) * 1)
    0.0
    """
    before = float(torch.tensor(1e-40) * 1) == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def run(
    sampler: Sampler,
    z: Tensor,
    noise: Callable[[], Tensor],
    *,
    callback_on_step_end: Callable[[int, SamplerState], bool | None] | None = None,
    cancel: Cancellation | None = None,
    deadline: float | None = None,
) -> Samples:
    """Denoise z (B, L, d) to the end, or to where it is stopped; whatever is there then is returned.

    `callback_on_step_end(step, state)` is called after every step; returning True stops early.
    """
    going = steps(sampler, z, noise, cancel=cancel, deadline=deadline)
    stop: bool | None = None
    while True:
        try:
            state = going.send(stop)
        except StopIteration as end:
            samples: Samples = end.value
            return samples
        stop = callback_on_step_end is not None and callback_on_step_end(state.step - 1, state)


def sample(
    model: DiffusionLM,
    n: int = 1,
    length: int | None = None,
    *,
    num_inference_steps: int | None = None,
    seed: int = 0,
    first_index: int = 0,
    guidance: Guidance | None = None,
    method: Method = "ancestral",
    grid: Grid = "uniform",
    score_temp: float | None = None,
    callback_on_step_end: Callable[[int, SamplerState], bool | None] | None = None,
    cancel: Cancellation | None = None,
    deadline: float | None = None,
) -> Samples:
    """Draw `n` samples of `length` tokens; what is not given is the model's own default.

    Sample i has the seed (seed, first_index + i), whatever batch it is in.

    >>> import diffinity as dy
    >>> dy.sample(dy.fit_markov(["a b.", "b a."]), n=2, length=4, num_inference_steps=8).tokens.shape
    torch.Size([2, 4])
    """
    length = model.sampling_defaults.length if length is None else length
    if n < 1 or length < 1:
        raise InvalidArgument(f"n and length must be at least 1, but are {n} and {length}")
    sampler = make_sampler(model, guidance, num_inference_steps, method, grid, score_temp)
    seeds = [(seed, first_index + i) for i in range(n)]
    noise = SeededNoise(seeds, (length, model.embedding.shape[1]))
    return run(
        sampler,
        noise(),
        noise,
        callback_on_step_end=callback_on_step_end,
        cancel=cancel,
        deadline=deadline,
    )


def make_sampler(
    model: DiffusionLM,
    guidance: Guidance | None = None,
    num_inference_steps: int | None = None,
    method: Method = "ancestral",
    grid: Grid = "uniform",
    score_temp: float | None = None,
) -> Sampler:
    """A sampler with the model's own defaults for what is not given.

    >>> import diffinity as dy
    >>> make_sampler(dy.fit_markov(["a b."]), num_inference_steps=8).num_inference_steps
    8
    """
    defaults = model.sampling_defaults
    return Sampler(
        model,
        guidance or Unguided(),
        defaults.num_inference_steps if num_inference_steps is None else num_inference_steps,
        method,
        grid,
        defaults.score_temp if score_temp is None else score_temp,
    )


def texts(model: DiffusionLM, tokens: Tensor) -> list[str]:
    """The texts of tokens (B, L), each up to its first end-of-sequence token."""
    return [text_of(model, ids) for ids in tokens.tolist()]

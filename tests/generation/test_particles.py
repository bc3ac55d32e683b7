"""Particles against quadrature, hand-computed Gaussians and the exact probability of a language."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, models
from torch import Tensor

import diffinity as dy
from diffinity.alignment import TokenAutomaton
from diffinity.bench.draws import word_tokenizer
from diffinity.generation.particles import effective_size, systematic
from diffinity.guidance import ChainGuidance, DenoisingStep, Guidance, PathGuidance, Prediction, Unguided
from diffinity.models.markov import MarkovLM
from diffinity.models.protocol import DiffusionLM, SamplingDefaults
from diffinity.models.schedule import NoiseLevel
from diffinity.processes.gaussian import log_move_ratio
from diffinity.sampling import Proposal, SamplerState, sample_generator, sample_particles

TEXTS = ["a b c", "a b", "b c a", "c", "b b c", "a c b", "a b c", "c c"]


class OneNumber(DiffusionLM):
    """Three tokens on a line, one position, the exact denoiser of a prior: all can be integrated."""

    eos_token_id = None
    sampling_defaults = SamplingDefaults(num_inference_steps=3, length=1, score_temp=1.0)

    def __init__(self, gamma_bounds: tuple[float, float] = (-1.5, 2.0)) -> None:
        self.prior = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
        self.bounds = gamma_bounds
        self.calls: list[Tensor] = []

    @property
    def embedding(self) -> Tensor:
        return torch.tensor([[-1.0], [0.2], [1.0]], dtype=torch.float64)

    @property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a"))

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64

    def noise_level(self, t: Tensor) -> Tensor:
        low, high = self.bounds
        return low + (high - low) * t.double()

    def denoise(self, z: Tensor, noise_level: Tensor, x_selfcond: Tensor) -> Tensor:
        self.calls.append(x_selfcond.clone())
        level = NoiseLevel(noise_level[:, None, None])
        scores = -((z - level.alpha * self.embedding.T) ** 2) / (2 * level.sigma_squared)
        return scores + self.prior.log()


class Pushed:
    """Shifts x̂ by a constant, which is as biased as can be; tells no log P(L) and hands on a wrong estimate."""

    def __init__(self, by: float) -> None:
        self.by = by

    def predict(self, model: DiffusionLM, step: DenoisingStep) -> Prediction:
        found = Unguided().predict(model, step)
        return Prediction(found.logits, found.x, found.x + 9.0, torch.full_like(step.z, self.by))


def pushed(by: float) -> Callable[[Sequence[TokenAutomaton]], Guidance]:
    return lambda _automata: Pushed(by)


def tokens_in(*allowed: int) -> TokenAutomaton:
    """One token of three, if it is among `allowed`."""
    class_of = np.array([int(v in allowed) for v in range(3)], np.int32)
    return TokenAutomaton(class_of, np.array([[-1, 1], [-1, -1]], np.int32), np.array([False, True]))


def log_normal(z: Tensor, mean: Tensor, sd: Tensor | float) -> Tensor:
    """The log density of a Gaussian, written out."""
    sd = torch.as_tensor(sd, dtype=torch.float64)
    return -0.5 * ((z - mean) / sd) ** 2 - sd.log() - 0.5 * math.log(2 * math.pi)


def kernel(model: OneNumber, z: Tensor, t: float, s: float, temp: float = 1.0) -> tuple[Tensor, Tensor]:
    """Mean and deviation of p(z_s | z_t) for z (n,), from the definition: q(z_s | z_t, x) at the expected x."""
    gamma_t, gamma_s = model.noise_level(torch.tensor([t, s]))
    now, then = NoiseLevel(gamma_t), NoiseLevel(gamma_s)
    logits = model.denoise(z[:, None, None], gamma_t.expand(len(z)), z[:, None, None])
    x = (logits.softmax(-1) @ model.embedding)[:, 0, 0]
    x = (z - now.sigma * ((z - now.alpha * x) / now.sigma / temp)) / now.alpha  # the predicted noise over temp
    ratio = now.alpha / then.alpha  # α_{t|s}
    spread = now.sigma_squared - ratio**2 * then.sigma_squared  # σ²_{t|s}
    mean = (ratio * then.sigma_squared * z + then.alpha * spread * x) / now.sigma_squared
    return mean, (spread * then.sigma_squared / now.sigma_squared).sqrt()


def last_distribution(model: OneNumber, steps: int) -> NDArray[np.float64]:
    """P(token) at the end of the model's own sampler, (3,), by integrating over z at every step."""
    grid = torch.linspace(-7.0, 7.0, 1401, dtype=torch.float64)
    width = float(grid[1] - grid[0])
    density = log_normal(grid, torch.zeros_like(grid), 1.0).exp()
    for step in range(steps):
        mean, sd = kernel(model, grid, 1 - step / steps, 1 - (step + 1) / steps)
        to = log_normal(grid[None], mean[:, None], sd).exp()
        density = (density[:, None] * to).sum(0) * width
    noise_level = model.noise_level(torch.tensor([0.0])).expand(len(grid))
    probs = model.denoise(grid[:, None, None], noise_level, grid[:, None, None]).softmax(-1)[:, 0]
    found: NDArray[np.float64] = ((density[:, None] * probs).sum(0) * width).numpy()
    return found


def test_weight_of_a_move_is_the_ratio_of_two_gaussians() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, offset, noise = torch.randn(3, 5, 2, 4, dtype=torch.float64, generator=generator)
    sd = 0.37
    z = mean + sd * (offset + noise)
    wanted = log_normal(z, mean, sd) - log_normal(z, mean + sd * offset, sd)
    torch.testing.assert_close(log_move_ratio(offset, noise), wanted.sum((1, 2)))


@pytest.mark.parametrize(("by", "temp"), [(0.0, 1.0), (0.8, 1.0), (-2.0, 1.0), (0.8, 0.7)])
def test_a_trajectory_weighs_what_its_densities_say(by: float, temp: float) -> None:
    """With one particle the evidence is Π p/r·ψ(z_0), computed here from densities and the states themselves."""
    model, steps = OneNumber(), 3
    generators = [sample_generator(0, i) for i in range(4)]
    states = [torch.cat([torch.randn(1, generator=generator, dtype=torch.float64) for generator in generators])]

    def keep(_step: int, state: SamplerState) -> None:
        states.append(state.z[:, 0, 0])

    automata = [tokens_in(0, 1)] * 4
    run = sample_particles(
        model,
        automata,
        1,
        guidance=pushed(by),
        callback_on_step_end=keep,
        num_inference_steps=steps,
        score_temp=temp,
    )
    wanted = torch.zeros(4, dtype=torch.float64)
    for step in range(steps):
        t, s = 1 - step / steps, 1 - (step + 1) / steps
        mean, sd = kernel(model, states[step], t, s, temp)
        gamma_t, gamma_s = model.noise_level(torch.tensor([t, s]))
        moved = (1 - (gamma_s - gamma_t).exp()) * NoiseLevel(gamma_s).alpha * by
        wanted += log_normal(states[step + 1], mean, sd) - log_normal(states[step + 1], mean + moved, sd)
    last = states[-1][:, None, None]
    probs = model.denoise(last, model.noise_level(torch.zeros(4)), last).softmax(-1)[:, 0]
    torch.testing.assert_close(run.log_evidence, wanted + probs[:, :2].sum(-1).log())


@pytest.mark.parametrize("by", [0.0, 1.0, -1.0])
def test_evidence_is_unbiased_whatever_the_guidance(by: float) -> None:
    model = OneNumber()
    wanted = last_distribution(model, 3)[:2].sum()
    run = sample_particles(model, [tokens_in(0, 1)] * 400, 8, guidance=pushed(by))
    found = run.log_evidence.exp()
    assert float(found.mean()) == pytest.approx(wanted, abs=4 * float(found.std()) / 20)


def test_bias_of_the_guidance_goes_away_with_more_particles() -> None:
    """Pushed away from token 0, which should be drawn in 23 of 100 cases."""
    model, n = OneNumber(), 300
    truth = last_distribution(model, 3)[:2]
    truth = truth / truth.sum()
    off = []
    for k in (1, 4, 32):
        run = sample_particles(model, [tokens_in(0, 1)] * n, k, guidance=pushed(0.6))
        off.append(abs(float((run.tokens == 0).double().mean()) - truth[0]))
    assert off[0] > 0.2
    assert off[1] < off[0] - 0.03
    assert off[2] < 0.06


def markov() -> MarkovLM:
    return dy.fit_markov(TEXTS, order=2, tokenizer=word_tokenizer(TEXTS), restart=0.02, embed_dim=8)


def aligned(model: MarkovLM, *patterns: str) -> list[TokenAutomaton]:
    vocabulary = dy.Vocabulary.from_tokenizer(model.tokenizer)
    return [dy.align(dy.Regex(pattern), vocabulary) for pattern in patterns]


@pytest.mark.parametrize(
    ("pattern", "guidance"),
    [
        ("a.*", "posterior"),
        (".*c", "posterior"),
        (".*c", "gradient"),
        (".*c", lambda automata: PathGuidance(automata, 1.5)),
        (".*c", lambda _: Unguided()),
    ],
)
def test_evidence_is_the_probability_of_the_language(pattern: str, guidance: Proposal) -> None:
    """Of the exact model, up to what 48 steps in place of infinitely many change (a few per cent)."""
    model = markov()
    (automaton,) = aligned(model, pattern)
    wanted = float(model.log_acceptance(automaton, length=4).exp())
    run = sample_particles(model, [automaton] * 40, 8, 4, num_inference_steps=48, guidance=guidance)
    found = run.log_evidence.exp()
    error = float(found.std()) / math.sqrt(40)
    assert error < 0.1 * wanted
    assert float(found.mean()) == pytest.approx(wanted, abs=4 * error + 0.03 * wanted)


def test_every_sample_is_in_its_own_language() -> None:
    model = markov()
    automata = aligned(model, "a.*", ".*c", "b b.*|c", "c c")
    run = sample_particles(model, automata * 3, 3, 5, num_inference_steps=12)
    for ids, automaton in zip(run.tokens.tolist(), automata * 3, strict=True):
        assert automaton.accepts(ids)
    assert run.ess.shape == run.log_acceptance.shape == (12, 13)
    assert bool((run.ess <= 3 + 1e-9).all())
    assert bool((run.ess >= 1 - 1e-9).all())


def test_a_sample_does_not_depend_on_its_batch() -> None:
    model = markov()
    automata = aligned(model, "a.*", ".*c", "b b.*|c")
    together = sample_particles(model, automata, 6, 5, num_inference_steps=16, seed=3)
    for i, automaton in enumerate(automata):
        alone = sample_particles(model, [automaton], 6, 5, num_inference_steps=16, seeds=[(3, i)])
        assert alone.tokens[0].tolist() == together.tokens[i].tolist()
        torch.testing.assert_close(alone.log_evidence[0], together.log_evidence[i])
        torch.testing.assert_close(alone.log_acceptance[0], together.log_acceptance[i])


def test_one_particle_is_a_guided_run_decoded_by_a_draw() -> None:
    model = markov()
    (automaton,) = aligned(model, ".*c")
    run = sample_particles(model, [automaton], 1, 5, num_inference_steps=16, seed=1)
    guidance = ChainGuidance([automaton], 1.0)  # which proposes where a model has bigrams
    plain = dy.sample(model, 1, 5, num_inference_steps=16, seed=1, guidance=guidance)
    torch.testing.assert_close(run.logits, plain.logits)


def test_the_next_step_sees_the_unguided_estimate() -> None:
    model = OneNumber()
    sample_particles(model, [tokens_in(0)], 2, guidance=pushed(0.5))
    assert float(model.calls[0].abs().max()) == 0.0
    assert all(float(seen.abs().max()) <= 1.0 for seen in model.calls[1:])  # the guided one would be 9 more


def test_one_network_call_a_step_and_one_at_the_end() -> None:
    model = OneNumber()
    sample_particles(model, [tokens_in(0), tokens_in(1, 2)], 5, num_inference_steps=7, guidance=pushed(0.5))
    assert [len(seen) for seen in model.calls] == [10] * 8


def test_a_step_without_noise_leaves_the_weights_alone() -> None:
    model = OneNumber(gamma_bounds=(0.5, 0.5))  # γ does not move: neither does z, under any guidance
    run = sample_particles(model, [tokens_in(0)], 1, guidance=pushed(3.0))
    z = torch.randn(1, generator=sample_generator(0, 0), dtype=torch.float64)
    probs = model.denoise(z[:, None, None], torch.tensor([0.5]).double(), z[:, None, None]).softmax(-1)
    assert float(run.log_evidence) == pytest.approx(float(probs[0, 0, 0].log()))


def test_a_language_of_probability_zero_has_no_evidence_but_a_text() -> None:
    model = OneNumber()
    model.prior = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    run = sample_particles(model, [tokens_in(2), tokens_in(1, 2)], 4)
    assert run.tokens.tolist() == [[2], [1]]
    assert float(run.log_evidence[0]) == -math.inf
    assert float(run.ess[0].max()) == 0.0
    assert math.isfinite(float(run.log_evidence[1]))


@pytest.mark.parametrize("seed", range(5))
def test_systematic_resampling_takes_each_as_often_as_it_weighs(seed: int) -> None:
    weights = np.random.default_rng(seed).dirichlet([0.5] * 7)
    log_weights = torch.from_numpy(np.log(weights))
    starts = (np.arange(4000) + 0.5) / 4000
    taken = np.array([np.bincount(systematic(log_weights, start).numpy(), minlength=7) for start in starts])
    assert (taken >= np.floor(7 * weights)).all()
    assert (taken <= np.ceil(7 * weights)).all()
    np.testing.assert_allclose(taken.mean(axis=0), 7 * weights, atol=1e-3)


def test_resampling_never_takes_a_dead_particle() -> None:
    log_weights = torch.tensor([-torch.inf, 0.0, 0.0, -torch.inf])
    for start in (0.0, 0.5, 1 - 1e-12):
        assert set(systematic(log_weights, start).tolist()) <= {1, 2}
    assert effective_size(log_weights[None]).tolist() == [2.0]


def test_a_run_can_be_stopped() -> None:
    automata, event = [tokens_in(0)], threading.Event()
    event.set()
    stopped = sample_particles(OneNumber(), automata, 2, callback_on_step_end=lambda step, _: step == 0)
    assert stopped.finish_reason == "stopped"
    assert stopped.tokens.tolist() == [[0]]
    assert sample_particles(OneNumber(), automata, 2, cancel=event).finish_reason == "cancelled"
    assert sample_particles(OneNumber(), automata, 2, deadline=0.0).finish_reason == "deadline"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"automata": []}, "no automaton"),
        ({"n_particles": 0}, "n_particles"),
        ({"seeds": [(0, 0), (0, 1)]}, "2 seeds for 1"),
        ({"threshold": 2.0}, "threshold"),
        ({"guidance": "none"}, "posterior"),
    ],
)
def test_what_cannot_be_is_said(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(dy.InvalidArgument, match=said):
        sample_particles(OneNumber(), **{"automata": [tokens_in(0)], **arguments})  # type: ignore[arg-type]


def test_an_impossible_length_is_refused_before_the_first_step() -> None:
    model = OneNumber()
    with pytest.raises(dy.InfeasibleConstraint, match="shortest has 1"):
        sample_particles(model, [tokens_in(0)], 2, length=3)
    assert model.calls == []

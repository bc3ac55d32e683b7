"""Guidance towards a language: the identities of the closed form, and what it does on an exact model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import diffinity as dy
from diffinity.alignment import TokenAutomaton, Vocabulary, align
from diffinity.guidance import (
    ChainGuidance,
    DenoisingStep,
    GradientGuidance,
    Guidance,
    MixedGuidance,
    PathGuidance,
    PosteriorGuidance,
    Unguided,
    presets,
)
from diffinity.guidance.mixed import SplitGuidance
from diffinity.guidance.presets import named_guidance
from diffinity.models.markov import MarkovLM
from diffinity.models.schedule import NoiseLevel
from tests.models.plaid_fixture import small_tokenizer

TEXTS = [
    f"the {a} {v} the {t}." for a in ("cat", "dog", "fox") for v in ("saw", "took", "ate") for t in ("box", "cup")
]
LENGTH = 10


@pytest.fixture(scope="module")
def model() -> MarkovLM:
    return dy.fit_markov(TEXTS, order=2, vocab_size=300, restart=1e-3)


def aligned(model: MarkovLM, constraint: dy.Constraint) -> TokenAutomaton:
    return align(constraint, Vocabulary.from_tokenizer(model.tokenizer), "eos")


@pytest.fixture(scope="module")
def fox(model: MarkovLM) -> TokenAutomaton:
    return aligned(model, dy.Regex("the fox took [a-z ]+."))


def a_step(model: dy.DiffusionLM, length: int = LENGTH, noise_level: float = 1.0) -> DenoisingStep:
    z = torch.randn(
        2, length, model.embedding.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    level = NoiseLevel(torch.tensor(noise_level, dtype=torch.float64))
    return DenoisingStep(z, level, torch.zeros_like(z, dtype=model.dtype), 3, 10)


def test_posterior_guidance_at_scale_one_is_the_mean_given_acceptance(
    model: MarkovLM, fox: TokenAutomaton
) -> None:
    step = a_step(model)
    found = PosteriorGuidance(fox, scale=1.0).predict(model, step)
    q = dy.acceptance(found.logits, fox, logits=True).marginals
    assert found.shift is not None
    assert torch.allclose(found.x + found.shift, q @ model.embedding, atol=1e-9)
    assert torch.allclose(found.x_selfcond, q @ model.embedding, atol=1e-9)


def test_gradient_guidance_is_the_gradient_of_log_acceptance(model: MarkovLM, fox: TokenAutomaton) -> None:
    step = a_step(model)
    found = GradientGuidance(fox, scale=1.0).predict(model, step)
    z = step.z.clone().requires_grad_()
    total = dy.log_acceptance(model.denoise(z, step.noise_level(model), step.x_selfcond), fox).sum()
    (wanted,) = torch.autograd.grad(total, z)
    assert found.shift is not None
    assert torch.allclose(found.shift, wanted * (step.level.sigma_squared / step.level.alpha), atol=1e-9)


def test_the_analytic_term_s_share_of_the_gradient_is_the_closed_form() -> None:
    """For a network without context PLAID's Jacobian is the analytic term alone: both guidances are the same."""
    shape = dy.PlaidConfig(vocab_size=8, dim=8, n_blocks=1, n_heads=2, embed_dim=4)
    plaid = dy.PlaidLM.create(shape, small_tokenizer(8))  # its readout is zero at first
    automaton = align(dy.Regex("(ab)+c"), Vocabulary([bytes([97 + i]) for i in range(8)]), "exact")
    step = a_step(plaid, length=5)
    closed = PosteriorGuidance(automaton, scale=2.0).predict(plaid, step).shift
    through = GradientGuidance(automaton, scale=2.0).predict(plaid, step).shift
    assert closed is not None
    assert through is not None
    assert torch.allclose(closed, through, atol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        GradientGuidance,
        PosteriorGuidance,
        PathGuidance,
        lambda a: PathGuidance(a, jacobian=True),
        lambda a: PathGuidance(a, draw=1),
        lambda a: MixedGuidance(GradientGuidance(a), PathGuidance(a)),
        lambda a: named_guidance("auto", [a] * 24),
        lambda a: named_guidance("fast", [a] * 24),
    ],
)
def test_every_method_raises_satisfaction_by_argmax(model: MarkovLM, fox: TokenAutomaton, make: object) -> None:
    plain = dy.sample(model, n=24, length=LENGTH, num_inference_steps=48, seed=0).tokens
    guidance: Guidance = make(fox)  # type: ignore[operator]
    guided = dy.sample(model, n=24, length=LENGTH, num_inference_steps=48, seed=0, guidance=guidance).tokens
    rate = [sum(fox.accepts(ids) for ids in tokens.tolist()) / 24 for tokens in (plain, guided)]
    assert rate[0] < 0.3
    assert rate[1] > 0.8


def test_a_language_that_is_certain_already_changes_nothing(model: MarkovLM) -> None:
    anything = align(dy.Regex("(?s).*"), Vocabulary.from_tokenizer(model.tokenizer), "exact")
    step = a_step(model)
    logits = model.denoise(step.z, step.noise_level(model), step.x_selfcond)
    logits[:, :, 0] = -1e4  # no end token
    found = PosteriorGuidance(anything).predict(FixedLogits(model, logits), step)
    assert found.shift is None or not found.shift.any()
    assert torch.equal(found.x_selfcond, found.x)


class FixedLogits(dy.DiffusionLM):
    """A model that always says the same."""

    def __init__(self, like: MarkovLM, logits: Tensor) -> None:
        self.like, self.logits = like, logits

    embedding = property(lambda self: self.like.embedding)
    tokenizer = property(lambda self: self.like.tokenizer)
    device = property(lambda self: self.like.device)
    dtype = property(lambda self: self.like.dtype)

    def noise_level(self, t: Tensor) -> Tensor:
        return self.like.noise_level(t)

    def denoise(self, z: Tensor, noise_level: Tensor, x_selfcond: Tensor) -> Tensor:
        return self.logits


def test_guidance_starts_where_it_is_told_to(model: MarkovLM, fox: TokenAutomaton) -> None:
    step = a_step(model)  # step 3 of 10
    early, late = (PosteriorGuidance(fox, start=start).predict(model, step) for start in (0.3, 0.4))
    assert early.shift is not None
    assert late.shift is None
    assert torch.equal(late.logits, Unguided().predict(model, step).logits)


def test_a_scale_may_depend_on_the_step(model: MarkovLM, fox: TokenAutomaton) -> None:
    step = a_step(model)
    fixed = PosteriorGuidance(fox, scale=0.6).predict(model, step).shift
    scheduled = PosteriorGuidance(fox, scale=lambda done: 2 * done).predict(model, step).shift
    assert fixed is not None
    assert scheduled is not None
    assert torch.allclose(fixed, scheduled)


@pytest.mark.parametrize(
    ("options", "message"), [({"start": 1.5}, "start must be"), ({"scale": -1.0}, "at least 0")]
)
def test_bad_options_are_refused(fox: TokenAutomaton, options: dict[str, float], message: str) -> None:
    with pytest.raises(dy.InvalidArgument, match=message):
        PosteriorGuidance(fox, **options)  # type: ignore[arg-type]


def test_the_default_goes_through_the_network_in_its_noisy_third_only(
    model: MarkovLM, fox: TokenAutomaton
) -> None:
    default = named_guidance("auto", [fox] * 2)
    assert default is not None
    for index, made in ((3, GradientGuidance(fox)), (4, PosteriorGuidance(fox))):  # of 10 steps
        step = replace(a_step(model), index=index)
        found, wanted = default.predict(model, step).shift, made.predict(model, step).shift
        assert found is not None
        assert wanted is not None
        assert torch.allclose(found, wanted, atol=1e-12)


def test_a_split_batch_is_what_each_part_is_alone(model: MarkovLM, fox: TokenAutomaton) -> None:
    step = a_step(model)
    both = SplitGuidance(PosteriorGuidance([fox]), PathGuidance([fox]), (False, True)).predict(model, step)
    for row, guidance in ((1, PosteriorGuidance([fox])), (0, PathGuidance([fox]))):
        one_row = replace(step, z=step.z[row : row + 1], x_selfcond=step.x_selfcond[row : row + 1])
        alone = guidance.predict(model, one_row)
        assert both.shift is not None
        assert alone.shift is not None
        assert torch.equal(both.logits[row : row + 1], alone.logits)
        assert torch.equal(both.shift[row : row + 1], alone.shift)


def test_auto_takes_the_chain_for_small_automata_of_a_model_with_bigrams(
    model: MarkovLM, fox: TokenAutomaton, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = a_step(model)
    chosen = presets.chain_where_small([fox, fox], 2.5).predict(model, step)
    chained = ChainGuidance([fox, fox], presets.CHAIN_SHARE * 2.5).predict(model, step)
    assert chosen.shift is not None
    assert chained.shift is not None
    assert torch.equal(chosen.shift, chained.shift)
    monkeypatch.setattr(presets, "MOST_STATES", 1)
    large = presets.chain_where_small([fox, fox], 2.5).predict(model, step)
    named = named_guidance("auto", [fox, fox])
    assert named is not None
    without = named.predict(model, step)
    assert large.shift is not None
    assert without.shift is not None
    assert torch.equal(large.shift, without.shift)

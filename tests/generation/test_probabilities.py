"""Probabilities of choices, against those that the exact Markov model knows."""

from __future__ import annotations

import math

import pytest
import torch

import diffinity as dy
from diffinity.bench.draws import word_tokenizer
from diffinity.generation.probabilities import UNCERTAIN, _summarised
from diffinity.models.markov import MarkovLM

TEXTS = ["yes please", "yes", "yes", "no", "no thanks", "maybe not"]
CHOICES = ["yes", "no", "maybe not"]


@pytest.fixture(scope="module")
def model() -> MarkovLM:
    return dy.fit_markov(TEXTS, order=2, tokenizer=word_tokenizer(TEXTS), restart=0.01, embed_dim=8)


def exact(model: MarkovLM, choice: str, length: int) -> float:
    automaton = dy.align(dy.Text(choice), dy.Vocabulary.from_tokenizer(model.tokenizer))
    return float(model.log_acceptance(automaton, length=length).exp())


@pytest.mark.parametrize("noise", ["mask", "uniform", None])
def test_particles_estimate_the_probability_of_each_choice(model: MarkovLM, noise: str | None) -> None:
    asked = model if noise is None else model.tokens(noise)  # type: ignore[arg-type]
    steps = 4 if noise == "mask" else 16
    found = dy.probabilities(asked, CHOICES, length=4, num_inference_steps=steps, particles=6, repeats=10)
    wanted = [exact(model, choice, 4) for choice in CHOICES]
    for choice, truth in zip(found, wanted, strict=True):
        # Rare trajectories that ten runs do not meet; with the other noises finitely many steps.
        slack = (0.01 if noise == "mask" else 0.06) * truth
        assert choice.probability == pytest.approx(truth, abs=4 * choice.standard_error + slack + 1e-9)
        assert choice.share == pytest.approx(truth / sum(wanted), abs=4 * choice.share_error + slack + 1e-9)
    assert sum(choice.share for choice in found) == pytest.approx(1.0)


def test_the_factorised_estimate_is_the_product_of_the_first_distributions(model: MarkovLM) -> None:
    tokens = model.tokens("mask")
    found = dy.probabilities(tokens, ["yes"], length=3, estimate="factorised")
    ids = model.tokenizer.encode("yes").ids
    marginals = [0.0, 0.0]
    for text in range(model.embedding.shape[0] ** 3):
        size = model.embedding.shape[0]
        string = [text // size**2, text // size % size, text % size]
        share = math.exp(model.log_p_text(string))
        marginals[0] += share * (string[0] == ids[0])
        marginals[1] += share * (string[1] == model.eos_token_id)
    assert found[0].probability == pytest.approx(marginals[0] * marginals[1])
    assert math.isnan(found[0].standard_error)


def test_a_constraint_may_be_a_choice_and_a_prompt_is_read(model: MarkovLM) -> None:
    tokens = model.tokens("mask")
    thanks, nothing = dy.probabilities(
        tokens, [dy.Regex(" thanks"), dy.Regex("")], prompt="no", length=3, num_inference_steps=3
    )
    assert thanks.share == pytest.approx(0.5, abs=0.05)  # "no" and "no thanks" are equally frequent
    assert thanks.choice == dy.Regex(" thanks")
    assert nothing.share == pytest.approx(1 - thanks.share)


@pytest.mark.parametrize(
    ("choices", "options", "message"),
    [
        ([], {}, "there are no choices"),
        (["yes"], {"estimate": "exact"}, "estimate must be 'particles' or 'factorised'"),
        (["yes"], {"repeats": 0}, "repeats must be at least 1"),
        (["yes"], {"prompt": "a"}, "a MarkovLM reads no prompt"),
    ],
)
def test_what_can_not_be_is_said(
    model: MarkovLM, choices: list[str], options: dict[str, object], message: str
) -> None:
    with pytest.raises(dy.InvalidArgument, match=message):
        dy.probabilities(model, choices, **options)  # type: ignore[arg-type]


def test_estimates_that_a_single_run_dominates_are_warned_about() -> None:
    log_probs = torch.tensor([[0.0, -9.0, -9.0, -9.0, -9.0, -9.0, -9.0, -9.0], [-5.0] * 8]).double()
    dominated, even = _summarised(["a", "b"], log_probs)
    assert dominated.standard_error > UNCERTAIN * dominated.probability
    assert even.standard_error == pytest.approx(0.0)
    model = dy.load()
    with pytest.warns(UserWarning, match="use more particles"):
        dy.probabilities(model, ["cat", "Yes."], num_inference_steps=32, particles=2, repeats=8)

"""Tokens that the constraint decides are shown to the network without noise."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import diffinity as dy
from diffinity.alignment import Vocabulary, align
from diffinity.generation.making import make_process
from diffinity.guidance import PosteriorGuidance
from diffinity.guidance.base import DenoisingStep, given_level, show_given
from diffinity.guidance.chain import ChainGuidance, decided_tokens
from diffinity.guidance.mixed import SplitGuidance
from diffinity.models.plaid_lm import PlaidLM
from diffinity.models.schedule import NEARLY_CLEAN, NoiseLevel
from diffinity.processes.base import Draws
from diffinity.processes.gaussian import GaussianProcess


@pytest.fixture(scope="module")
def model() -> PlaidLM:
    model = dy.load()
    assert isinstance(model, PlaidLM)
    assert model.position_levels
    return model


def test_a_token_is_decided_if_the_constraint_makes_it_certain_and_the_model_does_not() -> None:
    q = torch.tensor([[[0.95, 0.05], [0.85, 0.15], [0.95, 0.05], [0.05, 0.95]]])
    p = torch.tensor([[[0.90, 0.10], [0.10, 0.90], [0.96, 0.04], [0.50, 0.50]]])
    assert decided_tokens(q, p, None) is not None
    assert decided_tokens(q, p, None).tolist() == [[0, -1, -1, 1]]  # type: ignore[union-attr]


def test_a_decided_token_stays_while_it_is_certain_and_goes_when_it_is_not() -> None:
    expected = torch.tensor([[[0.99, 0.01]]])
    before = torch.tensor([[0]])
    assert decided_tokens(expected, expected, before).tolist() == [[0]]  # type: ignore[union-attr]
    assert decided_tokens(expected, expected, 1 - before) is None  # another token was decided there
    assert decided_tokens(torch.tensor([[[0.8, 0.2]]]), expected, before) is None


def test_given_tokens_stand_nearly_clean_in_z_and_the_others_stay(model: PlaidLM) -> None:
    z = torch.randn(2, 3, model.embedding.shape[1], generator=torch.Generator().manual_seed(0))
    tokens = torch.tensor([[5, -1, 7], [-1, -1, 9]])
    low, high = model.noise_level(torch.tensor([0.0, 1.0], dtype=torch.float64)).tolist()
    shown, levels = show_given(model, z, torch.tensor([high, high]), tokens, given_level(model))
    given = low + NEARLY_CLEAN * (high - low)
    expected = torch.tensor([[given, high, given], [high, high, given]])
    torch.testing.assert_close(levels, expected)
    alpha = NoiseLevel(torch.tensor(given, dtype=torch.float64)).alpha.float()
    assert torch.equal(shown[tokens < 0], z[tokens < 0])
    torch.testing.assert_close(shown[tokens >= 0], alpha * model.embedding[tokens[tokens >= 0]])


def test_positions_that_are_cleaner_already_stay(model: PlaidLM) -> None:
    z = torch.randn(1, 2, model.embedding.shape[1], generator=torch.Generator().manual_seed(0))
    low = model.noise_level(torch.tensor([0.0], dtype=torch.float64)).float()
    shown, levels = show_given(model, z, low, torch.tensor([[5, 6]]), given_level(model))
    assert torch.equal(shown, z)
    assert torch.equal(levels, low[:, None].expand(1, 2))


def test_the_network_sees_decided_tokens(model: PlaidLM) -> None:
    """Alone at pure noise it does not know the first token; shown a brace it expects a brace there."""
    brace = model.tokenizer.encode('{"').ids
    z = torch.randn(1, 16, model.embedding.shape[1], generator=torch.Generator().manual_seed(1)).double()
    top = NoiseLevel(model.noise_level(torch.tensor([1.0], dtype=torch.float64))[0].detach().double())
    step = DenoisingStep(z, top, torch.zeros_like(z, dtype=model.dtype), 1, 32)
    decided = torch.full((1, 16), -1)
    decided[0, : len(brace)] = torch.tensor(brace)

    def probability(of: DenoisingStep) -> Tensor:
        with torch.no_grad():
            return of.denoise(model).softmax(dim=-1)[0, 0, brace[0]]

    assert probability(step) < 0.5 < 0.9 < probability(replace(step, decided=decided))


@pytest.mark.parametrize(("weighted", "scale"), [(False, 2.0), (True, 2.0), (False, 0.0)])
def test_particles_and_a_scale_of_0_keep_the_networks_own_prediction(
    model: PlaidLM, weighted: bool, scale: float
) -> None:
    automaton = align(dy.Regex(r"\{.*"), Vocabulary.from_tokenizer(model.tokenizer), "eos")
    process = GaussianProcess(model, ChainGuidance(automaton, scale=scale), 8, weighted=weighted)
    draws = Draws([(0, 0)])
    state = process.begin(draws, 8)
    for _ in range(4):
        state = process.step(state, process.predict(state), draws)
    assert (state.decided is None) == (weighted or scale == 0)


def test_what_follows_a_given_brace_is_json(model: PlaidLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed() -> int:
        return sum(map(parses, dy.Generator(model, dy.Regex(r"(?s)\{.*"), length=24, best_of=1)(16, seed=3)))

    shown = parsed()
    monkeypatch.setattr(model, "position_levels", False)
    assert shown > parsed() + 3


def parses(result: dy.Generated) -> bool:
    try:
        json.loads(result.text)
    except ValueError:
        return False
    return True


def test_samples_of_large_and_small_automata_in_one_batch(model: PlaidLM) -> None:
    """Only the part with small automata decides tokens; rows stay with their own."""
    vocabulary = Vocabulary.from_tokenizer(model.tokenizer)
    brace, letter = (align(dy.Regex(pattern), vocabulary, "eos") for pattern in (r"\{.*", "Dear [a-z]+"))
    guidance = SplitGuidance(ChainGuidance([brace]), PosteriorGuidance([letter]), (True, False))
    process = GaussianProcess(model, guidance, 8)
    draws = Draws([(0, 0), (0, 1)])
    state = process.begin(draws, 8)
    for _ in range(3):
        state = process.step(state, process.predict(state), draws)
    assert state.decided is not None
    assert (state.decided[1] == -1).all()
    assert state.decided[0, 0] >= 0
    swapped = replace(process, guidance=replace(guidance, in_first=(False, True)))
    again = swapped.predict(replace(swapped.begin(draws, 8), decided=state.decided.flip(0)))
    assert again.decided is not None
    assert (again.decided[0] == -1).all()


def test_sampled_texts_are_not_swayed(model: PlaidLM) -> None:
    """With decode="sample" the likely is not made more likely."""
    automaton = align(dy.Regex(r"\{.*"), Vocabulary.from_tokenizer(model.tokenizer), "eos")
    for decode in ("sample", "best"):
        process = make_process(model, [automaton], 8, dy.GenerationSettings(decode=decode))
        assert isinstance(process, GaussianProcess)
        assert process.show_decided == (decode == "best")

"""Our LangFlow against the numbers of LangFlow's own code."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from diffinity import Sampler
from diffinity.guidance.base import Prediction
from diffinity.models.langflow import skip_coefficient
from diffinity.models.langflow_import import import_langflow
from diffinity.models.langflow_lm import LangFlowLM
from diffinity.sampling import SamplerState, Samples
from tests.models.langflow_fixture import expected, largest_error
from tests.models.replay import replayed

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def model(langflow_fixtures: Path) -> LangFlowLM:
    return import_langflow(langflow_fixtures)


@pytest.fixture(scope="module")
def numbers(langflow_fixtures: Path) -> dict[str, Tensor]:
    return expected(langflow_fixtures)


def test_shape_is_read_off_the_tensors(model: LangFlowLM, langflow_fixtures: Path) -> None:
    shapes = json.loads((langflow_fixtures / "settings.json").read_text())["shapes"]
    for name in ("vocab_size", "hidden_size", "cond_dim", "n_blocks", "n_heads"):
        assert getattr(model.config, name) == shapes[name]


def test_the_schedule_s_tensors_win_over_the_config(model: LangFlowLM, langflow_fixtures: Path) -> None:
    described = json.loads((langflow_fixtures / "settings.json").read_text())["proposal"]["in_model_safetensors"]
    config = json.loads((langflow_fixtures / "config.json").read_text())
    assert float(model.modules.proposal.loc) == described["loc"] != config["gumbel_loc"]
    assert float(model.modules.proposal.scale) == described["scale"] != config["gumbel_scale"]
    assert model.config.gumbel_cutoff == config["gumbel_cutoff"]


def test_schedule_values(model: LangFlowLM, numbers: dict[str, Tensor]) -> None:
    assert largest_error(model.noise_level(numbers["schedule.t"]), numbers["schedule.gamma"]) < 1e-6
    for ours, name in zip(model.modules.proposal.bounds(), ("gamma_min", "gamma_max"), strict=True):
        assert largest_error(ours, numbers[f"schedule.{name}"]) < 1e-6


def test_the_ends_of_the_schedule_are_its_bounds(model: LangFlowLM) -> None:
    low, high = model.modules.proposal.bounds()
    assert model.noise_level(torch.tensor([0.0, 1.0])).tolist() == [float(low), float(high)]


def test_embeddings(model: LangFlowLM, numbers: dict[str, Tensor]) -> None:
    assert largest_error(model.embedding[numbers["embedding.rows"]], numbers["embedding"]) < 1e-6
    assert torch.allclose(model.embedding.norm(dim=1), torch.tensor(math.sqrt(model.config.hidden_size)))


def test_the_network_s_own_logits(model: LangFlowLM, numbers: dict[str, Tensor]) -> None:
    inputs = (numbers["forward.z"], numbers["forward.gamma"], numbers["forward.x_selfcond"])
    logits = model.modules.backbone.context_logits(*inputs)
    assert largest_error(logits, numbers["forward.logits_backbone"]) < TOLERANCE


@pytest.mark.parametrize("name", ["logits", "logits_no_selfcond"])
def test_logits(model: LangFlowLM, numbers: dict[str, Tensor], name: str) -> None:
    z, x_selfcond = numbers["forward.z"], numbers["forward.x_selfcond"]
    given = x_selfcond if name == "logits" else torch.zeros_like(x_selfcond)
    logits = model.denoise(z, numbers["forward.gamma"], given)
    assert largest_error(logits, numbers[f"forward.{name}"]) < TOLERANCE


def test_the_skip_coefficient_is_plaid_s() -> None:
    noise_level = torch.linspace(-8.0, 16.0, 97, dtype=torch.float64)
    assert torch.allclose(
        skip_coefficient(noise_level), torch.sigmoid(-noise_level).sqrt() / torch.sigmoid(noise_level), rtol=1e-12
    )


def test_one_step_is_ddim(model: LangFlowLM, numbers: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    gammas = torch.stack([numbers["euler.gamma_t"], numbers["euler.gamma_s"]])
    monkeypatch.setattr(model, "noise_level", lambda t: gammas)
    sampler, x = Sampler(model, num_inference_steps=1, method="ddim", score_temp=1.0), numbers["euler.x_pred"]
    state = sampler.update(sampler.start(numbers["euler.z"]), Prediction(x, x, x), None)
    assert largest_error(state.z, numbers["euler.out"]) < TOLERANCE


def replay(model: LangFlowLM, numbers: dict[str, Tensor]) -> tuple[Samples, list[SamplerState]]:
    sampler = Sampler(model, num_inference_steps=15, method="ddim", grid="langflow", score_temp=1.0)
    return replayed(sampler, numbers["trajectory.z0"])


def test_whole_trajectory(model: LangFlowLM, numbers: dict[str, Tensor]) -> None:
    samples, states = replay(model, numbers)
    levels = torch.stack([state.noise_level for state in states])
    assert largest_error(levels, numbers["trajectory.gamma"][1:]) < 1e-6
    for state, wanted in zip(states, numbers["trajectory.z_steps"], strict=True):
        assert largest_error(state.z, wanted) < TOLERANCE
    assert largest_error(samples.logits, numbers["trajectory.final_logits"]) < TOLERANCE
    assert torch.equal(samples.tokens, numbers["trajectory.tokens"])


def test_bfloat16_blocks_stay_close(
    langflow_fixtures: Path, model: LangFlowLM, numbers: dict[str, Tensor]
) -> None:
    halved = import_langflow(langflow_fixtures).to("cpu", block_dtype=torch.bfloat16)
    inputs = (numbers["forward.z"], numbers["forward.gamma"], numbers["forward.x_selfcond"])
    assert 0 < largest_error(halved.denoise(*inputs), model.denoise(*inputs)) < 0.02

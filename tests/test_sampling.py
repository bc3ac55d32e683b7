"""The denoising loop: independence of the batch, repeatability, and every way to stop it."""

from __future__ import annotations

import threading

import pytest
import torch
from tokenizers import Tokenizer, models

import diffinity as dy
from diffinity.sampling import SamplerState
from tests.models.plaid_fixture import small_tokenizer
from tests.models.test_markov import small_model


@pytest.fixture(scope="module")
def plaid() -> dy.PlaidLM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        shape = dy.PlaidConfig(vocab_size=32, dim=32, n_blocks=2, n_heads=2, embed_dim=8)
        model = dy.PlaidLM.create(shape, small_tokenizer(32))
        for parameter in model.modules.parameters():
            parameter.data.add_(0.05 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("method", ["ancestral", "ddim"])
def test_a_sample_is_the_same_whatever_its_batch(plaid: dy.PlaidLM, method: dy.sampling.Method) -> None:
    whole = dy.sample(plaid, n=8, length=12, num_inference_steps=20, seed=5, method=method)
    for size in (1, 3):
        for first in range(0, 8, size):
            n = min(size, 8 - first)
            part = dy.sample(
                plaid, n=n, length=12, num_inference_steps=20, seed=5, first_index=first, method=method
            )
            assert torch.equal(part.tokens, whole.tokens[first : first + n])
            assert torch.allclose(part.state.z, whole.state.z[first : first + n], rtol=1e-3, atol=1e-4)


def test_the_same_seed_and_batch_give_identical_bits(plaid: dy.PlaidLM) -> None:
    first, second = (dy.sample(plaid, n=3, length=9, num_inference_steps=15, seed=2) for _ in range(2))
    assert torch.equal(first.state.z, second.state.z)
    assert torch.equal(first.logits, second.logits)


def test_another_seed_gives_another_sample(plaid: dy.PlaidLM) -> None:
    first, second = (dy.sample(plaid, n=1, length=9, num_inference_steps=15, seed=seed) for seed in (1, 2))
    assert not torch.equal(first.state.z, second.state.z)


def test_samples_of_a_batch_differ(plaid: dy.PlaidLM) -> None:
    state = dy.sample(plaid, n=2, length=9, num_inference_steps=5, seed=0).state
    assert not torch.equal(state.z[0], state.z[1])


def test_callback_sees_every_step_and_can_stop() -> None:
    steps: list[int] = []

    def stop_at_five(step: int, state: SamplerState) -> bool:
        assert state.step == step + 1
        steps.append(step)
        return step == 4

    samples = dy.sample(small_model(), n=1, length=4, num_inference_steps=50, callback_on_step_end=stop_at_five)
    assert steps == [0, 1, 2, 3, 4]
    assert samples.finish_reason == "stopped"
    assert samples.tokens.shape == (1, 4)


def test_cancellation_is_seen_between_steps() -> None:
    cancel = threading.Event()
    done: list[int] = []

    def cancel_at_three(step: int, state: SamplerState) -> None:
        done.append(step)
        if step == 2:
            cancel.set()

    samples = dy.sample(
        small_model(), n=1, length=4, num_inference_steps=50, callback_on_step_end=cancel_at_three, cancel=cancel
    )
    assert samples.finish_reason == "cancelled"
    assert done == [0, 1, 2]


def test_a_deadline_in_the_past_returns_at_once() -> None:
    samples = dy.sample(small_model(), n=1, length=4, num_inference_steps=50, deadline=0.0)
    assert samples.finish_reason == "deadline"
    assert samples.state.step == 0


def test_a_whole_run_is_complete() -> None:
    samples = dy.sample(small_model(), n=1, length=4, num_inference_steps=7)
    assert samples.finish_reason == "complete"
    assert samples.state.step == 7


def test_one_step_is_enough_to_run() -> None:
    for grid in ("uniform", "plaid"):
        samples = dy.sample(small_model(), n=1, length=4, num_inference_steps=1, grid=grid)
        assert torch.isfinite(samples.state.z).all()


def test_a_lower_score_temperature_sharpens() -> None:
    """Fewer different texts among samples at temperature 0.5 than at 1."""
    model = small_model()
    different = {}
    for temperature in (1.0, 0.5):
        samples = dy.sample(model, n=300, length=4, num_inference_steps=60, seed=1, score_temp=temperature)
        different[temperature] = len({tuple(row) for row in samples.tokens.tolist()})
    assert different[0.5] < different[1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n and length must be at least 1"),
        ({"length": 0}, "n and length must be at least 1"),
        ({"num_inference_steps": 0}, "num_inference_steps must be at least 1"),
        ({"method": "euler"}, "method must be 'ancestral' or 'ddim'"),
        ({"grid": "cosine"}, "grid must be 'uniform', 'plaid' or 'langflow'"),
        ({"score_temp": 0.0}, "score_temp must be positive"),
        ({"seed": -1}, "seed and index must not be negative"),
    ],
)
def test_bad_options_are_refused_with_the_reason(options: dict[str, object], message: str) -> None:
    with pytest.raises(dy.InvalidArgument, match=message):
        dy.sample(small_model(), **{"n": 1, "length": 4, **options})  # type: ignore[arg-type]


def test_text_ends_before_the_first_end_token() -> None:
    model = small_model()
    assert dy.texts(model, torch.tensor([[1, 2, 0, 3], [0, 1, 1, 1]])) == ["a b", ""]


def test_a_third_party_model_needs_only_the_protocol() -> None:
    """A model of one's own: p(token | z) ∝ exp((α/σ²)·z·e), no context at all."""

    class Bag(dy.DiffusionLM):
        eos_token_id = None

        @property
        def embedding(self) -> torch.Tensor:
            return torch.eye(3)

        @property
        def tokenizer(self) -> Tokenizer:
            return Tokenizer(models.WordLevel({"x": 0, "y": 1, "z": 2}, unk_token="x"))

        @property
        def device(self) -> torch.device:
            return torch.device("cpu")

        @property
        def dtype(self) -> torch.dtype:
            return torch.float32

        def noise_level(self, t: torch.Tensor) -> torch.Tensor:
            return -5.0 + 10.0 * t.double()

        def denoise(self, z: torch.Tensor, noise_level: torch.Tensor, x_selfcond: torch.Tensor) -> torch.Tensor:
            scale = torch.sigmoid(-noise_level).sqrt() / torch.sigmoid(noise_level)
            return scale[:, None, None] * z @ self.embedding.T

    tokens = dy.sample(Bag(), n=200, length=6, num_inference_steps=100, score_temp=1.0).tokens
    shares = torch.bincount(tokens.flatten(), minlength=3) / tokens.numel()
    assert torch.allclose(shares, torch.full((3,), 1 / 3), atol=0.05)


def test_denormal_numbers_are_only_flushed_while_denoising() -> None:
    model = dy.fit_markov(["a b.", "b a."])
    seen: list[float] = []

    def note(_step: int, _state: dy.SamplerState) -> None:
        seen.append(float(torch.tensor(1e-40) * 1))

    dy.sample(model, 1, 4, num_inference_steps=2, callback_on_step_end=note)
    assert seen == [float(torch.tensor(1e-40))] * 2

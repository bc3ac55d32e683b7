"""A guided step on a GPU that is not here: tensors without data, launches that are recorded instead of made.

`FakeTensorMode` gives tensors that say they are on a GPU. Whoever asks one for a number (`.item()`, `.tolist()`,
`bool()`) or mixes it with the CPU gets an error, so a step that runs with them cannot wait for the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from diffinity.acceptance import acceptance, decode, gradient_acceptance, mean_acceptance, path_acceptance
from diffinity.alignment import TokenAutomaton, Vocabulary, align
from diffinity.constraints import Regex
from diffinity.guidance import DenoisingStep, LanguageGuidance, PathGuidance, PosteriorGuidance
from diffinity.models.schedule import NoiseLevel
from tests.acceptance.laws import automaton_of

pytest.importorskip("triton")

from diffinity.acceptance.triton_backend import device, outputs, strings, tilts, weights

Launches = list[tuple[str, tuple[int, ...]]]
MOST_LAUNCHES = 12
WORDS = Vocabulary([bytes([97 + i, 97 + j]) for i in range(26) for j in range(26)])
MANY_STATES = align(Regex("([a-f][a-m]{3}x[a-z]|[g-p]{2}y[n-z]{3}|qq){1,8}[a-e]*"), WORDS, "exact")


class Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what is copied between devices, or read by the host."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func)
        if (
            "_to_copy" in name
            and kwargs.get("device") is not None
            and torch.device(kwargs["device"]) != args[0].device
        ):
            self.seen.append(name)
        if any(part in name for part in ("_local_scalar_dense", "nonzero", "equal.default", "is_nonzero")):
            self.seen.append(name)
        return func(*args, **kwargs)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launches]:
    """The launches of what follows, none of which is made; every tensor of theirs must be on the GPU."""
    recorded: Launches = []

    def record(kernel: Any, grid: tuple[int, ...], *arguments: Any, num_warps: int = 4, **constants: Any) -> None:
        for argument in arguments:
            assert isinstance(argument, int | float) or argument.device.type == "cuda", kernel.__name__
        recorded.append((kernel.__name__, grid))

    for module in (weights, tilts, outputs, strings):
        monkeypatch.setattr(module, "launch", record)
    monkeypatch.setattr(device, "cache", device.DeviceCache(1 << 30))
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield recorded


def scores(batch: int, length: int, vocab: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(batch, length, vocab, dtype=dtype, device="cuda")


def mean_step(logits: Tensor, automata: list[TokenAutomaton], **options: Any) -> Tensor:
    embedding = torch.empty(logits.shape[2], 16, dtype=logits.dtype, device="cuda")
    x = torch.empty(*logits.shape[:2], 16, dtype=logits.dtype, device="cuda")
    return mean_acceptance(logits, automata, logits, x, embedding, certain=1e-6, **options).mean


STEPS: dict[str, Callable[[Tensor, list[TokenAutomaton]], Tensor]] = {
    "mean": mean_step,
    "mean along a path": lambda logits, automata: mean_step(logits, automata, path=True),
    "mean along a drawn path": lambda logits, automata: mean_step(logits, automata, path=True, seed=3),
    "gradient": lambda logits, automata: gradient_acceptance(logits, automata, logits).gradient,
    "gradient along a path": lambda logits, automata: (
        gradient_acceptance(logits, automata, logits, path=True).gradient
    ),
    "marginals": lambda logits, automata: acceptance(logits, automata, logits=True).marginals,
    "marginals along a path": lambda logits, automata: path_acceptance(logits, automata, logits=True).marginals,
    "best string": lambda logits, automata: decode(logits, automata, logits=True).tokens,
    "joint draw": lambda logits, automata: decode(logits, automata, "sample", logits=True, seed=5).tokens,
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("length", [12, 300])
def test_a_step_never_waits_for_the_host_and_takes_few_launches(
    launches: Launches, step: str, length: int
) -> None:
    logits, automata = scores(2, length, len(WORDS)), [MANY_STATES, MANY_STATES]
    STEPS[step](logits, automata)  # the first uploads
    launches.clear()
    with Copies() as copies:
        result = STEPS[step](logits, automata)
    assert result.device.type == "cuda"
    assert copies.seen == []
    assert len(launches) <= MOST_LAUNCHES


def test_a_closed_form_step_is_six_launches_and_two_passes_over_the_logits(launches: Launches) -> None:
    mean_step(scores(2, 64, 6), [automaton_of("a*", "eos")] * 2)
    names = [name for name, _ in launches]
    assert names == ["segment_sums", "weigh", "recursions_gathered", "posterior", "mean_parts", "add_parts"]


def test_a_closed_form_step_with_wide_embeddings_is_six_launches_and_a_product(launches: Launches) -> None:
    logits = scores(2, 64, len(WORDS))
    embedding = torch.empty(len(WORDS), 768, dtype=logits.dtype, device="cuda")
    x = torch.empty(2, 64, 768, dtype=logits.dtype, device="cuda")
    automaton = align(Regex("([a-y][a-y])*qq[a-z]*"), WORDS, "exact")
    for _ in range(2):  # the first uploads
        launches.clear()
        with Copies() as copies:
            mean_acceptance(logits, automaton, logits, x, embedding, certain=1e-6)
    assert copies.seen == []
    assert [name for name, _ in launches][-2:] == ["differences", "mean_from_differences"]
    assert len(launches) == 6


def test_automata_of_different_tiers_take_one_launch_more_each(launches: Launches) -> None:
    vocabulary = Vocabulary([b"a", b"b"])
    sizes = [3, 20, 50]
    automata = [align(Regex(f"[ab]{{{n}}}a*"), vocabulary, "exact") for n in sizes]
    mean_step(scores(3, 60, 2), automata)
    assert [name for name, _ in launches].count("recursions_gathered") == 3
    assert len(launches) == 8


def test_the_fake_gpu_would_notice_a_step_that_waits(launches: Launches) -> None:
    log_p_language = acceptance(scores(2, 4, 6), automaton_of("a*", "eos"), logits=True).log_p_language
    assert isinstance(log_p_language, FakeTensor)
    with pytest.raises(DataDependentOutputException):
        log_p_language.min().item()
    with Copies() as copies:
        log_p_language.cpu()
    assert copies.seen


class LinearModel:
    """Just enough of a model on the GPU: logits are the latent times the embeddings."""

    dtype = torch.float32

    def __init__(self, vocab: int) -> None:
        self.embedding = torch.empty(vocab, 16, device="cuda")

    def denoise(self, z: Tensor, noise_level: Tensor, x_selfcond: Tensor) -> Tensor:
        return (z + x_selfcond) @ self.embedding.mT


# Of the gradient only `gradient_acceptance` is tried, above: torch without CUDA cannot go back through a network.
@pytest.mark.parametrize(
    "guidance", [PosteriorGuidance(MANY_STATES), PathGuidance(MANY_STATES)], ids=["posterior", "path"]
)
def test_a_whole_guided_step_never_waits_for_the_host(launches: Launches, guidance: LanguageGuidance) -> None:
    model: Any = LinearModel(len(WORDS))
    z = torch.empty(2, 12, 16, dtype=torch.float64, device="cuda")
    level = NoiseLevel(torch.empty((), dtype=torch.float64, device="cuda"))
    step = DenoisingStep(z, level, z.float(), index=1, total=4)
    guidance.predict(model, step)  # the first uploads
    launches.clear()
    with Copies() as copies:
        prediction = guidance.predict(model, step)
    assert prediction.shift is not None
    assert prediction.shift.device.type == "cuda"
    assert copies.seen == []
    assert 5 <= len(launches) <= MOST_LAUNCHES

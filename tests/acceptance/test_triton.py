"""The Triton kernels in Triton's interpreter: the laws, enumeration, and agreement with the compiled loops."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

import diffinity as dy
from diffinity.acceptance import (
    Backend,
    acceptance,
    decode,
    gradient_acceptance,
    mean_acceptance,
    path_acceptance,
    top,
)
from diffinity.alignment import Framing, TokenAutomaton, Vocabulary, align
from diffinity.constraints import Regex
from diffinity.constraints.schema import JsonSchema
from tests.acceptance.laws import (
    CASES,
    PATTERNS,
    AcceptanceLaws,
    automaton_of,
    enumerate_strings,
    plain_log_space,
    random_logits,
)

pytest.importorskip("triton")

PAIRS = sorted({bytes([65 + i, 65 + j]) for i in range(26) for j in range(26)})
LARGE = Vocabulary([*PAIRS, None], eos_id=len(PAIRS))
FEW_STATES = align(Regex("([A-Z][A-Z])*QQ[A-Z]{4,}"), LARGE, "eos")
MANY_STATES = align(Regex("([A-F][A-M]{3}X[A-Z]|[G-P]{2}Y[N-Z]{3}|QQ){1,8}[A-E]*"), LARGE, "eos")
QUICK = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.differing_executors])


@pytest.fixture(autouse=True, scope="module")
def fast_interpreter() -> Iterator[None]:
    """Calls of our device functions without preparing Triton's module again: half of the interpreter's time."""
    from triton.runtime.interpreter import InterpretedFunction

    prepare_and_call = InterpretedFunction.__call__

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        if self.fn.__module__.startswith("diffinity."):
            return self.rewrite()(*arguments, **named)
        return prepare_and_call(self, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InterpretedFunction, "__call__", call)
        yield


@pytest.fixture
def trees_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small automata treated as large ones: masses in memory, arrows in trees."""
    from diffinity.acceptance.triton_backend import device, layout

    monkeypatch.setattr(layout, "GATHERED_SHAPES", ())
    monkeypatch.setattr(device, "cache", device.DeviceCache(1 << 24))


class TestTriton(AcceptanceLaws):
    backend: Backend = "triton"

    @given(seed=st.integers(0, 10**6), length=st.integers(1, 12), case=st.sampled_from(CASES))
    @QUICK
    def test_marginals_sum_to_one(self, seed: int, length: int, case: tuple[str, Framing]) -> None:
        law: Any = AcceptanceLaws.test_marginals_sum_to_one
        law.hypothesis.inner_test(self, seed, length, case)

    @given(seed=st.integers(0, 10**6), length=st.integers(1, 10), pattern=st.sampled_from(PATTERNS))
    @QUICK
    def test_a_language_and_its_complement_share_all_the_mass(self, seed: int, length: int, pattern: str) -> None:
        law: Any = AcceptanceLaws.test_a_language_and_its_complement_share_all_the_mass
        law.hypothesis.inner_test(self, seed, length, pattern)


def random_scores(batch: int, length: int, sharpness: float = 3.0, vocab: int = len(LARGE)) -> Tensor:
    return sharpness * torch.randn(batch, length, vocab, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("automaton", [FEW_STATES, MANY_STATES], ids=["few states", "many states"])
@pytest.mark.parametrize("sharpness", [0.1, 60.0])
def test_it_agrees_with_the_compiled_loops(automaton: TokenAutomaton, sharpness: float) -> None:
    logits = sharpness * random_scores(1, 12, 1.0).double()
    ours, theirs = (acceptance(logits, automaton, logits=True, backend=b) for b in ("triton", "numba"))
    assert torch.allclose(ours.log_p_language, theirs.log_p_language, rtol=1e-12)
    assert torch.allclose(ours.marginals, theirs.marginals, rtol=1e-9, atol=1e-12)


def test_real_schemas_in_one_batch_agree_with_the_compiled_loops() -> None:
    package = Path(dy.__file__).parent
    vocabulary = Vocabulary.from_tokenizer(package / "models" / "embedded" / "default" / "tokenizer.json")
    names = ("Github_trivial/01-error-message", "Github_easy/03-book")
    schemas = [json.loads((package / "bench" / "schemas" / f"{name}.json").read_text()) for name in names]
    automata = [align(JsonSchema(schema), vocabulary, "eos") for schema in schemas]
    logits = random_scores(2, 23, vocab=len(vocabulary)).double()
    ours, theirs = (acceptance(logits, automata, logits=True, backend=b) for b in ("triton", "numba"))
    assert theirs.possible.all()
    assert torch.allclose(ours.log_p_language, theirs.log_p_language, rtol=1e-12)
    assert torch.allclose(ours.marginals, theirs.marginals, rtol=1e-9, atol=1e-12)


def test_classes_a_thousand_nats_apart_keep_their_digits() -> None:
    """Against log space: the end token, which must be the last, is e^−1000 as probable as tokens that lead on."""
    automaton = automaton_of("a|ab|abc", "eos")
    logits = random_logits(3, 1, 2)
    logits[0, 1, 5] -= 1000.0
    free = logits.clone().requires_grad_()
    value = plain_log_space(free, automaton)
    value.sum().backward()  # type: ignore[no-untyped-call]
    wanted = value.detach()
    ours = acceptance(logits, automaton, logits=True, backend="triton")
    assert float(ours.log_p_language) == pytest.approx(float(wanted), rel=1e-12)
    assert float(wanted) < -1000
    assert free.grad is not None
    assert torch.allclose(ours.marginals - logits.softmax(-1), free.grad, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_narrow_logits_lose_nothing_beyond_their_own_rounding(dtype: torch.dtype) -> None:
    """Compared with float64 of the same rounded logits: sums are made in float32 at least."""
    logits = random_scores(1, 6).to(dtype)
    ours = acceptance(logits, FEW_STATES, logits=True, backend="triton")
    exact = acceptance(logits.double(), FEW_STATES, logits=True, backend="numba")
    assert torch.allclose(ours.log_p_language, exact.log_p_language, rtol=1e-6)
    assert torch.allclose(ours.marginals.double(), exact.marginals, rtol=1e-5, atol=1e-9)


def test_logits_of_a_thousand_keep_their_digits() -> None:
    logits = random_scores(1, 6) + 1000.0
    ours = acceptance(logits, FEW_STATES, logits=True, backend="triton")
    exact = acceptance(logits.double(), FEW_STATES, logits=True, backend="numba")
    assert torch.allclose(ours.marginals.double(), exact.marginals, rtol=1e-5, atol=1e-9)


def test_two_runs_have_the_same_bits() -> None:
    logits = random_scores(2, 6)
    first, second = (acceptance(logits, FEW_STATES, logits=True, backend="triton") for _ in range(2))
    assert torch.equal(first.log_p_language, second.log_p_language)
    assert torch.equal(first.marginals, second.marginals)


@pytest.mark.parametrize("automaton", [FEW_STATES, MANY_STATES], ids=["few states", "many states"])
def test_trees_agree_with_the_compiled_loops(automaton: TokenAutomaton, trees_only: None) -> None:
    logits = 60.0 * random_scores(1, 12, 1.0).double()
    ours, theirs = (acceptance(logits, automaton, logits=True, backend=b) for b in ("triton", "numba"))
    assert torch.allclose(ours.log_p_language, theirs.log_p_language, rtol=1e-12)
    assert torch.allclose(ours.marginals, theirs.marginals, rtol=1e-9, atol=1e-12)
    tokens = [decode(logits, automaton, logits=True, backend=b).tokens for b in ("triton", "numba")]
    assert torch.equal(*tokens)


TIERS = {"a*": (16, 1), "([A-Z]{4}){5}": (32, 4), "(A[A-Z]|B[A-Z]{3}){16}": (128, 4)}


@pytest.mark.parametrize("pattern", TIERS)
def test_every_tier_of_arrows_in_registers_agrees_with_the_compiled_loops(pattern: str) -> None:
    from diffinity.acceptance.triton_backend.layout import programme_layout

    vocabulary = Vocabulary([*(bytes([65 + i]) for i in range(26)), *PAIRS, b"a", None], eos_id=len(PAIRS) + 27)
    automaton = align(Regex(pattern), vocabulary, "eos")
    assert programme_layout(automaton, 20).gathered == TIERS[pattern]
    logits = random_scores(1, 20, 20.0, len(vocabulary)).double()
    ours, theirs = (acceptance(logits, automaton, logits=True, backend=b) for b in ("triton", "numba"))
    assert torch.allclose(ours.log_p_language, theirs.log_p_language, rtol=1e-12)
    assert torch.allclose(ours.marginals, theirs.marginals, rtol=1e-9, atol=1e-12)


def letters(length: int, scores: dict[str, float]) -> Tensor:
    """Logits (1, L, 3) over a, b and c, the same at every position."""
    return torch.tensor([scores[x] for x in "abc"], dtype=torch.float64).repeat(1, length, 1)


def test_backward_masses_that_nothing_reaches_do_not_hide_others() -> None:
    """The first token excludes the path whose tokens have 1, and leaves one whose tokens have e^−150."""
    automaton = align(Regex("a[ac]*|b{12}"), Vocabulary([b"a", b"b", b"c"]), "exact")
    logits = letters(12, {"a": 0.0, "b": -150.0, "c": 0.0})
    logits[0, 0] = torch.tensor([-torch.inf, 0.0, 0.0])
    ours = acceptance(logits, automaton, logits=True, backend="triton")
    assert float(ours.log_p_language) == pytest.approx(float(logits.log_softmax(-1)[0, :, 1].sum()), rel=1e-12)
    assert torch.allclose(ours.marginals[0, :, 1], torch.ones(12, dtype=torch.float64))


def test_masses_that_drifted_are_multiplied_without_underflow() -> None:
    """Every token of the only path has e^−58, and one that would be more probable goes as far as the eighth."""
    automaton = align(Regex("a{15}|b{15}"), Vocabulary([b"a", b"b", b"c"]), "exact")
    logits = letters(15, {"a": 0.0, "b": -58.0, "c": 0.0})
    logits[0, 8, 0] = -torch.inf
    ours = acceptance(logits, automaton, logits=True, backend="triton")
    assert float(ours.log_p_language) == pytest.approx(float(logits.log_softmax(-1)[0, :, 1].sum()), rel=1e-12)
    assert torch.allclose(ours.marginals[0, :, 1], torch.ones(15, dtype=torch.float64))


def test_checkpointed_recursions_give_the_same(monkeypatch: pytest.MonkeyPatch, trees_only: None) -> None:
    from diffinity.acceptance.triton_backend import device, tilts
    from diffinity.acceptance.triton_backend.launching import launch

    logits = 20 * random_scores(2, 9, 1.0).double()
    automata = [MANY_STATES, FEW_STATES]
    kept = acceptance(logits, automata, logits=True, backend="triton")
    used = []

    def note(kernel: Any, *arguments: Any, **named: Any) -> None:
        used.append(kernel.__name__)
        launch(kernel, *arguments, **named)

    monkeypatch.setattr(device, "KEPT_BYTES", 1000)
    monkeypatch.setattr(tilts, "launch", note)
    again = acceptance(logits, automata, logits=True, backend="triton")
    assert "recursions_checkpointed" in used
    assert torch.allclose(
        again.log_p_language, kept.log_p_language, rtol=1e-14
    )  # the last sum is over other blocks
    assert torch.allclose(again.marginals, kept.marginals, rtol=1e-12, atol=0.0)


def test_windows_are_taken() -> None:
    automaton = automaton_of("(a|b){2,3}", "eos")
    window = automaton.window(automaton.state_after([0]), tokens_after=2)
    logits = random_logits(5, 2, 3)
    ours = acceptance(logits, [window, automaton], logits=True, backend="triton")
    theirs = acceptance(logits, [window, automaton], logits=True, backend="numba")
    assert torch.allclose(ours.log_p_language, theirs.log_p_language, rtol=1e-12)
    assert torch.allclose(ours.marginals, theirs.marginals, rtol=1e-9, atol=1e-12)
    assert torch.equal(
        decode(logits, window, logits=True, backend="triton").tokens, decode(logits, window, logits=True).tokens
    )


@pytest.mark.parametrize("path", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("width", [5, 70])
def test_mean_and_gradient_are_those_of_the_marginals(path: bool, dtype: torch.dtype, width: int) -> None:
    logits = random_scores(2, 8).to(dtype)
    embedding = torch.randn(len(LARGE), width, generator=torch.Generator().manual_seed(1)).to(dtype)
    p = logits.softmax(-1)
    given = path_acceptance if path else acceptance
    wanted = given(logits, FEW_STATES, logits=True, backend="auto")
    mean = mean_acceptance(logits, FEW_STATES, p, p @ embedding, embedding, path=path, backend="triton")
    gradient = gradient_acceptance(logits, FEW_STATES, p, path=path, backend="triton")
    close = 1e-12 if dtype == torch.float64 else 1e-5
    assert torch.allclose(mean.log_p_language, wanted.log_p_language, rtol=close)
    assert torch.allclose(mean.mean, wanted.marginals @ embedding, rtol=close, atol=close)
    assert torch.allclose(gradient.gradient, wanted.marginals - p, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_the_mean_of_wide_embeddings_takes_the_tokens_outside_the_largest_class(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    from diffinity.acceptance.triton_backend import outputs
    from diffinity.acceptance.triton_backend.launching import launch

    used = []

    def note(kernel: Any, *arguments: Any, **named: Any) -> None:
        used.append(kernel.__name__)
        launch(kernel, *arguments, **named)

    monkeypatch.setattr(outputs, "launch", note)
    automaton = align(Regex("([A-Y][A-Y])*QQ[A-Z]{4,}"), LARGE, "eos")
    logits = random_scores(3, 6, 1.0).double()
    logits[0, 0, -1] += 12.0  # an end token that may not be there: the largest class must make up for it
    logits[1] = 0.0
    logits[1, 1, 1:], logits[1, 1, 0] = -torch.inf, 5.0
    logits = logits.to(dtype)
    embedding = torch.randn(len(LARGE), 70, generator=torch.Generator().manual_seed(1)).to(dtype)
    p = logits.double().softmax(-1)
    x = (p @ embedding.double()).to(dtype)
    wanted = acceptance(logits.double(), automaton, logits=True, backend="numba")
    mean = mean_acceptance(logits, automaton, p.to(dtype), x, embedding, backend="triton")
    close = {torch.float64: 1e-11, torch.float32: 2e-5, torch.float16: 2e-2}[dtype]
    assert used == ["differences", "mean_from_differences"]
    assert torch.allclose(mean.mean.double(), wanted.marginals @ embedding.double(), rtol=close, atol=close)


def test_samples_that_are_almost_certain_keep_their_mean() -> None:
    letters = Vocabulary([b"a", b"b"])
    automaton = align(Regex("[ab]*a"), letters, "exact")
    logits = torch.zeros(2, 3, 2, dtype=torch.float64)
    logits[0, 2, 0] = 40.0  # nearly certain
    embedding = torch.eye(2, dtype=torch.float64)
    p = logits.softmax(-1)
    x = p @ embedding
    x[0] += 1.0  # told apart from p·E
    backends: tuple[Backend, ...] = ("triton", "numba")
    for backend in backends:
        conditional = mean_acceptance(logits, automaton, p.clone(), x, embedding, certain=1e-6, backend=backend)
        assert torch.equal(conditional.mean[0], x[0])
        assert float(conditional.mean[1, 2, 0]) == pytest.approx(1.0)


FEASIBLE = [case for case in CASES if automaton_of(*case).feasible(4)]


@pytest.mark.parametrize(("pattern", "framing"), FEASIBLE[::6])
def test_best_strings_are_those_of_sorting_all(pattern: str, framing: Framing) -> None:
    automaton = automaton_of(pattern, framing)
    logits = random_logits(12, 1, 4)
    wanted = sorted(enumerate_strings(logits.softmax(-1)[0], automaton), key=lambda string: -string[1])[:5]
    strings = top(logits, automaton, 5, logits=True, backend="triton")[0]
    assert [tuple(ids) for _, ids in strings] == [ids for ids, _ in wanted]
    assert np.exp([value for value, _ in strings]) == pytest.approx([p for _, p in wanted], rel=1e-9)
    best = decode(logits, automaton, "best", logits=True, backend="triton")
    assert tuple(best.tokens[0].tolist()) == wanted[0][0]
    assert float(best.log_p_text.exp()) == pytest.approx(wanted[0][1], rel=1e-9)


@pytest.mark.parametrize("automaton", [FEW_STATES, MANY_STATES], ids=["few states", "many states"])
def test_best_strings_of_many_tokens_are_those_of_the_compiled_loops(automaton: TokenAutomaton) -> None:
    logits = random_scores(1, 12)
    ours = decode(logits, automaton, logits=True, backend="triton")
    theirs = decode(logits, automaton, logits=True, backend="numba")
    assert torch.equal(ours.tokens, theirs.tokens)
    assert torch.allclose(ours.log_p_text, theirs.log_p_text, rtol=1e-6)


def test_draws_have_the_posterior_s_frequencies() -> None:
    automaton = automaton_of("[ab]*c", "eos")
    logits = random_logits(13, 1, 3, spread=1.0)
    strings = dict(enumerate_strings(logits.softmax(-1)[0], automaton))
    total, n = sum(strings.values()), 50
    drawn = decode(logits.expand(n, -1, -1), automaton, "sample", logits=True, seed=1, backend="triton").tokens
    counts = dict.fromkeys(strings, 0)
    for ids in drawn.tolist():
        counts[tuple(ids)] += 1
    expected = np.array([strings[ids] / total * n for ids in strings])
    observed = np.array([counts[ids] for ids in strings])
    large = expected >= 5
    observed = np.append(observed[large], observed[~large].sum())
    expected = np.append(expected[large], expected[~large].sum())
    assert stats.chisquare(observed, expected).pvalue > 1e-3


def test_a_draw_is_a_function_of_seed_and_index_not_of_its_batch() -> None:
    logits = random_logits(14, 1, 5).expand(4, -1, -1)
    automata = [automaton_of(pattern, "eos") for pattern in ("[ab]*c", "a*", "(a|b)*ab", "[ab]*c")]
    whole = decode(logits, automata, "sample", logits=True, seed=3, backend="triton").tokens
    alone = decode(logits[3:], automata[3], "sample", logits=True, seed=[(3, 3)], backend="triton").tokens
    assert torch.equal(whole[3:], alone)
    keys = torch.tensor([[3, 3]])
    assert torch.equal(
        decode(logits[3:], automata[3], "sample", logits=True, seed=keys, backend="triton").tokens, alone
    )
    assert all(automaton.accepts(ids) for automaton, ids in zip(automata, whole.tolist(), strict=True))


def test_drawn_paths_average_to_the_marginals() -> None:
    automaton = automaton_of("[ab]*c", "eos")
    logits = random_logits(17, 1, 3, spread=1.0)
    wanted = acceptance(logits, automaton, logits=True).marginals[0]
    many = logits.expand(50, -1, -1)
    drawn = path_acceptance(many, automaton, logits=True, seed=0, backend="triton")
    assert torch.allclose(drawn.marginals.mean(0), wanted, atol=0.2)


def test_what_cannot_be_is_decoded_all_the_same() -> None:
    """Distributions that are sure of something else entirely: P(L) = 0, and a draw is the best string."""
    automaton = automaton_of("(ab)+", "eos_strict")
    probs = torch.zeros(2, 4, 6)
    probs[0, :, 4] = 1.0
    probs[1] = 1 / 6
    for how in ("best", "sample"):
        tokens = decode(probs, automaton, how, backend="triton").tokens
        assert all(automaton.accepts(ids) for ids in tokens.tolist())


def test_an_automaton_is_uploaded_once_and_goes_when_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from diffinity.acceptance.triton_backend import device

    monkeypatch.setattr(device, "cache", device.DeviceCache(1 << 20))
    uploads = []
    upload = device._upload
    monkeypatch.setattr(device, "_upload", lambda *a: uploads.append(a) or upload(*a))  # type: ignore[func-returns-value]
    automaton = replace(automaton_of("a*", "eos"))
    for _ in range(2):
        acceptance(random_logits(0, 2, 3), automaton, logits=True, backend="triton")
    assert len(uploads) == 2  # classes and programme
    window = automaton.window(0, tokens_after=1)
    acceptance(random_logits(0, 2, 3), window, logits=True, backend="triton")
    assert len(uploads) == 3  # a window has the same classes
    del automaton, window
    uploads.clear()
    gc.collect()
    assert (len(device.cache), device.cache.bytes) == (0, 0)


def test_what_is_kept_on_a_device_is_bounded() -> None:
    from diffinity.acceptance.triton_backend.device import DeviceCache

    cache = DeviceCache(limit=100)
    owners = [np.zeros(1) for _ in range(5)]
    for owner in owners:
        cache.get([owner], "key", lambda: torch.zeros(10))
    assert cache.bytes == 80
    made = []
    cache.get([owners[4]], "key", lambda: made.append(1))
    assert not made  # the latest is still there


def test_without_the_interpreter_the_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from diffinity.acceptance import triton_backend

    monkeypatch.setattr(triton_backend, "interpreted", lambda: False)
    with pytest.raises(dy.InvalidArgument, match="is for a GPU, and these distributions are on the CPU"):
        acceptance(random_logits(0, 1, 2), automaton_of("a*", "eos"), logits=True, backend="triton")


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(
        dy.InvalidArgument, match="backend must be one of auto, numba, torch, triton, but is 'cuda'"
    ):
        acceptance(random_logits(0, 1, 2), automaton_of("a*", "eos"), backend="cuda")  # type: ignore[arg-type]

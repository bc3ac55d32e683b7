"""The causal model's own texts given a constraint: against enumeration, and whatever the number of particles."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

import diffinity as dy
from diffinity.baselines.conditional import ConditionalSystem
from diffinity.errors import InfeasibleConstraint, InvalidArgument
from diffinity.guidance.next_token import free_frequencies
from diffinity.models.protocol import Continuations
from tests.baselines.small_models import END, TOKENS, KnownCausal, few_tokens
from tests.baselines.test_autoregressive import companion

SIZE = 4  # <end>, a, b, c
LENGTH = 5
PATTERNS = [".*b", "a*(bc)?", "(?:.*c){2}.*", "[abc]{3}"]


def known(before: tuple[int, ...]) -> Tensor:
    """Logits that depend on all that stands before."""
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(hash(before) % 2**31), dtype=torch.float64)


MODEL = KnownCausal(known, few_tokens(SIZE), SIZE)


def enumerated(pattern: str, length: int = LENGTH) -> dict[str, float]:
    """p(text) of each text that matches and, with its end, has at most `length` tokens; by `re`."""
    found = {}
    for n in range(length):
        for ids in product(range(1, SIZE), repeat=n):
            text = "".join(TOKENS[i] for i in ids)
            if re.fullmatch(pattern, text):
                steps = [known(ids[:k]).log_softmax(dim=0)[token] for k, token in enumerate((*ids, END))]
                found[text] = math.exp(sum(map(float, steps)))
    return found


@pytest.mark.parametrize("pattern", PATTERNS)
def test_texts_are_drawn_from_the_model_given_the_constraint(pattern: str) -> None:
    truth = enumerated(pattern)
    texts = ConditionalSystem(MODEL, particles=32).generate(dy.Regex(pattern), n=600, length=LENGTH, seed=0)
    counted, total = Counter(texts), sum(truth.values())
    assert counted.keys() <= truth.keys()
    often = [text for text, p in truth.items() if 600 * p / total >= 5]
    rest = 600 - sum(counted[text] for text in often)
    observed = [*(counted[text] for text in often), rest]
    expected = [600 * truth[text] / total for text in often]
    expected.append(600 - sum(expected))
    kept = [i for i, e in enumerate(expected) if e > 1e-6]
    assert chisquare([observed[i] for i in kept], [expected[i] for i in kept]).pvalue > 1e-3


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("particles", [1, 8])
def test_the_mean_weight_is_the_probability_of_the_language(pattern: str, particles: int) -> None:
    drawn = ConditionalSystem(MODEL, particles=particles).draw(dy.Regex(pattern), n=800, length=LENGTH, seed=1)
    estimates = np.exp(drawn.log_probability)
    error = estimates.std() / math.sqrt(len(estimates))
    assert estimates.mean() == pytest.approx(sum(enumerated(pattern).values()), abs=4 * error + 1e-9)


def test_masking_alone_is_another_distribution() -> None:
    """What the particles are for: one particle without look-ahead weights differs measurably from p(text | L)."""
    truth = enumerated(".*b")
    total = sum(truth.values())

    def distance(particles: int) -> float:
        texts = ConditionalSystem(MODEL, particles=particles).generate(
            dy.Regex(".*b"), n=800, length=LENGTH, seed=0
        )
        counted = Counter(texts)
        return sum(abs(counted[text] / 800 - p / total) for text, p in truth.items()) / 2

    assert distance(32) < 0.6 * distance(1)


@pytest.mark.parametrize("particles", [1, 5])
def test_every_text_satisfies_the_constraint_and_fits(particles: int) -> None:
    model = companion()
    pattern = '\\{"(?:cat|river)": (?:true|[0-9]{1,3})\\}'
    texts = ConditionalSystem(model, particles=particles).generate(dy.Regex(pattern), n=6, length=24, seed=0)
    assert all(re.fullmatch(pattern, text) for text in texts)


def test_a_text_does_not_depend_on_how_many_are_asked_for() -> None:
    system = ConditionalSystem(MODEL, particles=16)
    many = system.generate(dy.Regex(".*b"), n=40, length=LENGTH, seed=3)
    assert system.generate(dy.Regex(".*b"), n=3, length=LENGTH, seed=3) == many[:3]


def test_frequencies_are_those_of_texts_that_go_on() -> None:
    found = free_frequencies(MODEL, 3)
    assert found[0] == pytest.approx(known(()).softmax(dim=0).numpy())
    assert found.sum(axis=1) == pytest.approx(np.ones(3))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="particles must be at least 1"):
        ConditionalSystem(MODEL, particles=0)
    with pytest.raises(InfeasibleConstraint):
        ConditionalSystem(MODEL).generate(dy.Regex("a{9}"), n=1, length=4, seed=0)
    with pytest.raises(InvalidArgument, match="n and length"):
        ConditionalSystem(MODEL).generate(dy.Regex("a"), n=0, length=4, seed=0)


def check_selection(start: Continuations, again: Continuations) -> None:
    """Two sequences change places and go on as if each had been there from the beginning."""
    start.append(torch.tensor([1, 2, 3]))
    first = start.logits().clone()
    kept, start = start, start.select(torch.tensor([2, 0, 0]))
    assert torch.equal(kept.logits(), first)
    again.append(torch.tensor([3, 1, 1]))
    for _ in range(2):
        assert torch.allclose(start.logits(), again.logits(), atol=1e-5)
        start.append(torch.tensor([2, 3, 1]))
        again.append(torch.tensor([2, 3, 1]))


def test_sequences_of_the_companion_can_be_selected() -> None:
    model = companion()
    check_selection(model.start(3, 6), model.start(3, 6))


def test_sequences_of_a_hugging_face_model_can_be_selected(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="pip install 'diffinity[bench]'")
    from diffinity.models.hugging_face import HuggingFaceContinuations

    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=8, n_positions=16, n_embd=8, n_layer=2, n_head=2)
    network = transformers.GPT2LMHeadModel(config).eval()
    begins = torch.zeros(3, 1, dtype=torch.long)
    check_selection(HuggingFaceContinuations(network, begins, 0), HuggingFaceContinuations(network, begins, 0))

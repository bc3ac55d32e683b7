"""The variational bound against a model whose true likelihood is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import diffinity as dy
from tests.models.test_markov import LENGTH, all_texts, prior, small_model


def test_bound_of_the_exact_denoiser_is_tight() -> None:
    """With the true score, E[bound] = entropy + what z₀ leaves open + KL at the noisy end: just above it."""
    model = small_model()
    weights = prior(model)
    entropy = -float((weights * np.log(np.maximum(weights, 1e-300))).sum()) / LENGTH
    rng = np.random.default_rng(0)
    texts = torch.tensor(np.array(all_texts())[rng.choice(len(weights), 3000, p=weights)])
    bound = dy.variational_bound(model, texts, n_times=64)
    mean = float(bound.total.mean())
    noise = float(bound.total.std()) / 3000**0.5
    assert entropy - 4 * noise < mean < 1.02 * entropy + 4 * noise
    assert float(bound.prior.mean()) == pytest.approx(0.5 * np.exp(-6.0), rel=0.1)


def test_bound_depends_on_the_text() -> None:
    model = small_model()
    likely, unlikely = [1, 2, 3, 0], [3, 3, 3, 3]
    bound = dy.variational_bound(model, torch.tensor([likely, unlikely]), n_times=64).total
    assert bound[0] < bound[1]


def test_tokens_of_a_wrong_shape_are_refused() -> None:
    with pytest.raises(dy.InvalidArgument, match=r"shape \(B, L\)"):
        dy.variational_bound(small_model(), torch.zeros(3))

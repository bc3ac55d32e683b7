"""Training of a classifier on noisy texts, and its AUC.

Texts are noised as in the model's own process, at times drawn uniformly from its schedule. If the features come
from the denoiser, each text is noised at several times of one trajectory. At all of them but the first the
denoiser is conditioned on its estimate at the previous time, as in sampling. These features are computed once and
used for all training steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from diffinity.acceptance import acceptance
from diffinity.alignment import TokenAutomaton
from diffinity.baselines.classifier_data import PASS, Examples, most_informative_tokens, noise
from diffinity.guidance.classifier import ClassifierHead, Form, NoisyClassifier, observe, token_readers
from diffinity.models.protocol import DiffusionLM
from diffinity.models.schedule import NoiseLevel

BATCH = 64
N_INFORMATIVE = 32  # tokens that initialise a classifier
VIEWS = 4  # noise levels of each text, if features come from the denoiser
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 0.02
BANDS = ((0.0, 1 / 3), (1 / 3, 2 / 3), (2 / 3, 1.0))  # of time: low, middle and high noise


@dataclass(frozen=True)
class BandAuc:
    """AUC over the noise levels of the times from `start` to `end` of the schedule (0 clean, 1 noise)."""

    start: float
    end: float
    auc: float


@dataclass(frozen=True)
class Auc:
    """The AUC of a classifier on held-out texts: over all noise levels, and by thirds of the schedule."""

    overall: float
    by_noise: tuple[BandAuc, ...]  # clean to noisy
    n_texts: int


@dataclass(frozen=True)
class Trained:
    """A classifier and its AUC."""

    classifier: NoisyClassifier
    auc: Auc


@dataclass(frozen=True)
class Noised:
    """The input of a classifier for texts at several noise levels."""

    features: Tensor  # (K, N, L, F), noisy to clean
    noise_level: Tensor  # (K, N)


def area_under_curve(scores: NDArray[np.float64], label: NDArray[np.bool_]) -> float:
    """The share of (positive, negative) pairs in which the positive scores higher; ties count half.

    NaN without pairs.

    >>> area_under_curve(np.array([0.1, 0.9, 0.5, 0.5]), np.array([False, True, True, False]))
    0.875
    """
    positives, negatives = np.sort(scores[label]), np.sort(scores[~label])
    if len(positives) == 0 or len(negatives) == 0:
        return float("nan")
    n_below = np.searchsorted(negatives, positives, side="left")
    n_not_above = np.searchsorted(negatives, positives, side="right")
    return float((n_below + n_not_above).mean() / (2 * len(negatives)))


@torch.no_grad()
def observe_noised(
    model: DiffusionLM,
    form: Form,
    informative_tokens: Sequence[int],
    tokens: Tensor,
    times: Tensor,
    generator: torch.Generator,
) -> Noised:
    """Features of tokens (N, L) noised at times (K, N), each column one trajectory; times descend along K.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["a cat."], embed_dim=8)
    >>> tokens, times = torch.zeros(2, 4, dtype=torch.long), torch.tensor([[0.9, 0.8], [0.1, 0.2]])
    >>> observe_noised(model, "full", [1, 2], tokens, times, torch.Generator()).features.shape
    torch.Size([2, 2, 4, 10])
    """
    parts = [
        _observe_pass(model, form, informative_tokens, tokens[i : i + PASS], times[:, i : i + PASS], generator)
        for i in range(0, tokens.shape[0], PASS)
    ]
    return Noised(torch.cat([p.features for p in parts], dim=1), torch.cat([p.noise_level for p in parts], dim=1))


def _observe_pass(
    model: DiffusionLM,
    form: Form,
    informative_tokens: Sequence[int],
    tokens: Tensor,
    times: Tensor,
    generator: torch.Generator,
) -> Noised:
    noise_level = model.noise_level(times.to(model.device).double().flatten()).double().view(times.shape)  # (K, N)
    latents = [noise(model, tokens, noise_level[-1], generator)]
    for k in range(noise_level.shape[0] - 2, -1, -1):
        latents.insert(0, _noisier(latents[0], noise_level[k + 1], noise_level[k], generator))
    x_selfcond = torch.zeros_like(latents[0])
    features = []
    for z, level in zip(latents, noise_level, strict=True):
        observation = observe(model, form, informative_tokens, z, level.to(model.dtype), x_selfcond)
        features.append(observation.features.float())
        if observation.logits is not None:
            x_selfcond = observation.logits.softmax(dim=-1) @ model.embedding
    return Noised(torch.stack(features), noise_level.float())


def _noisier(z: Tensor, from_level: Tensor, to_level: Tensor, generator: torch.Generator) -> Tensor:
    """z (N, L, d) at noise levels `from_level` (N,), noised further to the levels `to_level`: q(z_t | z_s)."""
    source, target = NoiseLevel(from_level[:, None, None]), NoiseLevel(to_level[:, None, None])
    ratio = target.alpha / source.alpha
    spread = (target.sigma_squared - ratio**2 * source.sigma_squared).clamp(min=0).sqrt()
    epsilon = torch.randn(z.shape, generator=generator, dtype=torch.float64).to(z.device)
    return (ratio * z.double() + spread * epsilon).to(z.dtype)


def train(model: DiffusionLM, form: Form, examples: Examples, steps: int, seed: int) -> Trained:
    """A classifier trained on the examples that are not held out, and its AUC on the held-out examples.

    Training is deterministic for a seed. Every batch is half positives, a quarter near misses and a quarter other
    texts, if there are such texts.
    """
    training_examples = examples.where(~examples.held_out)
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng((seed, 3))
    classifier = untrained(
        model,
        form,
        most_informative_tokens(training_examples, model.embedding.shape[0], N_INFORMATIVE),
        training_examples,
        seed,
    )
    head, groups = classifier.head, _groups(training_examples)
    stored = None
    if form != "latent":
        times = torch.rand(VIEWS, training_examples.tokens.shape[0], generator=generator, dtype=torch.float64)
        times = times.sort(dim=0, descending=True).values
        stored = observe_noised(
            model, form, classifier.informative_tokens, training_examples.tokens, times, generator
        )
    optimizer = torch.optim.AdamW(head.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 - step / steps)
        rows = np.concatenate([rng.choice(group, size) for group, size in groups])
        if stored is None:
            times = torch.rand(1, len(rows), generator=generator, dtype=torch.float64)
            noised = observe_noised(
                model, form, classifier.informative_tokens, training_examples.tokens[rows], times, generator
            )
            features, noise_level = noised.features[0], noised.noise_level[0]
        else:
            view = rng.integers(VIEWS, size=len(rows))
            features, noise_level = stored.features[view, rows], stored.noise_level[view, rows]
        label = torch.from_numpy(training_examples.label[rows].astype(np.float32)).to(features.device)
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(head(features, noise_level), label).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    head.requires_grad_(False)
    return Trained(classifier, measure(model, classifier, examples.where(examples.held_out), generator))


def untrained(
    model: DiffusionLM, form: Form, informative_tokens: tuple[int, ...], examples: Examples, seed: int
) -> NoisyClassifier:
    """A classifier before training, which reads the informative tokens."""
    readers = token_readers(model, form, informative_tokens)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = ClassifierHead(readers.shape[1], examples.tokens.shape[1])
    head.begin_with(readers)
    return NoisyClassifier(form, informative_tokens, head.to(model.device))


def _groups(examples: Examples) -> list[tuple[NDArray[np.int64], int]]:
    """The groups of rows to draw a batch from, with the number of rows from each."""
    positives = np.flatnonzero(examples.label)
    kinds = [np.flatnonzero(~examples.label & (examples.near == near)) for near in (True, False)]
    negatives = [rows for rows in kinds if len(rows)]
    return [(positives, BATCH // 2), *((rows, BATCH // 2 // len(negatives)) for rows in negatives)]


def measure(
    model: DiffusionLM, classifier: NoisyClassifier, examples: Examples, generator: torch.Generator
) -> Auc:
    """The AUC on examples, each noised once in every band of times."""
    times = _band_times(len(examples.label), generator)
    noised = observe_noised(
        model, classifier.form, classifier.informative_tokens, examples.tokens, times, generator
    )
    with torch.no_grad():
        scores = [
            classifier.head(x, noise_level)
            for x, noise_level in zip(noised.features, noised.noise_level, strict=True)
        ]
    return _auc(torch.stack(scores), examples.label)


@torch.no_grad()
def exact_auc(model: DiffusionLM, automaton: TokenAutomaton, examples: Examples, seed: int) -> Auc:
    """The AUC of the exact log P(L) of the denoiser's distributions: the achievable AUC.

    A classifier close to this value is as good as the noise allows, even if the value is low.
    """
    generator = torch.Generator().manual_seed(seed)
    scores = []
    for times in _band_times(len(examples.label), generator):
        noise_level = model.noise_level(times.to(model.device))
        z = noise(model, examples.tokens, noise_level, generator)
        log_probs = [
            acceptance(
                model.denoise(
                    z[i : i + PASS], noise_level[i : i + PASS].to(model.dtype), torch.zeros_like(z[i : i + PASS])
                ),
                automaton,
                logits=True,
            ).log_p_language
            for i in range(0, z.shape[0], PASS)
        ]
        scores.append(torch.cat(log_probs))
    return _auc(torch.stack(scores), examples.label)


def _band_times(n: int, generator: torch.Generator) -> Tensor:
    """One time in every band for each of n texts, (bands, n), noisy to clean."""
    bands = torch.tensor(BANDS[::-1], dtype=torch.float64)
    share = torch.rand(len(BANDS), n, generator=generator, dtype=torch.float64)
    return bands[:, :1] + (bands[:, 1:] - bands[:, :1]) * share


def _auc(scores: Tensor, label: NDArray[np.bool_]) -> Auc:
    """From scores (bands, N), noisy to clean."""
    by_band = scores.double().cpu().numpy()[::-1]
    by_noise = tuple(BandAuc(*band, area_under_curve(s, label)) for band, s in zip(BANDS, by_band, strict=True))
    overall = area_under_curve(by_band.flatten(), np.tile(label, len(BANDS)))
    return Auc(overall, by_noise, len(label))

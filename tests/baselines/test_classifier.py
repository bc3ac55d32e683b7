"""Classifier guidance: its measure, its gradient, its examples, what it learns and what it keeps."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import diffinity as dy
from diffinity.alignment import Vocabulary
from diffinity.baselines import classifier as system_module
from diffinity.baselines.classifier import ClassifierSystem
from diffinity.baselines.classifier_data import Examples, make_pool, most_informative_tokens, near_miss
from diffinity.baselines.classifier_training import Trained, area_under_curve, observe_noised, train
from diffinity.constraints.sentences import Sentence
from diffinity.guidance.base import DenoisingStep
from diffinity.guidance.classifier import (
    ClassifierGuidance,
    ClassifierHead,
    Form,
    NoisyClassifier,
    observe,
    token_readers,
)
from diffinity.models.markov import MarkovLM
from diffinity.models.plaid import PlaidConfig
from diffinity.models.plaid_lm import PlaidLM
from diffinity.models.schedule import NoiseLevel
from diffinity.models.tokenization import train_bpe

TEXTS = [
    f"the {a} {v} the {t}." for a in ("cat", "dog", "fox") for v in ("saw", "took", "ate") for t in ("box", "cup")
]
LENGTH = 9
FOX = Sentence("appearance", ("fox", "cup"))
OTHERS = [FOX, Sentence("prefix", ("dog",), 2), dy.Regex("the cat [a-z ]+\\.")]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_bpe(TEXTS, 300)


@pytest.fixture(scope="module")
def markov(tokenizer: Tokenizer) -> MarkovLM:
    return dy.fit_markov(TEXTS, order=2, tokenizer=tokenizer, embed_dim=16)


@pytest.fixture(scope="module")
def plaid(tokenizer: Tokenizer) -> PlaidLM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = PlaidConfig(tokenizer.get_vocab_size(), dim=32, n_blocks=2, n_heads=2, embed_dim=8)
        made = PlaidLM.create(config, tokenizer, eos_token_id=0)
        network = made.modules.model
        for unused_at_first in (network.output_linear, network.selfcond_linear, network.gamma_linear):
            torch.nn.init.normal_(unused_at_first.weight, std=0.1)
    return made


def small_system(model: dy.DiffusionLM, form: Form = "latent", **changes: Any) -> ClassifierSystem:
    system = ClassifierSystem(
        model, form, others=OTHERS, num_inference_steps=24, positives=192, own_samples=48, own_sample_steps=8
    )
    return dataclasses.replace(system, **changes)


@pytest.fixture(scope="module")
def examples(markov: MarkovLM) -> Examples:
    return small_system(markov).examples(FOX, LENGTH)


def a_classifier(model: dy.DiffusionLM, form: Form) -> NoisyClassifier:
    informative_tokens = (3, 40, 260)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        head = ClassifierHead(token_readers(model, form, informative_tokens).shape[1], LENGTH)
    return NoisyClassifier(form, informative_tokens, head.to(model.dtype).requires_grad_(False))


def a_step(model: dy.DiffusionLM, noise_level: float = 0.5) -> DenoisingStep:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(3, LENGTH, model.embedding.shape[1], generator=generator, dtype=torch.float64)
    level = NoiseLevel(torch.tensor(noise_level, dtype=torch.float64))
    return DenoisingStep(z, level, 0.1 * z.to(model.dtype), 3, 10)


# ---- the measure


@pytest.mark.parametrize("seed", range(5))
def test_auc_is_the_share_of_pairs_in_order_with_ties_counted_half(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, label = rng.integers(0, 6, 40).astype(np.float64), rng.random(40) < 0.4
    pairs = [(p > n) + (p == n) / 2 for p, n in itertools.product(scores[label], scores[~label])]
    assert area_under_curve(scores, label) == pytest.approx(sum(pairs) / len(pairs))


def test_auc_without_pairs_is_not_a_number() -> None:
    assert np.isnan(area_under_curve(np.zeros(3), np.ones(3, np.bool_)))


# ---- the guidance


def objective(model: dy.DiffusionLM, classifier: NoisyClassifier, step: DenoisingStep, z: torch.Tensor) -> float:
    log_odds, _ = classifier.log_odds(model, z.to(model.dtype), step.noise_level(model), step.x_selfcond)
    return float(F.logsigmoid(log_odds.double()).sum())


@pytest.mark.parametrize("form", ["full", "latent"])
def test_the_shift_is_the_gradient_by_finite_differences(markov: MarkovLM, form: Form) -> None:
    classifier, step = a_classifier(markov, form), a_step(markov)
    shift = ClassifierGuidance(classifier, scale=3.0).predict(markov, step).shift
    assert shift is not None
    gradient = shift / (3.0 * step.level.sigma_squared / step.level.alpha)
    rng = np.random.default_rng(0)
    for at in {tuple(rng.integers(step.z.shape).tolist()) for _ in range(12)}:
        change = torch.zeros_like(step.z)
        change[at] = 1e-5
        up, down = (objective(markov, classifier, step, step.z + sign * change) for sign in (1, -1))
        assert float(gradient[at]) == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("form", ["full", "latent", "backbone"])
def test_the_slope_along_the_shift_is_that_of_the_objective(plaid: PlaidLM, form: Form) -> None:
    classifier, step = a_classifier(plaid, form), a_step(plaid)
    shift = ClassifierGuidance(classifier, scale=1.0).predict(plaid, step).shift
    assert shift is not None
    gradient = shift / (step.level.sigma_squared / step.level.alpha)
    direction = gradient / gradient.norm()
    up, down = (objective(plaid, classifier, step, step.z + sign * 1e-2 * direction) for sign in (1, -1))
    assert (up - down) / 2e-2 == pytest.approx(float(gradient.norm()), rel=2e-2)  # the network is float32


def test_backbone_features_are_those_that_the_logits_are_read_from(plaid: PlaidLM) -> None:
    step, network = a_step(plaid), plaid.modules.model
    z = step.z.float()
    seen = observe(plaid, "backbone", (), z, step.noise_level(plaid), step.x_selfcond)
    hidden = seen.features[..., : plaid.config.dim] * (256 / plaid.config.dim)
    analytic = (step.level.alpha / step.level.sigma_squared).float() * z @ plaid.embedding.T
    assert seen.logits is not None
    assert torch.allclose(network.output_linear(hidden) + analytic, seen.logits, atol=1e-4)
    assert not network.output_norm._forward_hooks


def test_without_pull_the_texts_are_the_unguided_ones(markov: MarkovLM) -> None:
    system = small_system(markov, scale=0.0, training_steps=1)
    plain = dy.sample(markov, 3, LENGTH, num_inference_steps=24, seed=5).tokens
    assert system.generate(FOX, n=3, length=LENGTH, seed=5) == dy.texts(markov, plain)


def test_backbone_needs_a_network_with_hidden_features(markov: MarkovLM) -> None:
    with pytest.raises(dy.InvalidArgument, match="hidden features of a PlaidLM, which a MarkovLM has not"):
        ClassifierSystem(markov, "backbone")


def test_an_unknown_form_is_refused(markov: MarkovLM) -> None:
    with pytest.raises(dy.InvalidArgument, match="form must be one of full, latent, backbone"):
        ClassifierSystem(markov, "half")  # type: ignore[arg-type]


# ---- the examples


def test_positives_match_and_negatives_do_not(markov: MarkovLM, examples: Examples) -> None:
    texts = dy.texts(markov, examples.tokens)
    assert [FOX.accepts(text) for text in texts] == examples.label.tolist()
    assert [re.fullmatch(FOX.pattern(), text) is not None for text in texts] == examples.label.tolist()
    assert examples.label.sum() == 192
    assert examples.near.sum() > 150
    assert (~examples.label & ~examples.near).sum() > 40
    assert 0.1 < examples.held_out.mean() < 0.4


def test_positives_are_the_models_texts_given_the_constraint(markov: MarkovLM, examples: Examples) -> None:
    texts = dy.texts(markov, examples.tokens[torch.from_numpy(examples.label)])
    known = sum(text in TEXTS for text in texts)
    assert known > 0.9 * len(texts)  # no string of the automaton that the model would not write
    assert len(set(texts)) > 2


def test_a_near_miss_is_one_change_away_and_fails() -> None:
    vocabulary = Vocabulary([b"a", b" b", b" c", b" d", None], eos_id=4)
    constraint = dy.Regex("a.* b.* c.*")
    text, words = [0, 1, 3, 2], [0, 1, 2, 3]
    changed = {tuple(text[:i] + new + text[i + 1 :]) for i in range(4) for new in ([], *([w] for w in words))}
    changed |= {(*text[:i], text[i + 1], text[i], *text[i + 2 :]) for i in range(3)}
    failing = {ids for ids in changed if not re.fullmatch("a.* b.* c.*", vocabulary.spell(ids).decode())}
    rng = np.random.default_rng(0)
    found = {
        tuple(made)
        for _ in range(200)
        if (made := near_miss([*text, 4, 4], constraint, vocabulary, [[*words, 4, 4]], rng)) is not None
    }
    assert {ids[: ids.index(4)] for ids in found} <= failing
    assert len(found) > len(failing) / 2
    assert {len(ids) for ids in found} == {6}


def test_where_nothing_can_fail_there_is_no_near_miss() -> None:
    vocabulary = Vocabulary([b"a", b" b", None], eos_id=2)
    rng = np.random.default_rng(0)
    assert near_miss([0, 1, 2], dy.Regex(".*"), vocabulary, [[0, 1, 2]], rng) is None


def test_a_constraint_that_nothing_fails_is_refused(markov: MarkovLM) -> None:
    with pytest.raises(dy.UnsupportedConstraint, match="nothing to tell apart"):
        small_system(markov).generate(dy.Regex("(?s).*"), n=1, length=LENGTH, seed=0)


def test_a_constraint_that_does_not_fit_is_infeasible(markov: MarkovLM) -> None:
    with pytest.raises(dy.InfeasibleConstraint):
        small_system(markov).generate(dy.Text("the fox saw the cup and the box."), n=1, length=4, seed=0)


def test_the_tokens_of_the_words_tell_most(markov: MarkovLM, examples: Examples) -> None:
    wanted = {markov.tokenizer.encode(word).ids[0] for word in (" fox", " cup")}
    assert wanted <= set(most_informative_tokens(examples, markov.embedding.shape[0], k=4))


def test_noise_along_a_trajectory_has_the_levels_of_its_times(markov: MarkovLM) -> None:
    tokens = torch.full((3000, 1), 5)
    times = torch.tensor([[0.8], [0.3]], dtype=torch.float64).expand(2, 3000)
    seen = observe_noised(markov, "latent", (), tokens, times, torch.Generator().manual_seed(0))
    level = NoiseLevel(markov.noise_level(torch.tensor([0.8, 0.3])))
    d = markov.embedding.shape[1]
    unit = (level.alpha_squared / d + level.sigma_squared).sqrt()[:, None]
    z = seen.features[:, :, 0].double() * unit[:, :, None]  # (2, N, d)
    assert torch.allclose(z.mean(dim=1), level.alpha[:, None] * markov.embedding[5], atol=0.08)
    assert torch.allclose(z.var(dim=1), level.sigma_squared[:, None].expand(2, d), rtol=0.12)


# ---- learning


@pytest.fixture(scope="module")
def trained(markov: MarkovLM, examples: Examples) -> dict[Form, Trained]:
    return {form: train(markov, form, examples, steps=150, seed=0) for form in ("full", "latent")}


@pytest.mark.parametrize("form", ["full", "latent"])
def test_an_easy_constraint_is_learned(trained: dict[Form, Trained], form: Form) -> None:
    found = trained[form].auc
    assert found.by_noise[0].auc > 0.9  # held out, low noise
    assert found.overall > 0.7
    assert found.by_noise[0].auc > found.by_noise[2].auc  # noise hides what there is to see


def test_a_classifier_comes_near_what_there_is_to_see(markov: MarkovLM, trained: dict[Form, Trained]) -> None:
    exact = small_system(markov).exact_auc(FOX, LENGTH)
    assert exact.by_noise[0].auc > 0.97  # almost no noise, and the very automaton
    assert exact.by_noise[0].auc > exact.by_noise[2].auc
    for found in trained.values():
        assert exact.overall - 0.15 < found.auc.overall < exact.overall + 0.1


@pytest.mark.parametrize("form", ["full", "latent"])
def test_shuffled_labels_teach_nothing(markov: MarkovLM, examples: Examples, form: Form) -> None:
    label = np.random.default_rng(1).permutation(examples.label)
    shuffled = dataclasses.replace(examples, label=label, near=np.zeros_like(label))
    assert train(markov, form, shuffled, steps=60, seed=0).auc.overall == pytest.approx(0.5, abs=0.13)


@pytest.mark.parametrize("form", ["full", "latent"])
def test_guidance_by_what_was_learned_brings_the_words_in(
    markov: MarkovLM, trained: dict[Form, Trained], form: Form
) -> None:
    guidance = ClassifierGuidance(trained[form].classifier)
    plain, guided = (
        dy.texts(markov, dy.sample(markov, 40, LENGTH, num_inference_steps=30, guidance=g).tokens)
        for g in (None, guidance)
    )
    assert sum(map(FOX.accepts, plain)) <= 16
    assert sum(map(FOX.accepts, guided)) >= 26


def test_every_form_runs_on_a_network(plaid: PlaidLM) -> None:
    for form in ("full", "latent", "backbone"):
        system = small_system(plaid, form, training_steps=3, positives=16, own_samples=8, num_inference_steps=3)
        assert system.name == f"classifier-{form}"
        assert len(system.generate(FOX, n=2, length=LENGTH, seed=0)) == 2
        assert system.auc(FOX, LENGTH).n_texts > 0


# ---- what is kept


def test_texts_are_the_same_from_the_cache_and_without_it(
    markov: MarkovLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"training_steps": 20, "positives": 32, "own_samples": 16, "batch_size": 2}
    fresh = small_system(markov, **settings)
    texts = fresh.generate(FOX, n=4, length=LENGTH, seed=1)
    first = small_system(markov, cache=tmp_path, **settings)
    assert first.generate(FOX, n=4, length=LENGTH, seed=1) == texts
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} == {"classifier", "examples", "samples"}

    def no_training(*_: object) -> Trained:
        raise AssertionError("trained again")

    monkeypatch.setattr(system_module, "train", no_training)
    again = small_system(markov, cache=tmp_path, **settings)
    assert again.generate(FOX, n=3, length=LENGTH, seed=1) == texts[:3]
    assert again.auc(FOX, LENGTH) == fresh.auc(FOX, LENGTH)
    found, kept = fresh.examples(FOX, LENGTH), again.examples(FOX, LENGTH)
    assert torch.equal(found.tokens, kept.tokens)
    assert all((getattr(found, name) == getattr(kept, name)).all() for name in ("label", "near", "held_out"))
    with pytest.raises(AssertionError, match="trained again"):  # other settings, another classifier
        small_system(markov, cache=tmp_path, **{**settings, "training_steps": 21}).auc(FOX, LENGTH)


def test_a_damaged_file_of_the_cache_is_refused(markov: MarkovLM, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"training_steps": 1, "positives": 8, "own_samples": 8, "cache": tmp_path}
    small_system(markov, **settings).auc(FOX, LENGTH)
    (kept,) = tmp_path.glob("classifier-*")
    kept.write_bytes(kept.read_bytes()[:-8])
    with pytest.raises(dy.CheckpointError, match="not a complete safetensors file"):
        small_system(markov, **settings).auc(FOX, LENGTH)


def test_a_pool_is_made_of_a_selection_of_the_other_constraints(
    markov: MarkovLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Any] = []

    def recording(model: Any, vocabulary: Any, samples: Any, others: Any, *rest: Any) -> Any:
        used.extend(others)
        return make_pool(model, vocabulary, samples, others, *rest)

    monkeypatch.setattr(system_module, "make_pool", recording)
    many = [dy.Regex(f"the cat [a-z ]{{{i},}}\\.") for i in range(system_module.MOST_OTHERS + 4)]
    small_system(markov, others=many).examples(FOX, LENGTH)
    assert len(used) == system_module.MOST_OTHERS
    assert len(set(map(id, used)) & set(map(id, many))) == len(used)

"""`best_of`: drafts of a text, and the model's own score by which the best is chosen."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

import diffinity as dy
from diffinity.errors import InvalidArgument
from diffinity.generation import generator as generator_module
from diffinity.generation.making import drafts_of
from diffinity.generation.scores import draft_scores, text_scores
from diffinity.generation.settings import GenerationSettings
from diffinity.models import PlaidLM
from diffinity.models.markov_tokens import MarkovTokens
from diffinity.models.plaid import PlaidConfig

TEXTS = ["a b c.", "a c b.", "b a c.", "a b a."]
SMALL: dict[str, Any] = {"length": 12, "num_inference_steps": 4}


@pytest.fixture(scope="module")
def plaid() -> PlaidLM:
    """A random PLAID that says it was trained with a noise level for each position."""
    torch.manual_seed(0)
    tokenizer = dy.fit_markov(TEXTS).tokenizer
    shape = PlaidConfig(tokenizer.get_vocab_size(), dim=16, n_blocks=1, n_heads=2, embed_dim=4)
    model = PlaidLM.create(shape, tokenizer, eos_token_id=tokenizer.token_to_id("<|endoftext|>"))
    torch.nn.init.normal_(model.modules.model.output_linear.weight)
    model.position_levels = True
    return model


@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_masked_models_score_is_the_mean_of_its_conditionals(n: int) -> None:
    chain = dy.fit_markov(TEXTS, order=1)
    model = MarkovTokens(chain, "mask")
    eos = model.eos_token_id
    ids = [*chain.tokenizer.encode("a b c.").ids, eos][:n]
    tokens = torch.tensor([ids + [eos] * (8 - n)])
    expected = []
    length = len(ids) if eos not in ids else ids.index(eos) + 1
    if n < 7:  # the end token that stands behind the cut text belongs to it
        ids, length = [*ids, eos], length + 1
    for k in range(length):
        row = torch.tensor([ids])
        row[0, k] = model.mask_id
        expected.append(model.logits(row, torch.tensor([1 / length]))[0, k].log_softmax(-1)[ids[k]])
    assert float(text_scores(model, tokens)[0]) == pytest.approx(float(torch.stack(expected).mean()), abs=1e-9)


def test_a_causal_models_score_is_its_mean_log_probability() -> None:
    model = dy.load("embedded-autoregressive")
    ids = [*model.tokenizer.encode("I like tea.").ids, model.eos_token_id]
    texts, expected = model.start(1, len(ids), None), torch.zeros(())
    for token in ids:  # token by token
        expected += texts.logits()[0].log_softmax(dim=-1)[token] / len(ids)
        texts.append(torch.tensor([token]))
    padded = torch.tensor([ids + [model.eos_token_id] * 3])
    assert float(text_scores(model, padded)[0]) == pytest.approx(float(expected), abs=1e-5)


def test_plaid_hides_one_position_at_a_time(plaid: PlaidLM) -> None:
    ids = torch.tensor(plaid.tokenizer.encode("a b c.").ids)
    found = plaid.pseudo_log_probs(ids)
    assert found.shape == ids.shape
    changed = ids.clone()
    changed[0] = ids[2]
    other = plaid.pseudo_log_probs(changed)
    # What stands at a hidden position is not read: the distribution there is the same for both texts.
    low, high = plaid.noise_level(torch.tensor([0.0, 1.0], dtype=torch.float64)).tolist()
    assert low < high
    both = [
        plaid.pseudo_log_probs(torch.cat([torch.tensor([first]), ids[1:]]))[0] for first in range(plaid.vocab_size)
    ]
    assert float(torch.stack(both).exp().sum()) == pytest.approx(1.0, abs=1e-4)
    assert not torch.equal(found[1:], other[1:])


@pytest.mark.parametrize(("decode", "best_of"), list(product(["best", "argmax"], [2, 3])))
def test_the_draft_with_the_highest_score_is_taken(
    plaid: PlaidLM, monkeypatch: pytest.MonkeyPatch, decode: str, best_of: int
) -> None:
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def recording(model: PlaidLM, tokens: torch.Tensor, context: object) -> torch.Tensor:
        seen.append((tokens, text_scores(model, tokens)))
        return seen[-1][1]

    monkeypatch.setattr(generator_module, "draft_scores", recording)
    write = dy.Generator(plaid, dy.Regex("[abc ]+."), decode=decode, best_of=best_of, **SMALL)
    texts = write(4, seed=3)
    ((tokens, scores),) = seen
    assert tokens.shape[0] == 4 * best_of
    assert len({tuple(row) for row in tokens.tolist()}) > 4  # drafts differ
    for i, text in enumerate(texts):
        rows = range(i * best_of, (i + 1) * best_of)
        accepted = [row for row in rows if write.automata[0].accepts(tokens[row].tolist())]
        best = max(accepted or rows, key=lambda row: float(scores[row]))
        assert list(text.tokens) == tokens[best].tolist()
        assert text.satisfied == bool(accepted)


def test_a_text_does_not_depend_on_its_batch(plaid: PlaidLM) -> None:
    write = dy.Generator(plaid, dy.Regex("[abc ]+."), best_of=3, **SMALL)
    together = [text.tokens for text in write(3, seed=1)]
    alone = [write(seeds=[(1, i)])[0].tokens for i in range(3)]
    assert together == alone


def test_texts_may_leave_a_batch_with_their_drafts(plaid: PlaidLM) -> None:
    write = dy.Generator(plaid, dy.Regex("[abc ]+."), best_of=3, **SMALL)
    batch = write.stepwise([(1, 0), (1, 1), (1, 2)])
    batch.step()
    batch.keep([0, 2])
    while batch.step():
        pass
    expected = [write(seeds=[(1, i)])[0].tokens for i in (0, 2)]
    assert [text.tokens for text in batch.finish()] == expected


def test_who_writes_drafts_by_default(plaid: PlaidLM, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = dy.models.protocol.SamplingDefaults(best_of=4)
    monkeypatch.setattr(plaid, "sampling_defaults", defaults)
    drafts = {
        name: drafts_of(plaid, GenerationSettings(guidance=name)) for name in ("auto", "best", "fast", "paper")
    }
    assert drafts == {"auto": 4, "best": 8, "fast": 1, "paper": 1}
    assert drafts_of(plaid, GenerationSettings(decode="sample")) == 1
    assert drafts_of(plaid, GenerationSettings(particles=2)) == 1
    assert drafts_of(plaid, GenerationSettings(guidance="paper", best_of=5)) == 5
    assert dy.Generator(plaid, None, **SMALL).rows == 4  # free text, too
    monkeypatch.setattr(plaid, "sampling_defaults", dataclasses.replace(defaults, best_of_free=2))
    assert dy.Generator(plaid, None, **SMALL).rows == 2
    assert dy.Generator(plaid, dy.Regex("[abc ]+."), **SMALL).rows == 4
    with pytest.raises(InvalidArgument, match="best_of_free must be a whole number from 1 to 64, but is 0"):
        dataclasses.replace(defaults, best_of_free=0)


def test_a_draft_scorer_chooses_in_place_of_the_model(plaid: PlaidLM, monkeypatch: pytest.MonkeyPatch) -> None:
    write = dy.Generator(plaid, dy.Regex("[abc ]+."), best_of=4, **SMALL)
    drafts = dy.Generator(plaid, dy.Regex("[abc ]+."), best_of=1, **SMALL)
    own = write(6, seed=3)
    named = replace(plaid.sampling_defaults, draft_scorer="embedded-autoregressive")
    monkeypatch.setattr(plaid, "sampling_defaults", named)
    chosen = write(6, seed=3)
    assert [text.text for text in own] != [text.text for text in chosen]
    judge = dy.load("embedded-autoregressive")

    def mean_log_prob(text: str) -> float:
        ids = [*judge.tokenizer.encode(text).ids, judge.eos_token_id]
        return float(judge.log_probs(torch.tensor([ids])).double().mean())

    assert all(mean_log_prob(a.text) >= mean_log_prob(b.text) for a, b in zip(chosen, own, strict=True))
    tokens = torch.tensor([text.tokens for text in drafts(3, seed=3)])
    expected = [mean_log_prob(text) for text in dy.texts(plaid, tokens)]
    assert draft_scores(plaid, tokens).tolist() == pytest.approx(expected, abs=1e-5)
    after_a_prompt = draft_scores(plaid, tokens, context=[1])  # the scorer would not see the prompt
    assert torch.equal(after_a_prompt, text_scores(plaid, tokens))


def test_a_model_that_cannot_score_may_have_a_draft_scorer(monkeypatch: pytest.MonkeyPatch) -> None:
    model = dy.fit_markov(TEXTS)
    named = replace(model.sampling_defaults, draft_scorer="embedded-autoregressive")
    monkeypatch.setattr(model, "sampling_defaults", named)
    assert len(dy.generate(model, dy.Regex("[abc ]+."), 2, best_of=3, **SMALL)) == 2


@pytest.mark.parametrize("name", ["gpt2", "../somewhere", 3])
def test_only_embedded_models_score_drafts(name: Any) -> None:
    with pytest.raises(InvalidArgument, match="draft_scorer must be 'embedded-autoregressive' or"):
        dy.models.protocol.SamplingDefaults(draft_scorer=name)


def test_models_without_a_score_and_particles_are_refused(plaid: PlaidLM) -> None:
    with pytest.raises(InvalidArgument, match="best_of is 2, but a MarkovLM can not score a text"):
        dy.generate(dy.fit_markov(TEXTS), "a b c.", best_of=2)
    with pytest.raises(InvalidArgument, match="a MarkovTokens can not score a text: it has no mask"):
        dy.generate(MarkovTokens(dy.fit_markov(TEXTS), "uniform"), "a b c.", best_of=2)
    with pytest.raises(InvalidArgument, match="best_of does not go with them"):
        dy.generate(plaid, "a b c.", best_of=2, particles=2)


def test_position_levels_are_stored_with_the_model(
    plaid: PlaidLM, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("model")
    plaid.save_pretrained(folder)
    assert dy.load(folder).position_levels is True

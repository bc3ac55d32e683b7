"""The measures of free writing against counts by hand, and the export of runs into the package's layout."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from diffinity.bench.grammar import GrammarCounts
from diffinity.models.loading import load
from diffinity.models.plaid import PlaidConfig
from diffinity.models.plaid_lm import PlaidLM, PlaidModules
from diffinity.models.protocol import SamplingDefaults
from diffinity.models.tokenization import train_bpe
from diffinity.models.transformer import AutoregressiveLM, Transformer, TransformerConfig
from diffinity.training.card import Measured, diffusion_card
from diffinity.training.quality import perplexity, quality
from diffinity.training.release import export
from diffinity.training.showcase import tasks
from diffinity.training.tasks import GIVEN_LEVELS, TARGET_LEVELS, given_and_target_levels

TEXTS = ["The cat sat down here.", '{"a": 1}', '{"a": 1', "The dog ran far away. So did the cat then."]


@pytest.fixture(scope="module")
def judge() -> AutoregressiveLM:
    """A network whose last layer is zero: every token has the same probability."""
    words = train_bpe(TEXTS, 300)
    network = Transformer(TransformerConfig(words.get_vocab_size(), 16, 1, 2, causal=True))
    eos = words.token_to_id("<|endoftext|>")
    assert eos is not None
    return AutoregressiveLM(network, words, eos)


def test_perplexity_of_a_uniform_model_is_its_vocabulary(judge: AutoregressiveLM) -> None:
    assert math.isclose(perplexity(judge, TEXTS), judge.tokenizer.get_vocab_size(), rel_tol=1e-4)


def test_quality_counts_what_parses_and_what_is_known(judge: AutoregressiveLM) -> None:
    found = quality(TEXTS, ["Another text."], judge, ["A start. So did the cat then.", "The cat sat down here."])
    assert (found.json_like, found.json_parsed) == (2, 0.5)
    # Sentences of four words or more: three, of which the training text has two.
    assert math.isclose(found.known_sentences, 2 / 3)
    pairs = [pair for text in (TEXTS[0], TEXTS[3]) for pair in zip(text.split(), text.split()[1:], strict=False)]
    assert math.isclose(found.distinct_2, len(set(pairs)) / len(pairs))


def test_runs_are_exported_in_float16_with_their_defaults(tmp_path: Path, judge: AutoregressiveLM) -> None:
    words = judge.tokenizer
    modules = PlaidModules(PlaidConfig(words.get_vocab_size(), 16, 1, 2, 8))
    PlaidLM(modules, words, judge.eos_token_id).save_pretrained(tmp_path / "runs" / "plaid" / "model")
    judge.save_pretrained(tmp_path / "runs" / "autoregressive" / "model")
    metrics = '{"step": 5, "tokens": 2000000, "seconds": 7200, "validation": {"gamma=-1": 3.25}}\n'
    (tmp_path / "runs" / "plaid" / "metrics.jsonl").write_text(metrics)
    found = export(tmp_path / "runs", tmp_path / "out", SamplingDefaults(32, 48, 0.5))
    assert set(found) == {"plaid", "autoregressive"}
    shipped = load(tmp_path / "out" / "default")
    assert isinstance(shipped, PlaidLM)
    assert shipped.sampling_defaults == SamplingDefaults(32, 48, 0.5)
    small, large = (tmp_path / place / "model.safetensors" for place in ("out/default", "runs/plaid/model"))
    assert small.stat().st_size < 0.7 * large.stat().st_size
    measured = Measured(
        quality=quality(TEXTS, TEXTS, judge, []),
        samples=TEXTS,
        seconds=1.5,
        length=64,
        lengths=(16,),
        held_out=4,
        training_documents=0,
        free=GrammarCounts(4, 3, 2, 20, 1),
        constrained=GrammarCounts(),
        real=GrammarCounts(1, 1, 1, 5, 0),
        brace_json={128: (38, 40), 64: (37, 40)},
        choices={"red": 4, "green": 16},
        showcase=[(tasks()[0], ["2020-01-01"])],
    )
    card = diffusion_card(shipped, tmp_path / "runs", measured)
    assert "| clean sentences, by the grammar judge | 0.50 | not measured | 1.00 |" in card
    assert "- `2020-01-01`" in card
    assert "38 of 40 in 128 steps and 37 of 40 in 64 steps parse as JSON." in card
    assert '`Choice(["red", "green"])`, 20 texts with' in card
    assert "| the contributors of tatoeba.org | sentences | CC BY 2.0 FR |" in card
    assert "| plaid | 5 | 2.0 M | 2.0 | gamma=-1 3.25 |" in card
    assert all(f"{number}. `{text}`" in card for number, text in enumerate(TEXTS, start=1))


def test_each_position_is_either_given_or_a_target() -> None:
    levels, is_target = given_and_target_levels(64, 32, torch.Generator().manual_seed(0))
    assert bool(((levels >= GIVEN_LEVELS[0]) & (levels <= GIVEN_LEVELS[1]))[~is_target].all())
    assert bool(((levels >= TARGET_LEVELS[0]) & (levels <= TARGET_LEVELS[1]))[is_target].all())
    share = is_target.float().mean(dim=1)
    assert share.min() < 0.25
    assert share.max() > 0.6
    assert all(row.unique().numel() <= 2 for row in levels)


def test_one_level_for_all_positions_is_that_level_for_each() -> None:
    torch.manual_seed(0)
    network = PlaidModules(PlaidConfig(40, 16, 2, 2, 8))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    z, gamma = torch.randn(3, 5, 8), torch.tensor([-2.0, 0.0, 1.0])
    embedding, zeros = network.embedding_matrix(), torch.zeros(3, 5, 8)
    whole = network.model(z, gamma, embedding, zeros)
    each = network.model(z, gamma[:, None].expand(3, 5), embedding, zeros)
    assert torch.allclose(whole, each, atol=1e-5)

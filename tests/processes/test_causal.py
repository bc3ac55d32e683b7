"""The causal process: autoregressive models through `dy.generate`, with the promise of every other process."""

from __future__ import annotations

import math
import re
import threading
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

import diffinity as dy
from diffinity.models.loading import EMBEDDED_COMPANIONS
from diffinity.models.tokenization import train_bpe
from diffinity.models.transformer import AutoregressiveLM, Transformer, TransformerConfig
from diffinity.processes.causal import Reader
from tests.baselines.small_models import KnownCausal, few_tokens, strings

WORDS = dy.Regex("[a-z ]{1,20}(, the)?")


@cache
def model() -> AutoregressiveLM:
    tokenizer = train_bpe(['the old river, the cat: {"a": true}'], 300)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        size = tokenizer.get_vocab_size()
        network = Transformer(TransformerConfig(size, dim=16, n_blocks=2, n_heads=2, causal=True))
        torch.nn.init.normal_(network.output_linear.weight)
    return AutoregressiveLM(network, tokenizer, eos_token_id=0)


@cache
def known(before: tuple[int, ...]) -> Tensor:
    seed = sum((token + 1) * 7**i for i, token in enumerate(before))
    return torch.randn(4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


KNOWN = KnownCausal(known, few_tokens(4), 4)  # <end>, a, b, c


def enumerated(pattern: str, length: int, masked: bool = False) -> dict[str, float]:
    """p of each text that matches and, with its end, has at most `length` tokens; by `re`.

    If `masked`, each token has its share of those behind which some such text can still be finished.
    """
    members = {text for text in strings("abc", length - 1) if re.fullmatch(pattern, text)}
    beginnings = {text[:k] for text in members for k in range(length)}
    shares: dict[str, float] = defaultdict(float)
    begun = {"": 1.0}
    for _ in range(length):
        longer: dict[str, float] = defaultdict(float)
        for text, share in begun.items():
            weights = dict(zip("<abc", known(tuple("<abc".index(letter) for letter in text)).exp(), strict=True))
            if masked:
                possible = {letter for letter in "abc" if text + letter in beginnings}
                weights = {letter: weights[letter] for letter in possible | ({"<"} if text in members else set())}
            for letter, weight in weights.items():
                part = share * float(weight) / float(sum(weights.values()))
                if letter != "<":
                    longer[text + letter] += part
                elif text in members:
                    shares[text] += part
        begun = longer
    return dict(shares)


def test_tokens_are_drawn_from_those_that_can_be_completed() -> None:
    pattern, length = "a[bc]*c", 5
    expected = enumerated(pattern, length, masked=True)
    texts = Counter(text.text for text in dy.generate(KNOWN, dy.Regex(pattern), n=2000, length=length))
    assert set(texts) <= set(expected)
    assert sum(expected.values()) == pytest.approx(1.0)
    names = sorted(expected)
    assert chisquare([texts[name] for name in names], [2000 * expected[name] for name in names]).pvalue > 1e-3


def test_particles_approach_the_models_own_texts_given_the_constraint() -> None:
    pattern, length = ".*b.*b", 5
    shares = enumerated(pattern, length)
    expected = {text: share / sum(shares.values()) for text, share in shares.items()}

    def distance(**options: Any) -> float:
        """The total variation distance of 400 texts from p(text | L)."""
        texts = Counter(sample.text for sample in dy.generate(KNOWN, dy.Regex(pattern), 400, length, **options))
        return sum(abs(texts[name] / 400 - share) for name, share in expected.items()) / 2

    assert distance(particles=32) < 0.15 < distance()


def test_probabilities_are_those_of_enumeration() -> None:
    shares = enumerated("a|ab|b", 4)
    for choice in dy.probabilities(KNOWN, ["a", "ab", "b"], length=4, particles=64, repeats=8):
        expected = shares[str(choice.choice)]
        assert abs(choice.probability - expected) <= 5 * choice.standard_error + 0.02 * expected
    with pytest.raises(dy.InvalidArgument, match="factorised"):
        dy.probabilities(KNOWN, ["a"], estimate="factorised")


@pytest.mark.parametrize("framing", ["eos", "eos_strict", "exact", "search"])
@pytest.mark.parametrize("guidance", ["auto", "none"])
def test_every_text_satisfies_its_constraint(framing: Any, guidance: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(6):
        low = int(rng.integers(0, 4))
        pattern = f"[a-e]{{{low},9}}(river|, the)?x?"
        texts = dy.generate(model(), dy.Regex(pattern), n=3, length=9, framing=framing, guidance=guidance)
        assert all(text.satisfied for text in texts)
        if framing.startswith("eos"):
            assert all(re.fullmatch(pattern, text.text) for text in texts)


@pytest.mark.parametrize("options", [{}, {"particles": 4}, {"temperature": 0.7}])
def test_a_text_depends_on_its_seed_and_index_only(options: dict[str, Any]) -> None:
    together = dy.generate(model(), WORDS, n=5, length=12, seed=3, **options)
    alone = dy.generate(model(), WORDS, seeds=[(3, 2)], length=12, **options)
    parts = dy.generate(model(), WORDS, n=5, length=12, seed=3, batch_size=2, **options)
    assert alone[0].text == together[2].text
    assert [text.text for text in parts] == [text.text for text in together]
    assert len({text.text for text in together}) > 1


def test_several_constraints_in_one_batch() -> None:
    asked = [dy.Regex("[ab]{3}"), dy.Choice(["river", "cat"]), dy.JsonSchema({"type": "boolean"})]
    texts = dy.generate(model(), asked, length=8)
    assert [text.satisfied for text in texts] == [True] * 3
    assert isinstance(texts[2].value, bool)
    alone = dy.generate(model(), asked[1], seeds=[(0, 1)], length=8)
    assert alone[0].text == texts[1].text


def test_log_p_text_is_that_of_the_model() -> None:
    for text in dy.generate(model(), WORDS, n=4, length=10):
        ids = list(text.tokens)
        ids = ids[: ids.index(0) + 1] if 0 in ids else ids
        assert text.log_p_text == pytest.approx(float(model().log_probs(torch.tensor([ids])).sum()), abs=1e-4)


def test_temperature_zero_is_greedy() -> None:
    first, second = dy.generate(model(), WORDS, n=2, length=10, temperature=0)
    assert first.text == second.text


def test_drafts_show_the_text_so_far() -> None:
    *drafts, last = dy.stream(model(), dy.Regex("[a-z]{12}"), length=14, seed=1)
    assert isinstance(last, dy.Generated)
    texts = [draft.texts[0] for draft in drafts if isinstance(draft, dy.Draft)]
    assert texts[-1] == last.text
    assert all(later.startswith(before) for before, later in pairwise(texts))
    assert texts[0] != texts[-1]


def test_an_interrupted_text_is_completed_as_soon_as_it_can_be() -> None:
    constraint = dy.Regex("[a-z]{4,30}!")
    whole = dy.generate(model(), constraint, length=34, seed=2)[0]
    stopped = dy.generate(
        model(), constraint, length=34, seed=2, callback_on_step_end=lambda step, state: step == 1
    )[0]
    assert stopped.finish_reason == "stopped"
    assert stopped.satisfied
    assert stopped.tokens[:2] == whole.tokens[:2]
    assert stopped.tokens.index(0) <= 8
    cancelled = threading.Event()
    cancelled.set()
    assert dy.generate(model(), constraint, length=34, cancel=cancelled)[0].satisfied


def test_texts_that_leave_a_batch_change_no_other() -> None:
    write = dy.Generator(model(), WORDS, length=12)
    batch = write.stepwise([(0, 0), (0, 1), (0, 2)])
    for _ in range(3):
        batch.step()
    batch.keep([0, 2])
    while batch.step():
        pass
    whole = write(n=3)
    assert [text.text for text in batch.finish()] == [whole[0].text, whole[2].text]


def test_a_prompt_is_read_and_is_no_part_of_the_text() -> None:
    free = dy.generate(model(), WORDS, n=4, length=10)
    prompted = dy.generate(model(), WORDS, n=4, length=10, prompt="the old river")
    assert [text.text for text in free] != [text.text for text in prompted]
    ids = model().encode_prompt("the old river", None)
    for text in prompted:
        own = list(text.tokens)
        own = own[: own.index(0) + 1] if 0 in own else own
        expected = model().log_probs(torch.tensor([[*ids, *own]]))[0, len(ids) :].sum()
        assert text.log_p_text == pytest.approx(float(expected), abs=1e-4)
    with pytest.raises(dy.InvalidArgument, match="no chat template"):
        dy.generate(model(), WORDS, messages=[{"role": "user", "content": "cat?"}], length=10)


def test_the_reader_takes_strings_in_any_order() -> None:
    tokens = torch.randint(1, 290, (4, 6), generator=torch.Generator().manual_seed(0))
    reader = Reader(model(), 8, None)
    for rows, k in (([0, 1, 2], 2), ([2, 0, 0], 3), ([3, 1], 5), ([3, 1], 5), ([0], 1), ([1], 6)):
        fresh = Reader(model(), 8, None)
        assert torch.equal(reader.logits(tokens[rows, :k]), fresh.logits(tokens[rows, :k]))


def test_a_model_that_finds_nothing_possible_still_satisfies() -> None:
    never = KnownCausal(lambda before: torch.tensor([0.0, 0.0, -torch.inf, 0.0]), few_tokens(4), 4)
    for particles in (None, 4):
        (text,) = dy.generate(never, dy.Regex("ab"), length=4, particles=particles)
        assert text.text == "ab"
        assert text.log_p_text == -math.inf


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"num_inference_steps": 8}, "num_inference_steps is an option of a diffusion model"),
        ({"order": "random"}, "order is an option of a diffusion model"),
        ({"score_temp": 0.5}, "score_temp is an option of a diffusion model"),
        ({"guidance": "joint"}, "guidance of a AutoregressiveLM must be one of auto, none"),
        ({"guidance": "none", "particles": 2}, "particles are proposed by 'auto'"),
        ({"temperature": 0, "particles": 2}, "temperature above 0"),
    ],
)
def test_what_a_causal_model_cannot_do_is_refused_by_name(options: dict[str, Any], told: str) -> None:
    with pytest.raises(dy.InvalidArgument, match=re.escape(told)):
        dy.generate(model(), WORDS, length=8, **options)
    with pytest.raises(dy.InfeasibleConstraint):
        dy.generate(model(), dy.Regex("[a-z]{40}"), length=5)


def test_a_saved_model_is_loaded_and_so_is_the_embedded_one(tmp_path: Path) -> None:
    model().save_pretrained(tmp_path)
    again = dy.load(tmp_path)
    assert dy.generate(again, WORDS, length=10)[0].text == dy.generate(model(), WORDS, length=10)[0].text
    if not EMBEDDED_COMPANIONS["embedded-autoregressive"].is_dir():
        pytest.skip("no embedded companion")
    embedded = dy.load("embedded-autoregressive")
    texts = dy.generate(embedded, dy.Regex("The [a-z]+ (is|was) [a-z ]+\\."), n=2, length=24)
    assert all(text.satisfied for text in texts)

"""Masked diffusion baselines: DINGO's string is the best there is, exact sampling is exact, and all obey."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import diffinity as dy
from diffinity.acceptance.partial import OPEN, PartialString
from diffinity.alignment import TokenAutomaton, align
from diffinity.baselines.masked import Decoding, MaskedSystem, Remasking, masked_model
from diffinity.constraints.sentences import Sentence
from diffinity.models.protocol import vocabulary_of
from diffinity.models.tokenization import train_bpe
from diffinity.models.transformer import MaskedLM, Transformer, TransformerConfig
from diffinity.processes.masked import schedule
from tests.baselines.small_models import END, TOKENS, KnownMasked, few_tokens

LENGTH, SIZE = 4, 4  # the end token, a, b, c
PATTERNS = ["a[bc]*", "ab|c{2,3}", "(?:ab)+|b?", "[ac]b?c"]
CONSTRAINED: tuple[Decoding, ...] = ("dingo", "exact", "left-to-right")


def known(seed: int, length: int = LENGTH) -> KnownMasked:
    table = torch.randn(length, SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return KnownMasked(table, few_tokens(SIZE))


def automaton(pattern: str) -> TokenAutomaton:
    return align(dy.Regex(pattern), vocabulary_of(known(0)), "eos")


def accepted(pattern: str, length: int = LENGTH) -> list[tuple[int, ...]]:
    """Every string of tokens whose text before the first end token matches, by `re` itself."""
    return [
        ids
        for ids in product(range(SIZE), repeat=length)
        if END in ids and re.fullmatch(pattern, "".join(TOKENS[t] for t in ids[: ids.index(END)]))
    ]


def companion(seed: int = 0) -> MaskedLM:
    tokenizer = train_bpe(['the old river, the cat: {"a": true}'], 300)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        size = tokenizer.get_vocab_size()
        network = Transformer(TransformerConfig(size, dim=16, n_blocks=2, n_heads=2, causal=False))
        torch.nn.init.normal_(network.output_linear.weight)
    return MaskedLM(network, tokenizer, eos_token_id=0)


def completable(string: tuple[int, ...], complete: list[tuple[int, ...]]) -> bool:
    return any(all(t in (OPEN, u) for t, u in zip(string, other, strict=True)) for other in complete)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("seed", range(6))
def test_dingo_finds_the_most_probable_tokens_that_can_be_completed(pattern: str, seed: int) -> None:
    rng, complete = np.random.default_rng(seed), accepted(pattern)
    log_probs = torch.from_numpy(np.log(rng.dirichlet(np.full(SIZE, 0.5), LENGTH)))
    tokens = torch.full((LENGTH,), OPEN)
    stands = int(rng.integers(LENGTH))
    tokens[stands] = complete[rng.integers(len(complete))][stands]
    is_open = np.flatnonzero(tokens.numpy() == OPEN)
    chosen = np.sort(rng.permutation(LENGTH - 1)[:2])
    string = PartialString.of(log_probs[is_open], tokens, automaton(pattern))

    def filled(ids: tuple[int, ...]) -> tuple[int, ...]:
        row = tokens.clone()
        row[torch.from_numpy(is_open[chosen])] = torch.tensor(ids)
        return tuple(row.tolist())

    def score(ids: tuple[int, ...]) -> float:
        return float(log_probs[is_open[chosen], list(ids)].sum())

    best = max(score(ids) for ids in product(range(SIZE), repeat=2) if completable(filled(ids), complete))
    taken = tuple(string.best(chosen).tolist())
    assert completable(filled(taken), complete)
    assert score(taken) == pytest.approx(best)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_greedy_dingo_in_one_step_is_the_best_accepted_string(pattern: str) -> None:
    for seed in range(5):
        model = known(seed)
        log_probs = model.table.log_softmax(dim=-1)
        best = max(accepted(pattern), key=lambda ids: float(log_probs[range(LENGTH), ids].sum()))
        (text,) = MaskedSystem(model, steps=1, temperature=0).generate(dy.Regex(pattern), 1, LENGTH, seed=0)
        assert text == "".join(TOKENS[t] for t in best[: best.index(END)])


def posterior(pattern: str, model: KnownMasked) -> dict[str, float]:
    """The probability of every text given that the string is accepted, by enumeration."""
    probs = model.table.softmax(dim=-1)
    masses: dict[str, float] = defaultdict(float)
    for ids in accepted(pattern):
        masses["".join(TOKENS[t] for t in ids[: ids.index(END)])] += float(probs[range(LENGTH), ids].prod())
    return {text: mass / sum(masses.values()) for text, mass in masses.items()}


def agree(texts: list[str], expected: dict[str, float]) -> bool:
    found = Counter(texts)
    assert set(found) <= set(expected)
    return bool(
        chisquare([found[t] for t in expected], [len(texts) * share for share in expected.values()]).pvalue > 1e-3
    )


@pytest.mark.parametrize(
    ("steps", "block", "remasking"), [(1, 4, "random"), (3, 4, "low-confidence"), (4, 2, "random")]
)
def test_exact_sampling_is_the_model_given_the_constraint(steps: int, block: int, remasking: Remasking) -> None:
    pattern, model = "a[bc]*", known(2)
    system = MaskedSystem(model, "exact", steps, block, remasking, batch_size=800)
    assert agree(system.generate(dy.Regex(pattern), 800, LENGTH, seed=0), posterior(pattern, model))


def test_left_to_right_is_another_distribution_than_the_exact_one() -> None:
    pattern, model = "a[bc]*", known(2)
    probs = model.table.softmax(dim=-1)
    expected: dict[str, float] = defaultdict(float)
    for ids in accepted(pattern):
        share = 1.0
        for k, token in enumerate(ids):  # each token from those after which some accepted string goes on
            going_on = {other[k] for other in accepted(pattern) if other[:k] == ids[:k]}
            share *= float(probs[k, token] / probs[k, sorted(going_on)].sum())
        expected["".join(TOKENS[t] for t in ids[: ids.index(END)])] += share
    texts = MaskedSystem(model, "left-to-right", batch_size=1000).generate(dy.Regex(pattern), 1000, LENGTH, seed=0)
    assert agree(texts, expected)
    assert not agree(texts, posterior(pattern, model))


def test_unconstrained_draws_every_position_from_the_model() -> None:
    model = known(5)
    texts = MaskedSystem(model, "unconstrained", 2, remasking="random", temperature=0.7).generate(
        dy.Text("a"), 2000, LENGTH, seed=0
    )
    first = Counter(text[:1] for text in texts)
    expected = (model.table[0] / 0.7).softmax(dim=-1).tolist()
    counts = [first[""], first["a"], first["b"], first["c"]]
    assert chisquare(counts, [2000 * share for share in expected]).pvalue > 1e-3


@pytest.mark.parametrize("decoding", CONSTRAINED)
@pytest.mark.parametrize(("steps", "block", "remasking"), [(None, None, "low-confidence"), (5, 4, "random")])
def test_every_text_satisfies_the_constraint(
    decoding: Decoding, steps: int | None, block: int | None, remasking: Remasking
) -> None:
    system = MaskedSystem(companion(), decoding, steps, block, remasking)
    for constraint in (Sentence("appearance", ("old", "cat")), dy.JsonSchema({"enum": [{"a": True}, [1, "é"]]})):
        texts = system.generate(constraint, n=3, length=20, seed=1)
        assert all(constraint.accepts(text) for text in texts)
    sentence = Sentence("between-n", ("the", "river"), 1)
    assert re.fullmatch(sentence.pattern(), system.generate(sentence, n=1, length=20, seed=0)[0])


@pytest.mark.parametrize("decoding", [*CONSTRAINED, "unconstrained"])
def test_a_text_depends_on_its_seed_and_index_only(decoding: Decoding) -> None:
    constraint = dy.Regex("[a-z ]{1,12}")
    system = MaskedSystem(companion(), decoding, steps=4)
    alone = system.generate(constraint, n=2, length=10, seed=5)
    assert MaskedSystem(companion(), decoding, steps=4, batch_size=3).generate(constraint, 7, 10, 5)[:2] == alone
    assert system.generate(constraint, n=2, length=10, seed=6) != alone
    assert len(set(system.generate(constraint, n=7, length=10, seed=5))) > 1


def test_dingo_promises_a_beginning_or_a_text_that_fits() -> None:
    constraint, model = dy.Regex("a{9}b"), known(0)
    with pytest.raises(dy.InfeasibleConstraint, match="the shortest has 11"):
        MaskedSystem(model).generate(constraint, 1, LENGTH, 0)
    prefix = MaskedSystem(model, promise="prefix")
    assert prefix.name == "masked-dingo-prefix"
    assert prefix.generate(constraint, 2, LENGTH, 0) == ["aaaa", "aaaa"]


@pytest.mark.parametrize(
    ("length", "block", "steps"), [(10, 10, 10), (10, 4, 7), (10, 3, 2), (7, 7, 3), (5, 2, 99)]
)
def test_a_schedule_unmasks_every_position_once_in_at_most_its_steps(length: int, block: int, steps: int) -> None:
    parts = schedule(length, block, steps)
    unmasked: Counter[int] = Counter()
    for where, count, _ in parts:
        assert count >= 1
        unmasked[where.start] += count
    assert unmasked == {start: min(block, length - start) for start in range(0, length, block)}
    assert len(parts) <= max(steps, len(unmasked))


def test_a_hugging_face_model_by_name(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="pip install 'diffinity[bench]'")
    tokenizer = train_bpe(["the old river"], 300)
    tokenizer.add_special_tokens(["[MASK]"])
    size = tokenizer.get_vocab_size()
    config = transformers.BertConfig(
        vocab_size=size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", mask_token="[MASK]"
    ).save_pretrained(tmp_path)
    model = masked_model(f"hf:{tmp_path}")
    assert model.mask_id == size - 1
    assert torch.isinf(model.logits(torch.full((1, 3), model.mask_id), torch.ones(1))[:, :, model.mask_id]).all()
    constraint = Sentence("prefix", ("old",), 2)
    for decoding in CONSTRAINED:
        texts = MaskedSystem(model, decoding, steps=4).generate(constraint, n=2, length=16, seed=0)
        assert all(constraint.accepts(text) for text in texts)


def test_wrong_arguments_are_named() -> None:
    model = known(0)
    with pytest.raises(dy.InvalidArgument, match="decoding must be one of"):
        MaskedSystem(model, "best")  # type: ignore[arg-type]
    with pytest.raises(dy.InvalidArgument, match="steps must be at least 1"):
        MaskedSystem(model, steps=0)
    with pytest.raises(dy.InvalidArgument, match="temperature must be above 0"):
        MaskedSystem(model, "exact", temperature=0)
    with pytest.raises(dy.InvalidArgument, match="promise"):
        MaskedSystem(model, "exact", promise="prefix")

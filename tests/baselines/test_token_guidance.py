"""Token guidance as a system: what it can say of a constraint, what it refuses, and that it pulls."""

from __future__ import annotations

import pytest

import diffinity as dy
from diffinity.baselines.token_guidance import TokenGuidanceSystem, forced_beginning
from diffinity.constraints.sentences import Sentence
from diffinity.guidance import TokenGuidance, TokenTarget
from diffinity.models.markov import MarkovLM
from tests.models.langflow_fixture import small_langflow

TEXTS = [
    f"the {a} {v} the {t}." for a in ("cat", "dog", "fox") for v in ("saw", "took", "ate") for t in ("box", "cup")
]
LENGTH = 9


@pytest.fixture(scope="module")
def model() -> MarkovLM:
    return dy.fit_markov(TEXTS, order=2, vocab_size=300)


@pytest.fixture(scope="module")
def system(model: MarkovLM) -> TokenGuidanceSystem:
    return TokenGuidanceSystem(model, weight=3.0, num_inference_steps=40)


def ids(model: MarkovLM, text: str) -> list[int]:
    found: list[int] = model.tokenizer.encode(text).ids
    return found


def test_words_that_appear_are_asked_for_with_the_space_before_them(
    model: MarkovLM, system: TokenGuidanceSystem
) -> None:
    wanted = [*ids(model, " fox"), *ids(model, " cup")]
    assert system.targets(Sentence("appearance", ("fox", "cup"))) == [TokenTarget(i, 3.0, "any") for i in wanted]


def test_a_word_of_several_tokens_is_several_tokens_somewhere(
    model: MarkovLM, system: TokenGuidanceSystem
) -> None:
    assert len(ids(model, " quartz")) > 1
    targets = system.targets(Sentence("appearance", ("quartz", "fox")))
    assert {t.token for t in targets} == {*ids(model, " quartz"), *ids(model, " fox")}
    assert {t.position for t in targets} == {"any"}


def test_the_first_word_stands_at_the_first_positions(model: MarkovLM, system: TokenGuidanceSystem) -> None:
    targets = system.targets(Sentence("prefix", ("quartz",), 1))
    assert [(t.token, t.position) for t in targets] == [(t, i) for i, t in enumerate(ids(model, "quartz"))]


@pytest.mark.parametrize(
    "constraint",
    [dy.Regex("the fox.*"), dy.Regex("(?s)the fox.*"), dy.Text("the fox") + dy.Regex("(?s).*")],
    ids=["line", "text", "concat"],
)
def test_a_fixed_beginning_is_its_tokens(
    model: MarkovLM, system: TokenGuidanceSystem, constraint: dy.Constraint
) -> None:
    targets = system.targets(constraint)
    assert [(t.token, t.position) for t in targets] == [(t, i) for i, t in enumerate(ids(model, "the fox"))]


def test_a_start_token_moves_the_text_by_one() -> None:
    model = small_langflow()
    targets = TokenGuidanceSystem(model, weight=3.0).targets(dy.Text("a dog"))
    expected = [*model.tokenizer.encode("a dog").ids, model.eos_token_id]
    assert [(t.token, t.position) for t in targets] == [(t, i) for i, t in enumerate(expected, 1)]


def test_a_whole_text_is_its_tokens_and_the_end(model: MarkovLM, system: TokenGuidanceSystem) -> None:
    targets = system.targets(dy.Text("the fox"))
    expected = [*ids(model, "the fox"), model.eos_token_id]
    assert [(t.token, t.position) for t in targets] == [(t, i) for i, t in enumerate(expected)]


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        (Sentence("prefix", ("fox",), 2), "only the first word has a fixed position"),
        (Sentence("suffix", ("fox",), 1), "the end is not fixed"),
        (Sentence("between-n", ("fox", "cup"), 2), "neither order nor distance"),
        (Sentence("between", ("fox", "cup")), "no order"),
        (Sentence("length", (), 4), "not lengths of words"),
        (Sentence("appearance", ("fox", "fox")), "the same word twice"),
        (dy.Regex("the (fox|cat).*"), "of patterns it takes a fixed text"),
        (dy.Regex("the fox[a-z]*"), "of patterns it takes a fixed text"),
        (dy.Regex(".*"), "of patterns it takes a fixed text"),
        (dy.Choice(["a", "b"]), "cannot express a Choice"),
        (dy.JsonSchema({"type": "object"}), "cannot express a JsonSchema"),
    ],
)
def test_what_it_cannot_express_is_refused(
    system: TokenGuidanceSystem, constraint: dy.Constraint, reason: str
) -> None:
    with pytest.raises(dy.UnsupportedConstraint, match=reason):
        system.generate(constraint, n=1, length=LENGTH, seed=0)


def test_a_beginning_longer_than_the_text_is_infeasible(system: TokenGuidanceSystem) -> None:
    with pytest.raises(dy.InfeasibleConstraint, match="positions, not 3"):
        system.generate(dy.Regex("the fox took the.*"), n=1, length=3, seed=0)


@pytest.mark.parametrize(
    ("pattern", "beginning"),
    [("abc", b"abc"), ("ab|ac", b"a"), ("a?b", b""), ("", b""), ("a[éè]", b"a\xc3"), ("[^\\s\\S]", b"")],
)
def test_the_forced_beginning_is_what_all_texts_share(pattern: str, beginning: bytes) -> None:
    assert forced_beginning(dy.Regex(pattern).dfa()) == beginning


def test_the_wanted_words_come_more_often(model: MarkovLM, system: TokenGuidanceSystem) -> None:
    constraint = Sentence("appearance", ("fox", "cup"))
    plain = dy.texts(model, dy.sample(model, 40, LENGTH, num_inference_steps=40, seed=0).tokens)
    guided = system.generate(constraint, n=40, length=LENGTH, seed=0)
    assert sum(map(constraint.accepts, plain)) <= 16
    assert sum(map(constraint.accepts, guided)) >= 32


def test_a_text_depends_on_its_index_and_not_on_the_batch(model: MarkovLM) -> None:
    constraint = Sentence("prefix", ("the",), 1)
    whole = TokenGuidanceSystem(model, num_inference_steps=6, batch_size=8)
    parts = TokenGuidanceSystem(model, num_inference_steps=6, batch_size=2)
    texts = whole.generate(constraint, n=5, length=LENGTH, seed=3)
    assert parts.generate(constraint, n=3, length=LENGTH, seed=3) == texts[:3]
    guidance = TokenGuidance(whole.targets(constraint))
    alone = dy.sample(model, 1, LENGTH, num_inference_steps=6, seed=3, first_index=4, guidance=guidance)
    assert dy.texts(model, alone.tokens) == texts[4:]

"""Autoregressive baselines: what the engines allow, what is drawn from it, and where a text is cut off."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tokenizers import Tokenizer, models

import diffinity as dy
from diffinity.baselines.autoregressive import AutoregressiveSystem
from diffinity.baselines.closed_schema import closed_schema
from diffinity.baselines.engines import EngineName, engine_named
from diffinity.baselines.plain_regex import plain_regex
from diffinity.constraints.sentences import Sentence
from diffinity.guidance.next_token import allowed_tokens, completable, draw_tokens
from diffinity.models.causal import CachedContinuations, causal_model
from diffinity.models.protocol import vocabulary_of
from diffinity.models.tokenization import train_bpe
from diffinity.models.transformer import AutoregressiveLM, Transformer, TransformerConfig
from tests.baselines.small_models import END, TOKENS, KnownCausal, few_tokens, strings

pytest.importorskip("llguidance", reason="pip install 'diffinity[bench]'")
pytest.importorskip("outlines_core", reason="pip install 'diffinity[bench]'")

PATTERNS = ["(?:ab)*c", "a{2,4}|b", "[abc]{3}", "é?a+b?", "(?:a|bc){1,3}", "(?i)A{,2}[^a]", "ab?c|é+"]
ENGINES: tuple[EngineName, ...] = ("llguidance", "outlines-core", "diffinity")


def uniform_model(tokenizer: Tokenizer | None = None) -> KnownCausal:
    tokenizer = tokenizer or few_tokens()
    size = tokenizer.get_vocab_size()
    return KnownCausal(lambda before: torch.zeros(size), tokenizer, size)


def companion(vocab_size: int = 300, seed: int = 0) -> AutoregressiveLM:
    tokenizer = train_bpe(['the old river, the cat: {"a": true}'], vocab_size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        size = tokenizer.get_vocab_size()
        network = Transformer(TransformerConfig(size, dim=16, n_blocks=2, n_heads=2, causal=True))
        torch.nn.init.normal_(network.output_linear.weight)
    return AutoregressiveLM(network, tokenizer, eos_token_id=0)


class Language:
    """The texts of a pattern by `re` itself, and what may follow a beginning of one."""

    def __init__(self, pattern: str) -> None:
        self.members = {text.encode() for text in strings("abcé", 6) if re.fullmatch(pattern, text)}
        self.beginnings = {text[:k] for text in self.members for k in range(len(text) + 1)}

    def allowed(self, before: bytes, spelled: list[bytes | None]) -> set[int]:
        following = {i for i, token in enumerate(spelled) if token and before + token in self.beginnings}
        return following | ({END} if before in self.members else set())

    def forced(self, before: bytes) -> bool:
        next_bytes = {text[len(before)] for text in self.beginnings if text[: len(before)] == before != text}
        return len(next_bytes) == 1 and before not in self.members


def walks(engine: EngineName, pattern: str, n: int = 12) -> list[tuple[bytes, set[int]]]:
    """Beginnings met on random walks of at most four bytes, and what the engine allows behind them."""
    model, rng = uniform_model(), np.random.default_rng(0)
    spelled = vocabulary_of(model).tokens
    met: list[tuple[bytes, set[int]]] = []
    for matcher in engine_named(engine).matchers(dy.Regex(pattern), model, n, 30):
        before = b""
        while len(before) <= 3:
            mask = set(np.flatnonzero(matcher.allowed()).tolist())
            met.append((before, mask))
            token = int(rng.choice(sorted(mask)))
            if token == END:
                break
            matcher.advance(token)
            before += spelled[token] or b""
    return met


@pytest.mark.parametrize("pattern", PATTERNS)
def test_llguidance_masks_only_tokens_that_cannot_be_completed(pattern: str) -> None:
    language, spelled = Language(pattern), list(vocabulary_of(uniform_model()).tokens)
    compared = 0
    for before, mask in walks("llguidance", pattern):
        possible = language.allowed(before, spelled)
        assert mask
        assert mask <= possible
        if not language.forced(before):  # where bytes are forced it takes the tokenizer's own spelling of them
            assert mask == possible
            compared += 1
    assert compared >= 10


@pytest.mark.parametrize("pattern", PATTERNS)
def test_our_tables_leave_out_only_tokens_that_cannot_be_completed(pattern: str) -> None:
    model, rng, length = uniform_model(), np.random.default_rng(0), 30
    language, vocabulary = Language(pattern), vocabulary_of(model)
    automaton = dy.align(dy.Regex(pattern), vocabulary)
    table = completable(automaton, length)
    for _ in range(12):
        ids: list[int] = []
        before = b""
        while len(before) <= 3 and END not in ids:
            state = np.array([automaton.state_after(ids)])
            mask = set(np.flatnonzero(allowed_tokens(automaton, table[len(ids) + 1], state)[0] == 0).tolist())
            assert mask == language.allowed(before, list(vocabulary.tokens))
            ids.append(int(rng.choice(sorted(mask))))
            before += vocabulary.tokens[ids[-1]] or b""


@pytest.mark.parametrize("pattern", PATTERNS)
def test_outlines_leaves_out_only_tokens_that_reach_past_a_complete_text(pattern: str) -> None:
    language, spelled = Language(pattern), list(vocabulary_of(uniform_model()).tokens)
    for before, mask in walks("outlines-core", pattern):
        possible = language.allowed(before, spelled)
        past_the_end = {
            t
            for t in possible - {END}
            if before + (spelled[t] or b"")[:-1] in language.members
            and before + (spelled[t] or b"") not in language.members
        }
        assert possible - past_the_end <= mask <= possible


@pytest.mark.parametrize("engine", ENGINES)
def test_finished_texts_match(engine: EngineName) -> None:
    system = AutoregressiveSystem(companion(), engine=engine)
    for constraint in (Sentence("prefix", ("old",), 2), dy.Regex("[a-z]{3}(, the){1,2}|river")):
        texts = system.generate(constraint, n=6, length=40, seed=3)
        # The engines know no length: a text that they were still writing is left as it is.
        matching = [text for text in texts if re.fullmatch(constraint.pattern(), text)]
        assert matching == [text for text in texts if constraint.accepts(text)]
        assert len(matching) >= (6 if engine == "diffinity" else 3)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_text_depends_on_its_seed_and_index_only(engine: EngineName) -> None:
    constraint = dy.Regex("[a-z ]{1,12}")
    system = AutoregressiveSystem(companion(), engine=engine)
    alone = system.generate(constraint, n=2, length=10, seed=5)
    assert AutoregressiveSystem(companion(), engine, batch_size=3).generate(constraint, 7, 10, 5)[:2] == alone
    assert system.generate(constraint, n=2, length=10, seed=6) != alone
    assert alone[0] != alone[1]


@pytest.mark.parametrize("engine", ENGINES)
def test_tokens_are_drawn_from_the_masked_and_renormalised_distribution(engine: EngineName) -> None:
    table = torch.randn(len(TOKENS), len(TOKENS), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    model = KnownCausal(lambda before: table[before[-1] if before else END], few_tokens(), len(TOKENS))
    a, b, c, ab, bc = 1, 2, 3, 6, 7
    following = {(): [a, b, ab, bc], (a,): [b, c], (b,): [a, c]}
    expected: dict[str, float] = defaultdict(float)
    for path in ([ab], [bc], [a, b], [a, c], [b, a], [b, c]):
        share = 1.0
        for k, token in enumerate(path):
            before = tuple(path[:k])
            weights = table[before[-1] if before else END].exp()
            share *= float(weights[token] / weights[following[before]].sum())
        expected["".join(TOKENS[t] for t in path)] += share
    system = AutoregressiveSystem(model, engine, batch_size=1000)
    found = Counter(system.generate(dy.Regex("a[bc]|b[ac]"), 3000, 4, 0))
    assert set(found) == set(expected)
    counts = [found[text] for text in sorted(expected)]
    assert chisquare(counts, [3000 * expected[text] for text in sorted(expected)]).pvalue > 1e-3


def test_the_nucleus_keeps_the_fewest_tokens_and_their_ratio() -> None:
    scores = np.log(
        np.array([0.2, 0.45, 0.0, 0.1]) + 1e-300
    )  # 0.6 of what is allowed is token 1, 0.87 tokens 1 and 0
    uniforms = np.random.default_rng(0).random(2000)
    drawn = Counter(draw_tokens(np.tile(scores, (2000, 1)), uniforms, top_p=0.8)[0].tolist())
    assert set(drawn) == {0, 1}
    assert chisquare([drawn[0], drawn[1]], [2000 * 0.2 / 0.65, 2000 * 0.45 / 0.65]).pvalue > 1e-3


def test_temperature_zero_is_greedy() -> None:
    model = KnownCausal(lambda before: torch.arange(9.0), few_tokens(), len(TOKENS))
    assert set(AutoregressiveSystem(model, temperature=0).generate(dy.Regex("[ab]c?"), 3, 9, 0)) == {"bc"}


@pytest.mark.parametrize("engine", ["llguidance", "outlines-core"])
def test_a_spent_budget_leaves_the_text_unfinished(engine: EngineName) -> None:
    system = AutoregressiveSystem(uniform_model(few_tokens(4)), engine=engine)
    assert system.generate(dy.Regex("a{20}b"), n=2, length=5, seed=0) == ["aaaaa", "aaaaa"]


def test_our_engine_never_runs_out() -> None:
    system = AutoregressiveSystem(uniform_model(few_tokens(4)), engine="diffinity")
    constraint = dy.Regex("[ab]*c{3}")
    assert all(constraint.accepts(text) for text in system.generate(constraint, n=50, length=6, seed=0))
    with pytest.raises(dy.InfeasibleConstraint, match="the shortest has 4"):
        system.generate(constraint, n=1, length=3, seed=0)


def test_no_engine_allows_every_token() -> None:
    texts = AutoregressiveSystem(uniform_model(few_tokens(4)), engine="none").generate(dy.Text("a"), 400, 2, 0)
    assert set(texts) == set(strings("abc", 2))


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}, "b": {"type": "array", "items": {"enum": ["x", 1]}, "maxItems": 2}},
    "required": ["a"],
}


@pytest.mark.parametrize("whitespace", ["dumps", "compact", "flexible"])
def test_llguidance_writes_the_json_that_the_constraint_asks_for(whitespace: str) -> None:
    constraint = dy.JsonSchema(SCHEMA, whitespace=whitespace)  # type: ignore[arg-type]
    texts = AutoregressiveSystem(companion(), engine="llguidance").generate(constraint, n=12, length=90, seed=0)
    finished = [text for text in texts if text.endswith("}")]
    assert len(finished) >= 6
    assert all(jsonschema_rs.is_valid(SCHEMA, constraint.parse(text)) for text in finished)
    assert all(constraint.accepts(text) for text in finished)


def test_outlines_writes_json_that_validates() -> None:
    constraint = dy.JsonSchema(SCHEMA)
    texts = AutoregressiveSystem(companion(), engine="outlines-core").generate(constraint, n=12, length=60, seed=0)
    finished = [text for text in texts if text.endswith("}")]
    assert finished
    assert all(jsonschema_rs.is_valid(SCHEMA, constraint.parse(text)) for text in finished)


def test_llguidance_takes_intersection_and_complement() -> None:
    constraint = (dy.Regex("[abc]{2,6}") & ~dy.Regex("(?s).*(ab|ca).*")) + dy.Text("é").repeat(1, 2)
    texts = AutoregressiveSystem(uniform_model()).generate(constraint, n=60, length=20, seed=0)
    assert len(set(texts)) > 10
    for text in texts:
        assert re.fullmatch("[abc]{2,6}é{1,2}", text)
        assert not re.search("ab|ca", text)


@pytest.mark.parametrize(
    ("engine", "constraint", "reason"),
    [
        ("llguidance", dy.JsonSchema({"type": "array", "uniqueItems": True}), "llguidance: .*uniqueItems"),
        ("llguidance", dy.Regex(r"a\b"), "has an anchor or a word boundary"),
        ("outlines-core", dy.Regex("a+") & dy.Regex("b+"), "cannot be written as a regular expression"),
        ("outlines-core", dy.Regex("z"), "outlines-core: .*incompatible"),
        ("outlines-core", dy.Regex("(?:(a|b{3}){300}){200}"), "an expression of 240,000 characters"),
    ],
)
def test_what_an_engine_cannot_take_is_told(engine: EngineName, constraint: dy.Constraint, reason: str) -> None:
    with pytest.raises(dy.UnsupportedConstraint, match=reason):
        AutoregressiveSystem(uniform_model(), engine=engine).generate(constraint, n=1, length=8, seed=0)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_tokenizer_that_puts_a_space_first(engine: EngineName) -> None:
    words = Tokenizer(models.WordLevel({"<end>": 0, "old": 1, "river": 2}, unk_token="<end>"))
    words.add_special_tokens(["<end>"])
    texts = AutoregressiveSystem(uniform_model(words), engine).generate(dy.Regex("old( river){1,2}"), 12, 9, 0)
    assert set(texts) == {"old river", "old river river"}


@pytest.mark.parametrize("pattern", [*PATTERNS, r"[\w.-]{1,3}(?s:.)", "a|", "(?i:É|ß)", r"[^\s\S]|b", "a{2}b{1,}"])
def test_a_plain_regex_means_the_same(pattern: str) -> None:
    plain = re.sub(r"\\x\{([0-9A-F]+)\}", lambda code: f"\\U{int(code[1], 16):08x}", plain_regex(pattern))
    for text in [*strings("abcé", 3), "ÉÉ", "\n", "a.-_", "ß", "ẞ", "bbB", "aaé"]:
        assert bool(re.fullmatch(plain, text)) == bool(re.fullmatch(pattern, text)), text


def test_objects_are_closed_where_that_leaves_something() -> None:
    inner = {"properties": {"properties": {"properties": {"x": {}}}}, "required": ["z"]}
    closed = closed_schema({"type": "array", "items": inner, "default": {"properties": {"no": 1}}})
    assert closed["items"]["additionalProperties"] is False
    assert closed["items"]["properties"]["properties"]["additionalProperties"] is False
    assert jsonschema_rs.is_valid(closed, [{"z": 1, "properties": {"x": 1}}])
    assert not jsonschema_rs.is_valid(closed, [{"z": 1, "y": 1}])
    assert closed["default"] == {"properties": {"no": 1}}
    meeting: dict[str, Any] = {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}
    assert closed_schema(meeting) == meeting
    mapped = {"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}
    assert closed_schema(mapped) == mapped


def test_the_cache_changes_no_logits() -> None:
    model = companion()
    tokens = torch.randint(1, 290, (3, 6), generator=torch.Generator().manual_seed(0))
    whole = model.network(torch.cat([torch.zeros(3, 1, dtype=torch.long), tokens], dim=1))
    sequences = CachedContinuations(model.network, 3, 6, context=[0])
    for k in range(7):
        assert torch.allclose(sequences.logits(), whole[:, k], atol=1e-5)
        if k < 6:
            sequences.append(tokens[:, k])


def test_a_hugging_face_model_by_name(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="pip install 'diffinity[bench]'")
    own = companion()
    size = own.tokenizer.get_vocab_size()
    config = transformers.GPT2Config(
        vocab_size=size + 4, n_embd=16, n_layer=2, n_head=2, n_positions=64, bos_token_id=0, eos_token_id=0
    )
    network = transformers.GPT2LMHeadModel(config).eval()
    network.save_pretrained(tmp_path)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=own.tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>"
    ).save_pretrained(tmp_path)
    model = causal_model(f"hf:{tmp_path}")
    tokens = torch.tensor([[5, 9, 7], [8, 8, 20]])
    sequences = model.start(2, 4)
    whole = network(torch.cat([torch.zeros(2, 1, dtype=torch.long), tokens], dim=1)).logits
    for k in range(3):
        assert torch.allclose(sequences.logits(), whole[:, k], atol=1e-4)
        sequences.append(tokens[:, k])
    constraint = Sentence("prefix", ("the",), 2)
    for engine in ENGINES:
        texts = AutoregressiveSystem(model, engine=engine).generate(constraint, n=3, length=40, seed=0)
        assert any(re.fullmatch(constraint.pattern(), text) for text in texts)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(dy.InvalidArgument, match="engine must be"):
        AutoregressiveSystem(uniform_model(), engine="guidance")  # type: ignore[arg-type]
    with pytest.raises(dy.InvalidArgument, match="top_p"):
        AutoregressiveSystem(uniform_model(), top_p=0)
    with pytest.raises(dy.InvalidArgument, match="n and length"):
        AutoregressiveSystem(uniform_model()).generate(dy.Text("a"), n=1, length=0, seed=0)

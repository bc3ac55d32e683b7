"""Alignment: token sequences are accepted exactly when the bytes that they spell are in the language."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

import diffinity as dy
from diffinity.alignment import FRAMINGS, Framing, Vocabulary, align, clear_cache
from diffinity.constraints import Regex
from diffinity.errors import InfeasibleConstraint
from diffinity.limits import Limits
from diffinity.models.tokenization import train_bpe

TOKENS = [b"a", b"b", b"ab", b"", "é".encode()[:1], "é".encode()[1:], None, None]
SMALL = Vocabulary(TOKENS, eos_id=6)
PATTERNS = ["a*", "(ab)+", "[abé]*é", "a|ab|b", "(é|a)b?", ".*", "x", "b{2}"]


def in_framing(pattern: str, framing: Framing, ids: tuple[int, ...]) -> bool:
    """The definition of each framing, with `re` on the decoded text."""

    def matches(part: tuple[int, ...]) -> bool:
        data = b"".join(TOKENS[i] or b"" for i in part)
        try:
            return re.fullmatch(pattern, data.decode()) is not None
        except UnicodeDecodeError:
            return False

    if 7 in ids:
        return False
    if framing == "exact":
        return 6 not in ids and matches(ids)
    if framing in ("eos", "eos_strict"):
        if 6 not in ids:
            return False
        end = ids.index(6)
        tail = ids[end:]
        return matches(ids[:end]) and (framing == "eos" or set(tail) == {6})
    pieces: list[bytes] = [b""]
    for i in ids:
        if i == 6:
            pieces.append(b"")
        else:
            pieces[-1] += TOKENS[i] or b""
    return any(
        re.fullmatch(pattern, text) is not None
        for piece in pieces
        for begin, end in itertools.combinations_with_replacement(range(len(piece) + 1), 2)
        if (text := _decoded(piece[begin:end])) is not None
    )


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_short_sequence_is_judged_as_its_text(pattern: str, framing: Framing) -> None:
    automaton = align(Regex(pattern), SMALL, framing)
    for length in range(4):
        for ids in itertools.product(range(len(TOKENS)), repeat=length):
            assert automaton.accepts(ids) == in_framing(pattern, framing, ids), ids


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_feasible_and_shortest_are_those_of_enumeration(pattern: str, framing: Framing) -> None:
    automaton = align(Regex(pattern), SMALL, framing)
    by_length = [
        any(in_framing(pattern, framing, ids) for ids in itertools.product(range(len(TOKENS)), repeat=length))
        for length in range(5)
    ]
    assert [automaton.feasible(length) for length in range(5)] == by_length
    shortest = automaton.shortest()
    if True in by_length:
        assert shortest is not None
        assert len(shortest) == by_length.index(True)
        assert in_framing(pattern, framing, tuple(shortest))
    else:
        assert shortest is None


def test_tokens_are_in_one_class_exactly_when_their_columns_are_equal() -> None:
    automaton = align(Regex("[a-z]+ [0-9]+"), Vocabulary([bytes([b]) for b in range(256)]), "exact")
    columns = automaton.next.T
    assert len({column.tobytes() for column in columns}) == automaton.n_classes
    letters = {int(automaton.class_of[b]) for b in b"abcxyz"}
    assert len(letters) == 1


def test_states_that_no_token_sequence_can_use_disappear() -> None:
    """Without single letters, "abc" can be reached only in one jump."""
    automaton = align(Regex("abc"), Vocabulary([b"abc", b"b"]), "exact")
    assert automaton.n_states == 2


def test_transitions_are_counted_as_in_the_paper() -> None:
    automaton = align(Regex("a*b"), Vocabulary([b"a", b"aa", b"b", b"ab", b"c"]), "exact")
    by_hand = sum(
        1 for s in range(automaton.n_states) for v in range(5) if automaton.next[s, automaton.class_of[v]] >= 0
    )
    assert automaton.n_transitions == by_hand == 4


@pytest.fixture(scope="module")
def plaid_vocabulary(plaid_fixtures: Path) -> Vocabulary:
    return Vocabulary.from_tokenizer(plaid_fixtures / "owt2_tokenizer.json")


def test_plaid_s_tokenizer_has_its_known_numbers(plaid_vocabulary: Vocabulary) -> None:
    assert len(plaid_vocabulary) == 32768
    assert plaid_vocabulary.trie.n_nodes == 64211
    parts = [token for token in plaid_vocabulary.tokens if token and _decoded(token) is None]
    assert len(parts) == 211
    automaton = align(Regex("[A-Za-z]+ to [A-Za-z .,]*"), plaid_vocabulary, "exact")
    assert automaton.n_transitions == 72_166


@pytest.mark.parametrize(
    "pattern",
    ["[A-Za-z]+ to [A-Za-z .,]*", r"(\w+ ){2}the( \w+)*\.", r"[^a]*é[^a]*", r"(?s).*[ÿ-鿿].*", r"\{\"a\": \d+\}"],
)
def test_real_vocabulary_sequences_are_judged_as_their_bytes(plaid_vocabulary: Vocabulary, pattern: str) -> None:
    """Random sequences, and all kinds of tokenisations of accepted texts, against `re` on the bytes."""
    automaton = align(Regex(pattern), plaid_vocabulary, "exact")
    dfa = Regex(pattern).dfa()
    rng = random.Random(0)
    ordinary = plaid_vocabulary.ordinary.tolist()
    by_bytes: dict[bytes, list[int]] = {}
    for i in ordinary:
        by_bytes.setdefault(plaid_vocabulary.tokens[i] or b"", []).append(i)
    seen = {True: 0, False: 0}
    for _ in range(150):
        text = dfa.sample(rng, max_length=24)
        ids = _random_tokenisation(text, by_bytes, rng)
        if rng.random() < 0.5 and ids:
            ids[rng.randrange(len(ids))] = rng.choice(ordinary)
        data = b"".join(plaid_vocabulary.tokens[i] or b"" for i in ids)
        decoded = _decoded(data)
        wanted = decoded is not None and re.fullmatch(pattern, decoded) is not None
        assert automaton.accepts(ids) == wanted, data
        seen[wanted] += 1
    assert min(seen.values()) > 10


def _random_tokenisation(text: bytes, by_bytes: dict[bytes, list[int]], rng: random.Random) -> list[int]:
    ids, at = [], 0
    while at < len(text):
        fitting = [n for n in range(1, 12) if text[at : at + n] in by_bytes and at + n <= len(text)]
        step = rng.choice(fitting)
        ids.append(rng.choice(by_bytes[text[at : at + step]]))
        at += step
    return ids


@given(seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_random_vocabularies_agree_with_the_byte_automaton(seed: int) -> None:
    rng = random.Random(seed)
    tokens = [bytes(rng.choices(b"ab\xc3\xa9", k=rng.randint(1, 4))) for _ in range(rng.randint(1, 30))]
    pattern = rng.choice(PATTERNS)
    automaton, dfa = align(Regex(pattern), Vocabulary(tokens), "exact"), Regex(pattern).dfa()
    for _ in range(50):
        ids = [rng.randrange(len(tokens)) for _ in range(rng.randint(0, 5))]
        assert automaton.accepts(ids) == dfa.accepts(b"".join(tokens[i] for i in ids))


def test_samples_are_uniform_over_the_accepted_sequences() -> None:
    automaton = align(Regex("(ab|b)*a?"), SMALL, "eos")
    sequences = [ids for ids in itertools.product(range(8), repeat=3) if automaton.accepts(ids)]
    rng = np.random.default_rng(0)
    n = 40 * len(sequences)
    counts = dict.fromkeys(sequences, 0)
    for _ in range(n):
        counts[tuple(automaton.sample(rng, 3))] += 1
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_equal_languages_share_one_aligned_automaton() -> None:
    clear_cache()
    assert align(Regex("a|b"), SMALL, "eos") is align(Regex("[ab]"), SMALL, "eos")
    assert align(Regex("a|b"), SMALL, "exact") is not align(Regex("a|b"), SMALL, "eos")


def test_an_empty_language_is_infeasible_at_any_length() -> None:
    automaton = align(Regex("a") & Regex("b"), SMALL, "eos")
    with pytest.raises(InfeasibleConstraint, match="of any length"):
        automaton.check_feasible(5)


def test_a_language_that_the_tokens_can_not_spell_is_infeasible() -> None:
    assert align(Regex("x"), SMALL, "eos").is_empty


def test_an_end_framing_needs_an_end_token() -> None:
    with pytest.raises(dy.InvalidArgument, match="needs an end token"):
        align(Regex("a"), Vocabulary([b"a"]), "eos")


def test_an_unknown_framing_is_refused() -> None:
    with pytest.raises(dy.InvalidArgument, match="framing must be one of"):
        align(Regex("a"), SMALL, "loose")  # type: ignore[arg-type]


def test_a_memory_limit_is_checked_while_aligning() -> None:
    clear_cache()
    with pytest.raises(dy.DiffinityError, match="memory_bytes"):
        align(Regex("[ab]{300}").dfa(), SMALL, "exact", limits=Limits(memory_bytes=4000))


# ---- vocabularies


def check_against_decoding(tokenizer: Tokenizer, vocabulary: Vocabulary, seed: int = 0) -> None:
    """What the vocabulary spells is what the tokenizer decodes, for random sequences that decode to text."""
    rng = random.Random(seed)
    ordinary = vocabulary.ordinary.tolist()
    checked = 0
    for _ in range(300):
        ids = [rng.choice(ordinary) for _ in range(rng.randint(1, 6))]
        data = b"".join(vocabulary.tokens[i] or b"" for i in ids)
        if vocabulary.leading and not data.startswith(vocabulary.leading):
            continue
        text = tokenizer.decode(ids, skip_special_tokens=False)
        if "�" not in text:
            assert vocabulary.spell(ids) == text.encode(), ids
            checked += 1
    assert checked > 50


def test_byte_level_bpe_spells_what_it_decodes() -> None:
    tokenizer = train_bpe(["the cat sat; le café était là. 猫が座った"] * 3, 400)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.eos_id == 0
    assert vocabulary.leading == b""
    check_against_decoding(tokenizer, vocabulary)


def test_metaspace_with_byte_fallback_spells_what_it_decodes() -> None:
    words = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "▁the", "▁cat", "s", "▁", "é", "▁é"]
    tokenizer = Tokenizer(
        models.BPE({word: i for i, word in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.eos_id == 2
    assert vocabulary.tokens[3 + 0xE9] == b"\xe9"
    assert vocabulary.leading == b" "
    ids = [259, 261, 260]
    assert vocabulary.spell(ids) == tokenizer.decode(ids).encode() == b"thes cat"
    automaton = align(Regex("thes cat"), vocabulary, "exact")
    assert automaton.accepts(ids)
    assert not automaton.accepts([261, 260])


def test_word_piece_spells_what_it_decodes() -> None:
    words = [
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "the",
        "cat",
        "##s",
        "##er",
        ".",
        ",",
        "'",
        "un",
        "##believ",
        "##able",
        "!",
    ]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=True)
    tokenizer.add_special_tokens(["[UNK]", "[CLS]", "[SEP]"])
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.eos_id == 2
    check_against_decoding(tokenizer, vocabulary)
    ids = tokenizer.encode("the cats unbelievable.").ids
    assert align(Regex(r"the cats unbelievable\."), vocabulary, "exact").accepts(ids)


def test_special_tokens_other_than_the_end_are_never_allowed() -> None:
    automaton = align(Regex("(?s).*"), SMALL, "eos")
    assert automaton.accepts((0, 6, 1))
    assert not automaton.accepts((0, 6, 7))
    assert not automaton.accepts((7, 6, 0))


def test_an_end_token_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(dy.InvalidArgument, match="eos_id 9 is not a token"):
        Vocabulary([b"a"], eos_id=9)


def test_markov_model_takes_an_aligned_automaton() -> None:
    """The exact P(language) of the Markov model on real automata: a language and its complement sum to one."""
    model = dy.fit_markov(["the cat sat.", "the dog ran."], vocab_size=300)
    vocabulary = Vocabulary.from_tokenizer(model.tokenizer)
    inside, outside = (
        model.log_acceptance(align(c, vocabulary, "eos"), length=12).exp()
        for c in (Regex("the cat.*"), ~Regex("the cat.*"))
    )
    assert 0.2 < float(inside) < 0.8
    finished = model.log_acceptance(align(Regex("(?s).*"), vocabulary, "eos"), length=12).exp()
    invalid = 1 - float(finished)
    assert float(inside + outside) == pytest.approx(1.0 - invalid, abs=1e-9)
    assert torch.isfinite(inside).all()


@pytest.mark.parametrize(
    "pattern", ["a*", "(ab)+", "[abé]*é", "x", "(a|b)*abb(a|ab|é){2}", "([ab]{2})*é[ab]{3}", "(ab?){5}(é|b){0,3}"]
)
@pytest.mark.parametrize("framing", FRAMINGS)
def test_arrows_are_the_transitions(pattern: str, framing: Framing) -> None:
    automaton = align(Regex(pattern), SMALL, framing)
    edges, arrows = automaton.edges, automaton.arrows
    states = [[s] for s in range(automaton.n_states)]
    states += [h.tolist() for h in np.split(arrows.hub_states, arrows.hub_first[1:-1])][
        : len(arrows.hub_first) - 1
    ]

    def transitions(arrow: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """Every state of every node, with every class of the group."""
        classes = np.split(edges.members, edges.members_first[1:-1])
        return sorted(
            (s, int(c), head) for node, group, head in arrow for s in states[node] for c in classes[group]
        )

    heads = np.repeat(np.arange(automaton.n_states), np.diff(arrows.in_first))
    nodes = np.repeat(np.arange(arrows.n_nodes), np.diff(arrows.out_first))
    into = list(zip(arrows.in_node.tolist(), arrows.in_group.tolist(), heads.tolist(), strict=True))
    out = list(zip(nodes.tolist(), arrows.out_group.tolist(), arrows.out_head.tolist(), strict=True))
    tails, labels = np.nonzero(automaton.next >= 0)
    wanted = zip(tails.tolist(), labels.tolist(), automaton.next[tails, labels].tolist(), strict=True)
    assert transitions(into) == transitions(out) == sorted(wanted)
    assert all(len(hub) > 1 for hub in states[automaton.n_states :])
    assert len({(group, head) for _, group, head in into}) == len(into)


def test_states_with_arrows_in_common_make_a_hub() -> None:
    automaton = align(Regex("(a|b)*abb"), SMALL, "eos")
    assert automaton.arrows.n_nodes > automaton.n_states
    assert len(automaton.arrows.in_node) < len(automaton.edges.head)

"""The algebra of automata against sets of enumerated strings; counts, samples and shortest by brute force."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from functools import reduce
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.regex import compile_regex
from diffinity.errors import ConstraintTooLarge, InfeasibleConstraint, InvalidArgument
from diffinity.limits import use_limits

ALPHABET = b"ab"
LONGEST = 6
UNIVERSE = frozenset(bytes(w) for n in range(LONGEST + 1) for w in product(ALPHABET, repeat=n))
Language = frozenset[bytes]
DFAWithStrings = tuple[ByteDFA, Language]

words = st.binary(max_size=3).map(lambda data: bytes(ALPHABET[b % 2] for b in data))
finite = st.frozensets(words, max_size=6)
law = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def short(language: frozenset[bytes]) -> Language:
    return language & UNIVERSE


def joined(left: Language, right: Language) -> Language:
    return short(frozenset(a + b for a in left for b in right))


def starred(language: Language) -> Language:
    total: Language = frozenset([b""])
    while (more := total | joined(total, language)) != total:
        total = more
    return total


def listed(dfa: ByteDFA) -> Language:
    return frozenset(w for w in UNIVERSE if dfa.accepts(w))


@st.composite
def languages(draw: st.DrawFn, depth: int = 3) -> DFAWithStrings:
    """An automaton made by random operations, and the same operations on sets of short strings."""
    if depth == 0 or draw(st.booleans()):
        chosen = draw(finite)
        return ByteDFA.from_strings(chosen), short(chosen)
    dfa, language = draw(languages(depth=depth - 1))
    kind = draw(st.sampled_from(["union", "intersection", "difference", "concat", "star", "repeat", "optional"]))
    if kind == "star":
        return dfa.star(), starred(language)
    if kind == "optional":
        return dfa.optional(), language | {b""}
    if kind == "repeat":
        low, more = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        powers = [frozenset([b""])]
        for _ in range(low + more):
            powers.append(joined(powers[-1], language))
        return dfa.repeat(low, low + more), reduce(frozenset.union, powers[low:])
    other, its = draw(languages(depth=depth - 1))
    if kind == "union":
        return dfa.union(other), language | its
    if kind == "intersection":
        return dfa.intersection(other), language & its
    if kind == "difference":
        return dfa.difference(other), language - its
    return dfa.concat(other), joined(language, its)


@law
@given(languages())
def test_operations_on_automata_are_operations_on_sets(made: DFAWithStrings) -> None:
    dfa, language = made
    assert listed(dfa) == language


@law
@given(languages(), languages())
def test_equality_is_equality_of_languages(left: DFAWithStrings, right: DFAWithStrings) -> None:
    a, b = left[0], right[0]
    assert a.union(b) == b.union(a)
    assert a.intersection(b) == a.difference(a.difference(b))
    assert (a == b) == (a.difference(b).is_empty and b.difference(a).is_empty)


@law
@given(languages(), languages())
def test_de_morgan_holds_within_utf8(left: DFAWithStrings, right: DFAWithStrings) -> None:
    a, b = left[0], right[0]
    assert a.union(b).complement() == a.complement().intersection(b.complement())
    assert a.complement().complement() == a


@law
@given(languages())
def test_every_state_is_of_use_and_numbered_breadth_first(made: DFAWithStrings) -> None:
    dfa = made[0]
    order = [0]
    for state in order:
        order += [t for t in dict.fromkeys(dfa.table[state].tolist()) if t >= 0 and t not in order]
    assert order == list(range(dfa.n_states))
    assert dfa.is_empty or (dfa.distances >= 0).all()


@law
@given(languages())
def test_counts_shortest_and_finiteness_are_those_of_the_listed_strings(made: DFAWithStrings) -> None:
    dfa, language = made
    sizes = Counter(map(len, language))
    assert dfa.counts(LONGEST) == [sizes[n] for n in range(LONGEST + 1)]
    if language:
        assert dfa.shortest() == min(language, key=lambda w: (len(w), w))
    if dfa.is_finite:
        assert all(dfa.count(n) == 0 for n in range(dfa.n_states, dfa.n_states + 3))
    else:
        assert any(dfa.count(n) > 0 for n in range(dfa.n_states, 2 * dfa.n_states + 1))


def test_a_hundred_thousand_words_make_a_minimal_automaton() -> None:
    rng = random.Random(0)
    dictionary = {bytes(rng.choices(b"abcdefgh", k=rng.randint(1, 6))) for _ in range(100_000)}
    dfa = ByteDFA.from_strings(dictionary)
    assert sum(dfa.counts(7)) == len(dictionary)
    assert all(dfa.accepts(word) for word in rng.sample(sorted(dictionary), 300))
    # By Myhill and Nerode: as many states as different sets of endings.
    endings: dict[bytes, set[bytes]] = {}
    for word in dictionary:
        for i in range(len(word) + 1):
            endings.setdefault(word[:i], set()).add(word[i:])
    assert dfa.n_states == len({frozenset(s) for s in endings.values()})


def test_strings_may_use_every_byte() -> None:
    dfa = ByteDFA.from_strings(bytes([b]) for b in range(256))
    assert dfa == ByteDFA.any_bytes().intersection(dfa)
    assert (dfa.n_states, dfa.n_classes, dfa.count(1)) == (2, 1, 256)


def test_valid_utf8_is_what_python_decodes() -> None:
    utf8 = ByteDFA.utf8()
    rng = random.Random(3)
    for _ in range(3000):
        data = bytes(rng.choice([*range(0x7E, 0x82), *range(0xBE, 0x100)]) for _ in range(rng.randint(0, 4)))
        try:
            data.decode()
        except UnicodeDecodeError:
            assert not utf8.accepts(data)
        else:
            assert utf8.accepts(data)
    assert utf8.counts(4)[1:3] == [128, 128**2 + (0x800 - 0x80)]


def test_samples_are_accepted_reach_everything_and_respect_the_length() -> None:
    dfa = ByteDFA.from_strings([b"a", b"b"]).repeat(1, 3)
    rng = random.Random(0)
    seen = {dfa.sample(rng) for _ in range(500)}
    assert seen == listed(dfa)
    endless = ByteDFA.utf8().concat(ByteDFA.literal(b"end"))
    samples = [endless.sample(rng, 20) for _ in range(300)]
    assert all(endless.accepts(s) and len(s) <= 23 for s in samples)


def test_uniform_samples_are_uniform() -> None:
    dfa = compile_regex("(a|bb|[c-e])*").intersection(compile_regex("[a-d]*"))
    strings = [w for w in map(bytes, product(b"abcd", repeat=4)) if dfa.accepts(w)]
    assert dfa.count(4) == len(strings)
    rng = random.Random(1)
    drawn = Counter(dfa.sample_uniform(4, rng) for _ in range(60 * len(strings)))
    assert {*drawn} <= {*strings}
    assert chisquare([drawn[s] for s in strings]).pvalue > 0.001


def test_sampling_what_does_not_exist_is_infeasible() -> None:
    with pytest.raises(InfeasibleConstraint, match="empty"):
        ByteDFA.empty().sample(random.Random(0))
    with pytest.raises(InfeasibleConstraint, match="exactly 3 bytes"):
        ByteDFA.literal(b"ab").sample_uniform(3, random.Random(0))
    assert ByteDFA.empty().shortest() is None


def test_counts_are_exact_beyond_machine_integers() -> None:
    assert ByteDFA.any_bytes().count(100) == 256**100
    assert compile_regex("[ab]{200}").count(200) == 2**200


def test_an_automaton_cannot_be_changed() -> None:
    dfa = ByteDFA.literal(b"a")
    with pytest.raises(ValueError, match="read-only"):
        dfa.table[0, 0] = 1
    with pytest.raises(AttributeError):
        dfa.table = np.zeros((1, 1), np.int32)  # type: ignore[misc]


def test_an_automaton_survives_pickling() -> None:
    dfa = compile_regex("a+b")
    again = pickle.loads(pickle.dumps(dfa))
    assert again == dfa
    assert not again.table.flags.writeable


def test_byte_ranges_say_the_same_as_the_table() -> None:
    for pattern in (r"\w+", "[a-cx]*|é", "a", "(?s).*"):
        dfa = compile_regex(pattern)
        full = np.full((dfa.n_states, 256), -1)
        for source, low, high, target in zip(*dfa.byte_ranges, strict=True):
            assert (full[source, low : high + 1] == -1).all()
            full[source, low : high + 1] = target
        assert np.array_equal(full, dfa.table[:, dfa.byte_class])


def test_bounds_of_a_repetition_are_checked() -> None:
    with pytest.raises(InvalidArgument, match="min <= max"):
        ByteDFA.literal(b"a").repeat(3, 2)
    with pytest.raises(ConstraintTooLarge, match="nfa_states"):
        ByteDFA.literal(b"abc").repeat(0, 10**9)
    assert ByteDFA.literal(b"abc").repeat(0, 0) == ByteDFA.epsilon()
    assert ByteDFA.empty().star() == ByteDFA.epsilon()


def test_a_product_stops_at_the_limit() -> None:
    left, right = compile_regex("(a{97})*|b"), compile_regex("(a{101})*|c")
    with use_limits(dfa_states=5000), pytest.raises(ConstraintTooLarge, match="dfa_states"):
        left.intersection(right)
    assert left.intersection(right).n_states == 97 * 101

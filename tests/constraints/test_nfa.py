"""Subset construction and minimisation against a machine that is run by hand."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.nfa import NfaBuilder
from diffinity.errors import ConstraintTooLarge, InvalidArgument
from diffinity.limits import Limits

ALPHABET = b"abc"
SHORT = [bytes(w) for n in range(6) for w in product(ALPHABET, repeat=n)]

Edge = tuple[int, int, int, int]


def random_machine(rng: random.Random) -> tuple[int, list[Edge], list[tuple[int, int]], set[int]]:
    n = rng.randint(1, 7)
    edges = []
    for _ in range(rng.randint(0, 12)):
        low = rng.choice(ALPHABET)
        edges.append((rng.randrange(n), low, rng.randint(low, ALPHABET[-1]), rng.randrange(n)))
    epsilons = [(rng.randrange(n), rng.randrange(n)) for _ in range(rng.randint(0, 5))]
    return n, edges, epsilons, {s for s in range(n) if rng.random() < 0.3}


def by_hand(edges: list[Edge], epsilons: list[tuple[int, int]], final: set[int], word: bytes) -> bool:
    def close(states: set[int]) -> set[int]:
        while True:
            more = states | {t for s, t in epsilons if s in states}
            if more == states:
                return states
            states = more

    states = close({0})
    for byte in word:
        states = close({t for s, low, high, t in edges if s in states and low <= byte <= high})
    return bool(states & final)


def build(n: int, edges: list[Edge], epsilons: list[tuple[int, int]], final: set[int]) -> ByteDFA:
    nfa = NfaBuilder()
    nfa.states(n)
    for edge in edges:
        nfa.edge(*edge)
    for epsilon in epsilons:
        nfa.epsilon(*epsilon)
    return nfa.build(0, final)


def residuals(dfa: ByteDFA, words: list[bytes]) -> list[tuple[bool, ...]]:
    """Which of `words` each state accepts, by walking the table."""

    def ends(state: int, word: bytes) -> bool:
        after = dfa.run(word, state)
        return after >= 0 and bool(dfa.accepting[after])

    return [tuple(ends(s, w) for w in words) for s in range(dfa.n_states)]


@pytest.mark.parametrize("seed", range(150))
def test_a_random_machine_accepts_what_running_it_by_hand_accepts(seed: int) -> None:
    machine = random_machine(random.Random(seed))
    dfa = build(*machine)
    _, edges, epsilons, final = machine
    assert [dfa.accepts(w) for w in SHORT] == [by_hand(edges, epsilons, final, w) for w in SHORT]


@pytest.mark.parametrize("seed", range(40))
def test_no_two_states_are_equivalent_and_none_is_dead(seed: int) -> None:
    dfa = build(*random_machine(random.Random(1000 + seed)))
    seen = residuals(dfa, [bytes(w) for n in range(8) for w in product(ALPHABET, repeat=n)])
    assert len(set(seen)) == dfa.n_states
    assert dfa.is_empty or all(any(row) for row in seen)


@pytest.mark.parametrize("seed", range(40))
def test_another_numbering_of_the_states_gives_equal_arrays(seed: int) -> None:
    rng = random.Random(2000 + seed)
    n, edges, epsilons, final = random_machine(rng)
    other = [0, *rng.sample(range(1, n + 2), n + 1)]
    rng.shuffle(edges)
    renamed = build(
        n + 2,
        [(other[s], low, high, other[t]) for s, low, high, t in edges],
        [(other[s], other[t]) for s, t in epsilons],
        {other[s] for s in final},
    )
    original = build(n, edges, epsilons, final)
    assert np.array_equal(original.table, renamed.table)
    assert np.array_equal(original.byte_class, renamed.byte_class)
    assert original == renamed
    assert hash(original) == hash(renamed)


def test_embedding_copies_a_language_between_two_states() -> None:
    nfa = NfaBuilder()
    start, middle, end = nfa.state(), nfa.state(), nfa.state()
    nfa.embed(ByteDFA.from_strings([b"a", b"ab"]).star(), start, middle)
    nfa.literal(b"", middle, end)
    nfa.literal(b"bc", middle, end)
    dfa = nfa.build(start, [end])
    accepted = [w for w in SHORT if dfa.accepts(w)]
    plain = [w for w in SHORT if w.replace(b"ab", b"a").strip(b"a") == b""]
    assert accepted == [w for w in SHORT if w in plain or (w.endswith(b"bc") and w[:-2] in plain)]


def test_a_range_outside_a_byte_is_refused() -> None:
    nfa = NfaBuilder()
    with pytest.raises(InvalidArgument, match="0 to 255"):
        nfa.edge(nfa.state(), 10, 256, 0)


def test_nth_letter_from_the_end_is_exponential_and_stops_at_the_limit() -> None:
    nfa = NfaBuilder(Limits(dfa_states=1000))
    start = nfa.state()
    nfa.edge(start, 97, 98, start)
    place = nfa.state()
    nfa.edge(start, 97, 97, place)
    for _ in range(20):
        after = nfa.state()
        nfa.edge(place, 97, 98, after)
        place = after
    with pytest.raises(ConstraintTooLarge, match=r"dfa_states of at least 1,001.*use_limits\(dfa_states"):
        nfa.build(start, [place])


def test_too_many_states_are_refused_while_they_are_made() -> None:
    nfa = NfaBuilder(Limits(nfa_states=5000))
    with pytest.raises(ConstraintTooLarge, match="nfa_states"):
        nfa.literal(b"x" * 10_000, nfa.state(), nfa.state())

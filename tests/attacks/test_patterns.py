"""Hostile patterns, grammars and texts: each with the refusal that it gets, or a right automaton, in bounds.

Every attack may take 1 GB of address space beyond what the process had. The limit that stops it is a function of
counted work, so each has one; how long it takes is measured by `benchmarks/hostile.py`.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from diffinity.constraints import ByteDFA, Choice, Grammar, Regex, Repeat, Text, constraint
from diffinity.constraints.warm import kernels_ready
from diffinity.errors import ConstraintSyntaxError, ConstraintTooLarge, InvalidArgument
from diffinity.limits import use_limits

BYTES = 1 << 30
STATM = Path("/proc/self/statm")


@pytest.fixture(autouse=True, scope="module")
def _compiled_kernels() -> None:
    kernels_ready()


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    """An address space that an attack would have to break."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if STATM.exists():  # Linux
        used = int(STATM.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


TOO_LARGE = {
    "exponential subset construction": ("(?s).*a.{16}", "dfa_states"),
    "the same in ASCII": ("[ab]*a[ab]{40}", "dfa_states"),
    "two of them": ("([ab]*a[ab]{20}){2}", "dfa_states"),
    "nested counts": ("(((a{0,100}){0,100}){0,100})", "nfa_states"),
    "nested counts that do not join": ("((a{2,300}b){2,300}c){2,300}", "nfa_states"),
    "one huge count": ("a{2000000}", "nfa_states"),
    "a count of nine digits": ("a{999999999}", "nfa_states"),
    "an open count of nine digits": ("(ab){999999999,}", "nfa_states"),
    "a million Unicode words": (r"\w{0,20000}", "dfa_states"),
    "counted word in a counted phrase": (r"(\w{1,50} ){50}", "dfa_states"),
    "optional chain of two letters": ("(a?b?){100000}", "nfa_states"),
    "nullable loops": (
        "((a*)*b*)*{300}".replace("*{", "{") + "((a?b?c?){300}){300}",
        "nfa_states",
    ),
    "anchors in a counted loop": (
        r"(\b\w\b\W){20000}",
        "nfa_states",
    ),
    "many word edges": (r"(?:\bx|\By){100000}", "nfa_states"),
    "fifty thousand Unicode letters": (r"\w" * 49_000, "dfa_states"),
    "fifty thousand optional letters": ("a?" * 49_000, "compile_steps"),
    "many optional groups": ("(?:ab?c)?" * 11_000, "compile_steps"),
    "deep parentheses": ("(" * 5000 + "a" + ")" * 5000, "nesting_depth"),
    "deep loops": ("(?:" * 400 + "a" + ")*" * 400, "nesting_depth"),
    "deep lookaheads": ("(?=" * 3000 + "a" + ")" * 3000, "nesting_depth"),
    "a pattern of a megabyte": ("a" * 1_000_000, "pattern_length"),
    "a megabyte of alternatives": ("|".join(f"x{i}" for i in range(120_000)), "pattern_length"),
    "all sets different, all overlapping": (
        "|".join(f"[^{chr(300 + i)}]{{{i % 7},40}}" for i in range(1500)),
        "nfa_edges",
    ),
    "coprime loops": (
        "|".join(f"(a{{{p}}})*" for p in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)),
        "dfa_states",
    ),
    "classic catastrophe, counted": (
        "(.*)(.*)(.*)(.*)[0-9]{3}(.*a.{30})",
        "dfa_states",
    ),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_pattern_that_would_cost_too_much_is_refused_with_the_limit(name: str) -> None:
    pattern, limit = TOO_LARGE[name]
    with pytest.raises(ConstraintTooLarge, match=r"use_limits\(") as refused:
        Regex(pattern).dfa()
    assert refused.value.limit == limit
    assert refused.value.needed > refused.value.allowed


COMPILES = {
    "catastrophic backtracking": ("(a+)+b", "a" * 30 + "b", "a" * 30),
    "catastrophic alternatives": ("(a|aa)+", "a" * 50, "a" * 50 + "b"),
    "nullable loops of loops": ("((a*)*)*", "a" * 30, "b"),
    "Unicode dot ten thousand times": (".{0,10000}", "é" * 10_000, "é" * 10_001),
    "two hundred Unicode word characters": (r"\w{0,200}", "ß" * 200, "ß" * 201),
    "five thousand optional letters": ("(a?){5000}", "a" * 5000, "a" * 5001),
    "five thousand optional pairs": ("(a?b?){2000}", "ab" * 2000, "ba" * 2001),
    "empty loops of anchors": (r"(?:\b|^|$)*x(?:\B|\b)*", "x", ""),
    "NUL and newline": ("a\x00\n", "a\x00\n", "a"),
    "a bracket full of brackets": (r"[]\[^-]+", "]^[-", "a"),
    "all of Unicode, one range each": ("[" + "".join(chr(c) for c in range(0x100, 0x3000, 2)) + "]", "Ā", "ā"),
    "ten thousand alternatives": ("|".join(f"w{i}" for i in range(10_000)), "w9999", "w10000"),
    "hundreds of sets without case": (
        "(?i)" + "".join(f"[a-{chr(98 + i % 24)}{chr(0x400 + i)}]?" for i in range(300)),
        "A\u0410",
        "!",
    ),
    "as many different characters": ("|".join(chr(0x4E00 + i) + "x" for i in range(9000)), "\u4e00x", "\u4e00"),
    "a surrogate range": ("a|[\ud800-\udfff]", "a", "b"),
    "a hundred nested groups": ("(" * 100 + "a" + ")" * 100, "a", "b"),
}


@pytest.mark.parametrize("name", COMPILES)
def test_a_pattern_that_only_looks_dangerous_compiles_and_is_right(name: str) -> None:
    pattern, inside, outside = COMPILES[name]
    dfa = Regex(pattern).dfa()
    assert dfa.accepts(inside.encode())
    assert not dfa.accepts(outside.encode())


MALFORMED = {
    "unbalanced": "(" * 40,
    "unclosed set": "[a-z",
    "count beyond 32 bits": "a{99999999999999999999}",
    "count of ten thousand digits": "a{" + "9" * 10_000 + "}",
    "contradicting flags": "(?au)x",
    "bytes-only flag": "(?L)x",
    "bad escape": r"\q",
    "bad code point": r"\U00110000",
    "unknown character name": r"\N{NO SUCH NAME}",
    "exponential back-reference": r"(a*)*\1" * 20,
    "nested lookbehind": "(?<=(?<=(?<=a)))",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_pattern_that_is_not_regular_or_not_a_pattern_is_a_syntax_error(name: str) -> None:
    with pytest.raises(ConstraintSyntaxError):
        Regex(MALFORMED[name])


OTHERS: dict[str, Callable[[], object]] = {
    "complement of an exponential": lambda: (~Regex("[ab]*a[ab]{30}")).dfa(),
    "product of two large machines": lambda: (Regex("(a{4999}|b)*") & Regex("(a{5003}|b)*")).dfa(),
    "many intersections": lambda: (
        Regex("(a{97})*") & Regex("(a{101})*") & Regex("(a{103})*") & Regex("(a{107})*")
    ).dfa(),
    "repetition of a repetition": lambda: Repeat(Repeat(Text("abc"), 0, 5000), 0, 5000).dfa(),
    "star of a huge repetition": lambda: ByteDFA.literal(b"ab").repeat(0, 10**12),
    "a grammar that doubles at each depth": lambda: Grammar('a = "(" a a ")" | "x" ;', max_depth=60).dfa(),
    "a deep grammar": lambda: Grammar("a = " + "(" * 3000 + '"x"' + ")" * 3000),
    "a grammar of a megabyte": lambda: Grammar('a = "' + "x" * 1_000_000 + '" ;'),
    "a counted grammar": lambda: Grammar('a = (("x"{1000} "y"){1000} "z"){1000} ;').dfa(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_constraints_keep_to_the_same_limits(name: str) -> None:
    with pytest.raises(ConstraintTooLarge):
        OTHERS[name]()


def test_three_hundred_thousand_choices_compile() -> None:
    options = [f"{i:06}{i % 7}" for i in range(300_000)]
    choice = Choice(options)
    assert choice.accepts(options[-1])
    assert not choice.accepts("2999991")


def test_invalid_utf8_and_surrogates_are_never_accepted() -> None:
    anything = Regex("(?s).*")
    for data in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"a\x80"):
        assert not anything.accepts(data)
        assert not (~Text("x")).accepts(data)
    assert not anything.accepts("\ud83d")
    with pytest.raises(InvalidArgument, match="surrogate"):
        constraint("\udc00")


def test_a_raised_limit_is_honoured_and_then_gone() -> None:
    pattern = "[ab]*a[ab]{17}"
    with use_limits(dfa_states=300_000):
        assert Regex(pattern).dfa().n_states == 2**18
    with pytest.raises(ConstraintTooLarge, match="dfa_states"):
        Regex(pattern).dfa()

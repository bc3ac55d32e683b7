"""Regular expressions against `re.fullmatch`, on patterns and texts from a seed, and against outlines-core."""

from __future__ import annotations

import random
import re
import warnings
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.regex import compile_regex
from diffinity.errors import ConstraintSyntaxError

# ---- patterns and texts from a seed

ATOMS = [
    *"abcAB01_ -é߀ſKk界😀",
    r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\n", r"\t", r"\.", r"\x41", r"\u00e9", r"\U0001F600",
    ".", ".", "[abc]", "[^a]", "[a-c0-9]", "[^a-cß]", r"[\w-]", r"[^\W\d_]", r"[\s\S]", "[é-界]", "[😀-😂a]",
    "[K-s]", r"[^\n]", "(?:)", "[]a]", "[^]a]",
]  # fmt: skip
ANCHORS = ["^", "$", r"\A", r"\Z", r"\b", r"\B"]
QUANTIFIERS = ["*", "+", "?", "{2}", "{0,2}", "{1,}", "{,3}", "*?", "+?", "??", "{1,2}?"]
GLOBAL_FLAGS = ["", "", "", "(?i)", "(?s)", "(?m)", "(?a)", "(?ms)", "(?ia)", "(?x)", "(?im)(?s)"]
SCOPED_FLAGS = ["i", "s", "m", "a", "i-s", "-i", "u", "x", "-m"]
LETTERS = "abcABkKs01_ -.\n\t" + "éßẞſK界😀😂٣İıµΣς\x00\x1c\x85\u2028"


def random_pattern(rng: random.Random) -> str:
    return rng.choice(GLOBAL_FLAGS) + alternation(rng, 2)


def alternation(rng: random.Random, depth: int) -> str:
    return "|".join(sequence(rng, depth) for _ in range(rng.choice([1, 1, 1, 2, 3])))


def sequence(rng: random.Random, depth: int) -> str:
    return "".join(piece(rng, depth) for _ in range(rng.choice([0, 1, 1, 2, 2, 3])))


def piece(rng: random.Random, depth: int) -> str:
    roll = rng.random()
    if roll < 0.12:
        return rng.choice(ANCHORS)
    if roll < 0.35 and depth:
        opening = rng.choice(["(", "(?:", f"(?P<g{rng.randrange(10**6)}>", f"(?{rng.choice(SCOPED_FLAGS)}:"])
        atom = opening + alternation(rng, depth - 1) + ")"
    else:
        atom = rng.choice(ATOMS)
    return atom + (rng.choice(QUANTIFIERS) if rng.random() < 0.3 else "")


def changed(rng: random.Random, text: str) -> str:
    """The text with one character put in, taken out, replaced or turned to the other case."""
    at, new = rng.randint(0, len(text)), rng.choice(LETTERS)
    kinds = [text[:at] + new + text[at:], text[:at] + text[at + 1 :], text[:at] + new + text[at + 1 :]]
    return rng.choice([*kinds, text.swapcase(), text + "\n"])


def pairs(seed: int) -> tuple[str, ByteDFA, list[str]]:
    """One valid pattern and some thirty texts: random ones, ones that it accepts, and near misses of those."""
    rng = random.Random(seed)
    while True:
        pattern = random_pattern(rng)
        try:
            re.compile(pattern)
            break
        except re.error:
            continue
    dfa = compile_regex(pattern)
    texts = ["", *("".join(rng.choices(LETTERS, k=rng.randint(0, 6))) for _ in range(8))]
    if not dfa.is_empty:
        for _ in range(8):
            accepted = dfa.sample(rng, 8).decode()
            texts += [accepted, changed(rng, accepted), changed(rng, changed(rng, accepted))]
    return pattern, dfa, texts


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_twelve_thousand_random_pairs_agree_with_fullmatch() -> None:
    tried = accepted = 0
    for seed in range(420):
        pattern, dfa, texts = pairs(seed)
        for text in texts:
            expected = re.fullmatch(pattern, text) is not None
            assert dfa.accepts(text.encode()) == expected, (pattern, text)
            tried += 1
            accepted += expected
    assert tried > 12_000
    assert accepted > 4_000  # neither side of the question is rare


compiled_once = cache(compile_regex)

REAL_PATTERNS = [
    r"[A-Za-z]+ to [A-Za-z .,]*",
    r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?",
    r'"([^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"',
    r"(?i)(monday|tuesday|wednesday)s?",
    r"\d{3}-\d{3}-\d{4}",
    r"(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}",
    r"[\w.+-]+@[\w-]+(\.[\w-]+)+",
    r"(?x) a \s b # comment",
    r"a|ab",
    r"a(bc)?",
    r"(?s).*needle.*",
]


@pytest.mark.parametrize("pattern", REAL_PATTERNS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
@given(data=st.data())
def test_what_hypothesis_derives_from_a_pattern_is_accepted(pattern: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(pattern, fullmatch=True).filter(lambda t: t.isascii() or t.isprintable()))
    assert compiled_once(pattern).accepts(text.encode())


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a$", "a\n", False),  # `$` holds before the last newline, but the match must go on to the end
        ("a$\n", "a\n", True),
        ("a$\n?", "a", True),
        ("a$\n\n", "a\n\n", False),
        ("(?m)a$\n\n", "a\n\n", True),
        (r"a\Z\n", "a\n", False),
        ("(?m)(^a\n?)+", "a\na", True),
        ("(^a\n?)+", "a\na", False),
        (r"\bé\b", "é", True),
        (r"(?a)\bé\b", "é", False),
        (r"(?a:\Bé\B)", "é", True),
        (r"\b", "", False),
        (r"a\b \ba", "a a", True),
        (r"a\B a", "a a", False),
        ("", "", True),
        ("(?i)straße", "STRAßE", True),
        ("(?i)straße", "STRASSE", False),
        ("(?i)k", "\u212a", True),
        ("(?ia)k", "\u212a", False),
        ("(?i:a)b", "AB", False),
        ("(?i)a(?-i:b)", "Ab", True),
        ("(?i)a(?-i:b)", "AB", False),
        ("a{2,}?b", "aaab", True),
        ("\x00", "\x00", True),
        ("[^a]", "\U0010ffff", True),
        ("(?P<year>[0-9]{4})", "2026", True),
    ],
)
def test_python_s_rules_at_their_edges(pattern: str, text: str, expected: bool) -> None:
    assert (re.fullmatch(pattern, text) is not None) == expected
    assert compile_regex(pattern).accepts(text.encode()) == expected


def test_flags_may_be_given_beside_the_pattern() -> None:
    assert compile_regex("a.c", re.IGNORECASE | re.DOTALL).accepts(b"A\nC")
    assert compile_regex("a c", re.VERBOSE).accepts(b"ac")


def test_surrogates_are_in_no_language() -> None:
    assert compile_regex("[\ud800-\udfff]").is_empty
    assert not compile_regex("(?s).").accepts("\ud800".encode("utf-8", "surrogatepass"))


def test_another_spelling_of_a_language_gives_equal_arrays() -> None:
    dfa = compile_regex("(?:ab|ac|[0-9]{2,3})*")
    assert dfa == compile_regex("(?:[0-9][0-9][0-9]?|a(?:c|b))*?")
    assert dfa.fingerprint != compile_regex("(?:ab|ac|[0-9]{3,4})*").fingerprint


def test_the_dot_is_the_eight_states_of_utf8() -> None:
    dfa = compile_regex("(?s).*")
    assert dfa.n_states == 8
    assert dfa.accepts("né界😀".encode())
    assert not dfa.accepts(b"\xc0\x80")


@pytest.mark.parametrize("shape", ["%s", "(?:%s)+[a-z]?", r"\b(?:%s)\b.*", "(?i)[^一]?(?:%s)"])
def test_thousands_of_different_characters_agree_too(shape: str) -> None:
    rng = random.Random(7)
    words = ["".join(chr(0x4E00 + rng.randrange(900)) for _ in range(rng.randint(1, 3))) for _ in range(700)]
    pattern = shape % "|".join(words)
    oracle, dfa = re.compile(pattern), compile_regex(pattern)
    texts = [*words[:50], *(dfa.sample(rng, 12).decode() for _ in range(50))]
    texts += [text[:-1] + chr(0x4E00 + rng.randrange(900)) for text in texts] + [
        a + b for a, b in zip(texts, words, strict=False)
    ]
    assert [dfa.accepts(t.encode()) for t in texts] == [oracle.fullmatch(t) is not None for t in texts]


# ---- what is refused, and where


@pytest.mark.parametrize(
    ("pattern", "caret", "advice"),
    [
        ("ab(?=c)", 2, "&"),
        ("ab(?!c)", 2, "& ~"),
        ("(?<=a)b", 0, "&"),
        ("x(?<!a)b", 1, "& ~"),
        (r"(a)b\1", 4, "back-reference"),
        (r"(?P<n>a)(?P=n)", 8, "back-reference"),
        ("(a)?(?(1)b|c)", 4, "alternation"),
        ("a(?>bc)", 1, "atomic"),
        ("ab*+", 3, "possessive"),
        ("ab{2,3}+", 7, "possessive"),
        (r"[(?=](?=a)", 5, "&"),
        (r"\(?=(?=a)", 4, "&"),
        ("a(b", 1, "unterminated"),
        ("a**", 2, "multiple repeat"),
        ("[z-a]", 1, "bad character range"),
        ("a(?i)", 1, "global flags"),
        ("(?x)a # (?=b) \n (?=c)", 16, "&"),
    ],
)
def test_a_refusal_points_at_its_place(pattern: str, caret: int, advice: str) -> None:
    with pytest.raises(ConstraintSyntaxError) as refused:
        compile_regex(pattern)
    assert advice in str(refused.value)
    assert refused.value.position == caret
    shown, below = str(refused.value).splitlines()[-2:]
    assert shown[below.rindex("^") :] == pattern[caret:].split("\n")[0]


def test_a_long_pattern_is_shown_around_the_place() -> None:
    with pytest.raises(ConstraintSyntaxError) as refused:
        compile_regex("a" * 500 + "(?=b)" + "c" * 500)
    shown, caret = str(refused.value).splitlines()[-2:]
    assert len(shown) < 90
    assert shown[caret.index("^") :].startswith("(?=b)")


def test_a_pattern_that_warns_in_a_later_python_compiles_quietly() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile_regex("[[a]b]").accepts(b"[b]")


# ---- a second compiler


def outlines_accepts(pattern: str, texts: list[str]) -> list[bool]:
    """outlines-core over single bytes; the NUL behind the pattern makes its match the longest one."""
    core = pytest.importorskip("outlines_core", reason="pip install 'diffinity[bench]'")
    index = core.Index(f"(?:{pattern})\\x00", core.Vocabulary(256, {bytes([b]): [b] for b in range(256)}))
    moves = index.get_transitions()

    def accepts(text: str) -> bool:
        state = index.get_initial_state()
        for byte in text.encode():
            if byte not in moves.get(state, {}):
                return False
            state = moves[state][byte]
        return 0 in moves.get(state, {})

    return [accepts(text) for text in texts]


@pytest.mark.parametrize(
    "pattern",
    [
        "a|ab", "a(bc)?", r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", "[A-Za-z]+ to [A-Za-z .,]*", "([ab]{2,3}c?)*",
        "(cat|dog)s? (is|are) [a-z]+", "[^a]b|é+", "x{0,3}y{2}", "(a|b)*abb", "[0-9]{4}-(0[1-9]|1[0-2])",
    ],
)  # fmt: skip
def test_outlines_core_agrees_where_the_dialects_do(pattern: str) -> None:
    rng = random.Random(5)
    dfa = compile_regex(pattern)
    texts = [dfa.sample(rng, 10).decode() for _ in range(20)]
    texts += [changed(rng, text).replace("\x00", "") for text in texts]
    assert outlines_accepts(pattern, texts) == [dfa.accepts(text.encode()) for text in texts]

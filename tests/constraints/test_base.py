"""The constraint values: operators, printing as a regex, caching, refusals."""

from __future__ import annotations

import pickle
import random
import re

import pytest

from diffinity.constraints import And, Choice, Concat, Constraint, Not, Or, Regex, Repeat, Text
from diffinity.errors import ConstraintSyntaxError, ConstraintTooLarge, InvalidArgument, UnsupportedConstraint
from diffinity.limits import Limits

TEXTS = ["", "a", "b", "ab", "ba", "aab", "a.b", "a+", "A", "é", "a\n", "bridge", "The old river.", "abab"]


def accepted(constraint: Constraint) -> set[str]:
    return {text for text in TEXTS if constraint.accepts(text)}


A, B = Regex("[ab]+"), Regex("(?i)a.*")


def test_operators_are_set_operations() -> None:
    assert accepted(A & B) == accepted(A) & accepted(B)
    assert accepted(A | B) == accepted(A) | accepted(B)
    assert accepted(~A) == {*TEXTS} - accepted(A)
    assert accepted(A & ~B) == accepted(A) - accepted(B)
    assert ~~A is A


def test_the_example_of_the_design_page() -> None:
    river = Regex(r"[A-Z][a-z ,]+ river[a-z ,]*\.") & ~Regex(r"(?s).*bridge.*")
    assert river.accepts("The old river.")
    assert river.accepts(b"The old river.")
    assert not river.accepts("The river under the bridge.")


def test_not_stays_within_valid_text() -> None:
    assert not (~Text("a")).accepts(b"\xff")
    assert not (~Text("a")).accepts("\ud800")


def test_a_plain_text_may_stand_on_either_side_of_an_operator() -> None:
    assert ("x" + Regex("[0-9]") + "y").accepts("x1y")
    assert ("x" | Regex("[0-9]")).accepts("x")
    assert not ("x" & Regex("[0-9]")).accepts("x")


def test_chains_of_operators_stay_flat() -> None:
    assert (Text("a") | Text("b") | Text("c")) == Or((Text("a"), Text("b"), Text("c")))
    assert (Text("a") & Text("b") & Text("c")) == And((Text("a"), Text("b"), Text("c")))
    assert (Text("a") + Text("b") + Text("c")) == Concat("a", "b", "c")


PRINTABLE = [
    Text("a.b*"),
    Text("new\nline"),
    Regex("(?i)ab|c"),
    Regex("(?x) a b # comment"),
    Regex(" (?i) a # (?P<x>\n b", re.VERBOSE),
    Choice(["a", "a+", "é|"]),
    Choice(["x", Regex("[0-9]|y")]),
    Concat("a|", Regex("b|c"), Regex("(?s)."), Regex("(?P<n>d)"), Regex("(?P<n>e)")),
    Text("a") | Regex("b+") | Concat("c", "d"),
    Repeat(Regex("a|bc"), 2, 3),
    Repeat(Text("ab"), 1, None),
    Concat(Repeat(Choice(["a", "b"]), 0, 2), Regex("(?i:x)|y").optional()),
]


@pytest.mark.parametrize("constraint", PRINTABLE, ids=repr)
def test_the_printed_regex_means_the_same(constraint: Constraint) -> None:
    assert Regex(constraint.pattern()).dfa() == constraint.dfa()
    rng = random.Random(0)
    for _ in range(20):
        text = constraint.dfa().sample(rng).decode()
        assert re.fullmatch(constraint.pattern(), text)


@pytest.mark.parametrize("constraint", [Text("a") & Text("b"), ~Text("a"), Concat("x", ~Text("a"))], ids=repr)
def test_what_no_regex_says_is_not_printed_as_one(constraint: Constraint) -> None:
    with pytest.raises(UnsupportedConstraint, match="regular expression"):
        constraint.pattern()


def test_an_anchored_part_is_not_printed_inside_another() -> None:
    assert Regex("^a$").pattern() == "^a$"
    assert Concat("x", Regex("^a$")).accepts("xa")
    with pytest.raises(UnsupportedConstraint, match="anchor"):
        Concat("x", Regex("^a$")).pattern()


def test_values_are_equal_by_content_and_compile_once() -> None:
    constraint = Regex("a+")
    assert constraint == Regex("a+")
    assert hash(constraint) == hash(Regex("a+"))
    assert constraint.dfa() is constraint.dfa()
    assert pickle.loads(pickle.dumps(constraint)) == constraint


def test_limits_may_be_given_to_the_call() -> None:
    with pytest.raises(ConstraintTooLarge, match="dfa_states"):
        Regex("(a|b)*a(a|b){12}").dfa(Limits(dfa_states=1000))
    assert Regex("(a|b)*a(a|b){12}").dfa(Limits(dfa_states=10_000)).n_states == 8192


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Choice([]), "at least one"),
        (lambda: Text("\ud800"), "surrogate"),
        (lambda: Choice(["a", "\udfff"]), "surrogate"),
        (lambda: Repeat(Text("a"), 3, 2), "min <= max"),
        (lambda: Text("a") & 3, "not int"),  # type: ignore[operator]
        (lambda: Regex(b"a"), "str, not bytes"),  # type: ignore[arg-type]
        (lambda: Text(3), "str, not int"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_argument_is_named(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidArgument, match=message):
        make()


def test_reprs_can_be_read_back() -> None:
    for constraint in [*PRINTABLE, Not(Text("a")), Text("a") & Regex("b", re.I)]:
        assert eval(repr(constraint)) == constraint


def test_errors_survive_pickling() -> None:
    for source, kind in (("a(?=b)", ConstraintSyntaxError), ("a{9999999}", ConstraintTooLarge)):
        with pytest.raises(kind) as refused:
            Regex(source).dfa()
        again = pickle.loads(pickle.dumps(refused.value))
        assert str(again) == str(refused.value)
        assert vars(again) == vars(refused.value)


def test_an_empty_concat_is_the_empty_text() -> None:
    assert accepted(Concat()) == {""}

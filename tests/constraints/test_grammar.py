"""Grammars against hand-written recognisers and regular expressions."""

from __future__ import annotations

import json
import random
from itertools import product

import pytest

from diffinity.constraints import Grammar, Regex
from diffinity.errors import ConstraintSyntaxError, ConstraintTooLarge, InvalidArgument


def balanced(text: str, depth: int) -> bool:
    """Sequences of balanced parentheses, at most `depth` deep."""
    level = 0
    for c in text:
        level += 1 if c == "(" else -1
        if not 0 <= level <= depth:
            return False
    return level == 0


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_recursion_goes_as_deep_as_it_is_allowed(depth: int) -> None:
    grammar = Grammar('many = ( "(" many ")" )* ;', max_depth=depth)
    for n in range(11):
        for text in map("".join, product("()", repeat=n)):
            assert grammar.accepts(text) == balanced(text, depth)


@pytest.mark.parametrize(
    ("ebnf", "regex"),
    [
        ('start = "a" "b"? ;', "ab?"),
        ('start ::= "a" | b\nb ::= "c"+', "a|c+"),
        ("start = [a-z_]{2,3} /[0-9]+|x/ ;", "[a-z_]{2,3}(?:[0-9]+|x)"),
        ('start = ("a", "b"){2} , \'c\'{,2} "d"{1,} ;', "(?:ab){2}c{0,2}d+"),
        ('s = "é\\n\\u00e9\\x41\\U0001F600\\"" ;', 'é\néA😀"'),
        ('s = a a ; # comment\n(* another\none *) a = "x" | ;', "x{0,2}"),
        ("digits = d | d digits\nd = [0-9]", "[0-9]+"),
        ('s = "a" t | "b"  t = "c" s | "d"', "(?:ac)*(?:b|ad)"),
        (r"s = /a\/b/ ;", "a/b"),
        (r's = [^\]"] [\]a] ;', r'[^\]"][\]a]'),
    ],
)
def test_regular_rules_are_exact(ebnf: str, regex: str) -> None:
    assert Grammar(ebnf, max_depth=1).dfa() == Regex(regex).dfa()


JSON = r"""
value   = object | array | string | number | "true" | "false" | "null" ;
object  = "{" (member ("," member)*)? "}" ;
member  = string ":" value ;
array   = "[" (value ("," value)*)? "]" ;
string  = '"' /[^"\\\x00-\x1f]|\\["\\\/bfnrt]|\\u[0-9a-f]{4}/* '"' ;
number  = /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/ ;
"""


def test_json_up_to_a_depth() -> None:
    grammar = Grammar(JSON, max_depth=2)
    assert grammar.accepts('{"a":[1,2.5e3,"x\\n"],"b":null}')
    assert grammar.accepts("[[1]]")
    assert not grammar.accepts("[[[1]]]")
    rng = random.Random(0)
    for _ in range(200):
        json.loads(grammar.dfa().sample(rng))


def test_left_recursion_is_no_trouble() -> None:
    grammar = Grammar('sum = sum "+" term | term ; term = [0-9]+ ;', max_depth=3)
    assert grammar.accepts("1+2+3+4")
    assert not grammar.accepts("1+2+3+4+5")
    assert not grammar.accepts("1+")


def test_another_rule_may_be_the_start() -> None:
    assert Grammar('a = "x" b ; b = "y" ;', start="b").accepts("y")


def test_a_rule_that_never_ends_is_the_empty_language() -> None:
    assert Grammar('a = "x" a ;').dfa().is_empty


@pytest.mark.parametrize(
    ("ebnf", "message"),
    [
        ("", "line 1, column 1: a grammar needs at least one rule"),
        ('a = "x" ;\nb = c ;', "line 2, column 5: there is no rule 'c'"),
        ('a = ("x" ;', "line 1, column 5: this parenthesis is never closed"),
        ('a = "x ;', "line 1, column 5: '\"' does not begin"),
        ('a = "x" ) ;', "line 1, column 9: unexpected '\\)'"),
        ('a = "x" ;\na = "y" ;', "line 2, column 1: rule 'a' is defined twice"),
        ("a = * ;", "line 1, column 5: unexpected '\\*'"),
        ('a = "x"{3,2} ;', "line 1, column 8: the count"),
        ('a = "x"{} ;', "line 1, column 8: a count is"),
        ('a = "\\q" ;', "line 1, column 6: unknown escape"),
        ('a = "\\ud800" ;', "line 1, column 5: .*no character"),
        ("= ;", "line 1, column 1: expected the name"),
        ("a b ;", "line 1, column 3: expected '='"),
    ],
)
def test_a_mistake_is_named_with_line_and_column(ebnf: str, message: str) -> None:
    with pytest.raises(ConstraintSyntaxError, match=message):
        Grammar(ebnf)


def test_a_mistake_inside_a_pattern_is_shown_in_the_grammar() -> None:
    with pytest.raises(ConstraintSyntaxError, match="line 2, column 7: lookaround") as refused:
        Grammar("a = b ;\nb = /x(?=y)/ ;").dfa()
    assert str(refused.value).splitlines()[-2:] == ["    b = /x(?=y)/ ;", "          ^"]


def test_bad_arguments_and_limits() -> None:
    with pytest.raises(InvalidArgument, match="no rule 'z'"):
        Grammar('a = "x" ;', start="z")
    with pytest.raises(InvalidArgument, match="max_depth"):
        Grammar('a = "x" ;', max_depth=-1)
    with pytest.raises(ConstraintTooLarge):
        Grammar('a = "(" a ")" a "[" a "]" | "x" ;', max_depth=30).dfa()
    with pytest.raises(ConstraintTooLarge, match="nesting_depth"):
        Grammar("a = " + "(" * 5000 + '"x"' + ")" * 5000)

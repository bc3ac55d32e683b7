"""Pictures: well-formed, with every drawn state and readable labels."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.picture import label_of
from diffinity.constraints.regex import compile_regex

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("pattern", ["(cat|dog)s?", '[^"<&>]*é', r"\w+", "", "a*(b|c)*a"])
def test_the_svg_draws_each_state_once_and_accepting_ones_twice(pattern: str) -> None:
    dfa = compile_regex(pattern)
    tree = ET.fromstring(dfa.to_svg(max_states=1000))
    assert len(tree.findall(f"{SVG}circle")) == dfa.n_states + int(dfa.accepting.sum())


def test_states_beyond_the_cap_are_counted_not_drawn() -> None:
    dfa = compile_regex("[ab]*a[ab]{6}")
    assert len(ET.fromstring(dfa.to_svg(max_states=20)).findall(f"{SVG}circle")) == 20
    assert "108 more" in dfa.to_svg(max_states=20)
    assert "… 108 more states" in dfa.to_dot(max_states=20)


def test_dot_names_each_arrow() -> None:
    lines = compile_regex('a"|b\\\\').to_dot().splitlines()
    assert '  0 -> 1 [label="a"];' in lines
    assert '  1 -> 3 [label="\\""];' in lines
    assert any(line.endswith('[label="\\\\\\\\"];') for line in lines)


@pytest.mark.parametrize(
    ("data", "label"),
    [
        (b" ", "␣"),
        (b"0123456789", "[0-9]"),
        (b"ab", "[ab]"),
        (b"a]", "[\\]a]"),
        (bytes(range(256)), "any byte"),
        (bytes(range(128)), "any ASCII"),
        (bytes(range(0x80, 0xC0)), "[\\x80-\\xbf]"),
        (bytes(b for b in range(128) if chr(b) not in '"\\'), '[^"\\\\]'),
    ],
)
def test_labels_read_like_character_classes(data: bytes, label: str) -> None:
    assert label_of(data) == label


def test_the_empty_language_has_a_picture_too() -> None:
    assert len(ET.fromstring(ByteDFA.empty().to_svg()).findall(f"{SVG}circle")) == 1

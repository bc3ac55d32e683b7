"""Undeclared property names: classes of names that match the same patterns, and buckets against duplicates."""

from __future__ import annotations

from dataclasses import dataclass

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.nfa import NfaBuilder
from diffinity.constraints.schema.refusals import SchemaTooLarge
from diffinity.constraints.schema.spelling import spell_string
from diffinity.constraints.schema.strings import bounded, matching
from diffinity.limits import charged_cache

MAX_CLASSES = 64


@dataclass(frozen=True)
class NameClass:
    """Undeclared names that all schemas at a place treat in the same way."""

    keys: ByteDFA
    patterns: frozenset[str] = frozenset()
    outside: frozenset[int] = frozenset()  # schemas that must fail and whose `propertyNames` these names violate


@charged_cache(maxsize=128)
def _by_pattern(names: tuple[str, ...], patterns: tuple[str, ...], controls: bool) -> tuple[NameClass, ...]:
    declared = ByteDFA.from_strings(spell_string(name) for name in names)
    classes = [NameClass(bounded(0, None, controls).difference(declared))]
    for pattern in patterns:
        surely, perhaps = matching(pattern, False, controls), matching(pattern, True, controls)
        split = []
        for old in classes:
            split.append(NameClass(old.keys.intersection(surely), old.patterns | {pattern}))
            split.append(NameClass(old.keys.difference(perhaps), old.patterns))
        classes = [name_class for name_class in split if not name_class.keys.is_empty]
        if len(classes) > MAX_CLASSES:
            raise SchemaTooLarge(
                "classes of names", MAX_CLASSES, len(classes), "telling `patternProperties` apart"
            )
    return tuple(classes)


def classes_by_pattern(names: tuple[str, ...], patterns: tuple[str, ...], controls: bool) -> list[NameClass]:
    """All undeclared names, split by the patterns that they match; `controls` as for strings.

    >>> [sorted(each.patterns) for each in classes_by_pattern(("id",), ("^x-", "-"), False)]
    [['-', '^x-'], ['-'], []]
    """
    return list(_by_pattern(names, patterns, controls))


@charged_cache(maxsize=256)
def in_buckets(keys: ByteDFA, cuts: bytes) -> tuple[ByteDFA, ...]:
    """The names split by their first byte after the common prefix.

    >>> [part.shortest() for part in in_buckets(ByteDFA.from_strings([b'"x1"', b'"x7"']), b"5")]
    [b'"x1"', b'"x7"']
    """
    prefix, state = bytearray(), 0
    while not keys.accepting[state]:
        following = [b for b in range(256) if keys.table[state, keys.byte_class[b]] >= 0]
        if len(following) != 1:
            break
        prefix.append(following[0])
        state = int(keys.table[state, keys.byte_class[following[0]]])
    parts = []
    for low, high in zip((0, *cuts), (*(cut - 1 for cut in cuts), 255), strict=True):
        nfa = NfaBuilder()
        start, middle, end = nfa.state(), nfa.state(), nfa.state()
        nfa.literal(bytes(prefix), start, middle)
        nfa.edge(middle, low, high, end)
        nfa.edge(end, 0, 255, end)
        parts.append(keys.intersection(nfa.build(start, [end])))
    return tuple(parts)

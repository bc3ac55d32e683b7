"""Anchors (`^ $ \\b` …) in a machine over characters: each state is split by the characters before and after it.

A gap between two characters is the pair (last character read, next character). Every state has a copy for each
gap. An anchor is then a plain empty transition in the gaps where it holds. A copy assumes the next character; only
such characters may be read from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from diffinity.constraints.determinise import Nfa
from diffinity.constraints.kernels import I32, Bools
from diffinity.constraints.regex_syntax import ANCHORS, NO_EDGE_IN_EMPTY
from diffinity.limits import Budget

DOING = "resolving the anchors of this pattern"


@dataclass(frozen=True)
class Side:
    """The character on one side of a gap; `final` is a newline that ends the text, only as the next character."""

    edge_of_text: bool = False
    word: bool = False
    ascii_word: bool = False
    newline: bool = False
    final: bool = False


OUTSIDE = Side(edge_of_text=True)
FINAL_NEWLINE = Side(newline=True, final=True)


def holds(kind: str, before: Side, after: Side) -> bool:
    """Whether an anchor of `ANCHORS` holds in a gap.

    >>> holds("edge", OUTSIDE, Side(word=True)), holds("end", OUTSIDE, Side(newline=True))
    (True, False)
    """
    match kind:
        case "start":
            return before.edge_of_text
        case "line_start":
            return before.edge_of_text or before.newline
        case "end":
            return after.edge_of_text or after.final
        case "line_end":
            return after.edge_of_text or after.newline
        case "text_end":
            return after.edge_of_text
    edge = before.ascii_word != after.ascii_word if kind.endswith("_ascii") else before.word != after.word
    if kind.startswith("edge"):
        return edge
    return not edge and (NO_EDGE_IN_EMPTY or not (before.edge_of_text and after.edge_of_text))


def split_by_gaps(
    nfa: Nfa,
    anchors: I32,
    start: int,
    end: int,
    side_of_label: list[Side],
    budget: Budget,
) -> tuple[Nfa, int, Bools]:
    """The machine without anchors, its start, and the accepting states.

    `anchors` are (3, anchors): source, place in `ANCHORS`, target. `side_of_label[c]` is the side of the
    characters of class c; a newline must be a separate class.

    A state q becomes three kinds of copies: `came[b]` after reading b, `gap[b, a]` between b and a, and `next[a]`
    before reading a. Only `next[a]` reads. The previous character is forgotten as soon as no anchor needs it,
    which keeps the number of subsets small.
    """
    before = [OUTSIDE, *sorted(set(side_of_label), key=str)]
    has_newline = any(side.newline for side in before)
    after = [*before, FINAL_NEWLINE] if has_newline else before
    gaps = list(product(range(len(before)), range(len(after))))
    n = nfa.n_states
    copies = len(before) + len(gaps) + len(after)
    budget.check("nfa_states", n * copies + 2, DOING)
    budget.check("nfa_edges", len(gaps) * (nfa.eps_source.shape[0] + anchors.shape[1] + 2 * n), DOING)
    came, gap, following = 0, len(before), len(before) + len(gaps)
    states = np.arange(n, dtype=np.int32)
    eps: list[tuple[I32, ...]] = []
    for g, (b, a) in enumerate(gaps):
        eps.append((states + (came + b) * n, states + (gap + g) * n))
        eps.append((states + (gap + g) * n, states + (following + a) * n))
        eps.append((nfa.eps_source + (gap + g) * n, nfa.eps_target + (gap + g) * n))
        anchor_holds = np.array([holds(kind, before[b], after[a]) for kind in ANCHORS])[anchors[1]]
        eps.append((anchors[0, anchor_holds] + (gap + g) * n, anchors[2, anchor_holds] + (gap + g) * n))
    edges: list[tuple[I32, ...]] = []
    side = np.array([before.index(s) for s in side_of_label])[nfa.label]
    for a, follows in enumerate(after):
        if follows.edge_of_text:
            continue
        b = before.index(Side(newline=True)) if follows.final else a
        read = side == b
        # After the final newline only the end of the text may follow.
        arrives = gap + gaps.index((b, 0)) if follows.final else came + b
        edges.append((nfa.source[read] + (following + a) * n, nfa.label[read], nfa.target[read] + arrives * n))
    accepting = np.zeros(n * copies, np.bool_)
    accepting[end + following * n] = True
    parts = (*_joined(edges, 3), *_joined(eps, 2))
    return Nfa(n * copies, *parts), start, accepting


def _joined(parts: list[tuple[I32, ...]], width: int) -> list[I32]:
    return [np.concatenate([part[i] for part in parts]).astype(np.int32) for i in range(width)]

"""Pictures of small automata, as Graphviz source and as self-contained SVG."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from diffinity.constraints.dfa import ByteDFA

RADIUS, COLUMN, ROW, MARGIN = 16, 130, 74, 56
NAMES = {9: "\\t", 10: "\\n", 13: "\\r", 32: "␣", 92: "\\\\", 93: "\\]", 94: "\\^", 45: "\\-"}
WIDEST = 22  # characters of a label


def label_of(data: bytes) -> str:
    """A set of bytes as a person would write it.

    >>> label_of(b"a"), label_of(b"abcxyz"), label_of(bytes(set(range(128)) - {10}))
    ('a', '[a-cx-z]', '[^\\\\n]')
    """
    have = set(data)
    if have == set(range(256)):
        return "any byte"
    if len(have) == 1:
        return _name(data[0])
    ascii_part = have & set(range(128))
    if have == set(range(128)):
        return "any ASCII"
    if len(ascii_part) > 64 and len(have) == len(ascii_part):
        return _cut("[^" + _ranges(set(range(128)) - have) + "]")
    return _cut("[" + _ranges(have) + "]")


def _ranges(have: set[int]) -> str:
    out, members = [], sorted(have)
    while members:
        first = last = members.pop(0)
        # A range does not cross from ASCII into the bytes that are only parts of a character.
        while members and members[0] == last + 1 and (last + 1) != 128:
            last = members.pop(0)
        dash = "-" if last > first + 1 else ""
        out.append(_name(first) + (dash + _name(last) if last > first else ""))
    return "".join(out)


def _name(byte: int) -> str:
    return NAMES.get(byte) or (chr(byte) if 32 < byte < 127 else f"\\x{byte:02x}")


def _cut(label: str) -> str:
    return label if len(label) <= WIDEST else label[: WIDEST - 2] + "…" + label[-1]


def _arrows(dfa: ByteDFA, shown: int) -> dict[tuple[int, int], str]:
    """The label of each drawn (source, target); target -1 stands for states that are not drawn."""
    arrows: dict[tuple[int, int], bytearray] = {}
    bytes_of = [bytes(np.flatnonzero(dfa.byte_class == c).tolist()) for c in range(dfa.n_classes)]
    for source, row in enumerate(dfa.table[:shown].tolist()):
        for c, target in enumerate(row):
            if target >= 0:
                arrows.setdefault((source, target if target < shown else -1), bytearray()).extend(bytes_of[c])
    return {arrow: label_of(bytes(sorted(data))) for arrow, data in arrows.items()}


def to_dot(dfa: ByteDFA, max_states: int) -> str:
    """The automaton in Graphviz's language; states beyond `max_states` become one node `…`."""
    shown = min(dfa.n_states, max_states)
    lines = ["digraph {", '  rankdir=LR; node [shape=circle, fontname="monospace"]; edge [fontname="monospace"];']
    lines += ["  start [shape=point]; start -> 0;"]
    lines += [f"  {s} [shape=doublecircle];" for s in range(shown) if dfa.accepting[s]]
    if shown < dfa.n_states:
        lines.append(f'  more [shape=plaintext, label="… {dfa.n_states - shown:,} more states"];')
    for (source, target), label in _arrows(dfa, shown).items():
        quoted = label.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'  {source} -> {target if target >= 0 else "more"} [label="{quoted}"];')
    return "\n".join([*lines, "}"])


@dataclass(frozen=True)
class _Layout:
    place: list[tuple[float, float]]
    width: float
    height: float


def _layout(dfa: ByteDFA, shown: int) -> _Layout:
    """States in columns by their distance from the start, each near the mean height of those that lead to it."""
    depth = [0] + [-1] * (shown - 1)
    parents: list[list[int]] = [[] for _ in range(shown)]
    for s in range(shown):  # canonical order is breadth first: a state's depth is known before it comes up
        for t in sorted({t for t in dfa.table[s].tolist() if 0 <= t < shown}):
            if depth[t] < 0:
                depth[t] = depth[s] + 1
            if depth[t] == depth[s] + 1:
                parents[t].append(s)
    columns = [[s for s in range(shown) if depth[s] == d] for d in range(max(depth) + 1)]
    tallest = max(map(len, columns))
    height = [0.0] * shown
    for column in columns:
        column.sort(key=lambda s: sum(height[p] for p in parents[s]) / max(len(parents[s]), 1))
        for i, s in enumerate(column):
            height[s] = (tallest - len(column)) / 2 + i
    place = [(float(MARGIN + COLUMN * depth[s]), MARGIN + ROW * height[s]) for s in range(shown)]
    return _Layout(place, 2 * MARGIN + COLUMN * (len(columns) - 1) + 70, 2 * MARGIN + ROW * (tallest - 1) + 30)


def to_svg(dfa: ByteDFA, max_states: int) -> str:
    """The automaton as SVG: circles for states, double ones accept, arrows carry the bytes they read."""
    shown = min(dfa.n_states, max_states)
    layout = _layout(dfa, shown)
    more = f"; {dfa.n_states - shown:,} more not drawn" if shown < dfa.n_states else ""
    title = f"{dfa.n_states:,} states, {dfa.n_classes} byte classes{more}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {layout.width:g} {layout.height:g}" '
        f'width="{layout.width:g}" height="{layout.height:g}" font-family="monospace" font-size="11">',
        f"<title>{title}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="#556"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for (source, target), label in _arrows(dfa, shown).items():
        drawn = _arrow(layout.place, source, target, escape(label))
        parts.append(drawn.replace("<path", f'<path data-arrow="{source} {target}"', 1))
    x, y = layout.place[0]
    parts.append(f'<path d="M{x - 44:g} {y:g}H{x - RADIUS:g}" stroke="#556" marker-end="url(#tip)"/>')
    for s, (x, y) in enumerate(layout.place):
        parts.append(f'<circle data-state="{s}" cx="{x:g}" cy="{y:g}" r="{RADIUS}" fill="#eef3fb" stroke="#345"/>')
        if dfa.accepting[s]:
            parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{RADIUS - 4}" fill="none" stroke="#345"/>')
        parts.append(f'<text x="{x:g}" y="{y + 4:g}" text-anchor="middle" fill="#123">{s}</text>')
    parts.append(f'<text x="8" y="{layout.height - 8:g}" fill="#667">{title}</text>')
    return "\n".join([*parts, "</svg>"])


def _arrow(place: list[tuple[float, float]], source: int, target: int, label: str) -> str:
    x, y = place[source]
    if target < 0:
        path, at = f"M{x + RADIUS:g} {y:g}h34", (x + 40, y - 6)
        return _drawn(path, at, label, ' stroke-dasharray="3 3"')
    if target == source:
        path = f"M{x - 8:g} {y - 14:g}C{x - 26:g} {y - 48:g} {x + 26:g} {y - 48:g} {x + 8:g} {y - 14:g}"
        return _drawn(path, (x, y - 42), label, "")
    u, v = place[target]
    length = float(np.hypot(u - x, v - y))
    nx, ny = (v - y) / length, (x - u) / length
    # Straight to the next column; anything longer, back or within a column bends out of the way.
    bend = 0.0 if 0 < u - x <= COLUMN else 26 + 0.1 * length
    cx, cy = (x + u) / 2 + nx * bend, (y + v) / 2 + ny * bend
    start, end = _towards((x, y), (cx, cy)), _towards((u, v), (cx, cy))
    path = f"M{start[0]:g} {start[1]:g}Q{cx:g} {cy:g} {end[0]:g} {end[1]:g}"
    return _drawn(path, ((x + u) / 4 + cx / 2, (y + v) / 4 + cy / 2 - 4), label, "")


def _towards(centre: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """The point on a state's circle that faces another point."""
    dx, dy = other[0] - centre[0], other[1] - centre[1]
    scale = RADIUS / max(float(np.hypot(dx, dy)), 1e-9)
    return round(centre[0] + dx * scale, 1), round(centre[1] + dy * scale, 1)


def _drawn(path: str, at: tuple[float, float], label: str, dash: str) -> str:
    """An edge with its label on a white halo: drawn twice, because not every viewer knows `paint-order`."""
    place = f'<text x="{at[0]:g}" y="{at[1]:g}" text-anchor="middle"'
    return (
        f'<path d="{path}" fill="none" stroke="#556"{dash} marker-end="url(#tip)"/>'
        f'{place} aria-hidden="true" stroke="#fff" stroke-width="3" stroke-linejoin="round">{label}</text>'
        f'{place} fill="#334">{label}</text>'
    )

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
    """A readable label of a set of bytes.

    >>> label_of(b"a"), label_of(b"abcxyz"), label_of(bytes(set(range(128)) - {10}))
    ('a', '[a-cx-z]', '[^\\\\n]')
    """
    byte_set = set(data)
    if byte_set == set(range(256)):
        return "any byte"
    if len(byte_set) == 1:
        return _name(data[0])
    ascii_part = byte_set & set(range(128))
    if byte_set == set(range(128)):
        return "any ASCII"
    if len(ascii_part) > 64 and len(byte_set) == len(ascii_part):
        return _cut("[^" + _ranges(set(range(128)) - byte_set) + "]")
    return _cut("[" + _ranges(byte_set) + "]")


def _ranges(byte_set: set[int]) -> str:
    parts, members = [], sorted(byte_set)
    while members:
        first = last = members.pop(0)
        # A range does not extend from ASCII into bytes that are only parts of a character.
        while members and members[0] == last + 1 and (last + 1) != 128:
            last = members.pop(0)
        dash = "-" if last > first + 1 else ""
        parts.append(_name(first) + (dash + _name(last) if last > first else ""))
    return "".join(parts)


def _name(byte: int) -> str:
    return NAMES.get(byte) or (chr(byte) if 32 < byte < 127 else f"\\x{byte:02x}")


def _cut(label: str) -> str:
    return label if len(label) <= WIDEST else label[: WIDEST - 2] + "…" + label[-1]


def _arrows(dfa: ByteDFA, n_drawn: int) -> dict[tuple[int, int], str]:
    """The label of each drawn (source, target); target −1 is any state that is not drawn."""
    arrows: dict[tuple[int, int], bytearray] = {}
    bytes_of = [bytes(np.flatnonzero(dfa.byte_class == c).tolist()) for c in range(dfa.n_classes)]
    for source, row in enumerate(dfa.table[:n_drawn].tolist()):
        for c, target in enumerate(row):
            if target >= 0:
                arrows.setdefault((source, target if target < n_drawn else -1), bytearray()).extend(bytes_of[c])
    return {arrow: label_of(bytes(sorted(data))) for arrow, data in arrows.items()}


def to_dot(dfa: ByteDFA, max_states: int) -> str:
    """The automaton in Graphviz's language; states beyond `max_states` become one node `…`."""
    n_drawn = min(dfa.n_states, max_states)
    lines = ["digraph {", '  rankdir=LR; node [shape=circle, fontname="monospace"]; edge [fontname="monospace"];']
    lines += ["  start [shape=point]; start -> 0;"]
    lines += [f"  {s} [shape=doublecircle];" for s in range(n_drawn) if dfa.accepting[s]]
    if n_drawn < dfa.n_states:
        lines.append(f'  more [shape=plaintext, label="… {dfa.n_states - n_drawn:,} more states"];')
    for (source, target), label in _arrows(dfa, n_drawn).items():
        quoted = label.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'  {source} -> {target if target >= 0 else "more"} [label="{quoted}"];')
    return "\n".join([*lines, "}"])


@dataclass(frozen=True)
class _Layout:
    place: list[tuple[float, float]]
    width: float
    height: float


def _layout(dfa: ByteDFA, n_drawn: int) -> _Layout:
    """States in columns by their distance from the start, each near the mean height of its predecessors."""
    depth = [0] + [-1] * (n_drawn - 1)
    parents: list[list[int]] = [[] for _ in range(n_drawn)]
    for s in range(n_drawn):  # canonical order is breadth first, so the depth of s is known here
        for t in sorted({t for t in dfa.table[s].tolist() if 0 <= t < n_drawn}):
            if depth[t] < 0:
                depth[t] = depth[s] + 1
            if depth[t] == depth[s] + 1:
                parents[t].append(s)
    columns = [[s for s in range(n_drawn) if depth[s] == d] for d in range(max(depth) + 1)]
    tallest = max(map(len, columns))
    height = [0.0] * n_drawn
    for column in columns:
        column.sort(key=lambda s: sum(height[p] for p in parents[s]) / max(len(parents[s]), 1))
        for i, s in enumerate(column):
            height[s] = (tallest - len(column)) / 2 + i
    centres = [(float(MARGIN + COLUMN * depth[s]), MARGIN + ROW * height[s]) for s in range(n_drawn)]
    return _Layout(centres, 2 * MARGIN + COLUMN * (len(columns) - 1) + 70, 2 * MARGIN + ROW * (tallest - 1) + 30)


def to_svg(dfa: ByteDFA, max_states: int) -> str:
    """The automaton as SVG: states are circles (double if accepting), arrows are labelled with their bytes."""
    n_drawn = min(dfa.n_states, max_states)
    layout = _layout(dfa, n_drawn)
    more = f"; {dfa.n_states - n_drawn:,} more not drawn" if n_drawn < dfa.n_states else ""
    title = f"{dfa.n_states:,} states, {dfa.n_classes} byte classes{more}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {layout.width:g} {layout.height:g}" '
        f'width="{layout.width:g}" height="{layout.height:g}" font-family="monospace" font-size="11">',
        f"<title>{title}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="#556"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for (source, target), label in _arrows(dfa, n_drawn).items():
        path = _arrow(layout.place, source, target, escape(label))
        parts.append(path.replace("<path", f'<path data-arrow="{source} {target}"', 1))
    x, y = layout.place[0]
    parts.append(f'<path d="M{x - 44:g} {y:g}H{x - RADIUS:g}" stroke="#556" marker-end="url(#tip)"/>')
    for s, (x, y) in enumerate(layout.place):
        parts.append(f'<circle data-state="{s}" cx="{x:g}" cy="{y:g}" r="{RADIUS}" fill="#eef3fb" stroke="#345"/>')
        if dfa.accepting[s]:
            parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{RADIUS - 4}" fill="none" stroke="#345"/>')
        parts.append(f'<text x="{x:g}" y="{y + 4:g}" text-anchor="middle" fill="#123">{s}</text>')
    parts.append(f'<text x="8" y="{layout.height - 8:g}" fill="#667">{title}</text>')
    return "\n".join([*parts, "</svg>"])


def _arrow(centres: list[tuple[float, float]], source: int, target: int, label: str) -> str:
    x, y = centres[source]
    if target < 0:
        path, at = f"M{x + RADIUS:g} {y:g}h34", (x + 40, y - 6)
        return _drawn(path, at, label, ' stroke-dasharray="3 3"')
    if target == source:
        path = f"M{x - 8:g} {y - 14:g}C{x - 26:g} {y - 48:g} {x + 26:g} {y - 48:g} {x + 8:g} {y - 14:g}"
        return _drawn(path, (x, y - 42), label, "")
    u, v = centres[target]
    length = float(np.hypot(u - x, v - y))
    nx, ny = (v - y) / length, (x - u) / length
    # Straight to the next column; longer arrows, and arrows back or within a column, are bent.
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
    """An edge and its label, with a white outline as a second text: not every viewer supports `paint-order`."""
    text_start = f'<text x="{at[0]:g}" y="{at[1]:g}" text-anchor="middle"'
    return (
        f'<path d="{path}" fill="none" stroke="#556"{dash} marker-end="url(#tip)"/>'
        f'{text_start} aria-hidden="true" stroke="#fff" stroke-width="3" stroke-linejoin="round">{label}</text>'
        f'{text_start} fill="#334">{label}</text>'
    )

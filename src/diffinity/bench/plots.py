"""The plots of a report, as SVG text; none without matplotlib."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from diffinity.baselines.registry import REGISTRY, split
from diffinity.bench import labels
from diffinity.bench.measures import Interval
from diffinity.bench.summary import Results, Summary
from diffinity.bench.tables import by_option

COLOURS = {"ours": "#1f6fb4", "baselines": "#b4541f"}
OTHER = "#5a5a5a"
CYCLE = ("#1f6fb4", "#b4541f", "#3a8a3a", "#7a4fa0", "#8a6d1f", "#4f4f4f")
MARKERS = "osD^vP"
FAR, MARGIN = 10.0, 3.0  # pixels: from FAR on a line connects a point with its label


@dataclass(frozen=True)
class Plot:
    """A picture with its file name and caption.

    >>> Plot("empty", "Nothing.", "<svg></svg>").name
    'empty'
    """

    name: str
    caption: str
    svg: str


def available() -> bool:
    """Whether plots can be made here."""
    return find_spec("matplotlib") is not None


def drawn(name: str, caption: str, draw: Callable[[Any], None], size: tuple[float, float] = (7.2, 4.2)) -> Plot:
    """The picture that `draw` makes on the given axes; the same numbers give the same SVG.

    >>> drawn("line", "A line.", lambda axes: axes.plot([0, 1], [0, 1])).svg[:4] if available() else "<svg"
    '<svg'
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    style: Any = {"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "sans-serif", "font.size": 9}
    with matplotlib.rc_context(style):
        figure, axes = plt.subplots(figsize=size, layout="constrained")
        draw(axes)
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)
    # Without the XML declaration and metadata, so that it can be part of a page; ids are unique to this plot.
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    svg = svg[svg.index("<svg") :]
    return Plot(name, caption, re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{name}-", svg))


def trade_off(suite: str, systems: Mapping[str, tuple[Interval, Interval]]) -> Plot | None:
    """Satisfaction against perplexity of matching samples, one point per system."""
    finite = {name: pair for name, pair in systems.items() if math.isfinite(pair[0].estimate)}
    if not finite:
        return None

    def draw(axes: Any) -> None:
        for name, (perplexity, satisfaction) in finite.items():
            axes.errorbar(
                perplexity.estimate,
                100 * satisfaction.estimate,
                xerr=[[max(0.0, end)] for end in _error_bar(perplexity)],
                yerr=[[100 * max(0.0, end)] for end in _error_bar(satisfaction)],
                fmt="o",
                markersize=5,
                linewidth=0.8,
                alpha=0.85,
                color=_colour(name),
            )
        axes.set_xscale("log")
        _plain_ticks(axes.xaxis, [perplexity.estimate for perplexity, _ in finite.values()])
        axes.set_ylim(-12, 128)  # room for names above 100% and below 0%
        axes.set_yticks(range(0, 101, 20))
        axes.set_xlabel("perplexity of matching samples (lower is better)")
        axes.set_ylabel("satisfied, %")
        bars = [
            bar
            for x, y in finite.values()
            for bar in (
                (x.low, 100 * y.estimate, x.high, 100 * y.estimate),
                (x.estimate, 100 * y.low, x.estimate, 100 * y.high),
            )
        ]
        _label(axes, [(x.estimate, 100 * y.estimate, name) for name, (x, y) in finite.items()], bars)

    caption = "Satisfaction against perplexity of matching samples; blue are our systems. Top left is best."
    return drawn(f"{suite}-trade-off", caption, draw, (8.6, 6.0))


def bars(
    suite: str,
    name: str,
    caption: str,
    label: str,
    values: Mapping[str, Interval],
    factor: float = 1.0,
    truth: float | None = None,
) -> Plot | None:
    """One bar per system, with its interval; a dashed line at the true value if it is known."""
    finite = {system: value for system, value in values.items() if math.isfinite(value.estimate)}
    if not finite:
        return None

    def draw(axes: Any) -> None:
        positions = range(len(finite))
        ends = [[factor * max(0.0, end) for end in _error_bar(value)] for value in finite.values()]
        axes.barh(
            positions,
            [factor * value.estimate for value in finite.values()],
            xerr=list(zip(*ends, strict=True)),
            color=[_colour(system) for system in finite],
            error_kw={"linewidth": 0.8},
        )
        if truth is not None:
            axes.axvline(factor * truth, color="#222222", linestyle="--", linewidth=1.0)
        axes.set_yticks(positions, list(finite))
        axes.invert_yaxis()
        axes.set_xlabel(label)

    return drawn(f"{suite}-{name}", caption, draw, (7.2, 1.0 + 0.24 * len(finite)))


def categories(
    suite: str, category_summaries: Mapping[str, Mapping[str, Summary]], systems: Sequence[str]
) -> Plot | None:
    """Satisfaction per category, one bar per system."""
    drawn_systems = [name for name in systems if name in category_summaries]
    if not drawn_systems:
        return None
    names = list(next(iter(category_summaries.values())))
    width = 0.82 / len(drawn_systems)

    def draw(axes: Any) -> None:
        for i, system in enumerate(drawn_systems):
            values = [100 * category_summaries[system][category].satisfaction.estimate for category in names]
            positions = [position + (i - (len(drawn_systems) - 1) / 2) * width for position in range(len(names))]
            axes.bar(positions, values, width, label=system, color=CYCLE[i % len(CYCLE)])
        axes.set_xticks(range(len(names)), names)
        axes.set_ylim(0, 104)
        axes.set_ylabel("satisfied, %")
        if len(names) > 6:
            axes.tick_params(axis="x", rotation=30)
        axes.legend(fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)

    return drawn(f"{suite}-categories", "Satisfaction by category.", draw)


def over_option(
    suite: str, option: str, label: str, summaries: Mapping[str, Summary], measure: str
) -> Plot | None:
    """A measure against the values of an option, one line per system."""
    lines: dict[str, list[tuple[Any, Interval]]] = {}
    for base, value, summary in by_option(summaries, option):
        interval = {"satisfied, %": summary.satisfaction, "perplexity of matching samples": summary.perplexity}[
            measure
        ]
        if math.isfinite(interval.estimate):
            lines.setdefault(base, []).append((value, interval))
    if not lines:
        return None
    factor = 100.0 if measure.endswith("%") else 1.0

    def draw(axes: Any) -> None:
        for i, (base, points) in enumerate(lines.items()):
            axes.errorbar(
                [value for value, _ in points],
                [factor * interval.estimate for _, interval in points],
                yerr=list(
                    zip(
                        *([factor * max(0.0, end) for end in _error_bar(interval)] for _, interval in points),
                        strict=True,
                    )
                ),
                marker=MARKERS[i % len(MARKERS)],
                color=CYCLE[i % len(CYCLE)],
                linewidth=1.2,
                elinewidth=0.7,
                capsize=2,
                label=base,
            )
        if option == "steps":
            axes.set_xscale("log", base=2)
            _plain_ticks(
                axes.xaxis, sorted({value for points in lines.values() for value, _ in points}), exact=True
            )
        axes.set_xlabel(label)
        axes.set_ylabel(measure)
        axes.legend(fontsize=8)

    name = "satisfaction" if factor == 100.0 else "perplexity"
    return drawn(f"{suite}-{option}-{name}", f"{measure.capitalize()} against {label}.", draw)


def pairs(suite: str, caption: str, label: str, groups: Mapping[str, Mapping[str, Interval]]) -> Plot | None:
    """Bars side by side: one per system and group."""
    systems = list(dict.fromkeys(system for values in groups.values() for system in values))
    width = 0.8 / max(1, len(groups))

    def draw(axes: Any) -> None:
        for i, (name, values) in enumerate(groups.items()):
            present = [j for j, system in enumerate(systems) if math.isfinite(values[system].estimate)]
            ends = [[max(0.0, end) for end in _error_bar(values[systems[j]])] for j in present]
            axes.bar(
                [j + (i - (len(groups) - 1) / 2) * width for j in present],
                [values[systems[j]].estimate for j in present],
                width,
                yerr=list(zip(*ends, strict=True)) if ends else None,
                label=name,
                color=CYCLE[i],
                error_kw={"linewidth": 0.8},
            )
        axes.set_xticks(range(len(systems)), systems)
        axes.set_ylabel(label)
        axes.legend(fontsize=8)

    finite = any(math.isfinite(value.estimate) for values in groups.values() for value in values.values())
    return drawn(f"{suite}-pairs", caption, draw) if finite else None


def latency(results: Results, summaries: Mapping[str, Summary]) -> list[Plot]:
    """Time per sample against transitions, one plot per batch size, with the unconstrained model as a line."""
    plots = []
    for batch in sorted({batch for _, batch, _ in by_option(summaries, "batch")}):
        names = [summary.system for _, value, summary in by_option(summaries, "batch") if value == batch]

        def draw(axes: Any, names: Sequence[str] = names) -> None:
            for i, name in enumerate(names):
                points = _times(results, name)
                base, colour = split(name)[0], CYCLE[i % len(CYCLE)]
                if base == "unconstrained":
                    mean_seconds = sum(seconds for _, seconds in points) / max(1, len(points))
                    axes.axhline(mean_seconds, color=OTHER, linestyle="--", linewidth=1.0, label="unconstrained")
                elif points:
                    axes.plot(
                        *zip(*points, strict=True),
                        MARKERS[i % len(MARKERS)],
                        color=colour,
                        label=base,
                        markersize=5,
                    )
            axes.set_xscale("log")
            axes.set_ylim(bottom=0)
            axes.set_xlabel("transitions of the token automaton")
            axes.set_ylabel("seconds a sample")
            axes.legend(fontsize=8)

        caption = f"Time per sample against the size of the automaton, batch {batch}."
        plots.append(drawn(f"latency-batch-{batch}", caption, draw))
    return plots


def study_lines(
    name: str,
    caption: str,
    rows: Sequence[Mapping[str, Any]],
    x: str,
    y: str,
    group: str,
    *,
    labels: tuple[str, str],
    log: bool = False,
) -> Plot | None:
    """y against x of a study's rows, averaged over all other fields, one line per value of `group`."""
    lines: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        if row.get(x) is not None and row.get(y) is not None:
            lines.setdefault(str(row[group]), {}).setdefault(float(row[x]), []).append(float(row[y]))
    if not lines:
        return None

    def draw(axes: Any) -> None:
        for i, (label, points) in enumerate(lines.items()):
            x_values = sorted(points)
            means = [sum(points[x_value]) / len(points[x_value]) for x_value in x_values]
            axes.plot(x_values, means, marker=MARKERS[i % len(MARKERS)], color=CYCLE[i % len(CYCLE)], label=label)
        if log:
            axes.set_xscale("log", base=2)
            _plain_ticks(
                axes.xaxis, sorted({x_value for points in lines.values() for x_value in points}), exact=True
            )
        axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        axes.legend(fontsize=8)

    return drawn(name, caption, draw)


def _times(results: Results, name: str) -> list[tuple[int, float]]:
    points = []
    for case, lines in results.rows(name).items():
        seconds = [row.seconds for row in lines if row.seconds is not None]
        transitions = results.run.cases[case].facts.get("transitions")
        if seconds and transitions:
            points.append((int(transitions), min(seconds)))
    return sorted(points)


def _error_bar(value: Interval) -> tuple[float, float]:
    return value.estimate - value.low, value.high - value.estimate


def _colour(system: str) -> str:
    base, _ = split(system)
    return COLOURS[REGISTRY[base].group] if base in REGISTRY else OTHER


def _plain_ticks(axis: Any, values: Sequence[float], exact: bool = False) -> None:
    """Plain numbers instead of powers, at the values themselves or at round numbers between them."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    round_numbers = [m * 10**e for e in range(-2, 7) for m in (1, 2, 5)]
    low, high = min(values), max(values)
    positions = values if exact else [position for position in round_numbers if 0.5 * low <= position <= 2 * high]
    axis.set_major_locator(FixedLocator(list(positions)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _label(axes: Any, points: Sequence[tuple[float, float, str]], bars: Sequence[labels.Box]) -> None:
    """Labels beside points and off the error bars; coinciding points share a label, and far labels have a line."""
    named = together(points)
    texts = [axes.text(x, y, name, fontsize=7, color="#333333") for x, y, name in named]
    for text in texts:
        text.set_in_layout(False)
    axes.figure.canvas.draw()  # fixes the layout, so that pixel positions are valid
    to_pixels, to_data = axes.transData.transform, axes.transData.inverted()
    extents = [text.get_window_extent() for text in texts]
    sizes = [(extent.width + 2 * MARGIN, extent.height + MARGIN) for extent in extents]
    pixels = [tuple(to_pixels((x, y))) for x, y, _ in named]
    ends = [(*to_pixels((left, bottom)), *to_pixels((right, top))) for left, bottom, right, top in bars]
    obstacles = [(left - 1, bottom - 1, right + 1, top + 1) for left, bottom, right, top in ends]
    boxes = labels.place(pixels, sizes, tuple(axes.get_window_extent().extents), obstacles, radius=5.0)
    for text, (px, py), (left, bottom, right, top) in zip(texts, pixels, boxes, strict=True):
        text.set_position(to_data.transform((left + MARGIN, bottom + MARGIN / 2)))
        text.set_verticalalignment("bottom")
        near_x, near_y = min(max(px, left), right), min(max(py, bottom), top)
        if math.hypot(near_x - px, near_y - py) > FAR:
            line = to_data.transform([(px, py), (near_x, near_y)])
            axes.plot(line[:, 0], line[:, 1], color="#9aa3b0", linewidth=0.5, zorder=0)


def together(points: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Points from the top, then from the left; indistinguishable points share one label.

    >>> together([(5.0, 99.8, "c"), (10.1, 99.9, "b"), (10.0, 100.0, "a")])
    [(10.0, 100.0, 'a, b'), (5.0, 99.8, 'c')]
    """
    merged: list[tuple[float, float, str]] = []
    for x, y, name in sorted(points, key=lambda point: (-point[1], point[0])):
        matches = [i for i, (px, py, _) in enumerate(merged) if abs(py - y) < 1 and abs(math.log(px / x)) < 0.02]
        if matches:
            px, py, names = merged[matches[0]]
            merged[matches[0]] = px, py, f"{names}, {name}"
        else:
            merged.append((x, y, name))
    return merged

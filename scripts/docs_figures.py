"""The figures of README.md and docs/how-it-works.md, made from real runs of the embedded model.

    python scripts/docs_figures.py [--out docs/images]

Writes denoising.svg, log_acceptance.svg, automaton.svg and data_flow.svg.
"""

from __future__ import annotations

import argparse
from html import escape
from pathlib import Path
from typing import Any

import diffinity as dy
from diffinity.bench.plots import drawn
from diffinity.trace import Frame, Pieces, Trace

ROOT = Path(__file__).resolve().parents[1]
PATTERN = r"(?:I|We) [a-z ]+ (?:every|on) Monday\."
LENGTH, STEPS, SEED = 16, 64, 0
SHOWN = (0, 8, 16, 24, 32, 40, 48, 63)  # steps of the run that are rows of the picture
ROW, LEFT, TOP = 26, 92, 62  # px
INK, QUIET, GOOD, LINE = "#1d2430", "#6a7484", "#1b7a3d", "#1f6fb4"
FONT = 'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14"'


def run(model: Any, **settings: Any) -> tuple[Trace, dy.Generated]:
    """One constrained run, with the drafts of all its steps."""
    trace = Trace()
    (sample,) = dy.generate(
        model,
        dy.Regex(PATTERN),
        length=LENGTH,
        num_inference_steps=STEPS,
        seed=SEED,
        best_of=1,
        callback_on_step_end=trace,
        **settings,
    )
    return trace, sample


def log_acceptances(trace: Trace) -> list[float]:
    """log P(L) of the first sample at each step."""
    return [frame.log_acceptance[0] for frame in trace.batches[0] if frame.log_acceptance is not None]


# ---- a denoising run


def denoising(model: Any, trace: Trace, sample: dy.Generated) -> str:
    """The drafts of some steps as SVG: the darker a token, the higher its confidence; then the decoded text."""
    frames = [frame for frame in trace.batches[0] if frame.step in SHOWN]
    rows = [draft_row(model, frame, TOP + ROW * i) for i, frame in enumerate(frames)]
    y = TOP + ROW * len(frames) + 10
    rows.append(
        f'<text x="16" y="{y}" fill="{QUIET}">decoded</text>'
        f'<text x="{LEFT}" y="{y}" fill="{GOOD}" font-weight="bold">{escape(sample.text)}</text>'
    )
    width = 760
    head = (
        f'<text x="16" y="28" fill="{INK}" xml:space="preserve">{escape(PATTERN)}</text>'
        f'<text x="{width - 16}" y="28" fill="{QUIET}" text-anchor="end">log P(L)</text>'
    )
    return picture(width, y + 18, head + "".join(rows))


def draft_row(model: Any, frame: Frame, y: float) -> str:
    """One draft: its step, its tokens, log P(L)."""
    pieces = Pieces(model)
    ids = pieces.before_end(frame.tokens[0].tolist())
    spans, position = [], 0
    for number, size in pieces.spelled(ids):
        words = "".join(c if c.isprintable() else "·" for c in pieces.texts[number])
        confidence = int(min(frame.confidence[0][position : position + size]))
        position += size
        spans.append(f'<tspan fill-opacity="{0.25 + 0.0075 * confidence:.2f}">{escape(words)}</tspan>')
    draft = f'<text x="{LEFT}" y="{y}" fill="{INK}" xml:space="preserve">{"".join(spans)}</text>'
    step = f'<text x="16" y="{y}" fill="{QUIET}">step {frame.step + 1}</text>'
    value = "" if frame.log_acceptance is None else f"{frame.log_acceptance[0]:.1f}".replace("-", "−")
    return f'{step}{draft}<text x="744" y="{y}" fill="{QUIET}" text-anchor="end">{value}</text>'


def picture(width: float, height: float, body: str, font: str = FONT) -> str:
    """An SVG document with a white background, so that it can be read on dark pages too."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" {font}>'
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#ffffff" stroke="#d9dde3"/>{body}</svg>\n'
    )


# ---- the curve of log P(L)


def curves(guided: list[float], unguided: list[float]) -> str:
    """log P(L) against the step, guided and unguided."""

    def draw(axes: Any) -> None:
        axes.plot(range(1, len(guided) + 1), guided, color="#1f6fb4", label="guided (auto)")
        axes.plot(
            range(1, len(unguided) + 1), unguided, color="#b4541f", linestyle="--", label="unguided, same seed"
        )
        axes.set_xlabel("denoising step")
        axes.set_ylabel("log P(L)")
        axes.legend(frameon=False)

    return drawn("log-acceptance", "", draw, (7.2, 3.2)).svg


# ---- the data flow


def data_flow() -> str:
    """Boxes and arrows: from a constraint and noise to text."""
    boxes = {
        "constraint": (16, 20, 130),
        "byte automaton": (186, 20, 150),
        "token automaton": (376, 20, 160),
        "noise": (16, 130, 130),
        "denoiser": (186, 130, 150),
        "p: token distributions": (376, 130, 220),
        "P(L), marginals q": (640, 75, 190),
        "guidance": (376, 230, 160),
        "exact decoder": (640, 185, 190),
        "text": (640, 255, 190),
    }
    arrows = [
        (146, 40, 186, 40), (336, 40, 376, 40), (146, 150, 186, 150), (336, 150, 376, 150),
        (536, 40, 640, 85), (596, 145, 640, 105), (596, 155, 640, 200), (735, 225, 735, 255),
        (650, 115, 536, 240), (376, 250, 261, 170),
    ]  # fmt: skip
    drawn_boxes = "".join(
        f'<rect x="{x}" y="{y}" width="{w}" height="40" rx="6" fill="#f5f7fa" stroke="#8a94a6"/>'
        f'<text x="{x + w / 2:g}" y="{y + 25}" text-anchor="middle" fill="{INK}">{escape(name)}</text>'
        for name, (x, y, w) in boxes.items()
    )
    lines = "".join(
        f'<path d="M{a} {b} L{c} {d}" stroke="#1f6fb4" fill="none" marker-end="url(#tip)"/>'
        for a, b, c, d in arrows
    )
    tip = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{LINE}"/></marker></defs>'
    )
    words = "".join(
        f'<text x="{x}" y="{y}" fill="{QUIET}">{label}</text>'
        for x, y, label in ((188, 216, "next step"), (608, 155, "last step"))
    )
    font = 'font-family="system-ui, sans-serif" font-size="14"'
    return picture(846, 312, tip + drawn_boxes + lines + words, font)


def write(out: Path) -> list[Path]:
    """All figures into a folder."""
    model = dy.load()
    trace, sample = run(model)
    unguided_trace, _ = run(
        model, guidance="posterior", guidance_scale=0.0
    )  # scale 0: log P(L) is computed, but does not guide
    figures = {
        "denoising": denoising(model, trace, sample),
        "log_acceptance": curves(log_acceptances(trace), log_acceptances(unguided_trace)),
        "automaton": dy.Regex("(yes|no), [a-z]+").dfa().to_svg(),
        "data_flow": data_flow(),
    }
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, svg in figures.items():
        path = out / f"{name}.svg"
        path.write_text(svg if svg.endswith("\n") else svg + "\n", encoding="utf-8")
        paths.append(path)
    return paths


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    for path in write(parser.parse_args().out):
        print(f"wrote {path}")


if __name__ == "__main__":
    main()

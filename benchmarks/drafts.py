"""Quality against time: unguided, `fast`, and the best of several drafts with `auto`; and the accuracy of scores.

    python -m benchmarks.drafts [--cases 44] [--steps 32] [--drafts 8] [--seed 11] [--model FOLDER] [--plot FILE]

The embedded model writes drafts under sentence constraints of the benchmark's six kinds, drawn with a separate
seed, and unconstrained texts. From every group of 1, 2, 4 … drafts the draft with the best score is taken; all
groups count. The score is that of the model's draft scorer; "own score" is that of the model itself. The table
shows the grammar judge's clean share, nats per text under the embedded autoregressive model, words, distinct-2
(mean over groups), and processor time divided by that of one unguided draft, including scoring. "auto, not shown"
is `auto` without showing decided tokens to the network. Then it prints the area under the ROC curve of three
scores (the draft scorer's, the model's pseudo-likelihood, and its denoising loss) against the judge's verdicts,
and how many texts that must begin with a brace parse as JSON. `--plot` draws nats against time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import diffinity as dy
from diffinity.bench import grammar
from diffinity.bench.natural_language import natural_language_cases
from diffinity.generation.scores import draft_scores, text_scores
from diffinity.models import PlaidLM
from diffinity.models.transformer import AutoregressiveLM
from diffinity.training.quality import distinct_2, parses

LENGTH, FREE_LENGTH = 32, 24
TIMES, REPEATS = (0.3, 0.5, 0.7), 4  # of the denoising score


@torch.no_grad()
def denoising_scores(model: PlaidLM, tokens: Tensor) -> Tensor:
    """The mean log-probability (B,) of the tokens up to the end token, predicted from their noisy embeddings."""
    scores = []
    for row in tokens.tolist():
        end = row.index(model.eos_token_id) + 1 if model.eos_token_id in row else len(row)
        ids = torch.tensor(row[:end])
        levels = model.noise_level(torch.tensor(TIMES, dtype=torch.float64)).float().repeat_interleave(REPEATS)
        noise = torch.randn(len(levels), end, model.embedding.shape[1], generator=torch.Generator().manual_seed(0))
        alpha, sigma = levels.neg().sigmoid().sqrt()[:, None, None], levels.sigmoid().sqrt()[:, None, None]
        z = alpha * model.embedding[ids] + sigma * noise
        log_probs = model.denoise(z, levels, torch.zeros_like(z)).log_softmax(dim=-1)
        scores.append(log_probs.gather(2, ids.expand(len(levels), -1)[..., None]).double().mean())
    return torch.stack(scores)


def area(scores: Sequence[float], is_good: Sequence[bool]) -> float:
    """The probability that a good text has a higher score than a bad text.

    >>> area([0.1, 0.9, 0.5], [False, True, False])
    1.0
    """
    values, truth = np.array(scores), np.array(is_good)
    if truth.all() or not truth.any():
        return float("nan")
    return float((values[truth][:, None] > values[~truth][None]).mean())


@dataclass(frozen=True)
class Point:
    """The cost and quality of the best of `drafts` drafts of one method."""

    method: str
    drafts: int
    clean: float
    nats: float
    error: float
    words: float
    distinct: float
    seconds: float  # per text

    def row(self, reference: float) -> str:
        """A row of the table; `reference` is the time of one unguided text in seconds."""
        cells = [self.method, self.drafts, f"{self.clean:.2f}", f"{self.nats:.1f}", f"{self.error:.1f}"]
        cells += [f"{self.words:.1f}", f"{self.distinct:.2f}", f"{self.seconds / reference:.2f}"]
        return "| " + " | ".join(map(str, cells)) + " |"


def measure(
    method: str,
    model: PlaidLM,
    judge: AutoregressiveLM,
    drafts_of_task: Sequence[Sequence[dy.Generated]],
    seconds: float,
) -> tuple[list[Point], str]:
    """The points for the drafts of some tasks, written in `seconds`, and the accuracy of the scores."""
    flat = [draft for drafts in drafts_of_task for draft in drafts]
    tokens = [torch.tensor([draft.tokens]) for draft in flat]
    clean = [bool(v) and all(verdict.clean for verdict in v) for v in grammar.judge([d.text for d in flat])]
    nats = [_nats(judge, draft.text) for draft in flat]
    size, points = len(drafts_of_task[0]), []
    scores: dict[str, list[float]] = {}
    for name, score in ((method, draft_scores), (f"{method}, own score", text_scores)):
        began = time.process_time()
        scores[name] = draft_values = [float(score(model, row)[0]) for row in tokens]
        scoring = time.process_time() - began
        for n in (2**k for k in range(score is text_scores, size.bit_length())):
            groups = [
                [max(range(i, i + n), key=draft_values.__getitem__) for i in range(first, len(flat), size)]
                for first in range(0, size - n + 1, n)
            ]
            best = [i for group in groups for i in group]
            by_task = np.array([[nats[i] for i in group] for group in groups]).mean(axis=0)
            points.append(
                Point(
                    name,
                    n,
                    statistics.mean(clean[i] for i in best),
                    float(by_task.mean()),
                    float(by_task.std(ddof=1)) / len(by_task) ** 0.5,
                    statistics.mean(len(flat[i].text.split()) for i in best),
                    statistics.mean(distinct_2([flat[i].text for i in group]) for group in groups),
                    (seconds * n + (scoring * n if n > 1 else 0.0)) / len(flat),
                )
            )
    bound = [float(denoising_scores(model, row)[0]) for row in tokens]
    areas = ", ".join(
        f"{name} {area(values, clean):.2f}" for name, values in {**scores, "denoising": bound}.items()
    )
    return points, f"{method}: {len(flat)} drafts; area under the curve: {areas}"


@contextmanager
def not_shown(model: PlaidLM) -> Iterator[None]:
    """A context in which decided tokens are not shown to the network."""
    model.position_levels = False
    try:
        yield
    finally:
        model.position_levels = True


def count_brace_json(model: PlaidLM, texts: int, steps: int) -> int:
    """The number of texts that parse as JSON, of `texts` that must begin with a brace; one draft each."""
    write = dy.Generator(model, dy.Regex(r"(?s)\{.*"), length=LENGTH, num_inference_steps=steps, best_of=1)
    return sum(parses(text.text) for text in write(texts))


def plot(points: Sequence[Point], reference: float, path: Path) -> None:
    """Plot nats per text against time relative to unguided."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    for method in dict.fromkeys(point.method for point in points):
        method_points = [point for point in points if point.method == method]
        times = [point.seconds / reference for point in method_points]
        axes.errorbar(
            times,
            [p.nats for p in method_points],
            [p.error for p in method_points],
            marker="o",
            capsize=3,
            label=method,
        )
        for x, point in zip(times, method_points, strict=True):
            axes.annotate(str(point.drafts), (x, point.nats), textcoords="offset points", xytext=(5, 5))
    axes.set_xscale("log", base=2)
    axes.set_xlabel("processor time over one unguided text; numbers: drafts")
    axes.set_ylabel("nats a text, ± standard error")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


def _nats(judge: AutoregressiveLM, text: str) -> float:
    ids = [*judge.tokenizer.encode(text).ids, judge.eos_token_id]
    return -float(judge.log_probs(torch.tensor([ids])).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=44)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--drafts", type=int, default=8)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--model", help="folder; else the embedded model")
    parser.add_argument("--plot", type=Path, help="picture of the constrained texts")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model, judge = dy.load(arguments.model) if arguments.model else dy.load(), dy.load("embedded-autoregressive")
    assert isinstance(model, PlaidLM)
    assert isinstance(judge, AutoregressiveLM)
    cases = natural_language_cases(arguments.seed)
    constraints = [case.constraint for case in cases[:: len(cases) // arguments.cases][: arguments.cases]]

    def drafts(method: str, tasks: Sequence[dy.Constraint | None], guidance: str) -> tuple[list[Point], str]:
        began = time.process_time()
        length = FREE_LENGTH if tasks[0] is None else LENGTH
        options = {"num_inference_steps": arguments.steps, "best_of": 1}
        drafts_of_task = [
            dy.generate(model, task, arguments.drafts, length, seed=i, guidance=guidance, **options)
            for i, task in enumerate(tasks)
        ]
        return measure(method, model, judge, drafts_of_task, time.process_time() - began)

    dy.generate(model, constraints[0], 1, LENGTH, num_inference_steps=2)  # compiles
    results = [drafts("unguided", constraints, "none"), drafts("fast", constraints, "fast")]
    with not_shown(model):
        results.append(drafts("auto, not shown", constraints, "auto"))
        parsed_not_shown = count_brace_json(model, 2 * arguments.cases, arguments.steps)
    results.append(drafts("auto", constraints, "auto"))
    results.append(drafts("free", [None] * arguments.cases, "auto"))
    reference = results[0][0][0].seconds
    headings = ("texts", "drafts", "clean", "nats", "±", "words", "distinct-2", "time")
    print("| " + " | ".join(headings) + " |\n|---" + "|---:" * 7 + "|")
    for points, _ in results:
        for point in points:
            print(point.row(reference))
    print("\n".join(accuracy for _, accuracy in results))
    parsed = count_brace_json(model, 2 * arguments.cases, arguments.steps)
    print(
        f"of {2 * arguments.cases} texts that must begin with a brace {parsed} parse; "
        f"{parsed_not_shown} if not shown"
    )
    if arguments.plot is not None:
        plotted_points = [point for points, _ in results[:-1] for point in points if "," not in point.method]
        plot(plotted_points, reference, arguments.plot)


if __name__ == "__main__":
    main()

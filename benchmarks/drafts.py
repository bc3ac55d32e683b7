"""What the best of several drafts is worth, and how well a model's own scores know a good text.

    python -m benchmarks.drafts [--cases 44] [--steps 32] [--drafts 8] [--seed 11] [--model FOLDER]

The embedded model writes drafts under sentence constraints of the six kinds of the benchmark, drawn with a seed of
their own, and free texts. Of 1, 2, 4 … drafts the best by the model's own score is taken. Measured: the
clean share of the grammar judge, nats of a text under the autoregressive companion, words, distinct-2,
and processor time over that of one draft, with the score's time. Then the area under the ROC curve of its own two
scores, with the judge's verdicts as the truth: the pseudo-likelihood that `best_of` uses, and the denoising loss.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

import diffinity as dy
from diffinity.bench import grammar
from diffinity.bench.natural_language import natural_language_cases
from diffinity.generation.scores import text_scores
from diffinity.models import PlaidLM
from diffinity.models.transformer import AutoregressiveLM
from diffinity.training.quality import distinct_2

LENGTH, FREE_LENGTH = 32, 24
TIMES, REPEATS = (0.3, 0.5, 0.7), 4  # of the denoising score


@torch.no_grad()
def denoising_scores(model: PlaidLM, tokens: Tensor) -> Tensor:
    """The mean log-probability (B,) of the tokens up to the end token, read from their noisy embeddings."""
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


def area(scores: Sequence[float], good: Sequence[bool]) -> float:
    """The chance that a good text has a higher score than a bad text.

    >>> area([0.1, 0.9, 0.5], [False, True, False])
    1.0
    """
    values, truth = np.array(scores), np.array(good)
    if truth.all() or not truth.any():
        return float("nan")
    return float((values[truth][:, None] > values[~truth][None]).mean())


def measure(
    name: str,
    model: PlaidLM,
    judge: AutoregressiveLM,
    written: Sequence[Sequence[dy.Generated]],
    seconds: float,
) -> None:
    """Print the rows of drafts that were written for each of some tasks in `seconds`."""
    flat = [draft for drafts in written for draft in drafts]
    tokens = [torch.tensor([draft.tokens]) for draft in flat]
    began = time.process_time()
    own = [float(text_scores(model, row)[0]) for row in tokens]
    scoring = time.process_time() - began
    clean = [bool(v) and all(verdict.clean for verdict in v) for v in grammar.judge([d.text for d in flat])]
    size = len(written[0])
    for n in (2**k for k in range(size.bit_length())):
        if n > size:
            break
        best = [max(range(i, i + n), key=own.__getitem__) for i in range(0, len(flat), size)]
        texts = [flat[i].text for i in best]
        nats = [_nats(judge, text) for text in texts]
        error = statistics.stdev(nats) / len(nats) ** 0.5
        cost = n * (1 + (scoring / seconds if n > 1 else 0.0))
        words = statistics.mean(len(text.split()) for text in texts)
        share = statistics.mean(clean[i] for i in best)
        row = [name, n, f"{share:.2f}", f"{statistics.mean(nats):.1f}", f"{error:.1f}"]
        row += [f"{words:.1f}", f"{distinct_2(texts):.2f}", f"{cost:.2f}"]
        print("| " + " | ".join(map(str, row)) + " |", flush=True)
    bound = [float(denoising_scores(model, row)[0]) for row in tokens]
    print(f"{name}: {len(flat)} drafts; area under the curve: own score {area(own, clean):.2f}, "
          f"denoising {area(bound, clean):.2f}")  # fmt: skip


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
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    model, judge = dy.load(chosen.model) if chosen.model else dy.load(), dy.load("embedded-autoregressive")
    assert isinstance(model, PlaidLM)
    assert isinstance(judge, AutoregressiveLM)
    cases = natural_language_cases(chosen.seed)
    constraints = [case.constraint for case in cases[:: len(cases) // chosen.cases][: chosen.cases]]
    heads = ("texts", "drafts", "clean", "nats", "±", "words", "distinct-2", "time")
    print("| " + " | ".join(heads) + " |\n|---" + "|---:" * 7 + "|")
    for name, tasks, length in (
        ("constrained", constraints, LENGTH),
        ("free", [None] * chosen.cases, FREE_LENGTH),
    ):
        began = time.process_time()
        written = [
            dy.generate(model, task, chosen.drafts, length, num_inference_steps=chosen.steps, seed=i, best_of=1)
            for i, task in enumerate(tasks)
        ]
        measure(name, model, judge, written, time.process_time() - began)


if __name__ == "__main__":
    main()

"""The distance of samples from p(text | L), which is known exactly for the Markov model.

    python -m diffinity.bench.fidelity --out rows.jsonl [--samples 2000] [--steps 64] [--quick]

Every row has the total-variation distance between the samples and p(text | L), and the expected distance of the
same number of exact draws.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.alignment import TokenAutomaton, Vocabulary, align
from diffinity.bench.draws import Draws, masked_autoregressive, transition_matrix, word_tokenizer
from diffinity.constraints.base import Constraint, Regex
from diffinity.models.markov import MarkovLM, fit_markov
from diffinity.models.protocol import text_of

Row = dict[str, Any]
OTHER = "(any other text)"


def study_texts() -> list[str]:
    """194 short sentences, some more often than others: the training text of the study's model.

    >>> study_texts()[0]
    'The cat ran home.'
    """
    end_weights = {"ran home": 3, "saw the dog": 2, "saw the mill": 1, "slept": 2}
    weighted = {
        f"The {age}{animal} {end}.": age_weight * animal_weight * weight
        for age, age_weight in {"": 3, "old ": 1}.items()
        for animal, animal_weight in {"cat": 2, "dog": 1}.items()
        for end, weight in end_weights.items()
    }
    weights_after_it = {"was cold": 24, "was late": 18, "was late and cold": 12, "rained": 18, "ran home": 8}
    weights_after_it |= {"was the old dog": 8, "saw the old mill": 6, "slept late": 4}
    weighted |= {f"It {end}.": weight for end, weight in weights_after_it.items()}
    return [text for text, weight in weighted.items() for _ in range(weight)]


def study_model() -> MarkovLM:
    """The exact order-2 model of `study_texts`, smoothed as `fit_markov` does by default.

    >>> study_model().embedding.shape
    torch.Size([18, 12])
    """
    texts = study_texts()
    return fit_markov(texts, order=2, tokenizer=word_tokenizer(texts), embed_dim=12)


def study_constraints() -> dict[str, Constraint]:
    """The constraints of the study, by name; P(L) is between 0.49 and 0.04.

    >>> study_constraints()["first word"].accepts("It rained.")
    True
    """
    return {
        "first word": Regex(r"It .*"),
        "contains": Regex(r".*old.*"),
        "last word": Regex(r".* (mill|dog)\."),
        "far apart": Regex(r".*old \w+ \w+ .*"),
        "two words": Regex(r".*cat.*mill\."),
    }


def conditional(
    model: MarkovLM, automaton: TokenAutomaton, length: int, smallest: float = 1e-4
) -> tuple[float, dict[str, float]]:
    """P(L) over texts of `length` tokens, and p(text | L) of every text with a probability of at least `smallest`.

    All other texts (a smoothed chain can write anything) are one outcome, OTHER.

    >>> model = study_model()
    >>> late = align(Regex("It was late.*"), Vocabulary.from_tokenizer(model.tokenizer))
    >>> {text: round(share, 3) for text, share in conditional(model, late, 8, smallest=0.01)[1].items()}
    {'It was late and cold.': 0.399, 'It was late.': 0.6, '(any other text)': 0.001}
    """
    transitions, token = transition_matrix(model), model.chain.token
    live = automaton.live(length)
    p_language = float(model.log_acceptance(automaton, length=length).exp())
    shares: dict[str, float] = {}
    # A text may be reached through several contexts, so a prefix stores the mass of each context.
    prefixes: list[tuple[tuple[int, ...], int, NDArray[np.float64]]] = [((), 0, np.zeros(0))]
    while prefixes:
        ids, state, mass = prefixes.pop()
        if len(ids) == length:
            text = text_of(model, list(ids))
            shares[text] = shares.get(text, 0.0) + float(mass.sum()) / p_language
            continue
        next_mass = mass @ transitions if ids else model.chain.start
        for v in np.unique(token[next_mass > 0]).tolist():
            next_state = int(automaton.next[state, automaton.class_of[v]])
            token_mass = np.where(token == v, next_mass, 0.0)
            if next_state >= 0 and live[len(ids) + 1, next_state] and token_mass.sum() >= smallest * p_language:
                prefixes.append(((*ids, v), next_state, token_mass))
    return p_language, {**dict(sorted(shares.items())), OTHER: max(0.0, 1.0 - sum(shares.values()))}


def total_variation(counts: Mapping[str, int], truth: Mapping[str, float]) -> float:
    """Half the sum of absolute differences between shares and probabilities: 0 if equal, 1 without overlap.

    >>> total_variation({"a": 3, "b": 1}, {"a": 0.5, "c": 0.5})
    0.5
    """
    n = sum(counts.values())
    return 0.5 * sum(abs(counts.get(key, 0) / n - truth.get(key, 0.0)) for key in {*counts, *truth})


def expected_total_variation(truth: Mapping[str, float], n: int) -> float:
    """The mean `total_variation` of n exact draws, in closed form (de Moivre's mean deviation of a binomial).

    >>> round(expected_total_variation({"a": 0.5, "b": 0.5}, 2), 6)
    0.25
    """
    total = 0.0
    for p in truth.values():
        if 0.0 < p < 1.0:
            m = math.floor(n * p) + 1
            log_binomial = math.lgamma(n + 1) - math.lgamma(m + 1) - math.lgamma(n - m + 1)
            total += 2 * m * math.exp(log_binomial + m * math.log(p) + (n - m + 1) * math.log1p(-p)) / n
    return 0.5 * total


@dataclass(frozen=True)
class Study:
    """The settings of the study; the defaults are the full study.

    `particles` are the numbers of trajectories for each guidance that is used as a proposal. The paper's guidance
    is not among the methods because it is `gradient` here: the two differ in self-conditioning, which an exact
    denoiser does not use.

    >>> Study(samples=100).steps
    64
    """

    samples: int = 2000
    steps: int = 64
    length: int = 8
    seed: int = 0
    pool: int = 24_000  # unguided samples, for rejection
    methods: tuple[str, ...] = ("posterior", "gradient", "path", "mixed", "chain")
    scales: tuple[float, ...] = (0.5, 1.0, 1.5, 2.5)
    particles: tuple[tuple[str, tuple[int, ...]], ...] = (
        ("posterior", (1, 4, 16, 64)),
        ("gradient", (1, 4, 16)),
        ("chain", (4, 16)),
    )
    constraints: tuple[str, ...] = tuple(study_constraints())

    def only(self, methods: Sequence[str]) -> Study:
        """The part of the study with some guidance methods; its pool has only `samples` unguided samples.

        >>> Study().only(["chain"]).particles
        (('chain', (4, 16)),)
        """
        proposals = tuple(part for part in self.particles if part[0] in methods)
        return replace(self, methods=tuple(methods), particles=proposals, pool=self.samples)


QUICK = Study(
    samples=200,
    steps=32,
    pool=2000,
    methods=("posterior", "gradient"),
    scales=(1.0, 2.5),
    particles=(("posterior", (1, 8)),),
    constraints=("first word", "last word", "two words"),
)


def measure(study: Study, progress: Callable[[str], None] = lambda _: None) -> Iterator[Row]:
    """The rows of the study, one at a time; deterministic except for `seconds`.

    `method` is "rejection" (the unguided samples that are in L), "decoding" (draws given L from the final
    distributions of unguided runs), "autoregressive", a guidance, or "particles (GUIDANCE)", where the guidance
    proposes the steps.

    >>> row = next(measure(Study(samples=4, steps=4, pool=8)))
    >>> row["constraint"], row["method"], row["n"]
    ('first word', 'rejection', 4)
    """
    model = study_model()
    vocabulary = Vocabulary.from_tokenizer(model.tokenizer)
    draws = Draws(model, study.length, study.steps, study.seed)
    progress(f"drawing {study.pool} unguided samples")
    started = time.perf_counter()
    pool = draws.unguided(study.pool)
    unconstrained = draws.unconstrained(pool)
    pool_seconds = time.perf_counter() - started
    for name in study.constraints:
        automaton = align(study_constraints()[name], vocabulary)
        p_language, truth = conditional(model, automaton, study.length)
        accepted = [ids for ids in unconstrained if automaton.accepts(ids.tolist())][: study.samples]
        rejection = (
            torch.stack(accepted) if accepted else unconstrained[:0],
            {"method": "rejection", "seconds": pool_seconds},
        )
        common = {
            "constraint": name,
            "p_language": p_language,
            "support": len(truth) - 1,
            "scale": None,
            "K": None,
        }
        systems = _other_systems(study, draws, model, automaton, pool[: study.samples], progress)
        for tokens, fields in chain([rejection], systems):
            yield {**common, **fields, **distance(model, tokens, truth)}


def distance(model: MarkovLM, tokens: Tensor, truth: Mapping[str, float]) -> Row:
    """The total variation between the texts of tokens (n, L) and `truth`, and its expectation for exact draws."""
    texts = [text_of(model, ids) for ids in tokens.tolist()]
    if not texts:
        return {"n": 0, "tv": math.nan, "tv_floor": math.nan}
    counts = Counter(text if text in truth else OTHER for text in texts)
    floor = expected_total_variation(truth, len(texts))
    return {"n": len(texts), "tv": total_variation(counts, truth), "tv_floor": floor}


def _other_systems(
    study: Study,
    draws: Draws,
    model: MarkovLM,
    automaton: TokenAutomaton,
    pool: Tensor,
    progress: Callable[[str], None],
) -> Iterator[tuple[Tensor, Row]]:
    """The token strings (n, L) of every system except rejection, with the fields of its row."""
    n = study.samples
    started = time.perf_counter()

    def timed(**fields: Any) -> Row:
        nonlocal started
        time_now = time.perf_counter()
        fields["seconds"], started = time_now - started, time_now
        progress(" ".join(str(value) for value in fields.values()))
        return fields

    yield draws.conditional(pool, automaton), timed(method="decoding")
    strings = masked_autoregressive(model, automaton, n, study.length, study.seed)
    yield torch.from_numpy(strings), timed(method="autoregressive")
    for method in study.methods:
        for scale in study.scales:
            yield draws.guided(automaton, n, method, scale), timed(method=method, scale=scale)
    for proposal, particle_counts in study.particles:
        for k in particle_counts:
            run = draws.by_particles(automaton, n, k, proposal)
            diagnostics = {"log_evidence": run.log_evidence, "ess": run.ess}
            yield run.tokens, timed(method=f"particles ({proposal})", scale=1.0, K=k, **diagnostics)


def table(rows: Sequence[Row]) -> str:
    """The distances as Markdown: one row per system, one column per constraint, and the mean.

    >>> row = {"constraint": "c", "method": "path", "scale": 1.0, "K": None, "n": 9, "tv": 0.25, "tv_floor": 0.1}
    >>> print(table([row]))
    | system | c | mean |
    |---|---|---|
    | exact draws (expected) | 0.100 | 0.100 |
    | path, scale = 1.0 | 0.250 | 0.250 |
    """
    names = list(dict.fromkeys(row["constraint"] for row in rows))
    largest_n = max(row["n"] for row in rows)
    lines: dict[str, dict[str, float]] = {"exact draws (expected)": {}}
    for row in rows:
        if row["n"] == largest_n:
            lines["exact draws (expected)"][row["constraint"]] = row["tv_floor"]
        scale = "" if row["scale"] is None or row["K"] is not None else f", scale = {row['scale']}"
        number = "" if row["K"] is None else f", K = {row['K']}"
        lines.setdefault(f"{row['method']}{scale}{number}", {})[row["constraint"]] = row["tv"]
    table_lines = [f"| system | {' | '.join(names)} | mean |", "|---" * (len(names) + 2) + "|"]
    for system, distances in lines.items():
        values = [distances.get(name, math.nan) for name in names]
        cells = " | ".join(f"{value:.3f}" for value in [*values, sum(values) / len(values)])
        table_lines.append(f"| {system} | {cells} |")
    return "\n".join(table_lines)


def write_rows(rows: Iterable[Row], path: Path) -> list[Row]:
    """All rows; each row is written to the file as a JSON line as soon as it is measured."""
    measured = []
    with path.open("w") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
            file.flush()
            measured.append(row)
    return measured


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m diffinity.bench.fidelity")
    parser.add_argument("--out", type=Path, required=True, help="file for the rows, as JSON lines")
    parser.add_argument("--samples", type=int, help="samples per row")
    parser.add_argument("--steps", type=int, help="denoising steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a small version, half a minute")
    parser.add_argument("--methods", nargs="+", help="only these guidances, alone and as proposals of particles")
    parser.add_argument("--scales", type=float, nargs="+", help="guidance scales")
    parser.add_argument("--particles", type=int, nargs="+", help="numbers of trajectories")
    options = parser.parse_args(arguments)
    study = replace(QUICK if options.quick else Study(), seed=options.seed)
    if options.methods is not None:
        study = study.only(options.methods)
    if options.scales is not None:
        study = replace(study, scales=tuple(options.scales))
    if options.particles is not None:
        study = replace(study, particles=tuple((name, tuple(options.particles)) for name, _ in study.particles))
    if options.samples is not None:
        study = replace(study, samples=options.samples)
    if options.steps is not None:
        study = replace(study, steps=options.steps)
    torch.set_num_threads(1)
    print(table(write_rows(measure(study, progress=print), options.out)))


if __name__ == "__main__":
    main()

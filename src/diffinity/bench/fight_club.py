"""The Fight Club experiment: do constrained samples start with `The` or `It` as often as the model would?

    python -m diffinity.bench.fight_club --out rows.jsonl [--samples 2000] [--steps 64] [--quick]
    python -m diffinity.bench.fight_club --out rows.jsonl --systems auto particles-4 llguidance [--length 32] …

Left-to-right masking chooses the first word by its marginal probability, without regard to what may follow. The
true share also depends on the probability of all continuations. Without `--systems` all methods run on the exact
Markov model, and the true share is exact. With `--systems`, the systems of the registry run, and the diffusion
model's true share is estimated.
"""

from __future__ import annotations

import argparse
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from diffinity.alignment import Vocabulary, align
from diffinity.baselines.base import System
from diffinity.bench.draws import Draws, masked_autoregressive, word_tokenizer
from diffinity.bench.fidelity import Row, write_rows
from diffinity.constraints.base import Constraint, Regex
from diffinity.errors import UnsupportedConstraint
from diffinity.models.markov import MarkovLM, fit_markov
from diffinity.models.protocol import DiffusionLM, text_of, vocabulary_of

REGEXES = {
    "both open": r"(The|It) [A-Za-z ]*Fight Club[a-z ]*\.",
    "one rule": r"(The first rule of|It [a-z ]+) Fight Club[a-z ]*\.",
    "one subject": r"(The [a-z ]+|It is about) Fight Club[a-z ]*\.",
}
THE, IT = re.compile(r"The\b"), re.compile(r"It\b")


def club_texts() -> list[str]:
    """82 sentences, some more often than others: the training text of the exact model.

    >>> club_texts()[0]
    'The first rule of Fight Club is silence.'
    """
    weighted = {
        "The first rule of Fight Club is silence.": 3,
        "The second rule of Fight Club is silence.": 2,
        "The man starts Fight Club.": 4,
        "The man is tired.": 10,
        "The film is dark.": 12,
        "The film ends well.": 8,
        "The book came first.": 6,
        "It is about Fight Club.": 9,
        "It is a film about Fight Club.": 3,
        "It is dark.": 6,
        "It ends well.": 5,
        "It came first.": 4,
        "He starts Fight Club.": 4,
        "He is tired.": 6,
    }
    return [text for text, share in weighted.items() for _ in range(share)]


def club_model() -> MarkovLM:
    """The exact order-2 model of `club_texts`.

    >>> club_model().order
    2
    """
    texts = club_texts()
    return fit_markov(texts, order=2, tokenizer=word_tokenizer(texts), embed_dim=12)


def constraints() -> dict[str, Constraint]:
    """The three regexes, by name.

    >>> [name for name, regex in constraints().items() if regex.accepts("The man starts Fight Club.")]
    ['both open', 'one subject']
    """
    return {name: Regex(pattern) for name, pattern in REGEXES.items()}


def true_share(model: MarkovLM, constraint: Constraint, length: int) -> float:
    """P(the text starts with `The` | L), exactly.

    >>> round(true_share(club_model(), constraints()["both open"], 10), 2)
    0.44
    """
    vocabulary = Vocabulary.from_tokenizer(model.tokenizer)
    automata = [align(language, vocabulary) for language in (constraint & Regex("The .*"), constraint)]
    log_p_the, log_p_either = (float(model.log_acceptance(language, length=length)) for language in automata)
    return math.exp(log_p_the - log_p_either)


def estimated_share(draws: Draws, constraint: Constraint, n: int = 8, k: int = 16) -> tuple[float, float]:
    """P(the text starts with `The` | L) under any model's own sampler, and its standard error, by particles.

    P(L and `The`) and P(L and `It`) are normalising constants; each is estimated by `n` runs of `k` particles.

    >>> share, error = estimated_share(Draws(club_model(), 10, steps=8), constraints()["one rule"], n=4, k=4)
    >>> 0 < share < 1, error > 0
    (True, True)
    """
    vocabulary = vocabulary_of(draws.model)
    runs = [
        draws.by_particles(align(constraint & Regex(f"{word} .*"), vocabulary), n, k) for word in ("The", "It")
    ]
    log_p_the, log_p_it = (run.log_evidence for run in runs)
    share = 1.0 / (1.0 + math.exp(min(700.0, log_p_it - log_p_the)))
    return share, share * (1.0 - share) * math.hypot(*(run.relative_error for run in runs))


def count(texts: Sequence[str], constraint: Constraint) -> Row:
    """The numbers of texts that start with either word, that start with `The`, and that satisfy the constraint.

    >>> row = count(["The man starts Fight Club.", "It is dark.", "He is."], constraints()["both open"])
    >>> row["share_the"], row["started"], row["satisfied"]
    (0.5, 2, 1)
    """
    n_the = sum(THE.match(text) is not None for text in texts)
    n_started = n_the + sum(IT.match(text) is not None for text in texts)
    share = n_the / n_started if n_started else math.nan
    error = math.sqrt(share * (1.0 - share) / n_started) if n_started else math.nan
    satisfied = sum(constraint.accepts(text) for text in texts)
    return {"n": len(texts), "started": n_started, "share_the": share, "error": error, "satisfied": satisfied}


@dataclass(frozen=True)
class Study:
    """The settings of the study with the exact model.

    >>> Study(samples=100).only(["chain"]).particles
    (('chain', (4, 16)),)
    """

    samples: int = 2000
    steps: int = 64
    length: int = 10
    seed: int = 0
    pool: int = 12_000  # unguided samples, for rejection
    guided: tuple[tuple[str, float], ...] = (
        ("posterior", 1.0),
        ("posterior", 2.5),
        ("gradient", 1.0),
        ("gradient", 2.5),
        ("path", 2.5),
        ("mixed", 2.5),
        ("chain", 1.0),
        ("chain", 1.5),
    )
    particles: tuple[tuple[str, tuple[int, ...]], ...] = (("posterior", (1, 4, 16, 64)), ("chain", (4, 16)))
    regexes: tuple[str, ...] = tuple(REGEXES)

    def only(self, methods: Sequence[str]) -> Study:
        """The part of the study with some guidance methods, alone and as proposals of particles."""
        guided = tuple(part for part in self.guided if part[0] in methods)
        proposals = tuple(part for part in self.particles if part[0] in methods)
        return replace(self, guided=guided, particles=proposals)


QUICK = Study(
    samples=200,
    steps=32,
    pool=1000,
    guided=(("gradient", 1.0), ("gradient", 2.5)),
    particles=(("posterior", (1, 8)),),
)


def measure(study: Study, progress: Callable[[str], None] = lambda _: None) -> Iterator[Row]:
    """The rows of the exact model: `share_the` and `true_share` per regex and system.

    >>> row = next(measure(Study(samples=4, steps=4, pool=8)))
    >>> row["regex"], row["system"]
    ('both open', 'rejection')
    """
    model = club_model()
    draws = Draws(model, study.length, study.steps, study.seed)
    vocabulary = Vocabulary.from_tokenizer(model.tokenizer)
    progress(f"drawing {study.pool} unguided samples")
    pool = draws.unguided(study.pool)
    unconstrained = draws.unconstrained(pool)
    for name in study.regexes:
        constraint = constraints()[name]
        automaton = align(constraint, vocabulary)
        n, truth = study.samples, true_share(model, constraint, study.length)

        def row(
            system: str,
            tokens: Tensor,
            began: float,
            *,
            name: str = name,
            constraint: Constraint = constraint,
            truth: float = truth,
        ) -> Row:
            progress(f"{name}: {system}")
            texts = [text_of(model, ids) for ids in tokens.tolist()]
            seconds = time.perf_counter() - began
            fields = {"regex": name, "system": system, "true_share": truth, "seconds": seconds}
            return {**fields, **count(texts, constraint)}

        began = time.perf_counter()
        accepted = [ids for ids in unconstrained if automaton.accepts(ids.tolist())][:n]
        yield row("rejection", torch.stack(accepted) if accepted else unconstrained[:0], began)
        began = time.perf_counter()
        strings = masked_autoregressive(model, automaton, n, study.length, study.seed)
        yield row("autoregressive", torch.from_numpy(strings), began)
        began = time.perf_counter()
        yield row("decoding", draws.conditional(pool[:n], automaton), began)
        for method, scale in study.guided:
            began = time.perf_counter()
            yield row(f"{method}@scale={scale}", draws.guided(automaton, n, method, scale), began)
        for proposal, particle_counts in study.particles:
            for k in particle_counts:
                began = time.perf_counter()
                tokens = draws.by_particles(automaton, n, k, proposal).tokens
                suffix = "" if proposal == "posterior" else f" ({proposal})"
                yield row(f"particles-{k}{suffix}", tokens, began)


def measure_systems(
    systems: Sequence[System],
    n: int,
    length: int,
    seed: int = 0,
    *,
    truth: DiffusionLM | None = None,
    steps: int = 64,
    regexes: Sequence[str] = tuple(REGEXES),
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[Row]:
    """The rows of any systems; with `truth`, also the estimated true share of that model.

    A system that can't express a regex gets a row with n = 0.

    >>> from diffinity.baselines.ours import GuidedSystem
    >>> [row["n"] for row in measure_systems([GuidedSystem.of(club_model(), "path", steps=4)], n=2, length=10)]
    [2, 2, 2]
    """
    for name in regexes:
        constraint = constraints()[name]
        common: Row = {"regex": name, "true_share": None, "true_error": None}
        if truth is not None:
            share, error = estimated_share(Draws(truth, length, steps, seed, rows=64), constraint)
            common |= {"true_share": share, "true_error": error}
        for system in systems:
            progress(f"{name}: {system.name}")
            began = time.perf_counter()
            try:
                texts = system.generate(constraint, n, length, seed)
            except UnsupportedConstraint:
                texts = []
            fields = {"system": system.name, "seconds": time.perf_counter() - began}
            yield {**common, **fields, **count(texts, constraint)}


def table(rows: Sequence[Row]) -> str:
    """The shares of `The` as Markdown: one row per system, one column per regex.

    >>> row = {"regex": "r", "system": "path", "n": 9, "share_the": 0.25, "true_share": 0.5}
    >>> print(table([row]))
    | system | r |
    |---|---|
    | truth | 50.0% |
    | path | 25.0% |
    """
    names = list(dict.fromkeys(row["regex"] for row in rows))
    lines: dict[str, dict[str, float | None]] = {"truth": {row["regex"]: row["true_share"] for row in rows}}
    for row in rows:
        lines.setdefault(row["system"], {})[row["regex"]] = row["share_the"] if row["n"] else None
    table_lines = [f"| system | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for system, shares in lines.items():
        values = [shares.get(name) for name in names]
        table_lines.append(f"| {system} | {' | '.join('–' if v is None else f'{100 * v:.1f}%' for v in values)} |")
    return "\n".join(table_lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m diffinity.bench.fight_club")
    parser.add_argument("--out", type=Path, required=True, help="file for the rows, as JSON lines")
    parser.add_argument("--samples", type=int, help="samples per row")
    parser.add_argument("--steps", type=int, help="denoising steps")
    parser.add_argument("--length", type=int, default=32, help="tokens, for --systems")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", help="only these guidances, alone and as proposals of particles")
    parser.add_argument("--particles", type=int, nargs="+", help="numbers of trajectories")
    parser.add_argument("--regexes", nargs="+", choices=list(REGEXES), help="only these regexes")
    parser.add_argument("--quick", action="store_true", help="a small version, half a minute")
    parser.add_argument("--systems", nargs="+", help="systems of the registry to run instead of the exact model")
    parser.add_argument("--diffusion", help="folder or hub id; the embedded model if not given")
    parser.add_argument("--autoregressive", help="folder or hub id; the embedded model if not given")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = _network_rows(options) if options.systems else _exact_rows(options)
    print(table(write_rows(rows, options.out)))


def _exact_rows(options: argparse.Namespace) -> Iterator[Row]:
    study = replace(QUICK if options.quick else Study(), seed=options.seed)
    if options.methods is not None:
        study = study.only(options.methods)
    if options.particles is not None:
        study = replace(study, particles=tuple((name, tuple(options.particles)) for name, _ in study.particles))
    if options.regexes is not None:
        study = replace(study, regexes=tuple(options.regexes))
    if options.samples is not None:
        study = replace(study, samples=options.samples)
    if options.steps is not None:
        study = replace(study, steps=options.steps)
    return measure(study, progress=print)


def _network_rows(options: argparse.Namespace) -> Iterator[Row]:
    from diffinity.baselines.registry import Models, build

    models = Models(diffusion=options.diffusion, autoregressive=options.autoregressive)
    systems = [build(name, models, {"steps": options.steps}) for name in options.systems]
    samples = options.samples or (20 if options.quick else 200)
    steps = options.steps or 64
    diffusion = models.load("diffusion")
    regexes = tuple(options.regexes or REGEXES)
    return measure_systems(
        systems,
        samples,
        options.length,
        options.seed,
        truth=diffusion,
        steps=steps,
        regexes=regexes,
        progress=print,
    )


if __name__ == "__main__":
    main()

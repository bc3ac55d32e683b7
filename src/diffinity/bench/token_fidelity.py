"""The distance of texts of masked and uniform processes from p(text | L), on the exact Markov model.

    python -m diffinity.bench.token_fidelity --out rows.jsonl [--samples 1000] [--noises mask uniform] [--quick]

The rows have the format of `diffinity.bench.fidelity`, with the same model, constraints, target and distance.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from diffinity.alignment import Vocabulary, align
from diffinity.bench.fidelity import Row, conditional, distance, study_constraints, study_model, table, write_rows
from diffinity.generation import Generator
from diffinity.models.protocol import Noise

MAX_ROWS = 500  # rows in one network call


@dataclass(frozen=True)
class TokenStudy:
    """The settings of the study; the defaults are the full study. A masked process has a step for each position.

    >>> TokenStudy().length
    8
    """

    samples: int = 1000
    length: int = 8
    uniform_steps: int = 32
    seed: int = 0
    noises: tuple[Noise, ...] = ("mask", "uniform")
    particles: tuple[int, ...] = (4, 16)
    constraints: tuple[str, ...] = tuple(study_constraints())


QUICK = TokenStudy(samples=60, uniform_steps=8, particles=(2,), constraints=("first word",))


def systems(study: TokenStudy, noise: Noise) -> Iterator[tuple[str, dict[str, Any]]]:
    """All systems, by name.

    >>> [name for name, _ in systems(QUICK, "uniform")]
    ['uniform: decoding', 'uniform: marginals', 'uniform: joint', 'uniform: joint, K = 2']
    """
    if noise == "uniform":
        base: dict[str, Any] = {"num_inference_steps": study.uniform_steps}
        variants: list[tuple[str, dict[str, Any]]] = [("decoding", {"guidance": "none"})]
        variants += [(method, {"guidance": method}) for method in ("marginals", "joint")]
    else:
        base = {"num_inference_steps": study.length, "order": "random"}
        variants = [("decoding", {"guidance": "none"})]
        variants += [(method, {"guidance": method}) for method in ("dingo", "marginals", "joint")]
        variants += [
            (f"joint, {order}", {"guidance": "joint", "order": order}) for order in ("confidence", "left-to-right")
        ]
        half = study.length // 2
        variants += [(f"joint, {half} steps", {"guidance": "joint", "num_inference_steps": half})]
    variants += [(f"joint, K = {k}", {"guidance": "joint", "particles": k}) for k in study.particles]
    for name, options in variants:
        yield f"{noise}: {name}", {**base, **options}


def measure(study: TokenStudy, progress: Callable[[str], None] = lambda _: None) -> Iterator[Row]:
    """The rows of the study, one at a time; deterministic except for `seconds`.

    >>> row = next(measure(replace(QUICK, samples=4)))
    >>> row["constraint"], row["method"], row["n"]
    ('first word', 'mask: decoding', 4)
    """
    markov = study_model()
    vocabulary = Vocabulary.from_tokenizer(markov.tokenizer)
    for name in study.constraints:
        constraint = study_constraints()[name]
        automaton = align(constraint, vocabulary)
        p_language, truth = conditional(markov, automaton, study.length)
        common = {
            "constraint": name,
            "p_language": p_language,
            "support": len(truth) - 1,
            "scale": None,
            "K": None,
        }
        for noise in study.noises:
            model = markov.tokens(noise)
            for system, options in systems(study, noise):
                started = time.perf_counter()
                batch_size = max(1, MAX_ROWS // options.get("particles", 1))
                generator = Generator(model, constraint, length=study.length, batch_size=batch_size, **options)
                tokens = torch.tensor([text.tokens for text in generator(study.samples, seed=study.seed)])
                fields = {"method": system, "seconds": time.perf_counter() - started}
                progress(f"{name} {system} {fields['seconds']:.0f} s")
                yield {**common, **fields, **distance(markov, tokens, truth)}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m diffinity.bench.token_fidelity")
    parser.add_argument("--out", type=Path, required=True, help="file for the rows, as JSON lines")
    parser.add_argument("--samples", type=int, help="samples per row")
    parser.add_argument("--noises", nargs="+", choices=["mask", "uniform"])
    parser.add_argument("--particles", nargs="*", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a small version, some seconds")
    options = parser.parse_args(arguments)
    study = replace(QUICK if options.quick else TokenStudy(), seed=options.seed)
    if options.samples is not None:
        study = replace(study, samples=options.samples)
    if options.noises is not None:
        study = replace(study, noises=tuple(options.noises))
    if options.particles is not None:
        study = replace(study, particles=tuple(options.particles))
    torch.set_num_threads(1)
    print(table(write_rows(measure(study, progress=print), options.out)))


if __name__ == "__main__":
    main()

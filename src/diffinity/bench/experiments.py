"""The suites of the benchmark: their cases, their systems with options, and the number of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from diffinity.baselines.base import System
from diffinity.baselines.registry import PER_CALL, Models, build, entry_of, split, variants
from diffinity.baselines.registry import chosen as chosen_systems
from diffinity.bench import json_suite
from diffinity.bench.cases import QUICK, Case, Rule, suite, thinned
from diffinity.bench.store import CaseRow
from diffinity.bench.workers import Job
from diffinity.errors import InvalidArgument

GUIDED = ("paper", "auto-argmax")
QUICK_SYSTEMS = (
    "auto",
    "auto-argmax",
    "path",
    "paper",
    "decoding-only",
    "unconstrained",
    "token-guidance",
    "llguidance",
    "outlines-core",
    "autoregressive-diffinity",
    "autoregressive-unconstrained",
    "dingo",
    "masked-exact",
    "masked-unconstrained",
)


@dataclass(frozen=True)
class Size:
    """The size of a suite: cases of each category (None: all) and samples of each case.

    >>> EXPERIMENTS["json"].full
    Size(cases_per_category=None, samples=10)
    """

    cases_per_category: int | None
    samples: int


@dataclass(frozen=True)
class Experiment:
    """A suite: its systems run on its cases, each system once for every value of `option` if the suite has one."""

    name: str
    about: str
    case_suites: tuple[Literal["natural-language", "json"], ...]
    systems: tuple[str, ...]
    full: Size
    quick: Size
    quick_systems: tuple[str, ...] | None = None
    option: str | None = None
    values: tuple[Any, ...] = ()
    quick_values: tuple[Any, ...] | None = None
    systems_without_option: tuple[str, ...] = ()

    def names(self, systems: Sequence[str] | None, quick: bool) -> list[str]:
        """The systems to run, with their options; `systems` replaces the suite's default systems.

        >>> EXPERIMENTS["scale"].names(["paper"], quick=True)
        ['paper@scale=1.0', 'paper@scale=2.5']
        """
        default_systems = self.quick_systems if quick and self.quick_systems is not None else self.systems
        system_names = chosen_systems(systems if systems else default_systems)
        if self.option is None:
            return system_names
        values = self.quick_values if quick and self.quick_values else self.values
        return [*variants(system_names, self.option, values), *(() if systems else self.systems_without_option)]


EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "natural-language",
            "110 constraints from the paper's six sentence templates",
            ("natural-language",),
            ("all",),
            Size(None, 20),
            Size(QUICK["natural-language"], 4),
            QUICK_SYSTEMS,
        ),
        Experiment(
            "json",
            "70 schemas in the manner of JSONSchemaBench, or those named with --schemas",
            ("json",),
            ("all",),
            Size(None, 10),
            Size(QUICK["json"], 4),
            QUICK_SYSTEMS,
        ),
        Experiment(
            "scale",
            "the guidance scale from 1.0 to 2.5",
            ("natural-language",),
            GUIDED,
            Size(4, 10),
            Size(1, 4),
            option="scale",
            values=(1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5),
            quick_values=(1.0, 2.5),
            systems_without_option=("unconstrained",),
        ),
        Experiment(
            "latency",
            "time per sample against transitions, at batch 1, 4 and 16",
            ("natural-language", "json"),
            ("unconstrained", "path", "auto", "paper"),
            Size(2, 3),  # 3 calls per case
            Size(1, 1),
            option=PER_CALL,
            values=(1, 4, 16),
            quick_values=(1, 4),
        ),
        Experiment(
            "match",
            "the quality of samples that match against those that do not",
            ("natural-language",),
            ("paper", "auto-argmax", "path-argmax", "gradient-argmax", "unconstrained"),
            Size(None, 20),
            Size(2, 4),
        ),
        Experiment(
            "steps",
            "quality against the number of denoising steps",
            ("natural-language",),
            ("unconstrained", "auto", "paper"),
            Size(3, 10),
            Size(1, 4),
            option="steps",
            values=(16, 32, 64, 128, 256),
            quick_values=(16, 64),
        ),
        Experiment(
            "framings",
            "the paper's three framings of a JSON document",
            ("json",),
            GUIDED,
            Size(2, 10),
            Size(1, 4),
            option="framing",
            values=tuple(framing.name for framing in json_suite.FRAMINGS),
            systems_without_option=("unconstrained",),
        ),
    )
}


@dataclass(frozen=True)
class SuitePlan:
    """The data that a worker needs to run a suite; implements `workers.Plan`.

    >>> SuitePlan((), length=16, seed=0).models.source("diffusion")
    'embedded'
    """

    cases: tuple[Case, ...]
    length: int
    seed: int
    steps: int | None = None
    models: Models = field(default_factory=Models)
    cache: Path | None = None  # where trained classifiers are stored

    def system(self, name: str) -> System:
        """The system with this name in the registry."""
        options: dict[str, Any] = {"others": [case.constraint for case in self.cases], "cache": self.cache}
        if entry_of(name).role == "diffusion":  # other models count steps differently
            options["steps"] = self.steps
        return build(name, self.models, options)

    def valid(self, system: str, case: Case, text: str) -> bool:
        """Whether the text passes the case's check; with the framing `search`, any part of the text."""
        _, options = split(system)
        return case.found_in(text) if options.get("framing") == "search" else case.valid(text)

    @cached_property
    def vocabulary(self) -> Any:
        """The vocabulary of the diffusion model."""
        from diffinity.models.protocol import vocabulary_of

        return vocabulary_of(self.models.load("diffusion"))


def select_cases(
    experiment: Experiment,
    *,
    seed: int,
    length: int,
    vocabulary: Any,
    schemas: str | None = None,
    selection: Rule = "ours",
    quick: bool = False,
) -> tuple[list[Case], list[json_suite.Skipped]]:
    """The cases of a suite that fit the length, and the omitted schemas, with the reason."""
    if schemas is not None and "json" not in experiment.case_suites:
        raise InvalidArgument(f"the suite {experiment.name} takes no schemas; json, framings and latency do")
    limit = (experiment.quick if quick else experiment.full).cases_per_category
    cases: list[Case] = []
    skipped: list[json_suite.Skipped] = []
    for name in experiment.case_suites:
        if name == "json":
            selected = json_suite.chosen(schemas, rule=selection, vocabulary=vocabulary, length=length)
            skipped += selected.skipped
            candidates = selected.cases
        else:
            candidates = suite(name, seed=seed)
        cases += candidates if limit is None else thinned(candidates, limit)
    if not cases:
        raise InvalidArgument(f"no case of {experiment.name} fits texts of {length} tokens")
    return cases, skipped


def named_cases(
    experiment: Experiment, rows: Sequence[CaseRow], seed: int, schemas: str | None = None
) -> list[Case]:
    """The cases of a run, in its order; they must not have changed.

    >>> cases, _ = select_cases(EXPERIMENTS["scale"], seed=0, length=64, vocabulary=None, quick=True)
    >>> named_cases(EXPERIMENTS["scale"], describe(SuitePlan(tuple(cases), 64, 0)), seed=0) == cases
    True
    """
    case_of_id: dict[str, Case] = {}
    for name in experiment.case_suites:
        cases = json_suite.read(schemas).cases if name == "json" else suite(name, seed=seed)
        case_of_id |= {case.id: case for case in cases}
    for row in rows:
        if row.id not in case_of_id or case_of_id[row.id].source != row.source:
            raise InvalidArgument(
                f"the run has the case {row.id}, which is missing or different in this version's suite "
                f"{experiment.name}: name another folder"
            )
    return [case_of_id[row.id] for row in rows]


def make_jobs(cases: Sequence[Case], systems: Sequence[str], samples: int) -> list[Job]:
    """One job for every system and case; a system with the option `batch` makes `samples` calls of that size.

    >>> from diffinity.bench.cases import suite
    >>> make_jobs(suite("natural-language")[:1], ["paper@batch=4"], 3)[0].samples
    12
    """
    jobs = []
    for case in cases:
        for name in systems:
            batch = split(name)[1].get(PER_CALL)
            jobs.append(Job(name, case.id, samples if batch is None else samples * batch, batch))
    return jobs


def describe(plan: SuitePlan, *, sizes: bool = False) -> list[CaseRow]:
    """The cases as stored in the run's folder; `sizes` adds the transitions of their automata."""
    rows = [CaseRow(case.id, case.category, case.kind, case.source) for case in plan.cases]
    if not sizes:
        return rows
    from diffinity.alignment import align

    measured = []
    for case, row in zip(plan.cases, rows, strict=True):
        automaton = align(case.constraint, plan.vocabulary)
        measured.append(replace(row, facts={"transitions": automaton.n_transitions, "states": automaton.n_states}))
    return measured

"""The suites that are studies: they yield rows of numbers instead of samples of cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from diffinity.baselines.registry import Models, build
from diffinity.bench import plots
from diffinity.bench.layout import Table
from diffinity.bench.measures import Interval
from diffinity.bench.plots import Plot
from diffinity.bench.store import RunFolder
from diffinity.bench.tables import study_table

CLUB_SAMPLES, CLUB_QUICK_SAMPLES = 200, 20  # of a system of the registry

Row = Mapping[str, Any]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class StudySettings:
    """The options of a study; None for the study's default.

    `systems` are names of the registry, for a study that can run with networks instead of its exact model.

    >>> StudySettings(quick=True).seed
    0
    """

    quick: bool = False
    seed: int = 0
    samples: int | None = None
    steps: int | None = None
    length: int | None = None
    systems: tuple[str, ...] = ()
    models: Models = field(default_factory=Models)

    def over(self, study: Any) -> Any:
        """The study's dataclass with these options replaced."""
        options = {"seed": self.seed, "samples": self.samples, "steps": self.steps, "length": self.length}
        return replace(study, **{name: value for name, value in options.items() if value is not None})


@dataclass(frozen=True)
class StudySuite:
    """A study: its independent parts, its rows, and their presentation."""

    name: str
    about: str
    parts: Callable[[StudySettings], Sequence[str]]
    rows: Callable[[StudySettings, Sequence[str], Tell], Iterator[Row]]
    part_of: Callable[[Row], str]
    tables: Callable[[Sequence[Row]], Iterator[Table]]
    plots: Callable[[Sequence[Row]], Iterator[Plot]]
    takes_systems: bool = False


def run_study(folder: RunFolder, study: StudySuite, settings: StudySettings, tell: Tell = lambda _: None) -> bool:
    """Run the unfinished parts of a study and store each row at once; returns whether it is complete.

    An interrupted part runs again; its existing rows are not changed.
    """
    finished = list(folder.info.get("finished", []))
    remaining = [part for part in study.parts(settings) if part not in finished]
    stored = {_identity(row) for row in folder.study()}
    current: str | None = None
    try:
        for row in study.rows(settings, remaining, tell) if remaining else ():
            part = study.part_of(row)
            if current is not None and part != current:
                finished.append(current)
                folder.update(finished=finished)
            current = part
            if _identity(row) not in stored:
                stored.add(_identity(row))
                folder.append_study(row)
    except KeyboardInterrupt:
        return False
    folder.update(finished=list(study.parts(settings)))
    return True


def _identity(row: Row) -> tuple[tuple[str, str], ...]:
    """The identity of a row: its text fields and settings, without the measured values."""
    names = ("constraint", "regex", "system", "method", "scale", "K")
    return tuple((name, str(row[name])) for name in names if name in row)


# ---- fidelity


def _fidelity_study(settings: StudySettings) -> Any:
    from diffinity.bench import fidelity

    return settings.over(fidelity.QUICK if settings.quick else fidelity.Study())


def _fidelity_rows(settings: StudySettings, parts: Sequence[str], tell: Tell) -> Iterator[Row]:
    from diffinity.bench import fidelity

    yield from fidelity.measure(replace(_fidelity_study(settings), constraints=tuple(parts)), progress=tell)


def _fidelity_tables(rows: Sequence[Row]) -> Iterator[Table]:
    columns = ("method", "scale", "K", "constraint", "p_language", "n", "tv", "tv_floor", "seconds")
    ordered = sorted(rows, key=lambda row: (str(row.get("method")), row.get("scale") or 0, row.get("K") or 0))
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in ordered:
        groups.setdefault((row.get("method"), row.get("scale"), row.get("K")), []).append(row)
    mean_rows = [
        {
            "method": method,
            "scale": scale,
            "K": k,
            "constraints": len(group),
            "tv": _mean(group, "tv"),
            "tv_floor": _mean(group, "tv_floor"),
        }
        for (method, scale, k), group in groups.items()
    ]
    note = (
        "tv: the total-variation distance between samples and the model's true p(text | L), 0 for the same and 1 "
        "for nothing in common; tv_floor: what as many exact draws would show. K: particles."
    )
    mean = study_table(
        "Mean over constraints", mean_rows, ("method", "scale", "K", "constraints", "tv", "tv_floor")
    )
    yield replace(mean, notes=(note,))
    yield study_table("Distance from the true conditional distribution", ordered, columns)


def _fidelity_plots(rows: Sequence[Row]) -> Iterator[Plot]:
    guided = [row for row in rows if row.get("K") is None]
    particles = [row for row in rows if row.get("K") is not None]
    distance = "total-variation distance, mean over constraints"
    candidates = (
        plots.study_lines(
            "fidelity-scale",
            "Distance from the true conditional against the guidance scale.",
            guided,
            "scale",
            "tv",
            "method",
            labels=("guidance scale", distance),
        ),
        plots.study_lines(
            "fidelity-particles",
            "Distance from the true conditional against the number of particles.",
            particles,
            "K",
            "tv",
            "method",
            labels=("particles", distance),
            log=True,
        ),
    )
    yield from (plot for plot in candidates if plot is not None)


# ---- fight club


def _club_rows(settings: StudySettings, parts: Sequence[str], tell: Tell) -> Iterator[Row]:
    """The rows of the exact model, or those of the systems, with the diffusion model's estimated share."""
    from diffinity.bench import fight_club

    if not settings.systems:
        study = settings.over(fight_club.QUICK if settings.quick else fight_club.Study())
        rows: Iterator[Row] = fight_club.measure(study, progress=tell)
    else:
        model = settings.models.load("diffusion")
        steps = settings.steps or model.sampling_defaults.num_inference_steps
        rows = fight_club.measure_systems(
            [build(name, settings.models, {"steps": steps}) for name in settings.systems],
            settings.samples or (CLUB_QUICK_SAMPLES if settings.quick else CLUB_SAMPLES),
            settings.length or model.sampling_defaults.length,
            settings.seed,
            truth=model,
            steps=steps,
            progress=tell,
        )
    yield from (row for row in rows if row["regex"] in parts)


def _club_parts(_: StudySettings) -> list[str]:
    from diffinity.bench import fight_club

    return list(fight_club.REGEXES)


def _club_tables(rows: Sequence[Row]) -> Iterator[Table]:
    columns = ("regex", "system", "n", "satisfied", "started", "share_the", "error", "true_share", "true_error")
    present = [name for name in columns if any(row.get(name) is not None for row in rows)]
    note = (
        "share_the: of the texts that start with `The` or `It`, the share that start with `The`, with its "
        "standard error; true_share: that of the model given the regex."
    )
    yield replace(study_table("Sentences that start with The against It", rows, present), notes=(note,))


def _club_plots(rows: Sequence[Row]) -> Iterator[Plot]:
    for i, regex in enumerate(dict.fromkeys(str(row["regex"]) for row in rows)):
        group = [row for row in rows if row["regex"] == regex and row.get("share_the") is not None]
        if not group:
            continue
        shares = {
            str(row["system"]): Interval(
                row["share_the"], row["share_the"] - row["error"], row["share_the"] + row["error"]
            )
            for row in group
        }
        truth = group[0].get("true_share")
        caption = (
            f"Share of sentences that start with The, regex “{regex}”; dashed: the model's own, given the regex."
        )
        plot = plots.bars("fight-club", str(i + 1), caption, "share that start with The, %", shares, 100.0, truth)
        if plot is not None:
            yield plot


def _mean(rows: Sequence[Row], name: str) -> float | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return sum(values) / len(values) if values else None


STUDIES: dict[str, StudySuite] = {
    "fidelity": StudySuite(
        "fidelity",
        "how far guided samples are from the exact conditional distribution of a Markov model",
        lambda settings: _fidelity_study(settings).constraints,
        _fidelity_rows,
        lambda row: str(row["constraint"]),
        _fidelity_tables,
        _fidelity_plots,
    ),
    "fight-club": StudySuite(
        "fight-club",
        "whether sentences that may start with The or It do so in the model's own proportion",
        _club_parts,
        _club_rows,
        lambda row: str(row["regex"]),
        _club_tables,
        _club_plots,
        takes_systems=True,
    ),
}

"""`diffinity bench report`: tables, plots and every sample of one or more runs, as Markdown, HTML and CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diffinity.bench import page, plots, tables
from diffinity.bench.experiments import EXPERIMENTS
from diffinity.bench.layout import NOT_MEASURED, Table
from diffinity.bench.measures import Interval
from diffinity.bench.plots import Plot
from diffinity.bench.published import PAPER
from diffinity.bench.scoring import grammar_counts, likelihoods, ratings, scorer_id
from diffinity.bench.store import Run, read_run
from diffinity.bench.studies import STUDIES
from diffinity.bench.summary import Results, Summary
from diffinity.errors import CheckpointError, InvalidArgument

MARKDOWN, PAGE, NUMBERS = "report.md", "report.html", "results.csv"
CSV_COLUMNS = ("run", "suite", "system", "category", "measure", "value", "low", "high", "n")
OPTIONS = {
    "scale": "guidance scale γ",
    "steps": "denoising steps",
    "framing": "framing",
    "batch": "texts a call",
}


@dataclass(frozen=True)
class Section:
    """A run in the report."""

    results: Results
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    plots: tuple[Plot, ...]
    numbers: tuple[tuple[Any, ...], ...]

    @property
    def title(self) -> str:
        """The suite, and the run if its folder is not called after it."""
        run = self.results.run
        return run.suite if run.path.name == run.suite else f"{run.suite} ({run.path.name})"


def write_report(
    runs: Sequence[Path],
    out: Path,
    *,
    scorer: str | None = "companion",
    on_progress: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Read runs, score what has no score yet, and write report.md, report.html, results.csv and the plots.

    `scorer` is what measures perplexity (see `scorers.load_scorer`), None for none. A companion that is not there
    is no error: perplexity is then reported as not measured.
    """
    if not runs:
        raise InvalidArgument("name at least one run to report")
    names = [path.resolve().name for path in runs]
    if len(set(names)) < len(names):
        raise InvalidArgument(f"two runs have the same folder name, which would mix them up: {', '.join(names)}")
    sections = []
    for path in runs:
        on_progress(f"reading {path.name}")
        sections.append(section_of(read_results(path, scorer, on_progress=on_progress)))
    out.mkdir(parents=True, exist_ok=True)
    pictures = out / "plots"
    for section in sections:
        for plot in section.plots:
            pictures.mkdir(exist_ok=True)
            (pictures / f"{_file(section, plot)}.svg").write_text(plot.svg, encoding="utf-8")
    (out / MARKDOWN).write_text(markdown(sections), encoding="utf-8")
    (out / PAGE).write_text(html(sections), encoding="utf-8")
    with (out / NUMBERS).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(CSV_COLUMNS)
        for section in sections:
            writer.writerows(section.numbers)
    return [out / MARKDOWN, out / PAGE, out / NUMBERS]


def read_results(
    path: Path, scorer: str | None, *, on_progress: Callable[[str], None] = lambda _: None
) -> Results:
    """A run with its scores."""
    run = read_run(path)

    def tell(what: str) -> Callable[[int, int], None]:
        return lambda done, total: on_progress(f"{what} {path.name}: {done} of {total} texts")

    counts = grammar_counts(run, on_progress=tell("parsing"))
    unscored = Results(run, {}, ratings(run), grammar=counts)
    if scorer is None or not run.samples:
        return unscored
    try:
        scores = likelihoods(run, scorer, on_progress=tell("scoring"))
    except CheckpointError as error:
        if scorer != "companion":
            raise
        on_progress(f"perplexity is not measured: {error}")
        return unscored
    return Results(run, scores, ratings(run), scorer_id(scorer), counts)


def section_of(results: Results) -> Section:
    """What a report says of a run.

    >>> from diffinity.bench.summary import example
    >>> [table.title for table in section_of(example()).tables][:2]
    ['Systems', 'Satisfaction by category']
    """
    run = results.run
    if run.suite in STUDIES:
        study = STUDIES[run.suite]
        made = tuple(study.plots(run.study)) if plots.available() else ()
        return Section(results, tuple(run_facts(run)), tuple(study.tables(run.study)), made, _study_numbers(run))
    summaries = tables.summaries_of(results)
    by = tables.by_category(results)
    shown = tuple(_tables(results, summaries, by))
    pictures = tuple(_plots(results, summaries, by)) if plots.available() else ()
    return Section(
        results, tuple(run_facts(run, results)), shown, pictures, tuple(_numbers(results, summaries, by))
    )


def _tables(
    results: Results, summaries: Mapping[str, Summary], by: Mapping[str, Mapping[str, Summary]]
) -> Iterator[Table]:
    experiment = EXPERIMENTS.get(results.run.suite)
    option = experiment.option if experiment else None
    if results.run.suite == "match":
        yield tables.match_table(results, list(summaries))
        yield tables.main_table(results, summaries)
    elif option == "batch":
        yield tables.latency_table(results, summaries)
    elif option is not None:
        yield tables.option_table(results, summaries, option, OPTIONS[option])
    else:
        yield tables.main_table(results, summaries)
        yield tables.category_table(results, summaries, by)
        yield tables.texts_table(results, summaries)
        aims = tables.aims_table(results, summaries)
        if aims is not None and results.run.suite in ("natural-language", "json"):
            yield aims


def _plots(
    results: Results, summaries: Mapping[str, Summary], by: Mapping[str, Mapping[str, Summary]]
) -> Iterator[Plot]:
    suite = results.run.suite
    experiment = EXPERIMENTS.get(suite)
    option = experiment.option if experiment else None
    made: list[Plot | None] = []
    if suite == "match":
        caption = "Perplexity of samples that match and of those that do not."
        made.append(plots.pairs(suite, caption, "perplexity", tables.matching(results, list(summaries))))
    elif option == "batch":
        made += plots.latency(results, summaries)
    elif option == "framing":
        satisfied = {
            f"{base}, {value}": one.satisfaction for base, value, one in tables.by_option(summaries, option)
        }
        made.append(plots.bars(suite, "framings", "Satisfaction by framing.", "satisfied, %", satisfied, 100.0))
    elif option is not None:
        for measure in ("satisfied, %", "perplexity of matching samples"):
            made.append(plots.over_option(suite, option, OPTIONS[option], summaries, measure))
    else:
        made.append(plots.trade_off(suite, summaries))
        known = [
            name for name in ("auto", "auto-argmax", "paper", "llguidance", "dingo", "unconstrained") if name in by
        ]
        made.append(plots.categories(suite, by, known or list(by)[:6]))
        times = {name: one.overhead for name, one in summaries.items()}
        caption = "Time over that of the same model without a constraint."
        made.append(plots.bars(suite, "overhead", caption, "times the unconstrained model's time", times))
    yield from (plot for plot in made if plot is not None)


# ---- what a run was


def run_facts(run: Run, results: Results | None = None) -> Iterator[tuple[str, str]]:
    """The command, the machine, the seeds, the models and the numbers of samples, as names and values.

    >>> from diffinity.bench.summary import example
    >>> dict(run_facts(example().run))["seed"]
    '0'
    """
    info = run.info
    settings = info.get("settings", {})
    sessions = info.get("sessions", [])
    for command in dict.fromkeys(session.get("command", "") for session in sessions):
        yield "command", f"`{command}`"
    if run.suite in EXPERIMENTS:
        yield "suite", EXPERIMENTS[run.suite].about
    elif run.suite in STUDIES:
        yield "suite", STUDIES[run.suite].about
    yield "seed", str(settings.get("seed", "not recorded"))
    told = [
        f"{name} {settings[name]}" for name in ("samples", "length", "steps") if settings.get(name) is not None
    ]
    if settings.get("schemas"):
        told.append(f"schemas {settings['schemas']}, selected by the rule “{settings.get('selection')}”")
    yield "settings", ", ".join([*told, *(["quick"] if settings.get("quick") else [])]) or "the suite's own"
    if results is not None:
        yield "samples", _counted(results)
    for role, model in info.get("models", {}).items():
        weights = model.get("model.safetensors", "")
        yield (
            f"{role} model",
            f"{model.get('source', '?')}" + (f", weights SHA-256 {weights[:16]}…" if weights else ""),
        )
    if results is not None:
        yield "perplexity under", results.scorer or NOT_MEASURED
    for machine in dict.fromkeys(_machine(session.get("machine", {})) for session in sessions):
        yield "machine", machine
    for versions in dict.fromkeys(_listed(session.get("versions", {})) for session in sessions):
        yield "versions", versions
    dates = [str(session.get("started", "")) for session in sessions]
    if dates:
        yield "run on", dates[0][:10] + (f" to {dates[-1][:10]}" if dates[-1][:10] != dates[0][:10] else "")
    for name, reason in info.get("unavailable", {}).items():
        yield "did not run", f"{name}: {reason}"
    left_out = info.get("left_out", [])
    if left_out:
        yield "left out", f"{len(left_out)} schemas, each with its reason in run.json"


def _counted(results: Results) -> str:
    run = results.run
    cases = len(run.cases)
    there = sum(row.outcome == "sample" for row in run.samples)
    expected = sum(
        0 if lines[0].outcome != "sample" else results.wanted
        for name in run.systems
        for lines in results.rows(name).values()
    )
    missing = len(run.systems) * cases - sum(len(results.rows(name)) for name in run.systems)
    said = f"{there:,} of {len(run.systems)} systems on {cases} constraints"
    return said + (" (the run is not finished)" if missing or there < expected else "")


def _machine(machine: Mapping[str, Any]) -> str:
    memory = machine.get("memory_gb")
    parts = [
        machine.get("cpu"),
        f"{machine.get('cores')} cores",
        f"{memory} GB" if memory else None,
        machine.get("os"),
    ]
    return ", ".join(str(part) for part in parts if part)


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


# ---- the numbers as CSV


def _numbers(
    results: Results, summaries: Mapping[str, Summary], by: Mapping[str, Mapping[str, Summary]]
) -> Iterator[tuple[Any, ...]]:
    run = results.run
    for name, whole in summaries.items():
        for category, one in [("all", whole), *by[name].items()]:
            values: dict[str, Interval | float | None] = {
                "satisfaction": one.satisfaction,
                f"pass@{one.k}": one.pass_k,
                "perplexity of matching": one.perplexity,
                "perplexity of all": one.perplexity_all,
                "nats of matching": one.nats,
                "tokens of matching": one.tokens,
                "seconds a sample": one.seconds,
                "overhead": one.overhead,
                "distinct-2": one.distinct_2,
                "self-BLEU": one.self_bleu,
                "fluency": one.fluency,
                "sentences fully parsed": one.grammar.parsed_share,
                "words in no dictionary": one.grammar.non_word_share,
                "clean sentences": one.grammar.clean_share,
                "peak memory, bytes": one.peak_memory,
                "constraints": one.cases,
                "constraints not expressible": one.unsupported,
                "constraints failed": one.errors,
                "classifier AUC": one.auc,
            }
            for measure, value in values.items():
                cells = _cells(value)
                if cells is not None:
                    yield (run.path.name, run.suite, name, category, measure, *cells, one.samples)


def _cells(value: Interval | float | None) -> tuple[Any, Any, Any] | None:
    if isinstance(value, Interval):
        if math.isnan(value.estimate):
            return None
        return _digits(value.estimate), _digits(value.low), _digits(value.high)
    return None if value is None or math.isnan(value) else (_digits(value), "", "")


def _digits(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _study_numbers(run: Run) -> tuple[tuple[Any, ...], ...]:
    """The numbers of a study's rows, each named by the words of its row."""
    found = []
    for row in run.study:
        words = " ".join(str(value) for value in row.values() if isinstance(value, str))
        for name, value in row.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                found.append(
                    (run.path.name, run.suite, words, "all", name, _digits(value), "", "", row.get("n", ""))
                )
    return tuple(found)


# ---- the report as text


def markdown(sections: Sequence[Section]) -> str:
    """The report as Markdown, its plots beside it.

    >>> from diffinity.bench.summary import example
    >>> markdown([section_of(example())]).splitlines()[0]
    '# Benchmark report'
    """
    parts = ["# Benchmark report", _introduction()]
    for section in sections:
        parts.append(f"## {section.title}")
        parts.append("\n".join(f"- {name}: {value}" for name, value in section.facts))
        for table in section.tables:
            parts += [f"### {table.title}", table.markdown()]
        parts += [f"![{plot.caption}](plots/{_file(section, plot)}.svg)" for plot in section.plots]
    return "\n\n".join(parts) + "\n"


def html(sections: Sequence[Section]) -> str:
    """The report as one page, every sample in it.

    >>> from diffinity.bench.summary import example
    >>> html([section_of(example())])[:15]
    '<!doctype html>'
    """
    body = [page.heading(1, "Benchmark report"), f'<p class="note">{page.text(_introduction())}</p>']
    for section in sections:
        body += [page.heading(2, section.title), page.facts(section.facts)]
        body += [page.table(table) for table in section.tables]
        body += [page.figure(plot) for plot in section.plots]
        if section.results.run.samples:
            body += page.samples(section.results)
    return page.page("Benchmark report", body)


def _introduction() -> str:
    return (
        f"Numbers marked as the paper's are from {PAPER}; they were measured with another model on another "
        "machine. All others were measured here, by the commands that stand beside them."
    )


def _file(section: Section, plot: Plot) -> str:
    run = section.results.run
    return plot.name if run.path.name == run.suite else f"{run.path.name}-{plot.name}"

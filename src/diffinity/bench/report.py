"""`diffinity bench report`: tables, plots and samples of one or more runs, as Markdown, HTML, CSV and JSON."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diffinity.bench import page, plots, tables
from diffinity.bench.experiments import EXPERIMENTS
from diffinity.bench.facts import run_facts
from diffinity.bench.layout import Table
from diffinity.bench.measures import Interval
from diffinity.bench.overview import numbers_of, summary_table
from diffinity.bench.plots import Plot
from diffinity.bench.published import PAPER
from diffinity.bench.samples import SUFFIX, write_samples
from diffinity.bench.scorers import EMBEDDED_SCORER
from diffinity.bench.scoring import grammar_counts, likelihoods, ratings, scorer_id
from diffinity.bench.store import Run, read_run
from diffinity.bench.studies import STUDIES
from diffinity.bench.summary import Results, Summary
from diffinity.errors import CheckpointError, InvalidArgument

MARKDOWN, PAGE, NUMBERS = "report.md", "report.html", "results.csv"
CSV_COLUMNS = ("run", "suite", "system", "category", "measure", "value", "low", "high", "n")
OPTIONS = {
    "scale": "guidance scale",
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
        """The suite, and the name of the run if it differs."""
        run = self.results.run
        return run.suite if run.path.name == run.suite else f"{run.suite} ({run.path.name})"

    @property
    def samples_file(self) -> str:
        """The file with all samples; empty for a study, which has none."""
        run = self.results.run
        return f"{run.path.name}{SUFFIX}" if run.samples else ""

    @property
    def has_systems(self) -> bool:
        """Whether the run compares systems, so that its numbers belong in the summary."""
        return self.results.run.suite in ("natural-language", "json")


def write_report(
    runs: Sequence[Path],
    out: Path,
    *,
    scorer: str | None = EMBEDDED_SCORER,
    on_progress: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Read runs, compute missing scores, and write report.md, report.html, results.csv, plots and samples.

    `scorer` measures perplexity (see `scorers.load_scorer`); None for no perplexity. If the embedded scorer is
    missing, perplexity is reported as not measured.
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
        if section.samples_file:
            run = section.results.run
            write_samples(out / section.samples_file, run.cases.values(), run.samples)
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

    def report_progress(activity: str) -> Callable[[int, int], None]:
        return lambda done, total: on_progress(f"{activity} {path.name}: {done} of {total} texts")

    counts = grammar_counts(run, on_progress=report_progress("parsing"))
    unscored = Results(run, {}, ratings(run), grammar=counts)
    if scorer is None or not run.samples:
        return unscored
    try:
        scores = likelihoods(run, scorer, on_progress=report_progress("scoring"))
    except CheckpointError as error:
        if scorer != EMBEDDED_SCORER:
            raise
        on_progress(f"perplexity is not measured: {error}")
        return unscored
    return Results(run, scores, ratings(run), scorer_id(scorer), counts)


def section_of(results: Results) -> Section:
    """The section of a run in the report.

    >>> from diffinity.bench.summary import example
    >>> [table.title for table in section_of(example()).tables][:2]
    ['Systems', 'Satisfaction by category']
    """
    run = results.run
    if run.suite in STUDIES:
        study = STUDIES[run.suite]
        pictures = tuple(study.plots(run.study)) if plots.available() else ()
        study_tables = tuple(study.tables(run.study))
        return Section(results, tuple(run_facts(run)), study_tables, pictures, _study_numbers(run))
    summaries = tables.summaries_of(results)
    category_summaries = tables.by_category(results)
    run_tables = tuple(_tables(results, summaries, category_summaries))
    pictures = tuple(_plots(results, summaries, category_summaries)) if plots.available() else ()
    return Section(
        results,
        tuple(run_facts(run, results)),
        run_tables,
        pictures,
        tuple(_numbers(results, summaries, category_summaries)),
    )


def _tables(
    results: Results, summaries: Mapping[str, Summary], category_summaries: Mapping[str, Mapping[str, Summary]]
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
        yield tables.category_table(results, summaries, category_summaries)
        yield tables.texts_table(results, summaries)
        aims = tables.aims_table(results, summaries)
        if aims is not None and results.run.suite in ("natural-language", "json"):
            yield aims


def _plots(
    results: Results, summaries: Mapping[str, Summary], category_summaries: Mapping[str, Mapping[str, Summary]]
) -> Iterator[Plot]:
    suite = results.run.suite
    experiment = EXPERIMENTS.get(suite)
    option = experiment.option if experiment else None
    candidates: list[Plot | None] = []
    if suite == "match":
        caption = "Perplexity of samples that match and of those that do not."
        candidates.append(plots.pairs(suite, caption, "perplexity", tables.matching(results, list(summaries))))
    elif option == "batch":
        candidates += plots.latency(results, summaries)
    elif option == "framing":
        satisfied = {
            f"{base}, {value}": summary.satisfaction
            for base, value, summary in tables.by_option(summaries, option)
        }
        candidates.append(
            plots.bars(suite, "framings", "Satisfaction by framing.", "satisfied, %", satisfied, 100.0)
        )
    elif option is not None:
        for measure in ("satisfied, %", "perplexity of matching samples"):
            candidates.append(plots.over_option(suite, option, OPTIONS[option], summaries, measure))
    else:
        candidates.append(
            plots.trade_off(
                suite,
                {summary.system: (summary.perplexity, summary.satisfaction) for summary in summaries.values()},
            )
        )
        systems = [
            name
            for name in ("auto", "auto-argmax", "paper", "llguidance", "dingo", "unconstrained")
            if name in category_summaries
        ]
        candidates.append(plots.categories(suite, category_summaries, systems or list(category_summaries)[:6]))
        times = {name: summary.overhead for name, summary in summaries.items()}
        caption = "Time relative to the same model without a constraint."
        candidates.append(plots.bars(suite, "overhead", caption, "times the unconstrained model's time", times))
    yield from (plot for plot in candidates if plot is not None)


# ---- the numbers as CSV


def _numbers(
    results: Results, summaries: Mapping[str, Summary], category_summaries: Mapping[str, Mapping[str, Summary]]
) -> Iterator[tuple[Any, ...]]:
    run = results.run
    for name, overall in summaries.items():
        for category, summary in [("all", overall), *category_summaries[name].items()]:
            values: dict[str, Interval | float | None] = {
                "satisfaction": summary.satisfaction,
                f"pass@{summary.k}": summary.pass_k,
                "perplexity of matching": summary.perplexity,
                "perplexity of all": summary.perplexity_all,
                "nats of matching": summary.nats,
                "tokens of matching": summary.tokens,
                "seconds a sample": summary.seconds,
                "overhead": summary.overhead,
                "distinct-2": summary.distinct_2,
                "self-BLEU": summary.self_bleu,
                "fluency": summary.fluency,
                "sentences fully parsed": summary.grammar.parsed_share,
                "words in no dictionary": summary.grammar.non_word_share,
                "clean sentences": summary.grammar.clean_share,
                "peak memory, bytes": summary.peak_memory,
                "constraints": summary.cases,
                "constraints not expressible": summary.unsupported,
                "constraints failed": summary.errors,
                "classifier AUC": summary.auc,
            }
            for measure, value in values.items():
                cells = _cells(value)
                if cells is not None:
                    yield (run.path.name, run.suite, name, category, measure, *cells, summary.samples)


def _cells(value: Interval | float | None) -> tuple[Any, Any, Any] | None:
    if isinstance(value, Interval):
        if math.isnan(value.estimate):
            return None
        return _digits(value.estimate), _digits(value.low), _digits(value.high)
    return None if value is None or math.isnan(value) else (_digits(value), "", "")


def _digits(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _study_numbers(run: Run) -> tuple[tuple[Any, ...], ...]:
    """The numbers of a study's rows, named by the text fields of the row."""
    numbers = []
    for row in run.study:
        label = " ".join(str(value) for value in row.values() if isinstance(value, str))
        for name, value in row.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                numbers.append(
                    (run.path.name, run.suite, label, "all", name, _digits(value), "", "", row.get("n", ""))
                )
    return tuple(numbers)


# ---- the report as text


def markdown(sections: Sequence[Section]) -> str:
    """The report as Markdown, with plots and samples in separate files.

    >>> from diffinity.bench.summary import example
    >>> markdown([section_of(example())]).splitlines()[0]
    '# Benchmark report'
    """
    parts = ["# Benchmark report", _introduction()]
    overview = _overview(sections)
    parts += ["## Summary", overview.markdown()] if overview is not None else []
    for section in sections:
        parts.append(f"## {section.title}")
        pictures = [f"![{plot.caption}](plots/{_file(section, plot)}.svg)" for plot in section.plots]
        parts += pictures[:1]
        for table in section.tables:
            parts += [f"### {table.title}", table.markdown()]
        parts += pictures[1:]
        if section.samples_file:
            parts.append(f"All samples: [{section.samples_file}]({section.samples_file})")
    parts.append("## Provenance")
    for section in sections:
        parts += [f"### Run {section.title}", "\n".join(f"- {name}: {value}" for name, value in section.facts)]
    return "\n\n".join(parts) + "\n"


def html(sections: Sequence[Section]) -> str:
    """The report as one page: a summary, the contents, a section for each run, and the provenance of the runs.

    >>> from diffinity.bench.summary import example
    >>> html([section_of(example())])[:15]
    '<!doctype html>'
    """
    overview = _overview(sections)
    titles = ["Summary"] if overview is not None else []
    titles += [section.title for section in sections]
    body = [page.heading(1, "Benchmark report"), f'<p class="note">{page.text(_introduction())}</p>']
    body.append(page.contents([*titles, "Provenance"]))
    if overview is not None:
        body += [page.heading(2, "Summary"), page.table(dataclasses.replace(overview, title=""))]
    for section in sections:
        body.append(page.heading(2, section.title))
        body += [page.figure(plot) for plot in section.plots[:1]]
        body += [page.table(table) for table in section.tables]
        body += [page.figure(plot) for plot in section.plots[1:]]
        if section.samples_file:
            body += page.samples(section.results, section.samples_file)
    body.append(page.heading(2, "Provenance"))
    for section in sections:
        body += [page.heading(3, f"Run {section.title}"), page.facts(section.facts)]
    return page.page("Benchmark report", body)


def _overview(sections: Sequence[Section]) -> Table | None:
    return summary_table(numbers_of(row for section in sections for row in section.numbers if section.has_systems))


def _introduction() -> str:
    return (
        f"Numbers marked as the paper's are from {PAPER}; they were measured with another model on another "
        "machine. All others were measured here; the commands and the machine are given at the end."
    )


def _file(section: Section, plot: Plot) -> str:
    run = section.results.run
    return plot.name if run.path.name == run.suite else f"{run.path.name}-{plot.name}"

"""The tables of a report, in the layout of the paper's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from diffinity.baselines.registry import REGISTRY, split
from diffinity.bench.layout import DASH, NOT_MEASURED, Table, number, percent, ratio
from diffinity.bench.measures import Interval
from diffinity.bench.published import COPIED, HEADING, published
from diffinity.bench.summary import Results, Summary, perplexity_of, reference_of, summarise

# ---- the two main suites


def main_table(results: Results, summaries: Mapping[str, Summary]) -> Table:
    """Every system: satisfaction, pass@k, perplexity, time, overhead, with the paper's own numbers in columns.

    >>> from diffinity.bench.summary import example
    >>> main_table(example(), summaries_of(example())).rows[1][:3]
    ('auto', '2', '100.0% [100.0, 100.0]')
    """
    suite = results.run.suite
    k = max((summary.k for summary in summaries.values()), default=10)
    figure_of_measure = {measure: published(suite, measure) for measure in ("satisfaction", "overhead")}
    columns: dict[str, list[str]] = {"system": list(summaries)}

    def add(heading: str, format_cell: Callable[[Summary], str]) -> None:
        columns[heading] = [format_cell(summary) for summary in summaries.values()]

    def add_published(heading: str, measure: str) -> None:
        published_figure = figure_of_measure[measure]
        if published_figure is not None and "paper" in summaries:
            add(
                f"{heading}: {HEADING}",
                lambda summary: published_figure.shown if summary.system == "paper" else "",
            )

    def relative_perplexity(summary: Summary) -> str:
        reference = summaries.get(reference_of(summary.system) or "")
        return DASH if reference is None else number(ratio(summary.perplexity, reference.perplexity_all), 2)

    add(
        "constraints",
        lambda summary: (
            f"{summary.cases}" + (f" of {summary.cases + summary.unsupported}" if summary.unsupported else "")
        ),
    )
    add("satisfied", lambda summary: percent(summary.satisfaction))
    add_published("satisfied", "satisfaction")
    add(f"pass@{k}", lambda summary: percent(summary.pass_k))
    add("perplexity of matching", lambda summary: number(summary.perplexity) if results.scorer else NOT_MEASURED)
    if results.scorer:
        add("× unconstrained", relative_perplexity)
    add("seconds a sample", lambda summary: number(summary.seconds, 3))
    add("overhead", lambda summary: number(summary.overhead, 2))
    add_published("overhead", "overhead")
    rows = zip(*columns.values(), strict=True)
    notes = [
        "`re.fullmatch` or `jsonschema-rs` checks satisfaction, never our automaton. Each constraint counts the "
        "same. A constraint on which a system fails counts as not satisfied; a constraint that it cannot express "
        "is left out of its row. Brackets: 95% bootstrap intervals over constraints.",
        "Perplexity is the geometric mean over matching samples"
        + (f" under {results.scorer}" if results.scorer else "")
        + ". × unconstrained: divided by the perplexity of all samples of the same model without a constraint. "
        "Overhead: time divided by that model's time, on the same constraints and in the same run. Seconds: one "
        "call for all samples of a constraint, divided by their number.",
    ]
    if results.scorer_is_a_baseline:
        notes.append(
            "The autoregressive systems draw from the model that measures their perplexity, which lowers it."
        )
    return Table("Systems", tuple(columns), tuple(rows), tuple(notes))


def category_table(
    results: Results, summaries: Mapping[str, Summary], category_summaries: Mapping[str, Mapping[str, Summary]]
) -> Table:
    """Satisfaction per category and overall, with the paper's numbers in the first row.

    >>> from diffinity.bench.summary import example
    >>> category_table(example(), summaries_of(example()), by_category(example())).columns
    ('system', 'all', 'prefix', 'length')
    """
    categories = results.categories
    suite = results.run.suite
    figures = [published(suite, "satisfaction", category) for category in [None, *categories]]
    rows = [
        (
            name,
            percent(summary.satisfaction),
            *(percent(category_summaries[name][category].satisfaction) for category in categories),
        )
        for name, summary in summaries.items()
    ]
    notes = []
    if any(figures):
        rows.insert(0, (f"{HEADING}: the paper's method", *(figure.shown if figure else "" for figure in figures)))
        if any(figure and figure.source == COPIED for figure in figures):
            notes.append(f"The paper's numbers per category are given {COPIED}.")
    return Table("Satisfaction by category", ("system", "all", *categories), tuple(rows), tuple(notes))


def texts_table(results: Results, summaries: Mapping[str, Summary]) -> Table:
    """Other quality and cost measures: diversity, fluency, memory, failures.

    >>> from diffinity.bench.summary import example
    >>> texts_table(example(), summaries_of(example())).rows[1][2:5]
    ('2.0', '4.0 [4.0, 4.0]', '1.00')
    """
    judges = sorted({judge for judge, _ in results.ratings.values()})
    rows = [
        (
            name,
            number(summary.perplexity_all) if results.scorer else NOT_MEASURED,
            number(summary.tokens) if results.scorer else NOT_MEASURED,
            number(summary.nats) if results.scorer else NOT_MEASURED,
            number(summary.distinct_2, 2),
            number(summary.self_bleu, 2),
            *_grammar_cells(summary),
            NOT_MEASURED if summary.fluency is None else f"{summary.fluency:.2f} of 5 ({summary.rated} rated)",
            DASH if summary.peak_memory is None else f"{summary.peak_memory / 1e6:,.0f} MB",
            str(summary.unsupported),
            str(summary.errors),
            number(summary.auc, 3),
        )
        for name, summary in summaries.items()
    ]
    columns = (
        "system",
        "perplexity of all",
        "tokens of matching",
        "nats of matching",
        "distinct-2",
        "self-BLEU",
        "clean sentences",
        "fully parsed",
        "non-words",
        "fluency",
        "peak memory",
        "not expressible",
        "failed",
        "classifier AUC",
    )
    grammar = (
        "A sentence is clean if the parser of link-grammar reads all of it, every word is in a dictionary of "
        "hunspell and none stands twice in a row; of the sentences in matching samples."
    )
    length = (
        "Nats are averages over whole texts. Perplexity is per token, so it is lower for a system that continues "
        "long after the constrained part; nats are lower for a system that stops early."
    )
    note = (
        "distinct-2 and self-BLEU are computed over the matching samples of a constraint and averaged over "
        "constraints. Peak memory is that of the process, with all systems of the run loaded. "
        + (
            f"Fluency by {', '.join(judges)}."
            if judges
            else "Fluency: no judge was named, so it was not measured."
        )
    )
    notes = ([length] if results.scorer else []) + ([grammar] if results.grammar else []) + [note]
    return Table("Texts, memory and failures", columns, tuple(rows), tuple(notes))


def _grammar_cells(summary: Summary) -> tuple[str, str, str]:
    counts = summary.grammar
    if not counts.sentences:
        return NOT_MEASURED, NOT_MEASURED, NOT_MEASURED
    return f"{counts.clean_share:.2f}", f"{counts.parsed_share:.2f}", f"{counts.non_word_share:.1%}"


def aims_table(results: Results, summaries: Mapping[str, Summary]) -> Table | None:
    """The targets of our systems and the measured values; None if none of our systems ran.

    >>> from diffinity.bench.summary import example
    >>> aims_table(example(), summaries_of(example())).rows[0]
    ('auto', 'satisfied 100%', '100.0% [100.0, 100.0]', 'reached')
    """
    argmax_aim = {"natural-language": 0.99, "json": 0.95}.get(results.run.suite)
    exact, argmax = summaries.get("auto"), summaries.get("auto-argmax")
    rows: list[tuple[str, ...]] = []

    def add(system: str, aim: str, reached: bool, measured: str) -> None:
        rows.append((system, aim, measured, "reached" if reached else "not reached"))

    if exact is not None:
        add("auto", "satisfied 100%", exact.satisfaction.estimate == 1.0, percent(exact.satisfaction))
        add("auto", f"pass@{exact.k} 100%", exact.pass_k.estimate == 1.0, percent(exact.pass_k))
    if argmax is not None and argmax_aim is not None:
        reached = argmax.satisfaction.estimate >= argmax_aim
        add("auto-argmax", f"satisfied at least {argmax_aim:.0%}", reached, percent(argmax.satisfaction))
    reference = summaries.get(reference_of("auto") or "")
    if exact is not None and reference is not None and results.scorer is not None:
        perplexity_ratio = ratio(exact.perplexity, reference.perplexity_all)
        add(
            "auto",
            "perplexity at most 1.1 times the unconstrained model's",
            perplexity_ratio <= 1.1,
            number(perplexity_ratio, 2),
        )
    if exact is not None and results.scorer is not None:
        better = [other.system for other in _not_ours(summaries) if _at_least_as_good(other, exact)]
        aim = "no baseline is as good on satisfaction and perplexity together"
        add("auto", aim, not better, ", ".join(better) or "none is")
    columns = ("system", "aim", "measured", "verdict")
    return Table("Aims", columns, tuple(rows), text_columns=(1, 2, 3)) if rows else None


def _not_ours(summaries: Mapping[str, Summary]) -> list[Summary]:
    return [
        summary
        for name, summary in summaries.items()
        if split(name)[0] in REGISTRY and REGISTRY[split(name)[0]].group == "baselines"
    ]


def _at_least_as_good(summary: Summary, other: Summary) -> bool:
    """Whether satisfaction and perplexity are at least as good; False if some constraints are unsupported."""
    return (
        not summary.unsupported
        and summary.satisfaction.estimate >= other.satisfaction.estimate
        and summary.perplexity.estimate <= other.perplexity.estimate
    )


# ---- suites with one option


def option_table(results: Results, summaries: Mapping[str, Summary], option: str, heading: str) -> Table:
    """One row for every system and value of an option.

    >>> from diffinity.bench.summary import example
    >>> len(option_table(example(), summaries_of(example()), "scale", "guidance scale").rows)
    2
    """
    rows = []
    without_option = [(name, DASH, summary) for name, summary in summaries.items() if option not in split(name)[1]]
    for base, value, summary in [*by_option(summaries, option), *without_option]:
        rows.append(
            (
                base,
                str(value),
                percent(summary.satisfaction),
                number(summary.perplexity) if results.scorer else NOT_MEASURED,
                number(summary.perplexity_all) if results.scorer else NOT_MEASURED,
                number(summary.seconds, 3),
                number(summary.overhead, 2),
            )
        )
    columns = (
        "system",
        heading,
        "satisfied",
        "perplexity of matching",
        "perplexity of all",
        "seconds a sample",
        "overhead",
    )
    return Table(f"By {heading}", columns, tuple(rows))


def by_option(summaries: Mapping[str, Summary], option: str) -> Iterator[tuple[str, Any, Summary]]:
    """The summaries of systems with an option in their names, grouped by system.

    >>> from diffinity.bench.summary import example
    >>> list(by_option(summaries_of(example()), "scale"))
    []
    """
    for name, summary in summaries.items():
        base, options = split(name)
        if option in options:
            yield base, options[option], summary


def matching(results: Results, systems: Sequence[str]) -> dict[str, dict[str, Interval]]:
    """The perplexity of each system's matching samples and of its other samples.

    >>> from diffinity.bench.summary import example
    >>> round(matching(example(), ["auto"])["matching"]["auto"].estimate, 3)
    7.389
    """
    cases = {name: list(results.rows(name).values()) for name in systems}
    return {
        "matching": {name: perplexity_of(results, cases[name], lambda row: row.valid is True) for name in systems},
        "not matching": {
            name: perplexity_of(results, cases[name], lambda row: row.valid is False) for name in systems
        },
    }


def match_table(results: Results, systems: Sequence[str]) -> Table:
    """Perplexity of samples that match and of samples that do not.

    >>> from diffinity.bench.summary import example
    >>> match_table(example(), ["auto"]).rows[0][1::2]
    ('4', '0', '—')
    """
    perplexities = matching(results, systems)
    rows = []
    for name in systems:
        groups = [perplexities["matching"][name], perplexities["not matching"][name]]
        flags = [row.valid for lines in results.rows(name).values() for row in lines]
        formatted = [number(group) if results.scorer else NOT_MEASURED for group in groups]
        counted = [str(flags.count(match)) for match in (True, False)]
        rows.append((name, counted[0], formatted[0], counted[1], formatted[1], number(ratio(*groups), 2)))
    columns = (
        "system",
        "matching",
        "perplexity of matching",
        "not matching",
        "perplexity of not matching",
        "matching / not matching",
    )
    return Table("Samples that match against those that do not", columns, tuple(rows))


def latency_table(results: Results, summaries: Mapping[str, Summary]) -> Table:
    """Seconds per sample for every automaton, one column for each system and batch size.

    >>> from diffinity.bench.summary import example
    >>> latency_table(example(), summaries_of(example())).rows[0]
    ('s/prefix/a', '0', '1.000', '1.500')
    """
    names = list(summaries)
    cases = sorted(results.run.cases.values(), key=lambda case: int(case.facts.get("transitions", 0)))
    rows = []
    for case in cases:
        times = [
            min(
                (row.seconds for row in results.rows(name).get(case.id, ()) if row.seconds is not None),
                default=None,
            )
            for name in names
        ]
        rows.append((case.id, f"{case.facts.get('transitions', 0):,}", *(number(time, 3) for time in times)))
    rows.append(("mean overhead", "", *(number(summaries[name].overhead, 2) for name in names)))
    note = "Each time is the shortest of the calls for that constraint, over its batch."
    return Table("Seconds a sample", ("constraint", "transitions", *names), tuple(rows), (note,))


def study_table(title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Table:
    """The rows of a study, unchanged.

    >>> study_table("", [{"a": 1 / 3, "b": None}], ["a", "b"]).rows
    (('0.3333', '—'),)
    """

    def formatted(value: Any) -> str:
        if value is None:
            return DASH
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    return Table(title, tuple(columns), tuple(tuple(formatted(row.get(name)) for name in columns) for row in rows))


def summaries_of(results: Results) -> dict[str, Summary]:
    """The summary of every system over all cases.

    >>> from diffinity.bench.summary import example
    >>> list(summaries_of(example()))
    ['unconstrained', 'auto']
    """
    return {name: summarise(results, name) for name in results.run.systems}


def by_category(results: Results) -> dict[str, dict[str, Summary]]:
    """The summary of every system for every category.

    >>> from diffinity.bench.summary import example
    >>> list(by_category(example())["auto"])
    ['prefix', 'length']
    """
    return {
        name: {category: summarise(results, name, category) for category in results.categories}
        for name in results.run.systems
    }

"""The numbers of a run: every measure of every system, over all cases and for each category, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from diffinity.baselines.registry import REGISTRY, split
from diffinity.bench.grammar import GrammarCounts
from diffinity.bench.measures import Interval, bootstrap, distinct_n, pass_at_k, self_bleu
from diffinity.bench.scorers import Score
from diffinity.bench.scoring import text_key
from diffinity.bench.store import CaseRow, Run, SampleRow

NO_INTERVAL = Interval(math.nan, math.nan, math.nan)
PASS = 10
RESAMPLES = 2000


@dataclass(frozen=True)
class Summary:
    """The measures of one system on some cases; NaN and None if not measured.

    `cases` does not include cases that a system can't express; it includes failed cases, with no valid sample.

    >>> summarise(example(), "auto").samples
    4
    """

    system: str
    category: str | None  # None: all
    cases: int
    unsupported: int
    errors: int
    samples: int
    satisfaction: Interval
    pass_k: Interval
    k: int
    perplexity: Interval  # of matching samples
    perplexity_all: Interval
    nats: Interval  # mean over matching texts
    tokens: float  # mean over matching texts, with the end token
    seconds: Interval  # per sample
    overhead: Interval  # time divided by the time of the same model without a constraint, on the same cases
    distinct_2: float  # within a case, of matching samples
    self_bleu: float
    peak_memory: int | None
    fluency: float | None
    rated: int
    grammar: GrammarCounts  # of the sentences of matching samples, by the grammar judge
    auc: float | None


@dataclass(frozen=True)
class Results:
    """A run with the scores of its texts.

    >>> example().categories
    ['prefix', 'length']
    """

    run: Run
    scores: Mapping[str, Score]
    ratings: Mapping[str, tuple[str, int]]
    scorer: str | None = None
    grammar: Mapping[str, GrammarCounts] = field(default_factory=dict)

    @property
    def samples_per_case(self) -> int:
        """The number of samples that a case should have."""
        settings = self.run.info.get("settings", {})
        return int(settings.get("samples", 0)) or max((row.index + 1 for row in self.run.samples), default=0)

    @property
    def scorer_is_a_baseline(self) -> bool:
        """Whether perplexity is measured by the model that the autoregressive systems use."""
        weights = self.run.info.get("models", {}).get("autoregressive", {}).get("model.safetensors", "")
        return bool(weights) and self.scorer is not None and self.scorer.endswith(f":{weights[:12]}")

    @property
    def categories(self) -> list[str]:
        """The categories, in the order of the cases."""
        return list(dict.fromkeys(case.category for case in self.run.cases.values()))

    def rows(self, system: str) -> dict[str, list[SampleRow]]:
        """The lines of a system by case."""
        return self._by_system.get(system, {})

    @cached_property
    def _by_system(self) -> dict[str, dict[str, list[SampleRow]]]:
        by_system: dict[str, dict[str, list[SampleRow]]] = {}
        for row in self.run.samples:
            by_system.setdefault(row.system, {}).setdefault(row.case, []).append(row)
        return by_system

    def score(self, row: SampleRow) -> Score | None:
        """Nats and tokens of a sample's text; None if it was not scored."""
        return self.scores.get(text_key(row.text)) if row.text is not None else None

    def log_perplexity(self, row: SampleRow) -> float | None:
        """Nats per token of a sample's text; None if it was not scored."""
        score = self.score(row)
        return None if score is None else score.nats / score.tokens

    def fluency(self, row: SampleRow) -> int | None:
        """The judge's rating of a sample's text, if there is one."""
        rating = self.ratings.get(text_key(row.text)) if row.text is not None else None
        return None if rating is None else rating[1]


def example() -> Results:
    """A run in memory with two systems on two cases, for the doctests in this folder.

    >>> example().run.systems
    ['unconstrained', 'auto']
    """
    cases = [CaseRow("s/prefix/a", "prefix", "sentence", "a+"), CaseRow("s/length/b", "length", "sentence", "b+")]
    systems = {"unconstrained": ("nn", 1.0), "auto": ("yy", 1.5)}
    rows = [
        SampleRow(case.id, system, i, f"{case.id[-1]} {flag}{i}", flag == "y", seconds, 2)
        for system, (flags, seconds) in systems.items()
        for case in cases
        for i, flag in enumerate(flags)
    ]
    info = {"suite": "natural-language", "settings": {"samples": 2, "seed": 0}}
    run = Run(Path("example"), info, {case.id: case for case in cases}, tuple(rows))
    return Results(run, {text_key(str(row.text)): Score(4.0, 2) for row in rows}, {}, "a scorer")


def summarise(results: Results, system: str, category: str | None = None) -> Summary:
    """The measures of one system over the cases of a category, or over all.

    >>> found = summarise(example(), "auto")
    >>> found.satisfaction.estimate, found.overhead.estimate
    (1.0, 1.5)
    """
    rows = {
        case: lines
        for case, lines in results.rows(system).items()
        if category is None or results.run.cases[case].category == category
    }
    supported = {case: lines for case, lines in rows.items() if lines[0].outcome != "unsupported"}
    valid = [_flags(lines, results.samples_per_case) for lines in supported.values()]
    samples = [row for lines in supported.values() for row in lines if row.outcome == "sample"]
    k = min([PASS, results.samples_per_case, *(len(flags) for flags in valid)])
    rated = [rating for row in samples if row.valid and (rating := results.fluency(row)) is not None]
    memory = [row.peak_memory for row in samples if row.peak_memory is not None]
    aucs = [row.facts["auc"] for row in samples if row.facts and "auc" in row.facts]
    diversity_cases = supported.values() if category is None else ()  # diversity is shown only over all cases
    texts_of_cases = [[str(row.text) for row in lines if row.valid] for lines in diversity_cases]
    return Summary(
        system=system,
        category=category,
        cases=len(supported),
        unsupported=len(rows) - len(supported),
        errors=sum(lines[0].outcome == "error" for lines in supported.values()),
        samples=len(samples),
        satisfaction=_bootstrap([sum(flags) / len(flags) for flags in valid]),
        pass_k=_bootstrap([pass_at_k(len(flags), sum(flags), k) for flags in valid]) if k else NO_INTERVAL,
        k=k,
        perplexity=perplexity_of(results, supported.values(), lambda row: bool(row.valid)),
        perplexity_all=perplexity_of(results, supported.values(), lambda _: True),
        nats=_nats(results, supported.values()),
        tokens=_mean([score.tokens for row in samples if row.valid and (score := results.score(row)) is not None]),
        seconds=_bootstrap(list(_case_seconds(supported).values())),
        overhead=_overhead(results, system, supported),
        distinct_2=_mean([distinct_n(texts, 2) for texts in texts_of_cases if texts]),
        self_bleu=_mean([self_bleu(texts) for texts in texts_of_cases if len(texts) > 1]),
        peak_memory=max(memory, default=None),
        fluency=sum(rated) / len(rated) if rated else None,
        rated=len(rated),
        grammar=sum(
            (
                results.grammar.get(text_key(row.text), GrammarCounts())
                for row in samples
                if row.valid and row.text
            ),
            GrammarCounts(),
        ),
        auc=sum(aucs) / len(aucs) if aucs else None,
    )


def perplexity_of(
    results: Results, cases: Iterable[Sequence[SampleRow]], is_selected: Callable[[SampleRow], bool]
) -> Interval:
    """The geometric mean perplexity of the samples that `is_selected` accepts; all have the same weight.

    >>> rows = example().rows("auto").values()
    >>> round(perplexity_of(example(), rows, lambda row: bool(row.valid)).estimate, 3)
    7.389
    """
    totals, counts = [], []
    for lines in cases:
        scored = [results.log_perplexity(row) for row in lines if row.outcome == "sample" and is_selected(row)]
        measured = [score for score in scored if score is not None]
        totals.append(sum(measured))
        counts.append(len(measured))
    if not sum(counts):
        return NO_INTERVAL
    return bootstrap(totals, counts, transform=np.exp, resamples=RESAMPLES)


def _nats(results: Results, cases: Iterable[Sequence[SampleRow]]) -> Interval:
    """The mean nats of the matching texts; all texts have the same weight."""
    scored = [
        [score for row in lines if row.valid and (score := results.score(row)) is not None] for lines in cases
    ]
    if not any(scored):
        return NO_INTERVAL
    totals = [sum(score.nats for score in scores) for scores in scored]
    return bootstrap(totals, [len(scores) for scores in scored], resamples=RESAMPLES)


def reference_of(system: str) -> str | None:
    """The same model without a constraint, with the options `batch` and `steps` of the system.

    >>> reference_of("paper@batch=4"), reference_of("dingo"), reference_of("unknown")
    ('unconstrained@batch=4', 'masked-unconstrained', None)
    """
    base, options = split(system)
    if base not in REGISTRY or REGISTRY[base].reference is None:
        return None
    shared = {name: value for name, value in options.items() if name in ("batch", "steps")}
    option_text = ",".join(f"{name}={value}" for name, value in shared.items())
    return f"{REGISTRY[base].reference}{'@' if option_text else ''}{option_text}"


def _overhead(results: Results, system: str, cases: Mapping[str, list[SampleRow]]) -> Interval:
    """Time divided by the reference's time, over the cases that both have and at the same batch size."""
    reference = reference_of(system)
    if reference is None:
        return NO_INTERVAL
    seconds, reference_seconds = _case_seconds(cases), _case_seconds(results.rows(reference))
    common_cases = [case for case in seconds if case in reference_seconds]
    if not common_cases:
        return NO_INTERVAL
    return bootstrap(
        [seconds[case] for case in common_cases],
        [reference_seconds[case] for case in common_cases],
        resamples=RESAMPLES,
    )


def _case_seconds(cases: Mapping[str, list[SampleRow]]) -> dict[str, float]:
    """Seconds per sample of each case: the median of its calls."""
    seconds = {}
    for case, lines in cases.items():
        times = [row.seconds for row in lines if row.seconds is not None]
        if times:
            seconds[case] = float(np.median(times))
    return seconds


def _flags(lines: Sequence[SampleRow], samples: int) -> list[bool]:
    """Which samples are valid; a failed case counts as the requested number of invalid samples."""
    if lines[0].outcome == "error":
        return [False] * max(1, samples)
    return [bool(row.valid) for row in lines]


def _bootstrap(values: Sequence[float]) -> Interval:
    return bootstrap(values, resamples=RESAMPLES) if values else NO_INTERVAL


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def case_label(case: CaseRow) -> str:
    """A short label of a case: its id without the suite.

    >>> case_label(CaseRow("json/Github_easy/box", "Github_easy", "json", "{}"))
    'Github_easy/box'
    """
    return case.id.partition("/")[2] or case.id

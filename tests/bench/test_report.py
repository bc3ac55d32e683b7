"""The report and the comparison: their numbers by hand, hostile texts as mere text, verdicts in words."""

from __future__ import annotations

import csv
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import pytest

from diffinity.bench import compare as comparison
from diffinity.bench import labels
from diffinity.bench.experiments import EXPERIMENTS, make_jobs
from diffinity.bench.layout import Table
from diffinity.bench.measures import Interval
from diffinity.bench.published import HEADING, NUMBERS
from diffinity.bench.report import read_results, section_of, write_report
from diffinity.bench.samples import read_samples
from diffinity.bench.scorers import Score
from diffinity.bench.scoring import add_scores, text_key, to_be_judged
from diffinity.bench.store import CaseRow, RunFolder, SampleRow, read_run
from diffinity.bench.studies import STUDIES, StudySettings, StudySuite, run_study
from diffinity.bench.summary import Results, summarise
from diffinity.bench.tables import by_category, main_table, match_table, summaries_of
from diffinity.errors import InvalidArgument

HOSTILE = '</script><img src=x onerror="alert(1)"> & `code` | [link](javascript:x)'
CASES = [CaseRow("s/a/1", "a", "sentence", "x+"), CaseRow("s/a/2", "a", "sentence", "y+")]
CASES += [CaseRow("s/b/1", "b", "sentence", "<b>")]


def rows(system: str, case: str, valid: str, seconds: float, text: str = "") -> list[SampleRow]:
    """Samples of a case: `valid` has one letter each, y or n."""
    texts = [text or f"{case} {flag} {i % 2}" for i, flag in enumerate(valid)]
    return [
        SampleRow(case, system, i, texts[i], flag == "y", seconds, len(valid), 10**8)
        for i, flag in enumerate(valid)
    ]


def failed(system: str, case: str, outcome: Any) -> list[SampleRow]:
    return [SampleRow(case, system, -1, None, None, None, outcome=outcome, reason=f"a reason {HOSTILE}")]


def run_folder(path: Path, samples: list[SampleRow], suite: str = "natural-language", **info: Any) -> Path:
    with RunFolder.open(path, suite, {"seed": 7, "samples": 4, "length": 16, "steps": 8}) as folder:
        folder.write_cases(CASES)
        folder.append(samples)
        session = {
            "command": "diffinity bench run natural-language --out run --seed 7",
            "started": "2026-01-02T03:04:05+00:00",
            "machine": {"cpu": "A processor", "cores": 2, "memory_gb": 8.0, "os": "An OS"},
            "versions": {"python": "3.11.0"},
        }
        folder.update(systems=list(dict.fromkeys(row.system for row in samples)), sessions=[session], **info)
    return path


def example(path: Path) -> Path:
    samples = [
        *rows("unconstrained", "s/a/1", "nnnn", 1.0),
        *rows("unconstrained", "s/a/2", "nnny", 1.0),
        *rows("unconstrained", "s/b/1", "nnnn", 2.0),
        *rows("auto", "s/a/1", "yyyy", 2.0),
        *rows("auto", "s/a/2", "yyyy", 3.0),
        *rows("auto", "s/b/1", "yyyy", 3.0, HOSTILE),
        *rows("paper", "s/a/1", "yyyn", 3.0),
        *rows("paper", "s/a/2", "ynnn", 3.0),
        *failed("paper", "s/b/1", "error"),
        *rows("token-guidance", "s/a/1", "yynn", 1.0),
        *failed("token-guidance", "s/a/2", "unsupported"),
        *failed("token-guidance", "s/b/1", "unsupported"),
    ]
    return run_folder(path, samples)


class Nats:
    """A scorer that gives the n-th different text it sees n nats a token."""

    name = "nats"

    def score(self, texts: Any) -> list[Score]:
        return [Score(2.0 * (i + 1), 2) for i, _ in enumerate(texts)]


def with_scores(path: Path, nats: dict[str, float]) -> Results:
    """A run whose texts have the nats a token of the first letters that fit."""
    run = read_run(path)
    scores = {}
    for row in run.samples:
        if row.text is not None:
            fitting = [value for start, value in nats.items() if row.text.startswith(start)]
            scores[text_key(row.text)] = Score(3 * fitting[0], 3)
    return Results(run, scores, {}, "a scorer")


def test_satisfaction_counts_constraints_alike_and_failures_as_invalid(tmp_path: Path) -> None:
    results = read_results(example(tmp_path / "run"), None)
    paper = summarise(results, "paper")
    assert paper.satisfaction.estimate == pytest.approx((3 / 4 + 1 / 4 + 0) / 3)
    assert (paper.cases, paper.unsupported, paper.errors, paper.samples) == (3, 0, 1, 8)
    assert summarise(results, "paper", "a").satisfaction.estimate == pytest.approx(0.5)
    assert summarise(results, "auto").satisfaction == Interval(1.0, 1.0, 1.0)


def test_what_a_system_cannot_express_is_left_out_of_its_share(tmp_path: Path) -> None:
    tokens = summarise(read_results(example(tmp_path / "run"), None), "token-guidance")
    assert tokens.satisfaction.estimate == pytest.approx(0.5)
    assert (tokens.cases, tokens.unsupported) == (1, 2)


def test_pass_at_k_is_over_as_many_samples_as_there_are(tmp_path: Path) -> None:
    paper = summarise(read_results(example(tmp_path / "run"), None), "paper")
    assert paper.k == 4
    assert paper.pass_k.estimate == pytest.approx(2 / 3)  # at least one valid in two cases of three


def test_overhead_is_over_the_same_model_on_the_same_cases(tmp_path: Path) -> None:
    results = read_results(example(tmp_path / "run"), None)
    assert summarise(results, "auto").overhead.estimate == pytest.approx(8 / 4)
    assert summarise(results, "paper").overhead.estimate == pytest.approx(6 / 2)  # the failed case has no time
    assert summarise(results, "token-guidance").overhead.estimate == pytest.approx(1.0)
    assert summarise(results, "auto").seconds.estimate == pytest.approx(8 / 3)


def test_perplexity_is_the_geometric_mean_over_matching_samples(tmp_path: Path) -> None:
    nats = {"s/a/1 y": 1.0, "s/a/1 n": 3.0, "s/a/2 y": 2.0, "s/a/2 n": 4.0, "s/b": 5.0, "<": 0.0}
    results = with_scores(example(tmp_path / "run"), nats)
    paper = summarise(results, "paper")
    assert paper.perplexity.estimate == pytest.approx(math.exp((3 * 1.0 + 1 * 2.0) / 4))
    assert paper.perplexity_all.estimate == pytest.approx(math.exp((3 * 1.0 + 3.0 + 2.0 + 3 * 4.0) / 8))
    assert paper.nats.estimate == pytest.approx(3 * (3 * 1.0 + 1 * 2.0) / 4)
    assert paper.tokens == 3.0
    table = match_table(results, ["paper"])
    assert table.rows[0][1:4:2] == ("4", "4")
    assert table.rows[0][2].startswith(f"{math.exp(5 / 4):.1f} ")
    assert table.rows[0][4].startswith(f"{math.exp(15 / 4):.1f} ")


def test_the_main_table_shows_the_paper_s_numbers_in_marked_columns(tmp_path: Path) -> None:
    results = read_results(example(tmp_path / "run"), None)
    table = main_table(results, summaries_of(results))
    cells = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert cells["paper"][f"satisfied: {HEADING}"] == "93%"
    assert cells["paper"][f"overhead: {HEADING}"] == "2.1–2.9 (batch 1)"
    assert cells["auto"][f"satisfied: {HEADING}"] == ""
    assert cells["auto"]["satisfied"] == "100.0% [100.0, 100.0]"
    assert cells["auto"]["perplexity of matching"] == "not measured"
    assert cells["token-guidance"]["constraints"] == "1 of 3"
    assert all(number.source for number in NUMBERS)


def test_files_are_written_with_the_command_the_machine_and_the_seed(tmp_path: Path) -> None:
    written = write_report([example(tmp_path / "run")], tmp_path / "report", scorer=None)
    assert [path.name for path in written] == ["report.md", "report.html", "results.csv"]
    for path in written[:2]:
        text = path.read_text()
        for fact in ("diffinity bench run natural-language --out run --seed 7", "A processor, 2 cores", "3.11.0"):
            assert fact in text
    assert "- seed: 7" in written[0].read_text()
    numbers = list(csv.DictReader(written[2].read_text().splitlines()))
    found = {(row["system"], row["category"], row["measure"]): row for row in numbers}
    assert float(found["paper", "all", "satisfaction"]["value"]) == pytest.approx(1 / 3, abs=1e-5)
    assert found["paper", "b", "satisfaction"]["value"] == "0"
    assert found["auto", "all", "satisfaction"]["n"] == "12"
    assert ("auto", "all", "fluency") not in found


def test_the_fluency_of_an_absent_judge_is_not_measured(tmp_path: Path) -> None:
    written = write_report([example(tmp_path / "run")], tmp_path / "report", scorer=None)
    assert "no judge was named, so it was not measured" in written[0].read_text()


class Tags(HTMLParser):
    """Every tag and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_a_hostile_text_is_shown_as_text_and_nothing_else(tmp_path: Path) -> None:
    written = write_report([example(tmp_path / "run")], tmp_path / "report", scorer=None)
    page = written[1].read_text()
    parser = Tags()
    parser.feed(page)
    assert not parser.tags & {"script", "img", "iframe", "link"}
    assert any(HOSTILE in words for words in parser.words)  # of a sample
    assert any("a reason" in words and "onerror" in words for words in parser.words)
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert "<img" not in written[0].read_text()


def test_the_page_shows_some_samples_of_every_system_and_links_to_all(tmp_path: Path) -> None:
    page = write_report([example(tmp_path / "run")], tmp_path / "report", scorer=None)[1].read_text()
    # The first three of the first constraint of both categories, s/a/1 and s/b/1; failures stand in their place.
    assert page.count('<li class="valid">') == 6 + 3 + 2
    assert page.count('<li class="invalid">') == 6 + 1
    assert page.count('<li class="none">') == 2
    assert '<a href="run-samples.jsonl.gz">' in page


def test_the_file_of_samples_has_every_sample_and_constraint_the_same_bytes_each_time(tmp_path: Path) -> None:
    folder = example(tmp_path / "run")
    for out in ("one", "two"):
        write_report([folder], tmp_path / out, scorer=None)
    cases, samples = read_samples(tmp_path / "one" / "run-samples.jsonl.gz")
    run = read_run(folder)
    assert cases == list(run.cases.values())
    assert samples == list(run.samples)
    assert len({(tmp_path / out / "run-samples.jsonl.gz").read_bytes() for out in ("one", "two")}) == 1


def test_the_page_opens_with_contents_and_summary_and_ends_with_the_provenance(tmp_path: Path) -> None:
    page = write_report([example(tmp_path / "run")], tmp_path / "report", scorer=None)[1].read_text()
    links = re.findall(r'<a href="#([^"]+)">', page)
    assert links == ["summary", "natural-language-run", "provenance"]
    places = [page.index(f'id="{link}"') for link in links]
    assert places == sorted(places)
    assert page.index("A processor, 2 cores") > places[-1]
    assert re.search(r"<td[^>]*>auto</td>.*?<td>100.0%</td>", page[places[0] : places[1]])


def test_names_in_a_plot_do_not_collide() -> None:
    random = Random(3)
    points = [
        (400 + random.gauss(0, 40), 450 + random.choice([0, 0, 0, -200]) + random.random()) for _ in range(27)
    ]
    sizes = [(random.uniform(20, 120), 9.0) for _ in points]
    bounds = (0.0, 0.0, 700.0, 500.0)
    boxes = labels.place(points, sizes, bounds)
    for i, box in enumerate(boxes):
        assert labels.inside(box, bounds)
        assert not any(labels.overlap(box, other) for other in boxes[:i])
        assert not any(box[0] < x < box[2] and box[1] < y < box[3] for x, y in points)


def test_the_committed_pages_are_small_and_their_samples_are_beside_them() -> None:
    results = Path(__file__).parents[2] / "docs" / "results"
    for page in results.rglob("report.html"):
        assert page.stat().st_size < 3_000_000
        for file in re.findall(r'href="([^"#]+-samples.jsonl.gz)"', page.read_text()):
            cases, samples = read_samples(page.parent / file)
            assert {row.case for row in samples} <= {case.id for case in cases}


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    samples = [*rows("auto", "s/a/1", "yyyy", 1.0), *rows("auto", "s/a/2", "yy", 1.0)]
    facts = dict(section_of(read_results(run_folder(tmp_path / "run", samples), None)).facts)
    assert "not finished" in facts["samples"]
    facts = dict(section_of(read_results(example(tmp_path / "whole"), None)).facts)
    assert "not finished" not in facts["samples"]


def test_cells_of_markdown_cannot_break_the_table() -> None:
    table = Table("", ("a", "b"), (("x | y\nz", "<b>"),))
    assert table.markdown().splitlines()[2] == "| x \\| y z | &lt;b> |"


def test_scores_are_made_once_and_kept(tmp_path: Path) -> None:
    path, known = tmp_path / "scores.jsonl", dict[str, Score]()
    path.write_text('{"cut off')
    add_scores(path, "nats:1", Nats(), ["a", "b \ud800"], known)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["scorer"], line["nats"], line["tokens"]) for line in lines] == [
        ("nats:1", 2.0, 2),
        ("nats:1", 4.0, 2),
    ]
    assert known[text_key("b \ud800")] == Score(4.0, 2)


def test_the_judge_gets_matching_texts_of_every_case_first() -> None:
    samples = [*rows("auto", "c1", "yyn", 1.0), *rows("auto", "c2", "nyy", 1.0), *rows("paper", "c1", "y", 1.0)]
    assert to_be_judged(samples, "auto", 3) == ["c1 y 0", "c1 y 1", "c2 y 1"]


def test_a_better_run_is_called_better_and_the_other_way_round_worse(tmp_path: Path) -> None:
    good = [*rows("auto", "s/a/1", "yyyy", 1.0), *rows("auto", "s/a/2", "yyyy", 1.0)]
    bad = [*rows("auto", "s/a/1", "nnyy", 2.0), *rows("auto", "s/a/2", "nnny", 4.0)]
    a, b = str(run_folder(tmp_path / "a", bad)), str(run_folder(tmp_path / "b", good))
    there = {difference.measure: difference for difference in comparison.compare(a, b, scorer=None)}
    assert there["satisfied"].verdict == "better"
    assert there["satisfied"].change.estimate == pytest.approx((0.5 + 0.75) / 2)
    assert there["seconds a sample"].verdict == "better"
    assert there["seconds a sample"].change.estimate == pytest.approx(1 / math.sqrt(8))
    assert there["perplexity of matching"].verdict == "not measured"
    back = {difference.measure: difference.verdict for difference in comparison.compare(b, a, scorer=None)}
    assert (back["satisfied"], back["seconds a sample"]) == ("worse", "worse")
    same = {difference.measure: difference.verdict for difference in comparison.compare(a, a, scorer=None)}
    assert same["satisfied"] == "the same"


def test_a_difference_that_cases_do_not_agree_on_is_none(tmp_path: Path) -> None:
    one = [*rows("auto", "s/a/1", "yyyy", 1.0), *rows("auto", "s/a/2", "nnnn", 1.0)]
    other = [*rows("auto", "s/a/1", "nnnn", 1.0), *rows("auto", "s/a/2", "yyyy", 1.0)]
    a, b = str(run_folder(tmp_path / "a", one)), str(run_folder(tmp_path / "b", other))
    assert comparison.compare(a, b, scorer=None)[0].verdict == "no difference found"


def test_two_systems_of_one_run_are_compared_on_the_cases_of_both(tmp_path: Path) -> None:
    run = example(tmp_path / "run")
    found = comparison.compare(f"{run}:token-guidance", f"{run}:auto", scorer=None)
    assert (found[0].cases, found[0].change.estimate) == (1, 0.5)
    assert comparison.as_table(found).rows[0][:2] == ("token-guidance → auto", "satisfied")
    with pytest.raises(InvalidArgument, match="no system 'poet'"):
        comparison.compare(f"{run}:poet", f"{run}:auto", scorer=None)


def test_every_suite_of_cases_has_a_section(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'diffinity[train]'")
    for experiment in EXPERIMENTS.values():
        names = experiment.names(["auto", "unconstrained"], quick=False)
        samples = [
            row
            for i, name in enumerate(names)
            for case in CASES
            for row in rows(name, case.id, "yynn", 1.0 + 0.1 * i)
        ]
        path = run_folder(tmp_path / experiment.name, samples, experiment.name)
        facts = [
            CaseRow(c.id, c.category, c.kind, c.source, {"transitions": 10 ** (i + 2)})
            for i, c in enumerate(CASES)
        ]
        (path / "cases.jsonl").write_text("".join(json.dumps(vars(case)) + "\n" for case in facts))
        section = section_of(with_scores(path, {"s": 1.0}))
        assert section.tables, experiment.name
        assert section.plots, experiment.name
        assert all(plot.svg.startswith("<svg") for plot in section.plots)
        assert all(len(row) == len(table.columns) for table in section.tables for row in table.rows)


def test_the_options_of_a_suite_become_systems_and_calls() -> None:
    names = EXPERIMENTS["latency"].names(["paper"], quick=False)
    assert names == ["paper@batch=1", "paper@batch=4", "paper@batch=16"]
    assert [(job.samples, job.batch) for job in make_jobs(CASES[:1], names, 3)] == [(3, 1), (12, 4), (48, 16)]  # type: ignore[arg-type]


def study(rows_of: dict[str, list[dict[str, Any]]], cut: int | None = None) -> StudySuite:
    """A study of known rows that stops, as by Ctrl-C, before its row number `cut`."""

    def measured(settings: StudySettings, parts: Any, tell: Any) -> Any:
        done = 0
        for part in parts:
            for row in rows_of[part]:
                if done == cut:
                    raise KeyboardInterrupt
                done += 1
                yield {"constraint": part, **row}

    return StudySuite(
        "known",
        "",
        lambda _: list(rows_of),
        measured,
        lambda row: row["constraint"],
        lambda _: iter(()),
        lambda _: iter(()),
    )


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_a_study_goes_on_where_it_was_stopped(tmp_path: Path, cut: int) -> None:
    known = {"a": [{"scale": 1, "tv": 0.1}, {"scale": 2, "tv": 0.2}], "b": [{"scale": 1, "tv": 0.3}]}
    with RunFolder.open(tmp_path / "run", "fidelity", {}) as folder:
        assert run_study(folder, study(known, cut), StudySettings()) is (cut == 3)
    with RunFolder.open(tmp_path / "run", "fidelity", {}) as folder:
        assert run_study(folder, study(known), StudySettings())
        assert run_study(folder, study(known), StudySettings())
    assert [row["tv"] for row in read_run(tmp_path / "run").study] == [0.1, 0.2, 0.3]


def test_a_fidelity_run_has_tables_and_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'diffinity[train]'")
    about = {"constraint": "x", "p_language": 0.1, "n": 10, "tv_floor": 0.01, "seconds": 1.0}
    with RunFolder.open(tmp_path / "run", "fidelity", {"seed": 0}) as folder:
        for scale, tv in ((1.0, 0.2), (2.5, 0.4)):
            folder.append_study({**about, "method": "path", "scale": scale, "K": None, "tv": tv})
        folder.append_study({**about, "method": "particles (posterior)", "scale": 1.0, "K": 4, "tv": 0.1})
    section = section_of(read_results(tmp_path / "run", None))
    assert section.tables[0].rows[0][-2:] == ("0.1", "0.01")
    assert len(section.plots) == 2
    assert "fidelity" in STUDIES


def test_the_readme_s_table_is_checked_and_written(tmp_path: Path) -> None:
    write_report([example(tmp_path / "run")], tmp_path / "report", scorer=None)
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- results:begin -->\nold\n<!-- results:end -->\nafter\n")
    script = Path(__file__).parents[2] / "scripts" / "readme_table.py"

    def call(*options: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            str(script),
            "--readme",
            str(readme),
            "--csv",
            str(tmp_path / "report" / "results.csv"),
        ]
        return subprocess.run([*command, *options], capture_output=True, text=True, check=False)

    stale = call("--check")
    assert stale.returncode == 1
    assert "out of date" in stale.stderr
    assert call().returncode == 0
    text = readme.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| `auto` | 100% |" in text
    assert "old" not in text
    assert call("--check").returncode == 0
    readme.write_text("no markers")
    assert "results:begin" in call().stderr


def test_the_readme_s_table_takes_a_system_from_the_first_report_that_has_it(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "scripts" / "readme_table.py"
    head = "run,suite,system,category,measure,value,low,high,n\n"
    (tmp_path / "first.csv").write_text(head + "r,json,auto,all,satisfaction,1,1,1,10\n")
    second = "s,json,auto,all,satisfaction,0.5,0,1,10\ns,json,paper,all,satisfaction,0.25,0,1,10\n"
    (tmp_path / "second.csv").write_text(head + second)
    (tmp_path / "README.md").write_text("<!-- results:begin -->\n<!-- results:end -->\n")
    files = [str(tmp_path / name) for name in ("first.csv", "second.csv")]
    subprocess.run([sys.executable, script, "--readme", tmp_path / "README.md", "--csv", *files], check=True)
    text = (tmp_path / "README.md").read_text()
    assert "| `auto` | 100% |" in text
    assert "| `paper` | 25% |" in text


def test_categories_are_summarised_apart(tmp_path: Path) -> None:
    by = by_category(read_results(example(tmp_path / "run"), None))
    assert by["paper"]["b"].satisfaction.estimate == 0.0
    assert by["token-guidance"]["b"].cases == 0
    assert math.isnan(by["token-guidance"]["b"].satisfaction.estimate)

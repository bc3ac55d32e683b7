"""The runner: whoever does the work and however often it is interrupted, the samples are the same."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import diffinity as dy
from diffinity.baselines.registry import ENTRIES, Models, build, chosen
from diffinity.bench.command import app
from diffinity.bench.experiments import SuitePlan
from diffinity.bench.run import Outcome, Progress, execute
from diffinity.bench.store import RunFolder, read_run
from diffinity.bench.workers import Job, Prepared, Worker, case_seed
from diffinity.constraints.sentences import Sentence
from diffinity.errors import InvalidArgument
from diffinity.guidance import GradientGuidance
from diffinity.models.tokenization import train_bpe
from diffinity.models.transformer import AutoregressiveLM, MaskedLM, Transformer, TransformerConfig
from tests.bench.fakes import PATTERNS, PreparedPlan, TinyPlan, tiny_cases

MEASURED = ("seconds", "peak_memory")  # what no two runs have in common


def jobs(*systems: str, samples: int = 3) -> list[Job]:
    return [Job(system, case, samples) for system in systems for case in PATTERNS]


def run(path: Path, wanted: list[Job], **options: Any) -> Outcome:
    with RunFolder.open(path, "tiny", {"seed": 0}) as folder:
        return execute(folder, TinyPlan(), wanted, **options)


def lines(path: Path) -> list[dict[str, Any]]:
    """The file line by line, without what was measured."""
    found = [json.loads(line) for line in (path / "samples.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in MEASURED} for line in found]


def test_every_sample_is_there_with_its_independent_check(tmp_path: Path) -> None:
    assert run(tmp_path / "run", jobs("digits")).complete
    found = read_run(tmp_path / "run").samples
    assert [(row.case, row.index) for row in found] == [(case, i) for case in PATTERNS for i in range(3)]
    for row in found:
        expected = str((case_seed(0, row.case) + 7919 * row.index) % 1000)
        allowed = {"digits/a": "0123", "digits/b": "456789"}.get(row.case, "")
        assert row.text == expected
        assert row.valid == all(digit in allowed for digit in expected)
        assert row.seconds is not None
        assert row.seconds >= 0
        assert row.batch == 3


def test_two_processes_interrupted_and_resumed_write_the_same_file_as_one(tmp_path: Path) -> None:
    wanted = jobs("digits", "no-letters")
    run(tmp_path / "one", wanted)

    def interrupt(progress: Progress) -> None:
        if progress.done == 2:
            raise KeyboardInterrupt

    outcome = run(tmp_path / "two", wanted, workers=2, on_progress=interrupt)
    assert not outcome.complete
    assert not multiprocessing.active_children()
    assert 0 < len(read_run(tmp_path / "two").samples) < len(lines(tmp_path / "one"))

    # A process that dies costs the case that it was at, and no other.
    assert run(tmp_path / "two", wanted + jobs("fatal", samples=1), workers=2).complete
    found = lines(tmp_path / "two")
    assert [line for line in found if line["system"] != "fatal"] == lines(tmp_path / "one")
    fatal = {line["case"]: line for line in found if line["system"] == "fatal"}
    assert "exit code 3" in fatal.pop("digits/b")["reason"]
    assert {line["text"] for line in fatal.values()} == {"1"}
    assert len(fatal) == 3


@pytest.mark.filterwarnings("default")  # Ray's own: its processes may still be ending
def test_ray_writes_the_same_file(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="pip install 'diffinity[ray]'")
    run(tmp_path / "one", jobs("digits", "no-letters"))
    try:
        run(tmp_path / "ray", jobs("digits", "no-letters"), workers=1, ray=True)
    finally:
        ray.shutdown()
    assert lines(tmp_path / "one") == lines(tmp_path / "ray")


@pytest.mark.parametrize("kept", [0, 1, 4, 7])
def test_a_run_cut_off_anywhere_goes_on_to_the_same_file(tmp_path: Path, kept: int) -> None:
    wanted = jobs("digits", "no-letters")
    run(tmp_path / "whole", wanted)
    run(tmp_path / "cut", wanted)
    data = (tmp_path / "cut" / "samples.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut" / "samples.jsonl").write_bytes(b"".join(data[:kept]) + data[kept][: len(data[kept]) // 2])
    run(tmp_path / "cut", wanted)
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")


def test_a_finished_run_is_not_done_again(tmp_path: Path) -> None:
    run(tmp_path / "run", jobs("digits"))
    before = (tmp_path / "run" / "samples.jsonl").read_bytes()
    seen: list[Progress] = []
    run(tmp_path / "run", jobs("digits"), on_progress=seen.append)
    assert (tmp_path / "run" / "samples.jsonl").read_bytes() == before
    assert [(progress.done, progress.total) for progress in seen] == [(4, 4)]


def test_a_system_added_later_leaves_the_others_alone(tmp_path: Path) -> None:
    run(tmp_path / "run", jobs("digits"))
    before = (tmp_path / "run" / "samples.jsonl").read_text()
    run(tmp_path / "run", jobs("no-letters"))
    after = (tmp_path / "run" / "samples.jsonl").read_text()
    assert sorted(after.splitlines())[0]
    assert set(before.splitlines()) < set(after.splitlines())


def test_what_a_system_refuses_or_breaks_on_is_one_line_each(tmp_path: Path) -> None:
    run(tmp_path / "run", jobs("no-letters", samples=2))
    rows = {row.case: row for row in read_run(tmp_path / "run").samples if row.index == -1}
    assert {case: (row.outcome, row.reason) for case, row in rows.items()} == {
        "digits/b": ("error", "RuntimeError: broken"),
        "letters/a": ("unsupported", "digits only"),
        "letters/b": ("unsupported", "digits only"),
    }


def test_a_system_that_cannot_be_built_is_named_and_tried_again_next_time(tmp_path: Path) -> None:
    outcome = run(tmp_path / "run", jobs("missing", "digits"))
    assert outcome.unavailable == {"missing": "ImportError: no module named missing"}
    assert {row.system for row in read_run(tmp_path / "run").samples} == {"digits"}
    with RunFolder.open(tmp_path / "run", "tiny", {"seed": 0}) as folder:
        assert folder.missing("missing", "digits/a", 3) == [0, 1, 2]


def test_calls_of_a_fixed_batch_have_seeds_of_their_own(tmp_path: Path) -> None:
    run(tmp_path / "run", [Job("digits", "digits/a", 5, batch=2)])
    rows = read_run(tmp_path / "run").samples
    assert [row.index for row in rows] == [0, 1, 2, 3, 4]
    assert [row.batch for row in rows] == [2, 2, 2, 2, 1]
    assert [row.text for row in rows][::2] == [str(case_seed(0, "digits/a", call) % 1000) for call in range(3)]


def test_seeds_depend_on_the_run_s_seed_and_the_case_alone() -> None:
    drawn = {case_seed(seed, case) for seed in range(3) for case in PATTERNS}
    assert len(drawn) == 12
    assert all(0 <= seed < 2**31 for seed in drawn)


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    wanted = jobs("digits", "interrupted")
    assert not run(tmp_path / "run", wanted).complete
    assert [row.case for row in read_run(tmp_path / "run").samples] == ["digits/a"] * 3
    assert run(tmp_path / "run", jobs("digits")).complete
    assert [row.case for row in read_run(tmp_path / "run").samples[::3]] == list(PATTERNS)


def test_time_left_is_that_of_this_session() -> None:
    progress = Progress(done=6, total=10, resumed=4, seconds=3.0)
    assert progress.seconds_left == 6.0
    assert dataclasses.replace(progress, done=4).seconds_left is None


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "markov"
    dy.fit_markov(["the old river is wide and long.", "we may see it now."], order=1).save_pretrained(folder)
    return folder


def command(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_command_runs_goes_on_and_reports(tmp_path: Path, model: Path) -> None:
    options = ["--quick", "--model", model, "--samples", 1, "--length", 32, "--steps", 2, "--jobs", 1]
    first = command(
        "run", "natural-language", "--out", tmp_path / "run", *options, "--systems", "path,unconstrained"
    )
    assert first.exit_code == 0, first.output
    found = read_run(tmp_path / "run")
    by_system = {name: [row for row in found.samples if row.system == name] for name in found.systems}
    assert [len(rows) for rows in by_system.values()] == [12, 12]
    assert all(row.valid for row in by_system["path"])  # exact decoding, checked by re
    info = found.info
    assert info["models"]["diffusion"]["source"] == "markov"
    assert len(info["models"]["diffusion"]["model.safetensors"]) == 64
    assert "--out run --quick --systems path,unconstrained --samples 1" in info["sessions"][0]["command"]
    assert str(tmp_path) not in json.dumps(info)

    before = (tmp_path / "run" / "samples.jsonl").read_text()
    again = command("run", "natural-language", "--out", tmp_path / "run", *options, "--systems", "path,poet")
    assert "no system 'poet'" in str(again.exception)
    other = command(
        "run", "natural-language", "--out", tmp_path / "run", *options, "--seed", 1, "--systems", "path"
    )
    assert "seed was 0 and is now 1" in str(other.exception)
    more = command(
        "run", "natural-language", "--out", tmp_path / "run", *options, "--systems", "decoding-only,fast"
    )
    assert more.exit_code == 0, more.output
    after = (tmp_path / "run" / "samples.jsonl").read_text()
    assert set(before.splitlines()) < set(after.splitlines())
    assert read_run(tmp_path / "run").info["systems"] == ["path", "unconstrained", "decoding-only", "fast"]

    cases = tmp_path / "run" / "cases.jsonl"
    known = cases.read_text()
    cases.write_text(known.replace("?i:", "?i:other", 1))
    changed = command("run", "natural-language", "--out", tmp_path / "run", *options, "--systems", "path")
    assert "missing or different" in str(changed.exception)
    cases.write_text(known)

    written = command("report", tmp_path / "run", "--out", tmp_path / "report", "--scorer", "none")
    assert written.exit_code == 0, written.output
    text = (tmp_path / "report" / "report.md").read_text()
    assert "| path | 12 | 100.0% [100.0, 100.0] |" in text
    compared = command(
        "compare", f"{tmp_path / 'run'}:unconstrained", f"{tmp_path / 'run'}:path", "--scorer", "none"
    )
    assert "| unconstrained → path | satisfied |" in compared.output


def test_a_companion_that_is_not_there_leaves_its_systems_out(tmp_path: Path, model: Path) -> None:
    missing = tmp_path / "no-model"
    missing.mkdir()
    options = ["--quick", "--model", model, "--masked", missing, "--samples", 1, "--length", 32, "--steps", 2]
    result = command(
        "run", "natural-language", "--out", tmp_path / "run", *options, "--jobs", 1, "--systems", "dingo"
    )
    assert result.exit_code == 0, result.output
    assert "dingo did not run" in result.output
    assert "no config.json" in read_run(tmp_path / "run").info["unavailable"]["dingo"]


def test_every_system_of_the_registry_is_listed_once() -> None:
    lines = command("systems").output.splitlines()
    names = [line.split()[0] for line in lines]
    assert len(names) == len(set(names)) == len(chosen(["all"]))
    assert set(names) == set(chosen(["ours", "baselines"]))


@pytest.mark.parametrize("name", [*chosen(["ours"]), "paper", "decoding-only", "unconstrained", "token-guidance"])
def test_systems_of_the_diffusion_model_write_what_they_are_asked_for(name: str, model: Path) -> None:
    system = build(name, Models(diffusion=str(model)), {"steps": 2})
    assert system.name == name
    texts = system.generate(Sentence("appearance", ("the", "old"), ignore_case=True), 2, 24, seed=1)
    assert len(texts) == 2
    exact = not name.endswith("argmax") and name not in ("paper", "unconstrained", "token-guidance")
    if exact:
        assert all(re.search(r"\bthe\b", text, re.I) and re.search(r"\bold\b", text, re.I) for text in texts)


@pytest.fixture(scope="module")
def companions(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Networks that know nothing, in folders."""
    folder = tmp_path_factory.mktemp("companions")
    tokenizer = train_bpe(["a"], 257)
    for kind in (AutoregressiveLM, MaskedLM):
        shape = TransformerConfig(257, dim=8, n_blocks=1, n_heads=1, causal=kind.causal)
        kind(Transformer(shape), tokenizer, eos_token_id=0).save_pretrained(folder / kind.kind)
    return Models(autoregressive=str(folder / "autoregressive"), masked=str(folder / "masked"))


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES if entry.role != "diffusion"])
def test_systems_of_the_companions_write_what_they_are_asked_for(name: str, companions: Models) -> None:
    if name in ("llguidance", "outlines-core"):
        pytest.importorskip(name.replace("-", "_"), reason="pip install 'diffinity[bench]'")
    texts = build(name, companions).generate(dy.Regex("[ab]{2}"), 3, 4, seed=1)
    assert len(texts) == 3
    if not name.endswith("unconstrained"):
        assert all(re.fullmatch("[ab]{2}", text) for text in texts)


def test_every_third_constraint_of_a_suite(tmp_path: Path, model: Path) -> None:
    options = ["--quick", "--model", model, "--samples", 1, "--length", 32, "--steps", 2, "--jobs", 1]
    options += ["--systems", "unconstrained"]
    for name, every in (("all", ()), ("third", ("--every", 3))):
        done = command("run", "natural-language", "--out", tmp_path / name, *options, *every)
        assert done.exit_code == 0, done.output
    whole, part = read_run(tmp_path / "all").samples, read_run(tmp_path / "third").samples
    assert [(row.case, row.text) for row in part] == [(row.case, row.text) for row in whole[::3]]
    fewer = command("run", "natural-language", "--out", tmp_path / "all", *options, "--every", 3)
    assert "every was null and is now 3" in str(fewer.exception)
    continued = command("run", "natural-language", "--out", tmp_path / "third", *options)
    assert continued.exit_code == 0, continued.output
    joined = read_run(tmp_path / "third")
    assert {(row.case, row.text) for row in joined.samples} == {(row.case, row.text) for row in whole}
    assert list(joined.cases) == list(read_run(tmp_path / "all").cases)
    study = command("run", "fidelity", "--out", tmp_path / "study", "--every", 2)
    assert "too few constraints" in str(study.exception)


def test_classifiers_get_the_suite_s_constraints_and_a_place_to_keep_weights(tmp_path: Path, model: Path) -> None:
    plan = SuitePlan(tiny_cases(), 8, 0, 4, Models(diffusion=str(model)), tmp_path)
    built: Any = plan.system("classifier-latent@scale=1.5")
    assert list(built.system.others) == [case.constraint for case in tiny_cases()]
    assert (built.system.cache, built.system.scale, built.system.num_inference_steps) == (tmp_path, 1.5, 4)
    assert isinstance(built, Prepared)


def test_the_paper_s_system_is_gradient_guidance_as_published(model: Path) -> None:
    system = build("paper", Models(diffusion=str(model)), {"steps": 4})
    constraint = dy.Regex("the [a-z ]+[.]")
    published = dy.generate(
        dy.load(model),
        constraint,
        2,
        16,
        num_inference_steps=4,
        seed=5,
        guidance=lambda automata: GradientGuidance(automata, 2.5, guided_selfcond=False),
        decode="argmax",
    )
    assert system.generate(constraint, 2, 16, 5) == [sample.text for sample in published]


def test_the_plain_model_ignores_the_constraint(model: Path) -> None:
    system = build("unconstrained", Models(diffusion=str(model)), {"steps": 4})
    assert system.generate(dy.Regex("x{100}"), 2, 16, 0) == system.generate(dy.Regex("y"), 2, 16, 0)


def test_an_option_that_a_system_does_not_have_is_refused(model: Path) -> None:
    with pytest.raises(InvalidArgument, match="paper has no option 'colour'; it takes framing, particles, scale"):
        build("paper@colour=red", Models(diffusion=str(model)))


def test_a_system_that_trains_does_so_apart_from_its_time(tmp_path: Path) -> None:
    case = TinyPlan().cases[0]
    worker = Worker(PreparedPlan())
    rows = worker.do(Job("prepared", case.id, 2)).rows
    assert rows[0].facts == {"auc": 0.5}
    assert rows[1].facts is None

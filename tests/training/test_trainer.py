"""Training: resumption with identical results, every kind of model, the noise levels and the data."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from typer.testing import CliRunner

from diffinity.cli import app
from diffinity.errors import CheckpointError, InvalidArgument
from diffinity.models.loading import EMBEDDED, load
from diffinity.models.plaid_lm import PlaidLM
from diffinity.models.tokenization import train_bpe
from diffinity.models.transformer import MaskedLM
from diffinity.training.data import Batches, Cursor, GeneratedCorpus, TextCorpus, read_texts
from diffinity.training.muon import orthogonal
from diffinity.training.noise import AdaptiveNoise, fit_schedule
from diffinity.training.trainer import Kind, Report, Trainer, TrainingSettings

TEXTS = [f"the {animal} {verb} the {thing}." for animal in ("cat", "dog", "fox", "hen") for verb in ("saw", "took")
         for thing in ("ball", "box", "cup", "hat", "key")]  # fmt: skip
SMALL = TrainingSettings(
    bias_warmup=4,
    dim=32,
    n_blocks=2,
    n_heads=2,
    embed_dim=8,
    lengths=(8, 16),
    tokens_per_batch=128,
    steps=6,
    warmup=2,
    cooldown=2,
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_bpe(TEXTS, 300)


def trainer(folder: Path, tokenizer: Tokenizer, settings: TrainingSettings = SMALL) -> Trainer:
    return Trainer(settings, folder, tokenizer, 0, TextCorpus(TEXTS), TEXTS[:8])


@pytest.mark.parametrize("kind", ["plaid", "plaid-bound", "autoregressive", "masked"])
def test_a_resumed_run_is_identical_to_an_uninterrupted_one(
    kind: Kind, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    whole = trainer(tmp_path / "whole", tokenizer, dataclasses.replace(SMALL, kind=kind, cooldown=0))
    assert whole.run()
    parts = dataclasses.replace(SMALL, kind=kind, cooldown=0, steps=3)
    assert trainer(tmp_path / "parts", tokenizer, parts).run()
    resumed = trainer(tmp_path / "parts", tokenizer, dataclasses.replace(parts, steps=6))
    assert resumed.progress.step == 3
    assert resumed.run()
    for name, wanted in whole.task.network.state_dict().items():
        assert torch.equal(resumed.task.network.state_dict()[name], wanted), name
    for name, wanted in whole.average.items():
        assert torch.equal(resumed.average[name], wanted), name


@pytest.mark.parametrize("kind", ["plaid", "plaid-bound", "autoregressive", "masked"])
def test_every_kind_learns(kind: Kind, tokenizer: Tokenizer, tmp_path: Path) -> None:
    settings = dataclasses.replace(SMALL, kind=kind, steps=60, ema=0.9, warmup=5)
    reports: list[Report] = []
    runner = trainer(tmp_path, tokenizer, settings)
    before = runner.validate()
    runner.run(on_report=reports.append, report_every=10)
    after = runner.validate()
    measure = next(iter(before))
    assert after[measure] < 0.8 * before[measure]
    assert [r.progress.step for r in reports] == [10, 20, 30, 40, 50, 60]


def test_validation_hides_tokens_in_clean_text(tokenizer: Tokenizer, tmp_path: Path) -> None:
    runner = trainer(tmp_path, tokenizer, dataclasses.replace(SMALL, bias_warmup=0))
    # A new network ignores the context: hidden tokens are uniform, and all others are known from their embeddings.
    assert runner.validate()["hidden"] == pytest.approx(math.log(tokenizer.get_vocab_size()), rel=0.02)


def test_an_exported_model_loads_and_samples(tokenizer: Tokenizer, tmp_path: Path) -> None:
    runner = trainer(tmp_path / "run", tokenizer)
    runner.run()
    exported = runner.export()
    exported.save_pretrained(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert isinstance(loaded, PlaidLM)
    matrix = runner.average["embedding_matrix.matrix"]
    assert torch.equal(loaded.modules.embedding_matrix.matrix, matrix)
    low, high = loaded.noise_level(torch.tensor([0.0, 1.0]))
    assert (round(float(low), 4), round(float(high), 4)) == (-5.0, 5.0)


@pytest.mark.parametrize("kind", ["plaid", "plaid-bound", "autoregressive", "masked"])
def test_a_run_may_start_from_a_finished_model(kind: Kind, tokenizer: Tokenizer, tmp_path: Path) -> None:
    settings = dataclasses.replace(SMALL, kind=kind, steps=40, ema=0.9)
    first = trainer(tmp_path / "first", tokenizer, settings)
    first.run()
    second = Trainer(settings, tmp_path / "second", tokenizer, 0, TextCorpus(TEXTS), TEXTS[:8], first.export())
    reached, begun = first.validate(), second.validate()
    measure = next(iter(reached))
    assert begun[measure] == pytest.approx(reached[measure], rel=1e-4)
    assert second.run()
    assert second.validate()[measure] < reached[measure]


@pytest.mark.parametrize("kind", ["plaid", "plaid-bound", "autoregressive", "masked"])
def test_a_run_may_add_blocks_to_a_finished_model(kind: Kind, tokenizer: Tokenizer, tmp_path: Path) -> None:
    settings = dataclasses.replace(SMALL, kind=kind, steps=40, ema=0.9)
    first = trainer(tmp_path / "first", tokenizer, settings)
    first.run()
    deeper = dataclasses.replace(settings, n_blocks=settings.n_blocks + 1)
    second = Trainer(deeper, tmp_path / "second", tokenizer, 0, TextCorpus(TEXTS), TEXTS[:8], first.export())
    reached, begun = first.validate(), second.validate()
    measure = next(iter(reached))
    assert begun[measure] == pytest.approx(reached[measure], rel=1e-4)
    assert second.run()
    assert second.validate()[measure] < reached[measure]
    branch_ends = [value for name, value in second.average.items() if "attn_out" in name or "mlp.fc2" in name]
    assert len(branch_ends) == 2 * deeper.n_blocks
    assert all(value.abs().max() > 0 for value in branch_ends)  # the new block has learned too


def test_a_run_can_not_remove_blocks(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = trainer(tmp_path / "first", tokenizer, dataclasses.replace(SMALL, n_blocks=2)).export()
    shallow = dataclasses.replace(SMALL, n_blocks=1)
    with pytest.raises(InvalidArgument, match="has 2 blocks; a run can add blocks, not remove them"):
        Trainer(shallow, tmp_path / "second", tokenizer, 0, TextCorpus(TEXTS), TEXTS[:8], model)


def test_a_masked_run_may_start_from_an_autoregressive_model(tokenizer: Tokenizer, tmp_path: Path) -> None:
    first = trainer(tmp_path / "first", tokenizer, dataclasses.replace(SMALL, kind="autoregressive"))
    first.run()
    model = first.export()
    masked = dataclasses.replace(SMALL, kind="masked", steps=40)
    second = Trainer(masked, tmp_path / "second", tokenizer, 0, TextCorpus(TEXTS), TEXTS[:8], model)
    given = model.tensors()
    assert all(torch.equal(tensor, given[name]) for name, tensor in second.average.items())
    before = second.validate()["bound"]
    assert second.run()
    assert second.validate()["bound"] < before
    assert isinstance(second.export(), MaskedLM)


def test_the_peak_scales_the_learning_rate() -> None:
    full, low = TrainingSettings(steps=9000), TrainingSettings(steps=9000, peak=0.3)
    assert all(low.rate(step) == pytest.approx(0.3 * full.rate(step)) for step in (0, 500, 8000, 8999))
    for peak in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(InvalidArgument, match="peak must be above 0 and at most 1"):
            TrainingSettings(peak=peak)


def test_a_run_starts_only_from_a_model_of_its_kind_and_shape(tokenizer: Tokenizer, tmp_path: Path) -> None:
    masked = dataclasses.replace(SMALL, kind="masked")
    model = trainer(tmp_path / "first", tokenizer, masked).export()
    for settings, message in (
        (SMALL, "a plaid run can't start from a model of kind masked"),
        (dataclasses.replace(masked, dim=16), "another shape"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            Trainer(settings, tmp_path / "second", tokenizer, 0, TextCorpus(TEXTS), TEXTS[:8], model)


def test_the_command_starts_from_a_model_with_its_shape_and_tokenizer(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    trainer(tmp_path / "first", tokenizer, dataclasses.replace(SMALL, kind="masked")).export().save_pretrained(
        tmp_path / "model"
    )
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    options = ["train", str(tmp_path / "texts.txt"), "--kind", "masked", "--start-from", str(tmp_path / "model")]
    options += ["--out", str(tmp_path / "run"), "--steps", "2", "--length", "16", "--batch-tokens", "64"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    model = MaskedLM.from_pretrained(str(tmp_path / "run" / "model"))
    assert model.network.config.dim == SMALL.dim
    assert model.tokenizer.to_str() == tokenizer.to_str()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kind", "markov"], "a Markov model is counted"),
        (["--tokenizer", "mine.json"], "brings its own"),
        (["--kind", "masked"], "can't start from a model of kind plaid"),
    ],
)
def test_what_does_not_go_with_a_start_is_refused(options: list[str], message: str, tmp_path: Path) -> None:
    embedded = str(EMBEDDED)
    result = CliRunner().invoke(app, ["train", "--start-from", embedded, "--out", str(tmp_path / "run"), *options])
    assert result.exit_code != 0
    assert message in " ".join((result.output + result.stderr).split()) or message in str(result.exception)
    assert not (tmp_path / "run").exists()


def test_an_interrupt_saves_and_stops(tokenizer: Tokenizer, tmp_path: Path) -> None:
    runner = trainer(tmp_path, tokenizer, dataclasses.replace(SMALL, steps=10_000))
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    assert not runner.run()
    resumed = trainer(tmp_path, tokenizer, dataclasses.replace(SMALL, steps=10_000))
    assert 0 < resumed.progress.step == runner.progress.step < 10_000


def test_metrics_are_written_as_they_come(tokenizer: Tokenizer, tmp_path: Path) -> None:
    trainer(tmp_path, tokenizer).run(on_report=lambda _: None, report_every=2, validate_every=3)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [2, 3, 4, 6]
    assert {"gamma=+0", "gamma=-1"} < rows[1]["validation"].keys()


def test_other_settings_are_not_mixed_into_a_run(tokenizer: Tokenizer, tmp_path: Path) -> None:
    trainer(tmp_path, tokenizer).run()
    with pytest.raises(CheckpointError, match=r"adam_lr was 0\.002 and is 0\.1"):
        trainer(tmp_path, tokenizer, dataclasses.replace(SMALL, adam_lr=0.1))


def test_length_cooldown_and_mixture_may_change_on_the_way(tokenizer: Tokenizer, tmp_path: Path) -> None:
    trainer(tmp_path, tokenizer).run()
    later = dataclasses.replace(SMALL, steps=SMALL.steps + 2, cooldown=2, mixed=0.0)
    resumed = trainer(tmp_path, tokenizer, later)
    assert resumed.run()
    assert resumed.progress.step == SMALL.steps + 2


def test_a_damaged_checkpoint_is_named(tokenizer: Tokenizer, tmp_path: Path) -> None:
    trainer(tmp_path, tokenizer).run()
    (tmp_path / "checkpoint" / "state.json").write_text("{")
    with pytest.raises(CheckpointError, match="can't be read"):
        trainer(tmp_path, tokenizer)


def test_a_loss_that_explodes_stops_the_run(tokenizer: Tokenizer, tmp_path: Path) -> None:
    runner = trainer(tmp_path, tokenizer)
    runner.task.network.get_parameter("model.input_linear.weight").data.fill_(float("nan"))
    with pytest.raises(CheckpointError, match="the loss is nan at step 0"):
        runner.run()


def test_batches_continue_from_a_cursor(tokenizer: Tokenizer) -> None:
    batches = Batches(TextCorpus(TEXTS), tokenizer, 0, (8, 16), 64)
    stream = batches.from_cursor(Cursor())
    first = [next(stream) for _ in range(25)]
    again = batches.from_cursor(first[11][1])
    for tokens, cursor in first[12:]:
        same, where = next(again)
        assert torch.equal(tokens, same)
        assert cursor == where


def test_a_sequence_is_one_document_and_then_ends(tokenizer: Tokenizer) -> None:
    for tokens in Batches(TextCorpus(TEXTS), tokenizer, 0, (16, 24), 96).block(0):
        for row in tokens.tolist():
            assert tokenizer.decode(row[: row.index(0)]) in TEXTS
            assert set(row[row.index(0) :]) == {0}


def test_every_document_of_a_pass_is_seen_once() -> None:
    texts = [str(i) for i in range(10_000)]
    corpus = TextCorpus(texts)
    seen = [text for index in range(2) for text in corpus.block(index)]
    assert len(set(seen)) == len(seen) == 8192


def test_documents_that_do_not_fit_are_an_error_if_none_does(tokenizer: Tokenizer) -> None:
    batches = Batches(TextCorpus(["the cat saw the ball. " * 50]), tokenizer, 0, (8,), 64)
    with pytest.raises(InvalidArgument, match="no document of block 0 fits 8 tokens"):
        next(batches.from_cursor(Cursor()))


def test_the_generated_corpus_is_a_function_of_seed_and_block() -> None:
    assert GeneratedCorpus(1).block(2) == GeneratedCorpus(1).block(2)
    assert GeneratedCorpus(1).block(2) != GeneratedCorpus(1).block(3)
    assert GeneratedCorpus(2).block(2) != GeneratedCorpus(1).block(2)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("empty.txt", b"\n\n", "has no document"),
        ("latin.txt", b"caf\xe9", "not UTF-8 text: byte 3 is 0xe9"),
        ("bad.jsonl", b'{"text": "a"}\n{"txt": 1}', r"bad\.jsonl:2: expected an object with a string"),
        ("worse.jsonl", b"{", r"worse\.jsonl:1 is not JSON"),
    ],
)
def test_bad_data_is_refused_with_its_place(name: str, content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidArgument, match=reason):
        read_texts(tmp_path / name)


def test_jsonl_texts_may_hold_newlines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one\\ntwo"}\n\n{"text": "three"}\n')
    assert read_texts(tmp_path / "a.jsonl") == ["one\ntwo", "three"]


def test_noise_levels_are_drawn_where_the_loss_changes() -> None:
    noise = AdaptiveNoise(-4.0, 4.0, bins=40, uniform_share=0.3)
    gamma = torch.linspace(-3.99, 3.99, 400)
    noise.record(gamma, torch.sigmoid(6 * (gamma - 1.0)))
    noise.refresh()
    low, high = (noise.density[a:b].sum() for a, b in ((20, 25), (25, 30)))
    assert low > 1.5 * high  # where more is known than at pure noise
    assert noise.sampling_density()[20:25].sum() == pytest.approx(noise.sampling_density()[25:30].sum(), rel=0.3)
    drawn = noise.draw(4000, torch.Generator().manual_seed(0)).numpy()
    near = ((drawn > 0) & (drawn < 2)).mean()
    assert near > 0.7
    assert np.histogram(drawn, bins=8, range=(-4, 4))[0].min() > 0.3 / 8 * 4000 * 0.8
    assert noise.density.sum() == pytest.approx(1.0)


def test_fitted_schedule_follows_the_warped_time() -> None:
    noise = AdaptiveNoise()
    gamma = torch.linspace(-4.99, 4.99, 400)
    noise.record(gamma, torch.sigmoid(2 * gamma))
    noise.refresh()
    schedule = fit_schedule(noise, steps=400)
    t = torch.linspace(0, 1, 101, dtype=torch.float64)
    wanted = (noise.gamma_at(t.numpy(), noise.sampling_density()) + 5.0) / 10.0
    found = schedule(t).numpy()
    assert np.abs(found - wanted).max() < 0.02
    assert (np.diff(found) > 0).all()


def test_muon_s_update_is_nearly_orthogonal() -> None:
    matrix = torch.randn(24, 8, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonal(matrix))
    assert float(values.min()) > 0.6
    assert float(values.max()) < 1.3

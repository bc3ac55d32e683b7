"""`batch` on a Ray cluster of one processor writes the same file as without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import diffinity as dy
from diffinity.batch import run_batch
from diffinity.batch.cluster import ray_answers

ray = pytest.importorskip("ray", reason="pip install 'diffinity[ray]'")
pytest.importorskip("ray.data", reason="pip install 'diffinity[ray]'")


@pytest.mark.filterwarnings("default")  # Ray's own
def test_the_same_file_whoever_ran_it(tmp_path: Path) -> None:
    model = str(tmp_path / "model")
    dy.fit_markov(["the cat saw the box.", "the dog took the cup."]).save_pretrained(model)
    lines = [{"id": i, "regex": "the [a-z ]+.", "length": 12, "steps": 6, "seed": i} for i in range(5)]
    lines[3]["n"] = "many"
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    run_batch(tmp_path / "in.jsonl", tmp_path / "here.jsonl", model)
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        answers = ray_answers(model, batch_size=1)
        run_batch(tmp_path / "in.jsonl", tmp_path / "there.jsonl", model, answers=answers)
    finally:
        ray.shutdown()
    assert (tmp_path / "there.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()

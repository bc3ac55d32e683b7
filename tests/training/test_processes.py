"""Two processes train what one would: a batch is divided, and the gradients are averaged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from diffinity.models.tokenization import train_bpe
from diffinity.training.data import TextCorpus
from diffinity.training.trainer import Trainer, TrainingSettings

# Texts of one length, so that both halves of a batch count the same.
TEXTS = [f"{a}{b}{c}" for a in "abcd" for b in "efgh" for c in "ijkl"]
SETTINGS = TrainingSettings(
    kind="autoregressive",
    dim=16,
    n_blocks=1,
    n_heads=2,
    lengths=(4,),
    tokens_per_batch=64,
    steps=4,
    warmup=1,
    cooldown=0,
)


def train(folder: Path) -> Trainer:
    torch.set_num_threads(1)
    trainer = Trainer(SETTINGS, folder, train_bpe(TEXTS, 257), 0, TextCorpus(TEXTS), TEXTS[:4])
    assert trainer.run()
    return trainer


def test_two_processes_make_the_same_network_as_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, __file__, str(tmp_path / "two")],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    one = train(tmp_path / "one").task.network.state_dict()
    two = Trainer(SETTINGS, tmp_path / "two", train_bpe(TEXTS, 257), 0, TextCorpus(TEXTS), TEXTS[:4])
    assert two.progress.step == SETTINGS.steps
    for name, wanted in one.items():
        assert torch.allclose(two.task.network.state_dict()[name], wanted, atol=1e-4), name


if __name__ == "__main__":
    train(Path(sys.argv[1]))
    assert torch.distributed.get_world_size() == 2
    torch.distributed.destroy_process_group()

"""Peak memory to create, save, load and step once a network of PLAID 1B's shape (random weights).

python benchmarks/plaid_1b_memory.py            # 1.3 B parameters, 5 GB on disk for a minute
python benchmarks/plaid_1b_memory.py --small    # the same at a hundredth of the size
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, models

import diffinity as dy
from diffinity.models.plaid_lm import PlaidModules


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    small = "--small" in sys.argv[1:]
    shape = dy.PlaidConfig(dim=256, n_blocks=12, n_heads=4) if small else dy.PlaidConfig()
    table = Table("task", "seconds", "peak memory, GB")

    def timed(activity: str, started: float) -> None:
        table.add_row(activity, f"{time.monotonic() - started:.1f}", f"{peak_gb():.1f}")

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        started = time.monotonic()
        with torch.device("meta"):
            modules = PlaidModules(shape)
        modules.to_empty(device="cpu")
        with torch.no_grad():
            for parameter in modules.parameters():
                parameter.normal_(std=0.02)
            modules.model.rotary_emb.inv_freq.copy_(10000.0 ** -torch.linspace(0, 1, shape.head_dim // 2))
            modules.gamma_bounds.gamma_0.fill_(-3.0)
            modules.gamma_bounds.gamma_1.fill_(6.0)
        parameters = sum(parameter.numel() for parameter in modules.parameters())
        words = Tokenizer(models.WordLevel({str(i): i for i in range(shape.vocab_size)}, unk_token="0"))
        model = dy.PlaidLM(modules, words)
        timed(f"create {parameters / 1e9:.2f} B parameters", started)

        started = time.monotonic()
        model.save_pretrained(folder)
        timed(f"save {(folder / 'model.safetensors').stat().st_size / 1e9:.1f} GB", started)
        del model, modules

        started = time.monotonic()
        loaded = dy.load(folder)
        timed("load and verify", started)

        started = time.monotonic()
        dy.sample(loaded, n=1, length=64, num_inference_steps=1)
        timed("one denoising step of 64 tokens, and the final prediction", started)
    Console().print(table)


if __name__ == "__main__":
    main()

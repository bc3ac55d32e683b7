"""The output of a training run for a reader: a plot of its losses, and samples."""

from __future__ import annotations

import json
from pathlib import Path

from diffinity.models.plaid_lm import PlaidLM
from diffinity.models.pretrained import PretrainedLM


def plot_metrics(metrics: Path, picture: Path) -> bool:
    """Draw the losses of metrics.jsonl over tokens; False without matplotlib or without metrics."""
    try:
        import matplotlib
    except ImportError:
        return False
    if not metrics.is_file():
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    figure, axes = plt.subplots(figsize=(7, 4))
    axes.plot([row["tokens"] / 1e6 for row in rows], [row["loss"] for row in rows], color="0.7", label="training")
    validated_rows = [row for row in rows if "validation" in row]
    for name in validated_rows[-1]["validation"] if validated_rows else ():
        axes.plot(
            [row["tokens"] / 1e6 for row in validated_rows],
            [row["validation"].get(name) for row in validated_rows],
            label=f"held out, {name}",
        )
    axes.set_xlabel("tokens seen, millions")
    axes.set_ylabel("nats per token")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(picture, dpi=120)
    plt.close(figure)
    return True


def write_samples(model: PretrainedLM, path: Path, n: int = 8) -> bool:
    """Write unselected samples of a diffusion model; False for other models."""
    from diffinity.sampling import sample, texts

    if not isinstance(model, PlaidLM):
        return False
    sample_texts = texts(model, sample(model, n, num_inference_steps=128).tokens)
    path.write_text("\n\n".join(sample_texts) + "\n")
    return True

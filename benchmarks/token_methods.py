"""Methods of masked diffusion: the perplexity of their texts under the embedded autoregressive model.

    python -m benchmarks.token_methods [--n 8]

Two regexes and a JSON Schema, texts of 32 tokens, 32 steps, the embedded masked model.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import torch

import diffinity as dy
from diffinity.models.loading import EMBEDDED
from diffinity.models.transformer import AutoregressiveLM, MaskedLM

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["name", "age"],
}
CONSTRAINTS = [
    dy.Regex(r"The [a-z ]+ in the [a-z ]+\."),
    dy.Regex(r"[A-Z][a-z ,']* because [a-z ,']*\."),
    dy.JsonSchema(PERSON),
]


def perplexity(judge: AutoregressiveLM, texts: list[str]) -> float:
    """exp of the mean negative log probability of a token, including the end token."""
    total, tokens = 0.0, 0
    for text in texts:
        ids = [*judge.tokenizer.encode(text).ids, judge.eos_token_id]
        total -= float(judge.log_probs(torch.tensor([ids])).sum())
        tokens += len(ids)
    return math.exp(total / tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=8, help="texts for each constraint")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = MaskedLM.from_pretrained(EMBEDDED.with_name("masked"))
    judge = AutoregressiveLM.from_pretrained(EMBEDDED.with_name("autoregressive"))
    print("| guidance | temperature 1 | temperature 0.5 |\n|---|---|---|")
    for guidance in ("joint", "marginals", "dingo"):
        cells = []
        for temperature in (1.0, 0.5):
            options: dict[str, Any] = {
                "guidance": guidance,
                "temperature": temperature,
                "num_inference_steps": 32,
                "seed": 1,
            }
            texts = [sample for c in CONSTRAINTS for sample in dy.generate(model, c, arguments.n, 32, **options)]
            assert all(text.satisfied for text in texts)
            cells.append(f"{perplexity(judge, [text.text for text in texts]):.0f}")
        print(f"| `{guidance}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

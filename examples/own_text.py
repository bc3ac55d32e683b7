"""The model that the examples share: an exact Markov model of a few sentences, fitted in a moment."""

from __future__ import annotations

from pathlib import Path

import diffinity as dy

SENTENCES = Path(__file__).with_name("sentences.txt")


def small_model() -> dy.MarkovLM:
    """A Markov model of sentences.txt; it can be replaced by `dy.load()` or any other model."""
    return dy.fit_markov(SENTENCES.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    for text in dy.texts(small_model(), dy.sample(small_model(), n=3, length=24, num_inference_steps=64).tokens):
        print(text)

"""Constraints are values: combine them with `&` (and), `|` (or), `~` (not) and `+` (one after the other).

python examples/combined_constraints.py
"""

from __future__ import annotations

from own_text import small_model

import diffinity as dy

QUESTION = dy.Regex(r"[A-Z][a-z ]{10,60}\?")
CONSTRAINTS = {
    "a question without 'the'": QUESTION & ~dy.Regex("(?i).*the.*"),
    "a sentence with two words": dy.Regex(r"[A-Z][a-z ]+\.") & dy.sentences.contains_words("old", "hill"),
    "a statement or a question": dy.Regex(r"She [a-z ]+\.") | dy.Regex(r"Who [a-z ]+\?"),
    "a grammar": dy.Grammar('start = ("We" | "I") " " verb " to the " place "." ; verb = "go" | "walk" ; '
                            'place = "lake" | "market" | "station" ;'),
}  # fmt: skip


def main() -> None:
    model = small_model()
    for name, constraint in CONSTRAINTS.items():
        (sample,) = dy.generate(model, constraint, length=24, num_inference_steps=64, seed=0)
        print(f"{name}: {sample.text}")


if __name__ == "__main__":
    main()

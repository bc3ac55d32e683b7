"""The probability of each of several answers, with standard errors.

python examples/choices.py
"""

from __future__ import annotations

import diffinity as dy


def main() -> None:
    answers = ["yes."] * 6 + ["no."] * 3 + ["perhaps."]
    model = dy.fit_markov(answers, restart=0.0).tokens("mask")  # a masked diffusion model, exact
    for choice in dy.probabilities(model, ["yes.", "no.", "perhaps."], num_inference_steps=8):
        print(f"{choice.choice:10} {choice.share:.2f} ± {choice.share_error:.2f}")


if __name__ == "__main__":
    main()

"""Drafts of a text while it is denoised: a diffusion model writes all positions at once.

python examples/streaming.py
"""

from __future__ import annotations

from own_text import small_model

import diffinity as dy


def main() -> None:
    constraint = dy.Regex(r"The [a-z ]+ old [a-z ]+\.")
    for event in dy.stream(small_model(), constraint, length=24, num_inference_steps=48, every=12, seed=2):
        if isinstance(event, dy.Draft):
            print(f"step {event.step:2} of {event.steps}: {event.texts[0]}")
        else:
            print(f"finished:      {event.text}")


if __name__ == "__main__":
    main()

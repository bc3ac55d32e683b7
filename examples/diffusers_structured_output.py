"""Structured output with `diffusers`: LLaDA2 and DiffusionGemma pipelines.

    python examples/diffusers_structured_output.py              small random models, on any machine
    python examples/diffusers_structured_output.py --published  the published checkpoints (a GPU)

The lines for the published checkpoints have not been run, because a GPU was not available. They differ from the
lines for the small models only in the source of the model and the tokenizer.
"""

from __future__ import annotations

import sys
from typing import Any

import diffinity as dy
from diffinity.integrations.diffusers import constrained_scheduler

REVIEW = {
    "type": "object",
    "properties": {
        "stars": {"type": "integer", "minimum": 1, "maximum": 5},
        "recommended": {"type": "boolean"},
    },
    "required": ["stars", "recommended"],
    "additionalProperties": False,
}


def write(pipe: Any, tokenizer: Any, prompt: str, constraint: Any, **settings: Any) -> str:
    plain = pipe.scheduler
    pipe.scheduler = constrained_scheduler(plain, constraint, tokenizer)
    try:
        return str(pipe(prompt=prompt, **settings).texts[0])
    finally:
        pipe.scheduler = plain


def published() -> list[str]:
    import torch
    from diffusers import (
        BlockRefinementScheduler,
        DiffusionGemmaPipeline,
        EntropyBoundScheduler,
        LLaDA2Pipeline,
    )
    from transformers import AutoModelForCausalLM, AutoProcessor, AutoTokenizer, DiffusionGemmaForBlockDiffusion

    prompt = "The lamp broke after a week. What would its buyer say of it?"
    name = "inclusionAI/LLaDA2.1-mini"
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
    model = AutoModelForCausalLM.from_pretrained(
        name, trust_remote_code=True, dtype=torch.bfloat16, device_map="auto"
    )
    llada = LLaDA2Pipeline(model=model, scheduler=BlockRefinementScheduler(), tokenizer=tokenizer)
    texts = [write(llada, tokenizer, prompt, REVIEW, gen_length=256, block_length=32)]

    name = "google/diffusiongemma-26B-A4B-it"
    processor = AutoProcessor.from_pretrained(name)
    gemma_model = DiffusionGemmaForBlockDiffusion.from_pretrained(name, dtype=torch.bfloat16, device_map="auto")
    gemma = DiffusionGemmaPipeline(model=gemma_model, scheduler=EntropyBoundScheduler(), processor=processor)
    return [*texts, write(gemma, processor.tokenizer, prompt, REVIEW, gen_length=256)]


def small() -> list[str]:
    """The same with small random models: the text is random, but it satisfies the constraint."""
    from diffusers import (
        BlockRefinementScheduler,
        DiffusionGemmaPipeline,
        EntropyBoundScheduler,
        LLaDA2Pipeline,
    )
    from small_models import diffusion_gemma_model, masked_model, tokenizer

    words = tokenizer()
    llada = LLaDA2Pipeline(
        model=masked_model(len(words)), scheduler=BlockRefinementScheduler(block_length=16), tokenizer=words
    )
    gemma = DiffusionGemmaPipeline(
        model=diffusion_gemma_model(len(words)), scheduler=EntropyBoundScheduler(), processor=words
    )
    for pipe in (llada, gemma):
        pipe.set_progress_bar_config(disable=True)
    answer = dy.Regex("(yes|no), [a-z]+( [a-z]+)*")
    return [
        write(llada, words, "A lamp?", REVIEW, gen_length=48, num_inference_steps=8, temperature=1.0),
        write(gemma, words, "A lamp?", REVIEW, gen_length=48, num_inference_steps=8),
        write(llada, words, "A lamp?", answer, gen_length=20, num_inference_steps=8, editing_threshold=0.5),
    ]


if __name__ == "__main__":
    for text in published() if "--published" in sys.argv else small():
        print(text)

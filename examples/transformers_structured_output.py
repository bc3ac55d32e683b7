"""Structured output with `transformers`: DiffusionGemma, and any causal model.

    python examples/transformers_structured_output.py              small random models, on any machine
    python examples/transformers_structured_output.py --published  the published checkpoint (a GPU with 60 GB)

The lines for the published checkpoint have not been run, because a GPU was not available. They differ from the
lines for the small models only in the source of the model and the tokenizer.
"""

from __future__ import annotations

import sys
from typing import Any

from pydantic import BaseModel
from transformers import LogitsProcessorList

from diffinity.integrations.transformers import ConstraintLogitsProcessor


class Invoice(BaseModel):
    customer: str
    total: int
    paid: bool


def write(model: Any, tokenizer: Any, inputs: Any, **settings: Any) -> Invoice:
    """An invoice: the constraint holds for any model."""
    processor = ConstraintLogitsProcessor(Invoice, tokenizer)
    out = model.generate(**inputs, logits_processor=LogitsProcessorList([processor]), **settings)
    ids = getattr(out, "sequences", out)[0, inputs["input_ids"].shape[1] :]
    return Invoice.model_validate_json(tokenizer.decode(ids, skip_special_tokens=True))


def published() -> Invoice:
    from transformers import AutoProcessor, DiffusionGemmaForBlockDiffusion

    name = "google/diffusiongemma-26B-A4B-it"
    processor = AutoProcessor.from_pretrained(name)
    model = DiffusionGemmaForBlockDiffusion.from_pretrained(name, dtype="bfloat16", device_map="auto")
    chat = [
        {"role": "user", "content": "Jane bought seven lamps for 12 each and has not paid. Write the invoice."}
    ]
    inputs = processor.apply_chat_template(
        chat, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    ).to(model.device)
    return write(model, processor.tokenizer, inputs, max_new_tokens=512)


def small() -> list[Invoice]:
    """The same with small random models: the text is random, but it is a valid invoice."""
    from small_models import causal_model, diffusion_gemma_model, tokenizer

    words = tokenizer()
    inputs = {name: words(["An invoice:"], return_tensors="pt")[name] for name in ("input_ids", "attention_mask")}
    ends = {"eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
    return [
        write(diffusion_gemma_model(len(words)), words, inputs, max_new_tokens=64, max_denoising_steps=8, **ends),
        write(causal_model(len(words)), words, inputs, max_new_tokens=64, do_sample=True, **ends),
    ]


if __name__ == "__main__":
    for invoice in [published()] if "--published" in sys.argv else small():
        print(repr(invoice))

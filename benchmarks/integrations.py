"""The cost of a constraint inside transformers and diffusers: time of `generate` with it divided by time without.

    python -m benchmarks.integrations [--rounds 5] [--vocab 32768]

The models have 30 million random parameters and are of the libraries' own classes. Runs with and without the
constraint have the same number of steps and alternate on one thread. The figures are medians of ratios of
processor time, which other programs disturb less than wall-clock time.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import diffinity as dy

CANVAS = 256
INVOICE = {
    "type": "object",
    "properties": {
        "customer": {"type": "string"},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "article": {"type": "string"},
                    "count": {"type": "integer"},
                    "price": {"type": "number"},
                },
                "required": ["article", "count", "price"],
                "additionalProperties": False,
            },
        },
        "paid": {"type": "boolean"},
    },
    "required": ["customer", "lines", "paid"],
    "additionalProperties": False,
}
CONSTRAINTS: dict[str, Any] = {
    "a JSON Schema": INVOICE,
    "a regex": dy.Regex(r"([A-Z][a-z]+( [a-z]+)*\. )*The end\."),
}


def vocabulary(size: int) -> dy.Vocabulary:
    """Bytes, an end token and words, with a realistic number of tokens of several letters."""
    letters = "etaoinshrdlu"
    words = itertools.chain.from_iterable(itertools.product(letters, repeat=n) for n in range(2, 6))
    word_tokens = (space + "".join(word).encode() for word in words for space in (b"", b" "))
    tokens: list[bytes | None] = [None, *(bytes([byte]) for byte in range(256))]
    return dy.Vocabulary([*tokens, *itertools.islice(word_tokens, size - len(tokens))], eos_id=0)


def diffusion_gemma(vocab: int) -> Any:
    from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion, DiffusionGemmaTextConfig
    from transformers import Gemma4VisionConfig as Vision

    sizes = {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64, "global_head_dim": 64}
    experts = {"num_experts": 2, "top_k_experts": 1, "moe_intermediate_size": 128}
    ids = {"pad_token_id": None, "eos_token_id": 0, "bos_token_id": 0}
    kinds = ["sliding_attention", "full_attention"] * 4
    text = DiffusionGemmaTextConfig(
        vocab_size=vocab,
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=len(kinds),
        layer_types=kinds,
        **sizes,
        **experts,
        **ids,
    )
    small = {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16}
    vision = Vision(hidden_size=16, intermediate_size=16, **small)
    image = {"image_token_id": vocab - 1, "boi_token_id": vocab - 1, "eoi_token_id": vocab - 1}
    config = DiffusionGemmaConfig(text_config=text, vision_config=vision, canvas_length=CANVAS, **image)
    return DiffusionGemmaForBlockDiffusion(config).eval()


def canvases(vocab: int, words: dy.Vocabulary, steps: int) -> tuple[Any, Callable[[Any], Callable[[], object]]]:
    """`DiffusionGemmaForBlockDiffusion.generate`: one canvas, all its steps."""
    from transformers import LogitsProcessorList

    from diffinity.integrations.transformers import ConstraintLogitsProcessor

    model = diffusion_gemma(vocab)
    prompt = torch.randint(1, vocab - 1, (1, 32))

    def runner(constraint: Any) -> Callable[[], object]:
        processors = [] if constraint is None else [ConstraintLogitsProcessor(constraint, words)]
        return lambda: model.generate(
            prompt,
            logits_processor=LogitsProcessorList(processors),
            max_new_tokens=CANVAS,
            max_denoising_steps=steps,
            confidence_threshold=1e-9,
        )

    return model, runner


class _Tokenizer:
    """The members of a tokenizer that the pipelines use."""

    eos_token_id, mask_token_id = 0, 1


def blocks(vocab: int, words: dy.Vocabulary, steps: int) -> tuple[Any, Callable[[Any], Callable[[], object]]]:
    """`LLaDA2Pipeline`: four blocks of 32."""
    from diffusers import BlockRefinementScheduler, LLaDA2Pipeline
    from transformers import BertConfig, BertForMaskedLM

    from diffinity.integrations.diffusers import constrained_scheduler

    config = BertConfig(
        vocab_size=vocab, hidden_size=384, num_hidden_layers=9, num_attention_heads=6, intermediate_size=1536
    )
    model, prompt = BertForMaskedLM(config).eval(), torch.randint(300, vocab, (1, 32))

    def runner(constraint: Any) -> Callable[[], object]:
        scheduler = BlockRefinementScheduler(block_length=32)
        if constraint is not None:
            scheduler = constrained_scheduler(scheduler, constraint, words)
        pipe = LLaDA2Pipeline(model=model, scheduler=scheduler, tokenizer=_Tokenizer())
        pipe.set_progress_bar_config(disable=True)
        return lambda: pipe(
            input_ids=prompt,
            gen_length=128,
            num_inference_steps=steps,
            temperature=1.0,
            threshold=2.0,
            editing_threshold=None,
            eos_early_stop=False,
            output_type="seq",
        )

    return model, runner


def pipeline_canvases(
    vocab: int, words: dy.Vocabulary, steps: int
) -> tuple[Any, Callable[[Any], Callable[[], object]]]:
    """`DiffusionGemmaPipeline`: one canvas, all its steps, with the checkpoint's own sampler."""
    from diffusers import DiffusionGemmaPipeline, EntropyBoundScheduler

    from diffinity.integrations.diffusers import constrained_scheduler

    model, prompt = diffusion_gemma(vocab), torch.randint(1, vocab - 1, (1, 32))

    class Processor(_Tokenizer):
        def apply_chat_template(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {"input_ids": prompt}

    def runner(constraint: Any) -> Callable[[], object]:
        scheduler = EntropyBoundScheduler()
        if constraint is not None:
            scheduler = constrained_scheduler(scheduler, constraint, words)
        pipe = DiffusionGemmaPipeline(model=model, scheduler=scheduler, processor=Processor())
        pipe.set_progress_bar_config(disable=True)
        return lambda: pipe(
            prompt="", gen_length=CANVAS, num_inference_steps=steps, confidence_threshold=None, output_type="seq"
        )

    return model, runner


def tokens(vocab: int, words: dy.Vocabulary, steps: int) -> tuple[Any, Callable[[Any], Callable[[], object]]]:
    """A causal model's `generate`."""
    from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

    from diffinity.integrations.transformers import ConstraintLogitsProcessor

    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=vocab, n_embd=384, n_layer=10, n_head=6, bos_token_id=0, eos_token_id=0)
    ).eval()
    prompt = torch.randint(300, vocab, (1, 32))
    model.generation_config = GenerationConfig(pad_token_id=0)  # no end token: the same number of tokens in both

    def runner(constraint: Any) -> Callable[[], object]:
        processors = [] if constraint is None else [ConstraintLogitsProcessor(constraint, words)]
        length = 12 * steps
        return lambda: model.generate(
            prompt, attention_mask=torch.ones_like(prompt), logits_processor=processors, max_new_tokens=length
        )

    return model, runner


LOOPS = {
    "transformers, DiffusionGemma": canvases,
    "diffusers, DiffusionGemmaPipeline": pipeline_canvases,
    "diffusers, LLaDA2Pipeline": blocks,
    "transformers, causal": tokens,
}


def spent(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of processor time and of wall-clock time."""
    torch.manual_seed(0)
    started, clock = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - started, time.perf_counter() - clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=32768)
    parser.add_argument("--loop", default="", help="only the loops whose name contains this text")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    words = vocabulary(arguments.vocab)
    table = Table(
        title=f"constrained over unconstrained, {arguments.rounds} alternating rounds, {len(words):,} tokens"
    )
    for column in ("loop", "parameters", "constraint", "unconstrained (s)", "ratio", "wall-clock ratio"):
        table.add_column(column, justify="left" if column in ("loop", "constraint") else "right")
    for name, build in LOOPS.items():
        if arguments.loop not in name:
            continue
        torch.manual_seed(0)
        model, runner = build(arguments.vocab, words, arguments.steps)
        parameters = sum(weight.numel() for weight in model.parameters())
        for title, constraint in CONSTRAINTS.items():
            unconstrained, constrained = runner(None), runner(constraint)
            unconstrained()
            constrained()  # compiles
            pairs = [(spent(unconstrained), spent(constrained)) for _ in range(arguments.rounds)]
            ratios = [[c[i] / f[i] for f, c in pairs] for i in (0, 1)]
            unconstrained_seconds = statistics.median(f[0] for f, _ in pairs)
            table.add_row(
                name,
                f"{parameters / 1e6:.1f} M",
                title,
                f"{unconstrained_seconds:.2f}",
                f"{statistics.median(ratios[0]):.3f}",
                f"{statistics.median(ratios[1]):.3f}",
            )
    Console(width=130).print(table)


if __name__ == "__main__":
    main()

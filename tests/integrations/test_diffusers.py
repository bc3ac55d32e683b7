"""The pipelines of diffusers with constrained schedulers, the real classes, small and random models: all valid."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import pytest
import torch
from diffusers import (
    BlockRefinementScheduler,
    DDIMScheduler,
    DiffusionGemmaPipeline,
    DiscreteDDIMScheduler,
    EntropyBoundScheduler,
    LLaDA2Pipeline,
)
from torch import Tensor

import diffinity as dy
from diffinity.integrations.diffusers import constrained_scheduler
from tests.integrations.small_models import CASES, Case, bidirectional, byte_level, characters, diffusion_gemma

TOKENIZER = byte_level()
VOCAB = len(TOKENIZER) + 9
END, MASK = TOKENIZER.eos_token_id, TOKENIZER.mask_token_id
PROMPTS = ["the cat", "we said: yes", "a", "no 12"]
CANVAS_SCHEDULERS = {
    "block": BlockRefinementScheduler(),
    "block with edits": BlockRefinementScheduler(editing_threshold=0.01),
    "ddim": DiscreteDDIMScheduler(),
    "ddim with correctors": DiscreteDDIMScheduler(corrector_steps=1),
    "entropy": EntropyBoundScheduler(),
}


@cache
def llada_model() -> Any:
    return bidirectional(VOCAB)


@cache
def gemma_model() -> Any:
    return diffusion_gemma(VOCAB, 8)


def llada(scheduler: Any, model: Any = None, tokenizer: Any = TOKENIZER) -> Any:
    pipe = LLaDA2Pipeline(model=model or llada_model(), scheduler=scheduler, tokenizer=tokenizer)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def gemma(scheduler: Any, model: Any = None, tokenizer: Any = TOKENIZER) -> Any:
    pipe = DiffusionGemmaPipeline(model=model or gemma_model(), scheduler=scheduler, processor=tokenizer)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---- LLaDA2: blocks of masks


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_every_text_of_llada_is_valid_in_one_block_and_in_many(case: Case) -> None:
    pipe = llada(constrained_scheduler(BlockRefinementScheduler(block_length=8), case.constraint, TOKENIZER))
    settings: list[dict[str, Any]] = [
        {"temperature": 0.0, "editing_threshold": None},
        {"temperature": 0.0, "editing_threshold": 0.02, "block_length": 64},
        {"temperature": 1.0, "editing_threshold": 0.02, "top_k": 20},
        {"temperature": 2.0, "editing_threshold": None, "top_p": 0.5, "sampling_method": "auto"},
    ]
    for seed, options in enumerate(settings):
        out = pipe(
            prompt=PROMPTS,
            use_chat_template=False,
            gen_length=case.tokens + 5,  # the last block is not full
            num_inference_steps=4,
            generator=seeded(seed),
            **options,
        )
        assert all(case.is_valid(text) for text in out.texts), out.texts


def test_a_block_that_begins_with_the_prompt_keeps_it() -> None:
    case = CASES[1]
    prompt = TOKENIZER(["the cat sat"], return_tensors="pt")["input_ids"]
    seen: list[Tensor] = []

    def watch(pipe: Any, step: int, timestep: int, tensors: dict[str, Any]) -> dict[str, Any]:
        seen.append(tensors["block_x"][:, : prompt.shape[1]].clone())
        return tensors

    pipe = llada(constrained_scheduler(BlockRefinementScheduler(block_length=16), case.constraint, TOKENIZER))
    out = pipe(
        input_ids=prompt,
        gen_length=20,
        num_inference_steps=5,
        editing_threshold=0.01,
        temperature=1.0,
        generator=seeded(0),
        callback_on_step_end=watch,
    )
    assert case.is_valid(out.texts[0])
    assert len(seen) > 0
    assert all(torch.equal(part, prompt) for part in seen)


def test_edits_happen_and_leave_the_text_valid() -> None:
    """With a low threshold tokens are edited; what was valid stays so."""
    case = CASES[0]
    edits = 0

    def count(pipe: Any, step: int, timestep: int, tensors: dict[str, Any]) -> dict[str, Any]:
        nonlocal edits
        edits += int(tensors.pop("editing_transfer_index").sum())
        return tensors

    pipe = llada(constrained_scheduler(BlockRefinementScheduler(block_length=16), case.constraint, TOKENIZER))
    for seed in range(6):
        out = pipe(
            prompt=PROMPTS,
            use_chat_template=False,
            gen_length=24,
            num_inference_steps=6,
            temperature=1.0,
            editing_threshold=1e-4,
            generator=seeded(seed),
            callback_on_step_end=count,
            callback_on_step_end_tensor_inputs=["editing_transfer_index"],
        )
        assert all(case.is_valid(text) for text in out.texts), out.texts
    assert edits > 0


def test_rows_of_llada_may_have_different_constraints_and_run_past_the_end_of_others() -> None:
    constraints = [dy.Regex("no"), dy.Regex("(the cat sat on ){3}a"), CASES[6].constraint, dy.Regex("[0-9]{3}")]
    pipe = llada(constrained_scheduler(BlockRefinementScheduler(block_length=8), constraints, TOKENIZER))
    for early in (True, False):
        texts = pipe(
            prompt=PROMPTS,
            use_chat_template=False,
            gen_length=48,
            num_inference_steps=3,
            temperature=1.0,
            eos_early_stop=early,
            generator=seeded(1),
        ).texts
        assert texts[0] == "no"
        assert texts[1] == "the cat sat on " * 3 + "a"
        assert CASES[6].is_valid(texts[2])
        assert dy.Regex("[0-9]{3}").accepts(texts[3])


# ---- DiffusionGemma: canvases of uniform noise


@pytest.mark.parametrize("name", CANVAS_SCHEDULERS)
def test_every_text_of_diffusion_gemma_is_valid_under_every_scheduler(name: str) -> None:
    for case in CASES:
        pipe = gemma(constrained_scheduler(CANVAS_SCHEDULERS[name], case.constraint, TOKENIZER))
        settings: list[dict[str, Any]] = [
            {"temperature": 0.0, "confidence_threshold": None},
            {"temperature": 1.0, "confidence_threshold": None},
            {"temperature": 1.0, "confidence_threshold": 100.0, "stability_threshold": 0},
        ]
        for seed, options in enumerate(settings):
            out = pipe(
                prompt=PROMPTS[seed],
                gen_length=case.tokens,
                num_inference_steps=4,
                generator=seeded(seed),
                **options,
            )
            assert all(case.is_valid(text) for text in out.texts), out.texts


def test_a_static_cache_changes_nothing() -> None:
    case = CASES[6]
    pipe = gemma(constrained_scheduler(EntropyBoundScheduler(), case.constraint, TOKENIZER))
    for cache_implementation in (None, "static"):
        out = pipe(
            prompt="the cat",
            gen_length=40,
            num_inference_steps=3,
            cache_implementation=cache_implementation,
            generator=seeded(0),
        )
        assert case.is_valid(out.texts[0])


# ---- what is valid already is kept


def test_llada_s_own_text_is_kept_where_it_is_valid() -> None:
    """Over letters, an end token and a mask that the model never predicts."""
    tokenizer = characters()
    tokenizer.add_special_tokens({"mask_token": "<mask>"})
    model = bidirectional(len(tokenizer))
    model.cls.predictions.decoder.bias.data[tokenizer.mask_token_id] = -1e4
    model.cls.predictions.bias.data[tokenizer.mask_token_id] = -1e4

    def output(scheduler: Any, seed: int, temperature: float) -> Tensor:
        out: Tensor = llada(scheduler, model, tokenizer)(
            prompt=["abc", "d"],
            use_chat_template=False,
            gen_length=24,
            block_length=8,
            num_inference_steps=4,
            temperature=temperature,
            generator=seeded(seed),
        ).sequences
        return out

    for seed in range(4):
        for temperature in (0.0, 1.0):
            plain = output(BlockRefinementScheduler(), seed, temperature)
            for constraint in (dy.Regex(".*"), ~dy.Regex(".*xyz.*")):
                constrained = constrained_scheduler(BlockRefinementScheduler(), constraint, tokenizer)
                assert torch.equal(output(constrained, seed, temperature), plain)


@pytest.mark.parametrize("name", CANVAS_SCHEDULERS)
def test_diffusion_gemma_s_own_text_is_kept_where_it_is_valid(name: str) -> None:
    tokenizer = characters()
    model = diffusion_gemma(len(tokenizer), 8)

    def output(scheduler: Any, seed: int) -> Tensor:
        out: Tensor = gemma(scheduler, model, tokenizer)(
            prompt="abc", gen_length=16, num_inference_steps=4, temperature=1.0, generator=seeded(seed)
        ).sequences
        return out

    for seed in range(4):
        constrained = constrained_scheduler(CANVAS_SCHEDULERS[name], dy.Regex(".*"), tokenizer)
        assert torch.equal(output(constrained, seed), output(CANVAS_SCHEDULERS[name], seed))


# ---- as a scheduler


@pytest.mark.parametrize("scheduler", CANVAS_SCHEDULERS.values(), ids=CANVAS_SCHEDULERS)
def test_a_constrained_scheduler_looks_like_its_own_kind(scheduler: Any) -> None:
    """Pipelines ask for the parameters of its methods, and users for its config; the original is not touched."""
    before = type(scheduler)
    made = constrained_scheduler(scheduler, int, TOKENIZER)
    assert isinstance(made, before)
    assert type(scheduler) is before
    for method in ("step", "set_timesteps"):
        ours, theirs = (inspect.signature(getattr(owner, method)).parameters for owner in (made, scheduler))
        assert list(ours) == list(theirs)
    assert dict(made.config) == dict(scheduler.config)
    again = constrained_scheduler(made, dy.Regex("no"), TOKENIZER)
    assert type(again) is type(made)


def test_a_pipeline_s_scheduler_can_be_replaced_and_put_back() -> None:
    pipe = llada(BlockRefinementScheduler(block_length=8))
    plain = pipe.scheduler
    pipe.scheduler = constrained_scheduler(plain, dy.Choice(["yes", "no"]), TOKENIZER)
    answer = pipe(prompt="the cat", use_chat_template=False, gen_length=8, num_inference_steps=4).texts[0]
    assert answer in ("yes", "no")
    pipe.scheduler = plain
    free = pipe(prompt="the cat", use_chat_template=False, gen_length=8, num_inference_steps=4).texts[0]
    assert free not in ("yes", "no")


def test_a_tuple_is_returned_where_one_is_asked_for() -> None:
    made = constrained_scheduler(BlockRefinementScheduler(block_length=4), dy.Regex("[ab]+"), TOKENIZER)
    made.set_timesteps(2, block_length=4)
    made.set_text(torch.zeros(1, 0, dtype=torch.long), tokens_after=0, eos_token_id=END)
    sample = torch.full((1, 4), MASK)
    logits = torch.randn(1, 4, VOCAB, generator=seeded(0))
    as_tuple = made.step(logits, 0, sample, mask_token_id=MASK, return_dict=False)
    as_object = made.step(logits, 0, sample, mask_token_id=MASK)
    assert torch.equal(as_tuple[0], as_object.prev_sample)
    assert len(as_tuple) == 6


def test_a_loop_of_one_s_own_says_where_it_stands() -> None:
    constraint = dy.Regex("[0-9]{3}(, [0-9]{3})*")
    made = constrained_scheduler(BlockRefinementScheduler(block_length=4), constraint, TOKENIZER)
    for seed in range(5):
        generator, written = seeded(seed), torch.zeros(2, 0, dtype=torch.long)
        for left in (8, 4, 0):
            made.set_timesteps(3, block_length=4)
            made.set_text(written, tokens_after=left, eos_token_id=END)
            block = torch.full((2, 4), MASK)
            for step in range(3):
                logits = torch.randn(2, 4, VOCAB, generator=generator)
                block = made.step(
                    logits, step, block, mask_token_id=MASK, temperature=1.0, generator=generator
                ).prev_sample
            written = torch.cat([written, block], dim=1)
        for row in written.tolist():
            text = row[: row.index(END)] if END in row else row
            assert constraint.accepts(TOKENIZER.decode(text))


def test_a_loop_that_does_not_say_it_is_refused() -> None:
    made = constrained_scheduler(BlockRefinementScheduler(), int, TOKENIZER)
    with pytest.raises(dy.InvalidArgument, match=r"call scheduler.set_text\(written, tokens_after\)"):
        made.step(torch.zeros(1, 4, VOCAB), 0, torch.full((1, 4), MASK), mask_token_id=MASK)


def test_other_schedulers_are_refused_by_name() -> None:
    with pytest.raises(
        dy.InvalidArgument, match=r"must be one of BlockRefinementScheduler, .* but is DDIMScheduler"
    ):
        constrained_scheduler(DDIMScheduler(), int, TOKENIZER)


def test_a_text_that_does_not_fit_is_refused_before_the_first_step() -> None:
    pipe = llada(constrained_scheduler(BlockRefinementScheduler(), dy.Regex("[a-z]{99}"), TOKENIZER))
    with pytest.raises(dy.InfeasibleConstraint, match="fits the 12 tokens that are left"):
        pipe(prompt="the cat", use_chat_template=False, gen_length=12, num_inference_steps=4)

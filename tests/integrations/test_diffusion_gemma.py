"""`DiffusionGemmaForBlockDiffusion.generate`, the real class, small and random: every output is valid."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from functools import cache, partial
from itertools import takewhile
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, LogitsProcessorList, TextDiffusionStreamer, TextStreamer

import diffinity as dy
from diffinity.integrations.transformers import ConstraintLogitsProcessor
from tests.integrations.small_models import CASES, TURN_END, Case, byte_level, characters, diffusion_gemma

TOKENIZER = byte_level()
VOCAB = len(TOKENIZER) + 9  # padded, as models' are
END, TURN_END_ID, PAD = TOKENIZER.eos_token_id, TOKENIZER.convert_tokens_to_ids(TURN_END), TOKENIZER.pad_token_id
PROMPTS = ["the cat", "we said: yes", "a", "no 12"]


@cache
def model(canvas: int = 8) -> Any:
    return diffusion_gemma(VOCAB, canvas)


def write(
    processor: Any, *, canvas: int = 8, prompts: list[str] | None = None, seed: int = 0, **settings: Any
) -> tuple[list[str], Tensor]:
    """The texts, and all tokens after the prompt."""
    inputs = TOKENIZER(prompts or PROMPTS, return_tensors="pt", padding=True)
    torch.manual_seed(seed)
    options = {"max_denoising_steps": 4, "eos_token_id": [END, TURN_END_ID], "pad_token_id": PAD} | settings
    out = model(canvas).generate(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        logits_processor=LogitsProcessorList([processor]),
        **options,
    )
    ids = out.sequences[:, inputs["input_ids"].shape[1] :]
    return TOKENIZER.batch_decode(ids, skip_special_tokens=True), ids


@pytest.mark.parametrize("case", CASES, ids=repr)
@pytest.mark.parametrize("canvas", [8, 32])
def test_every_text_is_valid_in_one_canvas_and_in_many(case: Case, canvas: int) -> None:
    processor = ConstraintLogitsProcessor(case.constraint, TOKENIZER)
    temperatures: list[dict[str, Any]] = [{"t_min": 0.999, "t_max": 1.0}, {"t_min": 0.1, "t_max": 2.0}, {}]
    for seed, temperature in enumerate(temperatures):
        texts, _ = write(processor, canvas=canvas, seed=seed, max_new_tokens=case.tokens, **temperature)
        assert all(case.is_valid(text) for text in texts), texts


def test_texts_of_many_canvases_go_on_where_the_last_one_stopped() -> None:
    """Without an end token that the loop knows, a text runs through all five canvases."""
    pattern = dy.Regex("([a-z]{3,6} [0-9]{2}, )+the end")
    processor = ConstraintLogitsProcessor(pattern, TOKENIZER, eos_token_id=VOCAB - 1)
    texts, ids = write(processor, max_new_tokens=40, eos_token_id=None, pad_token_id=None)
    assert ids.shape[1] == 40
    ended = [text for text, row in zip(texts, ids.tolist(), strict=True) if VOCAB - 1 not in row]
    assert all(pattern.accepts(text) for text in ended)
    assert len(ended) > 0


def test_rows_may_have_different_constraints() -> None:
    processor = ConstraintLogitsProcessor([case.constraint for case in CASES], TOKENIZER)
    texts, _ = write(processor, prompts=[PROMPTS[i % 4] for i in range(len(CASES))], max_new_tokens=40)
    assert all(case.is_valid(text) for case, text in zip(CASES, texts, strict=True))


def test_rows_that_end_early_are_padded_while_the_others_go_on() -> None:
    long = dy.Regex("(the cat sat on ){4}a")
    processor = ConstraintLogitsProcessor([dy.Regex("no"), long, dy.Regex("yes|no"), long], TOKENIZER)
    texts, ids = write(processor, max_new_tokens=48)
    assert texts[0] == "no"
    assert texts[1] == texts[3] == "the cat sat on " * 4 + "a"
    assert set(ids[0].tolist()[-8:]) == {PAD}


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_the_text_is_valid_whenever_the_loop_stops(steps: int) -> None:
    case = CASES[0]
    processor = ConstraintLogitsProcessor(case.constraint, TOKENIZER)
    for confidence in (1e-6, 0.5, 100.0):  # never sure, sometimes, at once
        texts, _ = write(
            processor,
            max_denoising_steps=steps,
            confidence_threshold=confidence,
            stability_threshold=0,
            max_new_tokens=16,
        )
        assert all(case.is_valid(text) for text in texts)


def test_both_end_tokens_end_texts() -> None:
    processor = ConstraintLogitsProcessor(dy.Regex("[a-z]{1,4}"), TOKENIZER)
    used: set[int] = set()
    for seed in range(6):
        _, ids = write(processor, seed=seed, max_new_tokens=8, t_min=1.0, t_max=5.0)
        used |= set(ids.flatten().tolist()) & {END, TURN_END_ID}
    assert used == {END, TURN_END_ID}


def test_one_processor_serves_several_calls_with_other_prompts_and_lengths() -> None:
    case = CASES[6]
    processor = ConstraintLogitsProcessor(case.constraint, TOKENIZER)
    for prompts, length in ((["a"], 40), (PROMPTS, 32), (["a long, long prompt", "b"], 64), (["a"], 40)):
        texts, _ = write(processor, prompts=prompts, max_new_tokens=length)
        assert all(case.is_valid(text) for text in texts)


def test_an_answer_goes_on_from_a_cache_that_was_handed_in() -> None:
    case = CASES[0]
    processor = ConstraintLogitsProcessor(case.constraint, TOKENIZER)
    first = TOKENIZER(["the cat"], return_tensors="pt")["input_ids"]
    settings = {"max_new_tokens": 8, "max_denoising_steps": 3, "eos_token_id": END, "pad_token_id": PAD}
    cache = DynamicCache(config=model().config.get_text_config(decoder=True))
    out = model().generate(
        input_ids=first, past_key_values=cache, logits_processor=LogitsProcessorList([processor]), **settings
    )
    assert case.is_valid(TOKENIZER.decode(out.sequences[0, first.shape[1] :], skip_special_tokens=True))
    more = TOKENIZER(["and then"], return_tensors="pt")["input_ids"]
    again = model().generate(
        input_ids=more,
        past_key_values=out.past_key_values,
        logits_processor=LogitsProcessorList([processor]),
        **settings,
    )
    assert case.is_valid(TOKENIZER.decode(again.sequences[0, more.shape[1] :], skip_special_tokens=True))


def test_compiled_loops_write_valid_texts() -> None:
    """A static cache makes `generate` compile the network and the sampler; their graphs must not meet ours."""
    case = CASES[0]
    processor = ConstraintLogitsProcessor(case.constraint, TOKENIZER)
    compiled = diffusion_gemma(VOCAB, 8)
    inputs = TOKENIZER(["the cat"], return_tensors="pt")["input_ids"]
    graphs = partial(torch.compile, backend="eager")

    def compile_(function: Any, **_: Any) -> Any:
        return graphs(function, fullgraph=True)

    with mock.patch.object(torch, "compile", compile_):
        out = compiled.generate(
            input_ids=inputs,
            logits_processor=LogitsProcessorList([processor]),
            cache_implementation="static",
            max_new_tokens=16,
            max_denoising_steps=3,
            eos_token_id=END,
            pad_token_id=PAD,
        )
    assert hasattr(compiled, "_compiled_decoder_forward")
    assert case.is_valid(TOKENIZER.decode(out.sequences[0, inputs.shape[1] :], skip_special_tokens=True))


def test_streamers_see_valid_drafts_and_texts() -> None:
    case = CASES[0]
    drafts: list[str] = []

    class Drafts(TextDiffusionStreamer):  # type: ignore[misc]
        def put_draft(self, value: Tensor, **kwargs: Any) -> None:
            text = takewhile(lambda token: token not in (END, TURN_END_ID), value[0].tolist())
            drafts.append(TOKENIZER.decode(list(text)))

    for kind in (Drafts, TextDiffusionStreamer, TextStreamer):
        shown = io.StringIO()
        with redirect_stdout(shown):
            streamer = kind(TOKENIZER, skip_prompt=True, skip_special_tokens=True)
            processor = ConstraintLogitsProcessor(case.constraint, TOKENIZER)
            texts, _ = write(processor, prompts=["the cat"], max_new_tokens=8, streamer=streamer)
        assert case.is_valid(texts[0])
        assert texts[0] in shown.getvalue()
    assert len(drafts) > 0
    assert all(case.is_valid(draft) for draft in drafts)


def test_what_the_model_would_have_written_is_kept_where_it_is_valid() -> None:
    """Over letters and an end token, .* allows whatever there is, and so do the other two."""
    tokenizer = characters()
    free = diffusion_gemma(len(tokenizer), 8)
    inputs = tokenizer(["abc", "d"], return_tensors="pt", padding=True)
    settings = {"max_new_tokens": 24, "max_denoising_steps": 5, "eos_token_id": 10, "pad_token_id": 10}

    def output(*processors: Any, seed: int) -> Tensor:
        torch.manual_seed(seed)
        out: Tensor = free.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            logits_processor=LogitsProcessorList(processors),
            **settings,
        ).sequences
        return out

    for seed in range(5):
        plain = output(seed=seed)
        for constraint in (dy.Regex(".*"), dy.Regex("[a-j]*"), ~dy.Regex(".*xyz.*")):
            processor = ConstraintLogitsProcessor(constraint, tokenizer)
            assert torch.equal(output(processor, seed=seed), plain)


def test_the_same_seed_writes_the_same_text() -> None:
    processor = ConstraintLogitsProcessor(CASES[0].constraint, TOKENIZER)
    first, again = (write(processor, seed=3, max_new_tokens=16)[1] for _ in range(2))
    assert torch.equal(first, again)


def test_half_precision_scores_keep_the_guarantee() -> None:
    case = CASES[6]
    rounded = diffusion_gemma(VOCAB, 16).to(torch.bfloat16)
    inputs = TOKENIZER(["the cat", "a b"], return_tensors="pt", padding=True)
    processor = ConstraintLogitsProcessor(case.constraint, TOKENIZER)
    for seed in range(3):
        torch.manual_seed(seed)
        out = rounded.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            logits_processor=LogitsProcessorList([processor]),
            max_new_tokens=48,
            max_denoising_steps=4,
            eos_token_id=END,
            pad_token_id=PAD,
        )
        texts = TOKENIZER.batch_decode(out.sequences[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        assert all(case.is_valid(text) for text in texts)


def test_a_text_that_does_not_fit_is_refused_before_the_first_step() -> None:
    processor = ConstraintLogitsProcessor(dy.Regex("[a-z]{200}"), TOKENIZER)
    with pytest.raises(dy.InfeasibleConstraint, match="no text that satisfies the constraint fits the 16 tokens"):
        write(processor, max_new_tokens=16)


def test_a_limit_on_the_whole_length_counts_too() -> None:
    """`max_length` stops the loop before `max_new_tokens` does."""
    case = CASES[0]
    processor = ConstraintLogitsProcessor(case.constraint, TOKENIZER)
    prompt = len(TOKENIZER(["the cat"])["input_ids"][0])
    texts, ids = write(processor, prompts=["the cat"], max_new_tokens=100, max_length=prompt + 9)
    assert ids.shape[1] <= 16
    assert case.is_valid(texts[0])

"""Causal `generate` of transformers: within any budget of tokens, every output satisfies its constraint."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    TextIteratorStreamer,
)

import diffinity as dy
from diffinity.bench.natural_language import natural_language_cases
from diffinity.integrations.transformers import ConstraintLogitsProcessor
from diffinity.limits import use_limits
from diffinity.models.tokenization import END_OF_TEXT
from tests.integrations.small_models import CASES, TURN_END, Case, byte_level, causal, characters

TOKENIZER = byte_level()
VOCAB = len(TOKENIZER) + 9
END, TURN_END_ID, PAD = TOKENIZER.eos_token_id, TOKENIZER.convert_tokens_to_ids(TURN_END), TOKENIZER.pad_token_id
PROMPTS = ["the cat", "we said: yes", "a", "no 12"]


@cache
def model() -> Any:
    return causal(VOCAB)


def write(processors: Any, *, prompts: list[str] | None = None, seed: int = 0, **settings: Any) -> list[str]:
    inputs = TOKENIZER(prompts or PROMPTS, return_tensors="pt", padding=True)
    torch.manual_seed(seed)
    options = {"do_sample": True, "eos_token_id": [END, TURN_END_ID], "pad_token_id": PAD} | settings
    out = model().generate(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        logits_processor=processors if isinstance(processors, list) else [processors],
        **options,
    )
    return TOKENIZER.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_every_text_is_valid_and_complete_within_the_budget(case: Case) -> None:
    processor = ConstraintLogitsProcessor(case.constraint, TOKENIZER)
    options: list[dict[str, Any]] = [{"do_sample": False}, {}, {"temperature": 3.0, "top_k": 0}]
    options.append({"temperature": 0.5, "top_p": 0.8, "top_k": 5})
    for seed, settings in enumerate(options):
        texts = write(processor, seed=seed, max_new_tokens=case.tokens, **settings)
        assert all(case.is_valid(text) for text in texts), texts


@pytest.mark.parametrize("budget", [1, 2, 3, 5])
def test_the_tightest_budget_is_enough(budget: int) -> None:
    """A text of exactly as many tokens as there are; the end token need not fit as well."""
    processor = ConstraintLogitsProcessor(dy.Regex("[a-z0-9]+"), TOKENIZER)
    texts = write(processor, max_new_tokens=budget)
    assert all((text.isalnum() and text.islower()) or text.isdigit() for text in texts)


def test_rows_may_have_different_constraints_and_end_at_different_times() -> None:
    processor = ConstraintLogitsProcessor([case.constraint for case in CASES], TOKENIZER)
    prompts = [PROMPTS[i % 4] for i in range(len(CASES))]
    for seed in range(3):
        texts = write(processor, prompts=prompts, seed=seed, max_new_tokens=40)
        assert all(case.is_valid(text) for case, text in zip(CASES, texts, strict=True))


def test_several_answers_to_a_prompt_share_its_constraint() -> None:
    processor = ConstraintLogitsProcessor([CASES[0].constraint, CASES[6].constraint], TOKENIZER)
    texts = write(processor, prompts=PROMPTS[:2], num_return_sequences=3, max_new_tokens=40)
    assert [CASES[0].is_valid(text) for text in texts[:3]] == [True] * 3
    assert [CASES[6].is_valid(text) for text in texts[3:]] == [True] * 3


@pytest.mark.parametrize("sample", [True, False])
def test_beam_search_finds_valid_texts(sample: bool) -> None:
    for case in (CASES[0], CASES[6], CASES[8]):
        processor = ConstraintLogitsProcessor(case.constraint, TOKENIZER)
        texts = write(processor, num_beams=3, do_sample=sample, max_new_tokens=case.tokens + 8)
        assert all(case.is_valid(text) for text in texts), texts


def test_drafts_looked_up_in_the_prompt_are_checked_against_the_constraint() -> None:
    case = CASES[0]
    processor = ConstraintLogitsProcessor(case.constraint, TOKENIZER)
    prompt = "the cat 123, the cat sat. the cat 123, the cat"
    texts = write(processor, prompts=[prompt], prompt_lookup_num_tokens=3, do_sample=False, max_new_tokens=24)
    assert all(case.is_valid(text) for text in texts), texts


def test_an_assistant_model_s_drafts_are_checked_against_the_constraint() -> None:
    case = CASES[0]
    processor = ConstraintLogitsProcessor(case.constraint, TOKENIZER)
    assistant = causal(VOCAB, seed=1)
    for sample in (False, True):
        texts = write(
            processor, prompts=["the cat"], assistant_model=assistant, do_sample=sample, max_new_tokens=20
        )
        assert all(case.is_valid(text) for text in texts), texts


def test_what_the_model_would_have_written_is_kept_where_it_is_valid() -> None:
    tokenizer = characters()
    free = causal(len(tokenizer))
    inputs = tokenizer(["abc", "d"], return_tensors="pt", padding=True)

    def output(*processors: Any, seed: int, **settings: Any) -> Tensor:
        torch.manual_seed(seed)
        out: Tensor = free.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            logits_processor=list(processors),
            max_new_tokens=20,
            eos_token_id=10,
            pad_token_id=10,
            **settings,
        )
        return out

    for seed in range(4):
        for settings in ({"do_sample": True}, {"do_sample": False}):
            plain = output(seed=seed, **settings)
            for constraint in (dy.Regex(".*"), dy.Regex("[a-j]*"), ~dy.Regex(".*xyz.*")):
                processor = ConstraintLogitsProcessor(constraint, tokenizer)
                assert torch.equal(output(processor, seed=seed, **settings), plain)


def test_a_streamer_gets_the_text_piece_by_piece() -> None:
    case = CASES[0]
    streamer = TextIteratorStreamer(TOKENIZER, skip_prompt=True, skip_special_tokens=True)
    processor = ConstraintLogitsProcessor(case.constraint, TOKENIZER)
    texts = write(processor, prompts=["the cat"], max_new_tokens=12, streamer=streamer)
    assert "".join(streamer) == texts[0]
    assert case.is_valid(texts[0])


def test_every_sentence_of_the_suite_is_complete_within_32_tokens() -> None:
    """The 110 constraints of the benchmark; engines that do not know the limit satisfy less than a quarter."""
    words = PreTrainedTokenizerFast(
        tokenizer_object=dy.load().tokenizer, eos_token=END_OF_TEXT, pad_token=END_OF_TEXT
    )
    network, prompt = causal(len(words)), torch.full((10, 1), words.eos_token_id)
    cases = natural_language_cases()
    for first in range(0, len(cases), 10):
        part = cases[first : first + 10]
        processor = ConstraintLogitsProcessor([case.constraint for case in part], words)
        torch.manual_seed(first)
        out = network.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            logits_processor=[processor],
            do_sample=True,
            max_new_tokens=32,
            pad_token_id=words.eos_token_id,
        )
        texts = words.batch_decode(out[:, 1:], skip_special_tokens=True)
        assert all(case.constraint.accepts(text) for case, text in zip(part, texts, strict=True))


def test_one_processor_serves_calls_that_run_at_the_same_time() -> None:
    case = CASES[6]
    processor = ConstraintLogitsProcessor(case.constraint, TOKENIZER)
    prompts = ["a", "the cat sat on", "we said: yes or no or yes", "b"]

    def one(i: int) -> str:
        inputs = TOKENIZER([prompts[i % 4]], return_tensors="pt")["input_ids"]
        out = model().generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            logits_processor=[processor],
            do_sample=True,
            max_new_tokens=30 + i,
            eos_token_id=END,
            pad_token_id=PAD,
        )
        return str(TOKENIZER.decode(out[0, inputs.shape[1] :], skip_special_tokens=True))

    with ThreadPoolExecutor(4) as pool:
        assert all(case.is_valid(text) for text in pool.map(one, range(8)))
    assert processor._calls == {}  # calls that are over are forgotten


def test_a_programme_beyond_the_limit_on_memory_is_refused() -> None:
    processor = ConstraintLogitsProcessor(dy.Regex("[a-z]{9}"), TOKENIZER, max_new_tokens=16)
    scores = torch.zeros(1, 16, VOCAB)
    with use_limits(memory_bytes=1000), pytest.raises(dy.ConstraintTooLarge, match="memory_bytes"):
        processor(torch.zeros(1, 2, dtype=torch.long), scores)


def test_encoder_decoder_models_are_served_too() -> None:
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=VOCAB, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=PAD
    )
    inputs = TOKENIZER(["the cat", "no"], return_tensors="pt", padding=True)
    case = CASES[6]
    out = T5ForConditionalGeneration(config).generate(
        **{name: inputs[name] for name in ("input_ids", "attention_mask")},
        logits_processor=[ConstraintLogitsProcessor(case.constraint, TOKENIZER)],
        do_sample=True,
        max_new_tokens=40,
        eos_token_id=END,
        pad_token_id=PAD,
    )
    assert all(case.is_valid(text) for text in TOKENIZER.batch_decode(out, skip_special_tokens=True))


def test_a_limit_on_the_whole_length_is_the_budget() -> None:
    case = CASES[1]
    prompt = len(TOKENIZER(["the cat"])["input_ids"][0])
    processor = ConstraintLogitsProcessor(case.constraint, TOKENIZER)
    texts = write(processor, prompts=["the cat"], generation_config=GenerationConfig(max_length=prompt + 5))
    assert case.is_valid(texts[0])


class Forbid(LogitsProcessor):  # type: ignore[misc]
    """Forbids all tokens but one."""

    def __init__(self, token: int) -> None:
        self.token = token

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        out = torch.full_like(scores, -torch.inf)
        out[:, self.token] = 0.0
        return out


def test_the_constraint_prevails_over_processors_before_it() -> None:
    processor = ConstraintLogitsProcessor(dy.Regex("[0-9]{3}"), TOKENIZER)
    texts = write([Forbid(TOKENIZER.convert_tokens_to_ids("z")), processor], max_new_tokens=6)
    assert all(text.isdigit() and len(text) == 3 for text in texts)


def test_a_processor_after_it_that_breaks_the_text_is_reported() -> None:
    processor = ConstraintLogitsProcessor(dy.Regex("[0-9]{3}"), TOKENIZER)
    with pytest.raises(dy.InvalidArgument, match=r"row 0 has left its constraint .* put this one last"):
        write([processor, Forbid(TOKENIZER.convert_tokens_to_ids("z"))], max_new_tokens=6)


def test_a_text_that_does_not_fit_is_refused_with_the_shortest_that_would() -> None:
    processor = ConstraintLogitsProcessor(dy.Regex("[0-9]{9}"), TOKENIZER)
    with pytest.raises(dy.InfeasibleConstraint, match=r"row 0: .* 3 tokens that are left \(the shortest text has"):
        write(processor, max_new_tokens=3)


# ---- loops of one's own


def own_loop(processor: ConstraintLogitsProcessor, prompt: Tensor, tokens: int) -> str:
    ids = prompt
    for _ in range(tokens):
        scores = processor(ids, model()(ids).logits[:, -1])
        ids = torch.cat([ids, scores.argmax(-1, keepdim=True)], dim=1)
        if int(ids[0, -1]) == END:
            break
    return str(TOKENIZER.decode(ids[0, prompt.shape[1] :], skip_special_tokens=True))


def test_a_loop_of_one_s_own_says_how_many_tokens_it_writes() -> None:
    processor = ConstraintLogitsProcessor(dy.Regex("[0-9]{3}x*"), TOKENIZER, max_new_tokens=9)
    for prompt in ("the cat", "yes"):
        ids = TOKENIZER([prompt], return_tensors="pt")["input_ids"]
        processor.reset()
        assert dy.Regex("[0-9]{3}x*").accepts(own_loop(processor, ids, 9))


def test_a_loop_that_does_not_say_it_is_refused() -> None:
    processor = ConstraintLogitsProcessor(dy.Regex("[0-9]{3}"), TOKENIZER)
    with pytest.raises(dy.InvalidArgument, match=r"give ConstraintLogitsProcessor\(..., max_new_tokens=...\)"):
        processor(torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, VOCAB))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ConstraintLogitsProcessor(["yes", "no"], TOKENIZER), r"write dy.Choice\(\[...\]\)"),
        (lambda: ConstraintLogitsProcessor([], TOKENIZER), "an empty list of constraints"),
        (lambda: ConstraintLogitsProcessor(int, object()), "object is not a tokenizer that can be read"),
        (lambda: ConstraintLogitsProcessor(int, TOKENIZER, max_new_tokens=0), "must be at least 1, but is 0"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(build: Any, message: str) -> None:
    with pytest.raises(dy.InvalidArgument, match=message):
        build()


def test_a_list_that_does_not_fit_the_batch_is_refused() -> None:
    processor = ConstraintLogitsProcessor([int, int, int], TOKENIZER)
    with pytest.raises(dy.InvalidArgument, match="3 constraints for 4 rows"):
        write(processor, max_new_tokens=4)

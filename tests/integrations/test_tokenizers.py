"""Tokenizers of every kind: what `decode` gives of constrained tokens satisfies the constraint."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from transformers import LogitsProcessorList

import diffinity as dy
from diffinity.integrations.texts import Texts, vocabulary_of
from diffinity.integrations.transformers import ConstraintLogitsProcessor
from tests.integrations.small_models import byte_level, causal, diffusion_gemma, regex, sentencepiece, wordpiece

TOKENIZERS = {
    "byte-level": (byte_level(), ["[a-z]{2,5}( [a-z]+)*", '\\{"name": "[^"]*"\\}', "(é|€){2,3}", "<name>x?"]),
    "sentencepiece, stripped": (sentencepiece(strip=True), ["(the|cat)( cat)+", "[a-h]{3}", "(é|€){2,3}", " a+"]),
    "sentencepiece": (sentencepiece(strip=False), ["(the|cat)( cat)+", "[a-h]{3}", "(é|€){2,3}", " a+"]),
    "wordpiece": (wordpiece(), ["(the|cat)( cats?)+", "[a-e]+( [a-e]+)*", "(yes|no)(, no)*\\.", "a b"]),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_decoded_texts_are_valid_whatever_the_tokenizer(name: str) -> None:
    tokenizer, patterns = TOKENIZERS[name]
    size = len(tokenizer) + 5
    next_token, canvases = causal(size), diffusion_gemma(size, 16)
    prompt = torch.tensor([[3, 5, 6], [7, 8, 9]])
    settings: dict[str, Any] = {"max_new_tokens": 16, "eos_token_id": tokenizer.eos_token_id}
    settings["pad_token_id"] = tokenizer.pad_token_id
    for pattern in patterns:
        case = regex(pattern)
        processor = ConstraintLogitsProcessor(case.constraint, tokenizer)
        for seed in range(3):
            torch.manual_seed(seed)
            out = next_token.generate(prompt, logits_processor=[processor], do_sample=True, **settings)
            texts = tokenizer.batch_decode(out[:, 3:], skip_special_tokens=True)
            processors = LogitsProcessorList([processor])
            out = canvases.generate(prompt, logits_processor=processors, max_denoising_steps=3, **settings)
            texts += tokenizer.batch_decode(out.sequences[:, 3:], skip_special_tokens=True)
            assert all(case.is_valid(text) for text in texts), texts


def test_a_space_that_the_decoder_would_strip_may_stand_first_or_not() -> None:
    tokenizer = sentencepiece(strip=True)
    rows = Texts(dy.Regex("cat"), tokenizer).rows(1, len(tokenizer), None)
    spellings = [["▁cat"], ["cat"], ["▁", "cat"], ["c", "a", "<0x74>"]]
    for pieces in spellings:
        ids = tokenizer.convert_tokens_to_ids(pieces)
        assert tokenizer.decode(ids) == "cat"
        assert rows.window(0, [], 0).accepts(ids)
    assert not rows.window(0, [], 0).accepts(tokenizer.convert_tokens_to_ids(["▁", "▁cat"]))  # " cat"


def test_a_text_that_begins_with_a_space_keeps_it() -> None:
    tokenizer = sentencepiece(strip=True)
    rows = Texts(dy.Regex(" cat"), tokenizer).rows(1, len(tokenizer), None)
    for pieces in (["▁", "▁cat"], ["▁cat"], ["cat"]):
        ids = tokenizer.convert_tokens_to_ids(pieces)
        assert rows.window(0, [], 0).accepts(ids) == (tokenizer.decode(ids) == " cat")


def test_special_tokens_and_tokens_beyond_the_tokenizer_are_never_written() -> None:
    tokenizer = byte_level()
    rows = Texts(dy.Regex("(?s).*"), tokenizer).rows(1, len(tokenizer) + 3, (tokenizer.eos_token_id,))
    window = rows.window(0, [], 0)
    for token in (tokenizer.pad_token_id, tokenizer.mask_token_id, len(tokenizer), len(tokenizer) + 2):
        assert not window.accepts([token])
        assert window.accepts([tokenizer.eos_token_id, token])  # after the end nothing matters
    assert window.accepts([tokenizer.convert_tokens_to_ids("<name>")])


def test_a_vocabulary_is_read_once_for_a_tokenizer_and_again_when_it_grows() -> None:
    tokenizer = wordpiece()
    first = vocabulary_of(tokenizer)
    assert vocabulary_of(tokenizer) is first
    tokenizer.add_tokens(["zebra"])
    assert len(vocabulary_of(tokenizer)) == len(first) + 1


def test_processors_tokenizers_and_vocabularies_are_read_alike() -> None:
    tokenizer = byte_level()

    class Processor:
        def __init__(self) -> None:
            self.tokenizer = tokenizer

    backend: Tokenizer = tokenizer.backend_tokenizer
    tokens = [vocabulary_of(form).tokens for form in (tokenizer, Processor(), backend, vocabulary_of(tokenizer))]
    assert all(other == tokens[0] for other in tokens)


def test_a_tokenizer_that_changes_texts_after_decoding_is_refused() -> None:
    tokenizer = wordpiece()
    tokenizer.clean_up_tokenization_spaces = True
    with pytest.raises(dy.InvalidArgument, match="set it to False"):
        ConstraintLogitsProcessor(dy.Regex("a"), tokenizer)

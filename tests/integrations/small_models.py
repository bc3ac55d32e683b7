"""The examples' small random models with larger weights, tokenizers of every kind, constraints with oracles."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jsonschema_rs
import torch
from examples.small_models import causal_model, diffusion_gemma_model, masked_model
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import diffinity as dy
from diffinity.models.tokenization import train_bpe

TEXT = 'the cat sat on {"name": "x", "age": 12, "tags": ["a", "b"]} true false null a 3.5, we said: yes or no.'
CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
END, TURN_END, PAD, MASK = "<|endoftext|>", "<turn>", "<pad>", "<mask>"


@cache
def byte_level(size: int = 320) -> Any:
    """A byte-level BPE with special tokens and one added token that is ordinary text."""
    tokenizer = train_bpe([TEXT] * 3, size)
    tokenizer.add_special_tokens([TURN_END, PAD, MASK])
    tokenizer.add_tokens(["<name>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        mask_token=MASK,
        chat_template=CHAT,
        padding_side="left",
    )


def sentencepiece(*, strip: bool) -> Any:
    """A BPE as SentencePiece writes it, with byte fallback; `strip`: Llama's decoder, else Gemma's."""
    pieces = ["<pad>", "<eos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "▁the", "▁cat", "the", "cat", "▁a", '{"', '":', "▁12", "name", "é", *'abcdefgh0123{}":,.- ']
    vocab = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    backend = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if strip else [])])
    backend.add_special_tokens(["<pad>", "<eos>", "<unk>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>"
    )


def wordpiece() -> Any:
    """BERT's kind: words, and continuations that begin with ##."""
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "the",
        "cat",
        "sat",
        "##s",
        "##ab",
        "yes",
        "no",
        ".",
        ",",
    ]
    pieces += [*'abcde012{}":', *(f"##{character}" for character in 'abcde012{}":')]
    backend = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]"
    )


def characters(letters: str = "abcdefghij") -> Any:
    """One token a letter and an end token, so that whatever a model writes is a text."""
    backend = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)} | {END: len(letters)}, []))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([END])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=END, pad_token=END, chat_template=CHAT, padding_side="left"
    )


def diffusion_gemma(vocab_size: int, canvas_length: int = 8, seed: int = 0) -> Any:
    return _opinionated(diffusion_gemma_model(vocab_size, canvas_length, seed))


def causal(vocab_size: int, seed: int = 0) -> Any:
    return _opinionated(causal_model(vocab_size, seed))


def bidirectional(vocab_size: int, seed: int = 0) -> Any:
    return _opinionated(masked_model(vocab_size, seed))


def _opinionated(model: Any) -> Any:
    """Weights so large that distributions are far from uniform."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and "vision" not in name:
                weight.mul_(4.0)
    return model.eval()


@dataclass(frozen=True)
class Case:
    """A constraint and an oracle that knows nothing of it."""

    name: str
    constraint: Any
    is_valid: Callable[[str], bool]
    tokens: int = 8  # enough for a text

    def __repr__(self) -> str:
        return self.name


def regex(pattern: str, tokens: int = 8) -> Case:
    return Case(pattern, dy.Regex(pattern), lambda text: re.fullmatch(pattern, text) is not None, tokens)


def schema(name: str, content: dict[str, Any], tokens: int) -> Case:
    validator = jsonschema_rs.validator_for(content)

    def is_valid(text: str) -> bool:
        try:
            return validator.is_valid(json.loads(text))
        except ValueError:
            return False

    return Case(name, content, is_valid, tokens)


def balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0 or character not in "()x":
            return False
    return depth == 0 and text != ""


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "ok": {"type": "boolean"},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
TAGS = {"type": "array", "items": {"enum": ["a", "b", "cat"]}, "minItems": 1, "maxItems": 3, "uniqueItems": True}

CASES = [
    regex(r"[a-z]+ [0-9]{3}(, [a-z]+)*\."),
    regex(r"(yes|no)( or (yes|no))*"),
    regex(r"[A-Z][a-z]{2,9}!?"),
    regex(r"\d{4}-(0[1-9]|1[0-2])-\d\d"),
    regex(r"(ab|ba)+c?"),
    regex("[éü€]{2,5}x*", tokens=16),
    schema("person", PERSON, tokens=32),
    schema("tags", TAGS, tokens=16),
    Case("choice", dy.Choice(["the cat", "a cat sat", "no"]), {"the cat", "a cat sat", "no"}.__contains__),
    Case("grammar", dy.Grammar('start = part+ ; part = "x" | "(" part* ")"', max_depth=3), balanced),
]

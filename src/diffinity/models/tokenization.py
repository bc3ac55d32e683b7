"""Byte-level BPE: the tokenizer of our own models."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from diffinity.errors import InvalidArgument

END_OF_TEXT = "<|endoftext|>"


def train_bpe(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE with at most `vocab_size` tokens; token 0 is the end of a text.

    >>> tokenizer = train_bpe(["a cat, a cat"], vocab_size=270)
    >>> tokenizer.decode(tokenizer.encode("a dog é").ids)
    'a dog é'
    """
    if vocab_size < 257:
        raise InvalidArgument(f"vocab_size must be at least 257 (256 bytes and the end), but is {vocab_size}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer

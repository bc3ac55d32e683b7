"""`Vocabulary`: the bytes that each token of a tokenizer adds to a text."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from diffinity.alignment.trie import Trie, build_trie
from diffinity.errors import InvalidArgument

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The bytes of every token id, or None for a special token, which spells nothing.

    `leading` are the bytes that the decoder removes from the front of a text (the space that Metaspace and
    WordPiece put before the first word). Token sequences spell `leading` + text or, if it is optional, a text that
    does not begin with `leading`. `start_id` is a token that every sequence begins with and that is not part of
    the text; it may be the end token.

    >>> vocabulary = Vocabulary([b"c", b"a", b"t", None], eos_id=3)
    >>> len(vocabulary), vocabulary.trie.n_nodes
    (4, 4)
    """

    tokens: Sequence[bytes | None]
    eos_id: int | None = None
    leading: bytes = b""
    start_id: int | None = None
    leading_optional: bool = False

    def __post_init__(self) -> None:
        tokens = list(self.tokens)
        if not tokens:
            raise InvalidArgument("a vocabulary needs at least one token")
        for name in ("eos_id", "start_id"):
            token = getattr(self, name)
            if token is None:
                continue
            if not 0 <= token < len(tokens):
                raise InvalidArgument(f"{name} {token} is not a token: there are {len(tokens)}")
            tokens[token] = None
        object.__setattr__(self, "tokens", tuple(tokens))

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ordinary(self) -> NDArray[np.int64]:
        """The ids of the tokens that spell something."""
        return np.array([i for i, token in enumerate(self.tokens) if token is not None], np.int64)

    @cached_property
    def trie(self) -> Trie:
        """The byte trie of the ordinary tokens; `node_of` is in the order of `ordinary`."""
        return build_trie([self.tokens[i] or b"" for i in self.ordinary])

    @cached_property
    def single_bytes(self) -> NDArray[np.bool_]:
        """(256,): the bytes that are tokens by themselves; all of them in a byte-level vocabulary."""
        present = np.zeros(256, np.bool_)
        present[[token[0] for token in self.tokens if token is not None and len(token) == 1]] = True
        return present

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the tokens, the end and start tokens and the leading bytes."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(
            repr((len(self.tokens), self.eos_id, self.leading, self.start_id, self.leading_optional)).encode()
        )
        for token in self.tokens:
            digest.update(b"-" if token is None else len(token).to_bytes(4, "little") + token)
        return digest.hexdigest()

    def spell(self, ids: Sequence[int]) -> bytes:
        """The bytes of the text that token ids spell; special tokens add nothing.

        >>> Vocabulary([b"ca", b"t"]).spell([0, 1])
        b'cat'
        """
        return b"".join(self.tokens[i] or b"" for i in ids).removeprefix(self.leading)

    @staticmethod
    def from_tokenizer(
        tokenizer: str | Path | Tokenizer, eos_id: int | None = None, start_id: int | None = None
    ) -> Vocabulary:
        """The vocabulary of a `tokenizers` file or object: byte-level BPE, Metaspace, WordPiece or words.

        The end token is `eos_id`, or the only special token, or one with a well-known name. There is a start token
        only if `start_id` is given.

        >>> from tokenizers import models
        >>> Vocabulary.from_tokenizer(Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))).tokens
        (b' a', b' b')
        """
        if not isinstance(tokenizer, Tokenizer):
            tokenizer = _read_tokenizer(Path(tokenizer))
        return _from_tokenizer(tokenizer, eos_id, start_id)


def before_end(ids: Sequence[int], end: int | None, start: int = 0) -> list[int]:
    """The ids before the first end token at or after `start`; all ids if there is none.

    >>> before_end([5, 7, 0, 8], end=0), before_end([0, 7], end=0, start=1)
    ([5, 7], [0, 7])
    """
    ids = list(ids)
    return ids[: ids.index(end, start)] if end is not None and end in ids[start:] else ids


LARGEST_ID = 1 << 24  # more than any tokenizer has


def token_ids(description: Any) -> list[tuple[str, int]]:
    """The tokens of a `tokenizers` JSON file with their ids: the model's tokens, then the added tokens.

    >>> token_ids({"model": {"vocab": {"a": 0}}, "added_tokens": [{"content": "</s>", "id": 1}]})
    [('a', 0), ('</s>', 1)]
    """
    vocab = description["model"].get("vocab", {})
    pairs = [(piece[0], i) for i, piece in enumerate(vocab)] if isinstance(vocab, list) else list(vocab.items())
    return pairs + [(token["content"], token["id"]) for token in description.get("added_tokens") or ()]


def check_ids(tokens: Sequence[tuple[str, int]], *, without_gaps: bool = False) -> None:
    """Refuse ids that are invalid, too large, or shared by two tokens; with `without_gaps` also missing ids.

    >>> check_ids([("a", 0), ("b", 0)])
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: the tokens 'a' and 'b' have the same id 0
    """
    token_of: dict[int, str] = {}
    for token, number in tokens:
        if type(number) is not int or not 0 <= number < LARGEST_ID:
            raise InvalidArgument(f"token {token!r} has id {number!r}, not one from 0 to {LARGEST_ID - 1:,}")
        if token_of.setdefault(number, token) != token:
            raise InvalidArgument(f"the tokens {token_of[number]!r} and {token!r} have the same id {number}")
    if not token_of:
        raise InvalidArgument("the tokenizer has no tokens")
    if without_gaps and max(token_of) >= len(token_of):
        missing_id = next(i for i in range(len(token_of)) if i not in token_of)
        raise InvalidArgument(
            f"no token has id {missing_id}, but ids go up to {max(token_of):,}: a model needs one for each row"
        )


WELL_KNOWN_ENDS = ("<|endoftext|>", "</s>", "<eos>", "<|eot_id|>", "<|im_end|>", "[SEP]")


def _read_tokenizer(path: Path) -> Tokenizer:
    if not path.is_file():
        raise InvalidArgument(f"there is no tokenizer file {str(path)!r}")
    try:
        check_ids(token_ids(json.loads(path.read_text(encoding="utf-8"))))
        return Tokenizer.from_file(str(path))
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error}") from None
    except Exception as error:  # tokenizers raises plain Exception
        raise InvalidArgument(f"{path} is not a tokenizers JSON file: {error}") from None


def _from_tokenizer(tokenizer: Tokenizer, eos_id: int | None, start_id: int | None) -> Vocabulary:
    description = json.loads(tokenizer.to_str())
    added = tokenizer.get_added_tokens_decoder()
    special = {i for i, token in added.items() if token.special}
    size = max([tokenizer.get_vocab_size() - 1, *added, *tokenizer.get_vocab().values()]) + 1
    if size > LARGEST_ID:
        raise InvalidArgument(f"the tokenizer has an id of {size - 1:,}, more than {LARGEST_ID - 1:,}")
    texts = [tokenizer.id_to_token(i) for i in range(size)]
    tokens: list[bytes | None]
    leading, leading_optional = b"", False
    parts = _decoder_parts(description)
    kinds = {part["type"] for part in parts}
    if "ByteLevel" in kinds:
        tokens = [None if text is None else _byte_level(text) for text in texts]
    elif kinds & {"Metaspace", "ByteFallback"}:
        tokens = [None if text is None else _metaspace(text, "ByteFallback" in kinds) for text in texts]
        leading = b" " if _strips_leading_space(parts) else b""
        leading_optional = True  # a text that does not begin with a space is not changed
    else:
        tokens, leading = _by_decoding(tokenizer, size, special)
    for i, token in added.items():
        tokens[i] = None if token.special else str(token.content).encode()
    return Vocabulary(tokens, _end_token(tokenizer, special, eos_id), leading, start_id, leading_optional)


def _decoder_parts(description: dict[str, Any]) -> list[dict[str, Any]]:
    """The decoder's steps; without a decoder the pre-tokenizer's steps, which define the characters of tokens."""
    for name in ("decoder", "pre_tokenizer"):
        part = description.get(name)
        if part:
            return list(part.get("decoders") or part.get("pretokenizers") or [part])
    return []


def _end_token(tokenizer: Tokenizer, special: set[int], eos_id: int | None) -> int | None:
    if eos_id is not None:
        return eos_id
    if len(special) == 1:
        return next(iter(special))
    return next(
        (i for name in WELL_KNOWN_ENDS if (i := tokenizer.token_to_id(name)) is not None and i in special), None
    )


def _byte_of_character() -> dict[str, int]:
    """Byte-level BPE writes each byte as a printable character: itself, or a character from 256 upwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


BYTE_OF = _byte_of_character()
NO_BYTE = "\u0100"  # not in Latin-1, so it represents no byte
AS_LATIN_1 = dict.fromkeys(range(256), NO_BYTE) | {ord(text): byte for text, byte in BYTE_OF.items()}


def _byte_level(text: str) -> bytes:
    """The bytes of a byte-level BPE token; a token with other characters is its own UTF-8 bytes.

    >>> _byte_level("Ġthe"), _byte_level("a b")
    (b' the', b'a b')
    """
    try:
        return text.translate(AS_LATIN_1).encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _metaspace(text: str, byte_fallback: bool) -> bytes:
    if byte_fallback and (match := BYTE_TOKEN.fullmatch(text)):
        return bytes([int(match[1], 16)])
    return text.replace("▁", " ").encode()


def _strips_leading_space(parts: list[dict[str, Any]]) -> bool:
    return any(
        (part["type"] == "Strip" and part.get("content") == " " and part.get("start", 0) > 0)
        or (part["type"] == "Metaspace" and part.get("prepend_scheme", "always") != "never")
        for part in parts
    )


def _by_decoding(tokenizer: Tokenizer, size: int, special: set[int]) -> tuple[list[bytes | None], bytes]:
    """The bytes that each token adds after another token, by decoding both; and the leading bytes.

    For decoders that work token by token.
    """
    anchor = next(i for i in range(size) if i not in special and tokenizer.id_to_token(i) is not None)
    anchor_text = tokenizer.decode([anchor], skip_special_tokens=False)
    tokens: list[bytes | None] = []
    for i in range(size):
        text = tokenizer.decode([anchor, i], skip_special_tokens=False)
        tokens.append(text[len(anchor_text) :].encode() if tokenizer.id_to_token(i) is not None else None)
    repeated_anchor = tokens[anchor]
    leading = b" " if repeated_anchor == b" " + anchor_text.encode() else b""
    return tokens, leading

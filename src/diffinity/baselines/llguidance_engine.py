"""The engine `llguidance` of the Guidance project: our constraints as its grammars, its masks in our loop.

A regular expression is passed as a regular expression, a JSON Schema to llguidance's own compiler, and `&` and `~`
as operators of its grammars.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray
from tokenizers import Tokenizer

from diffinity.alignment import Vocabulary
from diffinity.baselines.closed_schema import closed_schema
from diffinity.baselines.engines import Matcher
from diffinity.baselines.plain_regex import plain_regex
from diffinity.constraints.base import And, Choice, Concat, Constraint, Not, Or, Repeat, lift
from diffinity.constraints.schema import JsonSchema
from diffinity.errors import UnsupportedConstraint
from diffinity.models.protocol import CausalModel, vocabulary_of

ANY_TEXT = r"/[\x{0}-\x{10FFFF}]*/"


class LlguidanceEngine:
    """The engine `llguidance`. It does not know the length, so a text may be cut off."""

    def matchers(self, constraint: Constraint, model: CausalModel, n: int, length: int) -> list[Matcher]:
        vocabulary, tokenizer = vocabulary_of(model), llguidance_tokenizer(model)
        grammar = llguidance_grammar(constraint, vocabulary.leading)
        failed, messages = LLMatcher.validate_grammar_with_warnings(grammar, tokenizer)
        if failed:
            raise UnsupportedConstraint(f"llguidance: {' '.join(messages)}")
        first = LLMatcher(tokenizer, grammar, log_level=0)
        _check(first)
        return [LlguidanceMatcher(first.deep_copy(), len(vocabulary)) for _ in range(n)]


@dataclass(frozen=True)
class LlguidanceMatcher:
    """One text in a grammar of llguidance."""

    matcher: Any
    vocab_size: int

    def allowed(self) -> NDArray[np.bool_]:
        bits = np.frombuffer(self.matcher.compute_bitmask(), np.uint8)
        _check(self.matcher)
        return np.unpackbits(bits, count=self.vocab_size, bitorder="little").astype(np.bool_)

    def advance(self, token: int) -> None:
        self.matcher.consume_token(token)
        _check(self.matcher)


def _check(matcher: Any) -> None:
    if matcher.is_error():
        raise UnsupportedConstraint(f"llguidance: {matcher.get_error()}")


class TokensForLlguidance:
    """A vocabulary in the form that llguidance wraps: the bytes of every token, and a function that encodes bytes.

    If the next bytes are forced, llguidance allows only the first token of their encoding.
    """

    def __init__(self, vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
        self.eos_token_id = vocabulary.eos_id
        self.bos_token_id = None
        self.tokens = [
            f"<|special {i}|>".encode() if token is None else token for i, token in enumerate(vocabulary.tokens)
        ]
        self.special_token_ids = [i for i, token in enumerate(vocabulary.tokens) if token is None]
        self._tokenizer = tokenizer
        self._id_of = {token: i for i, token in enumerate(vocabulary.tokens) if token}
        self._longest = max(map(len, self._id_of), default=0)

    def __call__(self, text: bytes) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text.decode(errors="replace"), add_special_tokens=False).ids
        if b"".join(self.tokens[i] for i in ids) == text:
            return ids
        return self._longest_first(text)  # for a tokenizer that puts a space before every text

    def _longest_first(self, text: bytes) -> list[int]:
        ids, start = [], 0
        while start < len(text):
            ends = range(min(len(text), start + self._longest), start, -1)
            end = next((end for end in ends if text[start:end] in self._id_of), None)
            if end is None:
                break
            ids.append(self._id_of[text[start:end]])
            start = end
        return ids


def llguidance_tokenizer(model: CausalModel) -> Any:
    """The `LLTokenizer` of a model."""
    return _tokenizer(model.tokenizer.to_str(), vocabulary_of(model))


@lru_cache(maxsize=4)
def _tokenizer(tokenizer_json: str, vocabulary: Vocabulary) -> Any:
    return LLTokenizer(TokenizerWrapper(TokensForLlguidance(vocabulary, Tokenizer.from_str(tokenizer_json))))


def llguidance_grammar(constraint: Constraint, leading: bytes = b"") -> str:
    """The constraint as a grammar of llguidance, after the bytes that every token sequence starts with.

    >>> from diffinity.constraints import Regex
    >>> llguidance_grammar(Regex("a+")).splitlines()
    ['start: TEXT', 'TEXT: /(?:a){1,}/']
    """
    prefix = f"{json.dumps(leading.decode())} " if leading else ""
    if isinstance(constraint, JsonSchema):
        schema = _schema(constraint)
        if not prefix:
            return str(LLMatcher.grammar_from_json_schema(schema))
        return str(LLMatcher.grammar_from_lark(f"start: {prefix}document\ndocument: %json {json.dumps(schema)}"))
    return str(LLMatcher.grammar_from_lark(f"start: {prefix}TEXT\nTEXT: {_terminal(constraint)}"))


def _terminal(constraint: Constraint) -> str:
    """The constraint as a terminal of llguidance's Lark dialect, which has `&` and `~`."""
    match constraint:
        case And(parts):
            return "(" + " & ".join(map(_terminal, parts)) + ")" if parts else ANY_TEXT
        case Not(part):  # its complement also contains invalid UTF-8
            return f"({ANY_TEXT} & ~{_terminal(part)})"
        case Or(parts) if not _is_regex(constraint):
            return "(" + " | ".join(map(_terminal, parts)) + ")"
        case Choice(options) if not _is_regex(constraint):
            return "(" + " | ".join(_terminal(lift(option)) for option in options) + ")"
        case Concat(parts) if not _is_regex(constraint):
            return "(" + " ".join(map(_terminal, parts)) + ")"
        case Repeat(part, low, high) if not _is_regex(constraint):
            return f"({_terminal(part)}{{{low},{'' if high is None else high}}})"
    pattern = plain_regex(constraint.pattern())
    return f"/{pattern}/" if pattern else '""'


def _is_regex(constraint: Constraint) -> bool:
    try:
        constraint.pattern()
    except UnsupportedConstraint:
        return False
    return True


def _schema(constraint: JsonSchema) -> Any:
    """The schema with the white space, strictness and closed objects of the constraint."""
    options, schema = constraint.options, constraint.schema
    if not isinstance(schema, dict):
        return {} if schema else {"not": {}}
    separators = (", ", ": ") if options.whitespace == "dumps" else (",", ":")
    if not options.open:
        schema = closed_schema(schema)
    guidance_options: dict[str, Any] = {
        "whitespace_flexible": options.whitespace == "flexible",
        "item_separator": separators[0],
        "key_separator": separators[1],
        "lenient": options.lenient,
        "coerce_one_of": True,  # llguidance has no `oneOf` and uses `anyOf` instead, which may accept too much
    }
    if options.whitespace == "flexible":
        guidance_options["whitespace_pattern"] = rf"[ \t\n\r]{{0,{options.max_space}}}"
    return schema | {"x-guidance": guidance_options}

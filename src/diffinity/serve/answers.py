"""The responses of the server: OpenAI's objects, complete or as chunks, and drafts for the page."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from diffinity import __version__
from diffinity.models.protocol import TextModel, vocabulary_of
from diffinity.serve.batcher import DraftEvent, Job, TextEvent
from diffinity.trace import Pieces

Object = dict[str, Any]


class View:
    """Tokens for display: pieces of text, their probabilities, and the automaton states that they pass through."""

    def __init__(self, model: TextModel) -> None:
        self._model, self._vocabulary = model, vocabulary_of(model)
        self._pieces = Pieces(model)

    def draft(self, event: DraftEvent, job: Job) -> Object:
        """The data of an event `diffinity.draft`."""
        ids = self._pieces.before_end(event.tokens)
        return {
            "index": event.index,
            "step": event.step,
            "steps": event.steps,
            "tokens": self._texts(ids),
            "sure": self._by_piece(ids, event.confidence, min),
            "path": self._path(ids, job),
            "ended": len(ids) < len(event.tokens),
            "log_acceptance": _finite(event.log_acceptance),
        }

    def text(self, event: TextEvent, job: Job) -> Object:
        """The data of an event `diffinity.text`."""
        sample = event.text
        ids = self._pieces.before_end(sample.tokens)
        differs = [int(a != b) for a, b in zip(sample.tokens, event.last_draft, strict=True)]
        return {
            "index": event.index,
            "text": sample.text,
            "tokens": self._texts(ids),
            "changed": self._by_piece(ids, differs, max),
            "path": self._path(ids, job),
            **details(sample),
        }

    def count(self, tokens: Sequence[int]) -> int:
        """The number of tokens of a text up to its end."""
        return len(self._pieces.before_end(tokens))

    def spelled(self, token: int) -> bytes:
        """The bytes of a token; empty for special tokens."""
        return self._vocabulary.tokens[token] or b""

    def _texts(self, ids: Sequence[int]) -> list[str]:
        return [self._pieces.texts[number] for number, _ in self._pieces.spelled(ids)]

    def _by_piece(self, ids: Sequence[int], values: Sequence[int], combine: Any) -> list[int]:
        by_piece, position = [], 0
        for _, size in self._pieces.spelled(ids):
            by_piece.append(combine(values[position : position + size]))
            position += size
        return by_piece

    def _path(self, ids: Sequence[int], job: Job) -> list[list[int]]:
        """The states after each byte of every piece; [−1] if there is no transition."""
        dfa, path, state, position = job.compiled.dfa, [], 0, 0
        if dfa is None or job.settings.framing == "search":
            return []
        table, classes = dfa.table, dfa.byte_class
        for _, size in self._pieces.spelled(ids):
            states = [state]
            for byte in b"".join(self.spelled(token) for token in ids[position : position + size]):
                state = int(table[state, classes[byte]]) if state >= 0 else -1
                states.append(state)
            path.append(states)
            position += size
        return path


def details(text: Any) -> Object:
    """The field `diffinity` of a finished text."""
    as_json = text.as_json()
    return {name: as_json[name] for name in ("satisfied", "log_acceptance", "log_p_text", "seed", "finish_reason")}


def _finite(value: float | None) -> float | None:
    return round(value, 4) if value is not None and math.isfinite(value) else None


@dataclass
class Answer:
    """The objects of one request, all with the same id."""

    chat: bool
    model_name: str
    view: View
    prompt_tokens: int = 0
    include_usage: bool = False
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))
    completion_tokens: int = 0

    def __post_init__(self) -> None:
        self.id = ("chatcmpl-" if self.chat else "cmpl-") + secrets.token_hex(12)

    def response(self, events: Sequence[TextEvent], jobs: Sequence[Job], seed: int) -> Object:
        """The answer to a request without `stream`."""
        choices = [self._choice(event, job) for event, job in zip(events, jobs, strict=True)]
        return {
            **self._head("chat.completion" if self.chat else "text_completion"),
            "choices": choices,
            "usage": self.usage(),
            "diffinity": {"seed": seed, "texts": [details(event.text) for event in events]},
        }

    def _choice(self, event: TextEvent, job: Job) -> Object:
        self.completion_tokens += self.view.count(event.text.tokens)
        if self.chat:
            message = {"role": "assistant", "content": event.text.text, "refusal": None}
            return {**self._ending(event, job, "stop"), "message": message}
        return {**self._ending(event, job, "stop"), "text": event.text.text}

    def _ending(self, event: TextEvent, job: Job, reason: str | None) -> Object:
        return {"index": event.index, "logprobs": self._logprobs(event, job), "finish_reason": reason}

    def chunks(self, event: TextEvent, job: Job) -> list[Object]:
        """The chunks of one finished text."""
        self.completion_tokens += self.view.count(event.text.tokens)
        if not self.chat:
            return [self._chunk([{**self._ending(event, job, "stop"), "text": event.text.text}])]
        content = {**self._ending(event, job, None), "delta": {"role": "assistant", "content": event.text.text}}
        end = {"index": event.index, "delta": {}, "logprobs": None, "finish_reason": "stop"}
        return [self._chunk([content]), self._chunk([end])]

    def usage_chunk(self) -> Object:
        """The last chunk, if it was requested."""
        return {**self._chunk([]), "usage": self.usage()}

    def _chunk(self, choices: list[Object]) -> Object:
        head = self._head("chat.completion.chunk" if self.chat else "text_completion")
        return {**head, "choices": choices} | ({"usage": None} if self.include_usage else {})

    def _head(self, kind: str) -> Object:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model_name,
            "system_fingerprint": f"diffinity-{__version__}",
        }

    def usage(self) -> Object:
        """OpenAI's count of tokens."""
        total = self.prompt_tokens + self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": total,
        }

    def _logprobs(self, event: TextEvent, job: Job) -> Object | None:
        if event.top is None:
            return None
        top = event.top[: self.view.count(event.text.tokens)]
        if self.chat:
            return {"content": [self._chat_token(token) for token in top], "refusal": None}
        texts = [self._shown(chosen) for (chosen, _), *_ in top]
        offsets = [sum(map(len, texts[:i])) for i in range(len(texts))]
        return {
            "tokens": texts,
            "token_logprobs": [_log(log_p) for (_, log_p), *_ in top],
            "top_logprobs": [{self._shown(token): _log(log_p) for token, log_p in others} for _, *others in top]
            if job.logprobs
            else None,
            "text_offset": offsets,
        }

    def _chat_token(self, token: list[tuple[int, float]]) -> Object:
        chosen, *others = (
            {"token": self._shown(i), "logprob": _log(log_p), "bytes": list(self.view.spelled(i))}
            for i, log_p in token
        )
        return {**chosen, "top_logprobs": others}

    def _shown(self, token: int) -> str:
        return self.view.spelled(token).decode(errors="replace")


def _log(log_p: float) -> float:
    """A log-probability for JSON; −9999 for a token of probability 0, as in OpenAI's API."""
    return max(round(log_p, 6), -9999.0)


def sse(data: object, event: str | None = None) -> bytes:
    """One server-sent event.

    >>> sse({"a": 1}, "name")
    b'event: name\\ndata: {"a": 1}\\n\\n'
    """
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, allow_nan=False)
    name = "" if event is None else f"event: {event}\n"
    return f"{name}data: {text}\n\n".encode()

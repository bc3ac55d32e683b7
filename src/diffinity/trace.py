"""A record of a denoising run, and the self-contained page that replays it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diffinity.alignment.vocabulary import before_end
from diffinity.errors import InvalidArgument
from diffinity.generation import Generated
from diffinity.models.protocol import TextModel
from diffinity.processes.base import State, draft_of

MOST_CELLS = 400_000  # tokens on a page, over samples and frames: about 4 MB
MOST_SAMPLES = 32  # on a page
DATA_PLACEHOLDER = "/*TRACE*/null"
REPLACED = "\ufffd"  # replaces bytes that are not a complete character
LONGEST_CHARACTER = 4  # bytes, and so tokens, of one UTF-8 character


@dataclass(frozen=True)
class Frame:
    """The drafts of a batch after one step."""

    step: int
    tokens: NDArray[np.int32]  # (B, L): the most probable token at every position
    confidence: NDArray[np.uint8]  # (B, L): its probability, in percent
    log_acceptance: tuple[float, ...] | None  # (B,): log P(L) from the guidance; None without guidance

    @staticmethod
    def of(step: int, state: State, particles: int = 1) -> Frame:
        """The frame of a state from `callback_on_step_end`; only the first of the `particles` rows of a text."""
        tokens, confidence = draft_of(state)  # (B, L)
        log_acceptance = None if state.prediction is None else state.prediction.log_acceptance
        return Frame(
            step,
            tokens[::particles].numpy().astype(np.int32),
            (confidence[::particles] * 100).round().numpy().astype(np.uint8),
            None if log_acceptance is None else tuple(log_acceptance[::particles].tolist()),
        )


@dataclass
class Trace:
    """Collects the frames of a run: pass it to `generate` as `callback_on_step_end`.

    >>> import diffinity as dy
    >>> model, trace = dy.fit_markov(["a b.", "b a."]), Trace()
    >>> texts = dy.generate(model, "a b.", length=4, num_inference_steps=3, callback_on_step_end=trace)
    >>> [frame.step for frame in trace.batches[0]]
    [0, 1, 2]
    """

    particles: int = 1  # rows for each text; the first is recorded
    batches: list[list[Frame]] = field(default_factory=list)

    def __call__(self, step: int, state: State) -> None:
        if step == 0 or not self.batches:  # `generate` denoises one batch after another
            self.batches.append([])
        self.batches[-1].append(Frame.of(step, state, self.particles))

    def page(
        self,
        model: TextModel,
        texts: Sequence[Generated],
        *,
        constraint: Sequence[tuple[str, str]] = (),
        settings: Mapping[str, object] | None = None,
    ) -> str:
        """The HTML page: the constraint (from `request.in_words`), the settings, and all drafts."""
        pieces = Pieces(model)
        samples = self._samples(texts)
        stride = max(1, -(-sum(sample.cells() for sample in samples) // MOST_CELLS))
        data = {
            "constraint": [list(part) for part in constraint],
            "settings": {name: str(value) for name, value in (settings or {}).items()},
            "texts": len(texts),
            "particles": self.particles,
            "samples": [sample.as_json(pieces, stride) for sample in samples],
        }
        data["pieces"] = pieces.texts  # complete at this point
        template = files("diffinity").joinpath("trace_page.html").read_text(encoding="utf-8")
        return template.replace(DATA_PLACEHOLDER, _for_script(data), 1)

    def _samples(self, texts: Sequence[Generated]) -> list[_Sample]:
        rows = [(batch, i) for batch in self.batches for i in range(len(batch[0].tokens))]
        if len(rows) != len(texts):
            raise InvalidArgument(f"the trace has steps of {len(rows)} samples, but there are {len(texts)} texts")
        return [_Sample(*row, text) for row, text in zip(rows, texts, strict=True)][:MOST_SAMPLES]


class Pieces:
    """The distinct texts of tokens; the page refers to them by number.

    Tokens that contain parts of one UTF-8 character form one piece.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["ab é"])
    >>> pieces = Pieces(model)
    >>> pieces.spelled(model.tokenizer.encode("é").ids), pieces.texts
    ([(0, 1)], ['é'])
    """

    def __init__(self, model: TextModel) -> None:
        self.texts: list[str] = []
        self._model = model
        self._numbers: dict[tuple[int, ...], int] = {}

    def spelled(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """The pieces of the ids, each with its number of tokens; a start token is a piece without text."""
        position = self._start(ids)
        pieces = [(self._number(()), position)] if position else []
        while position < len(ids):
            size = self._size(ids[position : position + LONGEST_CHARACTER])
            pieces.append((self._number(tuple(ids[position : position + size])), size))
            position += size
        return pieces

    def _size(self, ids: Sequence[int]) -> int:
        """The number of leading tokens that form complete characters; 1 if none do."""
        sizes = (
            size for size in range(1, len(ids) + 1) if REPLACED not in self.texts[self._number(tuple(ids[:size]))]
        )
        return next(sizes, 1)

    def _number(self, ids: tuple[int, ...]) -> int:
        if ids not in self._numbers:
            self._numbers[ids] = len(self.texts)
            self.texts.append(self._model.tokenizer.decode(list(ids), skip_special_tokens=False))
        return self._numbers[ids]

    def before_end(self, ids: Sequence[int]) -> list[int]:
        """The ids before the first end token, with the start token, which may have the same id."""
        return before_end(ids, self._model.eos_token_id, self._start(ids))

    def _start(self, ids: Sequence[int]) -> int:
        """1 if the ids begin with the model's start token, else 0."""
        return int(len(ids) > 0 and ids[0] == self._model.start_token_id)


@dataclass(frozen=True)
class _Sample:
    """One row of a batch, and the text that it became."""

    frames: list[Frame]
    index: int
    generated: Generated

    def cells(self) -> int:
        """The number of tokens in all its frames."""
        return len(self.frames) * int(self.frames[0].tokens.shape[1])

    def as_json(self, pieces: Pieces, stride: int) -> dict[str, Any]:
        """The data for the page: every n-th step, and always the last step."""
        spelled = pieces.spelled(pieces.before_end(self.generated.tokens))
        draft = self.frames[-1].tokens[self.index].tolist()
        differs = [a != b for a, b in zip(self.generated.tokens, draft, strict=True)]
        return {
            "seed": list(self.generated.seed),
            "satisfied": self.generated.satisfied,
            "finish_reason": self.generated.finish_reason,
            "final": [number for number, _ in spelled],
            "changed": _merged(differs, spelled, any),
            "frames": [self._frame(frame, pieces) for frame in self.frames[::-1][::stride][::-1]],
            "curve": [
                None if frame.log_acceptance is None else _finite(frame.log_acceptance[self.index])
                for frame in self.frames
            ],
        }

    def _frame(self, frame: Frame, pieces: Pieces) -> dict[str, Any]:
        ids = frame.tokens[self.index].tolist()
        text_ids = pieces.before_end(ids)
        spelled = pieces.spelled(text_ids)
        return {
            "step": frame.step,
            "ended": len(text_ids) < len(ids),
            "tokens": [number for number, _ in spelled],
            "sure": _merged(frame.confidence[self.index].tolist(), spelled, min),
        }


def _merged(
    values: Sequence[int], spelled: Sequence[tuple[int, int]], combine: Callable[[Sequence[int]], int]
) -> list[int]:
    """One value per piece, from one value per token."""
    ends = list(accumulate(size for _, size in spelled))
    return [combine(values[end - size : end]) for end, (_, size) in zip(ends, spelled, strict=True)]


def _finite(x: float) -> float | None:
    return round(x, 4) if math.isfinite(x) else None


def _for_script(data: object) -> str:
    """JSON that is safe inside a script element: it can neither close the element nor open a comment."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")

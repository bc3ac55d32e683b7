"""The results of generation: texts, and drafts of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from diffinity.processes.base import FinishReason

SHOWN = 60  # largest number of characters of a text in a repr


@dataclass(frozen=True, repr=False)
class Generated:
    """One generated text with its seed, log-probabilities and finish reason.

    `value` is the Python value of the text: an instance of the requested Pydantic model or type, the data of a
    JSON Schema, and otherwise the text itself. It is None if the text does not satisfy the constraint, or if a
    validator of the type refuses it; `value_error` has the reason.

    >>> Generated("a b", True, (1, 2), (-1.0, 0.0), -0.5, (0, 3), "complete")
    Generated('a b', satisfied=True, seed=(0, 3), finish_reason='complete')
    """

    text: str
    satisfied: bool
    tokens: tuple[int, ...]
    log_acceptance: tuple[float, ...]  # log P(L) at each guided step
    log_p_text: float  # log-probability of the text under the distributions that its tokens were taken from
    seed: tuple[int, int]
    finish_reason: FinishReason
    value: Any = None
    value_error: str | None = None

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= SHOWN else self.text[: SHOWN - 1] + "…"
        refused = "" if self.value_error is None else f", value_error={self.value_error!r}"
        return (
            f"Generated({text!r}, satisfied={self.satisfied}, seed={self.seed}, "
            f"finish_reason={self.finish_reason!r}{refused})"
        )

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON data, without NaN or infinity.

        >>> Generated("a", True, (1,), (-math.inf,), -0.5, (0, 0), "complete").as_json()["log_acceptance"]
        [None]
        """
        refused = {} if self.value_error is None else {"value_error": self.value_error}
        return {
            "text": self.text,
            "satisfied": self.satisfied,
            "tokens": list(self.tokens),
            "log_acceptance": [_finite(value) for value in self.log_acceptance],
            "log_p_text": _finite(self.log_p_text),
            "seed": list(self.seed),
            "finish_reason": self.finish_reason,
            **refused,
        }


@dataclass(frozen=True)
class Draft:
    """An intermediate state of a batch, with its texts decoded by argmax."""

    step: int  # steps done
    steps: int
    texts: tuple[str, ...]
    log_acceptance: tuple[float, ...] | None  # log P(L) of each text, with guidance
    seeds: tuple[tuple[int, int], ...]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

"""Structured output in `transformers`: one logits processor for DiffusionGemma and for causal models.

processor = ConstraintLogitsProcessor(Invoice, tokenizer)
model.generate(**inputs, logits_processor=LogitsProcessorList([processor]), max_new_tokens=512)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import finalize

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.alignment import TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.integrations.canvas import constrain_logits
from diffinity.integrations.running import is_running, outermost_call
from diffinity.integrations.texts import Rows, Texts, as_ends
from diffinity.limits import Limits

try:
    from transformers import LogitsProcessor
except ImportError as error:
    raise InvalidArgument(
        f"diffinity.integrations.transformers needs the transformers library ({error}): "
        "pip install 'diffinity[transformers]'"
    ) from None


GENERATE = (  # local variables of a running `generate`; all but the first two are DiffusionGemma's
    "generation_config",
    "logits_processor",
    "stopping_criteria",
    "initial_input_ids_len",
    "max_new_canvases",
    "canvas_length",
    "finished_denoising",
    "cur_step",
)


@dataclass
class _Call:
    """One call of `generate`."""

    prompt_length: int
    budget: int  # the number of tokens that it may write
    ends: tuple[int, ...] | None


class ConstraintLogitsProcessor(LogitsProcessor):  # type: ignore[misc]
    """Constrains `generate` of `DiffusionGemmaForBlockDiffusion` and of causal models to accepted texts.

    `constraint` is anything that `dy.constraint` takes (a `Regex`, a JSON Schema, a Pydantic model, a type …) or a
    list with one constraint per row. It is compiled once, in the constructor; one processor may serve many calls
    in sequence. The token limit and the end tokens are read from the running `generate`. In another loop,
    `max_new_tokens` and `eos_token_id` set them, and `reset()` starts a new text.

    On DiffusionGemma, at every step, the scores of a canvas become the logarithms of the marginals given that the
    text is accepted, and their argmax is an accepted text. On a causal model, tokens after which the text can no
    longer be completed within the remaining tokens are masked, so a text is always complete.
    """

    def __init__(
        self,
        constraint: Any,
        tokenizer: Any,
        *,
        max_new_tokens: int | None = None,
        eos_token_id: int | list[int] | None = None,
        limits: Limits | None = None,
    ) -> None:
        if max_new_tokens is not None and max_new_tokens < 1:
            raise InvalidArgument(f"max_new_tokens must be at least 1, but is {max_new_tokens}")
        self._texts = Texts(constraint, tokenizer, limits)
        self._max_new_tokens = max_new_tokens
        self._ends = as_ends(eos_token_id)
        self._calls: dict[int, _Call] = {}  # by the identity of each running call's generation config
        self._other_loop: _Call | None = None  # the text of a loop other than `generate`
        self._masks: dict[tuple[int, int, int, str], Tensor] = {}

    def reset(self) -> None:
        """The next call begins a new text. Only loops other than `generate` need this."""
        self._other_loop = None

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (B, V) of the next token, or (B, canvas, V) of the next canvas, after input_ids (B, n)."""
        running = outermost_call("transformers", "generate", GENERATE)
        if scores.ndim == 3:
            return self._canvas(input_ids, scores, running)
        if scores.ndim == 2:
            return self._next_token(input_ids, scores, running)
        raise InvalidArgument(f"expected scores (B, V) or (B, L, V), but got {tuple(scores.shape)}")

    # ---- DiffusionGemma: a canvas at a time

    def _canvas(self, input_ids: Tensor, scores: Tensor, running: Mapping[str, Any] | None) -> Tensor:
        call, rows = self._current(input_ids, scores, running)
        length = scores.shape[1]
        written = input_ids[:, call.prompt_length :].cpu().numpy()
        tokens_after = call.budget - written.shape[1] - length
        if tokens_after < 0:
            raise InvalidArgument(
                f"{call.budget} new tokens were expected, and the loop goes on to {written.shape[1] + length}"
            )
        finished = _finished(running, len(rows))
        windows = [
            None if finished[i] else rows.window(i, written[i], tokens_after, length) for i in range(len(rows))
        ]
        return constrain_logits(scores, windows, temperature=_temperature(self, running))

    # ---- causal models: a token at a time

    def _next_token(self, input_ids: Tensor, scores: Tensor, running: Mapping[str, Any] | None) -> Tensor:
        call, rows = self._current(input_ids, scores, running)
        states = rows.states(input_ids[:, call.prompt_length :])
        tokens_left = call.budget - (input_ids.shape[1] - call.prompt_length)
        if tokens_left <= 0:
            return scores
        masked_scores = scores
        for i, (state, automaton) in enumerate(zip(states, rows.automata, strict=True)):
            if state < 0:
                self._check_violation(i, input_ids.shape[1] - call.prompt_length, running)
                continue
            mask = self._mask(automaton, state, tokens_left, scores.device)
            if mask is None:
                rows.window(i, input_ids[i, call.prompt_length :].cpu().numpy(), 0, tokens_left)  # raises
                continue
            if mask.numel() == 0:
                continue
            if masked_scores is scores:
                masked_scores = scores.clone()
            masked_scores[i].masked_fill_(mask, -torch.inf)
            if masked_scores[i].max() == -torch.inf:
                # Other processors forbid all allowed tokens: the constraint prevails.
                masked_scores[i].masked_fill_(~mask, 0.0)
        return masked_scores

    def _mask(
        self, automaton: TokenAutomaton, state: int, tokens_left: int, device: torch.device
    ) -> Tensor | None:
        """(V,): the tokens after which the text can't be completed; empty if there are none, None for all."""
        finishing = automaton.finishing(tokens_left - 1)
        key = id(automaton), state, id(finishing), str(device)
        if key not in self._masks:
            by_class: NDArray[np.bool_] = (automaton.next[state] < 0) | ~finishing[automaton.next[state]]
            if by_class.all():
                return None
            mask = by_class[automaton.class_of] if by_class.any() else np.zeros(0, np.bool_)
            if len(self._masks) >= 512:
                self._masks.clear()
            self._masks[key] = torch.from_numpy(mask).to(device)
        return self._masks[key]

    def _check_violation(self, row: int, written: int, running: Mapping[str, Any] | None) -> None:
        """Refuse a row that violates its constraint, unless it is a draft that the loop may still reject."""
        if running is None or is_running("transformers", "_sample"):
            raise InvalidArgument(
                f"row {row} has left its constraint within {written} tokens: another logits processor changed the "
                "scores after this one; put this one last, or call reset() before a new text"
            )

    # ---- the data of the running call

    def _current(self, input_ids: Tensor, scores: Tensor, running: Mapping[str, Any] | None) -> tuple[_Call, Rows]:
        call = (
            self._other_call(input_ids, scores)
            if running is None
            else self._generate_call(input_ids, scores, running)
        )
        return call, self._texts.rows(input_ids.shape[0], scores.shape[-1], call.ends)

    def _generate_call(self, input_ids: Tensor, scores: Tensor, running: Mapping[str, Any]) -> _Call:
        """The call of `generate`, identified by its copy of the generation config and dropped with that copy."""
        config = running["generation_config"]
        key = id(config)
        if key not in self._calls:
            prompt_length = input_ids.shape[1]
            budget = _canvas_budget(running) if scores.ndim == 3 else _token_budget(config, prompt_length)
            ends = as_ends(config.eos_token_id) if self._ends is None else self._ends
            self._calls[key] = _Call(prompt_length, budget, ends)
            finalize(config, self._calls.pop, key, None)
        return self._calls[key]

    def _other_call(self, input_ids: Tensor, scores: Tensor) -> _Call:
        if self._max_new_tokens is None:
            raise InvalidArgument(
                "no `generate` of transformers is running, so the maximum number of new tokens is unknown: "
                "give ConstraintLogitsProcessor(..., max_new_tokens=...)"
            )
        if self._other_loop is None:
            block = scores.shape[1] if scores.ndim == 3 else 1
            budget = -(-self._max_new_tokens // block) * block
            self._other_loop = _Call(input_ids.shape[1], budget, self._ends)
        return self._other_loop


def _token_budget(config: Any, prompt_length: int) -> int:
    if config.max_length is None:
        raise InvalidArgument("generate has no limit on the number of tokens: give max_new_tokens")
    return int(config.max_length) - prompt_length


def _canvas_budget(running: Mapping[str, Any]) -> int:
    """The tokens of all canvases that DiffusionGemma's `generate` may write."""
    canvas, canvases, prompt = (
        int(running[name]) for name in ("canvas_length", "max_new_canvases", "initial_input_ids_len")
    )
    limits = [c.max_length for c in running["stopping_criteria"] if getattr(c, "max_length", None) is not None]
    for limit in limits:
        canvases = min(canvases, max(1, -(-(int(limit) - prompt) // canvas)))
    return canvases * canvas


def _finished(running: Mapping[str, Any] | None, rows: int) -> list[bool]:
    """The rows whose canvas the loop no longer changes."""
    finished = None if running is None else running.get("finished_denoising")
    return [False] * rows if finished is None else finished.tolist()


def _temperature(processor: ConstraintLogitsProcessor, running: Mapping[str, Any] | None) -> float:
    """The temperature by which later processors divide the logits of a canvas."""
    if running is None or "cur_step" not in running:
        return 1.0
    processors = list(running["logits_processor"] or [])
    temperature, is_later = 1.0, False
    for candidate in processors:
        if is_later and hasattr(candidate, "t_min") and hasattr(candidate, "max_denoising_steps"):
            share = running["cur_step"] / candidate.max_denoising_steps
            temperature *= float(candidate.t_min + (candidate.t_max - candidate.t_min) * share)
        is_later = is_later or candidate is processor
    return temperature if temperature > 0 else 1.0


__all__ = ["ConstraintLogitsProcessor"]

"""Structured output in `diffusers`: constrained schedulers for `LLaDA2Pipeline` and `DiffusionGemmaPipeline`.

pipe.scheduler = constrained_scheduler(pipe.scheduler, Invoice, pipe.tokenizer)
pipe(prompt="…", gen_length=256)
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from diffinity.acceptance.classes import ClassScores
from diffinity.alignment import TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.integrations.canvas import constrain_rows
from diffinity.integrations.joint import Proposal, Settled, joint_tokens
from diffinity.integrations.running import outermost_call
from diffinity.integrations.texts import Texts, as_ends, fits
from diffinity.limits import Limits

try:
    from diffusers import BlockRefinementScheduler, DiscreteDDIMScheduler, EntropyBoundScheduler
except ImportError as error:
    raise InvalidArgument(
        f"diffinity.integrations.diffusers needs the diffusers library ({error}): "
        "pip install 'diffinity[diffusers]'"
    ) from None

CALL = (  # local variables that are read from a running pipeline
    "gen_length",
    "prompt_length",
    "eos_token_id",
    "cur_input_ids",  # this and the next two are from DiffusionGemmaPipeline, the others from LLaDA2Pipeline
    "num_canvases",
    "finished_denoising",
    "block_start_pos",
    "block_x",
    "finished",
    "eos_early_stop",
)
SCHEDULERS = (BlockRefinementScheduler, DiscreteDDIMScheduler, EntropyBoundScheduler)


def constrained_scheduler(scheduler: Any, constraint: Any, tokenizer: Any, *, limits: Limits | None = None) -> Any:
    """A copy of the scheduler whose steps write only accepted texts.

    `scheduler` is a `BlockRefinementScheduler`, `DiscreteDDIMScheduler` or `EntropyBoundScheduler`; the original
    is not changed. `constraint` is anything that `dy.constraint` takes, or a list with one constraint per row. The
    tokens so far, the number of tokens left and the end token are read from the running pipeline. A loop of your
    own sets them with `scheduler.set_text(...)` before each block.

    A step may commit only the tokens of one accepted string. These are the model's own tokens if they are
    accepted. Otherwise a string is drawn (at temperature 0: the best string is taken), given acceptance and the
    committed tokens. So the text can be completed, whichever tokens the scheduler commits or edits.
    """
    if not isinstance(scheduler, SCHEDULERS):
        names = ", ".join(scheduler_class.__name__ for scheduler_class in SCHEDULERS)
        raise InvalidArgument(f"a scheduler must be one of {names}, but is {type(scheduler).__name__}")
    constrained = copy.copy(scheduler)
    kind: Any = type(scheduler)
    constrained.__class__ = _constrained_class(getattr(kind, "plain", kind))
    constrained._texts = Texts(constraint, tokenizer, limits)
    constrained._text, constrained._step = None, None
    return constrained


@dataclass(frozen=True)
class _Text:
    """The tokens before and after a block, and the part of the block that belongs to the answer."""

    written: Tensor  # (B, n)
    tokens_after: int
    part: slice
    ends: tuple[int, ...] | None
    finished: Sequence[bool]  # (B,): rows that the loop no longer changes


@dataclass(frozen=True)
class _Step:
    """The data of the running step, for `_sample_from_logits`."""

    part: slice
    windows: list[TokenAutomaton | None]
    logits: Tensor  # (B, L, V): the original logits of the model
    temperature: float
    settled: Settled
    scores: Sequence[ClassScores | None]  # of the logits, if already computed


class _Constrained:
    """The methods of a constrained scheduler; its other base is the scheduler's own class."""

    _texts: Texts
    _text: _Text | None  # set by the user's own loop
    _step: _Step | None
    config: Any
    num_inference_steps: int

    def set_text(self, written: Tensor, tokens_after: int, eos_token_id: int | list[int] | None = None) -> None:
        """For a loop of your own: the next block follows `written` (B, n), the answer so far.

        `tokens_after` is the number of tokens that may follow the block.
        """
        whole_block = slice(None)
        self._text = _Text(written, tokens_after, whole_block, as_ends(eos_token_id), [False] * len(written))

    def step(self, model_output: Tensor, timestep: int | Tensor, sample: Tensor, **kwargs: Any) -> Any:
        index, masked = int(timestep), kwargs.get("mask_token_id") is not None
        part, windows = self._windows(sample, model_output.shape[-1])
        temperature = self._temperature(index, kwargs)
        constrained: Tensor = model_output
        scores: list[ClassScores | None] = [None] * len(windows)
        if not masked:  # a canvas: the pipeline may commit the argmax of these logits, and it feeds them back
            constrained, scores = constrain_rows(model_output, windows, temperature)
        settled = self._settled(index, sample, kwargs).at(part)
        self._step = _Step(part, windows, model_output, temperature, settled, scores)
        as_tuple = not kwargs.pop("return_dict", True)
        try:
            output = super().step(constrained, timestep, sample, return_dict=True, **kwargs)  # type: ignore[misc]
        finally:
            self._step = None
        if not masked and index + 1 >= self.num_inference_steps:
            _accept_last(output.prev_sample, output.pred_logits, windows)
        return output.to_tuple() if as_tuple else output

    def _sample_from_logits(self, logits: Tensor, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """The scheduler's tokens and probabilities; rows that are not accepted get those of a joint draw."""
        tokens, probs = super()._sample_from_logits(logits, **kwargs)  # type: ignore[misc]
        step = self._step
        if step is None:
            return tokens, probs
        greedy = kwargs["temperature"] == 0.0 or not kwargs.get("use_multinomial", True)
        generator = kwargs["generator"]

        def proposals(row: int) -> list[Proposal]:
            row_logits = step.logits[row, step.part]
            unfiltered = Proposal(row_logits, step.temperature, step.scores[row])
            return [unfiltered] if greedy else [*_filtered(self, row_logits, step.temperature, kwargs), unfiltered]

        def new_generator() -> np.random.Generator:
            device = tokens.device if generator is None else generator.device
            return np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator, device=device)))

        draw_generator = None if greedy else new_generator
        joint_tokens(
            proposals, step.windows, step.settled, tokens[:, step.part], probs[:, step.part], draw_generator
        )
        return tokens, probs

    def _temperature(self, index: int, kwargs: Mapping[str, Any]) -> float:
        """The sampling temperature of a step; 1 if it takes the argmax."""
        if isinstance(self, EntropyBoundScheduler):
            share = (self.num_inference_steps - index) / self.num_inference_steps
            return float(self.config.t_min + (self.config.t_max - self.config.t_min) * share) or 1.0
        return float(kwargs.get("temperature") or 1.0)

    def _settled(self, index: int, sample: Tensor, kwargs: Mapping[str, Any]) -> Settled:
        tokens = sample.cpu().numpy()
        no_positions = np.zeros(tokens.shape, np.bool_)
        if not isinstance(self, BlockRefinementScheduler):
            return Settled(tokens, no_positions, no_positions)
        threshold = kwargs.get("editing_threshold")
        threshold = self.config.editing_threshold if threshold is None else threshold
        editing = threshold is not None and (threshold > 0.0 or kwargs.get("mask_token_id") is None)
        if kwargs.get("mask_token_id") is not None:
            fixed = tokens != kwargs["mask_token_id"]
        else:
            committed: Any = getattr(self, "_committed", None)
            has_committed = index > 0 and committed is not None and committed.shape == sample.shape
            fixed = committed.cpu().numpy() if has_committed else no_positions
        editable = no_positions if not editing else fixed.copy()
        if kwargs.get("prompt_mask") is not None:
            editable = editable & ~kwargs["prompt_mask"].cpu().numpy()[None]
        return Settled(tokens, fixed, editable, float(threshold) if editing else np.inf)

    def _windows(self, sample: Tensor, vocab_size: int) -> tuple[slice, list[TokenAutomaton | None]]:
        """The part of the block that belongs to the answer, and the automaton of each row for it."""
        running = outermost_call("diffusers", "__call__", CALL)
        text = self._text if running is None else _running_text(running, sample)
        if text is None:
            raise InvalidArgument(
                "no LLaDA2Pipeline or DiffusionGemmaPipeline is running, so the text so far and the number of "
                "tokens left are unknown: call scheduler.set_text(written, tokens_after) before each block"
            )
        rows = self._texts.rows(sample.shape[0], vocab_size, text.ends)
        written, length = text.written.cpu().numpy(), len(range(sample.shape[1])[text.part])
        windows = [
            None if text.finished[i] or not length else rows.window(i, written[i], text.tokens_after, length)
            for i in range(len(rows))
        ]
        return text.part, windows


def _running_text(running: Mapping[str, Any], sample: Tensor) -> _Text:
    """The text of the running pipeline."""
    ends = as_ends(running["eos_token_id"]) or ()
    prompt, length = int(running["prompt_length"]), sample.shape[1]
    if "cur_input_ids" in running:  # DiffusionGemmaPipeline
        written = running["cur_input_ids"][:, prompt:]
        tokens_after = (int(running["num_canvases"]) * length) - written.shape[1] - length
        return _Text(written, tokens_after, slice(None), ends, running["finished_denoising"].tolist())
    if "block_start_pos" not in running:
        raise InvalidArgument(
            "the scheduler is used by a pipeline that is not LLaDA2Pipeline or DiffusionGemmaPipeline"
        )
    start, end = int(running["block_start_pos"]), prompt + int(running["gen_length"])
    part = slice(max(prompt - start, 0), min(length, end - start))
    finished = running["finished"] & bool(running["eos_early_stop"])
    written = running["block_x"][:, prompt : max(prompt, start)]
    return _Text(written, max(end - start - length, 0), part, ends, finished.tolist())


def _filtered(scheduler: Any, logits: Tensor, temperature: float, kwargs: Mapping[str, Any]) -> list[Proposal]:
    """The logits after the scheduler's own top-k and top-p, if it has them."""
    if kwargs.get("top_k") is None and kwargs.get("top_p") is None:
        return []
    filtered = scheduler._top_k_filtering(logits.float() / temperature, top_k=kwargs.get("top_k"))
    filtered = scheduler._top_p_filtering(filtered, top_p=kwargs.get("top_p"))
    return [Proposal(filtered.masked_fill(filtered <= torch.finfo(filtered.dtype).min, -torch.inf))]


def _accept_last(sample: Tensor, logits: Tensor, windows: Sequence[TokenAutomaton | None]) -> None:
    """Replace each canvas that is not accepted after the last step by the argmax, which is accepted."""
    for i, window in enumerate(windows):
        if window is not None and not fits(window, sample[i].cpu().numpy()):
            sample[i] = logits[i].argmax(dim=-1)


@functools.cache
def _constrained_class(plain: type) -> type:
    """The class of a constrained scheduler. `step` keeps its parameters, because pipelines inspect them."""

    @functools.wraps(plain.step)  # type: ignore[attr-defined]
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _Constrained.step(self, *args, **kwargs)

    return type(f"Constrained{plain.__name__}", (_Constrained, plain), {"step": step, "plain": plain})


__all__ = ["constrained_scheduler"]

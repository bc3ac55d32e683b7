"""A batch that the caller denoises step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from diffinity.alignment import TokenAutomaton
from diffinity.generation.loop import Run
from diffinity.generation.results import Generated


@dataclass(frozen=True)
class Part:
    """Texts that are denoised together, with their constraints, automata and seeds."""

    constraints: tuple[object, ...]
    automata: tuple[TokenAutomaton, ...]
    seeds: tuple[tuple[int, int], ...]

    def select(self, texts: Sequence[int]) -> Part:
        """Some of the texts."""
        return Part(
            tuple(self.constraints[i] for i in texts),
            tuple(self.automata[i] for i in texts),
            tuple(self.seeds[i] for i in texts),
        )


class StepwiseBatch:
    """Texts that are denoised together, step by step; cancelled texts can leave the batch.

    `Generator.stepwise` creates it and defines how its runs begin (`run_of`) and end (`results_of`).
    """

    def __init__(
        self,
        part: Part,
        run_of: Callable[[Part], Run[Any, Any]],
        results_of: Callable[[Part, Run[Any, Any]], list[Generated]],
    ) -> None:
        self._part, self._run_of, self._results_of = part, run_of, results_of
        self._run = run_of(part)
        self._steps = iter(self._run)

    def __len__(self) -> int:
        return len(self._part.seeds)

    @property
    def state(self) -> Any:
        """The state after the last step, as passed to callbacks."""
        return self._run.state

    @property
    def steps(self) -> int:
        """The number of steps."""
        return self._run.process.num_inference_steps

    def step(self) -> bool:
        """Take one step; False if no step is left."""
        return next(self._steps, None) is not None

    def keep(self, texts: Sequence[int]) -> None:
        """Continue with only some of the current texts. A batch with particles keeps all its texts."""
        if len(texts) == len(self) or self._run.population is not None:
            return
        self._part = self._part.select(texts)
        self._run.keep(texts, self._run_of(self._part).process)

    def finish(self) -> list[Generated]:
        """Decode the current texts."""
        return self._results_of(self._part, self._run)

    def last_logits(self) -> Tensor | None:
        """The distributions (B, L, V) that the texts were decoded from; None if the tokens were already chosen."""
        return self._run.ending().logits

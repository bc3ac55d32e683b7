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
    """Texts that are denoised together: what each was asked to be, and its seed."""

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
    """Texts that are denoised together, a step at a time; those that no one waits for any more can leave.

    `Generator.stepwise` makes it, and says how its runs begin (`run_of`) and end (`results_of`).
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
        """What a callback would be given: the state after the last step."""
        return self._run.state

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return self._run.process.num_inference_steps

    def step(self) -> bool:
        """Take one more step; False if there is none left."""
        return next(self._steps, None) is not None

    def keep(self, texts: Sequence[int]) -> None:
        """Go on with these of the present texts only. Particles stay, since they are weighed together."""
        if len(texts) == len(self) or self._run.population is not None:
            return
        self._part = self._part.select(texts)
        self._run.keep(texts, self._run_of(self._part).process)

    def finish(self) -> list[Generated]:
        """The texts as they stand, decoded."""
        return self._results_of(self._part, self._run)

    def last_logits(self) -> Tensor | None:
        """The distributions (B, L, V) that the texts were decoded from; None where tokens were chosen before."""
        return self._run.ending().logits

"""`Generator`: a model, a constraint and settings, compiled once. Call it, stream from it, or run it step by step.

With exact decoding every text satisfies its constraint, even if the run is stopped early.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from diffinity.acceptance import foreseen_bytes
from diffinity.alignment import TokenAutomaton, align
from diffinity.constraints.base import Constraint, Regex, Text
from diffinity.constraints.python_types import constraint as as_constraint
from diffinity.errors import InvalidArgument
from diffinity.generation.lengths import chosen_length
from diffinity.generation.loop import Run
from diffinity.generation.making import check_settings, drafts_of, make_process, prompt_of, rows_of
from diffinity.generation.particles import Population
from diffinity.generation.progress import TimeLeft, countdown, progress_bar
from diffinity.generation.results import Draft, Generated
from diffinity.generation.scores import draft_scores
from diffinity.generation.settings import GenerationSettings
from diffinity.generation.stepwise import Part, StepwiseBatch
from diffinity.generation.values import value_or_reason
from diffinity.limits import current_limits
from diffinity.memory import BYTES_PER_LOGIT, check_room
from diffinity.models.protocol import TextModel, check_model, text_of, vocab_size_of, vocabulary_of, without_start
from diffinity.processes.base import Cancellation, Draws, Ending, Seeds, draft_of

ANY_TEXT = r"(?s).*"
LARGEST_BATCH = 64
RETRY_STRIDE = 1 << 32  # distance between the indices of two attempts at one text
log = logging.getLogger("diffinity.generation")
Callback = Callable[[int, Any], bool | None]


class Generator:
    """Generates texts that satisfy a constraint, or one text for each constraint of a list.

    A constraint is a `Regex`, `JsonSchema`, `Choice` … or anything that `dy.constraint` takes; None allows any
    text. The constructor compiles the constraint and raises `InfeasibleConstraint` if no text fits. `options` are
    fields of `GenerationSettings`; they override `settings`.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["the cat sat.", "the dog ran."])
    >>> write = dy.Generator(model, dy.Regex("the dog [a-z]+."), length=12, num_inference_steps=16)
    >>> write(n=2, seed=1)
    [Generated('the dog ran.', satisfied=True, seed=(1, 0), finish_reason='complete'), \
Generated('the dog ran.', satisfied=True, seed=(1, 1), finish_reason='complete')]
    """

    def __init__(
        self,
        model: TextModel,
        constraint: object | Sequence[object] = None,
        settings: GenerationSettings | None = None,
        **options: Any,
    ) -> None:
        settings = GenerationSettings.of(settings, **options)
        check_settings(model, settings)
        several = isinstance(constraint, list | tuple)
        if several and not constraint:
            raise InvalidArgument("the list of constraints is empty")
        constraints: tuple[object, ...] = tuple(constraint) if several else (constraint,)  # type: ignore[arg-type]
        free = not settings.prefix and all(value is None for value in constraints)
        if free and settings.guidance == "auto" and check_model(model) == "embedding":
            drafts = drafts_of(model, settings, free=True)  # without a constraint no guidance is needed
            settings = replace(settings, guidance="none", best_of=None if settings.particles else drafts)
        self.model, self.settings = model, settings
        self.constraints = constraints
        self._several = several
        self._context = prompt_of(model, settings)
        languages = [_with_prefix(_constraint(value), settings.prefix) for value in constraints]
        vocabulary = vocabulary_of(model)
        aligned = {
            language: align(language, vocabulary, settings.framing) for language in dict.fromkeys(languages)
        }
        self.automata = tuple(aligned[language] for language in languages)
        self.length = chosen_length(settings.length, model.sampling_defaults.length, list(aligned.values()))
        log.debug(
            "%r, %d automata of at most %d states", self, len(aligned), max(a.n_states for a in self.automata)
        )

    @classmethod
    def from_automata(
        cls,
        model: TextModel,
        automata: Sequence[TokenAutomaton],
        settings: GenerationSettings | None = None,
        *,
        length: int,
    ) -> Generator:
        """A generator of one text per automaton, for servers that compile and align in another process.

        The automata must have been compiled with the `prefix` and `framing` of the settings. `length` replaces the
        length of the settings.

        >>> import diffinity as dy
        >>> model = dy.fit_markov(["the cat sat.", "the dog ran."])
        >>> the_dog = dy.align(dy.Regex("the dog [a-z]+."), dy.models.protocol.vocabulary_of(model))
        >>> dy.Generator.from_automata(model, [the_dog], length=12)()[0].text
        'the dog ran.'
        """
        settings = GenerationSettings.of(settings)
        check_settings(model, settings)
        generator = cls.__new__(cls)
        generator.model, generator.settings = model, settings
        generator.automata, generator.length = tuple(automata), length
        generator.constraints, generator._several = (None,) * len(automata), True
        generator._context = prompt_of(model, settings)
        for automaton in set(automata):
            automaton.check_feasible(length)
        return generator

    def stepwise(self, seeds: Seeds) -> StepwiseBatch:
        """A batch with one text per seed (and constraint), which the caller denoises step by step.

        >>> import diffinity as dy
        >>> write = dy.Generator(dy.fit_markov(["a b.", "b a."]), "a b.", length=4, num_inference_steps=3)
        >>> batch = write.stepwise([(0, 0), (0, 1)])
        >>> batch.step(), batch.keep([1]), batch.step(), batch.step(), batch.step()
        (True, None, True, True, False)
        >>> [generation.seed for generation in batch.finish()]
        [(0, 1)]
        """
        part = self._part(range(len(seeds)), seeds)
        return StepwiseBatch(part, lambda rows: self._run(rows, None, None), self._results)

    def __repr__(self) -> str:
        constraints = f"{len(self.constraints)} constraints" if self._several else repr(self.constraints[0])
        model, options = type(self.model).__name__, self.settings.as_json()
        return f"Generator({model}, {constraints}, length={self.length}, {options})"

    @property
    def rows(self) -> int:
        """The number of batch rows of one text: its particles or its drafts."""
        return rows_of(self.model, self.settings)

    @property
    def num_inference_steps(self) -> int:
        """The number of steps of a text."""
        process = make_process(self.model, self.automata[:1], self.length, self.settings, context=self._context)
        return process.num_inference_steps

    def __call__(
        self,
        n: int = 1,
        *,
        seed: int = 0,
        seeds: Seeds | None = None,
        callback_on_step_end: Callback | None = None,
        cancel: Cancellation | None = None,
        deadline: float | None = None,
        progress: bool = False,
    ) -> list[Generated]:
        """Generate `n` texts, or one text for each constraint.

        Text i has the seed (seed, i), or the i-th of `seeds`, and does not depend on the other texts.
        `callback_on_step_end(step, state)` is called after every step; returning True stops the run. `cancel`
        (anything with `is_set()`) and `deadline` (seconds, for the whole call) are checked between steps.
        `progress=True` draws a progress bar on stderr.
        """
        results: list[Generated] = []
        time_left = countdown(deadline)
        parts = list(self._parts(n, seed, seeds))
        with progress_bar(progress, len(parts) * self.num_inference_steps) as advance:
            for part in parts:
                run = self._run(part, cancel, time_left())
                for state in run:
                    advance()
                    if callback_on_step_end is not None and callback_on_step_end(state.step - 1, state):
                        run.stop()
                results += self._retried(part, self._results(part, run), cancel, time_left)
        return results

    def stream(
        self,
        n: int = 1,
        *,
        every: int = 1,
        seed: int = 0,
        seeds: Seeds | None = None,
        cancel: Cancellation | None = None,
        deadline: float | None = None,
        progress: bool = False,
    ) -> Iterator[Draft | Generated]:
        """Stream a call: a `Draft` of the batch after every `every` steps, then its `Generated` texts."""
        if every < 1:
            raise InvalidArgument(f"every must be at least 1 step, but is {every}")
        parts = list(self._parts(n, seed, seeds))
        return self._streamed(parts, every, cancel, deadline, progress)

    def _streamed(
        self, parts: list[Part], every: int, cancel: Cancellation | None, deadline: float | None, progress: bool
    ) -> Iterator[Draft | Generated]:
        time_left = countdown(deadline)
        with progress_bar(progress, len(parts) * self.num_inference_steps) as advance:
            for part in parts:
                run = self._run(part, cancel, time_left())
                total = run.process.num_inference_steps
                for state in run:
                    advance()
                    if state.step % every == 0 or state.step == total:
                        yield self._draft(part, state, total)
                yield from self._retried(part, self._results(part, run), cancel, time_left)

    def _parts(self, n: int, seed: int, seeds: Seeds | None) -> Iterator[Part]:
        """The texts, divided into batches."""
        if self._several and n not in (1, len(self.constraints)):
            raise InvalidArgument(
                f"n is {n}, but there are {len(self.constraints)} constraints: one text for each"
            )
        if n < 1:
            raise InvalidArgument(f"n must be at least 1, but is {n}")
        n_texts = len(self.constraints) if self._several else n
        if seeds is None:
            seeds = [(seed, i) for i in range(n_texts)]
        if len(seeds) != n_texts:
            raise InvalidArgument(f"{len(seeds)} seeds for {n_texts} texts: give one (seed, index) for each")
        check_room(self.model, n_texts, self.length)
        size = self.settings.batch_size or self.affordable()
        for first in range(0, n_texts, size):
            yield self._part(range(first, min(first + size, n_texts)), seeds)

    def _part(self, texts: Sequence[int], seeds: Seeds) -> Part:
        """The batch of some of the texts."""
        constraint_indices = list(texts) if self._several else [0] * len(texts)
        return Part(
            tuple(self.constraints[i] for i in constraint_indices),
            tuple(self.automata[i] for i in constraint_indices),
            tuple(seeds[i] for i in texts),
        )

    def affordable(self) -> int:
        """The number of texts for which the arrays of a step fit in `limits.memory_bytes`; at least one."""
        programme = max(foreseen_bytes(automaton, self.length) for automaton in set(self.automata))
        positions = 1 if check_model(self.model) == "causal" else self.length + len(self._context or ())
        logits = BYTES_PER_LOGIT * positions * vocab_size_of(self.model)
        rows = self.rows
        return max(1, min(LARGEST_BATCH, current_limits().memory_bytes // (rows * (logits + programme))))

    def _run(self, part: Part, cancel: Cancellation | None, deadline: float | None) -> Run[Any, Any]:
        rows = self.rows
        automata = [automaton for automaton in part.automata for _ in range(rows)]
        weighted = self.settings.particles is not None
        process = make_process(
            self.model, automata, self.length, self.settings, weighted=weighted, context=self._context
        )
        population = Population(part.seeds, rows, automata) if weighted else None
        draws = Draws(part.seeds, rows)
        state = process.begin(draws, self.length)
        return Run(process, state, draws, rows=rows, population=population, cancel=cancel, deadline=deadline)

    def _results(self, part: Part, run: Run[Any, Any]) -> list[Generated]:
        ending, history, seeds, decoding = run.ending(), run.log_acceptance(), part.seeds, self.settings.decode
        if run.population is not None:
            population = run.population
            chosen = population.choose(ending.log_acceptance(population.automata))
            ending, history = ending.select(chosen), population.history[:, chosen].T
            seeds, decoding = tuple(population.decoding_seeds()), "sample"
        elif run.rows > 1:
            return self._best_drafts(part, ending, history, run)
        decoded = ending.decode(part.automata, decoding, seeds)
        return self._texts(part, decoded.tokens, decoded.log_p_text, history, run)

    def _best_drafts(self, part: Part, ending: Ending, history: Tensor, run: Run[Any, Any]) -> list[Generated]:
        """The draft of each text with the highest score; accepted drafts come before the other drafts."""
        rows = run.rows
        automata = [automaton for automaton in part.automata for _ in range(rows)]
        seeds = tuple(seed for seed in part.seeds for _ in range(rows))
        decoded = ending.decode(automata, self.settings.decode, seeds)
        scores = draft_scores(self.model, decoded.tokens, self._context)
        if self.settings.decode == "argmax":
            accepted = [a.accepts(ids) for a, ids in zip(automata, decoded.tokens.tolist(), strict=True)]
            scores = scores - 1e6 * (~torch.tensor(accepted)).double()
        first = torch.arange(len(part.seeds)) * rows
        chosen = first + scores.view(-1, rows).argmax(dim=1)
        token_rows = chosen.to(decoded.tokens.device)
        log_p_text = decoded.log_p_text[chosen.to(decoded.log_p_text.device)]
        return self._texts(part, decoded.tokens[token_rows], log_p_text, history[chosen.to(history.device)], run)

    def _texts(
        self, part: Part, tokens: Tensor, log_p_text: Tensor, history: Tensor, run: Run[Any, Any]
    ) -> list[Generated]:
        results = []
        for i, ids in enumerate(tokens.tolist()):
            satisfied = part.automata[i].accepts(ids)
            text = self._text(ids, part.automata[i])
            value, value_error = None, None
            if satisfied and self.settings.framing != "search":
                value, value_error = value_or_reason(part.constraints[i], text)
            results.append(
                Generated(
                    text=text,
                    satisfied=satisfied,
                    tokens=tuple(ids),
                    log_acceptance=tuple(history[i].tolist()),
                    log_p_text=float(log_p_text[i]),
                    seed=part.seeds[i],
                    finish_reason=run.finish_reason,
                    value=value,
                    value_error=value_error,
                )
            )
        return results

    def _retried(
        self, part: Part, results: list[Generated], cancel: Cancellation | None, time_left: TimeLeft
    ) -> list[Generated]:
        """The results; texts whose values were refused are generated again, up to `retry_invalid` times."""
        for attempt in range(1, self.settings.retry_invalid + 1):
            refused = [i for i, result in enumerate(results) if result.value_error is not None]
            seconds_left = time_left()
            if not refused or seconds_left == 0.0 or (cancel is not None and cancel.is_set()):
                break
            log.info("attempt %d for %d texts whose values were refused", attempt, len(refused))
            retried_part = part.select(refused)
            seeds = tuple((seed, index + attempt * RETRY_STRIDE) for seed, index in retried_part.seeds)
            retried_part = replace(retried_part, seeds=seeds)
            run = self._run(retried_part, cancel, seconds_left)
            for _ in run:
                pass
            for i, new_result in zip(refused, self._results(retried_part, run), strict=True):
                results[i] = new_result
        return results

    def _draft(self, part: Part, state: Any, total: int) -> Draft:
        rows = self.rows
        log_acceptance = state.prediction.log_acceptance
        return Draft(
            state.step,
            total,
            tuple(self._text(ids) for ids in draft_of(state)[0][::rows].tolist()),
            None if log_acceptance is None else tuple(log_acceptance[::rows].tolist()),
            part.seeds,
        )

    def _text(self, ids: list[int], automaton: TokenAutomaton | None = None) -> str:
        if self.settings.framing in ("eos", "eos_strict"):
            return text_of(self.model, ids)
        if self.settings.framing == "search":
            return text_of(self.model, self._around_match(ids, automaton))
        text: str = self.model.tokenizer.decode(without_start(self.model, ids), skip_special_tokens=False)
        return text

    def _around_match(self, ids: list[int], automaton: TokenAutomaton | None) -> list[int]:
        """The tokens between two end tokens that contain the match; without a match, the first such tokens."""
        start, end = self.model.start_token_id, self.model.eos_token_id
        start_tokens = ids[:1] if start is not None and ids[:1] == [start] else []
        pieces: list[list[int]] = [[]]
        for token in ids[len(start_tokens) :]:
            if token == end:
                pieces.append([])
            else:
                pieces[-1].append(token)
        matching = [piece for piece in pieces if automaton is not None and automaton.accepts(start_tokens + piece)]
        return next(iter(matching or [piece for piece in pieces if piece]), [])


def generate(
    model: TextModel,
    constraint: object | Sequence[object] = None,
    n: int = 1,
    length: Any = None,
    *,
    settings: GenerationSettings | None = None,
    seed: int = 0,
    seeds: Seeds | None = None,
    callback_on_step_end: Callback | None = None,
    cancel: Cancellation | None = None,
    deadline: float | None = None,
    progress: bool = False,
    **options: Any,
) -> list[Generated]:
    """Generate `n` texts that satisfy a constraint, or one text for each constraint of a list.

    This is `Generator` in one call. `options` are the fields of `GenerationSettings`:

    - `decode`: with "best" or "sample" every text satisfies its constraint, or `InfeasibleConstraint` is raised
      before the first step; "argmax" takes the most probable tokens, as the paper does.
    - `prefix` is the start of the output; `prompt` or `messages` are the model's input, for models that read
      prompts.
    - `length="auto"` is one and a half times the length of the shortest text, plus eight tokens, rounded up to a
      multiple of 8, and at least 24.
    - `particles=K` draws each text from K weighted trajectories: slower, and closer to the model's own
      distribution given the constraint.
    - `best_of=K` writes K drafts of each text and returns the draft with the best score.
    - `retry_invalid=K` generates a text again, up to K times, if a validator of the type refuses its value.

    Text i has the seed (seed, i), or the i-th of `seeds`, and does not depend on the other texts. Texts are
    denoised in batches of `batch_size`, by default as many as fit in `limits.memory_bytes`. `progress=True` draws
    a progress bar on stderr.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["the cat sat.", "the dog ran."])
    >>> dy.generate(model, dy.Regex("the dog [a-z]+."), length=12, num_inference_steps=16)[0].satisfied
    True
    """
    if length is not None:
        options["length"] = length
    return Generator(model, constraint, settings, **options)(
        n,
        seed=seed,
        seeds=seeds,
        callback_on_step_end=callback_on_step_end,
        cancel=cancel,
        deadline=deadline,
        progress=progress,
    )


def stream(
    model: TextModel,
    constraint: object | Sequence[object] = None,
    n: int = 1,
    length: Any = None,
    *,
    every: int = 1,
    settings: GenerationSettings | None = None,
    seed: int = 0,
    seeds: Seeds | None = None,
    cancel: Cancellation | None = None,
    deadline: float | None = None,
    progress: bool = False,
    **options: Any,
) -> Iterator[Draft | Generated]:
    """Stream `generate`: a `Draft` of the batch after every `every` steps, then its `Generated` texts.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["the cat sat.", "the dog ran."])
    >>> *drafts, last = dy.stream(model, dy.Regex("the dog [a-z]+."), length=12, num_inference_steps=16)
    >>> len(drafts), last.satisfied
    (16, True)
    """
    if length is not None:
        options["length"] = length
    return Generator(model, constraint, settings, **options).stream(
        n, every=every, seed=seed, seeds=seeds, cancel=cancel, deadline=deadline, progress=progress
    )


def _constraint(value: object) -> Constraint:
    return Regex(ANY_TEXT) if value is None else as_constraint(value)


def _with_prefix(constraint: Constraint, prefix: str) -> Constraint:
    return constraint & (Text(prefix) + Regex(ANY_TEXT)) if prefix else constraint

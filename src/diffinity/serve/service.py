"""From a checked request to jobs for the batcher: settings, length, seeds, and refusals."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from diffinity.errors import DiffinityError
from diffinity.generation import GenerationSettings
from diffinity.generation.making import check_settings, drafts_of, prompt_of
from diffinity.generation.settings import from_request_names, request_name
from diffinity.models.protocol import TextModel, check_model, no_prompt, vocabulary_of
from diffinity.serve.batcher import Batcher, Job
from diffinity.serve.compiler import Compiled, Compiler
from diffinity.serve.constraints import ConstraintSpec, constraint_of
from diffinity.serve.errors import ApiError, of_diffinity
from diffinity.serve.settings import ServeSettings
from diffinity.serve.wire import ChatRequest, CompletionRequest, InspectRequest

log = logging.getLogger("diffinity.serve")
WARM_UP_STEPS, WARM_UP_TOKENS = 4, 16
COOLEST, WARMEST = 0.5, 1.5  # factors on a model's own score temperature at temperature 0 and 2


@dataclass(frozen=True)
class Prepared:
    """A valid request: its jobs, one for each prompt."""

    jobs: list[Job]
    seed: int
    prompt_tokens: int


class Service:
    """A model, its compiler and its batcher."""

    def __init__(self, model: TextModel, settings: ServeSettings) -> None:
        self.model, self.settings = model, settings
        self.compiler = Compiler(vocabulary_of(model), settings)
        self.batcher = Batcher(model, settings)
        self.ready = False
        self.draining = False
        self.failure: str | None = None  # why the warm-up failed

    async def start(self) -> None:
        """Warm up both compiling processes, the network and the kernels; then set `ready`."""
        self.batcher.start()
        try:
            await self._warm_up()
            self.ready = True
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
            log.error("the server can't start: %s", self.failure)

    async def _warm_up(self) -> None:
        await self.compiler.warm_up()
        request = CompletionRequest.model_validate(
            {
                "structured_outputs": {"regex": "[a-z ]{1,9}"},
                "max_tokens": WARM_UP_TOKENS,
                "diffinity": {"steps": WARM_UP_STEPS},
            }
        )
        prepared = await self.prepare(request, warm=True)
        for job in prepared.jobs:
            event = await job.events.get()
            if isinstance(event, ApiError):
                raise event

    def close(self) -> None:
        """Finish running requests and stop."""
        self.draining = True
        self.batcher.close()
        self.compiler.close()

    async def prepare(self, request: CompletionRequest | ChatRequest, warm: bool = False) -> Prepared:
        """Check a request, compile its constraint and put its texts into the queue."""
        if not self.ready and not warm:
            raise ApiError("the server is warming up", status=503, code="not_ready", retry_after=2)
        began = time.monotonic()
        if request.model is not None and request.model != self.settings.model_name:
            raise ApiError(
                f"there is no model {request.model!r} here: this server has {self.settings.model_name!r}",
                status=404,
                param="model",
                code="model_not_found",
            )
        settings = self._generation_settings(request)
        logprobs = self._logprobs(request, settings)
        drafts = 1 if logprobs is not None else drafts_of(self.model, settings)
        if settings.particles is None:
            settings = replace(settings, best_of=drafts)
        prompts = self._prompted(request, settings)
        n = (request.n or 1) * len(prompts)
        if n > self.settings.max_n:
            raise ApiError(f"the request has {n} texts, but at most {self.settings.max_n} are allowed", param="n")
        spec = constraint_of(request, settings.prefix)
        if spec.is_free and settings.guidance == "auto" and check_model(self.model) == "embedding":
            prompts = [replace(prompt, guidance="none") for prompt in prompts]  # no constraint, no guidance
        deadline = self._deadline(request)
        compiled = await self._compiled(spec, settings, began + deadline)
        length = self._length(request, compiled)
        seed = secrets.randbits(32) if request.seed is None else request.seed
        jobs = [
            Job(
                compiled,
                prompt,
                length,
                [(seed, i * (request.n or 1) + k) for k in range(request.n or 1)],
                began + deadline,
                drafts=_diffinity_field(request, "drafts") if request.stream else None,
                logprobs=logprobs,
            )
            for i, prompt in enumerate(prompts)
        ]
        prompt_tokens = sum(len(prompt_of(self.model, prompt) or ()) for prompt in prompts)
        self._submit(jobs)
        return Prepared(jobs, seed, prompt_tokens)

    async def inspect(self, request: InspectRequest) -> Compiled:
        """Compile and describe a constraint."""
        if not self.ready:
            raise ApiError("the server is warming up", status=503, code="not_ready", retry_after=2)
        spec = constraint_of(request)
        return await self._compiled(spec, GenerationSettings(), time.monotonic() + self.settings.deadline)

    async def _compiled(self, spec: ConstraintSpec, settings: GenerationSettings, end: float) -> Compiled:
        compiling = self.compiler.compiled(spec, settings.framing)
        try:
            return await asyncio.wait_for(compiling, max(0.001, end - time.monotonic()))
        except TimeoutError:
            raise ApiError(
                "the deadline of the request has passed", status=504, code="deadline_exceeded", param=spec.param
            ) from None

    def _submit(self, jobs: Sequence[Job]) -> None:
        try:
            for job in jobs:
                self.batcher.submit(job)
        except ApiError:
            for job in jobs:
                job.cancel()
            raise

    def _generation_settings(self, request: CompletionRequest | ChatRequest) -> GenerationSettings:
        """The generation settings without the prompt; refuses options that the model does not support."""
        options = _request_options(request)
        if request.temperature is not None:
            options |= self._temperature(request.temperature)
        try:
            settings = GenerationSettings.of(**from_request_names(options))
            check_settings(self.model, settings)
        except DiffinityError as error:
            raise of_diffinity(error, "diffinity") from None
        bounds = {"steps": (settings.num_inference_steps, self.settings.max_steps)}
        bounds["particles"] = (settings.particles, self.settings.max_particles)
        bounds["best_of"] = (settings.best_of, self.settings.max_particles)
        for name, (requested, limit) in bounds.items():
            if requested is not None and requested > limit:
                raise ApiError(
                    f"{name} is {requested}, but at most {limit} are allowed", param=f"diffinity.{name}"
                )
        return settings

    def _temperature(self, temperature: float) -> dict[str, Any]:
        """OpenAI's temperature as an option of this model; 1 is the model's default."""
        if check_model(self.model) != "embedding":
            return {"temperature": temperature}
        factor = COOLEST + (WARMEST - COOLEST) * temperature / 2
        return {"score_temp": factor * self.model.sampling_defaults.score_temp}

    def _prompted(
        self, request: CompletionRequest | ChatRequest, settings: GenerationSettings
    ) -> list[GenerationSettings]:
        """The settings with each prompt of the request."""
        if isinstance(request, ChatRequest):
            messages = tuple({"role": message.role, "content": message.text()} for message in request.messages)
            prompts: list[dict[str, Any]] = [{"messages": messages}]
            param = "messages"
        else:
            texts = [request.prompt] if isinstance(request.prompt, str | None) else request.prompt
            if not texts:
                raise ApiError("prompt must not be an empty list", param="prompt")
            prompts, param = [{"prompt": text} if text else {} for text in texts], "prompt"
        if self.settings.ignore_prompt:
            return [settings] * len(prompts)
        if any(prompts) and not getattr(self.model, "reads_prompts", False):
            raise ApiError(
                f"{no_prompt(self.model)}. Send no prompt, set the start of the output with diffinity.prefix, or "
                "start the server with --ignore-prompt",
                param=param,
                code="no_prompt",
            )
        try:
            prompted = [replace(settings, **prompt) for prompt in prompts]
            for prompt in prompted:
                check_settings(self.model, prompt)
                size = len(prompt_of(self.model, prompt) or ())  # a chat template may refuse a conversation
                if size > self.settings.max_prompt_tokens:
                    raise ApiError(
                        f"a prompt has {size} tokens, but at most {self.settings.max_prompt_tokens} are allowed",
                        param=param,
                    )
        except DiffinityError as error:
            raise of_diffinity(error, param) from None
        return prompted

    def _deadline(self, request: CompletionRequest | ChatRequest) -> float:
        requested = _diffinity_field(request, "deadline")
        return self.settings.deadline if requested is None else min(requested, self.settings.deadline)

    def _length(self, request: CompletionRequest | ChatRequest, compiled: Compiled) -> int:
        """The requested length, or the larger of the model's default and the length that the constraint needs."""
        requested = request.max_tokens
        if isinstance(request, ChatRequest):
            requested = request.max_completion_tokens or requested
        default = self.model.sampling_defaults.length
        length = max(default, compiled.comfortable) if requested is None else requested
        if requested is None and not compiled.automaton.feasible(length):
            length = compiled.comfortable  # some lengths have no accepted text
        param = "max_tokens" if requested is not None else None
        if length > self.settings.max_tokens:
            raise ApiError(
                f"a text would have {length} tokens, but at most {self.settings.max_tokens} are allowed",
                param="max_tokens",
            )
        try:
            compiled.automaton.check_feasible(length)
        except DiffinityError as error:
            raise of_diffinity(error, param) from None
        return length

    def _logprobs(self, request: CompletionRequest | ChatRequest, settings: GenerationSettings) -> int | None:
        if isinstance(request, ChatRequest):
            if request.top_logprobs is not None and not request.logprobs:
                raise ApiError("top_logprobs needs logprobs: true", param="top_logprobs")
            requested = (request.top_logprobs or 0) if request.logprobs else None
        else:
            requested = request.logprobs
        if requested is not None and settings.particles is not None:
            raise ApiError(
                "logprobs are not available with particles, which are chosen by their weights", param="logprobs"
            )
        if requested is not None and (settings.best_of or 1) > 1:
            raise ApiError("logprobs need a single draft: set best_of to 1", param="logprobs")
        if requested is not None and check_model(self.model) != "embedding":
            raise ApiError(
                "logprobs need the final distributions, but a model of tokens commits tokens during the run",
                param="logprobs",
            )
        return requested


def _diffinity_field(request: CompletionRequest | ChatRequest, name: str) -> Any:
    return None if request.diffinity is None else getattr(request.diffinity, name)


def _request_options(request: CompletionRequest | ChatRequest) -> dict[str, Any]:
    """The options of `GenerationSettings` in `diffinity`, by the names of the command line."""
    from dataclasses import fields

    if request.diffinity is None:
        return {}
    values = {
        name: value
        for name, value in request.diffinity.model_dump().items()
        if value is not None and name not in ("drafts", "deadline")
    }
    request_names = {field.name: request_name(field) for field in fields(GenerationSettings)}
    options: dict[str, Any] = {}
    for name, value in values.items():
        option = request_names.get(name, name)
        if option in options:
            raise ApiError(f"diffinity has the option {option} twice, once as {name}", param=f"diffinity.{name}")
        options[option] = value
    return options

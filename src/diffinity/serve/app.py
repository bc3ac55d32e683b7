"""The application: the routes of the server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException

from diffinity import __version__
from diffinity.guidance.unmasking import METHODS as MASKED_METHODS
from diffinity.models.protocol import TextModel, check_model
from diffinity.processes.causal import METHODS as CAUSAL_METHODS
from diffinity.processes.uniform import METHODS as UNIFORM_METHODS
from diffinity.serve.answers import Answer, View, sse
from diffinity.serve.batcher import DraftEvent, Job, TextEvent
from diffinity.serve.compiler import MOST_DRAWN, Compiled
from diffinity.serve.errors import ApiError
from diffinity.serve.gate import Gate
from diffinity.serve.metrics import Metrics
from diffinity.serve.service import Prepared, Service
from diffinity.serve.settings import ServeSettings
from diffinity.serve.wire import ChatRequest, CompletionRequest, InspectRequest, read_body

HEARTBEAT = 5.0  # seconds between keep-alive comments in a stream
PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TextRequest = CompletionRequest | ChatRequest


def create_app(model: TextModel, settings: ServeSettings | None = None, *, warm_first: bool = False) -> Gate:
    """The ASGI application for one model; its lifespan handles warm-up and draining.

    With `warm_first` its start-up ends when the model is warm, for clients that do not check `/health`; otherwise
    requests get 503 until then.

    >>> import diffinity as dy
    >>> type(create_app(dy.fit_markov(["a b."]))).__name__
    'Gate'
    """
    settings = settings or ServeSettings()
    service = Service(model, settings)
    app = FastAPI(
        title="diffinity",
        version=__version__,
        summary="Diffusion language models that obey formal syntax, as OpenAI's API.",
        lifespan=_lifespan(service, warm_first),
        redoc_url=None,
    )
    metrics = Metrics(service)
    Routes(app, service, metrics)
    return Gate(app, settings, metrics.answered)


def _lifespan(service: Service, warm_first: bool) -> Any:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.create_task(service.start())
        try:
            if warm_first:
                await warming
            yield
        finally:
            warming.cancel()
            with contextlib.suppress(BaseException):
                await warming
            await asyncio.to_thread(service.close)

    return lifespan


class Routes:
    """The routes of one application."""

    def __init__(self, app: FastAPI, service: Service, metrics: Metrics) -> None:
        self._service, self._metrics = service, metrics
        self._started = int(time.time())
        html: dict[str, Any] = {"response_class": HTMLResponse, "include_in_schema": False}
        app.get("/", **html)(self.page)
        app.get("/diffinity/trace-template", **html)(self.trace_template)
        app.get("/health", responses={503: {"description": "warming up"}})(self.health)
        app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})(
            self.metrics
        )
        app.get("/v1/models")(self.models)
        app.get("/v1/models/{name}", responses=_json_responses(404))(self.model)
        app.post("/v1/completions", **_body_of(CompletionRequest))(self.completions)
        app.post("/v1/chat/completions", **_body_of(ChatRequest))(self.chat_completions)
        app.post("/diffinity/inspect", **_body_of(InspectRequest))(self.inspect)
        app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
        app.add_exception_handler(ApiError, _on_api_error)
        app.add_exception_handler(HTTPException, _on_http_error)
        app.add_exception_handler(RequestValidationError, _on_validation_error)

    def page(self) -> HTMLResponse:
        """The page that shows texts while they are denoised."""
        return HTMLResponse(_file("serve/page.html"), headers={"Content-Security-Policy": PAGE_POLICY})

    def trace_template(self) -> HTMLResponse:
        """The page that replays a run, without data; the main page fills it in."""
        return HTMLResponse(_file("trace_page.html"))

    def health(self) -> JSONResponse:
        """Whether requests are answered: 200, or 503 while warming up."""
        service = self._service
        status = "draining" if service.draining else "ok" if service.ready else "starting"
        status = "failed" if service.failure else status
        content = {"status": status, "waiting": service.batcher.waiting, "running": service.batcher.running}
        return JSONResponse(content, 200 if status == "ok" else 503)

    def metrics(self) -> Response:
        """Counters for Prometheus."""
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    def models(self) -> dict[str, Any]:
        """The served model, as a list."""
        return {"object": "list", "data": [self._model()]}

    def model(self, name: str) -> dict[str, Any]:
        """The model with this name."""
        if name != self._service.settings.model_name:
            raise ApiError(f"there is no model {name!r} here", status=404, param="model", code="model_not_found")
        return self._model()

    def _model(self) -> dict[str, Any]:
        lm, name = self._service.model, self._service.settings.model_name
        defaults = lm.sampling_defaults
        details: dict[str, Any] = {"steps": defaults.num_inference_steps, "length": defaults.length}
        details["reads_prompts"] = bool(getattr(lm, "reads_prompts", False))
        details["guidances"] = _guidances(lm)
        return {
            "id": name,
            "object": "model",
            "created": self._started,
            "owned_by": "diffinity",
            "diffinity": details,
        }

    async def completions(self, request: Request) -> Response:
        """OpenAI's completions."""
        return await self._answer(request, read_body(CompletionRequest, await request.body()))

    async def chat_completions(self, request: Request) -> Response:
        """OpenAI's chat completions."""
        return await self._answer(request, read_body(ChatRequest, await request.body()))

    async def inspect(self, request: Request) -> dict[str, Any]:
        """Describes a constraint: sizes, three accepted texts, a picture if it is small."""
        body = read_body(InspectRequest, await request.body())
        return _inspected(await self._service.inspect(body))

    async def _answer(self, request: Request, body: TextRequest) -> Response:
        disconnect = asyncio.create_task(_disconnected(request))
        try:
            prepared = await _unless_disconnected(self._service.prepare(body), disconnect)
            view = View(self._service.model)
            include_usage = bool(body.stream_options and body.stream_options.include_usage)
            answer = Answer(
                isinstance(body, ChatRequest),
                self._service.settings.model_name,
                view,
                prepared.prompt_tokens,
                include_usage,
            )
            if body.stream:
                disconnect.cancel()
                return EventStream(self._stream(answer, prepared))
            events = await _unless_disconnected(_all_texts(prepared.jobs), disconnect)
            self._metrics.finished(events)
            jobs = [job for job in prepared.jobs for _ in job.seeds]
            return JSONResponse(answer.response(events, jobs, prepared.seed))
        finally:
            disconnect.cancel()

    async def _stream(self, answer: Answer, prepared: Prepared) -> AsyncGenerator[bytes]:
        """Server-sent events: drafts if requested, the texts as chunks, `[DONE]`."""
        finished: list[TextEvent] = []
        try:
            async for event, job in _events(prepared.jobs):
                if event is None:
                    yield b": still here\n\n"
                elif isinstance(event, DraftEvent):
                    yield sse(answer.view.draft(event, job), "diffinity.draft")
                else:
                    finished.append(event)
                    if job.drafts:
                        yield sse(answer.view.text(event, job), "diffinity.text")
                    for chunk in answer.chunks(event, job):
                        yield sse(chunk)
            if answer.include_usage:
                yield sse(answer.usage_chunk())
            yield sse("[DONE]")
            self._metrics.finished(finished)
        except ApiError as error:  # the status has already been sent
            yield sse(error.body())
        finally:
            for job in prepared.jobs:
                job.cancel()


class EventStream(Response):
    """Server-sent events; their source is closed as soon as the client disconnects or does not read."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes]) -> None:
        super().__init__(headers={"Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        disconnect = asyncio.create_task(_disconnected(Request(scope, receive)))
        try:
            await _unless_disconnected(self._relay(send), disconnect)
        except ApiError:
            return  # the client has disconnected
        finally:
            disconnect.cancel()
            await self._events.aclose()

    async def _relay(self, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for event in self._events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _all_texts(jobs: Sequence[Job]) -> list[TextEvent]:
    """All texts of some jobs, in order; cancelling this call cancels the jobs."""
    try:
        events = [event async for event, _ in _events(jobs) if isinstance(event, TextEvent)]
        return sorted(events, key=lambda event: event.index)
    finally:
        for job in jobs:
            job.cancel()


async def _events(jobs: Sequence[Job]) -> AsyncIterator[tuple[DraftEvent | TextEvent | None, Job]]:
    """The events of some jobs until all texts are finished; None at intervals without events."""
    for job in jobs:
        texts_left = len(job.seeds)
        while texts_left:
            try:
                event = await asyncio.wait_for(job.events.get(), HEARTBEAT)
            except TimeoutError:
                yield None, job
                continue
            if isinstance(event, ApiError):
                raise event
            texts_left -= isinstance(event, TextEvent)
            yield event, job


async def _disconnected(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _unless_disconnected(awaitable: Any, disconnect: asyncio.Task[None]) -> Any:
    """The result of an awaitable, which is cancelled if the client disconnects first."""
    task = asyncio.ensure_future(awaitable)
    await asyncio.wait({task, disconnect}, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        raise ApiError("the client disconnected", status=499, code="disconnected")
    return task.result()


def _guidances(model: TextModel) -> list[str]:
    """The guidance methods that the page can compare."""
    kind = check_model(model)
    if kind == "embedding":
        return ["auto", "gradient", "posterior", "path", "none"]
    if kind == "causal":
        return list(CAUSAL_METHODS)
    return ["auto", *(MASKED_METHODS if getattr(model, "noise", "mask") == "mask" else UNIFORM_METHODS)]


def _inspected(compiled: Compiled) -> dict[str, Any]:
    automaton, dfa = compiled.automaton, compiled.dfa
    is_small = dfa is not None and dfa.n_states <= MOST_DRAWN
    return {
        "byte_states": compiled.byte_states,
        "byte_classes": compiled.byte_classes,
        "token_states": automaton.n_states,
        "token_classes": automaton.n_classes,
        "transitions": automaton.n_transitions,
        "finite": compiled.finite,
        "samples": list(compiled.samples),
        "shortest_tokens": compiled.shortest,
        "svg": dfa.to_svg() if dfa is not None and is_small else None,
    }


def _body_of(kind: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI description of a route whose body we parse ourselves."""
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {
        "responses": _json_responses(400, 401, 404, 408, 413, 415, 429, 503, 504),
        "openapi_extra": {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}},
    }


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the bodies that we parse ourselves."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        bodies = [(kind, "validation") for kind in (CompletionRequest, ChatRequest, InspectRequest)]
        _, definitions = models_json_schema(bodies, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
        document.setdefault("components", {}).setdefault("schemas", {}).update(definitions["$defs"])
        app.openapi_schema = document
    return app.openapi_schema


def _json_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    error = {
        "type": "object",
        "properties": {"error": {"type": "object", "required": ["message", "type", "param", "code"]}},
    }
    return {
        status: {"description": "error", "content": {"application/json": {"schema": error}}} for status in statuses
    }


def _file(name: str) -> str:
    return files("diffinity").joinpath(name).read_text(encoding="utf-8")


def _on_api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body(), error.status, error.headers())


def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"there is nothing at {request.url.path}" if error.status_code == 404 else str(error.detail)
    return JSONResponse(ApiError(message, status=error.status_code).body(), error.status_code, error.headers)


def _on_validation_error(_request: Request, _error: Exception) -> Response:
    return JSONResponse(ApiError("the request is not valid for this path").body(), 400)

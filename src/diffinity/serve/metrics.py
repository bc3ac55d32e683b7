"""The metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from diffinity.serve.batcher import TextEvent
from diffinity.serve.service import Service

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
PATHS = ("/", "/health", "/metrics", "/v1/models", "/v1/completions", "/v1/chat/completions", "/diffinity/inspect")
SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The counters of one server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("diffinity_requests", "Answered requests.", ["path", "status"], registry=registry)
        self._latency = Histogram(
            "diffinity_request_seconds", "From request to answer.", ["path"], buckets=SECONDS, registry=registry
        )
        self._texts = Counter("diffinity_texts", "Finished texts.", registry=registry)
        self._tokens = Counter("diffinity_tokens", "Tokens of finished texts.", registry=registry)
        self._cancelled = Gauge("diffinity_cancelled_texts", "Texts that were cancelled.", registry=registry)
        self._waiting = Gauge("diffinity_waiting_texts", "Texts that wait for a batch.", registry=registry)
        self._running = Gauge("diffinity_running_texts", "Texts in batches.", registry=registry)
        self._batch = Histogram("diffinity_batch_texts", "Texts of a batch.", buckets=SIZES, registry=registry)
        self._compile = Histogram(
            "diffinity_compile_seconds", "Compilation of a constraint.", buckets=SECONDS, registry=registry
        )
        self._hits = Gauge(
            "diffinity_compile_cache_hits", "Requests with a compiled constraint in the cache.", registry=registry
        )

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        path_label = path if path in PATHS else "other"
        self._requests.labels(path_label, status).inc()
        self._latency.labels(path_label).observe(seconds)

    def finished(self, events: Sequence[TextEvent]) -> None:
        """Count texts."""
        self._texts.inc(len(events))
        self._tokens.inc(sum(len(event.text.tokens) for event in events))

    def text(self) -> bytes:
        """All metrics, in Prometheus' format."""
        batcher, compiler = self._service.batcher, self._service.compiler
        self._waiting.set(batcher.waiting)
        self._running.set(batcher.running)
        self._cancelled.set(batcher.cancelled)
        self._hits.set(compiler.hits)
        while batcher.batches:
            self._batch.observe(batcher.batches.pop())
        while compiler.seconds:
            self._compile.observe(compiler.seconds.pop())
        return generate_latest(self._registry)

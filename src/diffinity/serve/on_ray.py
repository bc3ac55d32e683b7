"""The same application as a Ray Serve deployment: N replicas behind Ray's proxy, on a cluster or locally."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from diffinity.errors import InvalidArgument
from diffinity.serve.gate import Gate
from diffinity.serve.settings import NAME, ServeSettings, read_keys

APPLICATION = "diffinity"
HEALTH_SECONDS = 2.0  # between two health checks of a replica; a killed replica is replaced after that
BATCHES_PER_REPLICA = 2  # the running batch and a waiting batch


@dataclass(frozen=True)
class Loading:
    """The model that each replica loads, and its device."""

    model: str | None = None
    device: str = "cpu"
    trust_remote_code: bool = False

    def build(self, settings: ServeSettings) -> Gate:
        """The application, in a replica."""
        from diffinity.models.loading import load
        from diffinity.serve.app import create_app

        lm = load(self.model, device=self.device, trust_remote_code=self.trust_remote_code)
        return create_app(lm, settings, warm_first=True)


def deployment(loading: Loading, settings: ServeSettings, *, replicas: int = 1) -> Any:
    """The Ray Serve application, for `serve.run` or a config file."""
    _, serve = _ray()
    if loading.model is not None and Path(loading.model).is_dir():
        loading = replace(loading, model=str(Path(loading.model).resolve()))  # a replica may run in another folder
    gpus = 1 if loading.device.startswith("cuda") else 0

    def build() -> Gate:
        return loading.build(settings)

    application = serve.deployment(
        serve.ingress(build)(),
        name=APPLICATION,
        num_replicas=replicas,
        max_ongoing_requests=BATCHES_PER_REPLICA * settings.max_batch,
        max_queued_requests=settings.max_waiting,
        ray_actor_options={"num_cpus": 0 if gpus else 1, "num_gpus": gpus},
        health_check_period_s=HEALTH_SECONDS,
        health_check_timeout_s=30,
        graceful_shutdown_timeout_s=settings.deadline,
    )
    return application.bind()


def application(args: Mapping[str, Any]) -> Any:
    """The application of a Serve config file: `args` are model, device, trust_remote_code, replicas and fields of
    `ServeSettings`. Numbers, booleans and lists may also be written as strings: `"8"`, `"false"`."""
    kinds: dict[str, Any] = get_type_hints(ServeSettings)
    del kinds["key_digests"]  # the keys come from the environment
    kinds |= {"model": str | None, "device": str, "trust_remote_code": bool, "replicas": int}
    unknown = sorted(set(args) - set(kinds))
    if unknown:
        raise InvalidArgument(f"there is no setting {unknown[0]!r}: there are {', '.join(kinds)}")
    settings = {name: _converted(name, value, kinds[name]) for name, value in args.items()}
    model, replicas = settings.pop("model", None), settings.pop("replicas", 1)
    loading = Loading(model, settings.pop("device", "cpu"), settings.pop("trust_remote_code", False))
    settings.setdefault("model_name", Path(model).name if model else NAME)
    return deployment(loading, ServeSettings(**settings, key_digests=read_keys(None)), replicas=replicas)


def _converted(name: str, value: Any, kind: Any) -> Any:
    """A value of a config file as the type of its setting.

    >>> _converted("ignore_prompt", "false", bool), _converted("allowed_hosts", "a.org, b.org", tuple[str, ...])
    (False, ('a.org', 'b.org'))
    """
    if get_origin(kind) is tuple and isinstance(value, str):
        value = tuple(part.strip() for part in value.split(",") if part.strip())
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise InvalidArgument(f"the setting {name} is {value!r}: {error.errors()[0]['msg']}") from None


def run_on_ray(
    loading: Loading,
    settings: ServeSettings,
    *,
    host: str,
    port: int,
    replicas: int,
    address: str | None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish running requests and stop everything that was started here."""
    ray, _ = _ray()
    started = start_on_ray(loading, settings, host=host, port=port, replicas=replicas, address=address)
    print(f"serving {settings.model_name} on http://{host}:{port} with {replicas} replicas", flush=True)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    stopped.wait()
    stop_on_ray()
    if started:
        ray.shutdown()


def start_on_ray(
    loading: Loading,
    settings: ServeSettings,
    *,
    host: str,
    port: int,
    replicas: int = 1,
    address: str | None = None,
) -> bool:
    """Start the deployment and wait until its replicas are ready; True if Ray was started here."""
    ray, serve = _ray()
    os.environ.setdefault("RAY_SERVE_ENABLE_HA_PROXY", "0")
    started_here = not ray.is_initialized()
    if started_here:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    device = "GPU" if loading.device.startswith("cuda") else "CPU"
    available = ray.cluster_resources().get(device, 0)
    if address is None and available < replicas:
        raise InvalidArgument(
            f"{replicas} replicas need {replicas} {device}s and this machine has {available:.0f}: set a "
            "smaller --replicas, or name a cluster with --address"
        )
    serve.start(http_options={"host": host, "port": port})
    # There is a proxy in between: it has its own Host header rules, and a request may wait in it.
    application = deployment(loading, replace(settings, allowed_hosts=()), replicas=replicas)
    serve.run(application, name=APPLICATION, route_prefix="/")
    return started_here


def stop_on_ray() -> None:
    """End the deployment; its replicas finish their requests."""
    _, serve = _ray()
    with suppress(TimeoutError):  # Ray waits a minute for the replicas; `shutdown` ends the rest
        serve.delete(APPLICATION)
    serve.shutdown()


def _ray() -> tuple[Any, Any]:
    """Ray and Ray Serve, as Any: they are an extra and may not be installed."""
    try:
        return importlib.import_module("ray"), importlib.import_module("ray.serve")
    except ImportError as error:
        raise InvalidArgument(
            f"--ray needs Ray Serve, which is not installed ({error}): pip install 'diffinity[ray]'"
        ) from None

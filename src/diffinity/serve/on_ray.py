"""The same application as a Ray Serve deployment: N replicas behind Ray's proxy, on a cluster or locally."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from diffinity.errors import InvalidArgument
from diffinity.serve.gate import Gate
from diffinity.serve.settings import NAME, ServeSettings, read_keys

APPLICATION = "diffinity"
HEALTH_SECONDS = 2.0  # between two health checks of a replica; a killed replica is replaced after that
HELD = 2  # batches that a replica holds: the running batch and a waiting batch


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
        max_ongoing_requests=HELD * settings.max_batch,
        max_queued_requests=settings.max_waiting,
        ray_actor_options={"num_cpus": 0 if gpus else 1, "num_gpus": gpus},
        health_check_period_s=HEALTH_SECONDS,
        health_check_timeout_s=30,
        graceful_shutdown_timeout_s=settings.deadline,
    )
    return application.bind()


def application(args: Mapping[str, str]) -> Any:
    """The application of a Serve config file: `args` are model, device, replicas and fields of `ServeSettings`."""
    named = dict(args)
    model = named.pop("model", None)
    loading = Loading(model, named.pop("device", "cpu"), named.pop("trust_remote_code", "") == "true")
    replicas = int(named.pop("replicas", 1))
    kinds = {field.name: type(getattr(ServeSettings(), field.name)) for field in fields(ServeSettings)}
    unknown = sorted(set(named) - set(kinds))
    if unknown:
        raise InvalidArgument(f"there is no setting {unknown[0]!r}: there are {', '.join(kinds)}")
    chosen: dict[str, Any] = {name: kinds[name](value) for name, value in named.items()}
    chosen["key_digests"] = read_keys(None)
    chosen.setdefault("model_name", Path(model).name if model else NAME)
    return deployment(loading, ServeSettings(**chosen), replicas=replicas)


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
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    over.wait()
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
    ours = not ray.is_initialized()
    if ours:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    available = ray.cluster_resources().get("GPU" if loading.device.startswith("cuda") else "CPU", 0)
    if address is None and available < replicas:
        raise InvalidArgument(
            f"{replicas} replicas need {replicas} processors and this machine has {available:.0f}: ask for fewer "
            "with --replicas, or name a cluster with --address"
        )
    serve.start(http_options={"host": host, "port": port})
    # There is a proxy in between: it has its own Host header rules, and a request may wait in it.
    application = deployment(loading, replace(settings, allowed_hosts=()), replicas=replicas)
    serve.run(application, name=APPLICATION, route_prefix="/")
    return ours


def stop_on_ray() -> None:
    """End the deployment; its replicas finish their requests."""
    _, serve = _ray()
    with suppress(TimeoutError):  # Ray waits a minute for the replicas; what still runs ends with Serve
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

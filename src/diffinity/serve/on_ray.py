"""The same application as a Ray Serve deployment: N replicas behind Ray's proxy, on a cluster or here."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from diffinity.errors import InvalidArgument
from diffinity.serve.gate import Gate
from diffinity.serve.settings import NAME, ServeSettings, read_keys

APPLICATION = "diffinity"
HEALTH_SECONDS = 2.0  # between two looks at a replica; one that was killed is replaced after that
HELD = 2  # batches that a replica holds: one that is denoised and one that waits


def builder(model: str | None, settings: ServeSettings, device: str) -> Callable[[], Gate]:
    """What each replica calls to make its application; it reads the model by itself."""

    def build() -> Gate:
        from diffinity.models.loading import load
        from diffinity.serve.app import create_app

        return create_app(load(model, device=device), settings, warm_first=True)

    return build


def deployment(model: str | None, settings: ServeSettings, *, device: str = "cpu", replicas: int = 1) -> Any:
    """The Ray Serve application, for `serve.run` or a config file."""
    _, serve = _ray()
    if model is not None and Path(model).is_dir():
        model = str(Path(model).resolve())  # a replica may stand in another folder
    gpus = 1 if device.startswith("cuda") else 0
    made = serve.deployment(
        serve.ingress(builder(model, settings, device))(),
        name=APPLICATION,
        num_replicas=replicas,
        max_ongoing_requests=HELD * settings.max_batch,
        max_queued_requests=settings.max_waiting,
        ray_actor_options={"num_cpus": 0 if gpus else 1, "num_gpus": gpus},
        health_check_period_s=HEALTH_SECONDS,
        health_check_timeout_s=30,
        graceful_shutdown_timeout_s=settings.deadline,
    )
    return made.bind()


def application(args: Mapping[str, str]) -> Any:
    """The application of a Serve config file: `args` are model, device, replicas and fields of `ServeSettings`."""
    named = dict(args)
    model, device = named.pop("model", None), named.pop("device", "cpu")
    replicas = int(named.pop("replicas", 1))
    kinds = {one.name: type(getattr(ServeSettings(), one.name)) for one in fields(ServeSettings)}
    unknown = sorted(set(named) - set(kinds))
    if unknown:
        raise InvalidArgument(f"there is no setting {unknown[0]!r}: there are {', '.join(kinds)}")
    chosen: dict[str, Any] = {name: kinds[name](value) for name, value in named.items()}
    chosen["key_digests"] = read_keys(None)
    chosen.setdefault("model_name", Path(model).name if model else NAME)
    return deployment(model, ServeSettings(**chosen), device=device, replicas=replicas)


def run_on_ray(
    model: str | None,
    settings: ServeSettings,
    *,
    host: str,
    port: int,
    device: str,
    replicas: int,
    address: str | None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish what runs and end what was started here."""
    ray, _ = _ray()
    started = start_on_ray(
        model, settings, host=host, port=port, device=device, replicas=replicas, address=address
    )
    print(f"serving {settings.model_name} on http://{host}:{port} with {replicas} replicas", flush=True)
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    over.wait()
    stop_on_ray()
    if started:
        ray.shutdown()


def start_on_ray(
    model: str | None,
    settings: ServeSettings,
    *,
    host: str,
    port: int,
    device: str = "cpu",
    replicas: int = 1,
    address: str | None = None,
) -> bool:
    """Start the deployment and wait until its replicas are there; True if Ray was started here."""
    ray, serve = _ray()
    os.environ.setdefault("RAY_SERVE_ENABLE_HA_PROXY", "0")
    ours = not ray.is_initialized()
    if ours:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    there = ray.cluster_resources().get("GPU" if device.startswith("cuda") else "CPU", 0)
    if address is None and there < replicas:
        raise InvalidArgument(
            f"{replicas} replicas need {replicas} processors and this machine has {there:.0f}: ask for fewer with "
            "--replicas, or name a cluster with --address"
        )
    serve.start(http_options={"host": host, "port": port})
    # A proxy stands between: it has its own Host header rules, and a request may wait in it.
    application = deployment(model, replace(settings, allowed_hosts=()), device=device, replicas=replicas)
    serve.run(application, name=APPLICATION, route_prefix="/")
    return ours


def stop_on_ray() -> None:
    """End the deployment; its replicas finish what they have."""
    _, serve = _ray()
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

"""Kinds of manifest that container orchestration reads: Pod, Service, Deployment, ConfigMap, Job."""

from __future__ import annotations

from random import Random

from diffinity.training.corpus.structured.registry import Record, json_kind
from diffinity.training.corpus.structured.values import (
    SERVICES,
    WORDS,
    filled,
    flag,
    hostname,
    maybe,
    some,
    version,
)

_PORTS = (80, 3000, 5000, 8000, 8080, 9000)
_IMAGES = ("nginx", "redis", "postgres", "busybox", "httpd", "python", "node", "memcached")


def _name(rng: Random) -> str:
    return rng.choice((rng.choice(SERVICES), f"{rng.choice(SERVICES)}-{rng.choice(WORDS)}"))


def _image(rng: Random) -> str:
    return f"{rng.choice(_IMAGES)}:{rng.choice(('latest', 'stable', version(rng)))}"


@json_kind()
def pod(rng: Random) -> Record:
    name = _name(rng)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": maybe(rng, {"app": name})},
        "spec": {
            "containers": [
                {
                    "name": rng.choice(("main", "app", name)),
                    "image": _image(rng),
                    "ports": maybe(rng, [{"containerPort": rng.choice(_PORTS)}]),
                }
            ]
        },
    }


@json_kind()
def service_manifest(rng: Random) -> Record:
    name = _name(rng)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "type": maybe(rng, rng.choice(("ClusterIP", "NodePort", "LoadBalancer"))),
            "selector": {"app": name},
            "ports": [{"port": rng.choice((80, 443)), "targetPort": rng.choice(_PORTS)}],
        },
    }


@json_kind()
def deployment(rng: Random) -> Record:
    name = rng.choice(SERVICES)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": rng.randint(1, 9),
            "selector": {"matchLabels": {"app": name}},
            "template": {"spec": {"containers": [{"name": name, "image": _image(rng)}]}},
        },
    }


@json_kind()
def config_map(rng: Random) -> Record:
    settings = {
        "LOG_LEVEL": rng.choice(("debug", "info", "warn")),
        "DB_HOST": hostname(rng),
        "CACHE_TTL": str(rng.choice((60, 300, 3600))),
        "MODE": rng.choice(("development", "production")),
        "MAX_ITEMS": str(rng.choice((10, 50, 100, 500))),
        "FEATURE_X": rng.choice(("true", "false")),
    }
    chosen = set(some(rng, tuple(settings), 1, 4))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{_name(rng)}-config",
            "namespace": maybe(rng, rng.choice(("default", "prod")), 0.4),
        },
        "data": {key: value for key, value in settings.items() if key in chosen},
    }


@json_kind()
def cron_job(rng: Random) -> Record:
    schedule = rng.choice(("0 {h} * * *", "*/{m} * * * *", "0 {h} * * {d}", "30 {h} 1 * *"))
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": rng.choice(("backup", "cleanup", "report", "sync", "rotate")) + filled(rng, "-#")},
        "spec": {
            "schedule": schedule.format(h=rng.randint(0, 23), m=rng.choice((5, 10, 15, 30)), d=rng.randint(0, 6)),
            "suspend": maybe(rng, flag(rng, 0.2)),
            "concurrencyPolicy": maybe(rng, rng.choice(("Allow", "Forbid", "Replace"))),
        },
    }


@json_kind()
def autoscaler(rng: Random) -> Record:
    low = rng.randint(1, 4)
    return {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": _name(rng)},
        "spec": {
            "minReplicas": low,
            "maxReplicas": low + rng.randint(1, 12),
            "targetCPUUtilizationPercentage": rng.choice((50, 60, 70, 75, 80, 90)),
        },
    }


@json_kind()
def container_resources(rng: Random) -> Record:
    step = rng.randint(0, 2)
    limit = step + rng.randint(0, 2)
    cpu = ("100m", "250m", "500m", "1", "2")
    memory = ("64Mi", "128Mi", "256Mi", "512Mi", "1Gi")
    return {
        "name": _name(rng),
        "image": maybe(rng, _image(rng)),
        "resources": {
            "requests": {"cpu": cpu[step], "memory": memory[step]},
            "limits": maybe(rng, {"cpu": cpu[limit], "memory": memory[limit]}, 0.8),
        },
    }

"""Where results come from: versions, machine and model weights, without host names or paths."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

PACKAGES = (
    "diffinity",
    "torch",
    "numpy",
    "numba",
    "tokenizers",
    "transformers",
    "llguidance",
    "outlines-core",
    "jsonschema-rs",
)
WEIGHTS = ("model.safetensors", "config.json", "tokenizer.json")


def versions() -> dict[str, str]:
    """The versions of Python and of the installed packages that affect results.

    >>> sorted(versions())[:1]
    ['diffinity']
    """
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


def machine() -> dict[str, Any]:
    """The processor, the number of usable cores, the memory and the operating system.

    >>> machine()["cores"] >= 1
    True
    """
    return {
        "cpu": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "os": _system(),
    }


def fingerprint(folder: Path) -> dict[str, str]:
    """The SHA-256 of a model's files, independent of their folder.

    >>> fingerprint(Path("no such folder"))
    {}
    """
    from diffinity.models.pretrained import file_sha256

    return {name: file_sha256(folder / name) for name in WEIGHTS if (folder / name).is_file()}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _system() -> str:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        name = ""
    return f"{name or platform.system()}, {platform.machine()}"

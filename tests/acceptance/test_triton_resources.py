"""The kernels compiled for GPUs that are not here: registers, spills and shared memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from typing import Any

import pytest

pytest.importorskip("triton")

from diffinity.acceptance.triton_backend.device import TIERS

REGISTERS_OF_A_MULTIPROCESSOR = 65536
SHARED_BYTES = {80: 163 << 10, 86: 99 << 10, 90: 227 << 10}  # of a block, at most


@lru_cache
def compiled(arch: int) -> dict[str, dict[str, Any]]:
    """The kernels compiled for an architecture, by name; in a process without the interpreter."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "diffinity.acceptance.triton_backend.resources", "--arch", str(arch)]
    only = [] if arch == 86 else ["--step"]  # all of them once
    done = subprocess.run([*command, *only], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {kernel["kernel"]: kernel for kernel in json.loads(done.stdout)}


@pytest.mark.parametrize("arch", SHARED_BYTES)
def test_no_kernel_of_a_step_spills(arch: int) -> None:
    assert {
        name: k["spilled_bytes"] for name, k in compiled(arch).items() if k["step"] and k["spilled_bytes"]
    } == {}


@pytest.mark.parametrize("arch", SHARED_BYTES)
def test_every_kernel_fits_a_multiprocessor(arch: int) -> None:
    for kernel in compiled(arch).values():
        assert kernel["registers"] * kernel["threads"] <= REGISTERS_OF_A_MULTIPROCESSOR, kernel
        assert kernel["shared_bytes"] <= SHARED_BYTES[arch], kernel


@pytest.mark.parametrize("arch", SHARED_BYTES)
@pytest.mark.parametrize("tier", TIERS, ids=lambda tier: f"{tier.name}_{tier.size}")
def test_the_recursions_keep_to_the_shared_memory_of_their_tier(arch: int, tier: Any) -> None:
    names = [f"{what}_{tier.name}_{tier.size}" for what in ("recursions", "best", "forward")]
    for kernel in (compiled(arch)[name] for name in names):
        assert kernel["threads"] == 32 * tier.num_warps
        assert kernel["shared_bytes"] <= tier.shared_bytes, kernel


def test_no_kernel_is_compiled_again_for_another_automaton_or_length() -> None:
    for kernel in compiled(86).values():
        assert set(kernel["specialised"]) <= {"vocab", "width"}, kernel  # constants of a model, and vector loads

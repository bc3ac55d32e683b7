"""The registers and shared memory of the kernels: compiles them for a GPU, without needing one.

    python -m diffinity.acceptance.triton_backend.resources [--arch 80 86 90] [--step]

prints a JSON list: kernel, architecture, threads, registers, spilled bytes and shared memory.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource

from diffinity.acceptance.triton_backend import (
    class_kernels,
    gathered_kernels,
    launching,
    output_kernels,
    path_kernels,
    recursion_kernels,
    top_kernels,
)
from diffinity.acceptance.triton_backend.device import TIERS, TREE_512, Tier

ARCHITECTURES = (80, 86, 90)


@dataclass(frozen=True)
class Variant:
    """A kernel as a denoising step launches it."""

    name: str
    kernel: Any
    constants: dict[str, Any]
    types: dict[str, str]  # of the arguments that are not int32 pointers or integers
    num_warps: int = 4


@dataclass(frozen=True)
class Resources:
    """The resources of a compiled kernel."""

    kernel: str
    arch: int
    threads: int
    registers: int  # per thread
    spilled_bytes: int  # per thread
    shared_bytes: int  # per block
    step: bool  # whether a denoising step launches it
    specialised: list[str]  # integer arguments whose values trigger another compilation


DOUBLES = "grouped log_scale alpha beta log_p_language log_p_text predicate class_log weight log_norm share spread"
DOUBLE = dict.fromkeys([*DOUBLES.split(), "log_share", "checkpoints", "stretch", "behind"], "*fp64")
SCRATCH = dict.fromkeys(["class_value", "group_value", "value", "values"], "*fp64")
OTHERS = {
    "class_base": "*i64",
    "programme_base": "*i64",
    "keys": "*i64",
    "floor": "fp32",
    "certain": "fp32",
    "limit": "fp32",
}
SINGLE = dict.fromkeys(["peaks", "sums", "bias", "rest", "parts", "x"], "*fp32")


def variants(logits: str = "bf16") -> list[Variant]:
    """The kernels in the variants that denoising and decoding launch, for logits of a type."""
    types = {**DOUBLE, **SCRATCH, **OTHERS, **SINGLE, "logits": f"*{logits}", "out": f"*{logits}"}
    types["embedding"] = "*bf16" if logits == "bf16" else "*fp32"
    wide, counted = {**types, "tokens": "*i64"}, {**types, "n_best": "i32"}
    pieces = launching.PIECES
    first = {"ROWS": launching.ROWS, "FROM_PROBS": False, "PREDICATE": False, "ACC": tl.float32}
    kernels = [
        Variant("segment_sums", class_kernels.segment_sums, {**first, "BEST": False}, types),
        Variant("segment_best", class_kernels.segment_sums, {**first, "BEST": True}, {**types, "sums": "*i32"}),
        *(
            Variant(f"weigh{'_log' if log else ''}", class_kernels.weigh, constants, types)
            for log in (False, True)
            for constants in [{"FROM_PROBS": False, "LOG_GROUPS": log, "PIECES": pieces}]
        ),
        Variant("best_in_groups", class_kernels.best_in_groups, {"PREDICATE": False, "PIECES": pieces}, types),
    ]
    for tier in TIERS:
        kernels += _recursions(tier, types)
    q = {"FROM_PROBS": False, "ACC": tl.float32}
    block, warp = {"BLOCK": launching.BLOCK}, {"BLOCK": launching.WARP_BLOCK}
    precision = "tf32x3"
    mean = {**q, "PRECISION": precision, "ROWS": 16, "BLOCK": 64}
    return [
        *kernels,
        Variant("posterior", output_kernels.posterior, {"SHARED": False, "PIECES": pieces}, types),
        Variant("path_bias", output_kernels.path_bias, {"LOG_GROUPS": True, "PIECES": pieces}, types),
        *(
            Variant(name, output_kernels.marginals, {**q, "MINUS_P": minus_p, "BLOCK": 1024, "ROWS": 8}, types)
            for name, minus_p in (("marginals", False), ("gradient", True))
        ),
        *(
            Variant(f"mean_parts_{columns}", output_kernels.mean_parts, {**mean, "COLUMNS": columns}, types)
            for columns in (16, 64)
        ),
        Variant("differences", output_kernels.differences, {"ACC": tl.float32, "BLOCK": 1024, "ROWS": 8}, types),
        Variant(
            "mean_from_differences",
            output_kernels.mean_from_differences,
            {"PRECISION": precision, "ACC": tl.float32, "ROWS": 16, "BLOCK": 64, "COLUMNS": 64},
            {**types, "x": types["embedding"], "out": types["embedding"]},
        ),
        Variant(
            "add_parts",
            output_kernels.add_parts,
            {"SPLITS": 256, "BLOCK": 16},
            {**types, "out": types["embedding"]},
        ),
        Variant("best_path", path_kernels.best_path, warp, types, 1),
        Variant("fill_keys", path_kernels.fill_keys, block, {**types, "seed": "i64"}),
        Variant("draw_path", path_kernels.draw_path, warp, types, 1),
        Variant("draw_tokens", path_kernels.draw_tokens, {"FROM_PROBS": False, **block}, wide),
        Variant("pick_tokens", path_kernels.pick_tokens, {"PREDICATE": False, "BLOCK": 128}, wide),
        Variant("string_log_p", path_kernels.string_log_p, {"FROM_PROBS": False, **block}, wide),
        Variant("top_in_classes", top_kernels.top_in_classes, {"FROM_PROBS": False, **block}, counted),
        Variant("top_in_groups", top_kernels.top_in_groups, block, counted),
        Variant("top_step", top_kernels.top_step, block, counted),
        Variant("top_strings", top_kernels.top_strings, block, counted),
    ]


def _recursions(tier: Tier, types: dict[str, str]) -> Iterator[Variant]:
    gathered = tier.name == "gathered"
    kernel = gathered_kernels.recursions_gathered if gathered else recursion_kernels.recursions
    size = {"ROWS": tier.size, "SECOND": tier.second} if gathered else {"PIECES": tier.size}
    for name, backward, best in (("recursions", True, False), ("forward", False, False), ("best", False, True)):
        constants = {**size, "BACKWARD": backward, "MAX": best, "PREDICATE": False}
        yield Variant(f"{name}_{tier.name}_{tier.size}", kernel, constants, types, tier.num_warps)
    if tier == TREE_512:
        kernel = recursion_kernels.recursions_checkpointed
        yield Variant("recursions_checkpointed", kernel, size, types, tier.num_warps)


DECODING = ("top", "string")  # not launched in a step

SCALARS = {
    *("length", "vocab", "n_segments", "class_nodes", "group_nodes", "alpha_nodes", "beta_nodes", "pair_nodes"),
    *("spread_nodes", "n_classes", "n_groups", "n_states", "n_outside", "width", "splits", "stride", "n", "k"),
}


def signature_of(variant: Variant) -> dict[str, str]:
    """The types of a variant's arguments, for the compiler."""
    return {
        name: "constexpr"
        if name in variant.constants
        else variant.types.get(name, "i32" if name in SCALARS else "*i32")
        for name in variant.kernel.arg_names
    }


def compiled(variant: Variant, arch: int) -> Resources:
    """Compile one variant for an architecture and read its resources."""
    names = variant.kernel.arg_names
    constants = {(names.index(name),): value for name, value in variant.constants.items()}
    source = ASTSource(variant.kernel, signature_of(variant), constants)
    options = {"num_warps": variant.num_warps, "enable_fp_fusion": True}
    binary = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    registers, spilled = _usage(binary.asm["ptx"], arch)
    threads, in_step = 32 * variant.num_warps, not variant.name.startswith(DECODING)
    specialised = [p.name for p in variant.kernel.params if p.name in SCALARS and not p.do_not_specialize]
    return Resources(variant.name, arch, threads, registers, spilled, binary.metadata.shared, in_step, specialised)


def _usage(ptx: str, arch: int) -> tuple[int, int]:
    """Registers and spilled bytes per thread, as the assembler reports them."""
    (target,) = re.findall(r"^\.target (\w+)", ptx, re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        out = Path(folder) / "kernel.cubin"
        options = ["-v", "--regAllocOptLevel=2", f"--gpu-name={target}"]  # as Triton calls it
        command: list[str | Path] = [get_ptxas(arch).path, *options, source, "-o", out]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    registers = re.search(r"Used (\d+) registers", printed)
    spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", printed)
    if registers is None or spilled is None:
        raise RuntimeError(f"the assembler's report was not understood: {printed}")
    return int(registers[1]), int(spilled[1]) + int(spilled[2])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", type=int, nargs="+", default=list(ARCHITECTURES))
    parser.add_argument("--logits", default="bf16", choices=["bf16", "fp16", "fp32"])
    parser.add_argument("--step", action="store_true", help="only the kernels of a denoising step")
    options = parser.parse_args(arguments)
    selected = [v for v in variants(options.logits) if not (options.step and v.name.startswith(DECODING))]
    print(json.dumps([asdict(compiled(variant, arch)) for arch in options.arch for variant in selected], indent=1))


if __name__ == "__main__":
    main()

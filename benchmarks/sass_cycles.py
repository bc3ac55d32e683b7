"""Clock cycles of a compiled kernel, counted in its machine code: one warp, issued in order. No GPU is needed.

    python -m benchmarks.sass_cycles [--arch 86 90] [--kernels recursions_gathered_16 ...]

Every instruction encodes how many cycles the next instruction waits and which of six barriers it waits for
(instructions of variable latency release them). So the machine code determines the time of a warp if the memory
latencies are known. Assumptions:

- A read from memory takes 264 cycles, the latency of the second-level cache, even if the first-level cache would
  hold the data. A read from shared memory takes 29. arXiv:2402.13499 and arXiv:2208.11174 measure such latencies;
  only their abstracts were read, so the two numbers are assumptions that were not compared with the papers'
  tables.
- Shuffles and warp reductions take 24 cycles. A barrier of all warps takes 25 more than its instruction.
- A float64 instruction of a warp takes 16 cycles on sm_86, of a unit that all warps share (two lanes per
  multiprocessor), and 4 and 2 cycles of the warp's own unit on sm_80 and sm_90. Its result is available after 32
  cycles on sm_86, and after 8 on the others.

Bank conflicts and the competition of a scheduler's warps for issue slots are not modelled.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from diffinity.acceptance.triton_backend import resources

MEMORY, SHARED, SHUFFLE, BARRIER, OTHER, OPERANDS = 264, 29, 24, 25, 16, 12
DOUBLE_LATENCY = {80: 8, 86: 32, 90: 8}
DOUBLE_INTERVAL = {80: 4, 86: 16, 90: 2}
LATENCY = {"LDG": MEMORY, "LD": MEMORY, "LDS": SHARED, "LDSM": SHARED, "SHFL": SHUFFLE, "REDUX": SHUFFLE}
DOUBLE = ("DFMA", "DADD", "DMUL", "DSETP")
ROUNDS = 8  # iterations of a loop, until the time of an iteration is constant


@dataclass(frozen=True)
class Instruction:
    """One instruction with its schedule from the assembler."""

    text: str
    label: str  # before the instruction, or empty
    stall: int
    # The barriers that are released when the result is available and when the operands were read; 7 for none.
    sets: tuple[int, int]
    waits: int  # mask of barriers

    @property
    def name(self) -> str:
        return re.sub(r"^@!?U?P\w+ ", "", self.text).split()[0].split(".")[0]

    @property
    def target(self) -> str:
        """The label that it jumps to; empty if it is not a jump."""
        match = re.search(r"BRA.*`\((\.L_\w+)\)", self.text)
        return match[1] if match else ""


def read_sass(listing: str) -> list[Instruction]:
    """The instructions of `nvdisasm -hex`: their text, and the schedule, bits 105 to 121 of their code."""
    instructions: list[Instruction] = []
    label = ""
    lines = listing.splitlines()
    for line, next_line in zip(lines, [*lines[1:], ""], strict=True):
        if label_match := re.match(r"\s*(\.L_\w+):", line):
            label = label_match[1]
        code = re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?);?\s*/\* 0x[0-9a-f]{16} \*/", line)
        upper = re.search(r"/\* (0x[0-9a-f]{16}) \*/", next_line)
        if code and upper:
            control = int(upper[1], 16) >> 41
            sets = ((control >> 5) & 7, (control >> 8) & 7)
            instructions.append(Instruction(code[1].strip(), label, control & 15, sets, (control >> 11) & 63))
            label = ""
    return instructions


@dataclass(frozen=True)
class Code:
    """The machine code of a kernel for an architecture."""

    instructions: list[Instruction]
    arch: int
    num_warps: int

    @cached_property
    def loops(self) -> list[list[Instruction]]:
        """The bodies of all loops, longest first."""
        index_of_label = {x.label: i for i, x in enumerate(self.instructions) if x.label}
        jumps = [
            (index_of_label[x.target], i) for i, x in enumerate(self.instructions) if x.target in index_of_label
        ]
        return sorted((self.instructions[a : b + 1] for a, b in jumps if a < b), key=len, reverse=True)

    @cached_property
    def inner_loops(self) -> list[list[Instruction]]:
        """The innermost loops."""
        return [body for body in self.loops if sum(_goes_back(body, i) for i in range(len(body))) == 1]

    def cycles(self, body: list[Instruction] | None = None, skipping: bool = False) -> int:
        """The cycles of one round of a running loop, or of all code once; `skipping` omits conditional code."""
        code = _without_conditional(body or self.instructions) if skipping else (body or self.instructions)
        ends = _run(code, self.arch, self.num_warps, ROUNDS if body else 1)
        return ends[-1] - (ends[-2] if body else 0)


def _goes_back(body: list[Instruction], i: int) -> bool:
    """Whether instruction i jumps back inside the body."""
    return body[i].target != "" and any(x.label == body[i].target for x in body[: i + 1])


def _without_conditional(body: list[Instruction]) -> list[Instruction]:
    instructions, skip_to = [], ""
    for i, x in enumerate(body):
        skip_to = "" if x.label == skip_to else skip_to
        if not skip_to:
            instructions.append(x)
            if x.text.startswith("@") and any(y.label == x.target for y in body[i + 1 :] if y.label):
                skip_to = x.target
    return instructions


def _run(code: list[Instruction], arch: int, num_warps: int, rounds: int) -> list[int]:
    """The clock after each round."""
    clock, unit_free = 0, 0
    released = [0] * 8
    ends = []
    interval = DOUBLE_INTERVAL[arch] * (num_warps if arch == 86 else 1)
    for _ in range(rounds):
        for x in code:
            clock = max([clock, *(released[b] for b in range(6) if x.waits >> b & 1)])
            if x.name in DOUBLE:
                clock = max(clock, unit_free)
                unit_free = clock + interval
            latency = DOUBLE_LATENCY[arch] if x.name in DOUBLE else LATENCY.get(x.name, OTHER)
            for barrier, delay in zip(x.sets, (latency, OPERANDS), strict=True):
                released[barrier] = max(released[barrier], clock + delay)
            clock += max(x.stall, 1) + (BARRIER if x.name == "BAR" else 0)
        ends.append(clock)
    return ends


@cache
def machine_code(kernel: str, arch: int) -> Code:
    """The code of a kernel, by its name in `resources.variants`."""
    (variant,) = (v for v in resources.variants() if v.name == kernel)
    names = variant.kernel.arg_names
    constants = {(names.index(name),): value for name, value in variant.constants.items()}
    source = ASTSource(variant.kernel, resources.signature_of(variant), constants)
    options = {"num_warps": variant.num_warps, "enable_fp_fusion": True}
    compiled: Any = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    disassembler = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command: list[str | Path] = [disassembler, "-hex", "-c", file.name]
        listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return Code(read_sass(listing), arch, variant.num_warps)


def step_cycles(kernel: str, arch: int, maximum_every: int = 4) -> float:
    """The cycles of one position in the recursions: its loop, and at some positions the maximum mass."""
    code = machine_code(kernel, arch)
    body = code.inner_loops[0]
    without_maximum, with_maximum = code.cycles(body, skipping=True), code.cycles(body)
    return without_maximum + (with_maximum - without_maximum) / maximum_every


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", type=int, nargs="+", default=[86, 90])
    default = [v.name for v in resources.variants() if "gathered" in v.name]
    parser.add_argument("--kernels", nargs="+", default=default)
    arguments = parser.parse_args()
    for kernel in arguments.kernels:
        for arch in arguments.arch:
            print(f"{kernel} sm_{arch}: {step_cycles(kernel, arch):.0f} cycles a position")


if __name__ == "__main__":
    main()

"""What guidance in closed form would cost on a GPU: launches and bytes counted, times predicted. No GPU is needed.

    python -m benchmarks.gpu_cost [--models "PLAID 1B" ...] [--batch 1 16] [--check]

Nothing here was timed on a GPU. Tensors without data that say they are on a GPU go through the same code as
real ones: the launches of the kernels are recorded with their arguments, and the operations of the torch path
are counted as they are dispatched. `--check` compares that count with what torch's profiler sees in a real
run on the CPU.

The prediction of a kernel is the largest of its bytes over the bandwidth, its arithmetic over the throughput
and its chain of dependent steps, plus what a launch costs; the network's is the larger of its weights over
the bandwidth and its FLOPs over half of the peak. The recursions are a chain: one step a position and
direction, whose length in clock cycles is assumed (`CHAIN`), not measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from diffinity.acceptance import mean_acceptance
from diffinity.acceptance.triton_backend import device, outputs, strings, tilts, weights
from diffinity.acceptance.triton_backend.device import batch_of
from diffinity.alignment import TokenAutomaton, Vocabulary, align
from diffinity.constraints import Regex
from diffinity.constraints.schema import JsonSchema


@dataclass(frozen=True)
class Model:
    """The shape of a model and of its usual texts; parameters that one token uses, and all of them."""

    name: str
    length: int
    vocab: int
    width: int  # of the embeddings
    active: float
    stored: float


MODELS = [
    Model("PLAID 1B", 64, 32768, 16, 1.3e9, 1.3e9),
    Model("PLAID 1B", 1024, 32768, 16, 1.3e9, 1.3e9),
    Model("LangFlow OWT", 1024, 50257, 768, 1.7e8, 1.7e8),
    Model("LangFlow LM1B", 128, 30522, 768, 1.4e8, 1.4e8),
    Model("LLaDA 8B", 256, 126464, 4096, 8.0e9, 8.0e9),
    Model("DiffusionGemma 26B", 256, 262144, 2816, 4.0e9, 2.6e10),
]


@dataclass(frozen=True)
class Gpu:
    """The published figures of a GPU."""

    name: str
    bandwidth: float  # bytes a second
    tensor: float  # bfloat16 operations a second, dense
    single: float  # float32 operations a second
    double_per_clock: float  # float64 multiply-adds a clock cycle and multiprocessor
    clock: float
    processors: int


GPUS = [
    Gpu("A6000", 768e9, 155e12, 38.7e12, 2, 1.8e9, 84),
    Gpu("H100", 3350e9, 989e12, 67e12, 64, 1.75e9, 132),
]
LAUNCH = 4e-6  # seconds of a kernel that does nothing, one after the other
EFFICIENCY = 0.5  # of the peak arithmetic that a network reaches
STREAM = 0.8  # of the bandwidth that a pass over memory reaches
CHAIN = {"dense": 700, "tree": 900}  # clock cycles of a position: dense in all, of trees for every level


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel, from its arguments."""

    kernel: str
    programs: int
    bytes: int  # every tensor that it is given once


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """The launches of what happens inside, none of which is made; tensors have no data."""
    made: list[Launch] = []

    def record(kernel: Any, grid: tuple[int, ...], *arguments: Any, **_: Any) -> None:
        tensors = {id(a): a for a in arguments if isinstance(a, Tensor)}.values()
        programs = 1
        for n in grid:
            programs *= n
        made.append(Launch(kernel.__name__, programs, sum(t.numel() * t.element_size() for t in tensors)))

    with (
        mock.patch.multiple(device, cache=device.DeviceCache(1 << 34)),
        FakeTensorMode(allow_non_fake_inputs=True),
    ):
        patches = [mock.patch.object(module, "launch", record) for module in (weights, tilts, outputs, strings)]
        for patch in patches:
            patch.start()
        try:
            yield made
        finally:
            for patch in patches:
                patch.stop()


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations that launch something, and the bytes of what they read and write."""

    FREE = (
        "view",
        "expand",
        "reshape",
        "slice",
        "select",
        "unsqueeze",
        "squeeze",
        "detach",
        "alias",
        "empty",
        "t.default",
    )

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[Launch] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func).removeprefix("aten.")
        if not name.startswith(self.FREE) and not name.startswith("_unsafe_view"):
            leaves = torch.utils._pytree.tree_leaves((args, kwargs, result))
            tensors = {id(t): t for t in leaves if isinstance(t, Tensor)}.values()
            self.seen.append(Launch(name, 0, sum(t.numel() * t.element_size() for t in tensors)))
        return result


def closed_form(model: Model, batch: int, automaton: TokenAutomaton, backend: str, on: str = "cuda") -> None:
    """What a guided step asks of acceptance."""
    logits = torch.empty(batch, model.length, model.vocab, dtype=torch.bfloat16, device=on)
    embedding = torch.empty(model.vocab, model.width, dtype=torch.bfloat16, device=on)
    x = torch.empty(batch, model.length, model.width, dtype=torch.bfloat16, device=on)
    mean_acceptance(logits, automaton, logits, x, embedding, certain=1e-6, backend=backend)  # type: ignore[arg-type]


def launches(model: Model, batch: int, automaton: TokenAutomaton) -> list[Launch]:
    """Those of a step, the first having uploaded the automaton."""
    with recorded() as made:
        closed_form(model, batch, automaton, "triton")
        made.clear()
        with Operations() as others:
            closed_form(model, batch, automaton, "triton")
    return made + others.seen


def torch_operations(model: Model, batch: int, automaton: TokenAutomaton) -> list[Launch]:
    with FakeTensorMode(allow_non_fake_inputs=True), Operations() as seen:
        closed_form(model, batch, automaton, "torch")
    return seen.seen


def network_seconds(model: Model, batch: int, gpu: Gpu) -> float:
    arithmetic = 2 * model.active * batch * model.length / (EFFICIENCY * gpu.tensor)
    touched = (
        model.stored if batch * model.length >= 256 else model.active
    )  # of experts: many tokens use all of them
    return max(arithmetic, 2 * touched / (STREAM * gpu.bandwidth))


def recursion_cycles(automaton: TokenAutomaton, length: int, gpu: Gpu) -> float:
    """Clock cycles of the forward and backward recursions of one sample."""
    group = batch_of([automaton], length, torch.device("cpu")).groups[0]
    made = device._programme(automaton, length, torch.device("cpu")).layout
    tier = group.tier
    if tier.name == "dense":
        return 2 * length * (CHAIN["dense"] + tier.size**2 / gpu.double_per_clock)
    levels = 1
    while 8**levels < made.n_pairs / max(1, made.n_states) * 64:  # wide states are some tens of times the mean
        levels += 1
    work = 8 * made.in_pieces / gpu.double_per_clock
    turns = made.in_pieces / tier.size * 300
    return 2 * length * (CHAIN["tree"] * levels + max(work, turns))


def kernel_seconds(launch: Launch, model: Model, batch: int, automaton: TokenAutomaton, gpu: Gpu) -> float:
    stream = launch.bytes / (STREAM * gpu.bandwidth)
    work = 0.0
    if launch.kernel.startswith("recursions"):
        turns = -(-batch // gpu.processors)
        work = turns * recursion_cycles(automaton, model.length, gpu) / gpu.clock
    elif launch.kernel.startswith(("mean_parts", "bmm")):
        work = 2 * batch * model.length * model.vocab * model.width / (EFFICIENCY * gpu.tensor)
    elif launch.kernel in ("weigh", "posterior"):
        doubles = 40 * batch * model.length * (automaton.n_classes + 3 * automaton.edges.n_groups)
        work = max(3000 / gpu.clock, doubles / (gpu.double_per_clock * gpu.processors * gpu.clock))
        work = max(work, -(-launch.programs // (8 * gpu.processors)) * 6000 / gpu.clock)
    return LAUNCH + max(stream, work)


def automata(vocab: int) -> dict[str, TokenAutomaton]:
    """Two sizes over a vocabulary of that many tokens: short words, punctuation, and numbers for the rest."""
    letters = [chr(97 + i) for i in range(26)]
    words = [
        *letters,
        *(a + b for a in letters for b in letters),
        *(" " + a + b for a in letters for b in letters),
    ]
    marks = list('{}[]":,.0123456789 -ABCDEFGHIJKLMNOPQRSTUVWXYZ_')
    texts = list(dict.fromkeys([*marks, *words, '": "', '", "', '{"', '"}', '":']))[: vocab - 1]
    texts += [f"~{i}" for i in range(vocab - 1 - len(texts))]
    vocabulary = Vocabulary([*(text.encode() for text in texts), None], eos_id=vocab - 1)
    fields = {name: {"type": "string", "maxLength": 12} for name in ("name", "city", "mail", "note")}
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return {
        "sentence": align(Regex(r"([a-z]+ )*river( [a-z]+)*\."), vocabulary, "eos"),
        "schema": align(JsonSchema(schema), vocabulary, "eos"),
    }


def check(model: Model) -> None:
    """The torch path's operations as dispatched, and as the profiler sees them on the CPU."""
    small = Model("small", 8, 1024, model.width, 1, 1)
    automaton = automata(small.vocab)["sentence"]
    counted = len(torch_operations(small, 1, automaton))
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        closed_form(small, 1, automaton, "torch", on="cpu")
    leaves = [e for e in profiler.events() if e.name.startswith("aten::") and not e.cpu_children]
    print(f"L = {small.length}: {counted} operations dispatched, {len(leaves)} seen by the profiler (views too)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=sorted({m.name for m in MODELS}))
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--check", action="store_true", help="count the torch path by the profiler too")
    chosen = parser.parse_args()
    if chosen.check:
        check(MODELS[0])
    table = Table(title="Guidance in closed form on a GPU: launches and bytes counted, overhead PREDICTED")
    for column in ("model", "L", "V", "batch", "automaton", "states", "torch launches", "torch GB"):
        table.add_column(column, justify="left" if column in ("model", "automaton") else "right")
    for column in ("launches", "MB", *(f"{gpu.name}, predicted" for gpu in GPUS)):
        table.add_column(column, justify="right")
    for model in (m for m in MODELS if m.name in chosen.models):
        for name, automaton in automata(model.vocab).items():
            for batch in chosen.batch:
                table.add_row(*row(model, name, automaton, batch))
    Console(width=170).print(table)


def row(model: Model, name: str, automaton: TokenAutomaton, batch: int) -> list[str]:
    made = launches(model, batch, automaton)
    seen = torch_operations(model, batch, automaton)
    overheads = []
    for gpu in GPUS:
        extra = sum(kernel_seconds(launch, model, batch, automaton, gpu) for launch in made)
        overheads.append(f"{1 + extra / network_seconds(model, batch, gpu):.3f}")
    met = int(automaton.live(model.length).any(axis=0).sum())
    sizes = [str(model.length), f"{model.vocab:,}", str(batch), name, f"{met:,}"]
    counts = [
        f"{len(seen):,}",
        f"{sum(x.bytes for x in seen) / 1e9:.1f}",
        str(len(made)),
        f"{sum(x.bytes for x in made) / 1e6:,.0f}",
    ]
    return [model.name, *sizes, *counts, *overheads]


if __name__ == "__main__":
    main()

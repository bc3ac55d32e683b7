"""The cost of guidance on a GPU: launches and bytes are counted, times are predicted. No GPU is needed.

    python -m benchmarks.gpu_cost [--models "PLAID 1B" ...] [--batch 1 16] [--check]

Nothing here was timed on a GPU. Tensors without data that report a GPU as their device go through the same code as
real tensors: kernel launches are recorded with their arguments, and the operations of the torch path are counted
when they are dispatched. `--check` compares this count with torch's profiler in a real run on the CPU.

The predicted time of a kernel is the maximum of its bytes divided by the bandwidth, its arithmetic divided by the
throughput and its chain of dependent steps, plus the cost of a launch. The chain is counted in the compiled code
(see `benchmarks/sass_cycles.py`): the recursions take one step per position and compute the largest mass at every
fourth position (weights of a position within 2^100 of each other). The network's time is the maximum of its
weights divided by the bandwidth and its FLOPs divided by half of the peak, plus its launches, seven per layer (two
norms, four products, attention), the softmax and p·E. `--without-network-launches` omits these launches.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest import mock

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.sass_cycles import machine_code, step_cycles
from diffinity.acceptance import Backend, decode, mean_acceptance
from diffinity.acceptance.triton_backend import device, outputs, strings, tilts, weights
from diffinity.acceptance.triton_backend.layout import class_layout
from diffinity.alignment import TokenAutomaton, Vocabulary, align
from diffinity.constraints import Regex
from diffinity.constraints.schema import JsonSchema


@dataclass(frozen=True)
class Model:
    """The shape of a model and of its usual texts; its parameters, active per token and in total."""

    name: str
    length: int
    vocab: int
    width: int  # of the embeddings
    active: float
    stored: float
    layers: int = 0
    tokens: bool = False  # a process over tokens needs a joint draw, a process over embeddings q·E


MODELS = [
    Model("PLAID 1B", 64, 32768, 16, 1.3e9, 1.3e9, 24),
    Model("PLAID 1B", 1024, 32768, 16, 1.3e9, 1.3e9, 24),
    Model("LangFlow OWT", 1024, 50257, 768, 1.7e8, 1.7e8, 12),
    Model("LangFlow LM1B", 128, 30522, 768, 1.4e8, 1.4e8, 12),
    Model("LLaDA 8B", 256, 126464, 4096, 8.0e9, 8.0e9, 32, tokens=True),
    Model("DiffusionGemma 26B", 256, 262144, 2816, 4.0e9, 2.6e10, 30, tokens=True),
]


@dataclass(frozen=True)
class Gpu:
    """The published figures of a GPU."""

    name: str
    bandwidth: float  # bytes per second
    tensor: float  # bfloat16 operations per second, dense
    single: float  # float32 operations per second
    double_per_clock: float  # float64 multiply-adds per clock cycle and multiprocessor
    clock: float
    processors: int
    arch: int


GPUS = [
    Gpu("A6000", 768e9, 155e12, 38.7e12, 2, 1.8e9, 84, 86),
    Gpu("H100", 3350e9, 989e12, 67e12, 64, 1.75e9, 132, 90),
]
LAUNCH = 2.5e-6  # seconds between kernels of a graph, or of a host that is ahead
EFFICIENCY = 0.5  # share of the peak arithmetic that a network reaches
STREAM = 0.8  # share of the bandwidth that a pass over memory reaches
LAYER_LAUNCHES = 7  # per layer of the network
BEGINNING = 2000  # clock cycles before a program's loop: seven dependent reads of an automaton's header and tables
PREDICATED = {"mean_from_differences": (0, 6)}  # arguments that are read only if q/p is large: logits, E


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel, from its arguments."""

    kernel: str
    programs: int
    bytes: int  # each tensor argument counted once
    variant: str = ""  # of recursions, as `resources.variants` names it
    skipped: bool = False  # by a predicate, unless P(L) = 0
    rows: int = 1  # positions that a program processes in sequence


def fallback(kernel: Any, earlier: Sequence[Launch]) -> bool:
    """Whether this launch is the backtracking of a draw that fell back to the best path."""
    return kernel.__name__ == "best_path" and any(launch.kernel == "draw_path" for launch in earlier)


def variant_of(constants: dict[str, Any]) -> str:
    """The name of a variant of the recursions, by the constants that it was launched with."""
    if "BACKWARD" not in constants:
        return ""
    name = "recursions" if constants["BACKWARD"] else "best" if constants["MAX"] else "forward"
    return f"{name}_gathered_{constants['ROWS']}" if "ROWS" in constants else f"{name}_tree_{constants['PIECES']}"


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """A context that records kernel launches without running them; tensors have no data."""
    launched: list[Launch] = []

    def record(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        arguments_read = [a for i, a in enumerate(arguments) if i not in PREDICATED.get(kernel.__name__, ())]
        tensors = {id(a): a for a in arguments_read if isinstance(a, Tensor)}.values()
        programs = 1
        for n in grid:
            programs *= n
        total_bytes = sum(t.numel() * t.element_size() for t in tensors)
        skipped = constants.get("PREDICATE", False) or fallback(kernel, launched)
        launched.append(
            Launch(
                kernel.__name__, programs, total_bytes, variant_of(constants), skipped, constants.get("ROWS", 1)
            )
        )

    with (
        mock.patch.multiple(device, cache=device.DeviceCache(1 << 34)),
        FakeTensorMode(allow_non_fake_inputs=True),
    ):
        patches = [mock.patch.object(module, "launch", record) for module in (weights, tilts, outputs, strings)]
        for patch in patches:
            patch.start()
        try:
            yield launched
        finally:
            for patch in patches:
                patch.stop()


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations that launch kernels, and the bytes that they read and write."""

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
        self.launches: list[Launch] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func).removeprefix("aten.")
        if not name.startswith(self.FREE) and not name.startswith("_unsafe_view"):
            leaves = torch.utils._pytree.tree_leaves((args, kwargs, result))
            tensors = {id(t): t for t in leaves if isinstance(t, Tensor)}.values()
            self.launches.append(Launch(name, 0, sum(t.numel() * t.element_size() for t in tensors)))
        return result


Step = Callable[[], object]


def step_of(
    model: Model, batch: int, automaton: TokenAutomaton, backend: Backend, device_name: str = "cuda"
) -> Step:
    """The call of acceptance in a guided step."""
    logits = torch.zeros(batch, model.length, model.vocab, dtype=torch.bfloat16, device=device_name)
    keys = torch.zeros(batch, 2, dtype=torch.int64, device=device_name)
    if model.tokens:
        return lambda: decode(logits, automaton, "sample", logits=True, seed=keys, backend=backend)
    embedding = torch.zeros(model.vocab, model.width, dtype=torch.bfloat16, device=device_name)
    x = torch.zeros(batch, model.length, model.width, dtype=torch.bfloat16, device=device_name)
    return lambda: mean_acceptance(logits, automaton, logits, x, embedding, certain=1e-6, backend=backend)


def launches(model: Model, batch: int, automaton: TokenAutomaton) -> list[Launch]:
    """The launches of a step, after an earlier step has uploaded the automaton."""
    with recorded() as kernel_launches:
        step = step_of(model, batch, automaton, "triton")
        step()
        kernel_launches.clear()
        with Operations() as operations:
            step()
    return kernel_launches + operations.launches


def torch_operations(model: Model, batch: int) -> tuple[int, float]:
    """The number of operations that the torch path launches for a step, and their bytes."""
    count, fixed_bytes, bytes_per_token = torch_counts(model.length, model.tokens)
    return count, batch * (fixed_bytes + bytes_per_token * model.vocab)


@cache
def torch_counts(length: int, tokens: bool) -> tuple[int, float, float]:
    """The operations of a step of one sample; their bytes as a constant part and a part per token.

    The torch path reads numbers back, so it needs data. It is counted on the CPU with two small vocabularies,
    because bytes are linear in the vocabulary and in the batch.
    """
    sizes, counts, total_bytes = (1024, 2048), [0, 0], [0, 0]
    for i, vocab in enumerate(sizes):
        small = Model("", length, vocab, 16, 0.0, 0.0, tokens=tokens)
        step = step_of(small, 1, automata(vocab)["sentence"], "torch", device_name="cpu")
        step()
        with Operations() as recorder:
            step()
        counts[i], total_bytes[i] = len(recorder.launches), sum(launch.bytes for launch in recorder.launches)
    bytes_per_token = (total_bytes[1] - total_bytes[0]) / (sizes[1] - sizes[0])
    return counts[1], total_bytes[0] - bytes_per_token * sizes[0], bytes_per_token


def unguided_seconds(model: Model, batch: int, gpu: Gpu, layer_launches: int = LAYER_LAUNCHES) -> float:
    """A step without guidance: the network, the softmax and, for embeddings, p·E."""
    rows = batch * model.length
    network = 2 * model.active * rows / (EFFICIENCY * gpu.tensor)
    parameters_read = model.stored if rows >= 256 else model.active  # of experts: many tokens use all experts
    network = max(network, 2 * parameters_read / (STREAM * gpu.bandwidth))
    network += layer_launches * model.layers * LAUNCH
    softmax = LAUNCH + 4 * rows * model.vocab / (STREAM * gpu.bandwidth)
    return network + softmax + (0.0 if model.tokens else LAUNCH + product_seconds(model, batch, gpu))


def product_seconds(model: Model, batch: int, gpu: Gpu, tokens: int = 0) -> float:
    """A product of (B, L, V) and (V, d) in bfloat16, over all tokens or a given number."""
    rows, tokens = batch * model.length, tokens or model.vocab
    total_bytes = 2 * (rows * tokens + tokens * model.width)
    arithmetic = 2 * rows * tokens * model.width / (EFFICIENCY * gpu.tensor)
    return max(arithmetic, total_bytes / (STREAM * gpu.bandwidth))


def chain_cycles(launch: Launch, model: Model, gpu: Gpu) -> float:
    """The clock cycles of a program's chain of dependent steps."""
    if launch.variant:
        return BEGINNING + model.length * step_cycles(launch.variant, gpu.arch)
    if launch.kernel in ("draw_path", "best_path"):
        code = machine_code(launch.kernel, gpu.arch)
        return BEGINNING + model.length * code.cycles(code.loops[0])
    if launch.kernel == "mean_parts":
        code = machine_code("mean_parts_16", gpu.arch)
        blocks = -(-model.vocab // (64 * outputs.shares_of_vocabulary(model.vocab, model.length)))
        return BEGINNING + blocks * code.cycles(code.inner_loops[0])
    if launch.kernel in ("weigh", "posterior", "draw_tokens", "add_parts"):
        return machine_code(launch.kernel, gpu.arch).cycles()
    if launch.kernel in ("segment_sums", "marginals", "differences"):
        code = machine_code(launch.kernel, gpu.arch)
        return BEGINNING + launch.rows * max(code.cycles(body) for body in code.inner_loops)
    return 0.0


RESIDENT = {"recursions_gathered": 1, "recursions": 1}  # concurrent programs per multiprocessor; others eight


def kernel_seconds(launch: Launch, model: Model, batch: int, automaton: TokenAutomaton, gpu: Gpu) -> float:
    if launch.skipped:
        return LAUNCH
    seconds = launch.bytes / (STREAM * gpu.bandwidth)
    waves = max(1.0, launch.programs / (RESIDENT.get(launch.kernel, 8) * gpu.processors))
    waves = math.ceil(waves) if launch.variant else waves  # short programs run without gaps
    seconds = max(seconds, waves * chain_cycles(launch, model, gpu) / gpu.clock)
    if launch.kernel.startswith("bmm"):
        n_outside = class_layout(automaton).n_outside
        seconds = max(seconds, product_seconds(model, batch, gpu, n_outside))
    elif launch.kernel == "mean_parts":
        seconds = max(seconds, product_seconds(model, batch, gpu))
    elif launch.kernel in ("weigh", "posterior"):
        double_operations = 40 * batch * model.length * (automaton.n_classes + 3 * automaton.edges.n_groups)
        seconds = max(seconds, double_operations / (gpu.double_per_clock * gpu.processors * gpu.clock))
    return LAUNCH + seconds


@cache
def automata(vocab: int) -> dict[str, TokenAutomaton]:
    """Two automata over a vocabulary of this size: short words, punctuation, and numbers for the rest."""
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
    """The operations of the torch path: as dispatched, and as the profiler counts them."""
    small = replace(model, length=8, vocab=2048)
    automaton = automata(small.vocab)["sentence"]
    step = step_of(small, 1, automaton, "torch", device_name="cpu")
    step()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step()
    leaves = [e.name for e in profiler.events() if e.name.startswith("aten::") and not e.cpu_children]
    launched = [name for name in leaves if not name.removeprefix("aten::").startswith(Operations.FREE)]
    print(f"L = {small.length}: {torch_operations(small, 1)[0]} operations dispatched, {len(launched)} profiled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=sorted({m.name for m in MODELS}))
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--check", action="store_true", help="also count the torch path with the profiler")
    parser.add_argument("--without-network-launches", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        check(MODELS[0])
    table = Table(title="Guidance on a GPU: launches and bytes counted, overhead PREDICTED")
    for column in ("model", "L", "V", "batch", "automaton", "states", "output", "torch launches", "torch GB"):
        table.add_column(column, justify="left" if column in ("model", "automaton") else "right")
    for column in ("launches", "MB", *(f"{gpu.name}, predicted" for gpu in GPUS)):
        table.add_column(column, justify="right")
    for model in (m for m in MODELS if m.name in arguments.models):
        for name, automaton in automata(model.vocab).items():
            for batch in arguments.batch:
                per_layer = 0 if arguments.without_network_launches else LAYER_LAUNCHES
                table.add_row(*row(model, name, automaton, batch, per_layer))
    Console(width=170).print(table)


def row(model: Model, name: str, automaton: TokenAutomaton, batch: int, layer_launches: int) -> list[str]:
    step_launches = launches(model, batch, automaton)
    operations, total_bytes = torch_operations(model, batch)
    overheads = []
    for gpu in GPUS:
        guidance_seconds = sum(kernel_seconds(launch, model, batch, automaton, gpu) for launch in step_launches)
        overheads.append(f"{1 + guidance_seconds / unguided_seconds(model, batch, gpu, layer_launches):.3f}")
    reachable_states = int(automaton.live(model.length).any(axis=0).sum())
    output = "joint draw" if model.tokens else "q·E"
    sizes = [str(model.length), f"{model.vocab:,}", str(batch), name, f"{reachable_states:,}", output]
    counts = [
        f"{operations:,}",
        f"{total_bytes / 1e9:.1f}",
        str(len(step_launches)),
        f"{sum(x.bytes for x in step_launches) / 1e6:,.0f}",
    ]
    return [model.name, *sizes, *counts, *overheads]


if __name__ == "__main__":
    main()

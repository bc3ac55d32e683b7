"""A random LangFlow network of the published size: files, 64 tokens in 64 steps, and the cost of guidance.

    python -m benchmarks.langflow_cost files     # create, save, load, 64 tokens in 64 steps; time and peak memory
    python -m benchmarks.langflow_cost guidance [--memory] [--length 64 128] [--batch 1 4] [--steps 20]

12 blocks of width 768 over 50,257 tokens. The weights are random, so only the cost is meaningful. The tokenizer is
a byte-level BPE of that size, trained in a minute on the reference data, which do not contain gpt2's tokenizer.

`guidance` runs two unguided trajectories and one trajectory of every method, alternating step by step, and
measures processor time, because other programs use the machine. A figure is the time of the guided steps divided
by the mean time of the two unguided trajectories. Peak memory is that of a separate process that takes two steps,
including the weights.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

import diffinity as dy
from benchmarks.automata import TEMPLATES, shared
from diffinity.alignment import TokenAutomaton, align
from diffinity.guidance.presets import named_guidance
from diffinity.models.langflow import LangFlowConfig, LangFlowModules
from diffinity.models.langflow_lm import LangFlowLM
from diffinity.models.protocol import vocabulary_of
from diffinity.models.tokenization import END_OF_TEXT, train_bpe
from diffinity.processes.base import Draws
from diffinity.sampling import SamplerState, make_sampler, no_denormals

METHODS = ["path", "posterior", "auto", "gradient"]
SHAPE = LangFlowConfig()
SENTENCES = 600_000  # of the tokenizer's training
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1, "maximum": 9999},
        "status": {"enum": ["open", "paid", "shipped"]},
        "email": {"type": "string", "format": "email", "maxLength": 24},
        "note": {"type": "string", "maxLength": 40},
    },
    "required": ["id", "status", "email"],
    "additionalProperties": False,
}


def lines() -> Iterator[str]:
    for path in sorted((shared() / "data" / "text").glob("*.txt")):
        with path.open(encoding="utf-8") as file:
            yield from (line.strip() for line in islice(file, SENTENCES) if line.strip())


def tokenizer_of(size: int) -> Tokenizer:
    tokenizer = train_bpe(lines(), size)
    if tokenizer.get_vocab_size() != size:
        raise SystemExit(f"the text has only {tokenizer.get_vocab_size()} tokens, not {size}")
    return tokenizer


def random_model(tokenizer: Tokenizer) -> LangFlowLM:
    torch.manual_seed(0)
    end = tokenizer.token_to_id(END_OF_TEXT)
    return LangFlowLM(LangFlowModules(SHAPE), tokenizer, end, start_token_id=end)


def files(console: Console) -> None:
    """Create, save, load, write 64 tokens in 64 steps."""
    table = Table("task", "seconds", "processor seconds", "peak memory so far, GB")

    def timed(activity: str, started: tuple[float, float]) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = [f"{end - start:.1f}" for end, start in zip(clocks(), started, strict=True)]
        table.add_row(activity, *seconds, f"{used.ru_maxrss / 1e6:.2f}")

    tokenizer = Tokenizer.from_file(str(_tokenizer_file()))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        started = clocks()
        model = random_model(tokenizer)
        count = sum(parameter.numel() for parameter in model.modules.parameters())
        timed(f"create {count / 1e6:.1f} M parameters", started)
        started = clocks()
        model.save_pretrained(folder)
        size = (folder / "model.safetensors").stat().st_size
        timed(f"save {size:,} bytes", started)
        del model
        started = clocks()
        loaded = dy.load(folder)
        timed("load and verify", started)
    for constraint, name in ((None, "freely"), (dy.JsonSchema(SCHEMA), "JSON, guidance auto")):
        started = clocks()
        (text,) = dy.generate(
            loaded,
            constraint or dy.Regex("(?s).*"),
            length=64,
            num_inference_steps=64,
            guidance="auto" if constraint else "none",
        )
        timed(f"64 tokens in 64 steps, {name}", started)
        console.print(name, repr(text.text[:120]), highlight=False)
    console.print(table)


def clocks() -> tuple[float, float]:
    """Seconds of wall-clock time and of processor time."""
    return time.monotonic(), time.process_time()


def _tokenizer_file() -> Path:
    """The benchmark's tokenizer, trained once and stored in the folder of temporary files."""
    path = Path(tempfile.gettempdir()) / f"diffinity-bench-bpe-{SHAPE.vocab_size}.json"
    if not path.is_file():
        tokenizer_of(SHAPE.vocab_size).save(str(path))
    return path


class Run:
    """One trajectory that is timed step by step."""

    def __init__(
        self, model: LangFlowLM, automata: list[TokenAutomaton], method: str, length: int, steps: int
    ) -> None:
        self.sampler = make_sampler(model, named_guidance(method, automata), steps)
        self.draws = Draws([(0, i) for i in range(len(automata))])
        self.state: SamplerState = self.sampler.begin(self.draws, length)

    def step(self) -> float:
        """Take one step; returns its seconds of processor time."""
        started = time.process_time()
        with torch.no_grad(), no_denormals():
            self.state = self.sampler.step(self.state, self.sampler.predict(self.state), self.draws)
        return time.process_time() - started


def peak_gigabytes(model: LangFlowLM, automaton: TokenAutomaton, batch: int, length: int, method: str) -> float:
    """The peak memory of a copy of this process that takes two steps."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        run = Run(model, [automaton] * batch, method, length, 2)
        run.step()
        run.step()
        lines = Path("/proc/self/status").read_text().splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
        os.write(writing, kilobytes.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return int(answer) / 1e6


def ratios(
    model: LangFlowLM, automaton: TokenAutomaton, batch: int, length: int, steps: int, methods: list[str]
) -> tuple[float, dict[str, float]]:
    """The seconds of an unguided step, and for every method its time divided by that of unguided steps."""
    automata = [automaton] * batch
    for method in methods:  # warm up: compile loops, make plans, touch memory
        Run(model, automata, method, length, 1).step()
    runs = {method: Run(model, automata, method, length, steps) for method in methods}
    unguided_runs = [Run(model, automata, "none", length, steps) for _ in range(2)]
    guided_seconds, unguided_seconds = dict.fromkeys(methods, 0.0), 0.0
    for _ in range(steps):
        unguided_seconds += unguided_runs[0].step()
        for index, method in enumerate(methods):
            if index == len(methods) // 2:
                unguided_seconds += unguided_runs[1].step()
            guided_seconds[method] += runs[method].step()
    return unguided_seconds / (2 * steps), {
        method: 2 * seconds / unguided_seconds for method, seconds in guided_seconds.items()
    }


def guidance(console: Console, arguments: argparse.Namespace) -> None:
    model = random_model(Tokenizer.from_file(str(_tokenizer_file())))
    vocabulary = vocabulary_of(model)
    assert model.embedding.shape == (SHAPE.vocab_size, SHAPE.hidden_size)  # computed before memory is measured
    constraints = {"regex": dy.Regex(TEMPLATES["word between"]), "json": dy.JsonSchema(SCHEMA)}
    aligned = {name: align(constraints[name], vocabulary) for name in arguments.constraints}
    cases = [(name, length, batch) for name in aligned for length in arguments.length for batch in arguments.batch]
    methods = ["none", *arguments.methods]
    memory = {
        (*case, method): peak_gigabytes(model, aligned[case[0]], case[2], case[1], method)
        for case in cases
        for method in (methods if arguments.memory else [])
    }
    table = Table(title=f"guided over unguided (peak memory, GB), {arguments.steps} steps")
    for column in ("constraint", "transitions", "tokens", "batch", "unguided step, s", *methods):
        table.add_column(column)
    for name, length, batch in cases:
        seconds, row = ratios(model, aligned[name], batch, length, arguments.steps, arguments.methods)
        figures = [
            f"{({'none': 1.0} | row)[method]:.2f}"
            + (f" ({memory[name, length, batch, method]:.2f})" if arguments.memory else "")
            for method in methods
        ]
        cells = (name, f"{aligned[name].n_transitions:,}", str(length), str(batch), f"{seconds:.2f}", *figures)
        table.add_row(*cells)
        console.print(" | ".join(cells), highlight=False, soft_wrap=True)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["files", "guidance"])
    parser.add_argument("--length", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--steps", type=int, default=20, help="of 20 steps auto uses the gradient in 7 (35%%)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--constraints", nargs="+", choices=["regex", "json"], default=["regex", "json"])
    parser.add_argument("--memory", action="store_true", help="measure peak memory too (Linux)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    console = Console()
    if arguments.part == "files":
        files(console)
    else:
        guidance(console, arguments)


if __name__ == "__main__":
    main()

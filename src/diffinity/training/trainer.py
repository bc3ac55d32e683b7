"""The training loop: resumable at any step with identical results, interruptible without loss."""

from __future__ import annotations

import dataclasses
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn, optim

from diffinity.errors import CheckpointError, InvalidArgument
from diffinity.models.plaid import PlaidConfig
from diffinity.models.pretrained import PretrainedLM
from diffinity.models.protocol import SamplingDefaults
from diffinity.models.transformer import Transformer, TransformerConfig
from diffinity.sampling import no_denormals
from diffinity.training import checkpoint
from diffinity.training.checkpoint import Progress
from diffinity.training.data import Batches, DocumentSource
from diffinity.training.embeddings import neighbour_embeddings
from diffinity.training.gelu import use_compiled_gelu
from diffinity.training.growth import grown
from diffinity.training.muon import Muon
from diffinity.training.tasks import (
    AutoregressiveTask,
    BoundTask,
    DiffusionTask,
    MaskedTask,
    Task,
    is_hidden_matrix,
)

EMBEDDING_BLOCKS = 12  # blocks of documents that the initial embeddings are computed from
ADJUSTABLE = ("steps", "cooldown", "peak", "mixed", "bfloat16")  # settings that a resumed run may change
Kind = Literal["plaid", "plaid-bound", "autoregressive", "masked"]


@dataclass(frozen=True)
class TrainingSettings:
    """All settings of a run; they are stored with the run and compared when it is resumed.

    A resumed run may change the settings in `ADJUSTABLE`. The learning rate falls linearly to zero over the last
    `cooldown` steps.

    >>> TrainingSettings(steps=9000).rate(8999) < TrainingSettings(steps=9000).rate(200)
    True
    """

    kind: Kind = "plaid"
    dim: int = 128
    n_blocks: int = 6
    n_heads: int = 4
    embed_dim: int = 32
    lengths: tuple[int, ...] = (16, 32, 48, 64, 80, 96)
    tokens_per_batch: int = 1024
    steps: int = 30_000
    warmup: int = 100
    cooldown: int = 8_000
    muon_lr: float = 0.02
    adam_lr: float = 2e-3
    peak: float = 1.0  # factor on both peak learning rates; below 1 to start from a finished model
    bias_warmup: int = 1_500
    mixed: float = 0.75
    clip: float = 1.0
    ema: float = 0.999
    seed: int = 0
    data: str = ""  # SHA-256 of the training file; a run can't continue with another file
    bfloat16: bool = False  # products of the network in bfloat16: twice as fast on CPUs with bfloat16 units

    def __post_init__(self) -> None:
        if self.kind not in ("plaid", "plaid-bound", "autoregressive", "masked"):
            raise InvalidArgument(
                f"kind must be plaid, plaid-bound, autoregressive or masked, but is {self.kind!r}"
            )
        try:
            PlaidConfig(1, self.dim, self.n_blocks, self.n_heads, self.embed_dim)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        if not 0 < self.peak <= 1:
            raise InvalidArgument(f"peak must be above 0 and at most 1, but is {self.peak}")
        if self.steps < 1 or self.tokens_per_batch < max(self.lengths):
            raise InvalidArgument("steps must be at least 1, tokens_per_batch at least the longest length")

    def rate(self, step: int) -> float:
        """The learning rate of a step as a factor on `muon_lr` and `adam_lr`."""
        rising = (step + 1) / max(1, self.warmup)
        falling = (self.steps - step) / max(1, self.cooldown)
        return self.peak * max(0.0, min(1.0, rising, falling))

    def task(self, vocab_size: int, eos: int) -> Task:
        """The task with freshly initialised parameters, the same for the same seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            if self.kind in ("plaid", "plaid-bound"):
                shape = PlaidConfig(vocab_size, self.dim, self.n_blocks, self.n_heads, self.embed_dim)
                if self.kind == "plaid":
                    return DiffusionTask(
                        shape,
                        bias_warmup=self.bias_warmup,
                        mixed=self.mixed,
                        bfloat16=self.bfloat16,
                        eos=eos,
                    )
                return BoundTask(shape, self.bias_warmup)
            causal = self.kind == "autoregressive"
            network = Transformer(TransformerConfig(vocab_size, self.dim, self.n_blocks, self.n_heads, causal))
            return (AutoregressiveTask if causal else MaskedTask)(network, eos, self.bfloat16)


@dataclass(frozen=True)
class Report:
    """A progress report of the loop."""

    progress: Progress
    loss: float  # running mean
    tokens_per_second: float
    validation: dict[str, float] | None = None


class Trainer:
    """One run in a folder: `checkpoint/` (to resume), `metrics.jsonl` (append-only), and the exported model."""

    def __init__(
        self,
        settings: TrainingSettings,
        folder: str | Path,
        tokenizer: Tokenizer,
        eos: int,
        source: DocumentSource,
        validation: list[str],
        start_from: PretrainedLM | None = None,
    ) -> None:
        from accelerate import Accelerator  # the [train] extra

        self.settings = settings
        self.folder = Path(folder)
        self.tokenizer = tokenizer
        self.eos = eos
        self.accelerator = Accelerator(cpu=not torch.cuda.is_available())
        self.task = settings.task(tokenizer.get_vocab_size(), eos)
        self.task.network.to(self.accelerator.device)
        if self.accelerator.device.type == "cpu":
            use_compiled_gelu(self.task.network)
        self.optimizers = make_optimizers(self.task.network, settings)
        self.average = {name: p.detach().clone() for name, p in self.task.network.named_parameters()}
        self.batches = Batches(source, tokenizer, eos, settings.lengths, settings.tokens_per_batch, settings.seed)
        self.validation_batches = _validation_batches(validation, self.batches)
        self.progress = Progress()
        self._resume(start_from)

    def _resume(self, start_from: PretrainedLM | None) -> None:
        saved = checkpoint.load(self.folder)
        if saved is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            if start_from is not None:
                self._start_weights(start_from)
            elif isinstance(self.task, DiffusionTask | BoundTask):
                self._start_embeddings(self.task.network.embedding_matrix.matrix)
            return
        progress, settings, parts = saved
        current, stored = _plain(self.settings), {**_plain(TrainingSettings()), **settings}
        changed = [name for name in current if name not in ADJUSTABLE and current[name] != stored[name]]
        if changed:
            changes = ", ".join(f"{name} was {stored[name]!r} and is {current[name]!r}" for name in changed)
            raise CheckpointError(f"{self.folder} holds a run with other settings ({changes}); use another folder")
        self.task.network.load_state_dict(parts["network"])
        self.average = parts["average"]
        self.task.load(parts.get("task", {}))
        for index, optimizer in enumerate(self.optimizers):
            checkpoint.load_optimizer(self.task.network, optimizer, parts.get(f"optimizer{index}", {}))
        self.progress = progress

    def _start_weights(self, model: PretrainedLM) -> None:
        """Load a finished model's weights, with more blocks if the settings have more.

        Optimisers and a diffusion model's noise density start from their initial values.
        """
        check_same_kind(self.settings.kind, model)
        network = self.task.network
        expected_shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
        weights = {name: value.float() for name, value in model.tensors().items()}
        weights = grown(weights, self.settings.n_blocks)
        if {name: tuple(value.shape) for name, value in weights.items()} != expected_shapes:
            raise InvalidArgument("the model to start from has another shape than these settings")
        network.load_state_dict(weights)
        self.average = {name: p.detach().clone() for name, p in network.named_parameters()}
        if isinstance(self.task, DiffusionTask | BoundTask):
            self.task.bias.steps_done = self.settings.bias_warmup

    def _start_embeddings(self, matrix: Tensor) -> None:
        batches = (batch for block in range(EMBEDDING_BLOCKS) for batch in self.batches.block(block))
        vocab_size, dim = matrix.shape
        start = neighbour_embeddings(batches, vocab_size, dim, self.eos, self.settings.seed)
        with torch.no_grad():
            matrix.copy_(start)
            self.average["embedding_matrix.matrix"].copy_(start)

    def save(self) -> None:
        """Write a checkpoint now."""
        if not self.accelerator.is_main_process:
            return
        parts = {
            "network": self.task.network.state_dict(),
            "average": self.average,
            "task": self.task.tensors(),
            **{
                f"optimizer{index}": checkpoint.optimizer_tensors(self.task.network, optimizer)
                for index, optimizer in enumerate(self.optimizers)
            },
        }
        checkpoint.save(self.folder, self.progress, _plain(self.settings), parts)

    def run(
        self,
        *,
        on_report: Callable[[Report], None] | None = None,
        on_interrupt: Callable[[], None] = lambda: None,
        report_every: int = 20,
        validate_every: int = 500,
        save_every: int = 500,
    ) -> bool:
        """Train to the last step or an interrupt, then write a checkpoint. True if finished."""
        stream = self.batches.from_cursor(self.progress.cursor)
        running = None
        started, tokens_at_start, seconds_before = time.monotonic(), self.progress.tokens, self.progress.seconds
        with interruptible(on_interrupt) as interrupted, no_denormals():
            while self.progress.step < self.settings.steps and not interrupted():
                tokens, cursor = next(stream)
                loss = self._step(tokens)
                running = loss if running is None else 0.98 * running + 0.02 * loss
                elapsed = time.monotonic() - started
                self.progress = Progress(
                    self.progress.step + 1,
                    self.progress.tokens + tokens.numel(),
                    seconds_before + elapsed,
                    cursor,
                )
                step = self.progress.step
                is_last = step == self.settings.steps
                validation = self.validate() if step % validate_every == 0 or is_last else None
                if on_report and (validation or step % report_every == 0 or is_last):
                    speed = (self.progress.tokens - tokens_at_start) / max(elapsed, 1e-9)
                    report = Report(self.progress, running, speed, validation)
                    self._record(report)
                    on_report(report)
                if step % save_every == 0:
                    self.save()
        self.save()
        return self.progress.step >= self.settings.steps

    def _step(self, tokens: Tensor) -> float:
        """One optimiser step on a batch, which is divided between the processes."""
        process, n_processes = self.accelerator.process_index, self.accelerator.num_processes
        tokens = tokens[process::n_processes].to(self.accelerator.device)
        generator = step_generator(self.settings.seed, self.progress.step, process)
        network = self.task.network
        network.train()
        loss = self.task.loss(tokens, generator)
        if not torch.isfinite(loss):
            raise CheckpointError(
                f"the loss is {loss.item()} at step {self.progress.step}: lower the learning rates "
                "(the last checkpoint is from an earlier step)"
            )
        loss.backward()  # type: ignore[no-untyped-call]
        trained = [p for p in network.parameters() if p.grad is not None]
        if n_processes > 1:
            gradients = [p.grad for p in trained if p.grad is not None]
            flat = self.accelerator.reduce(nn.utils.parameters_to_vector(gradients), reduction="mean")
            nn.utils.vector_to_parameters(flat, gradients)
        nn.utils.clip_grad_norm_(trained, self.settings.clip)
        rate = self.settings.rate(self.progress.step)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * group["full_lr"]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        decay = min(self.settings.ema, (1 + self.progress.step) / (10 + self.progress.step))
        with torch.no_grad():
            parameters = dict(network.named_parameters())
            torch._foreach_lerp_(list(self.average.values()), [parameters[n] for n in self.average], 1 - decay)
        return float(loss.detach())

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The network with its averaged parameters."""
        network = self.task.network
        parameters = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
        network.load_state_dict(self.average, strict=False)
        try:
            yield
        finally:
            network.load_state_dict(parameters, strict=False)

    def validate(self) -> dict[str, float]:
        """Losses of the averaged network on the held-out documents, always with the same noise."""
        totals: dict[str, float] = {}
        weight = 0
        with self.averaged():
            self.task.network.eval()
            for index, tokens in enumerate(self.validation_batches):
                generator = step_generator(0, index, 0)
                for name, value in self.task.validate(tokens.to(self.accelerator.device), generator).items():
                    totals[name] = totals.get(name, 0.0) + value * tokens.numel()
                weight += tokens.numel()
        return {name: total / weight for name, total in totals.items()}

    def export(self, defaults: SamplingDefaults | None = None) -> PretrainedLM:
        """The model with the averaged parameters."""
        with self.averaged():
            return self.task.export(self.tokenizer, self.eos, defaults or SamplingDefaults())

    def _record(self, report: Report) -> None:
        if not self.accelerator.is_main_process:
            return
        row: dict[str, Any] = {
            "step": report.progress.step,
            "tokens": report.progress.tokens,
            "seconds": round(report.progress.seconds, 1),
            "loss": round(report.loss, 5),
            "tokens_per_second": round(report.tokens_per_second),
        }
        if report.validation:
            row["validation"] = {name: round(value, 5) for name, value in report.validation.items()}
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")


def check_same_kind(kind: str, model: PretrainedLM) -> None:
    """Refuse to start from a model of another kind than the run.

    A masked model may start from an autoregressive model: the network is the same without the causal mask.
    """
    if (kind, model.kind) == ("masked", "autoregressive"):
        return
    if model.kind != kind.removesuffix("-bound"):
        raise InvalidArgument(f"a {kind} run can't start from a model of kind {model.kind}")


def make_optimizers(network: nn.Module, settings: TrainingSettings) -> list[optim.Optimizer]:
    """Muon for the matrices inside the blocks, AdamW for all other parameters."""
    hidden = [p for name, p in network.named_parameters() if p.requires_grad and is_hidden_matrix(name, p)]
    other_parameters = [
        p for name, p in network.named_parameters() if p.requires_grad and not is_hidden_matrix(name, p)
    ]
    muon = Muon([{"params": hidden, "full_lr": settings.muon_lr}], lr=settings.muon_lr, bfloat16=settings.bfloat16)
    adam = optim.AdamW(
        [{"params": other_parameters, "full_lr": settings.adam_lr}],
        lr=settings.adam_lr,
        betas=(0.9, 0.98),
        weight_decay=0.0,
    )
    return [muon, adam]


def step_generator(seed: int, step: int, process: int) -> torch.Generator:
    """The random generator of one step."""
    state = np.random.SeedSequence((seed, step, process)).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))


@contextmanager
def interruptible(on_interrupt: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Inside this context SIGINT and SIGTERM only set a flag, so that the step and its checkpoint are finished.

    `on_interrupt` is called at the first signal.
    """
    flag = False

    def set_flag(_signal: int, _frame: object) -> None:
        nonlocal flag
        if not flag:
            flag = True
            on_interrupt()

    previous = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, set_flag)
    except ValueError:  # not in the main thread: the caller handles signals
        pass
    try:
        yield lambda: flag
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _plain(settings: TrainingSettings) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(settings)))
    return plain


def _validation_batches(texts: list[str], batches: Batches) -> list[Tensor]:
    """All held-out documents as batches."""

    class Fixed:
        def block(self, index: int) -> list[str]:
            return texts

    return dataclasses.replace(batches, source=Fixed()).block(0)

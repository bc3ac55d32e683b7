"""A training run on disk: everything that an exact resumption needs, without pickles."""

from __future__ import annotations

import dataclasses
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn, optim

from diffinity.errors import CheckpointError
from diffinity.training.data import Cursor

STATE, TENSORS = "state.json", "state.safetensors"


@dataclass(frozen=True)
class Progress:
    """The progress of a run."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cursor: Cursor = field(default_factory=Cursor)


def save(folder: Path, progress: Progress, settings: dict[str, Any], parts: dict[str, dict[str, Tensor]]) -> None:
    """Write a checkpoint; the previous checkpoint stays until the new one is complete."""
    new, current, old = folder / "checkpoint.new", folder / "checkpoint", folder / "checkpoint.old"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    flat = {
        f"{part}/{name}": tensor.detach().contiguous()
        for part, tensors in parts.items()
        for name, tensor in tensors.items()
    }
    save_file(flat, new / TENSORS)
    state = {"progress": dataclasses.asdict(progress), "settings": settings}
    (new / STATE).write_text(json.dumps(state, indent=1))
    shutil.rmtree(old, ignore_errors=True)
    if current.exists():
        current.replace(old)
    new.replace(current)
    shutil.rmtree(old, ignore_errors=True)


def load(folder: Path) -> tuple[Progress, dict[str, Any], dict[str, dict[str, Tensor]]] | None:
    """The last complete checkpoint of a run, or None."""
    candidates = [folder / "checkpoint", folder / "checkpoint.old"]
    stored = next((c for c in candidates if (c / STATE).is_file() and (c / TENSORS).is_file()), None)
    if stored is None:
        return None
    try:
        state = json.loads((stored / STATE).read_text())
        flat = load_file(stored / TENSORS)
        saved = dict(state["progress"])
        progress = Progress(**{**saved, "cursor": Cursor(**saved["cursor"])})
    except Exception as error:
        raise CheckpointError(f"the checkpoint {stored} can't be read: {error}") from None
    parts: dict[str, dict[str, Tensor]] = {}
    for key, tensor in flat.items():
        part, _, name = key.partition("/")
        parts.setdefault(part, {})[name] = tensor
    return progress, state["settings"], parts


def optimizer_tensors(network: nn.Module, optimizer: optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state under the names of its parameters."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in network.named_parameters()}
    return {
        f"{names[parameter]}|{key}": value
        for parameter, values in optimizer.state.items()
        for key, value in values.items()
        if isinstance(value, Tensor)
    }


def load_optimizer(network: nn.Module, optimizer: optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore the optimizer's state from the result of `optimizer_tensors`."""
    parameters = dict(network.named_parameters())
    for key, value in tensors.items():
        name, _, field = key.partition("|")
        if name not in parameters:
            raise CheckpointError(
                f"the checkpoint has optimizer state for {name}, which this network does not have"
            )
        optimizer.state[parameters[name]][field] = value

"""Automata on a device: each is uploaded once into a cache of bounded size; batches of several automata."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from diffinity.acceptance.triton_backend import layout
from diffinity.acceptance.triton_backend.layout import ClassLayout, ProgrammeLayout
from diffinity.alignment.automaton import TokenAutomaton
from diffinity.errors import InvalidArgument

CACHE_BYTES = 1 << 30  # maximum for the automata that stay on devices
KEPT_BYTES = 1 << 26  # maximum for the masses of one sample; above it, only every √L-th position is stored


@dataclass(frozen=True)
class Tier:
    """The variant of the recursions for a launch."""

    name: str
    size: int  # rows of arrows in registers per direction, or pieces that threads add up at a time
    num_warps: int
    shared_bytes: int  # maximum of shared memory
    second: int = 1  # maximum number of pieces of a state; only for rows in registers
    limit: int = 0  # maximum number of states that a text can reach; only for trees


GATHERED = tuple(
    Tier("gathered", rows, max(1, min(16, rows // 16)), 64 * rows, second)
    for rows, second in layout.GATHERED_SHAPES
)
TREE_128 = Tier("tree", 128, 4, 2048, limit=2048)
TREE_512 = Tier("tree", 512, 16, 8192, limit=layout.TREE_LIMIT)
TIERS = (*GATHERED, TREE_128, TREE_512)


@dataclass(frozen=True)
class Uploaded:
    """A layout with its array on a device."""

    layout: Any
    arena: Tensor  # int32


@dataclass(frozen=True)
class Group:
    """The samples of a batch in one launch of the recursions."""

    tier: Tier
    checkpointed: bool
    samples: Tensor  # (N,), int32: their indices in the batch


@dataclass(frozen=True)
class Batch:
    """The automata of a batch, concatenated in arrays, and the maxima of their sizes."""

    classes: Tensor  # int32
    class_base: Tensor  # (B,), int64
    programmes: Tensor  # int32
    programme_base: Tensor  # (B,), int64
    groups: tuple[Group, ...]
    by_checkpointing: tuple[tuple[bool, Tensor], ...]  # (checkpointed, samples)
    size: int
    length: int
    vocab: int
    n_tiles: int
    n_segments: int
    n_classes: int
    n_groups: int
    n_states: int
    class_nodes: int
    group_nodes: int
    spread_nodes: int
    alpha_nodes: int
    beta_nodes: int
    pair_nodes: int
    all_alpha_nodes: int  # including checkpointed samples
    all_beta_nodes: int
    outside: Outside | None  # if all samples have the same classes


@dataclass(frozen=True)
class Outside:
    """The tokens outside an automaton's largest class."""

    owner: Any  # the object that the classes belong to
    tokens: Tensor  # (R,), int32

    def embeddings(self, embedding: Tensor) -> Tensor:
        """Their rows (R, d) of an embedding (V, d), cached until either is deleted or the embedding changes."""
        version = 0 if embedding.is_inference() else embedding._version
        key = ("outside", version, str(embedding.device))
        rows: Tensor = cache.get(
            [self.owner, embedding], key, lambda: embedding.detach().index_select(0, self.tokens)
        )
        return rows


class DeviceCache:
    """Uploaded data by owners. An entry is removed with any of its owners.

    A full cache drops the least recently used entry.

    >>> cache = DeviceCache(limit=100)
    >>> owner = np.zeros(1)
    >>> cache.get([owner], "a", lambda: torch.zeros(4)).shape, cache.bytes
    (torch.Size([4]), 16)
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self._entries: OrderedDict[tuple[object, ...], tuple[Any, int, list[weakref.ref[Any]]]] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, owners: Sequence[Any], key: object, make: Callable[[], Any]) -> Any:
        """The entry of these owners and this key, created if missing."""
        full = (key, *map(id, owners))
        with self._lock:
            if full in self._entries:
                self._entries.move_to_end(full)
                return self._entries[full][0]
            value = make()
            size = _bytes_of(value)
            distinct = {id(owner): owner for owner in owners}.values()
            watched = [weakref.ref(owner, lambda _: self._drop(full)) for owner in distinct]
            self._entries[full] = (value, size, watched)
            self.bytes += size
            while self.bytes > self.limit and len(self._entries) > 1:
                self._drop(next(iter(self._entries)))
            return value

    def _drop(self, full: tuple[object, ...]) -> None:
        with self._lock:
            entry = self._entries.pop(full, None)
            self.bytes -= 0 if entry is None else entry[1]

    def __len__(self) -> int:
        return len(self._entries)


def _bytes_of(value: Any) -> int:
    """The bytes of an entry on the device; shared data is counted for each entry."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, Uploaded):
        return _bytes_of(value.arena)
    return _bytes_of(value.classes) + _bytes_of(value.programmes)


cache = DeviceCache(CACHE_BYTES)


def batch_of(automata: Sequence[TokenAutomaton], length: int, device: torch.device) -> Batch:
    """The automata, one for each sample, on a device."""
    key = ("batch", length, str(device), KEPT_BYTES)
    batch: Batch = cache.get(automata, key, lambda: _combined(automata, length, device))
    return batch


def _combined(automata: Sequence[TokenAutomaton], length: int, device: torch.device) -> Batch:
    distinct = list({id(automaton): automaton for automaton in automata}.values())
    number = {id(automaton): i for i, automaton in enumerate(distinct)}
    of_sample = np.array([number[id(automaton)] for automaton in automata])
    classes = [_classes(automaton, device) for automaton in distinct]
    programmes = [_programme(automaton, length, device) for automaton in distinct]
    class_arena, class_base = _joined(classes, of_sample, device)
    programme_arena, programme_base = _joined(programmes, of_sample, device)
    class_layouts: list[ClassLayout] = [uploaded.layout for uploaded in classes]
    programme_layouts: list[ProgrammeLayout] = [uploaded.layout for uploaded in programmes]
    stored = [layout for layout in programme_layouts if not _checkpointed(layout, length)]
    groups = _groups([programme_layouts[i] for i in of_sample], length, device)
    return Batch(
        class_arena,
        class_base,
        programme_arena,
        programme_base,
        groups,
        _by_checkpointing(groups),
        size=len(automata),
        length=length,
        vocab=class_layouts[0].vocab,
        n_tiles=max(layout.n_tiles for layout in class_layouts),
        n_segments=max(layout.n_segments for layout in class_layouts),
        n_classes=max(layout.n_classes for layout in class_layouts),
        n_groups=max(1, *(layout.n_groups for layout in class_layouts)),
        n_states=max(1, *(layout.n_states for layout in programme_layouts)),
        class_nodes=max(layout.class_nodes for layout in class_layouts),
        group_nodes=max(layout.group_nodes for layout in class_layouts) + 1,  # the last node is no group
        spread_nodes=max(layout.spread_nodes for layout in class_layouts),
        alpha_nodes=max((layout.alpha_nodes for layout in stored), default=1),
        beta_nodes=max((layout.beta_nodes for layout in stored), default=1),
        pair_nodes=max(layout.pair_nodes for layout in programme_layouts),
        all_alpha_nodes=max(layout.alpha_nodes for layout in programme_layouts),
        all_beta_nodes=max(layout.beta_nodes for layout in programme_layouts),
        outside=_outside(distinct, classes),
    )


def _outside(automata: Sequence[TokenAutomaton], classes: Sequence[Uploaded]) -> Outside | None:
    class_layout: ClassLayout = classes[0].layout
    if class_layout.n_outside == 0 or any(other is not classes[0] for other in classes):
        return None
    begin = int(class_layout.arena[layout.OUTSIDE])
    tokens = torch.from_numpy(class_layout.arena[begin : begin + class_layout.n_outside])
    return Outside(automata[0].edges, tokens.to(classes[0].arena.device))


def _classes(automaton: TokenAutomaton, device: torch.device) -> Uploaded:
    uploaded: Uploaded = cache.get(
        [automaton.edges], ("classes", str(device)), lambda: _upload(layout.class_layout(automaton), device)
    )
    return uploaded


def _programme(automaton: TokenAutomaton, length: int, device: torch.device) -> Uploaded:
    uploaded: Uploaded = cache.get(
        [automaton],
        ("programme", length, str(device)),
        lambda: _upload(layout.programme_layout(automaton, length), device),
    )
    return uploaded


def _upload(automaton_layout: ClassLayout | ProgrammeLayout, device: torch.device) -> Uploaded:
    return Uploaded(automaton_layout, torch.from_numpy(automaton_layout.arena).to(device))


def _joined(parts: Sequence[Uploaded], of_sample: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """The parts in one array, and the offset of each sample's part."""
    arena = parts[0].arena if len(parts) == 1 else torch.cat([part.arena for part in parts])
    sizes = np.array([len(part.layout.arena) for part in parts], np.int64)
    begins = (np.cumsum(sizes) - sizes)[of_sample]
    return arena, torch.from_numpy(begins).to(device)


def tier_of(programme: ProgrammeLayout) -> Tier:
    """The tier of an automaton. It depends on nothing else, so a sample's result is the same in every batch."""
    if programme.gathered is not None:
        return GATHERED[layout.GATHERED_SHAPES.index(programme.gathered)]
    for tier in (TREE_128, TREE_512):
        if programme.n_states <= tier.limit:
            return tier
    raise InvalidArgument(
        f"the kernels take up to {layout.TREE_LIMIT:,} states that a text can meet, but there are "
        f"{programme.n_states:,}; use backend='torch'"
    )


def _checkpointed(programme: ProgrammeLayout, length: int) -> bool:
    masses = 8 * (length + 1) * (programme.alpha_nodes + programme.beta_nodes)
    return tier_of(programme).name == "tree" and masses > KEPT_BYTES


def _groups(programmes: Sequence[ProgrammeLayout], length: int, device: torch.device) -> tuple[Group, ...]:
    members: dict[tuple[Tier, bool], list[int]] = {}
    for i, programme in enumerate(programmes):
        members.setdefault((tier_of(programme), _checkpointed(programme, length)), []).append(i)
    return tuple(
        Group(tier, checkpointed, torch.tensor(samples, dtype=torch.int32).to(device))
        for (tier, checkpointed), samples in members.items()
    )


def _by_checkpointing(groups: Sequence[Group]) -> tuple[tuple[bool, Tensor], ...]:
    members = {flag: [group.samples for group in groups if group.checkpointed == flag] for flag in (False, True)}
    return tuple((flag, torch.cat(samples)) for flag, samples in members.items() if samples)

"""Accepted strings on the device: the best, draws from the posterior, the k best."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
from torch import Tensor

from diffinity.acceptance.triton_backend import class_kernels, path_kernels, top_kernels
from diffinity.acceptance.triton_backend.launching import BLOCK, PIECES, launch
from diffinity.acceptance.triton_backend.tilts import forward, launch_best_path, launch_draw_path
from diffinity.acceptance.triton_backend.weights import Weights, launch_segments, weights_of
from diffinity.alignment.automaton import TokenAutomaton

FLOOR = -1e5  # score of an impossible token if a string must still be decoded


def keys_of(seed: int | Sequence[tuple[int, int]] | Tensor, n: int, device: torch.device) -> Tensor:
    """(B, 2), int64: the keys of counter-based random numbers, (seed, i) for sample i or the given pairs.

    Keys of a single seed are created on the device, and a tensor is used unchanged: neither waits for a copy.

    >>> keys_of([(7, 0), (7, 1)], 2, torch.device("cpu")).tolist()
    [[7, 0], [7, 1]]
    """
    if isinstance(seed, Tensor):
        return seed
    if isinstance(seed, int):
        keys = torch.empty(n, 2, dtype=torch.int64, device=device)
        launch(path_kernels.fill_keys, (triton.cdiv(n, BLOCK),), keys, _signed(seed), n, BLOCK=BLOCK)
        return keys
    signed = [[_signed(part) for part in pair] for pair in seed]
    return torch.tensor(signed, dtype=torch.int64).to(device, non_blocking=True)


def _signed(number: int) -> int:
    """The whole number with the same lowest 64 binary digits that int64 has."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def best_strings(scores: Tensor, automata: Sequence[TokenAutomaton], from_probs: bool) -> tuple[Tensor, Tensor]:
    """The most probable accepted strings (B, L), and their log probabilities (B,)."""
    w = weights_of(scores, automata, from_probs)
    tokens = w.empty(w.batch.size, w.batch.length, dtype=torch.int64)
    _best_strings(w, tokens, None)
    return _value(w, tokens), tokens


def _best_strings(w: Weights, tokens: Tensor, predicate: Tensor | None) -> None:
    """Write the best strings into `tokens`; with `predicate` (B,) only for samples where it is −inf."""
    batch = w.batch
    rows = (batch.size, batch.length)
    peaks, best = torch.empty_like(w.peaks), w.empty(*rows, batch.n_segments, dtype=torch.int32)
    launch_segments(w, peaks, best, best=True, predicate=predicate)
    value, token = w.empty(*rows, batch.group_nodes), w.empty(*rows, batch.group_nodes, dtype=torch.int32)
    launch(
        class_kernels.best_in_groups,
        (w.rows,),
        peaks,
        best,
        batch.classes,
        batch.class_base,
        w.log_norm,
        w.log_norm if predicate is None else predicate,
        w.empty(*rows, batch.class_nodes),
        w.empty(*rows, batch.class_nodes, dtype=torch.int32),
        value,
        token,
        batch.length,
        batch.n_segments,
        batch.class_nodes,
        batch.group_nodes,
        FLOOR,
        PREDICATE=predicate is not None,
        PIECES=PIECES,
    )
    masses = forward(w, value, best=True, predicate=predicate)
    path = w.empty(*rows, dtype=torch.int32)
    launch_best_path(w, value, masses, path)
    launch(
        path_kernels.pick_tokens,
        (batch.size, triton.cdiv(batch.length, 128)),
        path,
        token,
        w.log_norm if predicate is None else predicate,
        tokens,
        batch.length,
        batch.group_nodes,
        PREDICATE=predicate is not None,
        BLOCK=128,
    )


def draws(
    scores: Tensor, automata: Sequence[TokenAutomaton], from_probs: bool, keys: Tensor
) -> tuple[Tensor, Tensor]:
    """Strings (B, L) drawn from p given acceptance and their log probabilities (B,); the best if P(L) = 0."""
    w = weights_of(scores, automata, from_probs)
    batch = w.batch
    masses = forward(w, w.grouped, best=False)
    path = w.empty(batch.size, batch.length, dtype=torch.int32)
    launch_draw_path(w, masses, keys, path)
    tokens = w.empty(batch.size, batch.length, dtype=torch.int64)
    launch(
        path_kernels.draw_tokens,
        (w.rows,),
        path,
        batch.classes,
        batch.class_base,
        w.weight,
        w.class_log,
        w.peaks,
        w.sums,
        w.scores,
        keys,
        masses.log_p_language,
        tokens,
        batch.length,
        batch.vocab,
        batch.n_segments,
        batch.class_nodes,
        FROM_PROBS=from_probs,
        BLOCK=BLOCK,
    )
    _best_strings(w, tokens, predicate=masses.log_p_language)
    return _value(w, tokens), tokens


def _value(w: Weights, tokens: Tensor) -> Tensor:
    log_p_text = w.empty(w.batch.size)
    launch(
        path_kernels.string_log_p,
        (w.batch.size,),
        tokens,
        w.scores,
        w.log_norm,
        log_p_text,
        w.batch.length,
        w.batch.vocab,
        FROM_PROBS=w.from_probs,
        BLOCK=BLOCK,
    )
    return log_p_text


def top_strings(
    scores: Tensor, automata: Sequence[TokenAutomaton], from_probs: bool, k: int
) -> tuple[Tensor, Tensor]:
    """The k best strings (B, K, L) and their log probabilities (B, K), −inf where there are no more.

    One launch per position: this runs once per text, not once per step.
    """
    w = weights_of(scores, automata, from_probs)
    batch = w.batch
    rows = (batch.size, batch.length)
    class_value, class_token = (w.empty(*rows, batch.n_classes, k, dtype=t) for t in (torch.float64, torch.int32))
    group_value, group_token = (w.empty(*rows, batch.n_groups, k, dtype=t) for t in (torch.float64, torch.int32))
    launch(
        top_kernels.top_in_classes,
        (batch.n_classes, w.rows),
        w.scores,
        batch.classes,
        batch.class_base,
        w.log_norm,
        class_value,
        class_token,
        batch.length,
        batch.vocab,
        batch.n_classes,
        k,
        FROM_PROBS=from_probs,
        BLOCK=BLOCK,
    )
    launch(
        top_kernels.top_in_groups,
        (batch.n_groups, w.rows),
        class_value,
        class_token,
        batch.classes,
        batch.class_base,
        group_value,
        group_token,
        batch.length,
        batch.n_classes,
        batch.n_groups,
        k,
        BLOCK=BLOCK,
    )
    shape = (batch.size, batch.length + 1, batch.n_states, k)
    value = torch.full(shape, -torch.inf, dtype=torch.float64, device=scores.device)
    value[:, 0, 0, 0] = 0.0  # states are in the order in which they are reached: the start is first
    source, token = (w.empty(*shape, dtype=torch.int32) for _ in range(2))
    for position in range(batch.length):
        launch(
            top_kernels.top_step,
            (batch.n_states, batch.size),
            batch.programmes,
            batch.programme_base,
            group_value,
            group_token,
            value,
            source,
            token,
            position,
            batch.length,
            batch.n_groups,
            batch.n_states,
            k,
            BLOCK=BLOCK,
        )
    log_p_text, strings = w.empty(batch.size, k), w.empty(batch.size, k, batch.length, dtype=torch.int32)
    launch(
        top_kernels.top_strings,
        (batch.size,),
        batch.programmes,
        batch.programme_base,
        value,
        source,
        token,
        log_p_text,
        strings,
        batch.length,
        batch.n_states,
        k,
        BLOCK=BLOCK,
    )
    return log_p_text, strings

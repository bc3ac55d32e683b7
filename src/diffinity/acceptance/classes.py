"""Logits by token class: one pass over the vocabulary, then every computation is over classes.

The loops of other libraries pass logits (L, V) with V up to a quarter of a million at every step. `class_scores`
reads them once, on their own device. P(L), the marginals, the best string and joint draws are computed from its
(L, C) tables on the CPU, and one number per class is applied to the tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.acceptance import class_kernels, cpu, path_kernels, rescue_kernels
from diffinity.alignment.automaton import TokenAutomaton

CHUNK_BYTES = 1 << 20  # bytes of logits that are processed at a time


@dataclass(frozen=True)
class Choice:
    """The tokens allowed at a position that is no longer open, with the logarithms of their weights."""

    tokens: NDArray[np.int64]  # (n,)
    log_weights: NDArray[np.float64]  # (n,)

    @staticmethod
    def of(token: int) -> Choice:
        """A single settled token."""
        return Choice(np.array([token]), np.zeros(1))


@dataclass(frozen=True)
class ClassScores:
    """The input of the dynamic programme for one sample: sums and maxima of p over classes."""

    log_sums: NDArray[np.float64]  # (L, C): log Σ p over the class
    best: NDArray[np.float64]  # (L, C): the largest log p of the class
    best_token: NDArray[np.int32]  # (L, C): the token with this log p, −1 if no token is allowed
    log_norm: NDArray[np.float64]  # (L,): temperature·log p + log_norm is the logit
    choices: Mapping[int, Choice]  # positions that are not open

    @property
    def length(self) -> int:
        return int(self.log_sums.shape[0])

    def at(self, rows: NDArray[np.int64]) -> ClassScores:
        """The scores of some positions, all of them open."""
        return ClassScores(self.log_sums[rows], self.best[rows], self.best_token[rows], self.log_norm[rows], {})

    @cached_property
    def _scaled(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        scaled, log_scale = np.empty_like(self.log_sums), np.empty(self.length)
        rescue_kernels.scale_rows(self.log_sums, scaled, log_scale)
        return scaled, log_scale

    def weights(self, automaton: TokenAutomaton) -> cpu.Weights:
        """The sums in the form that the dynamic programme takes."""
        scaled, log_scale = self._scaled
        grouped = np.empty((self.length, automaton.edges.n_groups))
        cpu.group_sums(scaled, automaton, grouped)
        return cpu.Weights(scaled, scaled, log_scale, grouped, self.log_sums)


def class_scores(
    logits: Tensor,
    automaton: TokenAutomaton,
    *,
    temperature: float = 1.0,
    choices: Mapping[int, Choice] | None = None,
) -> ClassScores:
    """The scores of one sample's logits (L, V) at a temperature, on any device.

    At the positions of `choices` the logits are not read.

    >>> from diffinity.alignment import Vocabulary, align
    >>> from diffinity.constraints import Regex
    >>> automaton = align(Regex("[ab]c"), Vocabulary([b"a", b"b", b"c"]), framing="exact")
    >>> scores = class_scores(torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 3.0]]), automaton)
    >>> best_string(scores, automaton).tolist()
    [1, 2]
    """
    length, vocab = logits.shape
    shape, settled = (length, automaton.n_classes), choices or {}
    log_sums, best, best_token = np.empty(shape), np.empty(shape), np.empty(shape, np.int32)
    log_norm = np.zeros(length)
    dtype = logits.dtype if logits.dtype in (torch.float32, torch.float64) else torch.float32
    reduce = _reduce if logits.device.type == "cpu" else _reduce_on_device
    for part in _open_chunks(length, settled, max(1, CHUNK_BYTES // (4 * vocab))):
        chunk = logits[part].detach().to(dtype)
        reduce(chunk, automaton, temperature, log_sums[part], best[part], best_token[part], log_norm[part])
    for k, choice in settled.items():
        _settle(choice, automaton, log_sums[k], best[k], best_token[k])
    return ClassScores(log_sums, best, best_token, log_norm, settled)


def settle(scores: ClassScores, automaton: TokenAutomaton, choices: Mapping[int, Choice]) -> ClassScores:
    """The scores with the positions of `choices` settled."""
    log_sums, best, best_token = scores.log_sums.copy(), scores.best.copy(), scores.best_token.copy()
    log_norm = scores.log_norm.copy()
    for k, choice in choices.items():
        _settle(choice, automaton, log_sums[k], best[k], best_token[k])
        log_norm[k] = 0.0
    return ClassScores(log_sums, best, best_token, log_norm, choices)


def _open_chunks(length: int, settled: Mapping[int, Choice], rows: int) -> list[slice]:
    """The positions that are not settled, in chunks of at most `rows`."""
    stretches = [(0, length)]
    if settled:
        is_open = np.array([k not in settled for k in range(length)] + [False])
        edges = np.flatnonzero(np.diff(is_open.astype(np.int8), prepend=0)).tolist()
        stretches = list(zip(edges[::2], edges[1::2], strict=True))
    return [slice(a, min(a + rows, end)) for begin, end in stretches for a in range(begin, end, rows)]


def _settle(
    choice: Choice,
    automaton: TokenAutomaton,
    log_sums: NDArray[np.float64],
    best: NDArray[np.float64],
    best_token: NDArray[np.int32],
) -> None:
    log_sums[:], best[:], best_token[:] = -np.inf, -np.inf, -1
    for token, weight in zip(choice.tokens, choice.log_weights, strict=True):
        c = automaton.class_of[token]
        log_sums[c] = np.logaddexp(log_sums[c], weight)
        if weight > best[c]:
            best[c], best_token[c] = weight, token


def _reduce(
    chunk: Tensor,
    automaton: TokenAutomaton,
    temperature: float,
    log_sums: NDArray[np.float64],
    best: NDArray[np.float64],
    best_token: NDArray[np.int32],
    log_norm: NDArray[np.float64],
) -> None:
    """The tables (n, C) and the log_norm (n,) of logits (n, V): the softmax in torch, the rest compiled."""
    probs = (chunk if temperature == 1 else chunk / temperature).softmax(dim=1)
    peaks = chunk.amax(dim=1).numpy()
    totals = peaks if automaton.outside < 0 else probs.sum(dim=1).numpy()
    kernel: Any = class_kernels.class_tables
    kernel(
        chunk.contiguous().numpy(),
        probs.numpy(),
        peaks,
        totals,
        float(temperature),
        *automaton.segments,
        automaton.outside,
        automaton.useful,
        log_sums,
        best,
        best_token,
        log_norm,
    )


def _reduce_on_device(
    chunk: Tensor,
    automaton: TokenAutomaton,
    temperature: float,
    log_sums: NDArray[np.float64],
    best: NDArray[np.float64],
    best_token: NDArray[np.int32],
    log_norm: NDArray[np.float64],
) -> None:
    """Like `_reduce`, in torch on the device of the logits; only the tables are copied back."""
    n, vocab = chunk.shape
    peak = chunk.amax(dim=1).double().cpu().numpy()
    log_top = (chunk / temperature).softmax(dim=1).amax(dim=1).double().log().cpu().numpy()  # log p of the peak
    possible_rows = np.isfinite(peak)
    peak, log_top = np.where(possible_rows, peak, 0.0), np.where(possible_rows, log_top, 0.0)
    class_of = torch.from_numpy(automaton.class_of.astype(np.int64)).to(chunk.device).expand(n, -1)
    top = chunk.new_full((n, automaton.n_classes), -torch.inf).scatter_reduce(1, class_of, chunk, reduce="amax")
    top_of_class = top.gather(1, class_of)
    possible = chunk > -torch.inf
    ids = torch.arange(vocab, device=chunk.device).expand(n, -1)
    token = torch.full((n, automaton.n_classes), vocab, device=chunk.device)
    token = token.scatter_reduce(
        1, class_of, torch.where((chunk == top_of_class) & possible, ids, vocab), reduce="amin"
    )
    below = torch.where(possible, ((chunk - top_of_class) / temperature).exp(), 0.0)
    total = below.new_zeros(n, automaton.n_classes, dtype=torch.float64).scatter_add_(1, class_of, below.double())
    best[:] = top.double().cpu().numpy()
    best_token[:] = torch.where(token < vocab, token, -1).cpu().numpy()
    log_sums[:] = (best - peak[:, None]) / temperature + log_top[:, None] + total.log().cpu().numpy()
    useless = ~automaton.useful
    log_sums[:, useless], best[:, useless], best_token[:, useless] = -np.inf, -np.inf, -1
    order, begins = automaton.tokens_by_class
    impossible = (best_token < 0) & automaton.useful  # all logits of the class are −inf: use its first token
    best_token[impossible] = np.broadcast_to(order[begins[:-1]], best_token.shape)[impossible]
    best[:] = (best - peak[:, None]) / temperature + log_top[:, None]
    log_norm[:] = peak - temperature * log_top


def log_ratios(scores: ClassScores, automaton: TokenAutomaton) -> tuple[float, NDArray[np.float64] | None]:
    """log P(L), and log q/p of each class (L, C), where q is p given acceptance; None if P(L) = 0."""
    w = scores.weights(automaton)
    log_p_language, ratio = cpu.posterior_ratios(w, automaton)
    if ratio is None:
        return log_p_language, None
    with np.errstate(divide="ignore"):
        return log_p_language, np.log(ratio) - w.log_scale[:, None]


def best_string(scores: ClassScores, automaton: TokenAutomaton) -> NDArray[np.int64]:
    """The most probable accepted token string (L,)."""
    edges = automaton.edges
    shape = (scores.length, edges.n_groups)
    log_weight, best_class = np.empty(shape), np.empty(shape, np.int32)
    floored = np.where(scores.best_token >= 0, np.maximum(scores.best, cpu.FLOOR), -np.inf)
    kernel: Any = path_kernels.group_maxima
    kernel(floored, edges.members_first, edges.members, log_weight, best_class)
    path, _ = cpu.best_path(log_weight, automaton)
    positions = np.arange(scores.length)
    return scores.best_token[positions, best_class[positions, path]].astype(np.int64)


def draw_string(
    scores: ClassScores,
    automaton: TokenAutomaton,
    logits: Tensor,
    rng: np.random.Generator,
    *,
    temperature: float = 1.0,
    drawn_tokens: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """A token string (L,) drawn from p given acceptance; the best string if P(L) = 0.

    `scores` are the scores of `logits` at `temperature`. `drawn_tokens` (L,) were drawn from p at each position; a
    token that is in the drawn class is used, because acceptance does not depend on the token within a class.
    """
    w = scores.weights(automaton)
    path = cpu.drawn_path(w, automaton, rng)
    if path is None:
        return best_string(scores, automaton)
    edges = automaton.edges
    order, first = automaton.tokens_by_class
    ids = np.empty(scores.length, np.int64)
    for k, g in enumerate(path):
        classes = edges.members[edges.members_first[g] : edges.members_first[g + 1]]
        label = classes[cpu.draw(w.scaled[k, classes], rng)]
        choice = scores.choices.get(k)
        if choice is None and drawn_tokens is not None and automaton.class_of[drawn_tokens[k]] == label:
            ids[k] = drawn_tokens[k]
            continue
        if choice is not None:
            tokens = choice.tokens[automaton.class_of[choice.tokens] == label]
            within = choice.log_weights[automaton.class_of[choice.tokens] == label]
        else:
            tokens = order[first[label] : first[label + 1]]
            within = logits_of(logits[k], tokens) / temperature
        ids[k] = tokens[cpu.draw(np.exp(within - within.max()), rng)]
    return ids


def logits_of(row: Tensor, tokens: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
    """The logits of some tokens of a row (V,) on any device, in float32 or wider."""
    chosen = row.detach().index_select(0, torch.from_numpy(tokens).to(row.device))
    return np.asarray((chosen if chosen.dtype == torch.float64 else chosen.float()).cpu().numpy())


def shift_tokens(logits: Tensor, automaton: TokenAutomaton, shift: NDArray[np.float64], out: Tensor) -> None:
    """out (L, V) = logits (L, V) + shift (L, C) of each token's class; `out` and `logits` may be one tensor."""
    by_class = torch.from_numpy(shift)
    in_loops = logits.device.type == "cpu" and logits.dtype in (torch.float32, torch.float64)
    if in_loops and logits.dtype == out.dtype and logits.is_contiguous() and out.is_contiguous():
        kernel: Any = class_kernels.shifted
        table = by_class.to(logits.dtype).numpy()
        kernel(logits.detach().numpy(), automaton.unsigned_class_of, table, out.numpy())
        return
    class_of = torch.from_numpy(automaton.class_of.astype(np.int64)).to(logits.device)
    torch.add(logits, by_class.to(logits.device, logits.dtype)[:, class_of], out=out)

"""The CPU backend: one sample at a time in compiled loops, samples in parallel threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.acceptance import numba_kernels as kernels
from diffinity.acceptance import path_kernels, rescue_kernels
from diffinity.alignment.automaton import TokenAutomaton

Array = NDArray[np.floating[Any]]
T = TypeVar("T")


@dataclass(frozen=True)
class Scores:
    """The distributions of one sample: probabilities (L, V) and, if given, the logits."""

    probs: Array
    logits: Array | None = None

    @property
    def length(self) -> int:
        return int(self.probs.shape[0])

    @cached_property
    def log_norm(self) -> NDArray[np.float64]:
        """log Σ exp(logits) (L,), from the largest logit and probability: much cheaper than `logsumexp`."""
        assert self.logits is not None
        largest: NDArray[np.float64] = self.logits.max(axis=1).astype(np.float64)
        return largest - np.log(self.probs.max(axis=1).astype(np.float64))

    def at(self, rows: NDArray[np.int64]) -> Scores:
        """The scores of some positions."""
        return Scores(self.probs[rows], None if self.logits is None else self.logits[rows])

    def log_probs(self) -> NDArray[np.float64]:
        """log p (L, V) in float64, −inf for impossible tokens."""
        if self.logits is not None:
            return self.logits.astype(np.float64) - self.log_norm[:, None]
        with np.errstate(divide="ignore"):
            return np.log(self.probs.astype(np.float64))


def split(scores: Tensor, logits: bool, softmax: Tensor | None = None) -> list[Scores]:
    """One `Scores` per sample of (B, L, V); `softmax` is the softmax of the logits, if already computed."""
    scores = scores.detach()
    if scores.dtype not in (torch.float32, torch.float64):
        scores = scores.float()
    scores = scores.contiguous()
    if not logits:
        return [Scores(sample) for sample in scores.numpy()]
    probs = scores.softmax(dim=-1) if softmax is None else softmax.detach().to(scores).contiguous()
    return [Scores(p, s) for p, s in zip(probs.numpy(), scores.numpy(), strict=True)]


@dataclass(frozen=True)
class Weights:
    """Class sums of one sample, rescaled per position: sum = scaled·exp(log_scale)."""

    sums: NDArray[np.float64]  # (L, C): plain sums, may have underflowed
    scaled: NDArray[np.float64]  # (L, C)
    log_scale: NDArray[np.float64]  # (L,)
    grouped: NDArray[np.float64]  # (L, G)
    log_sums: NDArray[np.float64] | None  # (L, C): set if some sums underflowed and were computed from logits

    def at(self, rows: NDArray[np.int64]) -> Weights:
        """The weights of some positions."""
        log_sums = None if self.log_sums is None else self.log_sums[rows]
        return Weights(self.sums[rows], self.scaled[rows], self.log_scale[rows], self.grouped[rows], log_sums)


def weights(scores: Scores, automaton: TokenAutomaton, sums: NDArray[np.float64] | None = None) -> Weights:
    """The sums of the token probabilities over classes (unless `sums` (L, C) has them) and groups of classes."""
    shape = (scores.length, automaton.n_classes)
    if sums is None:
        sums = np.empty(shape)
        _call(kernels.class_sums, scores.probs, automaton.unsigned_class_of, sums)
    scaled, log_scale, log_sums = np.empty(shape), np.empty(scores.length), None
    needs_rescue = _call(kernels.scale_sums, sums, automaton.useful, scaled, log_scale)
    if needs_rescue and scores.logits is not None:
        log_sums = np.empty(shape)
        order, first = automaton.tokens_by_class
        _call(
            rescue_kernels.rescue_sums,
            scores.logits,
            scores.log_norm,
            order,
            first,
            automaton.useful,
            sums,
            log_sums,
        )
        _call(rescue_kernels.scale_rows, log_sums, scaled, log_scale)
    grouped = np.empty((scores.length, automaton.edges.n_groups))
    group_sums(scaled, automaton, grouped)
    return Weights(sums, scaled, log_scale, grouped, log_sums)


def group_sums(sums: NDArray[np.float64], automaton: TokenAutomaton, out: NDArray[np.float64]) -> None:
    """out (L, G) = the sums (L, C) added up over the classes of each group."""
    _call(kernels.group_sums, sums, automaton.edges.members_first, automaton.edges.members, out)


def forward(w: Weights, automaton: TokenAutomaton) -> tuple[float, NDArray[np.float64]]:
    """log P(L) and the forward masses of states and hubs (L+1, S+H)."""
    length, arrows = w.scaled.shape[0], automaton.arrows
    alpha = np.empty((length + 1, arrows.n_nodes))
    log_total = _call(kernels.forward, w.grouped, arrows, automaton.live(length), automaton.accepting, alpha)
    return float(log_total + w.log_scale.sum()), alpha


Ratios = Callable[[Weights, TokenAutomaton], tuple[float, NDArray[np.float64] | None]]


def posterior_ratios(w: Weights, automaton: TokenAutomaton) -> tuple[float, NDArray[np.float64] | None]:
    """log P(L) and q/p per class (L, C) in units of the scaled sums; None if P(L) = 0."""
    log_p_language, alpha = forward(w, automaton)
    if log_p_language == -np.inf:
        return log_p_language, None
    edges = automaton.edges
    posterior = np.empty_like(w.grouped)
    _call(kernels.backward, w.grouped, automaton.arrows, automaton.accepting, alpha, posterior)
    ratio = np.empty_like(w.scaled)
    _call(kernels.spread, posterior, edges.members_first, edges.members, ratio)
    return log_p_language, ratio


def path_ratios(rng: np.random.Generator | None) -> Ratios:
    """Like `posterior_ratios`, for one path of states: the best path, or with `rng` a drawn path.

    The first result is the log probability of the path.
    """

    def ratios_of_path(w: Weights, automaton: TokenAutomaton) -> tuple[float, NDArray[np.float64] | None]:
        path = _path(w, automaton, rng)
        if path is None:
            return -np.inf, None
        edges = automaton.edges
        ratio = np.empty_like(w.scaled)
        log_share = _call(
            kernels.path_ratio,
            path,
            edges.members_first,
            edges.members,
            w.grouped,
            w.log_scale,
            ratio,
        )
        return float(log_share), ratio

    return ratios_of_path


def marginals(
    scores: Scores, automaton: TokenAutomaton, ratios: Ratios, out: Array, minus_p: float = 0.0
) -> float:
    """The log probability from `ratios`, and q − `minus_p`·p into `out` (L, V), which may be p itself.

    q is p if the log probability is −inf.
    """
    w = weights(scores, automaton)
    log_p_language, ratio = ratios(w, automaton)
    if ratio is None:
        out[:] = (1.0 - minus_p) * scores.probs
    else:
        expand(scores, automaton, w, ratio, out, minus_p)
    return log_p_language


def _path(w: Weights, automaton: TokenAutomaton, rng: np.random.Generator | None) -> NDArray[np.int64] | None:
    """The groups along a path of states, or None if every path has probability zero."""
    if rng is not None:
        return drawn_path(w, automaton, rng)
    with np.errstate(divide="ignore"):
        path, value = best_path(np.log(w.grouped), automaton)
    return path if value > -np.inf else None


def drawn_path(w: Weights, automaton: TokenAutomaton, rng: np.random.Generator) -> NDArray[np.int64] | None:
    """The groups along a path of states drawn in proportion to its probability; None if P(L) = 0."""
    length = w.scaled.shape[0]
    log_p_language, alpha = forward(w, automaton)
    if log_p_language == -np.inf:
        return None
    draws = rng.random(length + 1)
    path = np.zeros(length, np.int64)
    _call(path_kernels.sample_path, w.grouped, automaton.arrows, alpha, automaton.accepting, draws, path)
    return path


def best_path(log_weight: NDArray[np.float64], automaton: TokenAutomaton) -> tuple[NDArray[np.int64], float]:
    """The groups of the path with the largest Σ log_weight (L, G), and that sum."""
    path = np.zeros(log_weight.shape[0], np.int64)
    live = automaton.live(len(path))
    value = _call(kernels.best_path, log_weight, automaton.arrows, live, automaton.accepting, path)
    return path, float(value)


def expand(
    scores: Scores,
    automaton: TokenAutomaton,
    w: Weights,
    ratio: NDArray[np.float64],
    out: Array,
    minus_p: float = 0.0,
) -> None:
    """q − `minus_p`·p into `out` (L, V), which may be p itself, from q/p per class in units of the scaled sums.

    A class whose sum is too small gets q alone, without `minus_p`·p: p is practically zero there.
    """
    mass = w.scaled * ratio  # the posterior probability of each class
    by_class, rescue = token_ratios(w, ratio, mass, scores.probs.dtype, minus_p)
    _call(kernels.expand, scores.probs, automaton.unsigned_class_of, by_class, out)
    if not rescue.any():
        return
    if scores.logits is not None and w.log_sums is not None:
        order, first = automaton.tokens_by_class
        _call(
            rescue_kernels.expand_rescued,
            scores.logits,
            scores.log_norm,
            order,
            first,
            w.sums,
            w.log_sums,
            mass,
            out,
        )
        return
    for k, c in zip(*np.nonzero((w.sums <= kernels.TINY) & (mass > 0)), strict=True):
        tokens = automaton.class_of == c
        out[k, tokens] = mass[k, c] * (scores.probs[k, tokens].astype(np.float64) / w.sums[k, c])


def token_ratios(
    w: Weights, ratio: NDArray[np.float64], mass: NDArray[np.float64], dtype: np.dtype[Any], minus_p: float = 0.0
) -> tuple[Array, NDArray[np.bool_]]:
    """q/p − `minus_p` of a class's tokens (L, C), and the positions (L,) whose q must come from the logits."""
    by_class, rescue = np.empty(ratio.shape, dtype), np.empty(len(ratio), np.bool_)
    _call(kernels.ratio_of_tokens, w.sums, mass, ratio, w.log_scale, minus_p, by_class, rescue)
    return by_class, rescue


FLOOR = -1e5  # score of an impossible token, so that a string can be decoded even if P(L) = 0


def best_string(scores: Scores, automaton: TokenAutomaton) -> tuple[float, NDArray[np.int64]]:
    """The most probable accepted token string and its log probability (−inf if a token is impossible)."""
    log_probs = scores.log_probs()
    shape = (scores.length, automaton.n_classes)
    best, best_token = np.empty(shape), np.empty(shape, np.int32)
    _call(path_kernels.class_maxima, np.maximum(log_probs, FLOOR), automaton.unsigned_class_of, best, best_token)
    edges = automaton.edges
    log_weight = np.empty((scores.length, edges.n_groups))
    best_class = np.empty((scores.length, edges.n_groups), np.int32)
    _call(path_kernels.group_maxima, best, edges.members_first, edges.members, log_weight, best_class)
    path, _ = best_path(log_weight, automaton)
    at = np.arange(scores.length)
    ids = best_token[at, best_class[at, path]].astype(np.int64)
    return float(log_probs[at, ids].sum()), ids


def sample_string(
    scores: Scores, automaton: TokenAutomaton, rng: np.random.Generator
) -> tuple[float, NDArray[np.int64]]:
    """A token string drawn from p given acceptance; the best string if P(L) = 0."""
    w = weights(scores, automaton)
    path = _path(w, automaton, rng)
    if path is None:
        return best_string(scores, automaton)
    edges, log_probs = automaton.edges, scores.log_probs()
    order, first = automaton.tokens_by_class
    ids = np.empty(scores.length, np.int64)
    for k, g in enumerate(path):
        classes = edges.members[edges.members_first[g] : edges.members_first[g + 1]]
        label = classes[draw(w.scaled[k, classes], rng)]
        tokens = order[first[label] : first[label + 1]]
        within = log_probs[k, tokens]
        ids[k] = tokens[draw(np.exp(within - within.max()), rng)]
    return float(log_probs[np.arange(scores.length), ids].sum()), ids


def draw(share: NDArray[np.float64], rng: np.random.Generator) -> int:
    """An index drawn in proportion to the shares (n,)."""
    total = np.cumsum(share, dtype=np.float64)
    return int(min(np.searchsorted(total, rng.random() * total[-1], side="right"), len(share) - 1))


def best_strings(scores: Scores, automaton: TokenAutomaton, k: int) -> list[tuple[float, NDArray[np.int32]]]:
    """The k most probable accepted token strings, best first."""
    edges = automaton.edges
    values, strings = np.empty(k), np.empty((k, scores.length), np.int32)
    n_strings = _call(
        path_kernels.best_strings,
        scores.log_probs(),
        automaton.unsigned_class_of,
        automaton.n_classes,
        edges.first,
        edges.head,
        edges.group,
        edges.members_first,
        edges.members,
        automaton.live(scores.length),
        automaton.accepting,
        values,
        strings,
    )
    return [(float(values[i]), strings[i]) for i in range(n_strings)]


def over_batch(work: Callable[[int], T], n: int) -> Sequence[T]:
    """Run work(0) … work(n−1) in as many threads as torch uses."""
    threads = min(torch.get_num_threads(), n)
    if threads <= 1:
        return [work(i) for i in range(n)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(n)))


def _call(kernel: Any, *arguments: Any) -> Any:
    """numba's dispatchers are untyped."""
    return kernel(*arguments)

"""The mean embedding given acceptance, q·E, without computing q: used at every step of guidance in closed form.

All tokens of a class have the same ratio q/p. Automata have few classes, and often one class contains most of the
tokens. With r the ratio of the largest class,

    q·E = r·(p·E) + Σ (q[v] − r·p[v])·E[v] over the tokens v of the other classes,

and p·E is known already, so only the softmax is computed over the whole vocabulary. At positions where r is so
large that the difference would lose digits, q is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.acceptance import cpu
from diffinity.acceptance import numba_kernels as kernels
from diffinity.alignment.automaton import TokenAutomaton

LARGEST_OUTSIDE_SHARE = 0.75  # of the vocabulary outside the largest class; above it the formula saves nothing
LARGEST_RATIO = 64.0  # of q to p in the largest class: at most 6 of 24 bits are lost
SMALLEST_SHARE = 0.05  # of the probability in the largest class; below it the class is summed token by token


@dataclass(frozen=True)
class Plan:
    """The data of an automaton that a step needs, prepared once. It must not keep the automaton alive."""

    label: int  # the largest class; −1 if it is too small
    tokens: NDArray[np.uint32]  # (R,): the tokens outside it
    classes: NDArray[np.uint32]  # (R,): of these tokens
    inside: cpu.Array  # (V,): 1 for the tokens of the largest class
    embedding: Tensor  # (R, d): of these tokens
    arguments: tuple[Any, ...]  # of the compiled loop
    source: Tensor  # (V, d): the matrix of all embeddings
    version: int  # of `source` when its rows were copied
    length: int


_plans: WeakKeyDictionary[TokenAutomaton, Plan] = WeakKeyDictionary()


def plan_of(
    automaton: TokenAutomaton,
    embedding: Tensor,
    length: int,
    check: Callable[[TokenAutomaton], None] = lambda _: None,
) -> Plan:
    """The plan for texts of this length, prepared and checked (`check`) at the first step, then cached."""
    version = 0 if embedding.is_inference() else embedding._version
    plan = _plans.get(automaton)
    if plan is None or plan.source is not embedding or (plan.version, plan.length) != (version, length):
        check(automaton)
        plan = _plans[automaton] = _new_plan(automaton, embedding, version, length)
    return plan


def _new_plan(automaton: TokenAutomaton, embedding: Tensor, version: int, length: int) -> Plan:
    sizes = np.bincount(automaton.class_of, minlength=automaton.n_classes)
    label = int(sizes.argmax())
    if automaton.vocab_size - sizes[label] > LARGEST_OUTSIDE_SHARE * automaton.vocab_size:
        label = -1
    inside = (automaton.class_of == label).astype(torch.empty(0, dtype=embedding.dtype).numpy().dtype)
    tokens = np.flatnonzero(inside == 0)
    classes = automaton.unsigned_class_of[tokens]
    classes.flags.writeable = False  # like `unsigned_class_of`: otherwise the loops are compiled twice
    largest_class = (label, tokens.astype(np.uint32), classes, inside)
    edges = automaton.edges
    arguments = (
        *largest_class,
        SMALLEST_SHARE,
        LARGEST_RATIO,
        automaton.useful,
        edges.members_first,
        edges.members,
        automaton.arrows,
        automaton.live(length),
        automaton.accepting,
    )
    outside_embedding = embedding if label < 0 else embedding[torch.from_numpy(tokens)]
    return Plan(*largest_class, outside_embedding, arguments, embedding, version, length)


def conditional_mean(
    logits: Tensor,
    p: Tensor,
    x: Tensor,
    automata: Sequence[TokenAutomaton],
    plans: Sequence[Plan],
    by_path: bool,
    draws: Sequence[np.random.Generator] | None = None,
) -> tuple[Tensor, Tensor]:
    """log P(L) (B,) and q·E (B, L, d) from logits, p (which may be overwritten) and x = p·E, on the CPU.

    With `by_path` the result is conditioned on the most probable path, with `draws` on a drawn path per sample.
    Products are computed per sample, so that they round the same in every batch.
    """
    probs, log_probs = p.numpy(), np.empty(len(plans))
    factors = np.empty((*probs.shape[:2], 1), probs.dtype)
    differences = _empty_differences(p, plans)
    loop: Any = kernels.closed_form

    def work(i: int) -> _ExplicitRows | None:
        succeeded, difference = False, differences[i].numpy()
        if draws is None:
            log_probs[i], succeeded = loop(probs[i], by_path, *plans[i].arguments, difference, factors[i, :, 0])
        if succeeded:
            return None
        ratios = cpu.path_ratios(draws[i] if draws else None) if by_path else cpu.posterior_ratios
        scores = cpu.Scores(probs[i], logits[i].numpy())
        log_probs[i], explicit = _by_parts(scores, automata[i], plans[i], ratios, difference, factors[i, :, 0])
        return explicit

    explicit_rows = cpu.over_batch(work, len(plans))
    mean = _products(differences, plans).addcmul_(torch.from_numpy(factors), x)
    for i, explicit in enumerate(explicit_rows):
        if explicit is not None:
            mean[i, explicit.rows] = x[i, explicit.rows] if explicit.q is None else explicit.q @ plans[i].source
    return torch.from_numpy(log_probs), mean


def _empty_differences(p: Tensor, plans: Sequence[Plan]) -> Tensor | list[Tensor]:
    """The output arrays for the differences (L, R) per sample.

    One tensor if all samples share a plan; p itself if no class is large enough, so that R is V.
    """
    if not all(plan is plans[0] for plan in plans):
        return [_empty_differences(p[i : i + 1], [plan])[0] for i, plan in enumerate(plans)]
    return p if plans[0].label < 0 else p.new_empty(*p.shape[:2], len(plans[0].tokens))


def _products(differences: Tensor | list[Tensor], plans: Sequence[Plan]) -> Tensor:
    """The differences times the embeddings of their tokens, (B, L, d)."""
    if isinstance(differences, Tensor):
        return torch.bmm(differences, plans[0].embedding.expand(len(plans), -1, -1))
    return torch.cat([_products(sample[None], plans[i : i + 1]) for i, sample in enumerate(differences)])


@dataclass(frozen=True)
class _ExplicitRows:
    """The positions whose mean is q·E with q over all tokens, or p·E if there is no q."""

    rows: NDArray[np.int64]  # (N,)
    q: Tensor | None  # (N, V)


def _by_parts(
    scores: cpu.Scores,
    automaton: TokenAutomaton,
    plan: Plan,
    ratios: cpu.Ratios,
    differences: cpu.Array,
    factor: cpu.Array,
) -> tuple[float, _ExplicitRows | None]:
    """The computation of the fused loop in separate parts, for samples where the fused loop fails."""
    if plan.label < 0:
        factor[:] = 0.0
        return cpu.marginals(scores, automaton, ratios, out=differences), None
    sums = np.empty((scores.length, automaton.n_classes))
    outside = (plan.label, plan.tokens, plan.classes)
    kernels.class_sums_outside(scores.probs, plan.inside, *outside, SMALLEST_SHARE, sums, differences)
    w = cpu.weights(scores, automaton, sums)
    log_p_language, ratio = ratios(w, automaton)
    if ratio is None:
        factor[:], differences[:] = 0.0, 0.0
        return log_p_language, _ExplicitRows(np.arange(scores.length), None)
    by_class, rescue = cpu.token_ratios(w, ratio, w.scaled * ratio, scores.probs.dtype)
    is_explicit = rescue | (by_class[:, plan.label] > LARGEST_RATIO)
    factor[:] = np.where(is_explicit, 0.0, by_class[:, plan.label])
    rows = np.flatnonzero(is_explicit)
    explicit = None
    if len(rows):
        q = np.empty((len(rows), automaton.vocab_size), scores.probs.dtype)
        cpu.expand(scores.at(rows), automaton, w.at(rows), ratio[rows], q)
        explicit = _ExplicitRows(rows, torch.from_numpy(q))
    kernels.scale_by_ratio_differences(differences, plan.label, plan.classes, by_class, is_explicit)
    return log_p_language, explicit

"""The mean embedding given acceptance, q·E, without q: what guidance in closed form asks at every step.

The tokens of a class share one q/p. Automata have few classes, and often one of them holds most of the tokens.
With r its ratio,

    q·E = r·(p·E) + Σ (q[v] − r·p[v])·E[v] over the tokens v of the other classes,

and p·E is there already: nothing but the softmax goes over the whole vocabulary. At positions where r is so large
that the difference would lose digits, q is made after all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.acceptance import cpu
from diffinity.acceptance import numba_kernels as kernels
from diffinity.alignment.automaton import TokenAutomaton

WORTH_IT = (
    0.75  # the share of the vocabulary above which the other classes are not fewer tokens in any useful sense
)
LARGEST_RATIO = 8.0  # of q to p in the largest class: three bits are lost at most
LEAST_SHARE = 0.05  # of the probability: a smaller class is summed by itself


@dataclass(frozen=True)
class Rest:
    """The tokens outside an automaton's largest class."""

    label: int  # the largest class
    tokens: NDArray[np.uint32]  # (R,)
    classes: NDArray[np.uint32]  # (R,)
    inside: cpu.Array  # (V,): 1 for the tokens of the largest class
    embedding: Tensor  # (R, d)
    source: Tensor  # (V, d): the matrix whose rows these are
    version: int  # of `source` when they were taken


_rests: WeakKeyDictionary[TokenAutomaton, Rest] = WeakKeyDictionary()


def rest_of(automaton: TokenAutomaton, embedding: Tensor) -> Rest | None:
    """What lies outside the largest class, kept for the next step; None where that is most of the vocabulary."""
    version = 0 if embedding.is_inference() else embedding._version
    found = _rests.get(automaton)
    if found is not None and found.source is embedding and found.version == version:
        return found
    sizes = np.bincount(automaton.class_of, minlength=automaton.n_classes)
    label = int(sizes.argmax())
    if automaton.vocab_size - sizes[label] > WORTH_IT * automaton.vocab_size:
        return None
    tokens = np.flatnonzero(automaton.class_of != label)
    made = Rest(
        label,
        tokens.astype(np.uint32),
        automaton.unsigned_class_of[tokens],
        (automaton.class_of == label).astype(torch.empty(0, dtype=embedding.dtype).numpy().dtype),
        embedding[torch.from_numpy(tokens)],
        embedding,
        version,
    )
    _rests[automaton] = made
    return made


def conditional_mean(
    samples: Sequence[cpu.Scores],
    automata: Sequence[TokenAutomaton],
    ratios: Sequence[cpu.Ratios],
    x: Tensor,
    embedding: Tensor,
) -> tuple[list[float], Tensor]:
    """What each of `ratios` finds, and q·E (B, L, d), from x = p·E and the embedding (V, d) of the same type.

    A sample's products are its own, so that they round the same in every batch.
    """
    rests = [rest_of(automaton, embedding) for automaton in automata]

    def work(i: int) -> tuple[float, _Parts]:
        return _parts(samples[i], automata[i], ratios[i], rests[i])

    found = cpu.over_batch(work, len(samples))
    means = [_mean(parts, x[i], rests[i], embedding) for i, (_, parts) in enumerate(found)]
    return [log_prob for log_prob, _ in found], torch.stack(means)


@dataclass(frozen=True)
class _Parts:
    """Of one sample, what is multiplied with which embeddings; without any of them, q is p."""

    of_rest: tuple[Tensor, Tensor] | None = None  # r (L, 1) and q − r·p (L, R)
    rows: Tensor | None = None  # (N,): the positions that q is made for; None for all of them
    q: Tensor | None = None  # (N, V)


def _parts(
    scores: cpu.Scores, automaton: TokenAutomaton, ratios: cpu.Ratios, rest: Rest | None
) -> tuple[float, _Parts]:
    if rest is None:
        q = scores.probs  # in place, as below
        return cpu.marginals(scores, automaton, ratios, out=q), _Parts(q=torch.from_numpy(q))
    sums = np.empty((scores.length, automaton.n_classes))
    outside = (rest.label, rest.tokens, rest.classes)
    kernels.class_sums_outside(scores.probs, rest.inside, *outside, LEAST_SHARE, sums)
    w = cpu.weights(scores, automaton, sums)
    log_prob, ratio = ratios(w, automaton)
    if ratio is None:
        return log_prob, _Parts()
    by_class, rescue = cpu.token_ratios(w, ratio, w.scaled * ratio, scores.probs.dtype)
    apart = rescue | (by_class[:, rest.label] > LARGEST_RATIO)
    rows = np.flatnonzero(apart)
    q = np.empty((len(rows), automaton.vocab_size), scores.probs.dtype)
    if len(rows):
        cpu.expand(scores.at(rows), automaton, w.at(rows), ratio[rows], q)
    kernels.contrast(scores.probs, *outside, by_class, apart)  # over p: a new array would cost time
    of_rest = (
        torch.from_numpy(by_class)[:, rest.label, None],
        torch.from_numpy(scores.probs)[:, : len(rest.tokens)],
    )
    return log_prob, _Parts(of_rest, torch.from_numpy(rows), torch.from_numpy(q)) if len(rows) else _Parts(of_rest)


def _mean(parts: _Parts, x: Tensor, rest: Rest | None, embedding: Tensor) -> Tensor:
    """q·E (L, d) of one sample from x = p·E."""
    of_all = None if parts.q is None else parts.q @ embedding
    if parts.of_rest is None or rest is None:
        return x if of_all is None else of_all
    factor, differences = parts.of_rest
    mean = torch.addmm(factor * x, differences, rest.embedding)
    return mean if of_all is None or parts.rows is None else mean.index_copy(0, parts.rows, of_all)

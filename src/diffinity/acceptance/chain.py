"""Acceptance with dependent neighbours: P(L) and marginals for a Markov chain over positions.

The model gives a marginal p_k for each position. Bigrams give the dependence of neighbouring tokens. The coupling
of positions k and k + 1 is the joint distribution with marginals p_k and p_{k+1} that is closest to the bigram
distribution (Sinkhorn's iteration). All couplings together are a Markov chain over positions whose marginals are
the model's. Forward and backward sums over pairs of (automaton state, token) give P(L) and the marginals given L
of that chain.

A coupling has a limited number of candidates: at each position the most probable tokens, before and after
conditioning on L with independent positions, and one candidate for the rest of each token class.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.acceptance import Acceptance, _check, cpu
from diffinity.acceptance import chain_kernels as kernels
from diffinity.alignment.automaton import TokenAutomaton
from diffinity.alignment.bigrams import Bigrams

CANDIDATES = 20  # number of most probable tokens before conditioning, and the same number after it
LEAST = 1e-4  # minimum probability of a candidate for the rest of a class; for a token, a tenth of it
ROUNDS = 2  # of Sinkhorn's iteration: more rounds made no measurable difference to the fidelity
MOST_STATES = 1000  # maximum for an automaton; with more states, positions are independent


def chain_acceptance(
    logits: Tensor,
    automata: Sequence[TokenAutomaton],
    bigrams: Bigrams,
    *,
    softmax: Tensor | None = None,
    candidates: int = CANDIDATES,
) -> Acceptance:
    """log P(L) and marginals given L, with the dependence between neighbouring tokens from `bigrams`.

    For logits (B, L, V) and one automaton per sample; computed on the CPU, in float32. If an automaton has more
    than MOST_STATES states, or no string of candidates is accepted, the sample gets the result of `acceptance`,
    with independent positions.

    >>> from diffinity.alignment import Vocabulary, align
    >>> from diffinity.constraints import Regex
    >>> pairs = Bigrams.count([[0, 1], [1, 0]] * 9, vocab_size=3, eos=2)
    >>> either = align(Regex("aa|bb|ab"), Vocabulary([b"a", b"b", b"c"]), framing="exact")
    >>> chain_acceptance(torch.zeros(1, 2, 3), [either], pairs).marginals[0, 1].round(decimals=1).tolist()
    [0.0, 1.0, 0.0]
    """
    automata = _check(logits, automata)
    probs = (logits.softmax(dim=-1) if softmax is None else softmax).detach().cpu().float()
    samples = cpu.split(logits.detach().cpu().float(), True, probs)
    marginals = torch.empty_like(probs)
    values = cpu.over_batch(
        lambda i: _sample_acceptance(samples[i], automata[i], bigrams, candidates, marginals[i].numpy()),
        len(samples),
    )
    log_p_language = torch.tensor(values, dtype=torch.float64, device=logits.device)
    return Acceptance(log_p_language, marginals.to(logits))


def _sample_acceptance(
    scores: cpu.Scores,
    automaton: TokenAutomaton,
    bigrams: Bigrams,
    candidates: int,
    marginals: NDArray[np.float32],
) -> float:
    """Return log P(L) of one sample, and write its marginals into `marginals` (L, V)."""
    weights = cpu.weights(scores, automaton)
    log_p_language, ratio = cpu.posterior_ratios(weights, automaton)
    if ratio is None:
        marginals[:] = scores.probs
        return log_p_language
    cpu.expand(scores, automaton, weights, ratio, marginals)
    if automaton.n_states > MOST_STATES:
        return log_p_language
    probs, length = scores.probs, scores.length
    top = np.empty((length, 2 * min(candidates, probs.shape[1])), np.int32)
    kernels.most_probable(probs, marginals, 0.1 * LEAST, top)
    width = top.shape[1] + automaton.n_classes + 1
    token, cls = np.empty((length, width), np.int32), np.empty((length, width), np.int32)
    mass, size = np.zeros((length, width)), np.empty(length, np.int32)
    # The probability of each class, before and after conditioning.
    by_class = (weights.sums.copy(), weights.scaled * ratio)
    kernels.choose_candidates(
        probs, marginals, *by_class, top, automaton.class_of, automaton.useful, LEAST, token, cls, mass, size
    )
    width = int(size.max())
    token, cls, mass = (np.ascontiguousarray(part[:, :width]) for part in (token, cls, mass))
    moves = np.empty((length - 1, width, width))
    pairs = (bigrams.first, bigrams.successor, bigrams.ratio, bigrams.unseen)
    kernels.couplings(mass, token, size, *pairs, ROUNDS, moves)
    candidate_marginals = np.empty((length, width))
    live = automaton.live(length)
    log_p_chain: float = kernels.chain_marginals(
        mass, cls, size, moves, automaton.next, automaton.start, automaton.accepting, live, candidate_marginals
    )
    if log_p_chain == -np.inf:
        return log_p_language
    kernels.spread(
        probs, marginals, automaton.class_of, token, cls, mass, size, candidate_marginals, automaton.n_classes
    )
    return log_p_chain

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
from torch import Tensor

from diffinity.acceptance import Acceptance, Backend, acceptance
from diffinity.acceptance import chain_kernels as kernels
from diffinity.alignment.automaton import TokenAutomaton
from diffinity.alignment.bigrams import Bigrams

CANDIDATES = 20  # most probable tokens, before conditioning and after
LEAST = 1e-4  # the rest of a class is a candidate from this probability on
ROUNDS = 2  # of Sinkhorn's iteration: more rounds made no measurable difference to the fidelity
MOST_STATES = 1000  # of an automaton; with more, positions are independent


def chain_acceptance(
    logits: Tensor,
    automata: Sequence[TokenAutomaton],
    bigrams: Bigrams,
    *,
    softmax: Tensor | None = None,
    candidates: int = CANDIDATES,
    backend: Backend = "auto",
) -> Acceptance:
    """log P(L) and marginals given L, with the dependence between neighbouring tokens from `bigrams`.

    For logits (B, L, V) and one automaton per sample. If an automaton has more than MOST_STATES states, or no
    string of candidates is accepted, the sample gets the result of `acceptance`, with independent positions.

    >>> from diffinity.alignment import Vocabulary, align
    >>> from diffinity.constraints import Regex
    >>> pairs = Bigrams.count([[0, 1], [1, 0]] * 9, vocab_size=3, eos=2)
    >>> either = align(Regex("aa|bb|ab"), Vocabulary([b"a", b"b", b"c"]), framing="exact")
    >>> chain_acceptance(torch.zeros(1, 2, 3), [either], pairs).marginals[0, 1].round(decimals=1).tolist()
    [0.0, 1.0, 0.0]
    """
    softmax = logits.softmax(dim=-1) if softmax is None else softmax
    independent = acceptance(logits, automata, logits=True, softmax=softmax, backend=backend)
    log_p_language, marginals = independent.log_p_language.clone(), independent.marginals
    probs = softmax.detach().cpu().float()
    given = marginals.detach().cpu().float()
    count = min(candidates, probs.shape[2])
    top = torch.cat([given.topk(count, dim=2).indices, probs.topk(count, dim=2).indices], dim=2).numpy()
    changed = False
    for i, automaton in enumerate(automata):
        if automaton.n_states > MOST_STATES or not bool(independent.possible[i]):
            continue
        value = _one_sample(probs[i].numpy(), given[i].numpy(), top[i], automaton, bigrams)
        if value > -np.inf:
            log_p_language[i] = value
            changed = True
    return Acceptance(log_p_language, given.to(marginals) if changed else marginals)


def _one_sample(
    probs: np.ndarray, marginals: np.ndarray, top: np.ndarray, automaton: TokenAutomaton, bigrams: Bigrams
) -> float:
    """log P(L) of one sample's chain; overwrites `marginals` (L, V) unless the result is −inf."""
    length = probs.shape[0]
    width = top.shape[1] + automaton.n_classes + 1
    token, cls = np.empty((length, width), np.int32), np.empty((length, width), np.int32)
    mass, size = np.zeros((length, width)), np.empty(length, np.int32)
    kernels.choose_candidates(
        probs, marginals, top, automaton.class_of, automaton.useful, LEAST, token, cls, mass, size
    )
    width = int(size.max())
    token, cls, mass = (np.ascontiguousarray(part[:, :width]) for part in (token, cls, mass))
    moves = np.empty((length - 1, width, width))
    pairs = (bigrams.first, bigrams.successor, bigrams.ratio, bigrams.unseen)
    kernels.couplings(mass, token, size, *pairs, ROUNDS, moves)
    given = np.empty((length, width))
    live = automaton.live(length)
    value: float = kernels.chain_marginals(
        mass, cls, size, moves, automaton.next, automaton.start, automaton.accepting, live, given
    )
    if value > -np.inf:
        kernels.spread(probs, marginals, automaton.class_of, token, cls, mass, size, given, automaton.n_classes)
    return value

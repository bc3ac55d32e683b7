"""The choice of the next token of a text: a draw from the tokens after which the text can be completed.

A table log ψ (length + 1, S + 1) has a value for every number of tokens and automaton state. `completable` says
only whether the text can be finished within the length. A step then draws from the model's distribution over the
tokens after which the text can be finished. This is not p(text | L): a probable token may have only improbable
completions. `look_ahead` is the probability of acceptance for tokens that are drawn independently, ψ_k[s] = Σ_v
u_k[v]·ψ_{k+1}[δ(s, v)]; it is the proposal of particles. The last column of a table, −inf, belongs to the
transition −1.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from diffinity.alignment import TokenAutomaton
from diffinity.models.protocol import CausalModel

FREE_TEXTS = 128  # number of unconstrained texts from which token frequencies are estimated
FREE_SEED = 0
SMALLEST = 1e-30  # of a frequency: no possible token may have probability 0
CACHED_TABLES = 4  # tables (length, V) cached per model
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def completable(automaton: TokenAutomaton, length: int) -> Floats:
    """The table that is 0 where an accepted text of `length` tokens can still be finished, and −inf elsewhere.

    >>> import diffinity as dy
    >>> automaton = dy.align(dy.Regex("a*b"), dy.Vocabulary([b"a", b"b", None], eos_id=2), "eos")
    >>> table = completable(automaton, length=3)
    >>> after_a = automaton.state_after([0])
    >>> allowed_tokens(automaton, table[2], np.array([after_a])).tolist()  # two are left: "b" and the end
    [[-inf, 0.0, -inf]]
    """
    live = automaton.live(length)
    table = np.full((length + 1, automaton.n_states + 1), -np.inf)
    table[:, :-1][live] = 0.0
    return table


def has_end(automaton: TokenAutomaton) -> bool:
    """Whether the texts of an automaton end at an end token, so that any tokens may follow it.

    >>> import diffinity as dy
    >>> vocabulary = dy.Vocabulary([b"a", None], eos_id=1)
    >>> [has_end(dy.align(dy.Regex("a"), vocabulary, framing)) for framing in ("eos", "exact")]
    [True, False]
    """
    return automaton.framing in ("eos", "eos_strict")


def look_ahead(automaton: TokenAutomaton, frequencies: Floats) -> Floats:
    """The table of the acceptance probability from each state, for tokens drawn independently from `frequencies`.

    A text that has ended stays accepted.

    >>> import diffinity as dy
    >>> automaton = dy.align(dy.Regex("a*b"), dy.Vocabulary([b"a", b"b", None], eos_id=2), "eos")
    >>> psi = np.exp(look_ahead(automaton, np.full((3, 3), 1 / 3)))
    >>> psi[0, 0].round(4).item() == round(1 / 9 + 1 / 27, 4)  # "b" or "ab", each with its end
    True
    """
    length, classes = frequencies.shape[0], automaton.n_classes
    live = automaton.live(length)
    mass = np.zeros((length, classes))
    for k in range(length):
        mass[k] = np.bincount(automaton.class_of, frequencies[k], classes)
    table = np.full((length + 1, automaton.n_states + 1), -np.inf)
    table[length, :-1][automaton.accepting & live[length]] = 0.0
    ended = automaton.next[:, automaton.class_of[automaton.eos_id]] if has_end(automaton) else np.array([-1])
    with np.errstate(divide="ignore"):
        for k in range(length - 1, -1, -1):
            table[k + 1, ended[live[k, : len(ended)] & (ended >= 0)]] = 0.0
            terms = np.log(mass[k]) + table[k + 1][automaton.next]  # (S, C)
            table[k, :-1] = np.where(live[k], np.logaddexp.reduce(terms, axis=1), -np.inf)
    return table


def allowed_tokens(automaton: TokenAutomaton, log_psi: Floats, states: Ints) -> Floats:
    """log ψ after each token (R, V) from the states (R,), given the next row (S + 1,) of a table."""
    by_class = log_psi[automaton.next[states]]  # (R, C)
    return np.asarray(by_class[:, automaton.class_of])


def draw_tokens(scores: Floats, uniforms: Floats, top_p: float = 1.0) -> tuple[Ints, Floats]:
    """A token of each row in proportion to exp(scores (R, V)), by uniforms (R,) from [0, 1); log Σ exp(scores).

    `top_p` below 1 keeps the smallest set of most probable tokens whose share of the sum reaches `top_p`.

    >>> draw_tokens(np.array([[0.2, -np.inf, 2.0]]), np.array([0.3]))[0].tolist()
    [2]
    """
    peak = scores.max(axis=1)
    weights = np.exp(scores - peak[:, None])
    if top_p < 1:
        for row in weights:
            order = np.argsort(-row, kind="stable")
            mass = np.cumsum(row[order])
            row[order[1:][mass[:-1] >= top_p * mass[-1]]] = 0.0
    cumulated = weights.cumsum(axis=1)
    total = cumulated[:, -1]
    drawn = (cumulated <= (uniforms * total)[:, None]).sum(axis=1)
    last = weights.shape[1] - 1 - (weights[:, ::-1] > 0).argmax(axis=1)  # rounding must not exceed this index
    return np.minimum(drawn, last), peak + np.log(total)


_frequencies: WeakKeyDictionary[CausalModel, dict[tuple[int, ...], Floats]] = WeakKeyDictionary()


def free_frequencies(model: CausalModel, length: int, context: Sequence[int] | None = None) -> Floats:
    """The model's distribution at each position, (length, V), averaged over unconstrained texts that reach it.

    If all texts have ended before a position, the distribution of the previous position is used. The last few
    tables of a model are cached.
    """
    tables = _frequencies.setdefault(model, {})
    key = (length, *(context or ()))
    if key not in tables:
        while len(tables) >= CACHED_TABLES:
            del tables[next(iter(tables))]
        tables[key] = _free_frequencies(model, length, context)
    return tables[key]


def _free_frequencies(model: CausalModel, length: int, context: Sequence[int] | None) -> Floats:
    generator = torch.Generator().manual_seed(FREE_SEED)
    continuations = model.start(FREE_TEXTS, length, context)
    running = torch.ones(FREE_TEXTS, dtype=torch.bool)
    rows: list[Floats] = []
    for k in range(length):
        probs = continuations.logits().double().cpu().softmax(dim=1)
        rows.append(probs[running].mean(dim=0).numpy() if bool(running.any()) else rows[-1])
        drawn = torch.multinomial(probs, 1, generator=generator)[:, 0]
        running &= drawn != model.eos_token_id
        if k + 1 < length:
            continuations.append(drawn)
    return np.maximum(np.stack(rows), SMALLEST)

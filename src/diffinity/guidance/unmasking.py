"""The choice of positions and tokens that a step unmasks, with or without a constraint.

| method | positions, in the order "confidence" | tokens |
|---|---|---|
| `joint` | the most confident given L | taken from an exact joint draw of all open positions given L |
| `marginals` | the most confident given L | drawn from the marginals given L; if they clash, as in `joint` |
| `dingo` | the most confident under the model | the most probable that can be completed (Suresh et al., 2025) |
| `none` | the most confident under the model | drawn from the model |

At temperature 0 a joint draw is the most probable string, and an independent draw the most probable token. Except
with `none`, the committed tokens can always be completed: either they are part of an accepted string, or a search
has found a completion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.acceptance.partial import PartialString
from diffinity.acceptance.partial_kernels import draw_index

Method = Literal["joint", "marginals", "dingo", "none"]
Order = Literal["confidence", "entropy", "random", "left-to-right", "ancestral"]
METHODS: tuple[Method, ...] = ("joint", "marginals", "dingo", "none")
ORDERS: tuple[Order, ...] = ("confidence", "entropy", "random", "left-to-right", "ancestral")
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Choice:
    """The tokens that one row commits at a step, with the indices of their positions among the open positions."""

    chosen: Ints  # (k,)
    ids: Ints  # (k,)
    log_p_text: float  # of the tokens under the model's distributions


@dataclass(frozen=True)
class Opening:
    """One row at a step: the distributions of its open positions, and the positions that may get a token now."""

    logits: Tensor  # (M, V), divided by the temperature
    string: PartialString | None  # None without a constraint
    at: Ints  # (M,): the open positions, relative to the window
    in_block: NDArray[np.bool_]  # (M,): whether a position is in the block
    count: int  # number of tokens to commit, unless the step is ancestral
    rate: float  # probability that an ancestral step unmasks an open position of the block
    draws: Floats  # from [0, 1): one per position for the order, then 3·l + 1 for the tokens
    greedy: bool  # temperature 0

    def probs(self, rows: Ints | None = None) -> Tensor:
        """The model's distributions (k, V) at some open positions, or at all of them."""
        logits = self.logits if rows is None else self.logits[torch.from_numpy(rows).to(self.logits.device)]
        return logits.float().softmax(dim=-1)

    def positions(self, order: Order, confidence: Floats) -> Ints:
        """The open positions that get a token now, most confident first."""
        random_keys = self.draws[self.at]
        if order == "ancestral":
            return np.flatnonzero(self.in_block & (random_keys < self.rate))
        keys = {"random": random_keys, "left-to-right": -self.at.astype(np.float64)}
        key = np.where(self.in_block, keys.get(order, confidence), -np.inf)
        count = min(self.count, int(self.in_block.sum()))
        return np.argsort(-key, kind="stable")[:count]


Commit = Callable[[Opening, Order], tuple[Ints, Ints]]  # the open positions that get a token, and their tokens


def commit(method: Method | Commit, order: Order, opening: Opening) -> Choice:
    """The tokens that a row commits at a step."""
    chosen, ids = (method if callable(method) else _COMMITS[method])(opening, order)
    return Choice(chosen, ids, _log_p_text(opening, chosen, ids))


def _joint(opening: Opening, order: Order) -> tuple[Ints, Ints]:
    string = _string(opening)
    chosen = opening.positions(order, _confidence_given(opening, order))
    return chosen, _drawn(opening, string, chosen)


def _drawn(opening: Opening, string: PartialString, chosen: Ints) -> Ints:
    if len(chosen) == 0:
        return chosen
    if opening.greedy:
        return string.best()[chosen]
    return string.draw(chosen, opening.draws[len(string.tokens) :])


def _marginals(opening: Opening, order: Order) -> tuple[Ints, Ints]:
    string = _string(opening)
    chosen = opening.positions(order, _confidence_given(opening, order))
    q = string.marginals().double().cpu().numpy()[chosen]
    ids = _independent_tokens(q, opening, chosen)
    if len(chosen) and not string.can_complete(chosen, ids):
        ids = _drawn(opening, string, chosen)
    return chosen, ids


def _dingo(opening: Opening, order: Order) -> tuple[Ints, Ints]:
    string = _string(opening)
    chosen = opening.positions(order, _confidence(opening, order))
    if len(chosen) == 0:
        return chosen, chosen
    noise = None
    if not opening.greedy:  # the largest of log p + Gumbel noise is a draw from p
        seed = int(opening.draws[len(string.tokens)] * 2**52)
        noise = np.random.default_rng(seed).gumbel(size=(len(chosen), opening.logits.shape[1]))
    return chosen, string.best(chosen, noise)


def _free(opening: Opening, order: Order) -> tuple[Ints, Ints]:
    chosen = opening.positions(order, _confidence(opening, order))
    return chosen, _independent_tokens(opening.probs(chosen).double().cpu().numpy(), opening, chosen)


def _independent_tokens(probs: Floats, opening: Opening, chosen: Ints) -> Ints:
    """One independent token per position, from probs (k, V)."""
    if opening.greedy:
        return probs.argmax(axis=1).astype(np.int64)
    length = (len(opening.draws) - 1) // 4
    draws = opening.draws[3 * length + 1 + opening.at[chosen]]
    return np.array([draw_index(row, draw) for row, draw in zip(probs, draws, strict=True)], np.int64)


def _confidence(opening: Opening, order: Order) -> Floats:
    """(M,): the model's confidence at each open position; computed only if the order needs it."""
    if order == "confidence":
        return opening.probs().amax(dim=-1).double().cpu().numpy()
    return _negative_entropy(opening.probs()) if order == "entropy" else np.zeros(len(opening.at))


def _confidence_given(opening: Opening, order: Order) -> Floats:
    """Like `_confidence`, given acceptance."""
    string = _string(opening)
    if order == "confidence":
        return string.confidence
    if order == "entropy":
        return _negative_entropy(string.marginals())
    return np.zeros(len(opening.at))


def _negative_entropy(probs: Tensor) -> Floats:
    entropy: Floats = -torch.special.entr(probs.double()).sum(dim=-1).cpu().numpy()
    return entropy


def _log_p_text(opening: Opening, chosen: Ints, ids: Ints) -> float:
    if len(chosen) == 0:
        return 0.0
    rows = opening.logits[torch.from_numpy(chosen).to(opening.logits.device)].double()
    token_logits = rows.gather(1, torch.from_numpy(ids).to(rows.device)[:, None])[:, 0]
    return float((token_logits - rows.logsumexp(dim=-1)).sum())


def _string(opening: Opening) -> PartialString:
    assert opening.string is not None
    return opening.string


_COMMITS: dict[Method, Commit] = {"joint": _joint, "marginals": _marginals, "dingo": _dingo, "none": _free}

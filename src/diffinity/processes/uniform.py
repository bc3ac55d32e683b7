"""Uniform noise on tokens: every position always has a token, and each step replaces some of them.

The process of Duo and UDLM. At time t a token is still the clean token with probability α = 1 − t, otherwise a
token drawn uniformly from all V. A step draws clean tokens x₀ from the network's distributions, jointly given L if
there is a constraint, and then x_s from q(x_s | x_t, x₀). The last step ends in x₀ itself, which is in L.

For particles the model's own kernel is p(x_s | x_t) = Σ p(x₀)·q(x_s | x_t, x₀) over all x₀, and the guided kernel
is the same sum over x₀ in L. Their ratio is P(L) / P(L | x_s). For P(L | x_s) each position's distribution is
multiplied by q(x_s | x_t, ·), which takes one more forward pass of the dynamic programme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.acceptance.cpu import over_batch
from diffinity.acceptance.partial import OPEN, PartialString
from diffinity.acceptance.partial_kernels import draw_index
from diffinity.alignment import TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.processes.base import Draws, Ending
from diffinity.processes.tokens import Network, TokenPrediction, TokenState

METHODS = ("joint", "marginals", "none")
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class UniformProcess:
    """A uniform process: the network, the automata (one per row) and the method.

    `joint` draws x₀ jointly given L; `marginals` draws each position independently given L; `none` draws from the
    model. At temperature 0 x₀ is the most probable string.
    """

    network: Network
    automata: Sequence[TokenAutomaton]
    length: int
    num_inference_steps: int
    method: str = "joint"
    temperature: float = 1.0
    weighted: bool = False

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InvalidArgument(
                f"guidance of a model with uniform noise must be auto or one of {', '.join(METHODS)}, but is "
                f"{self.method!r}"
            )
        if self.weighted and (self.method != "joint" or self.temperature != 1):
            raise InvalidArgument("particles of a uniform process are proposed by 'joint' at temperature 1")

    def begin(self, draws: Draws, length: int) -> TokenState:
        """Tokens drawn uniformly."""
        tokens = (draws.uniform(length) * self.network.model.vocab_size).long()
        return TokenState(tokens, 0, torch.zeros(len(draws), dtype=torch.float64))

    def predict(self, state: TokenState) -> TokenPrediction:
        """The network's prediction at the current tokens, and the partial strings of its distributions."""
        logits = self.network(state.tokens, self._time(state.step))
        return self._prediction(state, logits)

    def _prediction(self, state: TokenState, logits: Tensor) -> TokenPrediction:
        batch, length = state.tokens.shape
        running = torch.arange(batch)
        if self.method == "none":
            return TokenPrediction(running, logits, 0, batch, length)
        all_open = torch.full((length,), OPEN)
        strings = tuple(
            PartialString.of(self._cooled(row), all_open, automaton)
            for row, automaton in zip(logits, self.automata, strict=True)
        )
        log_acceptance = torch.tensor(over_batch(lambda i: strings[i].log_p_language, batch)).double()
        return TokenPrediction(running, logits, 0, batch, length, strings, log_acceptance)

    def step(self, state: TokenState, prediction: TokenPrediction, draws: Draws) -> TokenState:
        """The tokens at the next, less noisy time."""
        t, s = self._time(state.step), self._time(state.step + 1)
        length, vocab = state.tokens.shape[1], self.network.model.vocab_size
        numbers = draws.uniform(5 * length + 1).numpy()

        def work(i: int) -> tuple[Ints, float, float]:
            token_draws, noise_draws = numbers[i, : 3 * length + 1], numbers[i, 3 * length + 1 :]
            clean, log_p_text = self._clean(prediction, i, token_draws)
            current = state.tokens[i].numpy()
            moved = bridge(current, clean, t, s, vocab, noise_draws[:length], noise_draws[length:])
            if not self.weighted:
                return moved, log_p_text, 0.0
            return moved, log_p_text, _log_ratio(prediction, i, current, moved, t, s, vocab)

        rows = over_batch(work, len(state.tokens))
        tokens = torch.from_numpy(np.stack([row[0] for row in rows]))
        log_p_text = torch.tensor([row[1] for row in rows], dtype=torch.float64)
        log_ratio = torch.tensor([row[2] for row in rows], dtype=torch.float64) if self.weighted else None
        return TokenState(tokens, state.step + 1, log_p_text, prediction, log_ratio)

    def finish(self, state: TokenState) -> Ending:
        """The tokens after the last step; before it, the distributions at the current tokens."""
        if state.step == self.num_inference_steps:
            return Ending(tokens=state.tokens, log_p_text=state.log_p_text)
        return Ending(self.network(state.tokens, self._time(state.step)).float())

    def _time(self, step: int) -> float:
        return 1.0 - step / self.num_inference_steps

    def _cooled(self, logits: Tensor) -> Tensor:
        return logits if self.temperature in (0, 1) else logits / self.temperature

    def _clean(self, prediction: TokenPrediction, i: int, numbers: Floats) -> tuple[Ints, float]:
        """Clean tokens (L,), and their log probability under the network's distributions."""
        length = prediction.length
        if prediction.strings is None:
            logits = self._cooled(prediction.network_logits[i])
            ids = self._independent_tokens(
                logits.float().softmax(dim=-1).double().cpu().numpy(), numbers[2 * length + 1 :]
            )
        else:
            string, logits = prediction.strings[i], prediction.strings[i].logits
            positions = np.arange(length)
            if self.temperature == 0:
                ids = string.best()
            elif self.method == "joint":
                ids = string.draw(positions, numbers)
            else:
                ids = self._independent_tokens(
                    string.marginals().double().cpu().numpy(), numbers[2 * length + 1 :]
                )
                if not string.can_complete(positions, ids):
                    ids = string.draw(positions, numbers)
        rows = logits.double()
        token_logits = rows.gather(1, torch.from_numpy(ids).to(rows.device)[:, None])[:, 0]
        return ids, float((token_logits - rows.logsumexp(dim=-1)).sum())

    def _independent_tokens(self, probs: Floats, draws: Floats) -> Ints:
        if self.temperature == 0:
            return probs.argmax(axis=1).astype(np.int64)
        return np.array([draw_index(row, draw) for row, draw in zip(probs, draws, strict=True)], np.int64)


def log_bridge(to: Ints, now: Ints, clean: Ints, t: float, s: float, vocab: int) -> Floats:
    """log q(x_s = to | x_t = now, x₀ = clean), elementwise, for α = 1 − t.

    With α_{t|s} = α_t / α_s it is q(x_t | x_s)·q(x_s | x₀) / q(x_t | x₀).

    >>> now, clean = np.array([1]), np.array([2])
    >>> total = sum(np.exp(log_bridge(np.array([i]), now, clean, 0.6, 0.3, vocab=4)) for i in range(4))
    >>> float(np.round(total[0], 12))
    1.0
    """
    alpha_t, alpha_s = 1.0 - t, 1.0 - s
    alpha_t_given_s = alpha_t / alpha_s
    p_xt_given_xs = alpha_t_given_s * (to == now) + (1 - alpha_t_given_s) / vocab
    p_xs_given_x0 = alpha_s * (to == clean) + (1 - alpha_s) / vocab
    p_xt_given_x0 = alpha_t * (now == clean) + (1 - alpha_t) / vocab
    with np.errstate(divide="ignore"):
        log_ratio: Floats = np.log(p_xt_given_xs) + np.log(p_xs_given_x0) - np.log(p_xt_given_x0)
    return log_ratio


def bridge(now: Ints, clean: Ints, t: float, s: float, vocab: int, draws: Floats, token_draws: Floats) -> Ints:
    """A draw from q(x_s | x_t = now, x₀ = clean) at every position, by two uniform numbers from [0, 1) each.

    `draws` choose between the current token, the clean token and any other token; `token_draws` choose the other.
    """
    if s == 0:
        return clean.copy()
    p_now = np.exp(log_bridge(now, now, clean, t, s, vocab))
    p_clean = np.where(now == clean, 0.0, np.exp(log_bridge(clean, now, clean, t, s, vocab)))
    random_tokens = (token_draws * vocab).astype(np.int64)
    moved = np.where(draws < p_now, now, np.where(draws < p_now + p_clean, clean, random_tokens))
    # The other V − 1 or V − 2 tokens are equally likely. If the random token is the current or the clean token,
    # the fractional part of its draw chooses one of the others.
    clashes = (draws >= p_now + p_clean) & ((moved == now) | (moved == clean))
    for k in np.flatnonzero(clashes):
        remaining = np.setdiff1d(np.arange(vocab), [now[k], clean[k]])
        if len(remaining):
            moved[k] = remaining[
                min(int(math.modf(token_draws[k] * vocab)[0] * len(remaining)), len(remaining) - 1)
            ]
    return moved.astype(np.int64)


def _log_ratio(
    prediction: TokenPrediction, i: int, now: Ints, moved: Ints, t: float, s: float, vocab: int
) -> float:
    """log P(L) − log P(L | x_s); 0 if P(L) = 0."""
    assert prediction.strings is not None
    string = prediction.strings[i]
    if string.log_p_language == -np.inf:
        return 0.0
    if s == 0:  # the last step ends in clean tokens, which are in L
        return string.log_p_language
    logits = string.logits.double().cpu().clone()
    rows = torch.arange(len(now))
    neither = np.full_like(now, -1)  # a clean token that is neither the current nor the next token
    base = log_bridge(moved, now, neither, t, s, vocab)
    for clean in (now, moved):
        ids = torch.from_numpy(clean)
        logits[rows, ids] = string.logits[rows, ids].double().cpu() + torch.from_numpy(
            log_bridge(moved, now, clean, t, s, vocab) - base
        )
    reweighted = PartialString.of(logits, torch.full((len(now),), OPEN), string.automaton)
    return string.log_p_language - reweighted.log_p_language

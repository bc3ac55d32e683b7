"""Token strings under a constraint, drawn by each method that the fidelity studies compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from diffinity.acceptance import decode
from diffinity.alignment import TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.guidance import (
    ChainGuidance,
    GradientGuidance,
    Guidance,
    MixedGuidance,
    PathGuidance,
    PosteriorGuidance,
)
from diffinity.models.markov import MarkovLM
from diffinity.models.protocol import DiffusionLM
from diffinity.models.tokenization import END_OF_TEXT
from diffinity.sampling import sample, sample_particles


def word_tokenizer(texts: Sequence[str]) -> Tokenizer:
    """One token per word of `texts` (with the space before it) and punctuation mark; token 0 ends a text.

    >>> word_tokenizer(["It was."]).encode("It was.").tokens
    ['It', 'Ġwas', '.']
    """
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = dict.fromkeys(word for text in texts for word, _ in split.pre_tokenize_str(text))
    ids = {word: token_id for token_id, word in enumerate([END_OF_TEXT, *words])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=END_OF_TEXT))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer


def transition_matrix(model: MarkovLM) -> NDArray[np.float64]:
    """P(next context | context), (K, K), with restarts.

    >>> import diffinity as dy
    >>> bool(np.allclose(transition_matrix(dy.fit_markov(["a b.", "b a."])).sum(axis=1), 1.0))
    True
    """
    chain = model.chain
    n = chain.token.shape[0]
    dense = np.zeros((n, n))
    np.add.at(dense, (np.repeat(np.arange(n), np.diff(chain.first)), chain.target), chain.prob)
    mixed: NDArray[np.float64] = (1 - chain.restart)[:, None] * dense + chain.restart[:, None] * chain.jump
    return mixed


def masked_autoregressive(
    model: MarkovLM, automaton: TokenAutomaton, n: int, length: int, seed: int = 0
) -> NDArray[np.int64]:
    """n token strings (n, length) by locally constrained decoding, from the chain's own conditionals.

    At each position, tokens after which acceptance is impossible are masked in the next-token distribution, which
    is then renormalised. If the model gives all other tokens probability zero, the next context is drawn as after
    a restart, as smoothing would do.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["a b.", "a c.", "a c."])
    >>> starts = dy.align(dy.Regex("a b.*"), dy.Vocabulary.from_tokenizer(model.tokenizer))
    >>> starts.accepts(masked_autoregressive(model, starts, n=1, length=5)[0].tolist())
    True
    """
    chain, transitions = model.chain, transition_matrix(model)
    token_of_context = np.zeros((chain.token.shape[0], model.embedding.shape[0]))  # (K, V), one-hot
    token_of_context[np.arange(chain.token.shape[0]), chain.token] = 1.0
    automaton.check_feasible(length)
    live = automaton.live(length)
    table = automaton.next[:, automaton.class_of].astype(np.int64)  # (S, V)
    draws = np.random.default_rng(seed).random((n, length))  # row i is the same for every n
    ids = np.zeros((n, length), np.int64)
    state = np.zeros(n, np.int64)
    p_context = np.zeros((n, 0))
    for k in range(length):
        p_next_context = np.tile(chain.start, (n, 1)) if k == 0 else p_context @ transitions
        allowed = (table[state] >= 0) & live[k + 1][table[state]]  # (n, V)
        weights = (p_next_context @ token_of_context) * allowed
        for fallback in (chain.jump @ token_of_context, np.ones(token_of_context.shape[1])):
            stuck = weights.sum(axis=1) == 0.0
            weights[stuck] = fallback * allowed[stuck]
            p_next_context[stuck] = chain.jump
        ids[:, k] = drawn(weights, draws[:, k])
        p_context = p_next_context * (chain.token == ids[:, k, None])
        p_context[p_context.sum(axis=1) == 0.0] = chain.jump
        p_context /= p_context.sum(axis=1, keepdims=True)
        state = table[state, ids[:, k]]
    return ids


def drawn(weights: NDArray[np.float64], draws: NDArray[np.float64]) -> NDArray[np.int64]:
    """A column drawn for each row of `weights` (n, V), by `draws` (n,) in [0, 1); weight 0 is never drawn.

    >>> drawn(np.array([[1.0, 3.0, 0.0]] * 2), np.array([0.2, 0.999])).tolist()
    [0, 1]
    """
    cumulative = weights.cumsum(axis=1)
    columns = (cumulative <= draws[:, None] * cumulative[:, -1:]).sum(axis=1)
    last = weights.shape[1] - 1 - (weights[:, ::-1] > 0).argmax(axis=1)
    return np.minimum(columns, last)


def guidance(method: str, automata: Sequence[TokenAutomaton], scale: float) -> Guidance:
    """A guidance by name, for many rows with few automata, where the batched backend is faster.

    >>> guidance("path", [], 1.5).scale
    1.5
    """
    gradient, path = GradientGuidance(automata, scale, backend="torch"), PathGuidance(automata, scale)
    guidances: dict[str, Guidance] = {
        "posterior": PosteriorGuidance(automata, scale, backend="torch"),
        "gradient": gradient,
        "path": path,
        "mixed": MixedGuidance(gradient, path),
        "paper": replace(gradient, guided_selfcond=False),
        "chain": ChainGuidance(automata, scale, backend="torch"),
    }
    if method not in guidances:
        raise InvalidArgument(f"method must be one of {', '.join(guidances)}, but is {method!r}")
    return guidances[method]


@dataclass(frozen=True)
class Weighted:
    """The result of particles: token strings and statistics of the weights."""

    tokens: Tensor  # (n, L)
    log_evidence: float  # log of the mean of the n estimates of P(L)
    relative_error: float  # standard error of that mean, as a share of it; NaN for n = 1
    ess: float  # the mean effective share of the particles


@dataclass(frozen=True)
class Draws:
    """Exact draws from the final token distributions of a model, in chunks of `rows` latents.

    >>> import diffinity as dy
    >>> draws = Draws(dy.fit_markov(["a b.", "b a."]), length=5, steps=4)
    >>> draws.unguided(3).shape[:2]
    torch.Size([3, 5])
    """

    model: DiffusionLM
    length: int
    steps: int
    seed: int = 0
    rows: int = 4096

    def unguided(self, n: int) -> Tensor:
        """The final logits (n, L, V) of the model without guidance."""
        return self._logits(n, lambda _: None)

    def unconstrained(self, logits: Tensor) -> Tensor:
        """Token strings (n, L) drawn from logits, without the constraint."""
        probs = logits.double().softmax(dim=-1).flatten(0, 1).cpu().numpy()
        draws: NDArray[np.float64] = np.random.default_rng(self.seed).random(len(probs))
        return torch.from_numpy(drawn(probs, draws)).view(logits.shape[:2])

    def conditional(self, logits: Tensor, automaton: TokenAutomaton) -> Tensor:
        """Token strings (n, L) drawn from logits given acceptance."""
        return decode(logits, automaton, "sample", logits=True, seed=self.seed).tokens.cpu()

    def guided(self, automaton: TokenAutomaton, n: int, method: str, scale: float) -> Tensor:
        """Token strings (n, L) by a guidance and an exact draw at the end."""
        logits = self._logits(n, lambda rows: guidance(method, [automaton] * rows, scale))
        return self.conditional(logits, automaton)

    def by_particles(self, automaton: TokenAutomaton, n: int, k: int, proposal: str = "posterior") -> Weighted:
        """n token strings, each from K weighted trajectories."""
        tokens, evidence, ess = [], [], []
        strings_per_chunk = max(1, self.rows // k)
        for first in range(0, n, strings_per_chunk):
            seeds = [(self.seed, i) for i in range(first, min(first + strings_per_chunk, n))]
            run = sample_particles(
                self.model,
                [automaton] * len(seeds),
                k,
                self.length,
                num_inference_steps=self.steps,
                seeds=seeds,
                guidance=lambda automata: guidance(proposal, automata, 1.0),
            )
            tokens.append(run.tokens.cpu())
            evidence.append(run.log_evidence)
            ess.append(run.ess.mean(dim=1) / k)
        estimates = torch.cat(evidence)
        peak = estimates.max().clamp(min=-1e300)  # all are −inf if no particle is accepted
        values = (estimates - peak).exp()
        mean = values.mean()
        error = values.std() / (mean * n**0.5) if n > 1 else torch.tensor(torch.nan)
        return Weighted(torch.cat(tokens), float(peak + mean.log()), float(error), float(torch.cat(ess).mean()))

    def _logits(self, n: int, guide: Callable[[int], Guidance | None]) -> Tensor:
        parts = []
        for first in range(0, n, self.rows):
            rows = min(self.rows, n - first)
            run = sample(
                self.model,
                rows,
                self.length,
                num_inference_steps=self.steps,
                seed=self.seed,
                first_index=first,
                guidance=guide(rows),
            )
            parts.append(run.logits)
        return torch.cat(parts)

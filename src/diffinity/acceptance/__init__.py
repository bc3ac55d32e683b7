"""The exact dynamic programme: the probability of acceptance, marginals given acceptance, and best strings.

`acceptance` computes log P(L) and the posterior marginals q. `log_acceptance` is log P(L) as a differentiable
torch function whose gradient is q − p. `decode` and `top` return accepted token strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from diffinity.acceptance import batched, batched_paths, cpu, mean
from diffinity.alignment.automaton import TokenAutomaton
from diffinity.errors import InvalidArgument
from diffinity.limits import Budget, current_limits

Backend = Literal["auto", "numba", "torch", "triton"]
Automata = TokenAutomaton | Sequence[TokenAutomaton]

__all__ = [
    "Acceptance",
    "Decoded",
    "GradientAcceptance",
    "MeanAcceptance",
    "acceptance",
    "decode",
    "gradient_acceptance",
    "log_acceptance",
    "mean_acceptance",
    "path_acceptance",
    "top",
]


@dataclass(frozen=True)
class Acceptance:
    """log P(L) and marginals of a batch."""

    log_p_language: Tensor  # (B,), float64: log P(the string is in L)
    marginals: Tensor  # (B, L, V): P(token k is v | the string is in L); p if P(L) = 0

    @property
    def possible(self) -> Tensor:
        """(B,): whether P(L) > 0."""
        return self.log_p_language > -torch.inf


def acceptance(
    probs: Tensor,
    automaton: Automata,
    *,
    logits: bool = False,
    softmax: Tensor | None = None,
    backend: Backend = "auto",
) -> Acceptance:
    """log P(L) and posterior marginals for token distributions (B, L, V), or with `logits=True` their logits.

    `softmax` (B, L, V) is the softmax of the logits, if the caller has already computed it.

    `automaton` is an automaton for all samples, or a list with one per sample. The CPU runs compiled loops, a GPU
    Triton kernels (`diffinity[triton]`), other devices batched torch; `backend` overrides this choice. If P(L) of
    a sample is zero, its `log_p_language` is −inf and its marginals are p, so the gradient is zero.

    >>> from diffinity.alignment import Vocabulary, align
    >>> from diffinity.constraints import Regex
    >>> cat = align(Regex("ca|b."), Vocabulary([b"a", b"b", b"c"]), framing="exact")
    >>> r = acceptance(torch.tensor([[[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]]]), cat)
    >>> round(float(r.log_p_language.exp()), 6)
    0.6
    """
    automata = _check(probs, automaton)
    if (kernels := _triton(probs, backend)) is not None:
        weights = kernels.weights_of(probs, automata, not logits)
        tilt = kernels.posterior_tilt(weights)
        return Acceptance(tilt.log_p_language, kernels.marginals(weights, tilt, _type_of_marginals(probs)))
    log_p_language = torch.empty(probs.shape[0], dtype=torch.float64, device=probs.device)
    if _use_numba(probs, backend):
        samples = cpu.split(probs.cpu(), logits, None if softmax is None else softmax.cpu())
        marginals = _empty_marginals(probs)
        q = marginals.numpy()
        values = cpu.over_batch(
            lambda i: cpu.marginals(samples[i], automata[i], cpu.posterior_ratios, q[i]), len(samples)
        )
        log_p_language[:] = torch.tensor(values, dtype=torch.float64)
        return Acceptance(log_p_language, marginals.to(probs.device))
    marginals = torch.empty(probs.shape, dtype=torch.float64, device=probs.device)
    for windows, rows in _by_transitions(automata):
        log_p_language[rows], marginals[rows] = batched.marginals(probs[rows].detach(), windows, logits)
    return Acceptance(log_p_language, marginals.to(probs.dtype))


def path_acceptance(
    probs: Tensor,
    automaton: Automata,
    *,
    logits: bool = False,
    softmax: Tensor | None = None,
    seed: int | None = None,
    backend: Backend = "auto",
) -> Acceptance:
    """Like `acceptance`, but conditioned on one path of automaton states instead of all paths.

    The path is the most probable path or, with a `seed`, a draw from the posterior (sample i from (seed, i)).
    `log_p_language` is then the log probability of this path, and `marginals` are those of the tokens along it.

    >>> from diffinity.alignment import Vocabulary, align
    >>> from diffinity.constraints import Regex
    >>> cat = align(Regex("ca|b."), Vocabulary([b"a", b"b", b"c"]), framing="exact")
    >>> r = path_acceptance(torch.tensor([[[0.2, 0.5, 0.3], [0.6, 0.2, 0.2]]]), cat)
    >>> r.marginals[0, 0].tolist()  # the path of "b." has 0.5, that of "ca" 0.18
    [0.0, 1.0, 0.0]
    """
    automata = _check(probs, automaton)
    if (kernels := _triton(probs, backend)) is not None:
        weights, tilt = _path_tilt(kernels, probs, automata, seed, not logits)
        return Acceptance(tilt.log_p_language, kernels.marginals(weights, tilt, _type_of_marginals(probs)))
    samples = cpu.split(probs.cpu(), logits, None if softmax is None else softmax.cpu())
    marginals = _empty_marginals(probs)
    q = marginals.numpy()

    def work(i: int) -> float:
        return cpu.marginals(samples[i], automata[i], cpu.path_ratios(_generator(seed, i)), q[i])

    log_p_language = torch.tensor(cpu.over_batch(work, len(samples)), dtype=torch.float64)
    return Acceptance(log_p_language.to(probs.device), marginals.to(probs.device))


@dataclass(frozen=True)
class MeanAcceptance:
    """The acceptance of a batch with the mean embedding instead of the marginals."""

    log_p_language: Tensor  # (B,), float64
    mean: Tensor  # (B, L, d): q·E


def mean_acceptance(
    logits: Tensor,
    automaton: Automata,
    softmax: Tensor,
    x: Tensor,
    embedding: Tensor,
    *,
    path: bool = False,
    seed: int | None = None,
    certain: float | None = None,
    backend: Backend = "auto",
) -> MeanAcceptance:
    """log P(L) and the mean embedding q·E given acceptance, for logits (B, L, V) and embedding E (V, d).

    `softmax` is the softmax of the logits and may be overwritten; x (B, L, d) is its product with E. With `path`,
    the mean is conditioned on one path of states, as in `path_acceptance`. Samples whose log probability is above
    −`certain` keep x: they need no guidance. On the CPU the cost grows with the number of tokens outside the
    automaton's largest class, and q is computed only where necessary.

    >>> from diffinity.alignment import Vocabulary, align
    >>> from diffinity.constraints import Regex
    >>> cat = align(Regex("c[ab]"), Vocabulary([b"a", b"b", b"c"]), framing="exact")
    >>> logits, embedding = torch.zeros(1, 2, 3), torch.eye(3)
    >>> p = logits.softmax(-1)
    >>> mean_acceptance(logits, cat, p, p @ embedding, embedding).mean.round(decimals=4).tolist()
    [[[0.0, 0.0, 1.0], [0.5, 0.5, 0.0]]]
    """
    if (kernels := _triton(logits, backend)) is not None:
        automata = _check(logits, automaton)
        _check_mean(logits, softmax, x, embedding)
        weights, tilt = _tilt(kernels, logits, automata, path, seed)
        return MeanAcceptance(tilt.log_p_language, kernels.mean(weights, tilt, embedding, x, certain))
    conditional = _mean_acceptance(logits, automaton, softmax, x, embedding, path, seed, backend)
    if certain is None:
        return conditional
    return replace(
        conditional, mean=torch.where((conditional.log_p_language > -certain)[:, None, None], x, conditional.mean)
    )


def _mean_acceptance(
    logits: Tensor,
    automaton: Automata,
    softmax: Tensor,
    x: Tensor,
    embedding: Tensor,
    path: bool,
    seed: int | None,
    backend: Backend,
) -> MeanAcceptance:
    same_type = logits.dtype == softmax.dtype == x.dtype == embedding.dtype
    if backend == "torch" or not _in_compiled_loops(logits) or not same_type:
        conditional = _conditional(logits, automaton, softmax, path, seed, backend)
        # One product per sample, which rounds the same in every batch.
        weights = embedding.expand(logits.shape[0], -1, -1)
        return MeanAcceptance(
            conditional.log_p_language, torch.bmm(conditional.marginals.to(embedding.dtype), weights)
        )
    automata = _automaton_of_each_sample(logits, automaton)
    _check_mean(logits, softmax, x, embedding)
    length = logits.shape[1]

    def check(new_automaton: TokenAutomaton) -> None:
        _check_automaton(logits, new_automaton)

    plans = [mean.plan_of(sample_automaton, embedding, length, check) for sample_automaton in automata]
    draws = [np.random.default_rng((seed, i)) for i in range(len(plans))] if path and seed is not None else None
    p = softmax.detach().contiguous()
    return MeanAcceptance(*mean.conditional_mean(logits.detach().contiguous(), p, x, automata, plans, path, draws))


def _check_mean(logits: Tensor, softmax: Tensor, x: Tensor, embedding: Tensor) -> None:
    batch, length, vocab = logits.shape
    shapes = tuple(softmax.shape), tuple(x.shape), tuple(embedding.shape)
    expected = (batch, length, vocab), (batch, length, embedding.shape[-1]), (vocab, embedding.shape[-1])
    if shapes != expected:
        raise InvalidArgument(f"softmax, x and embedding must have the shapes {expected}, but have {shapes}")


@dataclass(frozen=True)
class GradientAcceptance:
    """The acceptance of a batch with the gradient for guidance through the network."""

    log_p_language: Tensor  # (B,), float64
    gradient: Tensor  # (B, L, V): q − p, which is ∂log P(L)/∂logits; zero if P(L) = 0


def gradient_acceptance(
    logits: Tensor,
    automaton: Automata,
    softmax: Tensor,
    *,
    path: bool = False,
    seed: int | None = None,
    backend: Backend = "auto",
) -> GradientAcceptance:
    """log P(L) and its gradient q − p with respect to the logits (B, L, V); `softmax` may be overwritten.

    With `path`, both are conditioned on one path of states, as in `path_acceptance`.

    >>> from diffinity.alignment import Vocabulary, align
    >>> from diffinity.constraints import Text
    >>> ab = align(Text("ab"), Vocabulary([b"a", b"b"]), framing="exact")
    >>> gradient_acceptance(torch.zeros(1, 2, 2), ab, torch.full((1, 2, 2), 0.5)).gradient.tolist()
    [[[0.5, -0.5], [-0.5, 0.5]]]
    """
    if (kernels := _triton(logits, backend)) is not None:
        weights, tilt = _tilt(kernels, logits, _check(logits, automaton), path, seed)
        return GradientAcceptance(
            tilt.log_p_language, kernels.marginals(weights, tilt, softmax.dtype, minus_p=True)
        )
    if backend == "torch" or not _in_compiled_loops(logits):
        conditional = _conditional(logits, automaton, softmax, path, seed, backend)
        return GradientAcceptance(conditional.log_p_language, conditional.marginals.to(softmax.dtype) - softmax)
    automata = _check(logits, automaton)
    if softmax.shape != logits.shape:
        raise InvalidArgument(
            f"softmax must have the logits' shape {tuple(logits.shape)}, not {tuple(softmax.shape)}"
        )
    p = softmax.detach().to(logits.dtype).contiguous()
    samples, ratios = cpu.split(logits, True, p), _ratios(len(automata), path, seed)

    def work(i: int) -> float:
        return cpu.marginals(samples[i], automata[i], ratios[i], out=samples[i].probs, minus_p=1.0)

    log_p_language = torch.tensor(cpu.over_batch(work, len(samples)), dtype=torch.float64)
    return GradientAcceptance(log_p_language, p)


def _in_compiled_loops(logits: Tensor) -> bool:
    return logits.device.type == "cpu" and logits.dtype in (torch.float32, torch.float64)


def _conditional(
    logits: Tensor, automaton: Automata, softmax: Tensor, path: bool, seed: int | None, backend: Backend
) -> Acceptance:
    if path:
        return path_acceptance(logits, automaton, logits=True, softmax=softmax, seed=seed, backend=backend)
    return acceptance(logits, automaton, logits=True, softmax=softmax, backend=backend)


def _tilt(
    kernels: Any, logits: Tensor, automata: Sequence[TokenAutomaton], path: bool, seed: int | None
) -> tuple[Any, Any]:
    """The weights of the kernels, and the ratio of q to p."""
    if path:
        return _path_tilt(kernels, logits, automata, seed, False)
    weights = kernels.weights_of(logits, automata, False)
    return weights, kernels.posterior_tilt(weights)


def _path_tilt(
    kernels: Any, scores: Tensor, automata: Sequence[TokenAutomaton], seed: int | None, from_probs: bool
) -> tuple[Any, Any]:
    weights = kernels.weights_of(scores, automata, from_probs, log_groups=seed is None)
    keys = None if seed is None else kernels.keys_of(seed, len(automata), scores.device)
    return weights, kernels.path_tilt(weights, keys)


def _type_of_marginals(probs: Tensor) -> torch.dtype:
    return probs.dtype if probs.dtype == torch.float64 else torch.float32


def _ratios(n: int, path: bool, seed: int | None) -> list[cpu.Ratios]:
    return [cpu.path_ratios(_generator(seed, i)) if path else cpu.posterior_ratios for i in range(n)]


def _generator(seed: int | None, sample: int) -> np.random.Generator | None:
    return None if seed is None else np.random.default_rng((seed, sample))


def _empty_marginals(probs: Tensor) -> Tensor:
    """An uninitialised array on the CPU for the marginals of probs (B, L, V)."""
    return torch.empty(probs.shape, dtype=_type_of_marginals(probs))


def log_acceptance(logits: Tensor, automaton: Automata, *, backend: Backend = "auto") -> Tensor:
    """log P(L) (B,) for logits (B, L, V), differentiable: its gradient is q − p, computed without a graph.

    >>> from diffinity.alignment import Vocabulary, align
    >>> from diffinity.constraints import Text
    >>> ab = align(Text("ab"), Vocabulary([b"a", b"b"]), framing="exact")
    >>> logits = torch.zeros(1, 2, 2, requires_grad=True)
    >>> log_acceptance(logits, ab).sum().backward()
    >>> logits.grad[0].tolist()
    [[0.5, -0.5], [-0.5, 0.5]]
    """
    result: Tensor = _LogAcceptance.apply(logits, automaton, backend)  # type: ignore[no-untyped-call]
    return result


class _LogAcceptance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, automaton: Automata, backend: Backend) -> Tensor:
        result = acceptance(logits, automaton, logits=True, backend=backend)
        ctx.save_for_backward(logits, result.marginals, result.possible)
        return result.log_p_language.to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        logits, q, possible = ctx.saved_tensors
        difference = (q - logits.softmax(dim=-1)) * possible[:, None, None]
        return upstream[0][:, None, None] * difference, None, None


@dataclass(frozen=True)
class Decoded:
    """Accepted strings, one per sample."""

    tokens: Tensor  # (B, L)
    log_p_text: Tensor  # (B,), float64: of the string under the distributions


def decode(
    probs: Tensor,
    automaton: Automata,
    how: Literal["best", "sample", "argmax"] = "best",
    *,
    logits: bool = False,
    seed: int | Sequence[tuple[int, int]] | Tensor = 0,
    backend: Backend = "auto",
) -> Decoded:
    """Token strings from distributions (B, L, V).

    `best` is the exact most probable accepted string. `sample` is a draw from the distribution given acceptance
    (sample i from (seed, i), or from the i-th of the given pairs; a tensor of pairs is (B, 2)). Both always give a
    string in the language, or raise `InfeasibleConstraint`. `argmax` takes the most probable token at each
    position, whether or not the string is in the language. The backends draw different strings from the same seed.

    >>> from diffinity.alignment import Vocabulary, align
    >>> from diffinity.constraints import Regex
    >>> ab = align(Regex("ab|ba"), Vocabulary([b"a", b"b"]), framing="exact")
    >>> decode(torch.tensor([[[0.6, 0.4], [0.9, 0.1]]]), ab).tokens.tolist()
    [[1, 0]]
    """
    automata = _check(probs, automaton)
    if how not in ("best", "sample", "argmax"):
        raise InvalidArgument(f"how must be 'best', 'sample' or 'argmax', but is {how!r}")
    seeds = [(seed, i) for i in range(len(automata))] if isinstance(seed, int) else seed
    if len(seeds) != len(automata):
        raise InvalidArgument(f"{len(seeds)} seeds for {len(automata)} samples")
    kernels = _triton(probs, backend)
    in_compiled_loops = kernels is None and _use_numba(probs, backend)
    if how != "argmax":
        for distinct, _ in _by_automaton(automata):
            distinct.check_feasible(probs.shape[1])
        if kernels is not None:
            if how == "best":
                log_p_text, tokens = kernels.best_strings(probs, automata, not logits)
            else:
                keys = kernels.keys_of(seed, len(automata), probs.device)
                log_p_text, tokens = kernels.draws(probs, automata, not logits, keys)
            return Decoded(tokens, log_p_text)
        if not in_compiled_loops:
            return _decode_batched(probs, automata, how, logits, _pairs(seeds))
    seeds = _pairs(seeds)
    samples = cpu.split(probs.cpu(), logits)
    if how == "argmax":
        tokens = probs.argmax(dim=-1)
        chosen = [
            sample.log_probs()[np.arange(sample.length), ids.cpu().numpy()].sum()
            for sample, ids in zip(samples, tokens, strict=True)
        ]
        return Decoded(tokens, torch.tensor(chosen, dtype=torch.float64, device=probs.device))

    def work(i: int) -> tuple[float, Any]:
        if how == "best":
            return cpu.best_string(samples[i], automata[i])
        return cpu.sample_string(samples[i], automata[i], np.random.default_rng(seeds[i]))

    strings = cpu.over_batch(work, len(samples))
    tokens = torch.from_numpy(np.stack([string[1] for string in strings])).to(probs.device)
    return Decoded(
        tokens, torch.tensor([string[0] for string in strings], dtype=torch.float64, device=probs.device)
    )


def _pairs(seeds: Sequence[tuple[int, int]] | Tensor) -> Sequence[tuple[int, int]]:
    return [(a, b) for a, b in seeds.tolist()] if isinstance(seeds, Tensor) else seeds


def _decode_batched(
    probs: Tensor,
    automata: Sequence[TokenAutomaton],
    how: Literal["best", "sample"],
    logits: bool,
    seeds: Sequence[tuple[int, int]],
) -> Decoded:
    tokens = torch.empty(probs.shape[:2], dtype=torch.long, device=probs.device)
    log_p_text = torch.empty(probs.shape[0], dtype=torch.float64, device=probs.device)
    for windows, rows in _by_transitions(automata):
        scores = probs[rows].detach()
        if how == "best":
            log_p_text[rows], tokens[rows] = batched_paths.best_strings(scores, windows, logits)
        else:
            generators = [np.random.default_rng(seeds[i]) for i in rows]
            log_p_text[rows], tokens[rows] = batched_paths.draws(scores, windows, logits, generators)
    return Decoded(tokens, log_p_text)


def top(
    probs: Tensor, automaton: Automata, k: int, *, logits: bool = False, backend: Backend = "auto"
) -> list[list[tuple[float, list[int]]]]:
    """For each sample the k most probable accepted token strings with their log probabilities, best first.

    >>> from diffinity.alignment import Vocabulary, align
    >>> from diffinity.constraints import Regex
    >>> ab = align(Regex("[ab]"), Vocabulary([b"a", b"b"]), framing="exact")
    >>> [ids for _, ids in top(torch.tensor([[[0.6, 0.4]]]), ab, k=3)[0]]
    [[0], [1]]
    """
    if k < 1:
        raise InvalidArgument(f"k must be at least 1, but is {k}")
    automata = _check(probs, automaton)
    if (kernels := _triton(probs, backend)) is not None:
        values, strings = (t.tolist() for t in kernels.top_strings(probs, automata, not logits, k))
        return [
            [(value, ids) for value, ids in zip(*sample, strict=True) if value > -np.inf]
            for sample in zip(values, strings, strict=True)
        ]
    samples = cpu.split(probs.cpu(), logits)
    best = cpu.over_batch(lambda i: cpu.best_strings(samples[i], automata[i], k), len(samples))
    return [[(value, ids.tolist()) for value, ids in strings] for strings in best]


def _check(probs: Tensor, automaton: Automata) -> list[TokenAutomaton]:
    """Check the shapes and return one automaton per sample."""
    automata = _automaton_of_each_sample(probs, automaton)
    for distinct, _ in _by_automaton(automata):
        _check_automaton(probs, distinct)
    return automata


def _automaton_of_each_sample(probs: Tensor, automaton: Automata) -> list[TokenAutomaton]:
    if probs.ndim != 3 or not probs.is_floating_point():
        raise InvalidArgument(
            f"expected floating distributions (B, L, V), but got {probs.dtype} of shape {tuple(probs.shape)}"
        )
    automata = [automaton] * probs.shape[0] if isinstance(automaton, TokenAutomaton) else list(automaton)
    if len(automata) != probs.shape[0]:
        raise InvalidArgument(
            f"{len(automata)} automata for {probs.shape[0]} samples: give one, or one per sample"
        )
    return automata


def _check_automaton(probs: Tensor, automaton: TokenAutomaton) -> None:
    """Check that the automaton has this vocabulary and that its dynamic programme is within the limits."""
    if automaton.vocab_size != probs.shape[2]:
        raise InvalidArgument(
            f"the automaton is over {automaton.vocab_size} tokens, the distributions over {probs.shape[2]}"
        )
    required_bytes = foreseen_bytes(automaton, probs.shape[1])
    Budget(current_limits()).check("memory_bytes", required_bytes, "the dynamic programme for one sample")


def foreseen_bytes(automaton: TokenAutomaton, length: int) -> int:
    """The memory in bytes that the dynamic programme allocates for one sample, besides the probabilities.

    >>> from diffinity.alignment import Vocabulary, align
    >>> from diffinity.constraints import Text
    >>> foreseen_bytes(align(Text("a"), Vocabulary([b"a"]), "exact"), length=64) < 20_000
    True
    """
    edges = automaton.edges
    by_state = 8 + 8 + 4 + 2  # masses or values, back pointers, tails, live states
    by_class = 4 * 8 + 4  # sums, their logarithms, scaled, ratios; index of the largest
    return (length + 1) * (by_state * automaton.n_states + by_class * automaton.n_classes + 24 * edges.n_groups)


def _triton(probs: Tensor, backend: Backend) -> Any:
    """The Triton kernels, if they handle these distributions; otherwise None."""
    if backend not in get_args(Backend):
        raise InvalidArgument(f"backend must be one of {', '.join(get_args(Backend))}, but is {backend!r}")
    if backend != "triton" and not (backend == "auto" and probs.device.type == "cuda"):
        return None
    try:
        from diffinity.acceptance import triton_backend
    except ImportError as error:
        if backend == "auto":
            return None
        raise InvalidArgument(
            f"the backend 'triton' needs a package that is missing ({error}): pip install 'diffinity[triton]'"
        ) from None
    if probs.device.type == "cpu" and not triton_backend.interpreted():
        raise InvalidArgument(
            "the backend 'triton' is for a GPU, and these distributions are on the CPU; its kernels run there "
            "only in Triton's interpreter, for tests (TRITON_INTERPRET=1)"
        )
    return triton_backend


def _use_numba(probs: Tensor, backend: Backend) -> bool:
    return backend == "numba" or (backend == "auto" and probs.device.type == "cpu")


def _by_automaton(automata: Sequence[TokenAutomaton]) -> list[tuple[TokenAutomaton, list[int]]]:
    rows: dict[int, tuple[TokenAutomaton, list[int]]] = {}
    for i, automaton in enumerate(automata):
        rows.setdefault(id(automaton), (automaton, []))[1].append(i)
    return list(rows.values())


def _by_transitions(automata: Sequence[TokenAutomaton]) -> list[tuple[list[TokenAutomaton], list[int]]]:
    """The samples grouped by automaton; windows of one automaton are in the same group."""
    rows: dict[int, tuple[list[TokenAutomaton], list[int]]] = {}
    for i, automaton in enumerate(automata):
        windows, at = rows.setdefault(id(automaton.edges), ([], []))
        windows.append(automaton)
        at.append(i)
    return list(rows.values())

"""The exact denoiser of an order-n Markov text model: a diffusion language model with the true score.

If p(x₀) is a Markov chain over tokens, p(x₀ | z) is a hidden Markov model with emissions exp((α/σ²)·z·e_v), so its
marginals take one forward–backward pass. The model needs no training and no network. It is the reference for all
measurements of conditional distributions, and a model of a user's own corpus that is fitted in a moment.

The chain itself is smoothed: with probability `restart` the next context is drawn from all contexts. (If the
posteriors were smoothed instead, an impossible token would have probability ε for every latent, and no guidance
could change it.) The end-of-sequence token is followed only by itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from diffinity.alignment.bigrams import Bigrams
from diffinity.errors import CheckpointError, InvalidArgument
from diffinity.models import markov_kernels as kernels
from diffinity.models.pretrained import PretrainedLM, shapes_of
from diffinity.models.protocol import DiffusionLM, Noise, SamplingDefaults
from diffinity.models.schedule import NoiseLevel
from diffinity.models.tokenization import END_OF_TEXT, train_bpe

if TYPE_CHECKING:
    from diffinity.models.markov_tokens import MarkovTokens

SMALLEST = 1e-100  # lower bound of a token's relative likelihood, so that products of two do not underflow


class Automaton(Protocol):
    """The members of a token automaton that `MarkovLM.log_acceptance` needs."""

    @property
    def class_of(self) -> NDArray[np.integer[Any]]: ...  # (V,)

    @property
    def next(self) -> NDArray[np.integer[Any]]: ...  # (S, C), −1 where there is no transition

    @property
    def start(self) -> int: ...

    @property
    def accepting(self) -> NDArray[np.bool_]: ...  # (S,)


@dataclass(frozen=True)
class MarkovChain:
    """A Markov chain over contexts (the last n tokens), in sparse rows."""

    token: NDArray[np.int64]  # (K,) the last token of a context
    first: NDArray[np.int64]  # (K+1,) where the edges of a context begin
    target: NDArray[np.int64]  # (M,)
    prob: NDArray[np.float64]  # (M,)
    restart: NDArray[np.float64]  # (K,)
    start: NDArray[np.float64]  # (K,) distribution of the first context
    jump: NDArray[np.float64]  # (K,) distribution of the context after a restart

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The arrays in the order in which the kernels take them."""
        return (self.token, self.first, self.target, self.prob, self.restart, self.start, self.jump)


def count_chain(documents: Iterable[Sequence[int]], order: int, eos: int, restart: float) -> MarkovChain:
    """The maximum-likelihood chain for token sequences, each followed by `eos` forever.

    >>> chain = count_chain([[1, 2], [1, 3]], order=1, eos=0, restart=0.0)
    >>> chain.token.tolist(), chain.prob.tolist()
    ([0, 1, 2, 3], [1.0, 0.5, 0.5, 1.0, 1.0])
    """
    ids: dict[tuple[int, ...], int] = {(eos,): 0}
    starts: Counter[int] = Counter()
    moves: Counter[tuple[int, int]] = Counter()
    for document in documents:
        context: tuple[int, ...] = ()
        previous = -1
        for token in [*document, eos]:
            context = (eos,) if token == eos else (*context, token)[-order:]
            current = ids.setdefault(context, len(ids))
            if previous < 0:
                starts[current] += 1
            else:
                moves[previous, current] += 1
            previous = current
            if token == eos:
                break
    if not starts:
        raise InvalidArgument("there is no document to count: a Markov model needs at least one")
    n = len(ids)
    moves[0, 0] = 1
    pairs = sorted(moves)
    counts = np.array([moves[pair] for pair in pairs], dtype=np.float64)
    source = np.array([pair[0] for pair in pairs], dtype=np.int64)
    target = np.array([pair[1] for pair in pairs], dtype=np.int64)
    visits = np.bincount(target, weights=counts, minlength=n)
    visits[0] -= 1  # the artificial step from the end to itself
    start = np.zeros(n)
    for context_id, count in starts.items():
        start[context_id] = count
    jump = visits + start
    restarts = np.full(n, restart)
    restarts[0] = 0.0
    return MarkovChain(
        token=np.array([context[-1] for context in ids], dtype=np.int64),
        first=np.searchsorted(source, np.arange(n + 1)).astype(np.int64),
        target=target,
        prob=counts / np.bincount(source, weights=counts, minlength=n)[source],
        restart=restarts,
        start=(1 - restart) * start / start.sum() + restart * jump / jump.sum(),
        jump=jump / jump.sum(),
    )


class MarkovLM(PretrainedLM, DiffusionLM):
    """A Markov chain as a `DiffusionLM`; `denoise` is exact and differentiable in z."""

    kind: ClassVar[str] = "markov"

    def __init__(
        self,
        chain: MarkovChain,
        embedding: Tensor,  # (V, d), unit norm
        tokenizer: Tokenizer,
        eos_token_id: int,
        order: int,
        gamma_bounds: tuple[float, float] = (-6.0, 6.0),
        sampling_defaults: SamplingDefaults | None = None,
    ) -> None:
        if embedding.shape[0] != tokenizer.get_vocab_size():
            raise CheckpointError(
                f"the tokenizer has {tokenizer.get_vocab_size()} tokens, the embedding {embedding.shape[0]}"
            )
        self.chain = chain
        self.order = order
        self.eos_token_id = eos_token_id
        self.sampling_defaults = sampling_defaults or SamplingDefaults(score_temp=1.0)
        self._embedding = F.normalize(embedding.double(), dim=1)
        self._tokenizer = tokenizer
        self._gamma_bounds = gamma_bounds
        used = torch.zeros(embedding.shape[0], dtype=torch.bool)
        used[torch.from_numpy(np.unique(chain.token))] = True
        self._unused = ~used

    @property
    def embedding(self) -> Tensor:
        return self._embedding

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64

    def noise_level(self, t: Tensor) -> Tensor:
        low, high = self._gamma_bounds
        return low + (high - low) * t.double()

    def denoise(self, z: Tensor, noise_level: Tensor, x_selfcond: Tensor) -> Tensor:
        """log P(token | z) (B, L, V); `x_selfcond` is not used, because the posterior is exact."""
        log_emission = self._log_emission(z, noise_level)
        logits: Tensor = _LogMarginals.apply(log_emission, self.chain)  # type: ignore[no-untyped-call]
        return logits

    def _log_emission(self, z: Tensor, noise_level: Tensor) -> Tensor:
        level = NoiseLevel(noise_level.double())
        scale = (level.alpha / level.sigma_squared)[:, None, None]
        scores = scale * z.double() @ self._embedding.T  # (B, L, V); ‖e_v‖ = 1, so nothing else depends on v
        return scores.masked_fill(self._unused, -torch.inf)

    def tokens(self, noise: Noise = "mask") -> MarkovTokens:
        """The same chain as a model of discrete noise on tokens, with exact posteriors."""
        from diffinity.models.markov_tokens import MarkovTokens

        return MarkovTokens(self, noise)

    def log_p_text(self, tokens: Sequence[int]) -> float:
        """The exact log P of a token sequence under the chain.

        >>> fit_markov(["ab", "ab"], restart=0.0).log_p_text([]) == 0.0
        True
        """
        if len(tokens) == 0:
            return 0.0
        one_hot = np.zeros((len(tokens), self._embedding.shape[0]))
        one_hot[np.arange(len(tokens)), list(tokens)] = 1.0
        return self._log_joint(one_hot)

    def _log_joint(self, emission: NDArray[np.float64], automaton: Automaton | None = None) -> float:
        """log Σ P(text)·Π emission (L, V) over the texts of the automaton's language, or over all texts."""
        kernel: Any = kernels.log_joint
        if automaton is None:
            move, start, accepting = np.zeros((1, emission.shape[1]), dtype=np.int64), 0, np.array([True])
        else:
            move = np.ascontiguousarray(automaton.next[:, automaton.class_of], dtype=np.int64)  # (S, V)
            start, accepting = automaton.start, np.ascontiguousarray(automaton.accepting)
        return float(kernel(emission, *self.chain.arrays(), move, start, accepting))

    def log_acceptance(
        self,
        automaton: Automaton,
        z: Tensor | None = None,
        noise_level: float | Tensor = 0.0,
        *,
        length: int | None = None,
    ) -> Tensor:
        """The exact log P(text is in the automaton's language | z), (B,), from the product of chain and automaton.

        Without z it is the prior log-probability over texts of `length` tokens, (1,).
        """
        if z is None:
            if length is None:
                raise InvalidArgument("log_acceptance needs either z or a length")
            emissions = np.ones((1, length, self._embedding.shape[0]))
        else:
            emissions = self._emissions(self._log_emission(z, torch.as_tensor(noise_level).expand(z.shape[0])))
        results = [self._log_joint(emission, automaton) - self._log_joint(emission) for emission in emissions]
        return torch.tensor(results, dtype=torch.float64).clamp(max=0.0)

    @staticmethod
    def _emissions(log_emission: Tensor) -> NDArray[np.float64]:
        peak = log_emission.amax(dim=-1, keepdim=True)
        emissions: NDArray[np.float64] = (log_emission - peak).exp().clamp(min=SMALLEST).detach().numpy()
        return emissions

    def config_fields(self) -> dict[str, Any]:
        return {"order": self.order, "gamma_bounds": list(self._gamma_bounds)}

    def tensors(self) -> dict[str, Tensor]:
        names = ("token", "first", "target", "prob", "restart", "start", "jump")
        arrays = {name: torch.from_numpy(array) for name, array in zip(names, self.chain.arrays(), strict=True)}
        return {**arrays, "embedding": self._embedding}

    @classmethod
    def from_parts(
        cls,
        fields: dict[str, Any],
        tensors: Mapping[str, Tensor],
        tokenizer: Tokenizer,
        eos_token_id: int | None,
        sampling_defaults: SamplingDefaults,
    ) -> Self:
        try:
            low, high = _noise_level_bounds(fields["gamma_bounds"])
            _check_shapes(shapes_of(tensors), tokenizer.get_vocab_size())
            arrays = {name: tensor.numpy() for name, tensor in tensors.items() if name != "embedding"}
            chain = MarkovChain(**arrays)
            check_chain(chain, tensors["embedding"].shape[0])
            if eos_token_id is None:
                raise KeyError("eos_token_id")
            return cls(
                chain,
                tensors["embedding"],
                tokenizer,
                eos_token_id,
                fields["order"],
                (low, high),
                sampling_defaults,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the files do not describe a Markov model: {error}") from None


class _LogMarginals(torch.autograd.Function):
    """log marginals of the chain as a function of log emissions.

    With w = upstream / μ the vector–Jacobian product is H·w, where H is the (symmetric) Hessian of the log
    partition function. H·w is the derivative of the marginals μ in direction w, which takes one more
    forward–backward pass.
    """

    @staticmethod
    def forward(ctx: Any, log_emission: Tensor, chain: MarkovChain) -> Tensor:
        emission = MarkovLM._emissions(log_emission)
        marginals = np.zeros_like(emission)
        _over_batch(kernels.marginals, chain, emission, marginals)
        mu = torch.from_numpy(marginals).clamp(min=SMALLEST)
        ctx.chain = chain
        ctx.save_for_backward(log_emission, mu)
        return mu.log()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        log_emission, mu = ctx.saved_tensors
        direction = (upstream[0].double() / mu).numpy()
        emission = MarkovLM._emissions(log_emission)
        gradient = np.zeros_like(emission)
        _over_batch(kernels.marginals_tangent, ctx.chain, emission, direction, gradient)
        return torch.from_numpy(gradient), None


def _over_batch(kernel: Any, chain: MarkovChain, *arrays: NDArray[np.float64]) -> None:
    """Run a kernel over the batch in as many threads as torch uses; samples are independent."""
    *inputs, out = arrays
    chain_arrays = chain.arrays()
    threads = min(torch.get_num_threads(), out.shape[0])
    parts = [slice(i * out.shape[0] // threads, (i + 1) * out.shape[0] // threads) for i in range(threads)]

    def work(part: slice) -> None:
        kernel(*(np.ascontiguousarray(array[part]) for array in inputs), *chain_arrays, out[part])

    if threads == 1:
        work(parts[0])
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, parts))


def _noise_level_bounds(value: object) -> tuple[float, float]:
    """The lowest and the highest noise level, from the field gamma_bounds of a config."""
    numbers = value if isinstance(value, list) else []
    if len(numbers) != 2 or not all(type(x) in (int, float) and math.isfinite(x) for x in numbers):
        raise ValueError(f"gamma_bounds must be two finite numbers, but is {str(value)[:60]}")
    return numbers[0], numbers[1]


def _check_shapes(shapes: Mapping[str, tuple[int, ...]], vocab_size: int) -> None:
    """Refuse tensors that do not have the shapes of a chain, before any tensor is read."""
    expected = {field.name for field in fields(MarkovChain)} | {"embedding"}
    if shapes.keys() != expected:
        missing, surplus = sorted(expected - shapes.keys()), sorted(shapes.keys() - expected)
        raise ValueError(f"the weights lack {missing}" if missing else f"{surplus} are not part of this model")
    n, edges = shapes["token"], shapes["target"]
    consistent = len(n) == len(edges) == 1 and all(shapes[name] == n for name in ("restart", "start", "jump"))
    if not consistent or shapes["first"] != (n[0] + 1,) or shapes["prob"] != edges:
        raise ValueError("the chain's arrays do not fit each other")
    if len(shapes["embedding"]) != 2 or shapes["embedding"][0] != vocab_size:
        raise ValueError(f"embedding has shape {shapes['embedding']}, and the tokenizer has {vocab_size} tokens")


def check_chain(chain: MarkovChain, vocab_size: int) -> None:
    """Refuse arrays that would make the kernels read out of bounds or that are not probabilities."""
    n, edges = chain.token.shape[0], chain.target.shape[0]
    consistent = (
        n > 0
        and chain.first.shape == (n + 1,)
        and chain.first[0] == 0
        and chain.first[-1] == edges
        and bool((np.diff(chain.first) >= 0).all())
        and all(array.shape == (n,) for array in (chain.restart, chain.start, chain.jump))
        and chain.prob.shape == (edges,)
        and bool(((chain.target >= 0) & (chain.target < n)).all())
        and bool(((chain.token >= 0) & (chain.token < vocab_size)).all())
        and all(array.dtype == np.int64 for array in (chain.token, chain.first, chain.target))
    )
    if not consistent:
        raise ValueError("the chain's arrays do not fit each other or the vocabulary")
    floats = (chain.prob, chain.restart, chain.start, chain.jump)
    if not all(array.dtype == np.float64 and bool(((array >= 0) & (array <= 1)).all()) for array in floats):
        raise ValueError("the chain has probabilities outside [0, 1]")


def fit_markov(
    texts: Iterable[str],
    *,
    order: int = 2,
    tokenizer: Tokenizer | None = None,
    vocab_size: int = 1024,
    embed_dim: int = 32,
    restart: float = 1e-3,
    seed: int = 0,
) -> MarkovLM:
    """A Markov model of `texts`, each of them one document; by default a byte-level BPE is trained on them.

    The tokenizer must have the token <|endoftext|> or exactly one special token, which ends a document. Time and
    memory of a denoising step grow with length × number of contexts.

    >>> model = fit_markov(["the cat sat.", "the dog sat."], order=1)
    >>> model.embedding.shape[1]
    32
    """
    if order < 1:
        raise InvalidArgument(f"order must be at least 1, but is {order}")
    if not 0 <= restart < 1:
        raise InvalidArgument(f"restart must be a probability below 1, but is {restart}")
    documents = list(texts)
    tokenizer = tokenizer or train_bpe(documents, vocab_size)
    eos = tokenizer.token_to_id(END_OF_TEXT)
    if eos is None:
        special = [token for token, added in tokenizer.get_added_tokens_decoder().items() if added.special]
        if len(special) != 1:
            raise InvalidArgument(
                f"the tokenizer has {len(special)} special tokens; expected {END_OF_TEXT} or exactly one of them"
            )
        eos = special[0]
    encoded = [encoding.ids for encoding in tokenizer.encode_batch(documents)]
    chain = count_chain(encoded, order, eos, restart)
    generator = torch.Generator().manual_seed(seed)
    embedding = torch.randn(tokenizer.get_vocab_size(), embed_dim, generator=generator, dtype=torch.float64)
    model = MarkovLM(chain, embedding, tokenizer, eos, order)
    model.bigrams = Bigrams.count(encoded, tokenizer.get_vocab_size(), eos)
    return model

"""The interface between generation and language models: one base class and three kinds.

`TextModel` is the base of every model. `EmbeddingDiffusion` denoises token embeddings (PLAID, LangFlow),
`TokenDiffusion` denoises tokens (LLaDA, Dream, MDLM, Duo), and `CausalModel` predicts the next token (GPT-2).
`diffinity.testing` has a test class for each kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import torch
from tokenizers import Tokenizer
from torch import Tensor

from diffinity.alignment.vocabulary import Vocabulary, before_end
from diffinity.errors import InvalidArgument, ModelError

Noise = Literal["mask", "uniform"]
Method = Literal["ancestral", "ddim"]
Messages = Sequence[Mapping[str, str]]
# Limits on the values in a config.json; a caller may exceed them.
MOST_DEFAULT_STEPS = 100_000
MOST_DEFAULT_DRAFTS = 64
MOST_DEFAULT_LENGTH = 1_000_000
DRAFT_SCORERS = ("embedded-autoregressive", "embedded-masked")


@dataclass(frozen=True)
class SamplingDefaults:
    """The sampling defaults of a model, stored in its config.

    >>> SamplingDefaults(num_inference_steps=128).score_temp
    0.9
    >>> SamplingDefaults(length=0)
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: length must be a whole number from 1 to 1,000,000, but is 0
    """

    num_inference_steps: int = 256
    length: int = 64
    score_temp: float = 0.9
    method: Method = "ancestral"  # or "ddim"
    best_of: int = 1  # drafts of a text under a constraint; the draft with the best score is returned
    best_of_free: int | None = None  # drafts of a text without a constraint; None: `best_of`
    draft_scorer: str | None = None  # name of the embedded model that scores drafts; None: the model itself

    def __post_init__(self) -> None:
        bounds: tuple[tuple[str, int], ...] = (
            ("num_inference_steps", MOST_DEFAULT_STEPS),
            ("length", MOST_DEFAULT_LENGTH),
            ("best_of", MOST_DEFAULT_DRAFTS),
        )
        if self.best_of_free is not None:
            bounds = (*bounds, ("best_of_free", MOST_DEFAULT_DRAFTS))
        for name, largest in bounds:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
                raise InvalidArgument(f"{name} must be a whole number from 1 to {largest:,}, but is {value!r}")
        temp = self.score_temp
        if not isinstance(temp, int | float) or isinstance(temp, bool) or not 0 < temp < math.inf:
            raise InvalidArgument(f"score_temp must be a finite number above 0, but is {temp!r}")
        if self.method not in ("ancestral", "ddim"):
            raise InvalidArgument(f"method must be 'ancestral' or 'ddim', but is {self.method!r}")
        if self.draft_scorer not in (None, *DRAFT_SCORERS):
            expected = " or ".join((*map(repr, DRAFT_SCORERS), "None"))
            raise InvalidArgument(f"draft_scorer must be {expected}, but is {self.draft_scorer!r}")


@runtime_checkable
class TextModel(Protocol):
    """The base of all language models: tokens, and sampling defaults."""

    eos_token_id: int | None = None
    start_token_id: int | None = None  # precedes every text, if the model was trained with it
    sampling_defaults: SamplingDefaults = SamplingDefaults()

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """The type of the logits."""
        ...

    @property
    def vocab_size(self) -> int:
        """The number of logits at a position; may exceed the number of tokens in the tokenizer."""
        ...


@runtime_checkable
class EmbeddingDiffusion(TextModel, Protocol):
    """A denoiser of token embeddings. Subclass it, or implement its members, to use your own model.

    The contract: `z = α·E[x] + σ·ε` with α² = sigmoid(−γ), σ² = sigmoid(γ), and `denoise` returns the
    logits of p(token at position k | z) for every k.
    """

    @property
    def embedding(self) -> Tensor:
        """The embedding of every token, (V, d), in the model's dtype."""
        ...

    @property
    def vocab_size(self) -> int:
        return int(self.embedding.shape[0])

    def noise_level(self, t: Tensor) -> Tensor:
        """The noise level at times t (n,) in [0, 1], increasing, as float64 (n,)."""
        ...

    def denoise(self, z: Tensor, noise_level: Tensor, x_selfcond: Tensor) -> Tensor:
        """Logits (B, L, V) for z (B, L, d), noise_level (B,) and the previous estimate x_selfcond (B, L, d)."""
        ...


DiffusionLM = EmbeddingDiffusion  # the name of the first release


@runtime_checkable
class TokenDiffusion(TextModel, Protocol):
    """A denoiser of tokens. Subclass it, or implement its members, to use your own model.

    The contract: at time t a token is unchanged with probability 1 − t, and otherwise masked (`noise` "mask") or
    replaced by a token drawn uniformly from all V ("uniform"). `logits` returns the logits of p(clean token at
    position k | tokens).
    """

    noise: Noise = "mask"
    reads_prompts: bool = False  # whether `logits` takes a context, made by `encode_prompt`
    # Default values of the options of `generate`:
    order: str = "confidence"  # the order in which positions are unmasked
    temperature: float = 1.0
    block_length: int | None = None  # None: one block
    canvas: str = "full"  # "block" for a model that must not see positions after the block

    @property
    def mask_id(self) -> int:
        """The id of a masked token, for `noise` "mask"."""
        ...

    def logits(self, tokens: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        """Logits (B, L, V) for tokens (B, L) at times t (B,); `context` (B, P) precedes the tokens."""
        ...

    def encode_prompt(self, prompt: str | None, messages: Messages | None) -> list[int]:
        """The token ids of the prompt; `messages` are converted by the model's chat template."""
        raise InvalidArgument(no_prompt(self))


class Continuations(Protocol):
    """Token sequences of equal length that grow together, with the network's cache for them."""

    def logits(self) -> Tensor:
        """The logits (n, V) of the next token of each sequence."""
        ...

    def append(self, tokens: Tensor) -> None:
        """Append one token (n,) to each sequence."""
        ...

    def select(self, rows: Tensor) -> Continuations:
        """The sequences with these indices (m,), which may repeat; this object is not changed."""
        ...


@runtime_checkable
class CausalModel(TextModel, Protocol):
    """A model that predicts the next token. Subclass it, or implement its members, to use your own model."""

    temperature: float = 1.0  # the default of this option of `generate`
    reads_prompts: bool = False  # whether `start` takes a context, made by `encode_prompt`

    def start(self, n: int, length: int, context: Sequence[int] | None = None) -> Continuations:
        """n empty sequences that will have at most `length` tokens, after the token ids of a prompt."""
        ...

    def encode_prompt(self, prompt: str | None, messages: Messages | None) -> list[int]:
        """The token ids of the prompt; `messages` are converted by the model's chat template."""
        raise InvalidArgument(no_prompt(self))


def no_prompt(model: object) -> str:
    """The error message for a prompt to a model that reads no prompts.

    >>> no_prompt("")
    'a str reads no prompt: prefix= is how the output starts'
    """
    return f"a {type(model).__name__} reads no prompt: prefix= is how the output starts"


Kind = Literal["embedding", "token", "causal"]
_KINDS: dict[Kind, tuple[type, tuple[str, ...]]] = {  # the protocol and its required members
    "embedding": (EmbeddingDiffusion, ("tokenizer", "device", "dtype", "embedding", "noise_level", "denoise")),
    "token": (TokenDiffusion, ("tokenizer", "device", "dtype", "vocab_size", "logits")),
    "causal": (CausalModel, ("tokenizer", "device", "dtype", "vocab_size", "start")),
}


def check_model(model: object) -> Kind:
    """The kind of a model; the error for an incomplete model names its missing members.

    >>> class Half(EmbeddingDiffusion):
    ...     embedding = torch.eye(2)
    >>> check_model(Half())
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: Half is no whole EmbeddingDiffusion: it has no tokenizer, device, dtype, \
noise_level, denoise
    >>> check_model("gpt2")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: a model is an EmbeddingDiffusion, ... not a str: ...
    """
    missing = {
        kind: [member for member in members if _lacks(model, protocol, member)]
        for kind, (protocol, members) in _KINDS.items()
    }
    for kind, missing_members in missing.items():
        if not missing_members:
            return kind
    for kind, (protocol, members) in _KINDS.items():
        missing_members = missing[kind]
        of_this_kind = any(member not in missing_members and not hasattr(TextModel, member) for member in members)
        if protocol in type(model).__mro__ or (of_this_kind and len(missing_members) <= len(members) // 2):
            raise InvalidArgument(
                f"{type(model).__name__} is no whole {protocol.__name__}: it has no {', '.join(missing_members)}"
            )
    raise InvalidArgument(
        "a model is an EmbeddingDiffusion, a TokenDiffusion or a CausalModel, such as dy.load() gives, not a "
        f"{type(model).__name__}: see docs/models.md"
    )


def _lacks(model: object, kind: type, member: str) -> bool:
    """Whether a member is missing, or is only the placeholder in the protocol."""
    in_class = getattr(type(model), member, None)
    if in_class is None:
        return member not in getattr(model, "__dict__", {})
    return any(in_class is base.__dict__.get(member) for base in (TextModel, kind))


def vocab_size_of(model: TextModel) -> int:
    """The number of logits at a position.

    >>> import diffinity as dy
    >>> vocab_size_of(dy.fit_markov(["a b."])) > 256
    True
    """
    embedding = getattr(model, "embedding", None)
    return int(model.vocab_size if embedding is None else embedding.shape[0])


def check_logits(model: TextModel, logits: Tensor, batch: int, length: int, when: str) -> None:
    """Refuse logits that are not a distribution over the tokens at every position.

    −inf is an impossible token; every position needs at least one possible token.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["a b."])
    >>> check_logits(model, torch.full((1, 2, vocab_size_of(model)), torch.nan), 1, 2, "at step 1")
    Traceback (most recent call last):
    diffinity.errors.ModelError: MarkovLM returned logits that are not finite (nan) at step 1, first at position \
0 of text 0 of the batch
    """
    name, expected = type(model).__name__, (batch, length, vocab_size_of(model))
    if not isinstance(logits, Tensor) or tuple(logits.shape) != expected:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ModelError(
            f"{name} returned logits of shape {shape} {when}, and {expected} is (batch, length, tokens)"
        )
    peaks = logits.detach().amax(dim=-1)  # NaN if any logit is NaN
    if bool(torch.isfinite(peaks).all()):
        return
    text, position = torch.nonzero(~torch.isfinite(peaks))[0].tolist()
    raise ModelError(
        f"{name} returned logits that are not finite ({float(peaks[text, position])}) {when}, first at position "
        f"{position} of text {text} of the batch"
    )


_vocabularies: WeakKeyDictionary[TextModel, Vocabulary] = WeakKeyDictionary()


def vocabulary_of(model: TextModel) -> Vocabulary:
    """The vocabulary of a model, with one entry for each logit; cached per model.

    >>> import diffinity as dy
    >>> model = dy.fit_markov(["a b."])
    >>> len(vocabulary_of(model)) == vocab_size_of(model)
    True
    """
    vocabulary = _vocabularies.get(model)
    size, eos, start = vocab_size_of(model), model.eos_token_id, model.start_token_id
    if (
        vocabulary is None
        or len(vocabulary) != size
        or (eos is not None and vocabulary.eos_id != eos)
        or vocabulary.start_id != start
    ):
        vocabulary = _vocabulary(model.tokenizer.to_str(), eos, start, size)
        _vocabularies[model] = vocabulary
    return vocabulary


@lru_cache(maxsize=8)
def _vocabulary(tokenizer_json: str, eos: int | None, start: int | None, size: int) -> Vocabulary:
    vocabulary = Vocabulary.from_tokenizer(Tokenizer.from_str(tokenizer_json), eos, start)
    if len(vocabulary) == size:
        return vocabulary
    padding = [None] * (size - len(vocabulary))  # logits without a token in the tokenizer
    return replace(vocabulary, tokens=(*vocabulary.tokens[:size], *padding))


def text_of(model: TextModel, ids: list[int]) -> str:
    """The text that token ids spell: the tokens before the first end token, without the start token."""
    ids = before_end(without_start(model, ids), model.eos_token_id)
    text: str = model.tokenizer.decode(ids, skip_special_tokens=False)
    return text


def without_start(model: TextModel, ids: list[int]) -> list[int]:
    """Token ids without the model's start token, if they begin with it."""
    return ids[1:] if model.start_token_id is not None and ids[:1] == [model.start_token_id] else ids

"""Models of the Hugging Face `transformers` library by name or folder: LLaDA, Dream, MDLM, Duo, and causal models.

`transformers` is imported, and files are downloaded, only when a model is loaded. The repositories of diffusion
models contain Python code, which runs only with `trust_remote_code=True`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from diffinity.errors import CheckpointError, InvalidArgument
from diffinity.models.protocol import CausalModel, Messages, Noise, SamplingDefaults, TokenDiffusion

SMALLEST_ALPHA = 1e-3  # ε of MDLM's and Duo's noise schedules: a token is unchanged with probability 1 − (1 − ε)·t
TURN_ENDS = ("<|eot_id|>", "<|im_end|>", "<|role_end|>")  # tokens that end a turn of a conversation, and so a text


@dataclass(frozen=True)
class Dialect:
    """The conventions of a family of masked models."""

    noise: Noise = "mask"
    shifted: bool = False  # the logits at position k are those of the token at k + 1
    order: str = "confidence"
    temperature: float = 1.0


DIALECTS = {
    "llada": Dialect(temperature=0.0),
    "dream": Dialect(shifted=True, order="entropy", temperature=0.2),
    "mdlm": Dialect(order="ancestral"),
    "duo": Dialect(noise="uniform", order="ancestral"),
}


def is_causal(config: Mapping[str, Any]) -> bool:
    """Whether a config of `transformers` belongs to one of the library's own causal models.

    Models with their own code do not count, because block diffusion models also call themselves causal.

    >>> is_causal({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}), is_causal({"model_type": "bert"})
    (True, False)
    """
    names = [str(name) for name in config.get("architectures") or ()]
    return not config.get("auto_map") and any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names)


class _TransformersModel:
    """A network and a tokenizer of `transformers`: the parts that diffusion and causal models share."""

    network: Any
    _hf_tokenizer: Any  # the tokenizer of `transformers`
    _vocab_size: int

    @property
    def tokenizer(self) -> Tokenizer:
        backend: Tokenizer = self._hf_tokenizer.backend_tokenizer
        return backend

    @property
    def device(self) -> torch.device:
        device: torch.device = self.network.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.network.dtype
        return dtype

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    def encode_prompt(self, prompt: str | None, messages: Messages | None) -> list[int]:
        """The tokens of the prompt; a conversation goes through the chat template."""
        return _encoded(self._hf_tokenizer, prompt, messages)


class HuggingFaceDiffusion(_TransformersModel, TokenDiffusion):
    """A masked or uniform diffusion model of `transformers` as a `TokenDiffusion`.

    The tokens that end a turn count as the end of the text: their probability is added to the end token's.
    """

    def __init__(
        self,
        network: Any,
        tokenizer: Any,
        dialect: Dialect | None = None,
        *,
        mask_id: int | None = None,
        name: str = "the model",
    ) -> None:
        self.network, self._hf_tokenizer = network, tokenizer
        self.dialect = dialect or DIALECTS.get(str(network.config.model_type).lower(), Dialect())
        self.noise, self.order = self.dialect.noise, self.dialect.order
        self.temperature, self.reads_prompts = self.dialect.temperature, True
        self.sampling_defaults = SamplingDefaults(num_inference_steps=128, length=128)
        self.eos_token_id = self._end = _required_token(tokenizer.eos_token_id, name, "end-of-text token")
        self._mask_id = self._find_mask(mask_id, name) if self.noise == "mask" else -1
        self._takes_time = "timesteps" in inspect.signature(network.forward).parameters
        self._other_ends = _turn_ends(tokenizer, self._end)
        probe = torch.full((1, 2), max(self._mask_id, 0), device=self.device)
        self._vocab_size = int(self._raw(probe, torch.ones(1), name).shape[-1])

    @staticmethod
    def load(
        name: str,
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        trust_remote_code: bool = False,
        mask_id: int | None = None,
        tokenizer: str | None = None,
        revision: str | None = None,
    ) -> HuggingFaceDiffusion:
        """The model called `name` on the hub, or in a folder; `dtype` defaults to the type of its files.

        `mask_id` is the mask token if neither config nor tokenizer names it. `tokenizer` names a tokenizer for a
        model that has none.
        """
        network, hf_tokenizer = load_transformers(
            ("AutoModel", "AutoModelForMaskedLM"), name, device, dtype, trust_remote_code, tokenizer, revision
        )
        return HuggingFaceDiffusion(network, hf_tokenizer, mask_id=mask_id, name=name)

    def _find_mask(self, mask_id: int | None, name: str) -> int:
        if mask_id is None:
            mask_id = getattr(self.network.config, "mask_token_id", None)
        if mask_id is None:
            mask_id = self._hf_tokenizer.mask_token_id
        return _required_token(mask_id, name, "mask token (give mask_id=…)")

    @property
    def mask_id(self) -> int:
        return self._mask_id

    @torch.no_grad()
    def logits(self, tokens: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        """Logits (B, L, V) of the positions after the context, in the network's type."""
        sequence = tokens if context is None else torch.cat([context, tokens], dim=1)
        scores = self._raw(sequence, t)
        if self.dialect.shifted:
            scores = torch.cat([scores[:, :1], scores[:, :-1]], dim=1)
        scores = scores[:, sequence.shape[1] - tokens.shape[1] :].clone()
        scores = _merge_ends(scores, self._end, self._other_ends)
        if 0 <= self._mask_id < self._vocab_size:
            scores[:, :, self._mask_id] = -torch.inf  # the mask is in the vocabulary, but is never predicted
        return scores

    @torch.no_grad()
    def _raw(self, tokens: Tensor, t: Tensor, name: str = "the model") -> Tensor:
        options = {}
        if self._takes_time:
            options["timesteps"] = -torch.log1p(-(1 - SMALLEST_ALPHA) * t.to(tokens.device)).float()
        output = self.network(tokens, **options)
        scores = output if isinstance(output, Tensor) else getattr(output, "logits", None)
        if not isinstance(scores, Tensor):
            raise CheckpointError(f"{name} does not return logits: it is not a masked language model")
        return scores


class HuggingFaceCausal(_TransformersModel, CausalModel):
    """A causal model of `transformers`, such as GPT-2, as a `CausalModel`.

    The tokens that end a turn count as the end of the text, as in `HuggingFaceDiffusion`.
    """

    reads_prompts = True

    def __init__(self, network: Any, tokenizer: Any, *, name: str = "the model") -> None:
        self.network, self._hf_tokenizer = network, tokenizer
        self.sampling_defaults = SamplingDefaults(length=128)
        self.eos_token_id = self._end = _required_token(tokenizer.eos_token_id, name, "end-of-text token")
        start_token = tokenizer.bos_token_id
        self._start_token = int(self._end if start_token is None else start_token)  # if there is no prompt
        self._other_ends = _turn_ends(tokenizer, self._end)
        self._vocab_size = int(network.get_output_embeddings().weight.shape[0])

    @staticmethod
    def load(
        name: str,
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        trust_remote_code: bool = False,
        tokenizer: str | None = None,
        revision: str | None = None,
    ) -> HuggingFaceCausal:
        """The model called `name` on the hub, or in a folder; `dtype` defaults to the type of its files."""
        network, hf_tokenizer = load_transformers(
            ("AutoModelForCausalLM",), name, device, dtype, trust_remote_code, tokenizer, revision
        )
        return HuggingFaceCausal(network, hf_tokenizer, name=name)

    def start(self, n: int, length: int, context: Sequence[int] | None = None) -> HuggingFaceContinuations:
        context_ids = torch.tensor(list(context or [self._start_token])).expand(n, -1)
        return HuggingFaceContinuations(self.network, context_ids, self._end, self._other_ends)


class HuggingFaceContinuations:
    """Sequences of a `transformers` model after the tokens `context_ids` (n, t), with the library's own cache."""

    def __init__(self, network: Any, context_ids: Tensor, end: int, other_ends: Sequence[int] = ()) -> None:
        self._network, self._end, self._other_ends = network, end, list(other_ends)
        self._cache: Any = None
        parameters = inspect.signature(network.forward).parameters
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        self._read(context_ids)

    def logits(self) -> Tensor:
        return self._logits

    def append(self, tokens: Tensor) -> None:
        self._read(tokens[:, None])

    @torch.no_grad()
    def _read(self, tokens: Tensor) -> None:
        ids = tokens.to(self._network.device)
        output = self._network(input_ids=ids, past_key_values=self._cache, use_cache=True, **self._options)
        self._cache = output.past_key_values
        self._logits: Tensor = _merge_ends(output.logits[:, -1].clone(), self._end, self._other_ends)

    def select(self, rows: Tensor) -> HuggingFaceContinuations:
        rows, selected = rows.to(self._network.device), copy.copy(self)
        selected._cache = copy.deepcopy(self._cache)  # the library reorders in place
        selected._cache.batch_select_indices(rows)
        selected._logits = self._logits[rows]
        return selected


def _turn_ends(tokenizer: Any, end: int) -> list[int]:
    """The tokens besides the end token that end a turn of a conversation, and so a text."""
    ends = {tokenizer.convert_tokens_to_ids(text) for text in TURN_ENDS} - {None, tokenizer.unk_token_id}
    return sorted(int(token) for token in ends - {end})


def _merge_ends(logits: Tensor, end: int, other_ends: list[int]) -> Tensor:
    """Add the probability of `other_ends` to that of the end token, in place, in logits (..., V)."""
    if other_ends:
        logits[..., end] = logits[..., [end, *other_ends]].float().logsumexp(dim=-1).to(logits.dtype)
        logits[..., other_ends] = -torch.inf
    return logits


def _encoded(tokenizer: Any, prompt: str | None, messages: Messages | None) -> list[int]:
    if messages is None:
        return list(tokenizer(prompt)["input_ids"])
    if not tokenizer.chat_template:
        raise InvalidArgument("this model's tokenizer has no chat template: give prompt=, not messages=")
    try:
        text = tokenizer.apply_chat_template(
            [dict(message) for message in messages], add_generation_prompt=True, tokenize=False
        )
    except Exception as error:  # a template is a program and may raise any error
        raise InvalidArgument(f"the model's chat template refuses these messages: {error}") from None
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def load_transformers(
    kinds: tuple[str, ...],
    name: str,
    device: str | torch.device,
    dtype: torch.dtype | None,
    trust_remote_code: bool,
    tokenizer_name: str | None = None,
    revision: str | None = None,
) -> tuple[Any, Any]:
    """A network, loaded with one of the auto classes `kinds` (see `_auto_class`), and its fast tokenizer."""
    try:
        transformers: Any = import_module("transformers")
    except ImportError:
        raise CheckpointError(
            f"reading {name!r} needs the transformers library: pip install 'diffinity[transformers]'"
        ) from None
    options = {"trust_remote_code": trust_remote_code, "revision": revision}
    try:
        same_repository = tokenizer_name is None
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            tokenizer_name or name, **(options if same_repository else {})
        )
        config = transformers.AutoConfig.from_pretrained(name, **options)
        kind = _auto_class(kinds, config)
        network = getattr(transformers, kind).from_pretrained(name, dtype=dtype or "auto", **options)
    except (OSError, ValueError, ImportError) as error:
        raise CheckpointError(f"transformers can't load {name!r}: {error}") from None
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise CheckpointError(f"{name!r} has no fast tokenizer (tokenizer.json), from which automata are built")
    return network.to(device).eval().requires_grad_(False), tokenizer


def _auto_class(kinds: tuple[str, ...], config: Any) -> str:
    """The auto class to load with: a class from the repository's own code, otherwise the last class."""
    custom_classes = getattr(config, "auto_map", None) or {}
    return next((kind for kind in (*reversed(kinds), *kinds) if kind in custom_classes), kinds[-1])


def _required_token(token: int | None, name: str, role: str) -> int:
    if token is None:
        raise CheckpointError(f"{name} does not say which token is its {role}")
    return int(token)

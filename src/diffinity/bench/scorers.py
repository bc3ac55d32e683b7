"""Scorers of perplexity: the nats that a language model assigns to a text, and its number of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from diffinity.errors import CheckpointError, InvalidArgument
from diffinity.models.loading import EMBEDDED_COMPANIONS
from diffinity.models.transformer import AutoregressiveLM

EMBEDDED_SCORER = "embedded-autoregressive"  # also the name of the model for `dy.load`
HUGGING_FACE = "hf:"


class Score(NamedTuple):
    """Negative log-likelihood of a text with its end token, and its number of tokens, including the end token."""

    nats: float
    tokens: int


class Scorer(Protocol):
    """A language model that computes the likelihood of texts."""

    @property
    def name(self) -> str:
        """Its name in reports."""
        ...

    def score(self, texts: Sequence[str]) -> list[Score]:
        """One score per text, in order."""
        ...


def load_scorer(source: str | Path = EMBEDDED_SCORER) -> Scorer:
    """The scorer with this name: "embedded-autoregressive", a folder, or "hf:NAME" for a causal language model.

    >>> load_scorer("hf:")
    Traceback (most recent call last):
    diffinity.errors.InvalidArgument: name a causal language model after hf:, such as hf:gpt2
    """
    if isinstance(source, str) and source.startswith(HUGGING_FACE):
        return CausalScorer(source)
    folder = scorer_folder(source)
    if not folder.is_dir():
        raise CheckpointError(
            f"there is no autoregressive model at {str(source)!r} to measure perplexity with: name a folder, "
            "or a causal language model such as hf:gpt2"
        )
    name = EMBEDDED_SCORER if source == EMBEDDED_SCORER else folder.name
    return AutoregressiveScorer(AutoregressiveLM.from_pretrained(folder), name=name)


def scorer_folder(source: str | Path) -> Path:
    """The folder of the embedded scorer, or the folder of this name."""
    return EMBEDDED_COMPANIONS[EMBEDDED_SCORER] if source == EMBEDDED_SCORER else Path(source)


class AutoregressiveScorer:
    """Scores by an `AutoregressiveLM`, which reads the end token before the first token."""

    def __init__(self, model: AutoregressiveLM, *, name: str = EMBEDDED_SCORER, batch_size: int = 16) -> None:
        self.name = name
        self.model = model
        self.batch_size = batch_size

    def score(self, texts: Sequence[str]) -> list[Score]:
        """One score per text; the end token is scored too, so that unfinished texts have a cost."""
        eos = self.model.eos_token_id
        encoded = self.model.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        rows = [[*encoding.ids, eos] for encoding in encoded]
        return _in_batches(rows, self.batch_size, eos, self.model.log_probs)


class CausalScorer:
    """Scores by any causal language model of the Hugging Face hub or a folder, through `transformers`.

    The start token (or the end token in its place, as in GPT-2) precedes the text and is not scored; the end token
    after the text is scored.
    """

    def __init__(self, name: str, *, device: str = "cpu", batch_size: int = 8) -> None:
        source = name.removeprefix(HUGGING_FACE)
        if not source:
            raise InvalidArgument("name a causal language model after hf:, such as hf:gpt2")
        try:
            transformers: Any = import_module("transformers")
        except ImportError:
            raise InvalidArgument(f"scoring with {name} needs transformers: `pip install transformers`") from None
        try:
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(source)
            self.model = transformers.AutoModelForCausalLM.from_pretrained(source).to(device).eval()
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise CheckpointError(
                f"{source!r} could not be loaded as a causal language model: {reason}"
            ) from error
        self.name = f"{HUGGING_FACE}{source}"
        self.device = device
        self.batch_size = batch_size
        end = self.tokenizer.eos_token_id
        begin = self.tokenizer.bos_token_id
        if end is None:
            raise CheckpointError(f"the tokenizer of {source!r} has no end token; perplexity counts it")
        self.end_id = int(end)
        self.start_id = int(end if begin is None else begin)
        self.max_tokens = getattr(self.model.config, "max_position_embeddings", None)

    def score(self, texts: Sequence[str]) -> list[Score]:
        """One score per text."""
        rows = [[*self.tokenizer.encode(text, add_special_tokens=False), self.end_id] for text in texts]
        longest = max(map(len, rows), default=0)
        if self.max_tokens is not None and longest > self.max_tokens:
            raise InvalidArgument(
                f"a text of {longest} tokens is longer than {self.name} reads ({self.max_tokens})"
            )
        return _in_batches(rows, self.batch_size, self.end_id, self._log_probs)

    @torch.no_grad()
    def _log_probs(self, tokens: Tensor) -> Tensor:
        """log p(token k | tokens before it) (B, L) for tokens (B, L)."""
        tokens = tokens.to(self.device)
        inputs = torch.cat([torch.full_like(tokens[:, :1], self.start_id), tokens[:, :-1]], dim=1)
        scores = F.log_softmax(self.model(inputs).logits.float(), dim=-1)
        return scores.gather(2, tokens[:, :, None])[:, :, 0].cpu()


class _LogProbs(Protocol):
    def __call__(self, tokens: Tensor, /) -> Tensor: ...


def _in_batches(rows: list[list[int]], size: int, padding: int, log_probs: _LogProbs) -> list[Score]:
    """Score rows of token ids, batched by similar length; a causal model does not see the padding after a text."""
    scores: list[Score | None] = [None] * len(rows)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        longest = len(rows[batch[-1]])
        padded = torch.tensor([rows[i] + [padding] * (longest - len(rows[i])) for i in batch])
        values = log_probs(padded).double()
        for i, row in zip(batch, values, strict=True):
            scores[i] = Score(-float(row[: len(rows[i])].sum()), len(rows[i]))
    return [score for score in scores if score is not None]

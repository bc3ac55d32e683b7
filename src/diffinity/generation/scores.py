"""The score of a text under a model, by which `best_of` chooses among drafts.

The score is the mean log-probability of the text's tokens, its end token included, each given all other tokens;
for a causal model, given the tokens before it. The variational bound of a diffusion model tells good texts from
bad texts far less well (docs/sampling.md). A model's `sampling_defaults` may name an embedded model that scores
its drafts in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from diffinity.models.loading import load
from diffinity.models.protocol import (
    DRAFT_SCORERS,
    CausalModel,
    TextModel,
    TokenDiffusion,
    check_model,
    text_of,
)
from diffinity.models.transformer import AutoregressiveLM

ROWS = 64  # copies of a text, each with one masked position, per network call


def no_score(model: TextModel) -> str | None:
    """Why the drafts of a model can't be scored; None if they can.

    >>> import diffinity as dy
    >>> no_score(dy.fit_markov(["a b."]))
    'a MarkovLM can not score a text: it takes one noise level for all positions'
    """
    kind = check_model(model)
    if model.sampling_defaults.draft_scorer is not None:
        return None
    if kind == "embedding" and not getattr(model, "position_levels", False):
        return f"a {type(model).__name__} can not score a text: it takes one noise level for all positions"
    if kind == "token" and cast(TokenDiffusion, model).noise != "mask":
        return f"a {type(model).__name__} can not score a text: it has no mask token"
    return None


def draft_scores(model: TextModel, tokens: Tensor, context: Sequence[int] | None = None) -> Tensor:
    """The score (B,), float64, of drafts (B, L) under the model's draft scorer; after a prompt, under the model.

    >>> import diffinity as dy
    >>> model = dy.load()
    >>> ids = torch.tensor([model.tokenizer.encode("It is late.").ids])
    >>> bool(draft_scores(model, ids)[0] < 0)
    True
    """
    name = model.sampling_defaults.draft_scorer
    if name is None or context is not None:
        return text_scores(model, tokens, context)
    scorer = _embedded(name, model.device)
    texts = [scorer.tokenizer.encode(text_of(model, ids)).ids for ids in tokens.tolist()]
    return torch.cat([text_scores(scorer, torch.tensor([[*ids, scorer.eos_token_id]])) for ids in texts])


@lru_cache(maxsize=len(DRAFT_SCORERS))
def _embedded(name: str, device: torch.device) -> TextModel:
    return load(name, device=device)


@torch.no_grad()
def text_scores(model: TextModel, tokens: Tensor, context: Sequence[int] | None = None) -> Tensor:
    """The score (B,), float64, of token strings (B, L), each up to its first end token.

    >>> import diffinity as dy
    >>> model = dy.load()
    >>> words = ["I don't know what to do.", "I don't know what to blue."]
    >>> ids = [[*model.tokenizer.encode(text).ids, model.eos_token_id] for text in words]
    >>> good, bad = text_scores(model, torch.tensor(ids)).tolist()
    >>> good > bad
    True
    """
    scores = []
    for row in tokens.tolist():
        end = row.index(model.eos_token_id) + 1 if model.eos_token_id in row else len(row)
        ids = torch.tensor(row[:end])
        scores.append(_log_probs(model, ids, context).double().mean())
    return torch.stack(scores)


def _log_probs(model: TextModel, ids: Tensor, context: Sequence[int] | None) -> Tensor:
    """The log-probability (n,) of every token of one text (n,)."""
    kind = check_model(model)
    if kind == "causal":
        return _causal(cast(CausalModel, model), ids, context)
    if kind == "token":
        return _masked(cast(TokenDiffusion, model), ids, context)
    return cast(Tensor, cast(Any, model).pseudo_log_probs(ids))


def _causal(model: CausalModel, ids: Tensor, context: Sequence[int] | None) -> Tensor:
    if isinstance(model, AutoregressiveLM) and context is None:  # all tokens in one network call
        return model.log_probs(ids[None].to(model.device))[0].cpu()
    texts = model.start(1, len(ids), context)
    log_probs = []
    for token in ids:
        log_probs.append(texts.logits()[0].log_softmax(dim=-1)[token].cpu())
        texts.append(token[None].to(model.device))
    return torch.stack(log_probs)


def _masked(model: TokenDiffusion, ids: Tensor, context: Sequence[int] | None) -> Tensor:
    log_probs = []
    context_ids = None if context is None else torch.tensor(context, device=model.device)
    for positions in torch.split(torch.arange(len(ids)), ROWS):
        rows = ids.repeat(len(positions), 1)
        rows[torch.arange(len(positions)), positions] = model.mask_id
        times = torch.full((len(positions),), 1.0 / len(ids), device=model.device)
        contexts = None if context_ids is None else context_ids.expand(len(positions), -1)
        logits = model.logits(rows.to(model.device), times, contexts).cpu()
        log_probs.append(
            logits[torch.arange(len(positions)), positions]
            .log_softmax(dim=-1)
            .gather(1, ids[positions, None])[:, 0]
        )
    return torch.cat(log_probs)

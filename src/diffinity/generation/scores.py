"""A model's own score of a text, by which `best_of` chooses among drafts.

The score is the mean log-probability of the text's tokens, its end token included, each given all other tokens;
for a causal model, given the tokens before it. The variational bound of a diffusion model tells good texts from
bad texts far less well (docs/sampling.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from diffinity.models.protocol import CausalModel, TextModel, TokenDiffusion, check_model

ROWS = 64  # texts with a hidden position in one network call


def no_score(model: TextModel) -> str | None:
    """Why a model has no score of its own; None if it has one.

    >>> import diffinity as dy
    >>> no_score(dy.fit_markov(["a b."]))
    'a MarkovLM can not score a text: it takes one noise level for all positions'
    """
    kind = check_model(model)
    if kind == "embedding" and not getattr(model, "position_levels", False):
        return f"a {type(model).__name__} can not score a text: it takes one noise level for all positions"
    if kind == "token" and cast(TokenDiffusion, model).noise != "mask":
        return f"a {type(model).__name__} can not score a text: it has no mask token"
    return None


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
    texts = model.start(1, len(ids), context)
    found = []
    for token in ids:
        found.append(texts.logits()[0].log_softmax(dim=-1)[token].cpu())
        texts.append(token[None].to(model.device))
    return torch.stack(found)


def _masked(model: TokenDiffusion, ids: Tensor, context: Sequence[int] | None) -> Tensor:
    found = []
    before = None if context is None else torch.tensor(context, device=model.device)
    for places in torch.split(torch.arange(len(ids)), ROWS):
        rows = ids.repeat(len(places), 1)
        rows[torch.arange(len(places)), places] = model.mask_id
        times = torch.full((len(places),), 1.0 / len(ids), device=model.device)
        read = None if before is None else before.expand(len(places), -1)
        logits = model.logits(rows.to(model.device), times, read).cpu()
        found.append(
            logits[torch.arange(len(places)), places].log_softmax(dim=-1).gather(1, ids[places, None])[:, 0]
        )
    return torch.cat(found)

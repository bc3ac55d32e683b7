"""DINGO's dynamic programme: the most probable string of tokens and masks that can still be completed.

*DINGO: Constrained Inference for Diffusion LLMs* (Suresh et al., 2025). A masked diffusion step gives every
position scores for its tokens and for staying masked. A mask stands for any token, so in the automaton it leads
wherever some token does. The programme is the max-product one of `acceptance`: where a mask scores more than a
token, the token's transition is taken at the mask's score, and on the way back the position stays masked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from diffinity.acceptance import decode
from diffinity.alignment import TokenAutomaton
from diffinity.errors import InvalidArgument


@dataclass(frozen=True)
class Completable:
    """The best strings of tokens and masks, one a sample."""

    tokens: Tensor  # (B, L): token ids, −1 where the mask stays
    score: Tensor  # (B,), float64: the sum of the scores taken


def best_completable(scores: Tensor, mask_score: Tensor, automaton: TokenAutomaton) -> Completable:
    """The string over tokens and masks with the largest score among those that some tokens for the masks complete.

    `scores` (B, L, V) are log probabilities of tokens, `mask_score` (B, L) those of a position that stays masked:
    0 where that has been decided, −inf where the position must get a token. Exact: no other such string has more.

    >>> import diffinity as dy
    >>> ab = dy.align(dy.Regex("ab|ba"), dy.Vocabulary([b"a", b"b"]), framing="exact")
    >>> scores = torch.tensor([[[0.6, 0.4], [0.9, 0.1]]]).log()
    >>> best_completable(scores, torch.tensor([[-torch.inf, 0.0]]), ab).tokens.tolist()  # the second stays masked
    [[0, -1]]
    >>> best_completable(scores, torch.full((1, 2), -torch.inf), ab).tokens.tolist()
    [[1, 0]]
    """
    if mask_score.shape != scores.shape[:2]:
        raise InvalidArgument(
            f"mask_score must have shape {tuple(scores.shape[:2])} as scores {tuple(scores.shape)} do, "
            f"but has {tuple(mask_score.shape)}"
        )
    either = torch.maximum(scores, mask_score[:, :, None])
    tokens = decode(either, automaton, "best", logits=True).tokens
    taken = scores.gather(2, tokens[:, :, None])[:, :, 0]
    total = torch.maximum(taken, mask_score).double().sum(dim=1)
    return Completable(tokens.masked_fill(mask_score >= taken, -1), total)


def prefixes(automaton: TokenAutomaton) -> TokenAutomaton:
    """The automaton of everything that some text of the language begins with: DINGO's own promise.

    >>> import diffinity as dy
    >>> abc = dy.align(dy.Text("abc"), dy.Vocabulary([b"a", b"b", b"c"]), framing="exact")
    >>> prefixes(abc).accepts([0, 1]), prefixes(abc).accepts([1])
    (True, False)
    """
    return replace(automaton, accepting=np.ones(automaton.n_states, np.bool_))  # trimmed: every state can end

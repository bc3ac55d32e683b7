"""Logits of a whole canvas given that its text is accepted, with an argmax that is always accepted.

The loop of DiffusionGemma samples every position independently, measures entropies, feeds the logits back as
self-conditioning, and commits the argmax when it stops. So its logits are replaced by log q, where q are the
marginals given acceptance. At each position the token of the best accepted string is raised just above the largest
other logit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffinity.acceptance.classes import ClassScores, best_string, class_scores, log_ratios, shift_tokens
from diffinity.alignment import TokenAutomaton
from diffinity.integrations.texts import fits

NEGLIGIBLE = 1e-3  # a row whose probability of a violation is smaller is not changed if its argmax is accepted
# Units in the last place between the best string's token and the next logit, so that a division keeps their order.
MARGIN = 16


def constrain_logits(
    logits: Tensor, windows: Sequence[TokenAutomaton | None], *, temperature: float = 1.0
) -> Tensor:
    """Logits (B, L, V) given that each row is accepted by its window (None: the row is not changed).

    Divided by `temperature`, they are the logarithms of the marginals of softmax(logits / temperature) given
    acceptance, up to a constant. Their argmax is an accepted string. A row is not changed if its argmax is
    accepted and a violation is improbable (`NEGLIGIBLE`). If no row is changed, the same tensor is returned.

    >>> import diffinity as dy
    >>> ab = dy.align(dy.Regex("ab|ba"), dy.Vocabulary([b"a", b"b"]), framing="exact")
    >>> out = constrain_logits(torch.tensor([[[1.0, 0.0], [2.0, 0.0]]]), [ab])
    >>> out.argmax(-1).tolist(), round(float(out.softmax(-1)[0, 0, 1]), 3)
    ([[1, 0]], 0.731)
    """
    return constrain_rows(logits, windows, temperature)[0]


def constrain_rows(
    logits: Tensor, windows: Sequence[TokenAutomaton | None], temperature: float
) -> tuple[Tensor, list[ClassScores | None]]:
    """The result of `constrain_logits`, and the scores of each row's input logits (None without a constraint)."""
    constrained, row_scores = logits, list[ClassScores | None]()
    for i, window in enumerate(windows):
        if window is None or window.free[window.start]:
            row_scores.append(None)
            continue
        scores = class_scores(logits[i], window, temperature=temperature)
        row_scores.append(scores)
        log_p_language, shift = log_ratios(scores, window)
        if log_p_language > np.log1p(-NEGLIGIBLE) and fits(window, logits[i].argmax(dim=-1).cpu().numpy()):
            continue
        if constrained is logits:
            constrained = logits.clone() if len(windows) > 1 else torch.empty_like(logits)
        ids = best_string(scores, window)
        if shift is None:  # P(L) = 0: the logits have no accepted string
            constrained[i] = -torch.inf
            constrained[i, torch.arange(len(ids)), torch.from_numpy(ids).to(constrained.device)] = 0.0
            continue
        shift_tokens(logits[i], window, temperature * shift, constrained[i])
        _raise_tokens(constrained[i], ids, _largest(scores, shift, temperature))
    return constrained, row_scores


def _largest(scores: ClassScores, shift: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """The largest logit at each position (L,) after the shift."""
    return np.asarray((scores.best + shift).max(axis=1) * temperature + scores.log_norm)


def _raise_tokens(logits: Tensor, ids: NDArray[np.int64], largest: NDArray[np.float64]) -> None:
    """Raise the given token at each position of logits (L, V) above the largest logit there, in place."""
    margin = MARGIN * torch.finfo(logits.dtype).eps
    value = largest + margin * np.maximum(np.abs(largest), 1.0)
    positions, token = torch.arange(len(ids)), torch.from_numpy(ids)
    logits[positions.to(logits.device), token.to(logits.device)] = torch.from_numpy(value).to(logits)

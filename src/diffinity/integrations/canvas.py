"""Logits of a whole canvas given that its text is accepted, with an argmax that is always accepted.

The loop samples every position independently, measures entropies, feeds the logits back as self-conditioning, and
commits the argmax when it stops. So it gets log q (q the marginals given acceptance), in which the token of the
best accepted string is raised just above the largest other logit at each position.
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

SURE = 1e-3  # logits that violate the constraint with a smaller probability are not changed
MARGIN = (
    16  # units in the last place between the best string's token and the next logit: enough to survive a division
)


def constrain_logits(
    logits: Tensor, windows: Sequence[TokenAutomaton | None], *, temperature: float = 1.0
) -> Tensor:
    """Logits (B, L, V) given that each row is accepted by its window (None: the row is not changed).

    Divided by `temperature`, they are the logarithms of the marginals of softmax(logits / temperature) given
    acceptance, up to a constant. Their argmax is an accepted string. An accepted row is returned unchanged; if all
    rows are accepted, the same tensor is returned.

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
    """`constrain_logits`, and the scores of each row's own logits; None for unchanged rows."""
    constrained, row_scores = logits, list[ClassScores | None]()
    for i, window in enumerate(windows):
        if window is None or window.free[window.start]:
            row_scores.append(None)
            continue
        scores = class_scores(logits[i], window, temperature=temperature)
        row_scores.append(scores)
        log_p_language, shift = log_ratios(scores, window)
        if log_p_language > np.log1p(-SURE) and fits(window, logits[i].argmax(dim=-1).cpu().numpy()):
            continue
        if constrained is logits:
            constrained = logits.clone() if len(windows) > 1 else torch.empty_like(logits)
        ids = best_string(scores, window)
        if shift is None:  # P(L) = 0: only the constraint decides
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
    """Lift the token of each position in logits (L, V) above the largest logit there."""
    step = MARGIN * torch.finfo(logits.dtype).eps
    value = largest + step * np.maximum(np.abs(largest), 1.0)
    at, token = torch.arange(len(ids)), torch.from_numpy(ids)
    logits[at.to(logits.device), token.to(logits.device)] = torch.from_numpy(value).to(logits)

"""Muon: an optimizer with orthogonalised momentum, for the matrices inside a network.

`torch.optim.Muon` always does its Newton–Schulz iteration in bfloat16. On a CPU without bfloat16 units this takes
four times as long as in float32 and, for a small network, almost as long as the gradient. Our version supports
float32 and bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, optim

# The coefficients of Keller Jordan's Muon: the polynomial maps singular values to about 1 in five rounds.
QUINTIC = (3.4445, -4.7750, 2.0315)


class Muon(optim.Optimizer):
    """θ ← θ − lr·√max(1, rows/columns)·orthogonal(Nesterov momentum of the gradient)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.02,
        momentum: float = 0.95,
        rounds: int = 5,
        bfloat16: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "rounds": rounds})
        self.bfloat16 = bfloat16

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(parameter)
                momentum = state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                nesterov = parameter.grad.lerp(momentum, group["momentum"])
                scale = max(1.0, parameter.shape[0] / parameter.shape[1]) ** 0.5
                update = orthogonal(nesterov.bfloat16() if self.bfloat16 else nesterov, group["rounds"])
                parameter.sub_(update.to(parameter.dtype), alpha=group["lr"] * scale)
        return loss


def orthogonal(matrix: Tensor, rounds: int = 5) -> Tensor:
    """The matrix with its singular values brought close to 1.

    >>> values = torch.linalg.svdvals(orthogonal(torch.diag(torch.tensor([3.0, 1.0, 0.5]))))
    >>> bool(((values > 0.6) & (values < 1.3)).all())
    True
    """
    a, b, c = QUINTIC
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide / (wide.norm() + 1e-7)
    for _ in range(rounds):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide is matrix else x.T

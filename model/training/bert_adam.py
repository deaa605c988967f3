"""The optimizer of the released video program: Adam without bias correction, with decay added to the update."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer


class BertAdam(Optimizer):
    """m and v start at zero and are not corrected; w -= lr * (m / (sqrt(v) + eps) + decay * w)."""

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state |= {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
                mean = state["exp_avg"].lerp_(weight.grad, 1 - beta1)
                square = state["exp_avg_sq"].mul_(beta2).addcmul_(weight.grad, weight.grad, value=1 - beta2)
                update = mean / square.sqrt().add_(group["eps"])
                weight.sub_(update.add_(weight, alpha=group["weight_decay"]), alpha=group["lr"])

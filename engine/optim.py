"""The update: learning rate of a step, AdamW as one call on the flat buffer."""

import math

import torch
from torch.optim.adamw import adamw

from engine.config import OptimConfig
from engine.model import GPT

ADAMW = "torch.optim.AdamW(fused=True)"  # the one implementation; foreach and for-loop give other bits


def learning_rate(o: OptimConfig, step: int, max_steps: int) -> float:
    """Of the update that makes `step` (1-based): linear warm-up times a cosine from lr to min_lr.

    min(1, (t+1)/warmup) with t = step − 1, times the half cosine of Loshchilov & Hutter 2017 over the whole run.
    """
    warm = min(1.0, step / o.warmup_steps) if o.warmup_steps else 1.0
    done = min(1.0, (step - 1) / max(1, max_steps - 1))
    return warm * (o.min_lr + 0.5 * (o.lr - o.min_lr) * (1.0 + math.cos(math.pi * done)))


class Adam:
    """AdamW (Loshchilov & Hutter 2019) as one call on one tensor. `m` and `v` are float32, n_params."""

    def __init__(self, model: GPT, o: OptimConfig) -> None:
        self.o, self.flat, self.grad = o, model.flat, model.grad
        self.m, self.v = torch.zeros_like(model.flat), torch.zeros_like(model.flat)
        self._steps = torch.zeros((), device=model.flat.device)

    @torch.no_grad()
    def update(self, step: int, lr: float) -> None:
        """The update that makes `step`. Adam's own count follows from it, so that skipped steps can't shift it."""
        self._steps.fill_(float(step - 1))
        o = self.o
        # What ADAMW's step calls. The class around it imports the compiler: seconds of each start.
        adamw(
            [self.flat], [self.grad], [self.m], [self.v], [], [self._steps], fused=True, amsgrad=False,
            maximize=False, beta1=o.beta1, beta2=o.beta2, lr=lr, weight_decay=o.weight_decay, eps=o.eps,
        )  # fmt: skip

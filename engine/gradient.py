"""The gradient of one step: accumulated over micro-batches, its norm, clipping, fp16's loss scale."""

from collections.abc import Callable

import torch
from torch import Tensor

from engine.device import Device
from engine.model import GPT

Compute = Callable[[Tensor, Tensor], Tensor]  # (ids, targets) -> loss of each row; the model, compiled or not

SCALE_FIRST = 65536.0  # fp16's loss scale at step 1 (torch.amp.GradScaler's default)
SCALE_MAX = 65536.0
SCALE_EVERY = 2000  # it doubles at steps divisible by this, and only there, so that it follows from the log
SCALE_MIN = 2.0**-10  # an overflow below this is no matter of scale any more


def forward_backward(
    compute: Compute,
    model: GPT,
    device: Device,
    batch: Tensor,
    micro: int,
    scale: float | None,
) -> Tensor:
    """Loss of each row, (rows,) float32; the gradient of their mean stands in model.grad (and nothing else does)."""
    model.grad.zero_()
    losses = []
    for i in range(0, len(batch), micro):
        part = batch[i : i + micro]
        with device.autocast():
            row_losses = compute(part[:, :-1], part[:, 1:])
        total = row_losses.sum() / len(batch)
        (total if scale is None else total * scale).backward()  # type: ignore[no-untyped-call]
        losses.append(row_losses.detach())
    if scale is not None:
        model.grad.mul_(1.0 / scale)
    return torch.cat(losses)


def gradient_norm(model: GPT) -> Tensor:
    """Global L2 norm, from per-matrix norms: one float32 norm over the whole buffer would be off by 1e-3."""
    return torch.nn.utils.get_total_norm(list(model.grads()))


def clip(model: GPT, norm: float, limit: float) -> None:
    """Scale the gradients so that their norm is at most `limit` (Pascanu et al. 2013), like torch's clip_grad_norm_."""
    factor = limit / (norm + 1e-6)
    if factor < 1.0:
        model.grad.mul_(factor)


def scale_before(step: int, logged: float | None) -> float:
    """fp16's loss scale at the start of `step`, from the one logged with the step before."""
    if logged is None:
        return SCALE_FIRST
    return min(SCALE_MAX, logged * 2) if step % SCALE_EVERY == 0 else logged

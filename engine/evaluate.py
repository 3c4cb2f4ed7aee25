"""Held-out bits per byte of each arm: the same rows each time, no effect on anything that the training draws."""

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from engine.device import Device
from engine.errors import StopRequested
from engine.model import GPT


@torch.inference_mode()
def bits_per_byte(
    model: GPT, device: Device, rows: dict[str, NDArray[np.int64]], token_bytes: NDArray[np.int64], batch: int,
    should_stop: Callable[[], bool],
) -> dict[str, float]:  # fmt: skip
    """arm -> Σ nats of its held-out tokens / (ln 2 · Σ bytes these tokens stand for).

    `rows` are (n, context + 1) ids, `token_bytes` (vocab,) bytes of each token, `batch` rows at a time. Raises
    StopRequested.
    """
    out = {}
    for arm, all_rows in rows.items():
        nats = 0.0
        for i in range(0, len(all_rows), batch):
            if should_stop():
                raise StopRequested("evaluating")
            x = torch.from_numpy(all_rows[i : i + batch]).to(device.torch)
            with device.autocast():
                loss = model(x[:, :-1], x[:, 1:])
            nats += float(loss.double().sum()) * (x.shape[1] - 1)
        out[arm] = nats / (math.log(2) * float(token_bytes[all_rows[:, 1:]].sum()))
    return out

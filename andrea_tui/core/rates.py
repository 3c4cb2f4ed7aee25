"""How fast the run goes now, and when it will be done. Downtime does not count."""

import numpy as np
from msgspec import Struct

from engine.rundir.history import History
from engine.rundir.records import Status

RECENT = 100  # steps


class Rates(Struct, frozen=True):
    """None: not known (yet)."""

    step_time: float | None = None  # seconds a step, mean of the recent steps of this segment
    usual: float | None = None  # seconds a step, the median: audits and checkpoints don't show in it
    tokens: float | None = None  # per second
    mfu: float | None = None  # 0 to 1
    eta: float | None = None  # seconds


def rates(history: History, status: Status | None) -> Rates:
    """From the recent steps of the last segment. A segment's first step has dt 0: it has no step before it."""
    if not len(history) or (status is not None and status.seg > history.seg[-1]):
        return Rates()  # a segment without a step of its own yet: the one before says nothing about it
    seg = history.seg[-RECENT:]
    dt = history.dt[-RECENT:][seg == seg[-1]]
    dt = dt[np.isfinite(dt) & (dt > 0)]
    if not len(dt):
        return Rates()
    step_time, usual = float(dt.mean(dtype=np.float64)), sorted(dt.tolist())[len(dt) // 2]
    if status is None:
        return Rates(step_time, usual)
    tokens = status.tokens_per_step / step_time if status.tokens_per_step > 0 else None
    mfu = None
    if tokens and status.peak_flops > 0 and status.flops_per_token > 0:
        mfu = tokens * status.flops_per_token / status.peak_flops
    left = status.max_steps - history.last
    return Rates(step_time, usual, tokens, mfu, left * step_time if left >= 0 else None)

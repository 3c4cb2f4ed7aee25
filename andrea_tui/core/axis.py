"""The x axis of a chart: steps, hours since the run's first step, or tokens; its ticks and their labels."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from andrea_tui.core import fmt
from andrea_tui.core.decimate import Window, nice_step

X_AXES = ("steps", "hours", "tokens")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_CLOCK = (
    1, 2, 5, 10, 15, 30, _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, _HOUR, 2 * _HOUR,
    3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 5 * _DAY, 10 * _DAY, 20 * _DAY, 50 * _DAY, 100 * _DAY,
)  # fmt: skip
_MOST = 2**31 - 2  # seconds


class Clock:
    """Seconds since the run's first step, one whole number ≥ 1 per step. Pauses are in it; it never goes back.

    A clock that was set back stands still until it has caught up; a time of 0 or NaN counts as the one before.
    """

    def __init__(self) -> None:
        self._at: NDArray[np.int32] = np.zeros(0, np.int32)
        self._mark: tuple[float, float] = (0.0, 0.0)  # first and last time that are in it

    def column(self, t: NDArray[np.float64]) -> NDArray[np.int32]:
        """`t`: seconds since 1970, one per step."""
        n = len(self._at)
        if not 0 < n <= len(t) or self._mark != (float(t[0]), float(t[n - 1])):
            self._at, n = np.zeros(0, np.int32), 0
        if n < len(t):
            start = _first_known(t)
            new = np.where(np.isfinite(t[n:]) & (t[n:] > 0), t[n:] - start, 0.0)
            new = np.clip(np.floor(new), 0, _MOST).astype(np.int32) + 1
            new = np.maximum.accumulate(np.maximum(new, self._at[-1] if n else 1))
            self._at = np.concatenate([self._at, new])
            self._mark = (float(t[0]), float(t[-1]))
        return self._at


def _first_known(t: NDArray[np.float64]) -> float:
    known = t[:1024][np.isfinite(t[:1024]) & (t[:1024] > 0)]
    return float(known[0]) if len(known) else 0.0


def ticks(by: str, w: Window, parts: int, tokens_per_step: int) -> list[tuple[int, str]]:
    """(coordinate, label) of at most about `parts` ticks in the window."""
    if by == "hours":
        return _clock_ticks(w, parts)
    per = tokens_per_step if by == "tokens" else 1
    step = max(nice_step((w.end - w.start) * per, parts), per)
    first = math.ceil((w.start + 1) * per / step - 1e-9)
    found = [i * step for i in range(first, math.floor(w.end * per / step + 1e-9) + 1)]
    label = fmt.short
    return [(round(x / per), label(x)) for x in found if round(x / per) > w.start]


def _clock_ticks(w: Window, parts: int) -> list[tuple[int, str]]:
    span = w.end - w.start
    step = next((s for s in _CLOCK if span / s <= max(1, parts)), None)
    if step is None:
        step = int(nice_step(span / _DAY, parts)) * _DAY
    first = -(-w.start // step) * step
    # the first second is coordinate 1
    return [(x + 1, _duration(x)) for x in range(first, w.end, step)]


def _duration(seconds: int) -> str:
    """0, 45s, 30m, 1h30, 12h, 3d, 1d12h: exact to the tick."""
    days, rest = divmod(seconds, _DAY)
    hours, rest = divmod(rest, _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    parts = [f"{n}{unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")) if n]
    return "".join(parts[:2]) or "0"


def describe(by: str, size: int, tokens_per_step: int) -> str:
    """What one dot column stands for."""
    if by == "hours":
        return f"{fmt.duration(size)} a dot"
    if by == "tokens":
        return f"{fmt.short(size * tokens_per_step)} tokens a dot"
    return f"{fmt.count(size)} step{'s' if size > 1 else ''} a dot"


Coordinate = Callable[[int], int]

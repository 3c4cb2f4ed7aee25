"""Which steps fall into which column of a chart, and what is drawn there. Nothing is hidden by drawing.

Columns are buckets of `size` steps that start at multiples of it, so a column stays what it is when steps are
added; the size comes from a ladder of round numbers, so it changes rarely.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

_LADDER = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
_STRETCH = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)


def round_up(n: float) -> int:
    """The smallest bucket size of the ladder that is at least n."""
    scale = 1
    while n > 80 * scale:
        scale *= 10
    return next(s * scale for s in _LADDER if s * scale >= n)


class Window(Struct, frozen=True):
    """What a chart of some pixels shows: buckets first … first+n−1 of `size` steps, `stretch` pixels each.

    Bucket k holds the steps k·size+1 … (k+1)·size.
    """

    first: int
    n: int
    size: int
    stretch: int

    @property
    def start(self) -> int:
        """The last step before the window."""
        return self.first * self.size

    @property
    def end(self) -> int:
        """The last step that has room in it."""
        return (self.first + self.n) * self.size

    def x(self, step: int) -> int:
        """The step's pixel column."""
        return ((step - 1) // self.size - self.first) * self.stretch


def window(last: int, pixels: int, span: int | None = None, end: int | None = None) -> Window:
    """The last `span` steps (None: all) of a run of `last` steps, or those up to step `end`."""
    pixels = max(1, pixels)
    wide = max(1, last if span is None else span)
    size = round_up(wide / pixels)
    stretch = 1
    if size == 1 and wide < pixels:
        stretch = max(s for s in _STRETCH if s <= pixels / wide)
    n = max(1, pixels // stretch)
    if span is None:
        return Window(0, n, size, stretch)
    # The end moves in eighths of the window, so that columns stand still in between.
    eighth = max(1, n // 8) if end is None else 1
    stop = math.ceil(((max(1, last if end is None else end) - 1) // size + 1) / eighth) * eighth
    return Window(max(0, stop - n), n, size, stretch)


class Buckets(Struct, frozen=True):
    """Arrays of n entries, NaN where the bucket holds nothing."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    line: NDArray[np.float64]  # the EMA at the bucket's last step (the same at every zoom), or a mean
    lost: NDArray[np.bool_]  # holds a step without a finite loss


def _edges(step: NDArray[np.int32], w: Window) -> NDArray[np.int64]:
    """Where each bucket starts in `step`, and where the last one ends: n+1 indices."""
    edges = (np.arange(w.n + 1) + w.first) * w.size
    # In the column's own type: else all of the column is converted first.
    return np.searchsorted(step, np.minimum(edges, 2**31 - 1).astype(step.dtype), side="right")


def buckets(
    step: NDArray[np.int32], loss: NDArray[np.float32], ema: NDArray[np.float64], w: Window
) -> Buckets:
    """Least and greatest loss, last EMA per bucket of the window. `step` rises; all three have one length."""
    at = _edges(step, w)
    filled = at[1:] > at[:-1]
    low, high, last = (np.full(w.n, np.nan) for _ in range(3))
    lost = np.zeros(w.n, np.bool_)
    if filled.any():
        # Only the filled buckets' starts: reduceat gives nonsense for empty ones.
        starts = at[:-1][filled] - at[0]
        part = loss[at[0] : at[-1]]
        low[filled] = np.fmin.reduceat(part, starts)
        high[filled] = np.fmax.reduceat(part, starts)
        last[filled] = ema[at[1:][filled] - 1]
        lost[filled] = np.logical_or.reduceat(~np.isfinite(part), starts)
    return Buckets(low, high, last, lost)


def means(step: NDArray[np.int32], values: NDArray[Any], w: Window, positive: bool = False) -> Buckets:
    """As `buckets`, with the mean of the finite values for the line; for the small charts.

    `positive`: only what is greater than 0 is a value.
    """
    at = _edges(step, w)
    filled = at[1:] > at[:-1]
    low, high, mean = (np.full(w.n, np.nan) for _ in range(3))
    if filled.any():
        starts, part = at[:-1][filled] - at[0], values[at[0] : at[-1]].astype(np.float64)
        finite = np.isfinite(part) & (part > 0) if positive else np.isfinite(part)
        part[~finite] = np.nan
        low[filled] = np.fmin.reduceat(part, starts)
        high[filled] = np.fmax.reduceat(part, starts)
        total = np.add.reduceat(np.where(finite, part, 0.0), starts)
        n = np.add.reduceat(finite.astype(np.int64), starts)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean[filled] = total / n
    return Buckets(low, high, mean, np.zeros(w.n, np.bool_))


class Kept:
    """The buckets of the last drawing. Of a history that only grew, only those that can have changed are made anew."""

    def __init__(self) -> None:
        self._key: tuple[Any, ...] = ()
        self._seen = 0  # entries that are in the buckets
        self._buckets: Buckets | None = None

    def get(
        self,
        reduce: Callable[[Window], Buckets],
        step: NDArray[np.int32],
        marks: Sequence[NDArray[Any]],
        w: Window,
        *of: object,
    ) -> Buckets:
        """`reduce` makes the buckets of a window. `marks`: columns whose value at a step changes when that step is
        trained again or its line is computed anew; `of`: whatever else the buckets depend on."""
        n, seen, kept = len(step), self._seen, self._buckets
        grown = 0 < seen <= n and self._key == (w, of, _ends(step, marks, seen))
        if kept is None or not grown:
            kept = reduce(w)
        elif n > seen:
            k = min(max((int(step[seen - 1]) - 1) // w.size - w.first, 0), w.n)
            if k < w.n:
                kept = _joined(kept, reduce(Window(w.first + k, w.n - k, w.size, w.stretch)), k)
        self._seen, self._buckets, self._key = n, kept, (w, of, _ends(step, marks, n))
        return kept


def _ends(step: NDArray[np.int32], marks: Sequence[NDArray[Any]], n: int) -> tuple[float, ...]:
    return (int(step[0]), int(step[n - 1]), *(float(m[n - 1]) for m in marks)) if n else ()


def _joined(a: Buckets, b: Buckets, k: int) -> Buckets:
    """The first k of a, then all of b."""
    return Buckets(*(np.concatenate([x[:k], y]) for x, y in zip(_columns(a), _columns(b), strict=True)))


def _columns(b: Buckets) -> tuple[NDArray[Any], ...]:
    return b.low, b.high, b.line, b.lost


_SAMPLE = 20_000


def robust_range(values: NDArray[Any], extremes: NDArray[Any] | None = None) -> tuple[float, float] | None:
    """(least, greatest) without far outliers; None where there are no finite values.

    What is far follows from quantiles of (a sample of) the values; the range is that of `extremes`, by default
    all values, as far as they are not.
    """
    sample = np.asarray(values[:: max(1, len(values) // _SAMPLE)], np.float64)
    sample = sample[np.isfinite(sample)]
    v = np.asarray(values if extremes is None else extremes, np.float64)
    v = v[np.isfinite(v)]
    if not len(v):
        return None
    if len(sample) > 20:
        low, high = np.quantile(sample, (0.005, 0.995))
        room = max(0.5 * (high - low), 1e-6)
        inside = v[(v >= low - room) & (v <= high + room)]
        v = inside if len(inside) else v
    return float(v.min()), float(v.max())


def nice_step(span: float, parts: int) -> float:
    """A step of 1, 2 or 5 times a power of ten that gives at most `parts` parts."""
    if not span > 0 or not math.isfinite(span):
        return 1.0
    raw = span / max(1, parts)
    power = 10.0 ** math.floor(math.log10(raw))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))


def nice_range(low: float, high: float, parts: int) -> tuple[float, float]:
    """Rounded outwards to quarters of a tick, so that the axis stands still while numbers move."""
    if high - low < 1e-9 * max(1.0, abs(high)):
        pad = max(0.5 * abs(high), 0.5) * 0.1
        low, high = low - pad, high + pad
    q = nice_step(high - low, parts) / 4
    return min(math.floor(low / q) * q, low), max(math.ceil(high / q) * q, high)


def ticks(low: float, high: float, parts: int) -> list[float]:
    step = nice_step(high - low, parts)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]

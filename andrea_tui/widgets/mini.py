"""Small charts for the big screen: one column each, over the whole run."""

import math
from typing import Any

import numpy as np

from andrea_tui.core import decimate, fmt, lens, raster
from andrea_tui.core.text import clipped
from andrea_tui.core.views import ArmView, MiniView, MixView
from andrea_tui.widgets.paint import STYLES, Line, Run, boxed, cells, fit, row_of
from andrea_tui.widgets.pane import Pane


class MiniChart(Pane[MiniView]):
    """Its mean as a line in a faint band from least to greatest, the range at the left, the newest in the title."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._kept = decimate.Kept()

    def draw(self, v: MiniView, width: int, height: int) -> list[Line]:
        w, h = max(1, width - 4), max(1, height - 2)
        lines = self._plot(v, w, h) if len(v.step) else [[("no step yet", "dim")]]
        return boxed([(v.title, "title")], v.last, lines, width, height, False)

    def _plot(self, v: MiniView, w: int, h: int) -> list[list[Run]]:
        label = 7 if w >= 24 else 0
        cols = w - label
        window = lens.window_of(v.lens, int(v.step[-1]), cols * 2)
        data = self._kept.get(
            lambda x: decimate.means(v.step, v.values, x, v.per is not None),
            v.step,
            [v.values],
            window,
            v.title,
        )
        if v.per is not None:
            data = _rate(data, v.per)
        found = decimate.robust_range(_sample(v, window), np.concatenate([data.low, data.high]))
        if found is None:
            return [[(fmt.NA, "dim")]]
        low, high = _padded(*found)

        def y(x: Any) -> Any:
            return (high - x) / (high - low) * (h * 4 - 1)

        band = raster.codes(raster.spans(y(data.high), y(data.low), h * 4, cols * 2, window.stretch))
        line = raster.codes(raster.line(y(data.line), h * 4, cols * 2, window.stretch))
        chars = np.where(line > 0, line, np.where(band > 0, band, raster.SPACE)).astype(np.uint32)
        styles = np.where(line > 0, STYLES.index("ema"), STYLES.index("raw")).astype(np.int8)
        for i in np.flatnonzero(data.high > high).tolist():
            if (col := i * window.stretch // 2) < cols:
                chars[0, col], styles[0, col] = ord("▴"), STYLES.index("bad")
        # of what is low only the mean: a single slow step (a checkpoint, an audit) says nothing
        for i in np.flatnonzero(data.line < low).tolist():
            if (col := i * window.stretch // 2) < cols:
                chars[-1, col], styles[-1, col] = ord("▾"), STYLES.index("mark")
        out: list[list[Run]] = []
        for i in range(h):
            text = _label(high) if i == 0 else (_label(low) if i == h - 1 else "")
            axis: list[Run] = [(fit(text, label - 1, right=True) + " ", "dim")] if label else []
            out.append([*axis, *row_of(chars[i], styles[i])])
        return out


def _sample(v: MiniView, w: decimate.Window) -> Any:
    """Of the single values in the window: what is far off is seen beside them, not beside means."""
    a, b = np.searchsorted(v.step, np.array([w.start, min(w.end, 2**31 - 1)], v.step.dtype), side="right")
    values = v.values[a:b][:: max(1, (b - a) // 20_000)]
    if v.per is None:
        return values
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values > 0, v.per / values, np.nan)


def _padded(low: float, high: float) -> tuple[float, float]:
    """A range with some height: the noise of a constant is not blown up."""
    if (pad := 0.05 * max(abs(low), abs(high)) - (high - low) / 2) > 0:
        low, high = low - pad, high + pad
    return (low, high) if high > low else (low - 1, high + 1)


def _rate(seconds: decimate.Buckets, per: float) -> decimate.Buckets:
    """Of seconds a step: `per` over them. The mean is over the time, so that it is what was done by what it took."""
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high, line = (
            np.where(x > 0, per / x, np.nan) for x in (seconds.high, seconds.low, seconds.line)
        )
    return decimate.Buckets(low, high, line, seconds.lost)


class ArmLossPane(Pane[MixView]):
    """Loss per arm now, and against the window before."""

    def draw(self, v: MixView, width: int, height: int) -> list[Line]:
        known = [a for a in v.arms if a.loss is not None and math.isfinite(a.loss)]
        most = max((a.loss or 0.0 for a in known), default=0.0)
        name = max(6, min(18, (width - 4) // 3))
        names = clipped([a.name for a in known], name)
        rows = [_arm(a, fit(x, name), width - 4, most) for a, x in zip(known, names, strict=True)]
        if len(rows) > height - 2 > 0:
            rows = [*rows[: height - 3], [(f"… {len(rows) - height + 3} more", "dim")]]
        title: list[Run] = [("loss per arm", "title")]
        return boxed(title, f"last {v.steps} · change", rows or [[("none yet", "dim")]], width, height, False)


def _arm(a: ArmView, name: str, width: int, most: float) -> list[Run]:
    loss = fit(fmt.number(a.loss), 7, right=True)
    trend = "" if a.trend is None else f"{a.trend:+.3f}"
    wide = max(0, width - cells(name) - 1 - 7 - 8)
    full = round((a.loss or 0.0) / most * wide) if most > 0 else 0
    return [
        (name + " ", "text"), ("█" * full + " " * (wide - full), "bar"), (loss, "bold"),
        (fit(trend, 8, right=True), "good" if (a.trend or 0) < 0 else "dim"),
    ]  # fmt: skip


def _label(x: float) -> str:
    return fmt.short(x) if abs(x) >= 1000 else fmt.number(x, 2)

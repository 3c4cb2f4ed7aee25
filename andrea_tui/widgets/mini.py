"""Small charts for the big screen: one column each, over the whole run."""

import math

import numpy as np

from andrea_tui.core import decimate, fmt, raster
from andrea_tui.core.views import ArmView, MiniView, MixView
from andrea_tui.widgets.paint import STYLES, Line, Run, boxed, fit, row_of
from andrea_tui.widgets.pane import Pane


class MiniChart(Pane[MiniView]):
    """A line, its least and greatest value, and the newest in the title."""

    def draw(self, v: MiniView, width: int, height: int) -> list[Line]:
        w, h = max(1, width - 4), max(1, height - 2)
        lines = _plot(v, w, h) if len(v.step) else [[("no step yet", "dim")]]
        return boxed([(v.title, "title")], v.last, lines, width, height, False)


def _plot(v: MiniView, w: int, h: int) -> list[list[Run]]:
    label = 7 if w >= 24 else 0
    cols = w - label
    window = decimate.window(int(v.step[-1]), cols * 2)
    y = decimate.sampled(v.step, v.values, window)
    found = decimate.robust_range(y)
    if found is None:
        return [[(fmt.NA, "dim")]]
    low, high = found
    if (pad := 0.05 * max(abs(low), abs(high)) - (high - low) / 2) > 0:  # noise of a constant is not blown up
        low, high = low - pad, high + pad
    if high <= low:
        low, high = low - 1, high + 1
    dots = raster.line((high - y) / (high - low) * (h * 4 - 1), h * 4, cols * 2, window.stretch)
    codes = raster.codes(dots)
    chars = np.where(codes > 0, codes, raster.SPACE).astype(np.uint32)
    styles = np.full(chars.shape, STYLES.index("ema"), np.int8)
    out: list[list[Run]] = []
    for i in range(h):
        text = _label(high) if i == 0 else (_label(low) if i == h - 1 else "")
        axis: list[Run] = [(fit(text, label - 1, right=True) + " ", "dim")] if label else []
        out.append([*axis, *row_of(chars[i], styles[i])])
    return out


class ArmLossPane(Pane[MixView]):
    """Loss per arm now, and against the window before."""

    def draw(self, v: MixView, width: int, height: int) -> list[Line]:
        known = [a for a in v.arms if a.loss is not None and math.isfinite(a.loss)]
        most = max((a.loss or 0.0 for a in known), default=0.0)
        rows = [_arm(a, width - 4, most) for a in known]
        if len(rows) > height - 2 > 0:
            rows = [*rows[: height - 3], [(f"… {len(rows) - height + 3} more", "dim")]]
        title: list[Run] = [("loss per arm", "title")]
        return boxed(title, f"last {v.steps} · change", rows or [[("none yet", "dim")]], width, height, False)


def _arm(a: ArmView, width: int, most: float) -> list[Run]:
    name = max(6, min(18, width // 3))
    loss = fit(fmt.number(a.loss), 7, right=True)
    trend = "" if a.trend is None else f"{a.trend:+.3f}"
    wide = max(0, width - name - 1 - 7 - 8)
    full = round((a.loss or 0.0) / most * wide) if most > 0 else 0
    return [
        (fit(a.name, name) + " ", "text"), ("█" * full + " " * (wide - full), "bar"), (loss, "bold"),
        (fit(trend, 8, right=True), "good" if (a.trend or 0) < 0 else "dim"),
    ]  # fmt: skip


def _label(x: float) -> str:
    return fmt.short(x) if abs(x) >= 1000 else fmt.number(x, 2)

"""The loss chart: raw loss as a faint band, its EMA as a line, marks for phases, checkpoints, spikes and NaN."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from andrea_tui.core import decimate, fmt, raster
from andrea_tui.core.views import ChartView
from andrea_tui.widgets.paint import STYLES, Line, Run, boxed, cells, fit, row_of
from andrea_tui.widgets.pane import Pane

_LABEL = 6  # cells of a y label
_VALUE = 7  # cells right of the plot, for the EMA's value
_MAX_ZOOM = 24
X_AXES = ("steps", "hours", "tokens")
_S = {name: i for i, name in enumerate(STYLES)}

Floats = NDArray[np.float64]


class LossChart(Pane[ChartView]):
    """Zoom, pan and scale are the chart's own; the smoothing is the store's."""

    can_focus = True

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.level, self.back, self.logarithmic = 0, 0, False
        self.x_by = X_AXES[0]

    def zoom(self, by: int) -> None:
        """In (1), out (−1), or the whole run (0)."""
        self.level = 0 if by == 0 else min(max(self.level + by, 0), _MAX_ZOOM)
        if self.level == 0 or by == 0:
            self.back = 0
        self.redraw()

    def pan(self, by: int) -> None:
        """An eighth of the window earlier (1) or later (−1)."""
        if self.level:
            self.back = max(0, self.back + by)
            self.redraw()

    def log_scale(self) -> None:
        self.logarithmic = not self.logarithmic
        self.redraw()

    def next_x(self) -> None:
        """x by steps, hours, tokens."""
        self.x_by = X_AXES[(X_AXES.index(self.x_by) + 1) % len(X_AXES)]
        self.redraw()

    def goto(self, step: int) -> None:
        """Show that step: at the present zoom, or at one that has it near the middle."""
        last = int(self.view.step[-1]) if self.view is not None and len(self.view.step) else 0
        if not self.level:
            self.zoom(4)
        span = max(1, last >> self.level)
        self.back = max(0, round((last - step - span / 2) / (span / 8)))
        self.redraw()

    def draw(self, view: ChartView, width: int, height: int) -> list[Line]:
        framed = width >= 20 and height >= 6
        w, h = (width - 4, height - 2) if framed else (width, height)
        plot = Plot(view, w, h, self.level, self.back, self.logarithmic)
        self.back = plot.back
        if not framed:
            return plot.lines()
        return boxed(plot.title(), plot.caption(), plot.lines(), width, height, self.has_focus)


class Plot:
    """One drawing of a chart into w × h cells."""

    def __init__(self, view: ChartView, w: int, h: int, level: int, back: int, log: bool) -> None:
        self.view, self.w, self.h, self.log = view, max(w, 1), max(h, 1), log
        self.left = _LABEL + 1 if w >= 30 else 0
        self.right = _VALUE if w >= 44 else 0
        self.foot = 2 if h >= 6 else (1 if h >= 4 else 0)
        self.cols = max(1, self.w - self.left - self.right)
        self.rows = max(1, self.h - self.foot)
        self.last = int(view.step[-1]) if len(view.step) else 0
        self.level = level
        self.window, self.back = _window(self.last, self.cols * 2, level, back)
        self.data = decimate.buckets(view.step, view.loss, view.ema, self.window)
        self.low, self.high, self.empty = self._range()

    def title(self) -> list[Run]:
        v, d = self.view, f"{self.view.decay:.4f}".rstrip("0").rstrip(".")
        runs: list[Run] = [
            ("1 ", "dim"),
            ("loss", "title"),
            (" · ", "dim"),
            ("EMA", "ema"),
            (f" d {d}", "dim"),
        ]
        if self.log:
            runs.append((" · log", "warn"))
        if self.level:
            a, b = self.window.start + 1, min(self.window.end, self.last)
            runs.append((f" · steps {fmt.count(a)}–{fmt.count(max(a, b))}", "warn"))
        if v.loading is not None:
            runs.append((f" · loading history {v.loading} %", "warn"))
        return runs

    def caption(self) -> str:
        size = self.window.size
        return f"{fmt.count(size)} step{'s' if size > 1 else ''} a dot" if self.last else ""

    def lines(self) -> list[Line]:
        if not len(self.view.step):
            return self._nothing()
        chars = np.full((self.rows, self.cols + self.right), raster.SPACE, np.uint32)
        styles = np.zeros((self.rows, self.cols + self.right), np.int8)
        self._phases(chars, styles)
        self._curves(chars, styles)
        self._phase_names(chars, styles)
        self._spikes(chars, styles)
        self._value(chars, styles)
        labels = self._y_labels()
        out: list[Line] = []
        for y in range(self.rows):
            axis: list[Run] = []
            if self.left:
                text = labels.get(y, "")
                axis = [(fit(text, _LABEL, right=True), "dim"), ("┤" if text else "│", "frame")]
            out.append((*axis, *row_of(chars[y], styles[y])))
        if self.foot >= 1:
            out.append(self._x_axis())
        if self.foot >= 2:
            out.append(self._x_labels())
        return out

    def _nothing(self) -> list[Line]:
        v = self.view
        text = "no step yet" if v.loading is None else f"loading history {v.loading} %"
        above: list[Line] = [()] * (max(0, self.h - 1) // 2)
        pad = " " * (max(0, self.w - len(text)) // 2)
        return [*above, ((pad, "text"), (text, "dim"))]

    # ---- scales

    def _scale(self, values: Any) -> Floats:
        v = np.asarray(values, np.float64)
        if not self.log:
            return v
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(v > 0, np.log10(v), np.nan)

    def _range(self) -> tuple[float, float, bool]:
        """The y axis, in scaled units, and whether there is nothing finite to show."""
        w, v = self.window, self.view
        a, b = np.searchsorted(v.step, np.array([w.start, min(w.end, 2**31 - 1)], v.step.dtype), side="right")
        thin = v.loss[a:b][:: max(1, (b - a) // 20_000)]
        extremes = np.concatenate([self.data.low, self.data.high])
        found = decimate.robust_range(self._scale(thin), self._scale(extremes))
        if found is None:
            return 0.0, 1.0, True
        low, high = decimate.nice_range(*found, parts=self._parts())
        if not self.log and found[0] >= 0:
            low = max(low, 0.0)
        return low, high, False

    def _parts(self) -> int:
        return max(2, self.rows // 3)

    def _y(self, values: Any) -> Floats:
        """Pixel rows, from the top; beyond the raster where a value is off the axis."""
        return (self.high - self._scale(values)) / (self.high - self.low) * (self.rows * 4 - 1)

    # ---- layers

    def _curves(self, chars: NDArray[np.uint32], styles: NDArray[np.int8]) -> None:
        d, s, h = self.data, self.window.stretch, self.rows * 4
        band = raster.codes(raster.spans(self._y(d.high), self._y(d.low), h, self.cols * 2, s))
        line = raster.codes(raster.line(self._y(d.ema), h, self.cols * 2, s))
        plot, look = chars[:, : self.cols], styles[:, : self.cols]
        for layer, style in ((band, "raw"), (line, "ema")):
            there = layer > 0
            plot[there] = layer[there]
            look[there] = _S[style]

    def _spikes(self, chars: NDArray[np.uint32], styles: NDArray[np.int8]) -> None:
        """What is off the axis gets a triangle on the edge in its column."""
        top, bottom = self._scale(self.data.high), self._scale(self.data.low)
        for off, row, mark in ((top > self.high, 0, "▴"), (bottom < self.low, self.rows - 1, "▾")):
            for i in np.flatnonzero(off).tolist():
                col = i * self.window.stretch // 2
                if col < self.cols:
                    chars[row, col], styles[row, col] = ord(mark), _S["bad"]

    def _phases(self, chars: NDArray[np.uint32], styles: NDArray[np.int8]) -> None:
        for step in self.view.phases:
            col = self.window.x(step + 1) // 2
            if 0 <= col < self.cols:
                chars[:, col], styles[:, col] = ord("┊"), _S["mark"]

    def _phase_names(self, chars: NDArray[np.uint32], styles: NDArray[np.int8]) -> None:
        """The policies' names on both sides of a mark, in the highest free row; none is cut or covers a curve."""
        for step, old, new in self.view.phase_names:
            col = self.window.x(step + 1) // 2
            if step not in self.view.phases or not 0 <= col < self.cols:
                continue
            for text, start in ((f" {old} ", col - len(old) - 2), (f" {new} ", col + 1)):
                self._write(chars, styles, text, start)

    def _write(self, chars: NDArray[np.uint32], styles: NDArray[np.int8], text: str, start: int) -> None:
        """In one of the three highest or the lowest row, where all its cells are free."""
        end = start + len(text)
        if start < 0 or end > self.cols or len(text) != cells(text):
            return
        for row in (*range(min(3, self.rows)), self.rows - 1):
            if (chars[row, start:end] == raster.SPACE).all():
                chars[row, start:end], styles[row, start:end] = [ord(c) for c in text], _S["mark"]
                return

    def _value(self, chars: NDArray[np.uint32], styles: NDArray[np.int8]) -> None:
        """The EMA's value, right of its last dot."""
        known = np.flatnonzero(np.isfinite(self.data.ema))
        if not len(known) or not self.right:
            return
        i = int(known[-1])
        y = float(self._y(self.data.ema[i : i + 1])[0])
        if not math.isfinite(y):
            return
        row = min(max(int(y) // 4, 0), self.rows - 1)
        text = "◄" + fmt.number(float(self.data.ema[i]))
        col = min(i * self.window.stretch // 2 + 1, self.cols)
        for k, c in enumerate(text[:_VALUE]):
            chars[row, col + k], styles[row, col + k] = ord(c), _S["key"]

    # ---- axes

    def _y_labels(self) -> dict[int, str]:
        if self.empty:
            return {}
        out: dict[int, str] = {}
        for t in self._y_ticks():
            y = (self.high - t) / (self.high - self.low) * (self.rows * 4 - 1)
            row = min(max(round(y) // 4, 0), self.rows - 1)
            value = 10**t if self.log else t
            out.setdefault(row, _label(value))
        return out

    def _y_ticks(self) -> list[float]:
        if not self.log:
            return decimate.ticks(self.low, self.high, self._parts())
        decades = range(math.floor(self.low) - 1, math.ceil(self.high) + 1)
        fine = [math.log10(m) + e for e in decades for m in (1, 2, 5)]
        inside = [t for t in fine if self.low - 1e-9 <= t <= self.high + 1e-9]
        if 3 <= len(inside) <= self.rows:
            return inside
        return [math.log10(t) for t in decimate.ticks(10**self.low, 10**self.high, self._parts()) if t > 0]

    def _x_axis(self) -> Line:
        chars = np.full(self.cols + self.right, ord("─"), np.uint32)
        styles = np.full(self.cols + self.right, _S["frame"], np.int8)
        w = self.window

        def mark(step: int, glyph: str, style: str) -> None:
            col = w.x(step) // 2
            if 0 <= col < self.cols:
                chars[col], styles[col] = ord(glyph), _S[style]

        for step in self._x_ticks():
            mark(step, "┬", "frame")
        for step in self.view.checkpoints:
            mark(max(step, 1), "▴", "dim")
        for step in self.view.phases:
            mark(step + 1, "┼", "mark")
        for i in np.flatnonzero(self.data.lost).tolist():
            col = i * w.stretch // 2
            if col < self.cols:
                chars[col], styles[col] = ord("×"), _S["bad"]
        left: list[Run] = [(" " * _LABEL + "└", "frame")] if self.left else []
        return (*left, *row_of(chars, styles))

    def _x_ticks(self) -> list[int]:
        w = self.window
        parts = max(1, self.cols // 12)
        step = max(1, int(decimate.nice_step(w.end - w.start, parts)))
        first = -(-(w.start + 1) // step) * step
        return list(range(first, w.end + 1, step))

    def _x_labels(self) -> Line:
        """Each under its tick, none over another."""
        text = [" "] * (self.cols + self.right)
        free = 0
        for step in self._x_ticks():
            label = fmt.short(step)
            start = max(0, self.window.x(step) // 2 - len(label) // 2)
            if start >= free and start + len(label) <= len(text):
                text[start : start + len(label)] = label
                free = start + len(label) + 1
        unit = "steps"
        if len(text) - free >= len(unit) and self.right:
            text[len(text) - len(unit) :] = unit
        left: list[Run] = [(" " * self.left, "text")] if self.left else []
        return (*left, ("".join(text), "dim"))


def _window(last: int, pixels: int, level: int, back: int) -> tuple[decimate.Window, int]:
    """The window, and `back` as far as it has an effect: panning stops at the run's start."""
    w = decimate.window(last, pixels, level, back)
    while back > 0 and w.first == 0 and decimate.window(last, pixels, level, back - 1).first == 0:
        back -= 1
    return decimate.window(last, pixels, level, back), back


def _label(x: float) -> str:
    if x == 0 or 0.01 <= abs(x) < 1e4:
        return f"{x:.2f}".rstrip("0").rstrip(".") if abs(x) < 100 else f"{x:.0f}"
    return fmt.short(x) if 1e4 <= abs(x) < 1e9 else f"{x:.0e}".replace("e-0", "e-").replace("e+0", "e")

"""One drawing of the loss: raw as a faint band, its EMA as a line, held-out points, marks. It hides nothing."""

import math
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from andrea_tui.core import axis, decimate, fmt, raster
from andrea_tui.core.views import ChartView
from andrea_tui.widgets.paint import STYLES, Line, Run, cells, fit, row_of

_LABEL = 6  # cells of a y label
_VALUE = 7  # cells right of the plot, for the EMA's value
_S = {name: i for i, name in enumerate(STYLES)}

Floats: TypeAlias = NDArray[np.float64]
Chars: TypeAlias = NDArray[np.uint32]
Styles: TypeAlias = NDArray[np.int8]


class Place(Struct, frozen=True):
    """How w × h cells are divided: left of the plot the labels, right of it the EMA's value, below it the axis."""

    w: int
    h: int

    @property
    def left(self) -> int:
        return _LABEL + 1 if self.w >= 30 else 0

    @property
    def right(self) -> int:
        return _VALUE if self.w >= 44 else 0

    @property
    def foot(self) -> int:
        return 2 if self.h >= 6 else (1 if self.h >= 4 else 0)

    @property
    def cols(self) -> int:
        return max(1, self.w - self.left - self.right)

    @property
    def rows(self) -> int:
        return max(1, self.h - self.foot)


class Plot:
    """The buckets of a window, drawn into a place."""

    def __init__(
        self, view: ChartView, x: NDArray[np.int32], by: str, window: decimate.Window, data: decimate.Buckets,
        place: Place, log: bool, cursor: int | None = None,
    ) -> None:  # fmt: skip
        """`x`: each step's coordinate on the axis `by`; `cursor`: a step."""
        self.view, self.x, self.by, self.window, self.data, self.log = view, x, by, window, data, log
        self.w, self.h, self.left, self.right, self.foot = (
            place.w,
            place.h,
            place.left,
            place.right,
            place.foot,
        )
        self.cols, self.rows, self.cursor = place.cols, place.rows, cursor
        self.low, self.high, self.empty = self._range()

    def lines(self) -> list[Line]:
        chars = np.full((self.rows, self.cols + self.right), raster.SPACE, np.uint32)
        styles = np.zeros((self.rows, self.cols + self.right), np.int8)
        self._phases(chars, styles)
        self._curves(chars, styles)
        self._heldout(chars, styles)
        self._phase_names(chars, styles)
        self._spikes(chars, styles)
        self._cursor(chars, styles)
        self._value(chars, styles)
        labels = self._y_labels()
        out: list[Line] = []
        for y in range(self.rows):
            left: list[Run] = []
            if self.left:
                text = labels.get(y, "")
                left = [(fit(text, _LABEL, right=True), "dim"), ("┤" if text else "│", "frame")]
            out.append((*left, *row_of(chars[y], styles[y])))
        if self.foot >= 1:
            out.append(self._x_axis())
        if self.foot >= 2:
            out.append(self._x_labels())
        return out

    # ---- scales

    def _column(self, step: int) -> int | None:
        """The cell column of a step (of the first one after it that is there); None where it is not shown."""
        i = int(np.searchsorted(self.view.step, step))
        if i >= len(self.x):
            return None
        col = self.window.x(int(self.x[i])) // 2
        return col if 0 <= col < self.cols else None

    def _bucket_column(self, i: int) -> int:
        return i * self.window.stretch // 2

    def _scale(self, values: Any) -> Floats:
        v = np.asarray(values, np.float64)
        if not self.log:
            return v
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(v > 0, np.log10(v), np.nan)

    def _range(self) -> tuple[float, float, bool]:
        """The y axis, in scaled units, and whether there is nothing finite to show."""
        w = self.window
        edges = np.array([w.start, min(w.end, 2**31 - 1)], self.x.dtype)
        a, b = np.searchsorted(self.x, edges, side="right")
        thin = self.view.loss[a:b][:: max(1, (b - a) // 20_000)]
        extremes = np.concatenate([self.data.low, self.data.high])
        found = decimate.robust_range(self._scale(thin), self._scale(extremes))
        if found is None:
            return 0.0, 1.0, True
        low, high = decimate.nice_range(*self._with_line(*found), parts=self._parts())
        if not self.log and found[0] >= 0:
            low = max(low, 0.0)
        return low, high, False

    def _with_line(self, low: float, high: float) -> tuple[float, float]:
        """The EMA belongs on the axis too, but for one that a spike has thrown far off."""
        line, room = self._scale(self.data.line), max(high - low, 1e-6)
        near = line[np.isfinite(line) & (line > low - room) & (line < high + room)]
        return (min(low, float(near.min())), max(high, float(near.max()))) if len(near) else (low, high)

    def _parts(self) -> int:
        return max(2, self.rows // 3)

    def _y(self, values: Any) -> Floats:
        """Pixel rows, from the top; beyond the raster where a value is off the axis."""
        return (self.high - self._scale(values)) / (self.high - self.low) * (self.rows * 4 - 1)

    def _row(self, value: float) -> int | None:
        y = float(self._y(np.array([value]))[0])
        return min(max(round(y) // 4, 0), self.rows - 1) if math.isfinite(y) else None

    # ---- layers

    def _curves(self, chars: Chars, styles: Styles) -> None:
        d, s, h = self.data, self.window.stretch, self.rows * 4
        band = raster.codes(raster.spans(self._y(d.high), self._y(d.low), h, self.cols * 2, s))
        line = raster.codes(raster.line(self._y(d.line), h, self.cols * 2, s))
        plot, look = chars[:, : self.cols], styles[:, : self.cols]
        for layer, style in ((band, "raw"), (line, "ema")):
            there = layer > 0
            plot[there] = layer[there]
            look[there] = _S[style]

    def _heldout(self, chars: Chars, styles: Styles) -> None:
        """At most one in four columns, the newest there: more would hide the EMA, by which they mostly lie."""
        shown: dict[int, tuple[int, int]] = {}
        for step, value in self.view.heldout:
            col, row = self._column(step), self._row(value)
            if col is not None and row is not None:
                shown[col // 4] = (row, col)
        for row, col in shown.values():
            chars[row, col], styles[row, col] = ord("○"), _S["mark"]

    def _spikes(self, chars: Chars, styles: Styles) -> None:
        """What is off the axis gets a triangle on the edge in its column."""
        top, bottom = self._scale(self.data.high), self._scale(self.data.low)
        for off, row, mark in ((top > self.high, 0, "▴"), (bottom < self.low, self.rows - 1, "▾")):
            for i in np.flatnonzero(off).tolist():
                col = self._bucket_column(i)
                if col < self.cols:
                    chars[row, col], styles[row, col] = ord(mark), _S["bad"]

    def _phases(self, chars: Chars, styles: Styles) -> None:
        for step in self.view.phases:
            if (col := self._column(step + 1)) is not None:
                chars[:, col], styles[:, col] = ord("┊"), _S["mark"]

    def _phase_names(self, chars: Chars, styles: Styles) -> None:
        """The policies' names on both sides of a mark, in the highest free row; none is cut or covers a curve."""
        for step, old, new in self.view.phase_names:
            col = self._column(step + 1)
            if step not in self.view.phases or col is None:
                continue
            for text, start in ((f" {old} ", col - len(old) - 2), (f" {new} ", col + 1)):
                self._write(chars, styles, text, start)

    def _write(self, chars: Chars, styles: Styles, text: str, start: int) -> None:
        """In one of the three highest or the lowest row, where all its cells are free."""
        end = start + len(text)
        if start < 0 or end > self.cols or len(text) != cells(text):
            return
        for row in (*range(min(3, self.rows)), self.rows - 1):
            if (chars[row, start:end] == raster.SPACE).all():
                chars[row, start:end], styles[row, start:end] = [ord(c) for c in text], _S["mark"]
                return

    def _cursor(self, chars: Chars, styles: Styles) -> None:
        if self.cursor is None or (col := self._column(self.cursor)) is None:
            return
        empty = chars[:, col] == raster.SPACE
        chars[empty, col] = ord("│")
        styles[:, col] = _S["key"]

    def _value(self, chars: Chars, styles: Styles) -> None:
        """The EMA's value, right of its last dot."""
        known = np.flatnonzero(np.isfinite(self.data.line))
        if not len(known) or not self.right:
            return
        i = int(known[-1])
        y = float(self._y(self.data.line[i : i + 1])[0])
        if not math.isfinite(y):
            return
        row = min(max(int(y) // 4, 0), self.rows - 1)
        text = "◄" + fmt.number(float(self.data.line[i]))
        col = min(self._bucket_column(i) + 1, self.cols)
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

    def _x_ticks(self) -> list[tuple[int, str]]:
        """(column, label)"""
        found = axis.ticks(self.by, self.window, max(1, self.cols // 12), self.view.tokens_per_step)
        at = ((self.window.x(x) // 2, label) for x, label in found)
        return [(col, label) for col, label in at if 0 <= col < self.cols]

    def _x_axis(self) -> Line:
        """Least important first: what comes later is written over it."""
        chars = np.full(self.cols + self.right, ord("─"), np.uint32)
        styles = np.full(self.cols + self.right, _S["frame"], np.int8)

        def mark(col: int | None, sign: str, style: str) -> None:
            if col is not None and col < self.cols:
                chars[col], styles[col] = ord(sign), _S[style]

        for tick, _ in self._x_ticks():
            mark(tick, "┬", "frame")
        saved = [self._column(max(step, 1)) for step in self.view.checkpoints]
        if sum(col is not None for col in saved) <= self.cols // 2:  # else they'd be the whole axis
            for col in saved:
                mark(col, "▴", "dim")
        for m in self.view.marks:
            mark(self._column(max(m.step, 1)), m.sign, m.tone)
        for step in self.view.phases:
            mark(self._column(step + 1), "┼", "mark")
        for i in np.flatnonzero(self.data.lost).tolist():
            mark(self._bucket_column(i), "×", "bad")
        if self.cursor is not None:
            mark(self._column(self.cursor), "▲", "key")
        left: list[Run] = [(" " * _LABEL + "└", "frame")] if self.left else []
        return (*left, *row_of(chars, styles))

    def _x_labels(self) -> Line:
        """Each under its tick, none over another."""
        text = [" "] * (self.cols + self.right)
        free = 0
        for col, label in self._x_ticks():
            start = max(0, col - len(label) // 2)
            if start >= free and start + len(label) <= len(text):
                text[start : start + len(label)] = label
                free = start + len(label) + 1
        unit = "time" if self.by == "hours" else self.by
        if len(text) - free >= len(unit) and self.right:
            text[len(text) - len(unit) :] = unit
        left: list[Run] = [(" " * self.left, "text")] if self.left else []
        return (*left, ("".join(text), "dim"))


def _label(x: float) -> str:
    if x == 0 or 0.01 <= abs(x) < 1e4:
        return f"{x:.2f}".rstrip("0").rstrip(".") if abs(x) < 100 else f"{x:.0f}"
    return fmt.short(x) if 1e4 <= abs(x) < 1e9 else f"{x:.0e}".replace("e-0", "e-").replace("e+0", "e")

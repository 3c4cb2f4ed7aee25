"""The loss view: what part of the run is shown, on which axis, and a cursor that reads one step."""

import time

import numpy as np
from numpy.typing import NDArray
from textual import events

from andrea_tui.core import axis, decimate, fmt, lens
from andrea_tui.core.lens import Lens
from andrea_tui.core.views import ChartView, LineAt
from andrea_tui.widgets.paint import Line, Run, boxed, fitting, width_of
from andrea_tui.widgets.pane import Pane
from andrea_tui.widgets.plot import Place, Plot

READING = 2  # lines below the chart for what the cursor reads


class LossChart(Pane[ChartView]):
    """Zoom, pan, axes and cursor are the chart's own; the smoothing is the store's."""

    can_focus = True

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lens, self.logarithmic, self.by = lens.WHOLE, False, axis.X_AXES[0]
        self.cursor: int | None = None  # a step
        self._clock, self._kept = axis.Clock(), decimate.Kept()
        self._place = Place(1, 1)  # of the last drawing

    # ---- keys

    def zoom(self, by: int) -> None:
        """In (1), out (−1), or the whole run (0)."""
        at = self._coordinate(self.cursor) if self.cursor is not None else None
        self._look(lens.WHOLE if by == 0 else lens.zoomed(self.lens, self._last(), self._pixels(), by, at))

    def pan(self, by: int) -> None:
        """Earlier (1) or later (−1): the cursor by a dot, else the window by an eighth."""
        if self.cursor is not None:
            self.move_cursor(-by)
        else:
            self._look(lens.panned(self.lens, self._last(), self._pixels(), by))

    def open(self) -> bool:
        """The cursor, at the newest step that is shown; and off again."""
        if self.view is None or not len(self.view.step):
            return True
        if self.cursor is None:
            end = lens.window_of(self.lens, self._last(), self._pixels()).end
            self.cursor = self._step_at(min(end, self._last()))
        else:
            self.cursor = None
        self.redraw()
        return True

    def go_back(self) -> bool:
        if self.cursor is None:
            return False
        self.cursor = None
        self.redraw()
        return True

    def move_cursor(self, by: int) -> None:
        """By so many dots; the window goes along."""
        assert self.view is not None
        assert self.cursor is not None
        w = lens.window_of(self.lens, self._last(), self._pixels())
        here = self._coordinate(self.cursor)
        at = min(max(here + by * w.size, 1), self._last())
        step = self._step_at(at)
        if step == self.cursor:  # a gap in the run: on to the next step that there is
            step = self._neighbour(by)
        self._put_cursor(step)

    def goto(self, step: int) -> None:
        """The cursor on that step, or the one nearest to it that there is."""
        if self.view is None or not len(self.view.step):
            return
        i = int(np.searchsorted(self.view.step, step))
        step = int(self.view.step[min(i, len(self.view.step) - 1)])
        if self.lens == lens.WHOLE:
            self.lens = lens.around(self._last(), self._coordinate(step))
        self._put_cursor(step)

    def log_scale(self) -> None:
        self.logarithmic = not self.logarithmic
        self.redraw()

    def next_x(self) -> None:
        """x by steps, hours, tokens; what is shown stays in sight."""
        before = self.view is not None and len(self.view.step) > 0 and self.lens != lens.WHOLE
        shown = lens.window_of(self.lens, self._last(), self._pixels())
        ends = (
            [self._step_at(min(max(x, 1), self._last())) for x in (shown.start + 1, shown.end)]
            if before
            else []
        )
        self.by = axis.X_AXES[(axis.X_AXES.index(self.by) + 1) % len(axis.X_AXES)]
        if self.by == "tokens" and self.view is not None and not self.view.tokens_per_step:
            self.by = axis.X_AXES[0]
        if before:
            a, b = (self._coordinate(s) for s in ends)
            self.lens = Lens(max(lens.MIN_SPAN, b - a + 1), b if b < self._last() else None)
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        """The cursor where the mouse points."""
        if self.view is None or not len(self.view.step):
            return
        column = event.x - 2 - self._place.left
        w = lens.window_of(self.lens, self._last(), self._pixels())
        x = (w.first + max(0, column) * 2 // w.stretch) * w.size + 1
        self._put_cursor(self._step_at(min(x, self._last())))

    # ---- where things are

    def coordinates(self) -> NDArray[np.int32]:
        """Each step's place on the x axis."""
        assert self.view is not None
        if self.by != "hours" or self.view.t is None:
            return self.view.step
        return self._clock.column(self.view.t)

    def _last(self) -> int:
        if self.view is None or not len(self.view.step):
            return 0
        return int(self.coordinates()[-1])

    def _pixels(self) -> int:
        return self._place.cols * 2

    def _coordinate(self, step: int) -> int:
        assert self.view is not None
        i = int(np.searchsorted(self.view.step, step))
        return int(self.coordinates()[min(i, len(self.view.step) - 1)])

    def _step_at(self, x: int) -> int:
        """The last step up to the coordinate, or the first one."""
        assert self.view is not None
        i = int(np.searchsorted(self.coordinates(), x, side="right")) - 1
        return int(self.view.step[max(i, 0)])

    def _neighbour(self, by: int) -> int:
        assert self.view is not None
        assert self.cursor is not None
        i = int(np.searchsorted(self.view.step, self.cursor)) + (1 if by > 0 else -1)
        return int(self.view.step[min(max(i, 0), len(self.view.step) - 1)])

    def _put_cursor(self, step: int) -> None:
        self.cursor = step
        self._look(lens.showing(self.lens, self._last(), self._pixels(), self._coordinate(step)))

    def _look(self, new: Lens) -> None:
        self.lens = new
        self.redraw()

    # ---- drawing

    def draw(self, view: ChartView, width: int, height: int) -> list[Line]:
        self.view = view
        framed = width >= 20 and height >= 6
        w, h = (width - 4, height - 2) if framed else (width, height)
        reading = self._reading(view, w) if self.cursor is not None and h >= 10 else []
        self._place = Place(max(w, 1), max(h - len(reading), 1))
        lines = [*self._plot(view).lines(), *reading] if len(view.step) else _nothing(view, w, h)
        return (
            boxed(self._title(view), self._caption(view), lines, width, height, self.has_focus)
            if framed
            else lines
        )

    def _plot(self, view: ChartView) -> Plot:
        x = self.coordinates()
        window = lens.window_of(self.lens, int(x[-1]), self._pixels())
        marks = [view.ema] if view.t is None else [view.t, view.ema]
        data = self._kept.get(
            lambda w: decimate.buckets(x, view.loss, view.ema, w),
            x,
            marks,
            window,
            view.decay,
            view.loading,
            self.by,
        )
        return Plot(view, x, self.by, window, data, self._place, self.logarithmic, self.cursor)

    def _title(self, v: ChartView) -> list[Run]:
        d = f"{v.decay:.4f}".rstrip("0").rstrip(".")
        runs: list[Run] = [
            ("1 ", "dim"),
            ("loss", "title"),
            (" · ", "dim"),
            ("EMA", "ema"),
            (f" d {d}", "dim"),
        ]
        if v.heldout:
            runs.append((" · ○ held-out", "mark"))
        if self.logarithmic:
            runs.append((" · log", "warn"))
        if self.lens != lens.WHOLE and len(v.step):
            w = lens.window_of(self.lens, self._last(), self._pixels())
            a, b = (self._step_at(min(max(x, 1), self._last())) for x in (w.start + 1, w.end))
            place = "newest " if self.lens.end is None else ""
            runs.append((f" · {place}steps {fmt.count(a)}–{fmt.count(max(a, b))}", "warn"))
        if v.loading is not None:
            runs.append((f" · loading history {v.loading} %", "warn"))
        return runs

    def _caption(self, v: ChartView) -> str:
        if not len(v.step):
            return ""
        w = lens.window_of(self.lens, self._last(), self._pixels())
        return axis.describe(self.by, w.size, v.tokens_per_step)

    def _reading(self, v: ChartView, width: int) -> list[Line]:
        """What the cursor's step says."""
        assert self.cursor is not None
        line = v.at(self.cursor) if v.at is not None else None
        if line is None:
            return [((f"step {fmt.count(self.cursor)}: its line is not here", "warn"),), ()]
        return [_numbers(line, width), _arms(line, [m.text for m in v.marks if m.step == line.step], width)]


def _numbers(x: LineAt, width: int) -> Line:
    """As much as has room."""
    loss = [("× not finite", "bad")] if x.loss != x.loss else [(fmt.number(x.loss, 4), "bold")]
    when = time.strftime("%d %b %H:%M:%S", time.localtime(x.t)) if 0 < x.t < 2**40 else fmt.NA
    items: list[tuple[list[Run], int]] = [
        ([("step ", "dim"), (fmt.count(x.step), "key")], 1), ([("loss ", "dim"), *loss], 2),
        ([("ema ", "dim"), (fmt.number(x.ema, 4), "ema")], 3), ([("lr ", "dim"), (fmt.number(x.lr), "text")], 4),
        ([("gn ", "dim"), (fmt.number(x.gnorm, 2), "text")], 5), ([(when, "dim")], 6),
        ([(f"{fmt.number(x.dt, 2)} s" if x.dt > 0 else "", "dim")], 8),
        ([(f"phase {x.phase} seg {x.seg}", "dim")], 7),
    ]  # fmt: skip
    return tuple(fitting(items, width))


def _arms(x: LineAt, marks: list[str], width: int) -> Line:
    runs: list[Run] = [(f"{text}  ", "mark") for text in marks]
    if x.arms is None:
        return (*runs, ("its arms are not kept so far back; they stand in .loss.json", "dim"))
    for name, rows, loss in sorted(x.arms, key=lambda a: -a[1]):
        item: list[Run] = [(f"{name} ", "dim"), (f"{rows}", "text"), (f" {fmt.number(loss)}  ", "bold")]
        if width_of([*runs, *item]) > width:
            break
        runs += item
    return tuple(runs)


def _nothing(v: ChartView, w: int, h: int) -> list[Line]:
    text = "no step yet" if v.loading is None else f"loading history {v.loading} %"
    above: list[Line] = [()] * (max(0, h - 1) // 2)
    pad = " " * (max(0, w - len(text)) // 2)
    return [*above, ((pad, "text"), (text, "dim"))]

"""What part of a run a chart shows: the whole, the newest steps, or a stretch that stands still. Pure functions.

Coordinates are whole numbers from 1 on: a step, or seconds since the run's first step.
"""

import math

from msgspec import Struct

from andrea_tui.core.decimate import Window, window

MIN_SPAN = 8  # coordinates; further in there is nothing to see


class Lens(Struct, frozen=True):
    span: int | None = None  # coordinates that are shown; None: the whole run
    end: int | None = None  # last coordinate that is shown; None: the newest, and follow it


WHOLE = Lens()


def window_of(lens: Lens, last: int, pixels: int) -> Window:
    """The window of a run whose last coordinate is `last`."""
    return window(last, pixels, lens.span, lens.end)


def zoomed(lens: Lens, last: int, pixels: int, by: int, anchor: int | None = None) -> Lens:
    """In (1) or out (−1) by half, around `anchor` where one is given; else the end of what is shown stays."""
    shown = window_of(lens, last, pixels)
    span = lens.span if lens.span is not None else max(last, 1)
    span = max(MIN_SPAN, math.ceil(span / 2)) if by > 0 else span * 2
    if span >= last:
        return WHOLE
    if anchor is None:
        return Lens(span, lens.end)
    place = (anchor - shown.start) / max(1, shown.end - shown.start)  # of the anchor, 0 left to 1 right
    return showing(_within(Lens(span, round(anchor + (1 - place) * span)), last), last, pixels, anchor)


def panned(lens: Lens, last: int, pixels: int, by: int) -> Lens:
    """An eighth of the window earlier (1) or later (−1). Back at the newest step it follows again."""
    if lens.span is None:
        return lens
    w = window_of(lens, last, pixels)
    eighth = max(1, (w.end - w.start) // 8)
    return _within(Lens(lens.span, min(w.end, last) - by * eighth), last)


def showing(lens: Lens, last: int, pixels: int, at: int) -> Lens:
    """Moved, as little as is needed and a bit, so that the coordinate `at` is seen."""
    w = window_of(lens, last, pixels)
    if w.start < at <= w.end or lens.span is None:
        return lens
    bucket, room = (at - 1) // w.size, min(w.n // 8, w.n - 1)
    stop = bucket + 1 + room if at > w.end else bucket - room + w.n
    new, newest = Lens(lens.span, max(w.n, stop) * w.size), Lens(lens.span)
    # following, the window's end moves in eighths, so it may begin a little later
    return newest if stop * w.size >= last and at > window_of(newest, last, pixels).start else new


def around(last: int, at: int) -> Lens:
    """A sixteenth of the run, with the coordinate `at` in its middle."""
    span = max(MIN_SPAN, 200, last // 16)
    return WHOLE if span >= last else _within(Lens(span, at + span // 2), last)


def _within(lens: Lens, last: int) -> Lens:
    """Not before the start; at the newest coordinate it follows."""
    assert lens.span is not None
    assert lens.end is not None
    return Lens(lens.span, None if lens.end >= last else max(lens.end, min(lens.span, last)))

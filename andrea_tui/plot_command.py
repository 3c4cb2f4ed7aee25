"""`andrea-tui plot DIR [DIR…]`: the loss on stdout, for pipes, mails and logs; or its numbers as CSV.

Colours only on a terminal, and never where NO_COLOR is set. Exit codes: 0 drawn · 2 bad input, in one line.
"""

import argparse
import gc
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from andrea_tui.core import fmt, terminal
from andrea_tui.core.decimate import nice_step
from andrea_tui.core.decimate import ticks as _round_ticks
from andrea_tui.core.ema import DEFAULT
from andrea_tui.core.plot import X_AXES, Curve, Thin, load, scaled, thin, y_range, y_ticks
from andrea_tui.core.text import cells, clip, wrap
from andrea_tui.widgets.paint import to_ascii
from engine.errors import EXIT_OK, BadInput
from engine.rundir.files import write_all

SIZE = (100, 30)  # where there is no terminal
_LEAST = (30, 8)
_MOST = 1000  # columns and rows
_AROUND = 4  # lines around the canvas: frame, labels, title
LETTERS, COLOURS = "abcdefgh", ("blue", "red", "green", "magenta", "cyan", "orange", "white", "gray")
RAW, LINE = "·", "braille"
RAW_ASCII, LINE_ASCII = ".", "*"  # the braille of two curves would be the same dots in ASCII
HIGH, LOW, LOST = "▴", "▾", "×"


def plot_command(argv: list[str]) -> int:
    args = _parser().parse_intermixed_args(argv)
    if not 1 <= len(args.run_dirs) <= len(LETTERS):
        raise BadInput(f"plot: name one to {len(LETTERS)} run directories")
    if not 0 <= args.ema < 1:
        raise BadInput(f"plot: --ema {args.ema:g}: d is at least 0 and less than 1, for example 0.99")
    if args.csv and len(args.run_dirs) > 1:
        raise BadInput("plot: --csv takes one run directory")
    gc.disable()  # looking for garbage, of which a history is none, doubles the time to read it
    curves = [load(p, args.x, args.ema, args.first, args.last) for p in args.run_dirs]
    if args.csv:
        return _out(csv(curves[0]))
    at_terminal = sys.stdout.isatty()
    columns, rows = shutil.get_terminal_size(SIZE) if at_terminal else (SIZE[0], SIZE[1] + 1)
    width = min(max(args.width or columns, _LEAST[0]), _MOST)
    height = min(max(args.height or rows - 1, _LEAST[1]), _MOST)
    colour = at_terminal and not terminal.no_colour() and os.environ.get("TERM") != "dumb"
    plain = args.ascii or terminal.locale_is_ascii()
    lines = report(curves, args.ema, args.x, args.log, width, height, colour, plain)
    text = "\n".join(lines) + "\n"
    return _out(to_ascii(text) if plain else text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="andrea-tui plot", description="Print the loss: raw as points, its EMA as a line."
    )
    add = parser.add_argument
    add("run_dirs", type=Path, metavar="DIR", nargs="+", help="of several only the EMAs are drawn")
    add("--width", type=int, metavar="N", help=f"columns; of the terminal, or {SIZE[0]}")
    add("--height", type=int, metavar="N", help=f"lines in all; of the terminal, or {SIZE[1]}")
    add("--log", action="store_true", help="logarithmic loss axis")
    add("--x", choices=X_AXES, default="step", help="hours: since the first step, with the pauses")
    add("--from", type=int, dest="first", metavar="STEP", help="first step to draw")
    add("--to", type=int, dest="last", metavar="STEP", help="last step to draw")
    add(
        "--ema", type=float, default=DEFAULT, metavar="D", help=f"smoothing, 0 to 0.9999; default {DEFAULT:g}"
    )
    add("--ascii", action="store_true", help="no other characters, as where the locale has no UTF-8")
    add("--csv", action="store_true", help="step,loss,ema,lr,gnorm,t of every step instead of a chart")
    return parser


def _out(text: str) -> int:
    try:
        write_all(1, text.encode("utf-8", "replace"))
    except BrokenPipeError:
        pass  # `| head`
    except OSError as e:
        raise BadInput(f"stdout: can't be written: {e.strerror or e}") from None
    return EXIT_OK


def csv(c: Curve) -> str:
    """The shortest decimals that come back as the same numbers; "nan" for a step without one."""
    columns = (c.step, c.loss, c.ema, c.lr, c.gnorm, c.t)
    texts = [map(str, x) if x.dtype == np.float32 else map(repr, x.tolist()) for x in columns]
    return "step,loss,ema,lr,gnorm,t\n" + "".join(",".join(row) + "\n" for row in zip(*texts, strict=True))


def report(
    curves: Sequence[Curve],
    decay: float,
    by: str,
    log: bool,
    width: int,
    height: int,
    colour: bool,
    plain: bool,
) -> list[str]:
    """Head, chart, what the chart leaves out: `height` lines where that is enough for all of it.

    `plain`: it will be turned into ASCII.
    """
    several = len(curves) > 1
    # An EMA has two dots a cell, a letter has one.
    thins = [thin(c, width if several else 2 * width) for c in curves]
    values = [c.ema if several else c.loss for c in curves]
    extremes = [x for t in thins for x in ((t.ema,) if several else (t.low, t.high))]
    parts = max(2, height // 4)
    y = y_range(np.concatenate(values), np.concatenate(extremes), log, parts)
    heads = [_head(f"{LETTERS[k]} = {c.name}" if several else c.name, c, decay) for k, c in enumerate(curves)]
    notes = [
        _left_out(c, v, y, log, LETTERS[k] if several else "")
        for k, (c, v) in enumerate(zip(curves, values, strict=True))
    ]
    notes.append("of several runs only the EMAs are drawn" if several else "")
    head, below = (
        [line.rstrip() for text in texts if text for line in wrap(text, width)] for texts in (heads, notes)
    )
    chart = ["no step here has a finite loss"]
    if y is not None:
        rows = max(_LEAST[1], height - len(head) - len(below))
        title = _x_title(by, decay, several)
        chart = _Chart(width, rows, title, log, y, parts, plain).draw(curves, thins, colour)
    return [*head, *chart, *below]


def _head(name: str, c: Curve, decay: float) -> str:
    first, last = int(c.step[0]), int(c.step[-1])
    part = "" if (first, last) == c.whole else f" (steps {fmt.count(first)} to {fmt.count(last)})"
    best = f"best {c.best[0]:.4f} at step {fmt.count(c.best[1])}" if c.best else "best n/a"
    ema, loss = float(c.ema[-1]), float(c.loss[-1])
    now = f"ema({decay:g}) {_four(ema)}  {best}  loss {_four(loss)}"
    return f"{name}  step {fmt.count(c.whole[1])}{part}  {now}"


def _four(x: float) -> str:
    return f"{x:.4f}" if np.isfinite(x) else fmt.NA


def _left_out(c: Curve, values: NDArray[Any], y: tuple[float, float] | None, log: bool, letter: str) -> str:
    """What the chart does not show in its place, and what the file lacks; "" where that is nothing."""
    out = []
    what = "ema" if letter else "loss"
    high, low, lost = ("", "", "") if letter else (f"{HIGH} ", f"{LOW} ", f"{LOST} ")
    if y is not None:
        v = scaled(values, log)
        for off, mark, word, worst in (
            (v > y[1], high, "above", np.argmax),
            (v < y[0], low, "below", np.argmin),
        ):
            if n := int(off.sum()):
                i = int(worst(np.where(off, v, y[0])))
                out.append(f"{mark}{_steps(n)} {word} the axis, {what} {fmt.number(float(values[i]))} at step "
                           f"{fmt.count(int(c.step[i]))}")  # fmt: skip
    if log and (n := int((values <= 0).sum())):
        out.append(f"{_steps(n)} at or below 0, which a log axis can't show")
    if n := int((~np.isfinite(c.loss)).sum()):
        out.append(f"{lost}{_steps(n)} without a finite loss")
    if c.missing:
        out.append(f"{_steps(c.missing)} of the run without a line in its log")
    if c.bad:
        out.append(f"{fmt.count(c.bad)} damaged line{'' if c.bad == 1 else 's'} skipped")
    return (f"{letter}: " if letter and out else "") + "; ".join(out)


def _steps(n: int) -> str:
    return f"{fmt.count(n)} step{'' if n == 1 else 's'}"


class _Chart:
    """One drawing by plotext, of `width` cells and `rows` lines, frame and labels among them.

    The canvas' highest row is for the policies' names and for what is above the axis, the lowest for what is
    below it and for steps without a loss.
    """

    def __init__(
        self, width: int, rows: int, x_title: str, log: bool, y: tuple[float, float], parts: int, plain: bool
    ) -> None:
        self.width, self.rows, self.x_title, self.log = width, rows, x_title, log
        self.raw, self.line = (RAW_ASCII, LINE_ASCII) if plain else (RAW, LINE)
        self.low, self.high = y
        self.inside = rows - _AROUND - 2  # rows of the canvas that belong to the y axis
        self.row = (self.high - self.low) / max(1, self.inside - 1)
        self.bottom, self.top = self.low - self.row, self.high + self.row
        self.y_ticks = y_ticks(self.low, self.high, log, parts)
        self.y_labels = [fmt.number(10**t if log else t) for t in self.y_ticks]
        self.cells = max(1, width - 2 - max(map(len, self.y_labels), default=0))

    def draw(self, curves: Sequence[Curve], thins: Sequence[Thin], colour: bool) -> list[str]:
        import plotext as plt  # slow to import, and only here

        left = min(float(t.x[0]) for t in thins)
        right = max(float(t.x[-1]) for t in thins)
        right = right if right > left else left + 1
        plt.clear_figure()
        plt.theme("clear")
        plt.limit_size(False, False)  # else it is cut to the terminal's size
        plt.plotsize(self.width, self.rows)
        plt.ylim(self.bottom, self.top)
        plt.xlim(left, right)
        plt.yticks(self.y_ticks, self.y_labels)
        parts = max(3, self.cells // 12)
        while len(places := _round_ticks(left, right, parts)) < 3 and parts < 12:
            parts += 1
        step = nice_step(right - left, parts)
        plt.xticks(places, [_x_label(x, step) for x in places])
        plt.xlabel(clip(self.x_title, self.cells))
        if len(curves) == 1:
            self._one(plt, curves[0], thins[0], left, right)
        else:
            for k, t in enumerate(thins):
                self._points(plt, t.x, scaled(t.ema, self.log), LETTERS[k], COLOURS[k])
        text = plt.build()
        return [x.rstrip() for x in (text if colour else plt.uncolorize(text)).splitlines()]

    def _one(self, plt: ModuleType, c: Curve, t: Thin, left: float, right: float) -> None:
        for x, _, _ in c.pivots:
            plt.vline(x, "orange")
        low, high, ema = (scaled(v, self.log) for v in (t.low, t.high, t.ema))
        rows = self.low + self.row * np.arange(self.inside)
        # Every row that the band of a bucket touches; one at least, or a thin band would be a gap.
        there = (rows[:, None] >= low - self.row / 2) & (rows[:, None] <= high + self.row / 2)
        at, bucket = np.nonzero(there)
        self._points(plt, t.x[bucket], rows[at], self.raw, "gray")
        known = np.isfinite(ema)
        plt.plot(
            t.x[known].tolist(),
            np.clip(ema[known], self.bottom, self.top).tolist(),
            marker=self.line,
            color="blue",
        )
        self._names(plt, c, left, right)
        for off, y, mark in (
            (high > self.high, self.top, HIGH), (low < self.low, self.bottom, LOW), (t.lost, self.bottom, LOST),
        ):  # fmt: skip
            self._points(plt, t.x[off], np.full(int(off.sum()), y), mark, "red")

    def _points(self, plt: ModuleType, x: NDArray[Any], y: NDArray[Any], mark: str, colour: str) -> None:
        there = np.isfinite(y)
        if there.any():
            inside = np.clip(y[there], self.bottom, self.top)
            plt.scatter(x[there].tolist(), inside.tolist(), marker=mark, color=colour)

    def _names(self, plt: ModuleType, c: Curve, left: float, right: float) -> None:
        """Of the policies, each from its phase's start on, cut where the next one begins."""
        if not c.pivots:
            return
        starts = [(left, c.pivots[0][1]), *((x, new) for x, _, new in c.pivots)]
        for (x, name), (end, _) in zip(starts, [*starts[1:], (right, "")], strict=True):
            room = int((end - x) / (right - left) * (self.cells - 1)) - 1
            name = (
                name if cells(name) == len(name) else to_ascii(name)
            )  # plotext takes every character for one cell
            if room > 2 and name:
                plt.text(f" {clip(name, room - 1)}", x, self.top, color="orange", alignment="left")


def _x_title(by: str, decay: float, several: bool) -> str:
    what = f"letters: ema({decay:g})" if several else f"points: loss, line: its ema({decay:g})"
    return f"{'steps' if by == 'step' else by};  {what}, nats per token"


def _x_label(x: float, step: float) -> str:
    """As exact as the distance of two ticks asks for."""
    return fmt.short(x) if step >= 100 or (x >= 1e4 and step >= 1000) else f"{x:g}"

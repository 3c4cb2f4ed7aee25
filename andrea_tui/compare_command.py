"""`andrea-tui compare DIR DIR…`: runs that were branched from each other, side by side, on stdout.

ASCII, but for names that are not; colours only on a terminal, and never where NO_COLOR is set. Exit codes: 0
compared (whatever came out) · 2 bad input, in one line.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import plotext as plt

from andrea_tui.core import ema, fmt
from andrea_tui.core.compare import LEVEL, Comparison, Difference, Run, compare, load
from andrea_tui.core.text import cells, clean, clip
from engine.errors import EXIT_OK, BadInput
from engine.rundir.files import say as _say

LETTERS, POINTS, COLOURS = "abcdef", ".,:;'`", ("blue", "red", "green", "magenta", "cyan", "orange")
SHOWN = 8  # steps in a table
_ASCII = str.maketrans("┌┐└┘├┤┬┴┼─│…", "++++++" + "+++-|~")
_WIDEST_VALUE = 32  # cells


def compare_command(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="andrea-tui compare", description="Which of these runs is ahead, by how much, and how sure is that?"
    )  # fmt: skip
    parser.add_argument(
        "run_dirs", type=Path, metavar="DIR", nargs="+", help="two or more; the first is the reference"
    )
    args = parser.parse_args(argv)
    if not 2 <= len(args.run_dirs) <= len(LETTERS):
        raise BadInput(f"compare: name two to {len(LETTERS)} run directories")
    if len({p.resolve() for p in args.run_dirs}) < len(args.run_dirs):
        raise BadInput("compare: the same run directory is named twice")
    c = compare([load(p) for p in args.run_dirs])
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    for line in report(c, width, colour):
        _say(line)
    return EXIT_OK


def report(c: Comparison, width: int, colour: bool) -> list[str]:
    """The whole of it, in lines."""
    out = [_head(x, r) for x, r in zip(LETTERS, c.runs, strict=False)]
    out.append(
        f"fork: after step {fmt.count(c.fork)}" if c.fork else "fork: none, they have no step in common"
    )
    out += _differences("config", c.config) + _differences("policy", c.policy)
    out += ["", *_heldout(c), "", *_audits(c), "", *chart(c, width, colour), ""]
    return out + _verdicts(c)


def _head(letter: str, r: Run) -> str:
    return (f"{letter} = {r.label}: {clean(r.config.run.name)}, policy {clean(r.policy.name)}, "
            f"step {fmt.count(r.history.last)}")  # fmt: skip


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side, the first to the left, the others to the right."""
    widths = [max(cells(r[k]) for r in rows) for k in range(len(rows[0]))]
    return [
        "  " + "  ".join(
            (" " * (w - cells(x))) * (k > 0) + x + (" " * (w - cells(x))) * (k == 0)
            for k, (x, w) in enumerate(zip(r, widths, strict=True))
        ).rstrip()
        for r in rows
    ]  # fmt: skip


def _differences(what: str, found: Sequence[Difference]) -> list[str]:
    if not found:
        return ["", f"{what}: the same"]
    letters = LETTERS[: len(found[0].values)]
    rows = [[f"{what}", *letters]] + [[clip(clean(d.key), 48, "~"), *map(_value, d.values)] for d in found]
    return ["", *table(rows)]


def _value(v: object) -> str:
    return "-" if v is None else clip(clean(msgspec.json.encode(v).decode()), _WIDEST_VALUE, "~")


def _heldout(c: Comparison) -> list[str]:
    e, letters = c.evaluations, LETTERS[: len(c.runs)]
    out = [f"  left out: {x}" for x in e.left_out]
    if not e.steps:
        return ["held-out bits per byte: no evaluation of all of them at an equal step after the fork", *out]
    rows = [["step", *letters, *(f"{x} - a" for x in letters[1:])]]
    for i in _some(len(e.steps)):
        v = e.mean[:, i]
        rows.append([fmt.count(e.steps[i]), *(f"{x:.4f}" for x in v), *(f"{x - v[0]:+.4f}" for x in v[1:])])
    arms = [["arm", *letters, *(f"{x} - a" for x in letters[1:])]]
    for k, arm in enumerate(e.arms):
        v = e.bpb[:, -1, k]
        arms.append([clean(arm), *(f"{x:.4f}" for x in v), *(f"{x - v[0]:+.4f}" for x in v[1:])])
    return [
        f"held-out bits per byte, mean over the arms they share ({len(e.arms)}), {_of(len(e.steps))} steps",
        *table(rows), f"the same by arm, step {fmt.count(e.steps[-1])}", *table(arms), *out,
    ]  # fmt: skip


def _audits(c: Comparison) -> list[str]:
    if not c.audits:
        return ["audits: none at an equal step after the fork"]
    rows = [["step", *LETTERS[: len(c.runs)]]]
    rows += [[fmt.count(c.audits[i][0]), *(f"{x:.1f}" for x in c.audits[i][1])] for i in _some(len(c.audits))]
    return [
        f"audits, median coherence of the sampled texts (0 to 100), {_of(len(c.audits))} steps",
        *table(rows),
    ]


def _some(n: int) -> list[int]:
    """At most SHOWN indices, evenly spaced, the last one among them."""
    return (
        sorted({n - 1 - round(i * n / SHOWN) for i in range(SHOWN)} & set(range(n)))
        if n > SHOWN
        else list(range(n))
    )


def _of(n: int) -> str:
    return f"{SHOWN} of {fmt.count(n)}" if n > SHOWN else str(n)


def chart(c: Comparison, width: int, colour: bool) -> list[str]:
    """Loss (points) and its EMA (letters) from the fork on; ASCII."""
    out = [
        f"loss (points) and ema({ema.DEFAULT:g}) (letters), nats per token, from step {fmt.count(c.fork + 1)}"
    ]
    plt.clear_figure()
    plt.theme("clear")
    plt.limit_size(False, False)  # the width is the caller's, whatever the terminal's is
    plt.plotsize(width, 20)
    drawn = 0
    for k, r in enumerate(c.runs):
        h = r.history
        step, loss, smooth = (x[c.fork :] for x in (h.step, h.loss.astype(np.float64), ema.fold(h.loss)))
        every = max(1, len(step) // (2 * width))
        for values, marker in ((loss, POINTS[k]), (smooth, LETTERS[k])):
            x, y = step[::-every][::-1], values[::-every][::-1]
            there = np.isfinite(y)
            drawn += int(there.sum())
            plt.scatter(x[there].tolist(), y[there].tolist(), marker=marker, color=COLOURS[k])
    if not drawn:
        return [*out, "  nothing yet"]
    text = plt.build()
    text = text if colour else plt.uncolorize(text)
    out += [line.rstrip() for line in text.translate(_ASCII).splitlines()]
    return [*out, "  " + ", ".join(f"{POINTS[k]} {LETTERS[k]} = {r.label}" for k, r in enumerate(c.runs))]


def _verdicts(c: Comparison) -> list[str]:
    out = [v.word for v in c.verdicts]
    for v in c.verdicts:
        if (x := v.interval) is not None:
            out.append(f"({LETTERS[v.index]}: mean over {x.n} common evaluations; moving-block bootstrap, blocks of "
                       f"{x.block}, {x.resamples:,} resamples, seed {x.seed}, {LEVEL:.0%})")  # fmt: skip
    if any(v.interval for v in c.verdicts) and c.by_chance is None:
        out.append(
            "The interval covers the noise along these histories, not that of the seed: how far chance alone goes"
        )
        out.append("shows a further branch with another run.seed, named here too.")
    elif c.by_chance is not None:
        out.append(
            f"Runs here that differ in the seed alone lie up to {c.by_chance:.4f} bits per byte apart."
        )
    return out

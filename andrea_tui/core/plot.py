"""A run's loss curve as it is drawn once: read, cut to the steps asked for, decimated. No plotext, no Textual."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from andrea_tui.core import decimate
from andrea_tui.core.axis import Clock
from andrea_tui.core.ema import fold
from andrea_tui.core.text import clean
from engine.config import CONFIG_FILE, load_config
from engine.errors import BadInput
from engine.rundir import names
from engine.rundir.files import exists, read_file
from engine.rundir.history import History, read_history
from engine.rundir.lines import LineDecoder
from engine.rundir.records import Event

X_AXES = ("step", "hours", "tokens")
_LARGE = 1 << 32

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The steps asked for; arrays have one entry a step."""

    name: str
    step: NDArray[np.int32]
    loss: NDArray[np.float32]  # nats per token, NaN where the step had none
    ema: Floats  # folded from the run's first step on
    lr: Floats
    gnorm: NDArray[np.float32]
    t: Floats  # seconds since 1970
    at: NDArray[np.int32]  # where a step stands on the x axis: whole numbers ≥ 1 that never fall
    scale: float  # of `at` to the axis' unit: steps, hours or tokens
    pivots: tuple[tuple[float, str, str], ...]  # (x, name of the policy before, after)
    whole: tuple[int, int]  # the run's first and last step
    best: tuple[float, int] | None  # the whole run's least EMA, and its step
    bad: int  # damaged lines
    missing: int  # steps that no line is left of


@dataclass(frozen=True)
class Thin:
    """Buckets of a curve, x in the axis' unit."""

    x: Floats
    low: Floats
    high: Floats
    ema: Floats
    lost: NDArray[np.bool_]


def load(run_dir: Path, by: str, decay: float, first: int | None, last: int | None) -> Curve:
    """Raises BadInput with one line where there is nothing to draw. `by`: one of X_AXES."""
    name = clean(str(run_dir))
    try:
        if not exists(run_dir / CONFIG_FILE) and not exists(run_dir / names.LOSS):
            raise BadInput(f"{name}: no run directory (config.toml is missing)")
        h, bad = read_history(run_dir / names.LOSS)
        pivots = _pivots(run_dir)
    except OSError as e:
        raise BadInput(f"{name}: can't be read: {e.strerror or e}") from None
    if not len(h):
        why = f"{bad:,} damaged lines and no step in its {names.LOSS}" if bad else "nothing was trained yet"
        raise BadInput(f"{name}: {why}, so there is nothing to plot")
    low, high = int(h.step[0]), h.last
    a = int(np.searchsorted(h.step, low if first is None else first))
    b = int(np.searchsorted(h.step, high if last is None else last, side="right"))
    if a >= b:
        raise BadInput(
            f"{name}: has the steps {low:,} to {high:,}, none of them from {first or low} to {last or high}"
        )
    ema = fold(h.loss, decay)
    at, scale = _axis(run_dir, h, by)
    known = np.isfinite(ema)
    i = int(np.nanargmin(ema)) if known.any() else -1
    return Curve(
        name, h.step[a:b], h.loss[a:b], ema[a:b], h.lr[a:b], h.gnorm[a:b], h.t[a:b], at[a:b], scale,
        tuple((at[k] * scale, old, new) for k, old, new in _changes(h, pivots) if a < k < b),
        (low, high), (float(ema[i]), int(h.step[i])) if i >= 0 else None, bad, h.missing,
    )  # fmt: skip


def _axis(run_dir: Path, h: History, by: str) -> tuple[NDArray[np.int32], float]:
    if by == "hours":  # since the first step, pauses and all
        return Clock().column(h.t), 1 / 3600
    if by == "tokens":
        c = load_config(run_dir / CONFIG_FILE)
        return h.step, float(c.train.rows * c.train.accumulate * c.model.context)
    return h.step, 1.0


def _pivots(run_dir: Path) -> dict[int, tuple[str, str]]:
    """Step of a pivot's cut -> the policies' names before and after."""
    path = run_dir / names.EVENTS
    events = LineDecoder(Event).feed(read_file(path, _LARGE)) if exists(path) else []
    return {
        e.step: (clean(str(e.info.get("old", ""))), clean(str(e.info.get("new", ""))))
        for e in events if e.event == "pivot"
    }  # fmt: skip


def _changes(h: History, pivots: dict[int, tuple[str, str]]) -> list[tuple[int, str, str]]:
    """(index of a phase's first step, policy before, after); "" where no event tells the names."""
    ends = np.flatnonzero(h.phase[1:] != h.phase[:-1]).tolist()
    return [(i + 1, *pivots.get(int(h.step[i]), ("", ""))) for i in ends]


def thin(c: Curve, n: int) -> Thin:
    """Least and greatest loss and the last EMA of about `n` buckets; nothing that stands out is lost."""
    first, last = int(c.at[0]) - 1, int(c.at[-1])
    size = max(1, math.ceil((last - first) / max(1, n)))
    k = first // size
    w = decimate.Window(k, (last - 1) // size - k + 1, size, 1)
    b = decimate.buckets(c.at, c.loss, c.ema, w)
    filled = np.isfinite(b.line) | b.lost | np.isfinite(b.low)
    x = np.minimum((np.arange(w.n) + k + 1) * size, last) * c.scale
    return Thin(x[filled], b.low[filled], b.high[filled], b.line[filled], b.lost[filled])


def scaled(values: NDArray[Any], log: bool) -> Floats:
    """As the y axis counts: the decimal logarithm where `log`, NaN for what it has no place for."""
    v = np.asarray(values, np.float64)
    if not log:
        return v
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(v > 0, np.log10(v), np.nan)


def y_range(
    values: NDArray[Any], extremes: NDArray[Any], log: bool, parts: int
) -> tuple[float, float] | None:
    """The y axis in scaled units, clipped to what is no far outlier; None where nothing is finite."""
    found = decimate.robust_range(scaled(values, log), scaled(extremes, log))
    if found is None:
        return None
    low, high = decimate.nice_range(*found, parts=parts)
    return (max(low, 0.0) if not log and found[0] >= 0 else low), high


def y_ticks(low: float, high: float, log: bool, parts: int) -> list[float]:
    """In scaled units: round numbers; on a log axis 1, 2 and 5 in each decade where that gives three or more."""
    if not log:
        return decimate.ticks(low, high, parts)
    decades = range(math.floor(low) - 1, math.ceil(high) + 1)
    fine = [t for e in decades for m in (1, 2, 5) if low - 1e-9 <= (t := math.log10(m) + e) <= high + 1e-9]
    if 3 <= len(fine) <= 2 * parts:
        return fine
    return [math.log10(t) for t in decimate.ticks(10**low, 10**high, parts) if t > 0]

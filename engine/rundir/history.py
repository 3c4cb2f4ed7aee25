"""The canonical history: the one place that knows which lines of `.loss.json` count (section 3 of the design).

Reading rule: a line of step s supersedes every earlier line with step >= s. So a log that a crash outran, a
resume that took another path and a rollback all read as one history, contiguous from step 1.
"""

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.rundir.files import open_regular
from engine.rundir.lines import LineDecoder
from engine.rundir.records import LossLine, SampleLine, f32

_PIECE = 1 << 18  # bytes read at a time, so that a reader's longest pause stays short


class Column:
    """A numpy array that grows at the end and can be cut."""

    def __init__(self, dtype: Any, length: int = 0, fill: Any = 0) -> None:
        self._data: NDArray[Any] = np.full(max(1024, length), fill, dtype)
        self._n = length

    @property
    def values(self) -> NDArray[Any]:
        return self._data[: self._n]

    def replace_from(self, index: int, values: Any) -> None:
        """Cut to `index` entries, then append. None becomes NaN in a column of floats."""
        new = np.asarray(values, self._data.dtype)
        end = index + len(new)
        if end > len(self._data):
            grown = np.empty(max(end, 2 * len(self._data)), self._data.dtype)
            grown[:index] = self._data[:index]
            self._data = grown
        self._data[index:end] = new
        self._n = end


class History:
    """The canonical lines as columns, index i being the i-th of them. Missing numbers are NaN."""

    def __init__(self) -> None:
        self._step = self.new_column(np.int32)
        self._loss = self.new_column(np.float32)
        self._gnorm = self.new_column(np.float32)
        self._lr = self.new_column(np.float64)
        self._dt = self.new_column(np.float32)
        self._t = self.new_column(np.float64)
        self._phase = self.new_column(np.int32)
        self._seg = self.new_column(np.int32)
        self._rows: dict[str, Column] = {}
        self._rloss: dict[str, Column] = {}
        self._bpb: list[tuple[int, dict[str, float | None]]] = []  # (step, arm -> bits per byte), sparse
        self._rare: dict[int, tuple[float | None, str | None]] = {}  # step -> (scale, skipped), sparse

    def new_column(self, dtype: Any, length: int = 0, fill: Any = 0) -> Column:
        return Column(dtype, length, fill)

    def columns(self) -> tuple[Column, ...]:
        """Of the numbers that every line has."""
        return (self._step, self._loss, self._gnorm, self._lr, self._dt, self._t, self._phase, self._seg)

    def __len__(self) -> int:
        return len(self._step.values)

    @property
    def last(self) -> int:
        """The last step, 0 for an empty history."""
        return int(self._step.values[-1]) if len(self) else 0

    @property
    def missing(self) -> int:
        """Steps from 1 to the last of which no line is left (damage)."""
        return self.last - len(self)

    @property
    def step(self) -> NDArray[np.int32]:
        return self._step.values

    @property
    def loss(self) -> NDArray[np.float32]:
        """Nats per token; NaN where the step had none."""
        return self._loss.values

    @property
    def gnorm(self) -> NDArray[np.float32]:
        return self._gnorm.values

    @property
    def lr(self) -> NDArray[np.float64]:
        return self._lr.values

    @property
    def dt(self) -> NDArray[np.float32]:
        """Seconds; 0 for a segment's first step."""
        return self._dt.values

    @property
    def t(self) -> NDArray[np.float64]:
        return self._t.values

    @property
    def phase(self) -> NDArray[np.int32]:
        return self._phase.values

    @property
    def seg(self) -> NDArray[np.int32]:
        return self._seg.values

    @property
    def arms(self) -> list[str]:
        """Every arm that was ever drawn, in the order of its first row."""
        return list(self._rows)

    @property
    def bpb(self) -> list[tuple[int, dict[str, float | None]]]:
        return self._bpb

    @property
    def skipped(self) -> dict[int, str]:
        """step -> why no update was made."""
        return {s: why for s, (_, why) in self._rare.items() if why}

    def rows(self, arm: str) -> NDArray[np.int32]:
        """Rows drawn from the arm in each step."""
        return self._rows[arm].values

    def rloss(self, arm: str) -> NDArray[np.float32]:
        return self._rloss[arm].values

    def drawn(self, arm: str, upto: int) -> int:
        """Rows drawn from the arm in the first `upto` lines."""
        return int(self.rows(arm)[:upto].sum())

    def extend(self, lines: Sequence[LossLine]) -> int:
        """Take the file's next lines in. Returns the first index whose content changed."""
        if not lines:
            return len(self)
        steps = np.array([x.step for x in lines], np.int64)
        # A line survives its own batch when every later one is of a later step.
        later = np.minimum.accumulate(steps[::-1])[::-1]
        survives = np.append(steps[:-1] < later[1:], True)
        if not survives.all():
            lines = [x for x, keep in zip(lines, survives, strict=True) if keep]
        cut = self.position(lines[0].step)
        self._replace_from(cut, lines)
        return cut

    def line(self, i: int) -> LossLine:
        """The i-th canonical line, as it was read."""
        step = int(self.step[i])
        scale, skipped = self._rare.get(step, (None, None))
        drawn = [a for a in self.arms if self.rows(a)[i] > 0]
        k = bisect_left(self._bpb, step, key=lambda x: x[0])
        return LossLine(
            step=step, phase=int(self.phase[i]), seg=int(self.seg[i]), loss=f32(self.loss[i]), gnorm=f32(self.gnorm[i]),
            lr=float(self.lr[i]), dt=f32(self.dt[i]) or 0.0, t=float(self.t[i]), scale=scale, skipped=skipped,
            rows={a: int(self.rows(a)[i]) for a in drawn}, rloss={a: f32(self.rloss(a)[i]) for a in drawn},
            bpb=self._bpb[k][1] if k < len(self._bpb) and self._bpb[k][0] == step else None,
        )  # fmt: skip

    def position(self, step: int) -> int:
        """Index of the first line of that step or a later one; the length where there is none."""
        # in the column's own type: else numpy converts all of it first
        return int(self.step.searchsorted(np.int32(min(step, 2**31 - 1))))

    def index(self, step: int) -> int | None:
        """Where the step stands, or None."""
        i = self.position(step)
        return i if i < len(self) and self.step[i] == step else None

    def _first_row(self, arm: str) -> int:
        """The index of the arm's first row; the length where the rows that it had do not count any more."""
        drawn = np.flatnonzero(self.rows(arm))
        return int(drawn[0]) if len(drawn) else len(self)

    def _replace_from(self, cut: int, lines: Sequence[LossLine]) -> None:
        first, going_back = lines[0].step, cut < len(self)
        self._step.replace_from(cut, [x.step for x in lines])
        self._loss.replace_from(cut, [x.loss for x in lines])
        self._gnorm.replace_from(cut, [x.gnorm for x in lines])
        self._lr.replace_from(cut, [x.lr for x in lines])
        self._dt.replace_from(cut, [x.dt for x in lines])
        self._t.replace_from(cut, [x.t for x in lines])
        self._phase.replace_from(cut, [x.phase for x in lines])
        self._seg.replace_from(cut, [x.seg for x in lines])
        for arm in {a: None for x in lines for a in x.rows}:
            if arm not in self._rows:
                self._rows[arm] = self.new_column(np.int32, cut)
                self._rloss[arm] = self.new_column(np.float32, cut, np.nan)
        for arm, column in self._rows.items():
            column.replace_from(cut, [x.rows.get(arm, 0) for x in lines])
            self._rloss[arm].replace_from(cut, [x.rloss.get(arm) for x in lines])
        while self._bpb and self._bpb[-1][0] >= first:
            self._bpb.pop()
        self._bpb += [(x.step, x.bpb) for x in lines if x.bpb]
        if going_back:
            self._rare = {s: v for s, v in self._rare.items() if s < first}
            self._rows = {a: self._rows[a] for a in sorted(self._rows, key=self._first_row)}
        self._rare |= {x.step: (x.scale, x.skipped) for x in lines if x.skipped or x.scale is not None}


def read_history(path: Path) -> tuple[History, int]:
    """The canonical history of a whole file, and how many lines did not parse. A missing file is empty.

    Raises OSError where the file is there and can't be read. An unfinished last line does not count.
    """
    history, decoder = History(), LineDecoder(LossLine)
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return history, 0
    with open(fd, "rb", buffering=0) as f:
        while data := f.read(_PIECE):
            history.extend(decoder.feed(data))
    return history, decoder.bad


def canonical_samples(samples: list[SampleLine], new: Sequence[SampleLine]) -> list[SampleLine]:
    """The same rule for `.samples.json`: a line supersedes later steps, and its own (step, prompt, mode)."""
    out = list(samples)
    for x in new:
        while out and out[-1].step > x.step:
            out.pop()
        i = len(out) - 1
        while i >= 0 and out[i].step == x.step:
            if (out[i].prompt, out[i].mode) == (x.prompt, x.mode):
                del out[i]
                break
            i -= 1
        out.append(x)
    return out

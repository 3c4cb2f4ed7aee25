"""What is usual for an arm: its last pulls, their spread, and its level over the whole run.

An arm is only ever compared with itself. One z-score over all arms called 818 of 1,195 pulls of a rare arm spikes
(a global z-score called 818 of 1,195 pulls of a 2 % arm spikes), and a mean over all arms moves whenever the mix does.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from andrea_tui.core.deep import BLOCK as BLOCK
from andrea_tui.core.deep import CEILING, DeepHistory, weighed
from engine.rundir.history import Column, History

WINDOW = 128  # pulls (steps that drew the arm) that say what is usual
LEAST = 32  # pulls, below which nothing is usual yet
SIGMA_MIN = 0.01  # nats
OUTLIER = 6.0  # sigma
LEVEL_ROWS, LEVEL_BLOCKS = 512, 4  # least rows and blocks whose mean is an arm's level
_GRID = 1024  # points at which a level is looked at, however long the run is

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Pulls(Struct, frozen=True):
    """Steps that drew an arm, oldest first: their index in the history, mean row loss (nats), number of rows."""

    index: Ints
    loss: Floats
    rows: Floats


class Usual(Struct, frozen=True):
    """Mean and standard deviation of an arm's row loss, nats."""

    mean: float
    per_row: float  # of one row: a mean over n rows has per_row / √n
    plain: float  # of the steps' values as they are

    def sigma(self, rows: float) -> float:
        """Of a step's value over so many rows. The larger of both models, where they differ."""
        return max(SIGMA_MIN, self.plain, self.per_row / float(np.sqrt(rows)))


def phase_start(history: History) -> int:
    """Index of the first step of the phase that the history ends in."""
    return (
        int(np.searchsorted(history.phase, history.phase[-1])) if len(history) else 0
    )  # phases only ever grow


def last_pulls(history: History, arm: str, want: int, start: int = 0, end: int | None = None) -> Pulls:
    """The arm's last `want` steps with a finite row loss of index `start` … `end` − 1. Looks at a tail only."""
    rows, loss = history.rows(arm)[:end], history.rloss(arm)[:end]
    tail = 4 * want
    if isinstance(history, DeepHistory):
        start = max(start, history.kept)
    while True:
        first = max(start, len(rows) - tail)
        at = first + np.flatnonzero((rows[first:] > 0) & np.isfinite(loss[first:]))
        if len(at) >= want or first == start:
            at = at[-want:]
            return Pulls(at, np.minimum(loss[at].astype(np.float64), CEILING), rows[at].astype(np.float64))
        tail *= 8


def usual(loss: Floats, rows: Floats) -> Usual:
    """Of an arm's pulls, outliers left out: else they hide the next one (llm.c#711).

    An outlier is further than 6 σ from the median, with σ = 1.4826 · median absolute deviation (exact for a normal
    distribution, Hampel 1974). At most a tenth is left out: where more are, that is how the arm is.
    """
    scaled = np.abs(loss - median(loss)) * np.sqrt(rows)
    limit = OUTLIER * max(SIGMA_MIN, 1.4826 * median(scaled))
    kept = scaled <= max(limit, _quantile(scaled, 0.9))
    loss, rows = loss[kept], rows[kept]
    mean = float(loss.mean())
    return Usual(mean, float(np.sqrt((rows * (loss - mean) ** 2).mean())), float(loss.std()))


def median(x: Floats) -> float:
    """The upper one."""
    return _quantile(x, 0.5)


def _quantile(x: Floats, q: float) -> float:
    """Without interpolation; numpy's own takes ten times as long."""
    k = int(q * len(x))
    return float(np.partition(x, k)[k])


class Levels:
    """Each arm's rows and their losses, cumulated over whole blocks of 64 steps.

    Follows a history that grows, is cut, or is another one. What is computed from it changes once a block.
    """

    def __init__(self) -> None:
        self._rows: dict[str, Column] = {}  # entry b: in blocks 0 … b − 1
        self._sum: dict[str, Column] = {}  # of their losses, nats
        self._t = Column(np.float64)  # of each block's last step, to know it again
        self._loss = Column(np.int32)  # likewise, the float's bits
        self._table: dict[int, dict[str, Floats]] = {}
        self.blocks = 0

    def follow(self, history: History) -> bool:
        """Take in what changed since the last call; False: nothing that shows here. Costs what is new."""
        t = history.t[BLOCK - 1 :: BLOCK]
        loss = history.loss[BLOCK - 1 :: BLOCK].view(np.int32)
        n = min(len(t), self.blocks)
        if n == self.blocks == len(t) and n and self._same_end(t[-1], loss[-1]):
            return False
        same = (t[:n] == self._t.values[:n]) & (loss[:n] == self._loss.values[:n])
        keep = n if same.all() else int(np.argmin(same))
        if keep == self.blocks == len(t):
            return False
        self._t.replace_from(keep, t[keep:])
        self._loss.replace_from(keep, loss[keep:])
        self.blocks = len(t)
        self._table.clear()
        for gone in self._rows.keys() - set(history.arms):
            del self._rows[gone], self._sum[gone]
        for arm in history.arms:
            self._add(history, arm, keep)
        return True

    def _same_end(self, t: np.float64, loss: np.int32) -> bool:
        """Whether the last block is the one known: then all before it are. Where no time was written: not known."""
        return bool(t > 0 and t == self._t.values[-1] and loss == self._loss.values[-1])

    def _add(self, history: History, arm: str, keep: int) -> None:
        if arm not in self._rows:
            self._rows[arm], self._sum[arm] = Column(np.float64, keep + 1), Column(np.float64, keep + 1)
        first = keep
        if isinstance(history, DeepHistory) and keep * BLOCK < history.kept:
            first = min(history.kept // BLOCK, self.blocks)
            steps = np.append(0, history.step[BLOCK - 1 :: BLOCK])[keep : self.blocks + 1]
            old = [np.diff(x) for x in history.sums(arm, steps)]
        else:
            old = [np.zeros(self.blocks - keep) for _ in range(2)]
        new = slice(first * BLOCK, self.blocks * BLOCK)
        of_steps = weighed(history.rows(arm)[new], history.rloss(arm)[new])
        for column, x, per_block in zip((self._rows[arm], self._sum[arm]), of_steps, old, strict=True):
            per_block[first - keep :] += x.reshape(-1, BLOCK).sum(axis=1)
            column.replace_from(keep + 1, column.values[keep] + np.cumsum(per_block))

    def grid(self, start: int = 0) -> Ints:
        """Blocks from `start` to the last, thinned out evenly to 1,024; the last five always."""
        last = self.blocks - 1
        some = np.linspace(start, last, min(max(0, last - start + 1), _GRID)).astype(np.int64)
        return np.unique(np.append(some, np.arange(max(start, last - 4), last + 1)))

    def rows(self, arm: str, first: Ints, end: Ints) -> Floats:
        """Rows with a finite loss in blocks first … end − 1."""
        c = self._rows[arm].values
        return np.asarray(c[end] - c[first])

    def sums(self, arm: str, first: Ints, end: Ints) -> Floats:
        """Their losses, nats."""
        c = self._sum[arm].values
        return np.asarray(c[end] - c[first])

    def mean(self, arm: str, first: Ints, end: Ints) -> Floats:
        """Mean row loss (nats) over blocks first … end − 1; NaN without rows."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self.sums(arm, first, end) / self.rows(arm, first, end))

    def window(self, arm: str, at: Ints, rows: int, blocks: int, start: int = 0) -> Ints:
        """For each block in `at`: where the shortest window begins that ends with it and has so many rows and
        blocks; −1 where none does without reaching back before block `start`."""
        c = self._rows[arm].values
        first = np.searchsorted(c, c[at + 1] - rows, "right") - 1
        first = np.minimum(first, at + 1 - blocks)
        return np.where(first >= start, first, -1)

    def levels(self, start: int = 0) -> dict[str, Floats]:
        """arm -> its level at each block of grid(start), nats: the mean over its last 512 rows and 256 steps at
        least, none of them before block `start`; NaN where there are not so many."""
        if start not in self._table:
            at = self.grid(start)
            self._table[start] = {}
            for arm in self._rows:
                first = self.window(arm, at, LEVEL_ROWS, LEVEL_BLOCKS, start)
                level = self.mean(arm, np.maximum(first, 0), at + 1)
                self._table[start][arm] = np.where(first >= 0, level, np.nan)
        return self._table[start]

    def shares(self, blocks: int, end: int | None = None) -> dict[str, float]:
        """arm -> its share of the rows in the `blocks` blocks before block `end` (the last ones)."""
        last = self.blocks if end is None else end
        first = max(last - blocks, 0)
        drawn = {a: float(c.values[last] - c.values[first]) for a, c in self._rows.items()}
        total = sum(drawn.values())
        return {a: n / total for a, n in drawn.items() if n > 0}

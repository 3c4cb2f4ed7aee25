"""The cockpit's history: it grows at both ends, since a long log is read newest first.

The columns of the steps go back to the first one. What the arms got in each step is kept for the newest steps only
(16 arms of ten million steps would take a gigabyte); of older ones there are sums.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from engine.rundir.history import Column, History

BLOCK = 64  # steps that one sum is of
KEEP = 1 << 18  # newest steps whose rows are kept arm by arm
_FRONT = 1 << 24  # entries: more room at the front than this is made only when it is needed

Floats = NDArray[np.float64]


class DeepColumn(Column):
    """A column that grows at both ends. What was never written to takes no memory: it is the kernel's zero page."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(dtype)
        self._start = 0
        self.live = 0  # first index that is not 0 for certain

    @property
    def values(self) -> NDArray[Any]:
        return self._data[self._start : self._start + self._n]

    def replace_from(self, index: int, values: Any) -> None:
        new = np.asarray(values, self._data.dtype)
        end = index + len(new)
        if self._start + end > len(self._data):
            self.move(self._start, end)
        self._n = end
        self.values[index:] = new

    def prepend(self, n: int, values: Any, most: int) -> None:
        """`n` older entries, of which `values` are the last and the others 0; `most`: how many may ever come."""
        if n > self._start:
            self.move(max(n, min(most, max(_FRONT, 4 * self._n))), self._n // 4)
        self._start -= n
        self._n += n
        self.values[n - len(values) : n] = values

    def move(self, front: int, back: int) -> None:
        """Into a new array with so much room at both ends; entries before `live` are 0 there."""
        data = np.zeros(front + self._n + max(back, 1024), self._data.dtype)
        data[front + self.live : front + self._n] = self.values[self.live :]
        self._data, self._start = data, front


class Sparse(Struct, frozen=True):
    """What a history knows beside its columns."""

    kept: int
    before: dict[str, int]  # for all arms, in their order
    bpb: list[tuple[int, dict[str, float | None]]]
    rare: list[tuple[int, float | None, str | None]]


class DeepHistory(History):
    """A history that older parts are put in front of. Until the oldest is there it is canonical for what was read.

    `rows` and `rloss` are 0 before index `kept`; the rows of those steps are counted in `drawn` and summed in `sums`.
    """

    def __init__(self) -> None:
        self.kept = 0  # first index whose rows are kept
        self.cuts = 0  # grows whenever entries that were there are written over
        super().__init__()
        self._before: dict[str, int] = {}  # arm -> rows drawn in the steps before it
        self._sums: dict[
            str, tuple[Floats, Floats]
        ] = {}  # arm -> per block of steps: rows, sum of their losses

    def new_column(self, dtype: Any, length: int = 0, fill: Any = 0) -> Column:
        column = DeepColumn(dtype)
        column.live = min(self.kept, length)
        zeros = fill == 0  # they are there without being written
        column.prepend(length, () if zeros else np.full(length - column.live, fill, dtype), length)
        return column

    def prepend(self, part: History) -> None:
        """Put an older part in front: its steps are all before the first one here."""
        n, have = len(part), len(self)
        if not n:
            return
        most = int(part.step[-1])  # a step's line is one entry at most
        whole = n if self.kept else max(0, n - max(0, KEEP - have))  # so many of the part are only summed
        kept = self.kept + n if self.kept else whole
        for mine, its in zip(self.columns(), part.columns(), strict=True):
            _deep(mine).prepend(n, its.values, most)
        for arm in dict.fromkeys([*part.arms, *self.arms]):
            self._prepend_arm(part, arm, whole, have, most)
        self._keep_from(kept)
        # in the order of their first rows
        for table in (self._rows, self._rloss):
            ordered = {a: table[a] for a in dict.fromkeys([*part.arms, *table])}
            table.clear()
            table.update(ordered)
        self.bpb[:0] = part.bpb
        self._rare |= part._rare

    def packed(self) -> tuple[Sparse, dict[str, NDArray[Any]]]:
        """All of it, without copies of what is large: `unpacked` makes the same history of it."""
        arrays = {f"column{i}": c.values for i, c in enumerate(self.columns())}
        for i, arm in enumerate(self.arms):
            arrays[f"rows{i}"] = self.rows(arm)[self.kept :]
            arrays[f"rloss{i}"] = self.rloss(arm)[self.kept :]
            if arm in self._sums:
                arrays[f"n{i}"], arrays[f"sum{i}"] = self._sums[arm]
        before = {arm: self._before.get(arm, 0) for arm in self.arms}
        rare = [(step, scale, why) for step, (scale, why) in self._rare.items()]
        return Sparse(self.kept, before, self._bpb, rare), arrays

    @classmethod
    def unpacked(cls, sparse: Sparse, arrays: Mapping[str, NDArray[Any]]) -> "DeepHistory":
        """Raises KeyError or ValueError for what no history can be."""
        h = cls()
        for i, column in enumerate(h.columns()):
            column.replace_from(0, arrays[f"column{i}"])
        n, kept = len(h), sparse.kept
        if (
            {len(c.values) for c in h.columns()} != {n}
            or not (np.diff(h.step) > 0).all()
            or not 0 <= kept <= n
        ):
            raise ValueError("columns that are no history")
        h._keep_from(kept)
        for i, (arm, before) in enumerate(sparse.before.items()):
            h._rows[arm], h._rloss[arm] = DeepColumn(np.int32), DeepColumn(np.float32)
            for column, name in ((h._rows[arm], f"rows{i}"), (h._rloss[arm], f"rloss{i}")):
                if len(arrays[name]) != n - kept:
                    raise ValueError(f"{name} has another length")
                _deep(column).live = kept
                _deep(column).prepend(n, arrays[name], n)
            if before:
                h._before[arm] = before
            if f"n{i}" in arrays:
                h._sums[arm] = arrays[f"n{i}"], arrays[f"sum{i}"]
        h._bpb = sparse.bpb
        h._rare = {step: (scale, why) for step, scale, why in sparse.rare}
        return h

    def drawn(self, arm: str, upto: int) -> int:
        """Of the whole history: which of the old steps drew how many rows is not known any more."""
        if upto < self.kept:
            raise ValueError(f"rows of step {upto} are not kept one by one")
        return self._before.get(arm, 0) + super().drawn(arm, upto)

    def sums(self, arm: str, steps: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """(rows with a finite loss, sum of their losses) up to each of the steps, of those before `kept`. Exact for
        multiples of BLOCK; between them a straight line."""
        if arm not in self._sums:
            return np.zeros(len(steps)), np.zeros(len(steps))
        rows, loss = (np.append(0.0, np.cumsum(x)) for x in self._sums[arm])
        at = np.arange(len(rows)) * BLOCK
        return np.interp(steps, at, rows), np.interp(steps, at, loss)

    def _prepend_arm(self, part: History, arm: str, whole: int, have: int, most: int) -> None:
        n = len(part)
        if arm not in self._rows:
            self._rows[arm] = self.new_column(np.int32)
            self._rloss[arm] = self.new_column(np.float32)
            _deep(self._rows[arm]).prepend(have, (), have + most)
            _deep(self._rloss[arm]).prepend(have, np.full(have - self.kept, np.nan, np.float32), have + most)
        if arm in part.arms:
            rows, rloss = part.rows(arm), part.rloss(arm)
            self._sum(arm, part.step[:whole], rows[:whole], rloss[:whole])
            tail: tuple[Any, Any] = (rows[whole:], rloss[whole:])
        else:
            tail = np.zeros(n - whole, np.int32), np.full(n - whole, np.nan, np.float32)
        _deep(self._rows[arm]).prepend(n, tail[0], most)
        _deep(self._rloss[arm]).prepend(n, tail[1], most)

    def _replace_from(self, cut: int, lines: Any) -> None:
        self.cuts += cut < len(self)
        if len(self) - self.kept >= 2 * KEEP:
            self._drop(len(self) - KEEP)
        if cut < self.kept:
            self._keep_from(cut)
        if cut == 0:
            self._before, self._sums = {}, {}
        super()._replace_from(cut, lines)

    def _first_row(self, arm: str) -> int:
        return -1 if self._before.get(arm) else super()._first_row(arm)

    def _drop(self, first: int) -> None:
        """Keep the rows of the steps from index `first` on."""
        self.cuts += 1  # the sums grow in place
        old = slice(self.kept, first)
        for arm in self.arms:
            self._sum(arm, self.step[old], self.rows(arm)[old], self.rloss(arm)[old])
        self._keep_from(first)
        for column in (*self._rows.values(), *self._rloss.values()):
            _deep(column).move(0, KEEP)  # which lets the old ones go

    def _keep_from(self, index: int) -> None:
        self.kept = index
        for column in (*self._rows.values(), *self._rloss.values()):
            _deep(column).live = index

    def _sum(
        self, arm: str, step: NDArray[np.int32], rows: NDArray[np.int32], rloss: NDArray[np.float32]
    ) -> None:
        if not len(step):
            return
        self._before[arm] = self._before.get(arm, 0) + int(rows.sum())
        first, n = int(step[0] - 1) // BLOCK, int(step[-1] - 1) // BLOCK + 1
        have = self._sums.get(arm, (np.zeros(0), np.zeros(0)))
        if len(have[0]) < n:
            have = tuple(np.concatenate([x, np.zeros(n - len(x))]) for x in have)  # type: ignore[assignment]
        at = (step - 1) // BLOCK - first
        for column, x in zip(have, weighed(rows, rloss), strict=True):
            new = np.bincount(at, x)
            column[first : first + len(new)] += new
        self._sums[arm] = have


CEILING = 1000.0  # nats, far above chance (ln 65,535 = 11.1 at most). One 1e30 must not drown a sum


def weighed(rows: NDArray[np.int32], rloss: NDArray[np.float32]) -> tuple[Floats, Floats]:
    """Per step: the rows with a finite loss, and the sum of their losses."""
    n, loss = rows.astype(np.float64), rloss.astype(np.float64)
    n[~np.isfinite(loss)] = 0.0
    loss[n == 0] = 0.0
    return n, n * np.minimum(loss, CEILING)


def _deep(column: Column) -> DeepColumn:
    assert isinstance(column, DeepColumn)
    return column

"""The course of the run: its history and what is folded from it. Long work is done some steps at a time."""

from collections.abc import Sequence

import numpy as np

from andrea_tui.core.deep import DeepHistory
from andrea_tui.core.ema import DEFAULT, Ema
from engine.rundir.history import History
from engine.rundir.records import LossLine

SLICE = 1 << 16  # steps folded at a time: about 15 ms


class Course:
    """The history, its EMA with the best of it, the steps without a loss, and where the phases change.

    Older parts come in front of what is there. Until `whole` is called, and then `work` until it says that it is done,
    the EMA is a guess, there is no best, and the rest is that of what was read.
    """

    def __init__(self, decay: float = DEFAULT) -> None:
        self.history, self.ema = DeepHistory(), Ema(decay)
        self.lost = 0  # steps without a finite loss
        self.phases: list[int] = []  # last step before each change of phase
        self._best: tuple[float, int] | None = None  # value, index

    @property
    def settled(self) -> bool:
        """Whether the EMA is that of the whole history."""
        return self.ema.whole

    @property
    def best(self) -> tuple[float, int] | None:
        """The least EMA and its step; None while that is not known."""
        if self._best is None or not self.settled:
            return None
        return self._best[0], int(self.history.step[self._best[1]])

    def extend(self, lines: Sequence[LossLine]) -> None:
        """The file's next lines."""
        before = len(self.history)
        first = self.history.extend(lines)
        settled = self.settled
        self.ema.extend(self.history.loss, first)
        if settled:
            self._search(first)
        loss = self.history.loss[0 if first < before else first :]
        self.lost = int((loss != loss).sum()) + (0 if first < before else self.lost)
        self._note_phases(max(0, first - 1))

    def prepend(self, part: History) -> None:
        """Lines before those that there are."""
        if not len(part):
            return
        self.history.prepend(part)
        self.ema.prepend(part.loss, int(part.step[-1]))
        self.lost += int((part.loss != part.loss).sum())
        phase, n = self.history.phase[: len(part) + 1], len(part)
        at = np.flatnonzero(phase[1:] != phase[:-1])
        self.phases[:0] = self.history.step[:n][at].tolist()

    def adopt(self, history: DeepHistory) -> None:
        """Begin with a history that is there already."""
        self.history = history
        self.ema.reserve(len(history))
        self.lost = int((history.loss != history.loss).sum())
        self._note_phases(0)

    def whole(self) -> None:
        """Nothing older will come."""
        if not self.settled and not self.ema.folding:
            self._refold(None)

    def smooth(self, decay: float) -> None:
        """Another d."""
        self._refold(decay)

    def work(self) -> bool:
        """Some of what is to be done; whether there is more."""
        first = self.ema.folded
        more = self.ema.work(self.history.loss, SLICE)
        self._search(first)
        return more

    def _refold(self, decay: float | None) -> None:
        self._best = None
        self.ema.refold(decay)

    def _search(self, first: int) -> None:
        """For the best, among the entries from `first` on; all before them, where it may have been one of those."""
        if self._best is not None and self._best[1] >= first:
            self._best = None
            first = 0
        values = self.ema.values[first : self.ema.folded]
        known = np.flatnonzero(values == values)
        if len(known):
            i = int(known[0]) + int(np.argmin(values[known[0] :]))  # once there is a value, all have one
            if self._best is None or values[i] < self._best[0]:
                self._best = (float(values[i]), first + i)

    def _note_phases(self, first: int) -> None:
        """Where the phase changes, looked for again from index `first` on."""
        step, phase = self.history.step[first:], self.history.phase[first:]
        at = np.flatnonzero(phase[1:] != phase[:-1])
        self.phases = [s for s in self.phases if s < step[0]] + step[at].tolist() if len(step) else []

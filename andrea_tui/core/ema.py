"""The loss EMA, the one implementation: ema = d·ema + (1−d)·loss over the finite losses, bias-corrected.

A step without a finite loss leaves the EMA as it was. The value at a step is a function of the lines alone, so
it is the same at every zoom and whether the run was read at once or followed for weeks.
"""

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from engine.rundir.history import Column

DEFAULT = 0.99
DECAYS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999)


_EVERY = 4096  # steps between the states that are kept, to fold again from there


class Ema:
    """The EMA of a growing loss column."""

    def __init__(self, decay: float = DEFAULT) -> None:
        self.decay = decay
        self._value = Column(np.float64)
        self._states = [(0.0, 0)]  # before step index 0, 4096, …: the EMA before its correction, losses seen
        self._end = (0.0, 0)  # after the last step

    @property
    def values(self) -> NDArray[np.float64]:
        """One per step; NaN only before the first finite loss."""
        return self._value.values

    def extend(self, loss: NDArray[np.float32], first: int) -> None:
        """Take `loss` (the whole column) in, of which everything from index `first` on is new."""
        state = self._end
        if first != len(self.values):
            first -= first % _EVERY
            state = self._states[first // _EVERY]
        del self._states[first // _EVERY + 1 :]
        while first < len(loss):
            # In blocks that end where a state is kept.
            if first % _EVERY == 0 and first // _EVERY == len(self._states):
                self._states.append(state)
            end = min(len(loss), first - first % _EVERY + _EVERY)
            state = self._block(loss[first:end], first, state)
            first = end
        self._end = state

    def _block(self, loss: NDArray[np.float32], first: int, state: tuple[float, int]) -> tuple[float, int]:
        new = loss.astype(np.float64)
        finite = np.isfinite(new)
        raw, seen = state
        d, c = self.decay, 1 - self.decay
        # A fold over Python floats: any vectorised form rounds differently in one piece than in two.
        folded = accumulate(new[finite].tolist(), lambda e, x: d * e + c * x, initial=raw)
        steps = np.fromiter(folded, np.float64, int(finite.sum()) + 1)
        at = np.cumsum(finite)
        with np.errstate(invalid="ignore", divide="ignore"):
            self._value.replace_from(first, steps[at] / (1 - d ** (seen + at)))
        return float(steps[-1]), seen + int(at[-1])


def fold(loss: NDArray[np.float32], decay: float = DEFAULT) -> NDArray[np.float64]:
    """The EMA of a whole column, one value per step."""
    e = Ema(decay)
    e.extend(loss, 0)
    return e.values

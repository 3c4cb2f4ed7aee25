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


class Ema:
    """The EMA of a growing loss column."""

    def __init__(self, decay: float = DEFAULT) -> None:
        self.decay = decay
        self._raw = Column(np.float64)  # before the correction
        self._seen = Column(np.int64)  # finite losses so far
        self._value = Column(np.float64)

    @property
    def values(self) -> NDArray[np.float64]:
        """One per step; NaN only before the first finite loss."""
        return self._value.values

    def extend(self, loss: NDArray[np.float32], first: int) -> None:
        """Take `loss` (the whole column) in, of which everything from index `first` on is new."""
        new = loss[first:].astype(np.float64)
        finite = np.isfinite(new)
        raw = float(self._raw.values[first - 1]) if first else 0.0
        seen = int(self._seen.values[first - 1]) if first else 0
        d, c = self.decay, 1 - self.decay
        # A fold over Python floats: any vectorised form rounds differently in one piece than in two.
        folded = accumulate(new[finite].tolist(), lambda e, x: d * e + c * x, initial=raw)
        steps = np.fromiter(folded, np.float64, int(finite.sum()) + 1)
        at = np.cumsum(finite)
        counts = seen + at
        self._raw.replace_from(first, steps[at])
        self._seen.replace_from(first, counts)
        with np.errstate(invalid="ignore", divide="ignore"):
            self._value.replace_from(first, steps[at] / (1 - d**counts))


def fold(loss: NDArray[np.float32], decay: float = DEFAULT) -> NDArray[np.float64]:
    """The EMA of a whole column, one value per step."""
    e = Ema(decay)
    e.extend(loss, 0)
    return e.values

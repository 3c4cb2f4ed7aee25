"""The loss EMA, the one implementation: ema = d·ema + (1−d)·loss over the finite losses, bias-corrected.

A step without a finite loss leaves the EMA as it was. The value at a step is a function of the lines alone, so
it is the same at every zoom and whether the run was read at once or followed for weeks.
"""

import numpy as np
from numpy.typing import NDArray

from andrea_tui.core.deep import DeepColumn

DEFAULT = 0.99
DECAYS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999)


_EVERY = 4096  # steps between the states that are kept, to fold again from there
_LONG = 1 << 40  # losses seen, where they are not known: the bias correction is 1

_State = tuple[float, int]  # the EMA before its correction, losses seen


class Ema:
    """The EMA of a growing loss column.

    Of a part of a history (`prepend`) it is a guess that begins in the part's middle. `refold` and then `work` make it
    the fold from the start, some steps at a time.
    """

    def __init__(self, decay: float = DEFAULT) -> None:
        self.decay = decay
        self._value = DeepColumn(np.float64)
        self._states: list[_State] = [(0.0, 0)]  # before step index 0, 4096, …
        self._end: _State = (0.0, 0)  # after the last step
        self._folded: int | None = None  # so many are folded from the start; None: all
        self._state = self._end  # after them
        self._partial = False

    @property
    def values(self) -> NDArray[np.float64]:
        """One per step; NaN only before the first finite loss."""
        return self._value.values

    @property
    def whole(self) -> bool:
        """Whether every value is that of the fold from the start."""
        return self._folded is None and not self._partial

    @property
    def folding(self) -> bool:
        """Whether `work` has something to do."""
        return self._folded is not None

    @property
    def folded(self) -> int:
        """So many values, from the first on, are those of the fold from the start."""
        return len(self.values) if self.whole else self._folded or 0

    def extend(self, loss: NDArray[np.float32], first: int) -> None:
        """Take `loss` (the whole column) in, of which everything from index `first` on is new."""
        if self.whole:
            self._fold_from(first, self._end if first == len(self.values) else None)
            self._resize(len(loss))
            self.work(loss, len(loss))
            return
        state = self._end if first == len(self.values) else self._guess(first)
        if self._folded is not None and first < self._folded:
            self._fold_from(first, None)
        self._resize(len(loss))
        self._end = self._write(loss[first:], first, state)

    def prepend(self, older: NDArray[np.float32], most: int) -> None:
        """Put an older part in front; what is shown for it is a guess until `refold`. `most`: steps that may come."""
        self._partial = True
        known = older[np.isfinite(older)]
        level = float(known.mean(dtype=np.float64)) if len(known) else 0.0
        self._value.prepend(len(older), (), most)
        self._write(older, 0, (level, _LONG if len(known) else 0))

    def reserve(self, n: int) -> None:
        """So many steps are there at once; they have no value until `refold` and `work`."""
        self._partial = True
        self._value.prepend(n, np.full(n, np.nan), n)

    def refold(self, decay: float | None = None) -> None:
        """What is there is the whole: make it the fold from the start, with another d perhaps, by `work`."""
        self.decay = self.decay if decay is None else decay
        self._partial = False
        self._fold_from(0, None)

    def work(self, loss: NDArray[np.float32], most: int) -> bool:
        """Fold at most about `most` steps; whether there is more to do."""
        if self._folded is None:
            return False
        first, state = self._folded, self._state
        stop = min(len(loss), first + most)
        while first < stop:
            # In blocks that end where a state is kept.
            if first % _EVERY == 0 and first // _EVERY == len(self._states):
                self._states.append(state)
            end = min(stop, first - first % _EVERY + _EVERY)
            state = self._write(loss[first:end], first, state)
            first = end
        self._folded, self._state = first, state
        if first < len(loss):
            return True
        self._end, self._folded = state, None
        return False

    def _fold_from(self, index: int, state: _State | None) -> None:
        """`state`: before that index; None: go back to the last one that was kept."""
        if state is None:
            index -= index % _EVERY
            del self._states[index // _EVERY + 1 :]
            state = self._states[index // _EVERY] if index else (0.0, 0)
        self._folded, self._state = index, state

    def _guess(self, index: int) -> _State:
        """The state before an index, about."""
        before = float(self.values[index - 1]) if index else np.nan
        return (before, _LONG) if before == before else (0.0, 0)

    def _resize(self, n: int) -> None:
        have = min(n, len(self.values))
        self._value.replace_from(have, np.full(n - have, np.nan))

    def _write(self, loss: NDArray[np.float32], first: int, state: _State) -> _State:
        new = loss.astype(np.float64)
        finite = np.isfinite(new)
        raw, seen = state
        d, begin = self.decay, raw
        # A fold over Python floats: any vectorised form rounds differently in one piece than in two.
        steps = np.array([begin, *[raw := d * raw + x for x in ((1 - d) * new[finite]).tolist()]])
        at = np.cumsum(finite)
        ema = steps[at]
        if 1 - d**seen != 1.0:  # else the correction changes nothing
            with np.errstate(invalid="ignore", divide="ignore"):
                ema = ema / (1 - d ** (seen + at))
        self.values[first : first + len(new)] = ema
        return raw, seen + len(steps) - 1


def fold(loss: NDArray[np.float32], decay: float = DEFAULT) -> NDArray[np.float64]:
    """The EMA of a whole column, one value per step."""
    e = Ema(decay)
    e.extend(loss, 0)
    return e.values

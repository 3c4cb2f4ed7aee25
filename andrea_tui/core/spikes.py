"""Spikes: row losses far above what is usual for their arm, and steps that are far above it as a whole."""

import numpy as np
from msgspec import Struct

from andrea_tui.core import fmt
from andrea_tui.core.baseline import (
    LEAST,
    OUTLIER,
    SIGMA_MIN,
    WINDOW,
    Floats,
    Pulls,
    last_pulls,
    median,
    phase_start,
    usual,
)
from andrea_tui.core.finding import Finding, others, short
from andrea_tui.core.text import clean
from engine.rundir.history import History

RECENT = 192  # steps that a spike is told for: as long as it takes to call it a divergence
_ODD_ROWS = 4  # a mean over so many rows is not made by one odd text


class _Spike(Struct, frozen=True, order=True):
    z: float
    step: int
    rows: int
    text: str


def spikes(history: History) -> list[Finding]:
    """A value 6 σ above the last 128 of its kind in this phase (at least 32): one finding, of the furthest.

    A value is an arm's row loss in a step (σ ≥ 0.01, 6 σ, windows of 128), or a whole step's, each
    row taken against its own arm: when the model jumps, no single noisy arm need show it. A single value of fewer
    than four rows and below 12 σ is for information: among a million rows of real text some are that odd.
    """
    recent, start = max(0, len(history) - RECENT), phase_start(history)
    whole = _Steps(history, max(start, recent - WINDOW))
    of_arms: list[list[_Spike]] = []
    for arm in history.arms:
        if history.rows(arm)[whole.first :].any():
            p = last_pulls(history, arm, WINDOW + RECENT, start)
            whole.add(p)
            of_arms.append(_of_arm(history, arm, p, recent))
    steps, of_arms = whole.spikes(recent), [x for x in of_arms if x]
    every = steps + [x for arm in of_arms for x in arm]
    if not every:
        return []
    worst = max(steps or [max(x) for x in of_arms])
    odd = len(every) < 3 and all(x.rows < _ODD_ROWS and x.z < 2 * OUTLIER for x in every)
    more = "" if steps else others(len(of_arms) - 1)
    return [Finding("spike", f"spike: {worst.text}{more}", "dim" if odd else "warn", worst.step)]


def _of_arm(history: History, arm: str, p: Pulls, recent: int) -> list[_Spike]:
    out = []
    for j in _suspects(p.loss, p.rows, int(np.searchsorted(p.index, recent))):
        u = usual(p.loss[max(0, j - WINDOW) : j], p.rows[max(0, j - WINDOW) : j])
        sigma = u.sigma(p.rows[j])
        z = float((p.loss[j] - u.mean) / sigma)
        if z > OUTLIER:
            step, value = int(history.step[p.index[j]]), short(history.rloss(arm)[p.index[j]])
            text = f"{clean(arm)} {value} at step {fmt.count(step)} (usual {short(u.mean)} ± {sigma:.2f})"
            out.append(_Spike(z, step, int(p.rows[j]), text))
    return out


class _Steps:
    """The last steps as a whole: the sum of their rows' distances from their arms' means, in its own σ.

    Σ n (x − μ) / √(Σ n σ²) over the arms, which has variance 1 where the rows are independent; where they are not
    (weights wobble for all rows alike), its own spread is larger and counts.
    """

    def __init__(self, history: History, first: int) -> None:
        self.history, self.first = history, first
        self.far, self.variance, self.mean, self.rows, self.arms = np.zeros((5, len(history) - first))

    def add(self, p: Pulls) -> None:
        if len(p.loss) < LEAST:
            return
        u, here = usual(p.loss, p.rows), p.index >= self.first
        i, n = p.index[here] - self.first, p.rows[here]
        self.far[i] += n * (p.loss[here] - u.mean)
        self.variance[i] += n * max(u.per_row, SIGMA_MIN) ** 2
        self.mean[i] += n * u.mean
        self.rows[i] += n
        self.arms[i] += 1

    def spikes(self, recent: int) -> list[_Spike]:
        """Of steps with two arms at least: with one, the arm says it."""
        at = np.flatnonzero(self.rows)
        sigma = np.sqrt(self.variance[at])
        far, ones = self.far[at] / sigma, np.ones(len(at))
        out = []
        for j in _suspects(far, ones, int(np.searchsorted(at, recent - self.first))):
            u = usual(far[max(0, j - WINDOW) : j], ones[max(0, j - WINDOW) : j])
            spread = max(1.0, u.plain)
            z = float((far[j] - u.mean) / spread)
            if z > OUTLIER and self.arms[at[j]] > 1:
                i, n = at[j], self.rows[at[j]]
                step, value = int(self.history.step[self.first + i]), self.history.loss[self.first + i]
                of = f"(usual {short(self.mean[i] / n)} ± {spread * sigma[j] / n:.2f} for its arms)"
                text = f"loss {short(value)} at step {fmt.count(step)} {of}"
                out.append(_Spike(z, step, int(n), text))
        return out


def _suspects(values: Floats, rows: Floats, first: int) -> list[int]:
    """The few values worth a close look: 4 σ above the median of all, by the median absolute deviation."""
    first = max(first, LEAST)
    if first >= len(values):
        return []
    far = (values - median(values)) * np.sqrt(rows)
    limit = 4.0 * 1.4826 * median(np.abs(far))
    return (first + np.flatnonzero(far[first:] > limit)).tolist()

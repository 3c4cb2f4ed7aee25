"""How the run is: findings that a person should know, each a small pure function of the canonical history.

`Health.find` runs all of them: those of the loss are in `spikes.py` and `curves.py`, the others here.
Nothing here acts. What is said elsewhere is not said again: stalled and dead by `state.py`, a full disk and a log
behind by `alerts.py`.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from andrea_tui.core import fmt
from andrea_tui.core.baseline import Levels, phase_start
from andrea_tui.core.curves import divergence, drift, plateau
from andrea_tui.core.finding import TONES, Finding, short
from andrea_tui.core.resources import Resources
from andrea_tui.core.spikes import spikes
from andrea_tui.core.text import clean
from engine.collapse import audits, collapse
from engine.config import Config, OptimConfig, Policy
from engine.rundir.history import History
from engine.rundir.records import SampleLine

_SKIP_TOLD = 1000  # steps that a skipped step is a warning for
_CLIP_WINDOW = 500  # steps
_HOT = 90  # °C, where the card does not say at what temperature it slows down


class Health:
    """Runs the findings and remembers what makes them cheap. Asking again without news costs nothing."""

    def __init__(self) -> None:
        self.levels = Levels()
        self._steps: tuple[object, list[Finding]] = (None, [])  # what was asked, what was found
        self._blocks: tuple[object, list[Finding]] = (None, [])
        self._texts: tuple[object, list[Finding]] = (None, [])
        self._lost = Lost()

    def find(
        self, history: History, *, config: Config | None = None, policy: Policy | None = None,
        policy_phase: int | None = None, shut: Collection[str] | None = None,
        samples: Sequence[SampleLine] = (), good_before: bool = False, resources: Resources | None = None,
    ) -> tuple[Finding, ...]:  # fmt: skip
        """Worst first. `history` should be read whole: of a part, a best is not the best.

        `policy_phase`: the phase that `policy` belongs to (None: the history's). `shut`: arms that were read
        max_epochs times, None: not known. `good_before`: an archived audit was good.
        """
        # t and loss as well: a history that was cut can grow to the same step again
        last = (history.last, float(history.t[-1]), repr(history.loss[-1])) if len(history) else ()
        key = (id(history), len(history), last, config, policy, policy_phase, shut)
        if key != self._steps[0]:
            self._steps = (key, self._look(history, config, policy, policy_phase, shut))
        texts = (len(samples), samples[-1].step, samples[-1].t, good_before) if samples else ()
        if texts != self._texts[0]:
            self._texts = (texts, collapsed(samples, good_before))
        found = (*self._texts[1], *self._steps[1], *gpu(resources))
        return tuple(sorted(found, key=lambda f: TONES.index(f.tone)))

    def _look(
        self, history: History, config: Config | None, policy: Policy | None, policy_phase: int | None,
        shut: Collection[str] | None,
    ) -> list[Finding]:  # fmt: skip
        if not len(history):
            return []
        key = (phase_start(history), config)
        if self.levels.follow(history) or key != self._blocks[0]:
            found = divergence(history, self.levels)
            if not found:  # else every arm would say the same
                found += drift(history, self.levels)
            self._blocks = (key, found + plateau(history, self.levels, config))
        out = list(self._blocks[1])
        if policy is not None and policy_phase in (None, int(history.phase[-1])):
            out += starved(history, policy, shut)
        out += skipped(history, self._lost) + spikes(history)
        if config is not None:
            out += clip_rate(history, config.optim, config.train.max_steps)
        return out


class Lost:
    """Indices of the steps without an update. Follows a history; costs what is new."""

    def __init__(self) -> None:
        self.at: NDArray[np.int64] = np.zeros(0, np.int64)
        self._seen = 0  # steps that were looked at
        self._mark: tuple[float, ...] = ()  # of the last of them: a history that was cut there has another

    def follow(self, history: History) -> None:
        n = self._seen if self._mark == _mark(history, self._seen) else 0
        loss, gnorm = history.loss[n:], history.gnorm[n:]
        lost = ~np.isfinite(loss)
        if (~lost & ~np.isfinite(gnorm)).any():  # a finite loss can be skipped too
            lost |= np.isin(history.step[n:], list(history.skipped))
        self.at = np.append(self.at[self.at < n], n + np.flatnonzero(lost))
        self._seen = len(history)
        self._mark = _mark(history, self._seen)


def _mark(history: History, n: int) -> tuple[float, ...]:
    if not 0 < n <= len(history):
        return ()
    bits = int(history.loss[n - 1 : n].view(np.int32)[0])
    return int(history.step[0]), int(history.step[n - 1]), float(history.t[n - 1]), bits


def skipped(history: History, known: Lost | None = None) -> list[Finding]:
    """Steps without an update, since loss or gradient was not finite. Three in a row end the run.

    A warning for 1,000 steps after the last, bad where the last ten steps hold two.
    """
    known = known or Lost()
    known.follow(history)
    at = known.at
    if not len(at):
        return []
    n, step = len(at), int(history.step[at[-1]])
    tone = (
        "bad"
        if (at >= len(history) - 10).sum() >= 2
        else "warn"
        if history.last - step < _SKIP_TOLD
        else "dim"
    )
    what = f"{fmt.count(n)} steps" if n > 1 else "1 step"
    last = f"the last at {fmt.count(step)}" if n > 1 else f"{fmt.count(step)}"
    return [Finding("skipped", f"{what} skipped (not finite), {last}", tone, step)]


def clip_rate(history: History, optim: OptimConfig, max_steps: int) -> list[Finding]:
    """Most of the last 500 steps had a gradient norm above optim.clip, past the first tenth of the run and twice
    the warm-up: before, that is normal.

    Nine of ten are for information: the learning rate is then not quite the schedule's, but a healthy small run
    ended there (norms of 0.9 to 1.2, clip 1; 33 % to 99 %). A warning where half of them are clipped and the median
    norm is twice that of the 5,000 steps before: gradients that grow announce a divergence.
    """
    begin = history.position(max(2 * optim.warmup_steps, max_steps // 10) + 1)
    now = _norms(history, max(begin, len(history) - _CLIP_WINDOW), len(history))
    if len(now) < _CLIP_WINDOW * 0.9:
        return []
    rate = float((now > optim.clip).mean())
    if rate < 0.5:
        return []
    before = _norms(history, max(begin, len(history) - 11 * _CLIP_WINDOW), len(history) - _CLIP_WINDOW)
    usual = float(np.median(before)) if len(before) >= _CLIP_WINDOW else float("inf")
    grew = float(np.median(now)) > 2 * usual
    if not grew and rate < 0.9:
        return []
    text = f"clipped: {fmt.percent(rate)} of the last {_CLIP_WINDOW} steps (norm above {optim.clip:g})"
    if grew:
        text += f", norm {short(float(np.median(now)))}, {short(usual)} before"
    return [Finding("clip", text, "warn" if grew else "dim", history.last)]


def _norms(history: History, first: int, end: int) -> NDArray[np.float32]:
    norms = history.gnorm[first:end]
    return norms[np.isfinite(norms)]


def starved(history: History, policy: Policy, shut: Collection[str] | None) -> list[Finding]:
    """An arm with a floor got no row of the last 5/floor rows, while it was open: a bug.

    The quota draw owes it five there and strays by less than two (docs/MIX.md). Closed: in a warm-up that leaves it
    out, read max_epochs times (`shut`; where that is not known and there is a max_epochs, nothing is said), in the
    phase before.
    """
    if policy.max_epochs and shut is None:
        return []
    floors = {a: x.floor for a, x in policy.arms.items() if x.floor > 1e-9 and a not in (shut or ())}
    if not floors:
        return []
    start = phase_start(history)
    tail = min(len(history) - start, int(5 / min(floors.values())) + 1)
    first = len(history) - tail  # a step has one row at least
    drawn = {a: history.rows(a)[first:] for a in history.arms}
    total = np.zeros(tail, np.int64)
    for rows in drawn.values():
        total += rows
    since = np.cumsum(total[::-1])  # rows of the last 1, 2, … steps
    out = []
    for arm, floor in floors.items():
        n = int(np.searchsorted(since, 5 / floor)) + 1  # steps that make 5/floor rows
        warm = policy.warmup_steps if arm not in policy.warmup_arms else 0
        if n > tail or int(history.step[-n]) <= warm:
            continue
        if arm not in drawn or not drawn[arm][-n:].any():
            text = f"starved: {clean(arm)} got none of the last {fmt.count(int(since[n - 1]))} rows"
            text += f", its floor is {floor:.3g}: a bug"
            out.append(Finding("starved", text, "bad", history.last))
    return out


def gpu(resources: Resources | None) -> list[Finding]:
    """A card that is hot (5 °C below where it slows down, 90 °C where it does not say) or slowed down by heat, the
    power supply or its own protection (NVML's clocks event reasons). A power cap is how cards work, and no finding."""
    out = []
    cards = resources.gpus if resources is not None else ()
    for i, g in enumerate(cards):
        limit = g.slowdown - 5 if g.slowdown else _HOT
        hot = g.temperature is not None and g.temperature >= limit
        if not hot and not g.throttled:
            continue
        said = [f"{g.temperature} °C"] if g.temperature is not None else []
        said += [f"throttled ({g.throttled})"] if g.throttled else []
        name = "gpu" if len(cards) == 1 else f"gpu {i}"
        out.append(Finding("gpu", f"{name} {', '.join(said)}", "bad" if hot and g.throttled else "warn"))
    return out


def collapsed(samples: Sequence[SampleLine], good_before: bool = False) -> list[Finding]:
    """Five audits in a row read like noise, and one before did not: see `engine.collapse`."""
    found = audits(samples)
    step = collapse(found, good_before)
    if step is None:
        return []
    n = sum(s >= step for s, _ in found)
    text = f"collapse: {n} audits in a row are noise, since step {fmt.count(step)}"
    return [Finding("collapse", text, "bad", found[-1][0])]

"""The loss against its own past, arm by arm: drift, divergence, plateau.

Each is a pure function of the canonical history and returns no finding or one a tone. They look at whole blocks of 64
steps (`Levels`, a cache of the history), so they can change once a block.
"""

import numpy as np

from andrea_tui.core import fmt
from andrea_tui.core.baseline import (
    BLOCK,
    LEAST,
    LEVEL_BLOCKS,
    LEVEL_ROWS,
    WINDOW,
    Levels,
    last_pulls,
    phase_start,
    usual,
)
from andrea_tui.core.finding import TONES, Finding, others, short
from andrea_tui.core.text import clean
from engine.config import Config
from engine.rundir.history import History

SILENT = 128  # steps after a pivot without a word on divergence


def drift(history: History, levels: Levels) -> list[Finding]:
    """An arm's level (mean over its last 512 rows and 256 steps at least) above its own best of this phase by 0.15
    nats, and three of the window's four quarters by that, 4 % and 8 standard errors.

    The best is the least of many, so it lies some 3.5 standard errors below a level that stands still; 8 leave room
    for it. Three quarters, so that a spike is no drift. Dim where the arm is drawn less than half as often as at
    its best: to forget is what the mix asked for.
    """
    first = -(-phase_start(history) // BLOCK)
    at = levels.grid(first)
    if not len(at):
        return []
    found: list[tuple[float, Finding]] = []
    shares, all_levels = levels.shares(8), levels.levels(first)
    for arm, share in shares.items():
        level = all_levels[arm]
        if not np.isfinite(level[-1]) or level[-1] <= np.nanmin(level) + 0.15:
            continue
        parts = range(1, LEVEL_BLOCKS + 1)
        edges = [levels.window(arm, at[-1:], m * LEVEL_ROWS // LEVEL_BLOCKS, m, first)[0] for m in parts]
        begins = np.array(edges)
        quarters = np.sort(levels.mean(arm, begins, np.append(levels.blocks, begins[:-1])))
        best = int(np.nanargmin(level))
        rise = float(quarters[1] - level[best])
        if not np.isfinite(quarters).all() or not rise > max(0.15, 0.04 * level[best]):
            continue
        rows = levels.rows(arm, begins[-1:], at[-1:] + 1)[0]
        if rise <= 8 * _row_sigma(history, arm, levels) / np.sqrt(rows):
            continue
        then = levels.shares(8, int(at[best]) + 1).get(arm, 0.0)
        less = share < then / 2
        step = _end(history, at[best])
        text = f"drift: {clean(arm)} {short(level[-1])} (best {short(level[best])} at step {fmt.count(step)}"
        text += f"; drawn less, {then:.1%} then, {share:.1%} now)" if less else ")"
        found.append((rise, Finding("drift", text, "dim" if less else "warn", _end(history, at[-1]))))
    return _merged(found)


def divergence(history: History, levels: Levels) -> list[Finding]:
    """The loss above its best by 0.2 nats, 5 % and 8 standard errors in three of the last four blocks of 64 steps;
    bad from 0.5 nats and 12 % on.

    The best EMA is not the measure: it moves with the mix. Each row of the last blocks is compared with its own arm's
    level at an earlier time (mean over 512 rows and 256 steps at least), and the time at which the sum was best is
    the best; times count where arms of half the rows had a level. Three blocks tell it from a spike. Silent
    for 128 steps after a pivot.
    """
    arms = list(levels.shares(4))
    if levels.blocks * BLOCK - phase_start(history) < SILENT or levels.blocks <= 4 or not arms:
        return []
    at = levels.grid()[:-4]
    last = np.arange(levels.blocks - 4, levels.blocks)
    all_levels = levels.levels()
    level = np.stack([all_levels[a][:-4] for a in arms], axis=1)  # times x arms
    rows = np.stack([levels.rows(a, last, last + 1) for a in arms])  # arms x blocks
    sums = np.stack([levels.sums(a, last, last + 1) for a in arms])
    known = np.isfinite(level)
    level[~known] = 0.0
    both = known @ rows
    enough = (both > 0) & (both >= 0.5 * rows.sum(axis=0))
    rises = np.where(enough, (known @ sums - level @ rows) / np.maximum(both, 1.0), -np.inf)
    lasting = np.sort(rises, axis=1)[:, 1]  # times
    best = int(lasting.argmax())
    rise = float(lasting[best])
    n = np.where(known[best], rows.sum(axis=1), 0.0)  # rows of each arm
    was = float(level[best] @ n / max(n.sum(), 1.0))
    if not rise > max(0.2, 0.05 * was):
        return []
    variance = sum(k * _row_sigma(history, a, levels) ** 2 for a, k in zip(arms, n, strict=True) if k)
    if rise <= 8 * np.sqrt(variance) / n.sum():
        return []
    tone = "bad" if rise > max(0.5, 0.12 * was) else "warn"
    step = _end(history, at[best])
    text = f"diverging: loss {rise:.2f} above its best, {short(was)} at step {fmt.count(step)} (same mix)"
    return [Finding("divergence", text, tone, _end(history, last[-1]))]


def plateau(history: History, levels: Levels, config: Config | None) -> list[Finding]:
    """The last quarter of the phase is with 95 % certainty less than 0.01 nats better than the quarter before.

    Arm by arm, at the present shares, in eight parts each; the spread of the parts gives the standard error. From
    4,096 steps of the phase on, and only where the phase is half the run or more: the later, the slower is progress.
    For information: a power law with exponent 0.3 gains a tenth of what it has left to gain there. Not in the last
    fifth of the run, where the learning rate is all but down.
    """
    first = -(-phase_start(history) // BLOCK)
    n = levels.blocks - first
    if n < max(64, levels.blocks // 2):
        return []
    last = _end(history, levels.blocks - 1)
    if config is not None and last > 0.8 * config.train.max_steps:
        return []
    ends = np.linspace(first + n - n // 2, levels.blocks, 17).astype(np.int64)
    weight, parts = 0.0, np.zeros(16)
    for arm, share in levels.shares(n // 4).items():
        if levels.rows(arm, ends[:-1], ends[1:]).min() >= 4:
            weight += share
            parts += share * levels.mean(arm, ends[:-1], ends[1:])
    if weight < 0.5:
        return []
    before, after = parts[:8] / weight, parts[8:] / weight
    gain = float(before.mean() - after.mean())
    error = float(np.sqrt((before.var(ddof=1) + after.var(ddof=1)) / 8))
    worse = gain < -0.1  # no plateau: drift or divergence say it
    if gain + 2 * error >= 0.01 or worse:
        return []
    since = _end(history, ends[8] - 1)
    steps = fmt.count(last - since)
    return [Finding("plateau", f"plateau: no progress in {steps} steps (same mix)", "dim", last)]


def _row_sigma(history: History, arm: str, levels: Levels) -> float:
    """Standard deviation of one row's loss, nats; infinite where too little is known."""
    p = last_pulls(history, arm, WINDOW, end=levels.blocks * BLOCK)
    return usual(p.loss, p.rows).sigma(1) if len(p.loss) >= LEAST else float("inf")


def _merged(found: list[tuple[float, Finding]]) -> list[Finding]:
    """One finding per tone: the largest, and how many arms do the same."""
    out = []
    for tone in TONES:
        same = [x for x in found if x[1].tone == tone]
        if same:
            f = max(same, key=lambda x: x[0])[1]
            out.append(Finding(f.kind, f.text + others(len(same) - 1), tone, f.step))
    return out


def _end(history: History, block: int | np.int64) -> int:
    """Step of the block's end."""
    return int(history.step[(int(block) + 1) * BLOCK - 1])

"""Runs that were branched from each other, side by side: where they part, what differs, which is ahead.

Knows no torch and no Textual; the numbers are functions of the files. How sure a lead is: `bootstrap`.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from andrea_tui.core.text import clean
from engine.config import CONFIG_FILE, POLICY_FILE, Config, Policy, load_config, load_policy
from engine.data.manifest import Manifest, load_manifest
from engine.errors import BadInput
from engine.rundir import names
from engine.rundir.files import exists, read_file
from engine.rundir.history import History, canonical_samples, read_history
from engine.rundir.lines import LineDecoder
from engine.rundir.records import Event, SampleLine
from engine.toml_io import flat

LEAST = 16  # common evaluations before anything is said about them
RESAMPLES, SEED, LEVEL = 10_000, 1, 0.95  # of the bootstrap
BLOCKS = 4  # at least so many blocks lie in a series
_LARGE = 1 << 32
# 97.5 % quantiles of Student's t, 1 to 30 degrees of freedom
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
      2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """What a comparison needs of one run directory."""

    label: str  # the directory as it was named, cleaned
    config: Config
    policy: Policy  # in force
    policies: dict[int, Policy]  # phase -> its policy, as far as it is known
    manifest: Manifest
    history: History
    samples: list[SampleLine]  # canonical, of all phases

    def rows_key(self, arm: str, phase: int) -> tuple[object, ...] | None:
        """What the held-out rows of an arm follow from; equal keys are the same rows. None: no such arm, or unknown."""
        data, policy = self.manifest.arms.get(arm), self.policies.get(phase)
        if data is None or policy is None:
            return None
        rows = policy.heldout.rows
        return (self.manifest.tokenizer_sha256, data.heldout.sha256, self.config.model.context, rows)

    def policies_after(self, step: int) -> list[Policy | None]:
        """Of the phases that have steps after this one; None: not known any more."""
        return [self.policies.get(p) for p in sorted(set(self.history.phase[step:].tolist()))]


@dataclass(frozen=True)
class Difference:
    """A key whose values are not all equal; None: the run has no such key."""

    key: str
    values: tuple[object, ...]  # one a run


@dataclass(frozen=True)
class Evaluations:
    """Held-out bits per byte at the steps at which all runs evaluated, on the same rows."""

    steps: tuple[int, ...]  # after the fork
    arms: tuple[str, ...]  # that all runs have, with the same held-out rows
    bpb: NDArray[np.float64]  # (runs, steps, arms)
    left_out: tuple[str, ...]  # "chat: not on the same held-out rows"

    @property
    def mean(self) -> NDArray[np.float64]:
        """(runs, steps) over the arms."""
        out: NDArray[np.float64] = self.bpb.mean(axis=2)
        return out


@dataclass(frozen=True)
class Interval:
    """A mean with the interval that covers it, in the unit of the series."""

    mean: float
    low: float
    high: float
    n: int  # numbers in the series
    block: int  # length of a block
    resamples: int
    seed: int

    @property
    def sure(self) -> bool:
        """Whether 0 lies outside."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Verdict:
    """Of the run at `index` beside the first one."""

    index: int
    word: str  # one line
    interval: Interval | None  # of its bits per byte minus the first one's; None where nothing can be said


@dataclass(frozen=True)
class Comparison:
    runs: tuple[Run, ...]
    fork: int  # the last step up to which all histories are equal
    config: tuple[Difference, ...]
    policy: tuple[Difference, ...]
    evaluations: Evaluations
    audits: tuple[
        tuple[int, tuple[float, ...]], ...
    ]  # (step, median coherence of the sampled texts, one a run)
    verdicts: tuple[Verdict, ...]
    by_chance: float | None  # see `chance`


def load(run_dir: Path) -> Run:
    """Raises BadInput with one line where it is no run, or was never trained."""
    config, policy = load_config(run_dir / CONFIG_FILE), load_policy(run_dir / POLICY_FILE)
    manifest = load_manifest(run_dir)
    try:
        history, _ = read_history(run_dir / names.LOSS)
        events = _lines(run_dir / names.EVENTS, Event)
        samples = _lines(run_dir / names.SAMPLES, SampleLine)
        policies: dict[int, Policy] = {}
        old: list[SampleLine] = []
        for e in events:
            phase, name = e.info.get("phase"), e.info.get("archive")
            if e.event == "pivot" and isinstance(phase, int) and isinstance(name, str):
                folder = run_dir / names.ARCHIVE / Path(name).name
                if exists(folder / POLICY_FILE):
                    policies[phase - 1] = load_policy(folder / POLICY_FILE)
                old += _lines(folder / names.SAMPLES, SampleLine)
    except OSError as e:
        raise BadInput(f"{run_dir}: can't be read: {e.strerror or e}") from None
    if not len(history):
        raise BadInput(f"{run_dir}: nothing was trained yet, so there is nothing to compare")
    if history.missing:
        raise BadInput(
            f"{run_dir}: its history lacks {history.missing:,} steps; `andrea-tui verify` says which"
        )
    policies[max([*_phases(events), int(history.phase[-1])])] = policy
    texts = [x for x in canonical_samples(old, samples) if x.step <= history.last]
    return Run(clean(str(run_dir)), config, policy, policies, manifest, history, texts)


def _phases(events: Sequence[Event]) -> list[int]:
    return [p for e in events if e.event == "pivot" and isinstance(p := e.info.get("phase"), int)]


def _lines(path: Path, kind: Any) -> Any:
    return LineDecoder(kind).feed(read_file(path, _LARGE)) if exists(path) else []


def compare(runs: Sequence[Run]) -> Comparison:
    """Two runs or more, the first being what the others are compared with."""
    fork = min(common(runs[0].history, r.history) for r in runs[1:])
    found, by_chance = evaluations(runs, fork), chance(runs)
    return Comparison(
        tuple(runs), fork,
        _differences([flat(r.config) for r in runs]), _differences([flat(r.policy) for r in runs]),
        found, _audits(runs, fork),
        tuple(_verdict(runs, i, by_chance) for i in range(1, len(runs))), by_chance,
    )  # fmt: skip


def common(a: History, b: History) -> int:
    """The last step up to which both histories say the same of every step, but for times, segments and evaluations.

    Evaluations change nothing in the training, so another cadence of theirs is no fork.
    """
    n = min(len(a), len(b))
    same = np.ones(n, bool)
    for x, y in ((a.loss, b.loss), (a.gnorm, b.gnorm), (a.lr, b.lr), (a.step, b.step)):
        same &= _equal(x[:n], y[:n])
    for arm in {*a.arms, *b.arms}:
        nothing = np.zeros(n, np.int32)
        x, y = (h.rows(arm)[:n] if arm in h.arms else nothing for h in (a, b))
        same &= x == y
        if arm in a.arms and arm in b.arms:
            same &= _equal(a.rloss(arm)[:n], b.rloss(arm)[:n])
    return int(np.argmin(same)) if not same.all() else n


def _equal(x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
    out: NDArray[np.bool_] = (x == y) | ((x != x) & (y != y))  # NaN stands for "none"
    return out


def _differences(tables: Sequence[dict[str, Any]]) -> tuple[Difference, ...]:
    keys = {k: None for t in tables for k in t}  # in order
    found = [Difference(k, tuple(t.get(k) for t in tables)) for k in keys]
    return tuple(d for d in found if any(v != d.values[0] for v in d.values))


def evaluations(runs: Sequence[Run], fork: int) -> Evaluations:
    """What was evaluated at equal steps, on the same rows, with weights that may differ.

    An evaluation at step s is of the weights after step s - 1: that of step fork + 1 is of common weights.
    """
    logged = [{s: v for s, v in r.history.bpb if s > fork + 1} for r in runs]
    steps = sorted(set.intersection(*(set(x) for x in logged)))
    seen = sorted({a for x in logged for s in steps for a in x[s]})
    arms, left_out = [], []
    for arm in seen:
        why = _why_not(runs, logged, steps, arm)
        if why:
            left_out.append(f"{clean(arm)}: {why}")
        else:
            arms.append(arm)
    finite = [s for s in steps if all(x[s].get(a) is not None for x in logged for a in arms)]
    table = np.array([[[x[s][a] for a in arms] for s in finite] for x in logged], np.float64)
    return Evaluations(tuple(finite) if arms else (), tuple(arms),
                       table.reshape(len(runs), len(finite), len(arms)), tuple(left_out))  # fmt: skip


def _why_not(
    runs: Sequence[Run], logged: Sequence[dict[int, dict[str, float | None]]], steps: Sequence[int], arm: str
) -> str:
    """Why an arm can't be compared; empty where it can."""
    if any(arm not in x[s] for x in logged for s in steps):
        return "not evaluated in every run"
    keys = {
        r.rows_key(arm, p)
        for r in runs
        for p in {int(r.history.phase[r.history.index(s) or 0]) for s in steps}
    }
    if len(keys) > 1 or None in keys:
        return "not on the same held-out rows (text, tokenizer, model.context or heldout.rows differ)"
    return ""


def _audits(runs: Sequence[Run], fork: int) -> tuple[tuple[int, tuple[float, ...]], ...]:
    """After the fork; at the fork the weights are the same."""
    found = [_coherence(r.samples) for r in runs]
    steps = sorted(s for s in set.intersection(*(set(x) for x in found)) if s > fork)
    return tuple((s, tuple(x[s] for x in found)) for s in steps)


def _coherence(samples: Sequence[SampleLine]) -> dict[int, float]:
    """step -> median coherence (0 to 100) of the sampled texts."""
    values: dict[int, list[float]] = {}
    for x in samples:
        if x.mode == "sampled" and x.scores and "coherence" in x.scores:
            values.setdefault(x.step, []).append(x.scores["coherence"])
    return {s: statistics.median(v) for s, v in values.items()}


def chance(runs: Sequence[Run]) -> float | None:
    """How far apart (bits per byte) two of these runs lie at most that differ in the seed alone; None: no such pair.

    The yardstick that one run beside another can't give: their bootstrap knows the noise along the two histories,
    not how two others would have gone.
    """
    gaps = []
    for k, b in enumerate(runs):
        for a in runs[:k]:
            fork = common(a.history, b.history)
            e = evaluations((a, b), fork)
            if _only_the_seed(a, b, fork) and e.arms and len(e.steps) >= LEAST:
                gaps.append(abs(float((e.mean[1] - e.mean[0]).mean())))
    return max(gaps, default=None)


def _only_the_seed(a: Run, b: Run, fork: int) -> bool:
    keys = {d.key for d in _differences([flat(a.config), flat(b.config)])}
    policies = a.policies_after(fork)
    same = policies == b.policies_after(fork) and len(policies) == 1 and policies[0] is not None
    return same and "run.seed" in keys and keys <= {"run.seed", "run.name"}


def _verdict(runs: Sequence[Run], i: int, by_chance: float | None) -> Verdict:
    """From everything that these two have in common, whatever further runs there are."""
    a, b = runs[0], runs[i]
    fork = common(a.history, b.history)
    if fork == min(len(a.history), len(b.history)):
        return Verdict(
            i, f"{b.label} and {a.label} are the same run: every step to {fork:,} is identical", None
        )
    e = evaluations((a, b), fork)
    if not e.arms and e.left_out:
        return Verdict(i, f"{b.label} and {a.label} can't be compared: {'; '.join(e.left_out)}", None)
    if len(e.steps) < LEAST:
        text = f"can't tell yet: {len(e.steps)} common evaluations after the fork, {LEAST} are needed"
        return Verdict(i, text, None)
    x = bootstrap(e.mean[1] - e.mean[0])
    return Verdict(i, _word(a, b, x, _only_the_seed(a, b, fork), by_chance), x)


def _word(a: Run, b: Run, x: Interval, only_the_seed: bool, by_chance: float | None) -> str:
    gap = f"{b.label} minus {a.label} is {x.mean:+.4f} bits per byte (95 %: {x.low:+.4f} to {x.high:+.4f})"
    if only_the_seed:
        return f"can't tell: {gap}, and they differ in the seed alone: that is what chance makes"
    if not x.sure:
        return f"can't tell yet: {gap}"
    if by_chance is not None and abs(x.mean) <= by_chance:
        return f"can't tell yet: {gap}, and runs that differ in the seed alone lie {by_chance:.4f} apart"
    ahead, behind = (b, a) if x.mean < 0 else (a, b)
    low, high = sorted((abs(x.low), abs(x.high)))
    return (f"{ahead.label} is ahead of {behind.label} by {abs(x.mean):.4f} bits per byte "
            f"(95 %: {low:.4f} to {high:.4f})")  # fmt: skip


def bootstrap(series: NDArray[np.float64], resamples: int = RESAMPLES, seed: int = SEED) -> Interval:
    """The 95 % interval of the mean of a series whose neighbours hang together: a moving-block bootstrap.

    Blocks of `block_length` neighbours are drawn with replacement until n numbers are there (Kuensch 1989, Liu and
    Singh 1992); the interval is the mean plus the resampled means' 2.5 % and 97.5 % deviations from their own mean.
    As few blocks make it too narrow, it is widened by sqrt(n / (n - block)), for the variance that lies between
    blocks that overlap, and by t(n / block - 1) / 1.96, Student's t for as many degrees of freedom as there are
    blocks less one. `series`: at least LEAST numbers, finite.
    """
    n = len(series)
    length = block_length(series)
    k = -(-n // length)
    starts = np.random.default_rng(seed).integers(0, n - length + 1, (resamples, k))
    sums = np.concatenate([[0.0], np.cumsum(series - series.mean())])
    rest = n - (k - 1) * length  # of the last block, which is cut so that n numbers are drawn
    totals = (sums[starts[:, :-1] + length] - sums[starts[:, :-1]]).sum(axis=1)
    means = (totals + sums[starts[:, -1] + rest] - sums[starts[:, -1]]) / n
    low, high = np.quantile(means - means.mean(), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    wider = _t(n // length - 1) / 1.96 * (n / (n - length)) ** 0.5
    mean = float(series.mean())
    return Interval(mean, mean + float(low) * wider, mean + float(high) * wider, n, length, resamples, seed)


def block_length(series: NDArray[np.float64]) -> int:
    """How many neighbours make a block: more, the more they hang together.

    1.1447 (alpha n)^(1/3) with alpha = 4 r^2 / (1 - r^2)^2, r being the lag-1 autocorrelation (Andrews 1991, eq. 6.2
    and 6.4, for Bartlett weights, which are those of overlapping blocks), corrected by (1 + 4 r) / n for the bias of
    short series (Kendall 1954). At least n^(1/3), at most n / BLOCKS.
    """
    n = len(series)
    x = series - series.mean()
    power = float((x * x).sum())
    r = float((x[1:] * x[:-1]).sum()) / power if power else 0.0
    r = min(max(r + (1 + 4 * r) / n, 0.0), 0.97)
    alpha = 4 * r**2 / (1 - r**2) ** 2
    wanted = max(n ** (1 / 3), 1.1447 * (alpha * n) ** (1 / 3))
    return max(1, min(int(np.ceil(wanted - 1e-9)), n // BLOCKS))


def _t(df: int) -> float:
    return _T[max(df, 1) - 1] if df <= len(_T) else 1.96 + 2.4 / df

"""What an attached dashboard costs the training: windows with and without it, in pairs, one run, one machine.

The windows go with, without, without, with, with … so that a clock or a neighbour that wanders hits both alike. Each
pair gives one ratio of its steps a second; of the logarithms of these come the mean and its confidence interval.
"Without" is a sleeping program in a terminal of the same kind. Compared with nothing at all, a sleeper seemed to make
the training faster on a busy machine, in 8 of 8 pairs: not understood; both kinds of window now have it.
"""

import math
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import runs
from bench.curve import ARMS
from bench.report import ROOT
from bench.watched import Busy, Watched
from engine.config import Arm
from engine.rundir import names
from engine.rundir.lines import LineDecoder
from engine.rundir.records import LossLine

NEVER = 10**9
AT_LEAST = 10  # steps in a window
FEWEST = 4  # pairs
SLEEPER = ["sleep", "100000"]
SETTLE = 3.0  # seconds after an attach that are the attach's, not the attached dashboard's
# Student's t for 95 %, two-sided, by degrees of freedom
_T95 = {
    3: 3.18,
    4: 2.78,
    5: 2.57,
    6: 2.45,
    7: 2.36,
    8: 2.31,
    9: 2.26,
    10: 2.23,
    11: 2.20,
    12: 2.18,
    15: 2.13,
    20: 2.09,
}


@dataclass(frozen=True)
class Cost:
    """`cost` in per cent of the steps a second, with its 95 % interval; negative would be a gain."""

    cost: float
    low: float
    high: float
    with_it: float  # steps a second, median of the windows
    without: float
    pairs: int
    others: list[float]  # CPU of others in each window, per cent of one core


def measure(
    run: Path, pairs: int, seconds: float, dashboard: Callable[[Path], list[str]], end: float
) -> Cost:
    """Trains andrea-tiny in `run` (which it makes) for the time of 2·pairs windows.

    After `end` (monotonic) no pair is begun, if there are FEWEST. RuntimeError: the training ended, or is too slow.
    """
    arms = {name: Arm(builtin=name) for name in ARMS}
    never = [f"train.{key}={NEVER}" for key in ("checkpoint_every", "sample_every", "eval_every")]
    env = {f"XDG_{x}_HOME": str(run / "home") for x in ("STATE", "CACHE")}
    sets = [*never, "keep.last=1", "train.max_steps=1000000", "audit.tokens=8", 'audit.prompts=["the "]']
    runs.make_run(run, "andrea-tiny", sets, arms)
    trainer = _start(run)
    try:
        _wait_for_step(run, trainer.poll, 10)
        rates: dict[bool, list[float]] = {True: [], False: []}
        others: list[float] = []
        with ExitStack() as attached:
            there: bool | None = None
            for i, wanted in enumerate(order(pairs)):
                if i % 2 == 0 and i >= 2 * FEWEST and time.monotonic() > end:
                    break
                if wanted != there:
                    attached.close()
                    command = dashboard(run) if wanted else SLEEPER
                    watched = attached.enter_context(Watched(command, env=env, cwd=ROOT))
                    time.sleep(SETTLE)
                    there = wanted
                rate, busy = _window(run, seconds, [trainer.pid, watched.process.pid])
                rates[wanted].append(rate)
                others.append(busy)
                if trainer.poll() is not None:
                    raise RuntimeError(f"the training ended: {runs.last_words(run)}")
    finally:
        if trainer.poll() is None:
            trainer.send_signal(signal.SIGKILL)
        trainer.wait()
    cost, low, high = interval(rates[True], rates[False])
    middle = {k: statistics.median(v) for k, v in rates.items()}
    return Cost(cost, low, high, middle[True], middle[False], len(rates[True]), others)


def _start(run: Path) -> subprocess.Popen[bytes]:
    """In a session of its own, as the cockpit starts it: Linux shares the CPU out among sessions."""
    with open(run / names.LOG, "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "engine", str(run)],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def order(pairs: int) -> list[bool]:
    """With, without, without, with, with, without …: neighbours at 2i and 2i + 1 are a pair."""
    return [b for i in range(pairs) for b in ((True, False) if i % 2 == 0 else (False, True))]


def interval(with_it: Sequence[float], without: Sequence[float]) -> tuple[float, float, float]:
    """(cost, low, high) in per cent of the rate without; at least four pairs."""
    logs = [math.log(a / b) for a, b in zip(with_it, without, strict=True)]
    mean, n = statistics.fmean(logs), len(logs)
    half = _T95[max(k for k in _T95 if k <= n - 1)] * statistics.stdev(logs) / math.sqrt(n)
    return tuple(100 * (1 - math.exp(x)) for x in (mean, mean + half, mean - half))  # type: ignore[return-value]


def _wait_for_step(run: Path, ended: Callable[[], int | None], step: int, timeout: float = 180.0) -> None:
    end = time.monotonic() + timeout
    while runs.last_step(run) < step:
        if ended() is not None or time.monotonic() > end:
            raise RuntimeError(f"the training did not come to step {step}: {runs.last_words(run)}")
        time.sleep(0.05)


def _window(run: Path, seconds: float, pids: list[int]) -> tuple[float, float]:
    """(steps a second, CPU of others). From the times of the steps that end within it: no half step is counted.

    It is as long as it was told to be, and on a slow machine as long as some steps take.
    """
    path, busy = run / names.LOSS, Busy(lambda: pids)
    at, end = path.stat().st_size, time.monotonic() + 20 * seconds
    lines: list[LossLine] = []
    while len(lines) < AT_LEAST and time.monotonic() < end:
        time.sleep(seconds)
        with open(path, "rb") as f:
            f.seek(at)
            lines = LineDecoder(LossLine).feed(f.read())
    if len(lines) < AT_LEAST:
        raise RuntimeError(f"{len(lines)} steps in {20 * seconds:.0f} s: too slow to measure")
    return (len(lines) - 1) / (lines[-1].t - lines[0].t), busy.others()

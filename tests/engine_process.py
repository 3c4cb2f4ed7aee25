"""Helpers for tests that start the real trainer and look at its run directory."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from engine.rundir.history import History, read_history
from engine.rundir.lines import LineDecoder
from engine.rundir.records import Event, LossLine, SampleLine
from tests import forked

TIMEOUT = 120.0


class Process(Protocol):
    """What a `Popen` and a forked trainer have in common."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


def start(run: Path, *args: str) -> forked.Forked:
    """A trainer that finds torch imported."""
    return forked.server().start(run, *args)


def start_cold(run: Path, *args: str) -> subprocess.Popen[bytes]:
    """As it is started on a machine: where the start itself is tested."""
    with open(run / "trainer.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "engine", str(run), *args],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def finish(run: Path, *args: str) -> int:
    """Start it and wait for its end; the exit code."""
    return start(run, *args).wait(TIMEOUT)


def wait_for(
    condition: Callable[[], bool],
    what: str,
    process: Process | None = None,
    seconds: float = TIMEOUT,
) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        assert process is None or process.poll() is None, (
            f"the trainer ended with {process.poll()} before {what}"
        )
        time.sleep(0.01)


def history(run: Path) -> History:
    return read_history(run / ".loss.json")[0]


def events(run: Path) -> list[Event]:
    try:
        return LineDecoder(Event).feed((run / ".events.json").read_bytes())
    except FileNotFoundError:
        return []


def samples(run: Path) -> list[SampleLine]:
    return LineDecoder(SampleLine).feed((run / ".samples.json").read_bytes())


def named(run: Path, name: str) -> list[Event]:
    return [e for e in events(run) if e.event == name]


def doing(run: Path) -> str:
    try:
        return str(json.loads((run / ".status.json").read_text())["doing"])
    except FileNotFoundError:
        return ""


def canonical(run: Path) -> list[LossLine]:
    """The history without what differs between any two runs: t, dt, seg."""
    h = history(run)
    lines = [h.line(i) for i in range(len(h))]
    for x in lines:
        x.t, x.dt, x.seg = 0.0, 0.0, 0
    return lines


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def kill_at_step(
    run: Path,
    step: int,
    number: signal.Signals,
    seconds: float = TIMEOUT,
    start: Callable[[Path], Process] = start,
) -> int:
    """Start the trainer, send the signal once the log has that step; its exit code."""
    p = start(run)
    wait_for(lambda: history(run).last >= step, f"step {step}", p, seconds)
    os.kill(p.pid, number)
    return p.wait(TIMEOUT)

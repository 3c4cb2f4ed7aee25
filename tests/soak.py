"""A monkey at the cockpit: random keys and sizes. `make soak` for an hour, a minute of it in the tests.

    python -m tests.soak [--seconds 3600] [--seed 1]

A stand-in trainer writes ten steps a second meanwhile and keeps a list of the signals it gets.
"""

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from andrea_tui.cli import make_run
from tests.told import Comparing

ESC, UP, DOWN, RIGHT, LEFT = "\x1b", "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"
PAGES = ("\x1b[5~", "\x1b[6~", "\x1b[H", "\x1b[F", "\x1b[Z", "\x1bOP")
# Every key that may not signal, and some that mean nothing. Left out: s and q, d and ctrl+q and ctrl+c (they leave),
# ctrl+z (it stops the program), and ctrl+p (its palette runs commands by name, the snapshot too).
HARMLESS = [*"abcefghijklmnorstuvwxyz".replace("s", ""), *"0123456789+-=,./?!*:;<>[]{}()'\"éß語",
            "\t", "\r", ESC, UP, DOWN, RIGHT, LEFT, *PAGES, "\x15", "\x7f"]  # fmt: skip
PIVOT = [k for k in HARMLESS if k != "y"] + ["p"] * 6  # a pivot is confirmed by y
SIZES = (20, 200), (6, 60)


@dataclass
class Soak:
    """What came of it."""

    compared: int = 0
    different: list[object] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    rss: list[int] = field(default_factory=list)  # bytes, between bursts of keys
    descriptors: list[int] = field(default_factory=list)
    keys: int = 0
    exit_code: int | None = None  # it ended by itself; None: it had to be told
    crash: str = ""


def rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@contextlib.contextmanager
def steady(run: Path, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """The stand-in trainer at work."""
    make_run(run, "andrea-tiny", [])
    command = [sys.executable, "-m", "bench.standin", str(run), *args]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        while not (run / ".status.json").exists():
            assert process.poll() is None
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


def soak(folder: Path, seconds: float, seed: int, keys: list[str] = HARMLESS) -> Soak:
    """Bursts of keys and sizes; between them back to the overview, where memory and descriptors are looked at."""
    rng, out, run = random.Random(seed), Soak(), folder / "run"
    with (
        steady(run, "--history", "20000") as trainer,
        Comparing(folder / "told", run, columns=120, lines=40) as t,
    ):
        t.wait("training")
        t.wait(r"EMA d")
        end, burst = time.monotonic() + seconds, 0
        while time.monotonic() < end and t.process.poll() is None:
            burst += 1
            for _ in range(rng.randrange(5, 25)):
                t.send(rng.choice(keys))
                out.keys += 1
                time.sleep(rng.choice((0.0, 0.01, 0.05, 0.2)))
            if burst % 2:
                t.resize(rng.randint(*SIZES[0]), rng.randint(*SIZES[1]))
            if burst % 4 == 0:
                rest(t)
                out.rss.append(rss(t.process.pid))
                out.descriptors.append(descriptors(t.process.pid))
        out.exit_code = t.process.poll()
        assert out.exit_code is not None or trainer.poll() is None, "the trainer ended"
        out.crash = t.crash()
        out.compared, out.different = t.compared, list(t.different)
    out.signals = (run / "signals.txt").read_text().split()
    return out


def rest(t: Comparing) -> None:
    """Back at the overview at the usual size, and some redraws there."""
    for _ in range(6):
        t.send(ESC)
        time.sleep(0.15)
    t.resize(120, 40)
    seen, until = t.compared, time.monotonic() + 20
    while t.compared < seen + 3 and time.monotonic() < until and t.process.poll() is None:
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    for name, keys in (("harmless keys", HARMLESS), ("the pivot without its y", PIVOT)):
        with tempfile.TemporaryDirectory() as folder:
            s = soak(Path(folder), args.seconds / 2, args.seed, keys)
        grown = (s.rss[-1] - s.rss[min(2, len(s.rss) - 1)]) / 1e6 if s.rss else 0.0
        print(f"{name}, seed {args.seed}: {s.keys} keys, {s.compared} redraws compared, {len(s.different)} differ; "
              f"signals {s.signals or 'none'}; memory {s.rss[-1] / 1e6 if s.rss else 0:.0f} MB, {grown:+.1f} MB; "
              f"descriptors {s.descriptors[:1]} → {s.descriptors[-1:]}; "
              f"{'still running' if s.exit_code is None else f'ended by itself with {s.exit_code}'}")  # fmt: skip
        if s.different or s.crash:
            print(s.crash or s.different[0])
        if s.different or s.signals or s.exit_code is not None:
            raise SystemExit(1)


if __name__ == "__main__":
    main()

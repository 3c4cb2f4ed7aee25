"""What bench/cockpit.py watches: our dashboard, and terminalboard from PyPI, both on the same curve."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench import curve, report, runs
from bench.watched import Screen, Watched
from engine.config import Arm
from engine.rundir import names
from engine.rundir.records import encode, event

TERMINALBOARD, PLOTEXT = "0.5.3", "5.3.2"  # it draws with plotext's older interface
INSTALL_SECONDS = 90.0
RATE = 10.0  # steps a second
ZOOM, LOG, PANE, FULL = (
    "zoom in, zoom out",
    "log scale",
    "next pane, pane before",
    "pane over the whole screen",
)


@dataclass(frozen=True)
class Program:
    """`folder`, in the arguments below, holds one copy of the curve, as `make` left it."""

    make: Callable[[Path, int], None]  # (folder, steps)
    command: Callable[[Path], list[str]]
    whole: Callable[[Screen, int], bool]  # is the chart of so many steps complete?
    grow: Callable[
        [Path, int], AbstractContextManager[list[int]]
    ]  # RATE steps a second within; pids of who writes
    keys: dict[str, tuple[str, str]]  # what they do: a key, and the way back
    first_key: str = ""  # to where the keys act

    def start(self, folder: Path) -> Watched:
        """It remembers nothing of a time before, but for what it kept in `folder`."""
        env = {f"XDG_{x}_HOME": str(folder / "home") for x in ("STATE", "CONFIG", "CACHE")}
        return Watched(self.command(folder), env=env, cwd=report.ROOT)


# ---- ours


def _make_run(folder: Path, steps: int) -> None:
    """A run that was stopped at this step, without its checkpoints."""
    run = folder / "run"
    arms = {name: Arm(builtin=name) for name in curve.ARMS}
    runs.make_run(run, "andrea-tiny", [f"train.max_steps={2 * steps}"], arms)
    curve.write_log(run / names.LOSS, steps)
    end = event("stopped", step=steps, text="stopped", code=0)
    (run / names.EVENTS).write_bytes(encode(event("started", text="started")) + encode(end))
    (run / names.LOG).touch()


def dashboard(run: Path) -> list[str]:
    """Looks on: it never starts a trainer, nor signals one."""
    return [sys.executable, "-m", "andrea_tui", str(run), "--watch"]


def _whole(screen: Screen, steps: int) -> bool:
    """The smoothed loss has its value at the right edge, the last step is there, and nothing is still being read."""
    text = "\n".join(screen)
    return "◄" in text and f"step {steps:,}" in text and "loading" not in text


@contextmanager
def _train(folder: Path, after: int) -> Iterator[list[int]]:
    run = folder / "run"
    command = [sys.executable, "-m", "bench.standin", str(run), "--rate", f"{RATE:g}", "--after", str(after)]
    trainer = subprocess.Popen(command, cwd=report.ROOT)
    try:
        while trainer.poll() is None and not (run / names.STATUS).exists():
            time.sleep(0.05)
        yield [trainer.pid]
    finally:
        trainer.kill()
        trainer.wait()


OURS = Program(
    make=_make_run,
    command=lambda folder: dashboard(folder / "run"),
    whole=_whole,
    grow=_train,
    keys={ZOOM: ("+", "-"), LOG: ("y", "y"), PANE: ("\t", "\x1b[Z"), FULL: ("\r", "\x1b")},
    first_key="2",
)


# ---- terminalboard


def install(folder: Path) -> tuple[Program | None, str]:
    """(the peer, in a virtual environment of its own, "") or (None, why there is none)."""
    python = folder / "bin" / "python"
    wanted = [f"terminalboard=={TERMINALBOARD}", f"plotext=={PLOTEXT}"]
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
    try:
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [str(python), *pip, *wanted],
            [str(python), "-m", "compileall", "-q", str(folder / "lib")],
        ):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.CalledProcessError as e:
        said = (e.stderr or e.stdout or "").strip().splitlines()
        return None, said[-1][:100] if said else f"exit {e.returncode}"
    except subprocess.TimeoutExpired:
        return None, f"its installation took more than {INSTALL_SECONDS:.0f} s"
    return peer(folder / "bin" / "terminalboard"), ""


def peer(program: Path) -> Program:
    return Program(
        make=_make_logdir,
        command=lambda folder: [str(program), str(folder / "logs"), "--reset-view", "--grid", "1x1"],
        whole=_drawn,
        grow=_append,
        keys={LOG: ("l", "l"), FULL: ("\r", "\r")},
    )


def _make_logdir(folder: Path, steps: int) -> None:
    (folder / "logs").mkdir(parents=True)
    curve.write_events(_events(folder), steps)


def _events(folder: Path) -> Path:
    return folder / "logs" / "events.out.tfevents.1"


def _drawn(screen: Screen, steps: int) -> bool:
    """It reads everything before it draws anything, so its first curve is whole."""
    return any("\u2800" < c <= "\u28ff" for line in screen for c in line)


@contextmanager
def _append(folder: Path, after: int) -> Iterator[list[int]]:
    over = threading.Event()

    def grow() -> None:
        step, begin = after, time.monotonic()
        with open(_events(folder), "ab", buffering=0) as f:
            while not over.wait(max(0.0, begin + (step - after) / RATE - time.monotonic())):
                step += 1
                steps = np.array([step])
                f.write(curve.event_records(steps, curve.loss(steps), np.array([time.time()])))

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        yield []
    finally:
        over.set()
        thread.join()

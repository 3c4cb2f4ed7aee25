"""What the trainer does on the disk around one checkpoint, in a process that a test can strike at any system call.

`python -m tests.fault_script` reads "RUN_DIR VARIANT" lines, forks a child for each and prints its pid; torch is
imported once. The child waits for SIGUSR1 (so that strace can attach first) and works with the real Saver, Appender
and replace_file. What it was told is done it notes in a shared mapping: that takes no system call, so nothing is
counted that is not the operation, and the notes outlive a SIGKILL.
"""

import ctypes
import gc
import mmap
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.config import KeepConfig
from engine.layout import checkpoint_bytes
from engine.rundir import checkpoint, files, names
from engine.rundir.files import Appender, create_file, fsync_dir, replace_file, write_all
from engine.rundir.records import LossLine, encode, event, f32
from engine.saver import Saver

N = 1000  # parameters
FIRST, SECOND, THIRD = 10, 16, 20  # steps with checkpoints: there before, under fire, after the fire
OLD, NEW, NEWEST = b'{"state":"old"}\n', b'{"state":"new"}\n', b'{"state":"newest"}\n'
END = "/the-fire-ends-here"  # an lstat of it ends what is counted
NOTES = "notes"  # beside the run directory

READY = 1  # descriptor of the pipe to the test
PR_SET_PTRACER, PTRACER_ANY = 0x59616D61, -1


class Notes:
    """What the child was told is done, as int64 in a shared file mapping."""

    FIELDS = ("logged", "durable", "sidecar", "fire_over", "lived", "crashed")

    def __init__(self, run: Path) -> None:
        path = run.with_name(f"{run.name}.{NOTES}")
        with path.open("a+b") as f:
            f.truncate(8 * len(self.FIELDS))
            self._array = np.frombuffer(mmap.mmap(f.fileno(), 8 * len(self.FIELDS)), np.int64)

    def __getitem__(self, field: str) -> int:
        return int(self._array[self.FIELDS.index(field)])

    def now(self) -> dict[str, int]:
        return {field: self[field] for field in self.FIELDS}

    def __setitem__(self, field: str, value: int) -> None:
        self._array[self.FIELDS.index(field)] = value


def parts(step: int) -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(step)
    return [abs(rng.standard_normal(N)).astype(np.float32) for _ in range(3)]


def loss_line(step: int) -> LossLine:
    loss = f32(5 / step)
    return LossLine(step=step, loss=loss, rows={"a": 1, "b": step}, rloss={"a": loss, "b": loss}, seg=1)


def prepare(run: Path) -> None:
    """A run directory as it lies after the checkpoint of step FIRST."""
    run.mkdir()
    loss, events = Appender(run / names.LOSS), Appender(run / names.EVENTS)
    for step in range(1, FIRST + 1):
        loss.append(encode(loss_line(step)))
    digest, _ = checkpoint.write(run, FIRST, parts(FIRST), lambda sha: None)
    events.append(encode(event("checkpoint", step=FIRST, seg=1, sha256=digest)))
    replace_file(run / names.STATE, OLD)
    loss.close()
    events.close()


def work(run: Path, notes: Notes) -> None:
    loss, events = Appender(run / names.LOSS), Appender(run / names.EVENTS)
    saver = Saver(run, KeepConfig(last=1, every=10_000), 2, loss, events, set())
    os.write(READY, b"%d\n" % os.getpid())  # from here on the system calls are counted
    signal.sigwait({signal.SIGUSR1})
    boundary(run, notes, loss, saver, range(FIRST + 1, SECOND + 1), NEW)
    log(notes, loss, range(SECOND + 1, SECOND + 3))
    files.exists(Path(END))
    notes["fire_over"] = 1
    # Whoever lives goes on to the next boundary, where everything must be made good.
    boundary(run, notes, loss, saver, range(SECOND + 3, THIRD + 1), NEWEST)
    loss.sync()
    events.sync()


def boundary(run: Path, notes: Notes, loss: Appender, saver: Saver, steps: range, state: bytes) -> None:
    """What the training loop does from one boundary to the next, in one thread so that the order is always the same."""
    log(notes, loss, steps)
    saver._write(steps[-1], "boundary", parts(steps[-1]))
    notes["durable"] = saver.durable
    try:
        replace_file(run / names.STATE, state)
        notes["sidecar"] = steps[-1]
    except OSError:
        pass  # the trainer says so and goes on


def log(notes: Notes, loss: Appender, steps: range) -> None:
    for step in steps:
        loss.append(encode(loss_line(step)))
        if not loss.behind:
            notes["logged"] = step


# The controls: each drops one protection and must be found out.

Write = Callable[[Path, int, list[NDArray[np.float32]], Callable[[str], None]], tuple[str, int]]


def straight_under_its_name(
    run: Path, step: int, p: list[NDArray[np.float32]], before_rename: Callable[[str], None]
) -> tuple[str, int]:
    """No temporary: a writer that dies leaves half a checkpoint under a checkpoint's name."""
    path = run / names.checkpoint_name(step)
    fd = create_file(path)
    try:
        digest = checkpoint._write_parts(fd, checkpoint._HEADER.pack(step, N), p)
        os.fsync(fd)
    finally:
        os.close(fd)
    before_rename(digest)
    fsync_dir(run)
    return digest, checkpoint_bytes(N)


def event_after_the_rename(
    run: Path, step: int, p: list[NDArray[np.float32]], before_rename: Callable[[str], None]
) -> tuple[str, int]:
    """A writer that dies between them leaves a file that no event vouches for."""
    digest, size = real_write(run, step, p, lambda sha: None)
    before_rename(digest)
    return digest, size


def prune_first(
    run: Path, step: int, p: list[NDArray[np.float32]], before_rename: Callable[[str], None]
) -> tuple[str, int]:
    """Room is made before the new one is there: with keep = 1 a failure leaves none."""
    for found in checkpoint.scan(run)[0]:
        os.unlink(found.path)
    return real_write(run, step, p, before_rename)


def append_without_queue(self: Appender, line: bytes) -> None:
    """A line that the disk did not take is gone."""
    try:
        os.write(self._fd, line)
    except OSError:
        pass


def replace_in_place(path: Path, data: bytes, durable: bool = True) -> None:
    """Truncate and write: a writer that dies leaves nothing or a half."""
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


real_write = checkpoint.write
CONTROLS: dict[str, tuple[object, str, object]] = {
    "straight": (checkpoint, "write", straight_under_its_name),
    "event-late": (checkpoint, "write", event_after_the_rename),
    "prune-first": (checkpoint, "write", prune_first),
    "no-queue": (Appender, "append", append_without_queue),
    "in-place": (sys.modules[__name__], "replace_file", replace_in_place),
}


def child(run: Path, variant: str) -> None:
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        # strace is not our ancestor; where Yama restricts ptrace it may attach all the same.
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, PTRACER_ANY, 0, 0, 0)
        notes = Notes(run)
        log_fd = os.open(run / names.LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        if variant != "real":
            owner, name, replacement = CONTROLS[variant]
            setattr(owner, name, replacement)
        try:
            work(run, notes)
            notes["lived"] = 1
        except BaseException:  # raised again: whatever ended the work is to be told to the parent
            notes["crashed"] = 1
            raise
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


if __name__ == "__main__":
    READY = os.dup(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
    with tempfile.TemporaryDirectory() as warm:  # what Python imports at first use
        prepare(Path(warm) / "run")
    gc.disable()
    gc.freeze()
    for request in sys.stdin:
        run_dir, variant = request.split()
        if os.fork() == 0:
            child(Path(run_dir), variant)

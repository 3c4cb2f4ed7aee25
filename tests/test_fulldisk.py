"""The real trainer on a disk that fills in mid-run (a small tmpfs), and under a limit on a file's size.

It trains on, its lines and warnings wait in memory, every boundary says that it could not be saved; the first
boundary after there is room again has a checkpoint, and in the end nothing tells the run from an undisturbed one. A
stop on a full disk waits for room for a bounded time, then ends with exit 4 and what is lost.
"""

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import pytest

from engine.rundir import checkpoint
from engine.rundir.records import LossLine, Status, decode
from tests import engine_process as e
from tests import forked
from tests.conftest import MakeRun, make_small
from tests.forked import Forked

END = 300
SETS = (f"train.max_steps={END}", "train.eval_every=50", "train.sample_every=50", "keep.every=10000")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 5 MB."""
    point = tmp_path / "disk"
    point.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=5m", "none", point], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"a tmpfs can't be mounted here, no full disk: {done.stderr.strip()}")
    yield point
    # Where something still holds it (a failed test), it goes as soon as that lets go.
    if subprocess.run(["umount", point], capture_output=True).returncode:
        subprocess.run(["umount", "-l", point], check=True)


class Outcome(NamedTuple):
    sha: str
    history: list[LossLine]
    texts: set[tuple[int, str, str, str]]


@pytest.fixture(scope="module")
def whole(texts: Path, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """What becomes of the run when nothing disturbs it."""
    run = tmp_path_factory.mktemp("whole") / "run"
    make_small(run, texts, list(SETS))
    shutil.copytree(prepared / "data", run / "data")
    assert e.finish(run) == 0
    return outcome(run)


def outcome(run: Path) -> Outcome:
    texts = {(x.step, x.prompt, x.mode, x.text) for x in e.samples(run)}
    return Outcome(e.sha(run / f"step_{END:06d}.bin"), e.canonical(run), texts)


class Start(Protocol):
    def __call__(self, run: Path, log: Path, patience: int = 120) -> Forked: ...


@pytest.fixture
def start(disk: Path) -> Iterator[Start]:
    """Starts trainers: output to `log`, so many seconds for the last checkpoint. None outlives the test."""
    started: list[Forked] = []

    def start(run: Path, log: Path, patience: int = 120) -> Forked:
        env = {"ANDREA_SAVE_SECONDS": str(patience)}
        started.append(forked.server().start(run, log=log, env=env))
        return started[-1]

    yield start
    for p in started:
        p.kill()
        p.wait()


class Ballast:
    """Fills the disk to the last byte."""

    def __init__(self, run: Path, pid: int) -> None:
        self.path = run.parent / "ballast"

    def put(self) -> None:
        for log in self.path.parent.glob("run/trainer.log"):
            with log.open("ab") as f:
                f.write(b"\n" * (-log.stat().st_size % 4096))  # its last page has no room either
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            for size in (1 << 16, 1 << 12):
                with pytest.raises(OSError, match="No space left"):
                    fill(fd, bytes(size))
        finally:
            os.close(fd)

    def take_away(self) -> None:
        self.path.unlink()


def fill(fd: int, piece: bytes) -> None:
    while True:
        os.write(fd, piece)


class Limit:
    """No file of the trainer may grow beyond the present size of the loss log and half a line."""

    def __init__(self, run: Path, pid: int) -> None:
        self.run, self.pid = run, pid

    def put(self) -> None:
        size = (self.run / ".loss.json").stat().st_size + 70
        self.before = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (size, self.before[1]))

    def take_away(self) -> None:
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, self.before)


def status(run: Path) -> Status | None:
    try:
        return decode((run / ".status.json").read_bytes(), Status)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def behind(run: Path) -> int:
    s = status(run)
    return s.behind if s else 0


def frozen(p: Forked, act: Callable[[], None]) -> None:
    """Act while the trainer stands still."""
    os.kill(p.pid, signal.SIGSTOP)
    e.wait_for(
        lambda: Path(f"/proc/{p.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", "it stands", p
    )
    act()
    os.kill(p.pid, signal.SIGCONT)


OUTSIDE, INSIDE = "log elsewhere", "log on the same disk"


@pytest.mark.parametrize(
    ("trouble", "where"),
    [
        (Ballast, OUTSIDE),
        (Limit, OUTSIDE),
        (Ballast, INSIDE),
    ],
)
def test_without_room_it_trains_on_and_then_nothing_is_missing(
    trouble: type[Ballast | Limit],
    where: str,
    disk: Path,
    tmp_path: Path,
    whole: Outcome,
    start: Start,
    small_run: MakeRun,
) -> None:
    run = small_run("disk/run", *SETS)
    p = start(run, run / "trainer.log" if where == INSIDE else tmp_path / "said")
    e.wait_for(lambda: e.history(run).last >= 33, "step 33", p)
    t = trouble(run, p.pid)
    frozen(p, t.put)
    e.wait_for(lambda: behind(run) > 25, "25 waiting lines", p)
    frozen(p, t.take_away)
    room_again = time.time() + 0.002
    assert p.wait(e.TIMEOUT) == 0

    sha, history, texts = outcome(run)
    assert (sha, history) == (whole.sha, whole.history)
    assert texts >= whole.texts
    h = e.history(run)
    failed = [x.step for x in e.named(run, "warning") if "could not be saved" in x.text]
    saved = [x.step for x in e.named(run, "checkpoint")]
    assert len(failed) >= 2
    assert failed == list(range(failed[0], failed[-1] + 1, 10))  # every boundary said so, then no more
    first = next(s for s in range(10, END + 1, 10) if h.line(s - 1).t > room_again)
    assert first < END
    assert set(range(first, END + 1, 10)) <= set(saved)
    assert sorted(c.step for c in checkpoint.scan(run)[0]) == [0, END - 20, END - 10, END]


def test_a_stop_on_a_full_disk_waits_for_room(
    disk: Path, tmp_path: Path, start: Start, small_run: MakeRun
) -> None:
    run, said = small_run("disk/run", *SETS), tmp_path / "said"
    p = start(run, said, patience=100)
    ballast = Ballast(run, p.pid)
    e.wait_for(lambda: e.history(run).last >= 33, "step 33", p)
    frozen(p, ballast.put)
    os.kill(p.pid, signal.SIGTERM)
    e.wait_for(lambda: said.read_text().count("could not be saved") >= 2, "two failures", p)
    os.kill(p.pid, signal.SIGTERM)  # a second one does not end the waiting
    ballast.take_away()
    assert p.wait(e.TIMEOUT) == 0
    last = e.history(run).last
    assert [x.step for x in e.named(run, "stopped")] == [last]
    assert checkpoint.scan(run)[0][0].step == last


def test_a_stop_on_a_full_disk_ends_with_exit_4_and_the_next_start_makes_it_good(
    disk: Path, tmp_path: Path, whole: Outcome, start: Start, small_run: MakeRun
) -> None:
    run, said = small_run("disk/run", *SETS), tmp_path / "said"
    p = start(run, said, patience=2)
    ballast = Ballast(run, p.pid)
    e.wait_for(lambda: e.history(run).last >= 33, "step 33", p)
    frozen(p, ballast.put)
    e.wait_for(lambda: behind(run) > 5, "waiting lines", p)
    os.kill(p.pid, signal.SIGTERM)
    assert p.wait(e.TIMEOUT) == 4
    newest = checkpoint.scan(run)[0][0].step
    assert f"steps since step {newest} are lost" in said.read_text()
    assert [x for x in os.listdir(run) if "tmp" in x] == []
    ballast.take_away()
    assert start(run, said).wait(e.TIMEOUT) == 0
    sha, history, texts = outcome(run)
    assert (sha, history) == (whole.sha, whole.history)
    assert texts >= whole.texts

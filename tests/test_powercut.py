"""The power fails at any moment of a save: ext4 on a loop device whose backing file is copied without unmounting.

The copy holds what had reached the disk and not what the kernel still kept in memory. Mounted, after its journal is
replayed, it must hold all that was reported saved by then: the checkpoint, its event, its loss lines, the sidecar.
The controls leave out one sync each; the same check then finds the loss.
"""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.config import KeepConfig
from engine.rundir import names
from engine.rundir.files import Appender, replace_file
from engine.saver import Saver
from tests import fault_script as script
from tests.test_faults import violations

# The kernel by itself commits nothing within the test, and a rename over a file brings no data to the disk early.
OPTIONS = "loop,commit=300,noauto_da_alloc"
CALLS = ("open", "posix_fallocate", "write", "fsync", "fdatasync", "rename", "unlink")

Cut = tuple[Path, str, dict[str, int]]  # the copied image, after which call, what was reported done by then


@contextmanager
def mounted(image: Path) -> Iterator[Path]:
    point = image.with_suffix(".mounted")
    point.mkdir()
    done = subprocess.run(["mount", "-o", OPTIONS, image, point], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a loop device can't be mounted here, no power cuts: {done.stderr.strip()}")
    try:
        yield point
    finally:
        # Where something still holds it (a failed test), it goes as soon as that lets go.
        if subprocess.run(["umount", point], capture_output=True).returncode:
            subprocess.run(["umount", "-l", point], check=True)


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image of an empty ext4."""
    if os.getuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("needs root and mkfs.ext4 for a file system of its own: no power cuts")
    image = tmp_path_factory.mktemp("powercut") / "blank"
    with image.open("wb") as f:
        f.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", image], check=True)
    return image


class Machine:
    """Does the work on a file system of its own; `cut` copies its disk."""

    def __init__(self, folder: Path, blank: Path) -> None:
        self.image = folder / "disk"
        self.cuts: list[Cut] = []
        self.copying = False
        shutil.copyfile(blank, self.image)

    def work(self, what: str, patch: Callable[[], None]) -> None:
        """Prepare, bring all of it to the disk, then do the work; a cut at its end."""
        with mounted(self.image) as disk:
            run = disk / "run"
            script.prepare(run)
            subprocess.run(["sync", "-f", run], check=True)
            self.notes = script.Notes(self.image)  # not on that disk
            loss, events = Appender(run / names.LOSS), Appender(run / names.EVENTS)
            try:
                patch()
                if what == "checkpoint":
                    saver = Saver(run, KeepConfig(last=1, every=10_000), 2, loss, events, set())
                    script.log(self.notes, loss, range(script.FIRST + 1, script.SECOND + 1))
                    saver._write(script.SECOND, "boundary", script.parts(script.SECOND))
                    self.notes["durable"] = saver.durable
                else:
                    replace_file(run / names.STATE, script.NEW)
                    self.notes["sidecar"] = script.SECOND
                self.cut("the end")
            finally:
                loss.close()
                events.close()

    def cut(self, after: str) -> None:
        if not self.copying:
            self.copying = True
            copy = self.image.with_name(f"cut-{len(self.cuts)}")
            shutil.copyfile(self.image, copy)
            # A line that was written is not yet one that survives; what a checkpoint has synced is.
            self.cuts.append((copy, after, self.notes.now() | {"logged": 0}))
            self.copying = False

    def wrong(self) -> list[str]:
        """What is wrong on the disk after any of the cuts, one line each."""
        out = []
        for image, after, notes in self.cuts:
            with mounted(image) as disk:
                out += [f"after {after}: {x}" for x in violations(disk / "run", notes, False)]
        return out


@pytest.mark.parametrize("what", ["checkpoint", "sidecar"])
def test_after_a_power_cut_at_any_moment_all_that_was_reported_saved_is_there(
    what: str, blank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, blank)

    def cut_after(name: str) -> None:
        real = getattr(os, name)

        def call(*args: Any, **options: Any) -> Any:
            result = real(*args, **options)
            machine.cut(name)
            return result

        monkeypatch.setattr(os, name, call)

    def cut_after_all() -> None:
        for name in CALLS:
            cut_after(name)

    machine.work(what, cut_after_all)
    monkeypatch.undo()
    assert len(machine.cuts) > 6
    assert machine.cuts[-1][2][{"checkpoint": "durable", "sidecar": "sidecar"}[what]] == script.SECOND
    assert machine.wrong() == []


@pytest.mark.parametrize(
    ("what", "left_out", "finds"),
    [
        ("checkpoint", "fsync of files", "step_000016.bin: "),
        ("checkpoint", "fsync of directories", "step 16 was saved, but there are only [10]"),
        ("checkpoint", "fdatasync", "the history ends at 10"),
        ("sidecar", "fsync of files", "the sidecar is b''"),
        ("sidecar", "fsync of directories", 'the sidecar is b\'{"state":"old"}\\n\' after 16'),
    ],
)
def test_control_without_a_sync_the_power_cut_shows_the_loss(
    what: str, left_out: str, finds: str, blank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, blank)
    real = os.fsync

    def fsync(fd: int) -> None:
        kind = "directories" if stat.S_ISDIR(os.fstat(fd).st_mode) else "files"
        if kind not in left_out:
            real(fd)

    def leave_out() -> None:
        if left_out == "fdatasync":
            monkeypatch.setattr(os, "fdatasync", lambda fd: None)
        else:
            monkeypatch.setattr(os, "fsync", fsync)

    machine.work(what, leave_out)
    monkeypatch.undo()
    wrong = machine.wrong()
    assert any(finds in x for x in wrong), wrong

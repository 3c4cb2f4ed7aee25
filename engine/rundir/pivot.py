"""The pivot as a transaction on files: `.pivot.json` is the request, then the intent; one write of it is the commit.

    ask → record_cut → archive → commit → switch

Before the commit a crash leaves the request standing, and the run trains on towards its cut; after it every start
goes forward through `switch`, whose steps may be done again. Whoever holds the run's lock does this; asking and
withdrawing need no lock but `held`. Knows no torch, no config, no user interface.
"""

import fcntl
import hashlib
import os
import shutil
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from engine.errors import BadInput
from engine.rundir import names, records
from engine.rundir.archive import next_name
from engine.rundir.files import (
    create_file,
    exists,
    fsync_dir,
    open_regular,
    read_file,
    replace_file,
    unlink_if_there,
    write_all,
)
from engine.rundir.lines import LineDecoder
from engine.rundir.records import Event, event

ARCHIVED = (names.SAMPLES, names.STATE, names.POLICY)  # what a pivot puts into the archive
INTENT, MANIFEST = "pivot.json", "manifest.json"  # and what is written beside them
_PART = ".part"  # of an archive folder that is not committed
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
WAIT = 10.0  # seconds that asking and withdrawing wait for a transaction under way


class Pivot(Struct, kw_only=True):
    """`.pivot.json`. From `cut` on it is written by whoever executes it."""

    id: str
    t: float  # seconds since 1970, when it was asked
    by: str  # who asked: user, host and pid
    when: Literal["boundary", "now"]
    step: int  # the step under way when it was asked for
    old_name: str  # of the policies
    new_name: str
    policy: str  # text of the new policy.toml
    cut: int | None = None  # last step of the old phase
    sha256: str = ""  # of its checkpoint
    phase: int = 0  # the new one
    keys: dict[str, Any] = {}  # of the new policy, "arms.chat.floor": 0.1
    archive: str = ""  # "0001-step_112700"
    state: str = ""  # text of the fresh .state.json
    back: str = (
        ""  # line for .loss.json where the log reaches beyond the cut (rule 3 of the canonical history)
    )
    good: bool = False  # some audit of the old phase, or of one before, read well
    committed: bool = False

    def due(self, step: int, every: int) -> bool:
        """Whether the cut is after this step: the first boundary that is not before the step it was asked at."""
        return self.when == "now" or (step % every == 0 and step >= self.step)

    def expected(self, step: int, every: int) -> int:
        """The step after which it will be cut, where `step` is the last one made."""
        return step if self.when == "now" else -(-max(step, self.step) // every) * every


def read(run_dir: Path) -> Pivot | None:
    """The pivot that is asked for or under way. Raises BadInput where the file is damaged."""
    path = run_dir / names.PIVOT
    try:
        return decode(read_file(path))
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, RecursionError) as e:
        raise BadInput(f"{path}: can't be read ({e}); move it away to go on without this pivot") from None


@contextmanager
def held(run_dir: Path, seconds: float = WAIT, lock: str = names.PIVOT_LOCK) -> Iterator[bool]:
    """Alone with `.pivot.json`: whether that could be had within so many seconds. A process that dies lets go."""
    fd = open_regular(run_dir / lock, _OPEN)
    end = time.monotonic() + seconds
    asked = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        while True:
            try:
                fcntl.fcntl(fd, fcntl.F_OFD_SETLK, asked)
            except BlockingIOError:
                if time.monotonic() >= end:
                    yield False
                    return
                time.sleep(0.02)
            else:
                yield True
                return
    finally:
        os.close(fd)


def ask(run_dir: Path, pivot: Pivot) -> None:
    """Put the request there, whole and only if there is none. Raises BadInput, naming the one that is there."""
    path = run_dir / names.PIVOT
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    while True:
        unlink_if_there(temporary)
        fd = create_file(temporary)
        try:
            write_all(fd, encode(pivot))
            os.fsync(fd)
            os.link(temporary, path)  # fails where the name is taken
            break
        except FileNotFoundError:
            continue  # a trainer that started just now took it for one that a dead process left
        except FileExistsError:
            first = read(run_dir)
            who = f"to {first.new_name!r}, asked by {first.by}" if first else "by another process"
            raise BadInput(
                f"{path}: a pivot is asked for already, {who}; andrea-tui pivot {run_dir} --withdraw takes it back"
            ) from None
        finally:
            os.close(fd)
            unlink_if_there(temporary)
    fsync_dir(run_dir)


def withdraw(run_dir: Path) -> Pivot:
    """Take the request back; returns it. Raises BadInput where there is none, or it is committed."""
    with held(run_dir) as alone:
        found = read(run_dir)
        if found is None:
            raise BadInput(f"{run_dir}: no pivot is asked for")
        if found.committed or not alone:
            raise BadInput(
                f"{run_dir}: the pivot to {found.new_name!r} is under way and can't be withdrawn any more"
            )
        os.unlink(run_dir / names.PIVOT)
        fsync_dir(run_dir)
    return found


def drop(run_dir: Path) -> None:
    """Remove a request that can't be met. For the holder of the run's lock."""
    unlink_if_there(run_dir / names.PIVOT)
    fsync_dir(run_dir)


def record_cut(run_dir: Path, p: Pivot) -> None:
    """Write where it is cut (`cut` … `back` are set). What an earlier attempt archived is removed first."""
    folder = run_dir / names.ARCHIVE
    folder.mkdir(mode=0o700, exist_ok=True)
    for left in folder.glob(f"*{_PART}"):
        shutil.rmtree(left)
    p.archive = next_name(folder, p.cut or 0)
    replace_file(run_dir / names.PIVOT, encode(p))


def archive(run_dir: Path, p: Pivot) -> None:
    """Link (else copy) what the new phase replaces into the folder, with a manifest of hashes, all of it durable."""
    part = run_dir / names.ARCHIVE / (p.archive + _PART)
    part.mkdir(mode=0o700, exist_ok=True)
    hashes = {}
    for name in ARCHIVED:
        source, target = run_dir / name, part / name
        if not exists(source):
            continue
        if not exists(target):
            _link(source, target)
        data = read_file(target, 1 << 32)
        hashes[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    about = {"policy": p.old_name, "last_step": p.cut, "next_policy": p.new_name, "files": hashes}
    replace_file(part / MANIFEST, msgspec.json.format(msgspec.json.encode(about), indent=1) + b"\n")
    fsync_dir(part)
    fsync_dir(part.parent)


def commit(run_dir: Path, p: Pivot) -> None:
    """The one write that makes it so."""
    p.committed = True
    replace_file(run_dir / names.PIVOT, encode(p))


def finish(run_dir: Path) -> Pivot | None:
    """Complete a committed pivot; None where there is none. For the holder of the run's lock, before all else.

    Raises BadInput where the disk refuses; nothing is lost, the next start tries again.
    """
    p = read(run_dir)
    if p is None or not p.committed:
        return None
    try:
        switch(run_dir, p)
    except OSError as e:
        raise BadInput(
            f"{run_dir}: the pivot to {p.new_name!r} is committed but could not be finished: {e.strerror or e}; "
            "make room and start again"
        ) from None
    return p


def switch(run_dir: Path, p: Pivot) -> None:
    """Everything after the commit; may be done again at any point. Raises OSError."""
    if p.back:
        append_line(run_dir / names.LOSS, p.back.encode())
    replace_file(run_dir / names.STATE, p.state.encode())
    replace_file(run_dir / names.SAMPLES, b"")
    replace_file(run_dir / names.POLICY, p.policy.encode())
    final = run_dir / names.ARCHIVE / p.archive
    part = final.with_name(p.archive + _PART)
    if exists(part):
        os.rename(part, final)
        fsync_dir(final.parent)
    _tell(run_dir, p)
    os.rename(run_dir / names.PIVOT, final / INTENT)
    fsync_dir(final)
    fsync_dir(run_dir)


def _tell(run_dir: Path, p: Pivot) -> None:
    """The event, once."""
    path = run_dir / names.EVENTS
    try:
        told = LineDecoder(Event).feed(read_file(path, 1 << 32))
    except FileNotFoundError:
        told = []
    if any(e.event == "pivot" and e.info.get("id") == p.id for e in told):
        return
    seg = max((e.seg for e in told), default=0)
    text = (
        f"{p.old_name} → {p.new_name} after step {p.cut}; phase {p.phase} begins with step {(p.cut or 0) + 1}"
    )
    said = event(
        "pivot", step=p.cut or 0, seg=seg, text=text, id=p.id, phase=p.phase, old=p.old_name, new=p.new_name,
        sha256=p.sha256, archive=f"{names.ARCHIVE}/{p.archive}", when=p.when, asked=p.step, good=p.good,
        policy_keys=p.keys,
    )  # fmt: skip
    append_line(path, records.encode(said))


def policy_file(run_dir: Path, events: Sequence[Event], phase: int) -> Path:
    """Where the policy of that phase lies: in force, or in the archive of the pivot that ended it."""
    for e in events:
        if e.event == "pivot" and e.info.get("phase") == phase + 1:
            return run_dir / names.ARCHIVE / Path(str(e.info.get("archive"))).name / names.POLICY
    return run_dir / names.POLICY


def altered(folder: Path) -> list[str]:
    """Names of a pivot's archived files that are missing or not as they were put there. Raises OSError, ValueError."""
    about = msgspec.json.decode(read_file(folder / MANIFEST))
    out = []
    for name, was in about["files"].items():
        try:
            data = read_file(folder / name, 1 << 32)
        except FileNotFoundError:
            out.append(f"{name} (missing)")
            continue
        if hashlib.sha256(data).hexdigest() != was["sha256"]:
            out.append(name)
    return out


def encode(p: Pivot) -> bytes:
    return msgspec.json.encode(p) + b"\n"


def decode(data: bytes) -> Pivot:
    """Raises msgspec.MsgspecError, RecursionError."""
    return msgspec.json.decode(data, type=Pivot)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        temporary = target.with_name(f"{target.name}.copy")
        shutil.copyfile(source, temporary)
        os.rename(temporary, target)
    fd = open_regular(target)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def append_line(path: Path, line: bytes) -> None:
    """Durably, behind an end that a crash may have torn. Raises OSError."""
    fd = open_regular(
        path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    )
    try:
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        write_all(fd, b"\n" * torn + line)
        os.fsync(fd)
    finally:
        os.close(fd)

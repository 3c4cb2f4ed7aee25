"""Appending under a full disk, replacing atomically, the lock that can be asked about."""

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import BadInput
from engine.rundir import lock
from engine.rundir.files import Appender, exists, read_file, replace_file


def test_a_torn_tail_is_ended_with_a_newline_and_never_cut(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'{"a":1}\n{"torn')
    a = Appender(path)
    a.append(b'{"b":2}\n')
    a.close()
    assert path.read_bytes() == b'{"a":1}\n{"torn\n{"b":2}\n'


@pytest.mark.parametrize("limit", range(1, 40, 3))
def test_a_full_disk_queues_lines_and_loses_none(limit: int, tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes the file "full" in the middle of a line; when there is room again all is written."""
    path = tmp_path / "log"
    lines = [b"line %d\n" % i for i in range(20)]
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    a = Appender(path)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        for x in lines[:15]:
            a.append(x)
        assert a.behind > 0
        with pytest.raises(OSError, match="large"):
            a.sync()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)
    for x in lines[15:]:
        a.append(x)
    a.sync()
    assert a.behind == 0
    assert path.read_bytes() == b"".join(lines)
    a.close()


def test_after_a_failed_sync_the_unsynced_lines_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    a = Appender(path)
    a.append(b"one\n")
    a.sync()
    a.append(b"two\n")
    real, calls = os.fdatasync, []

    def fail_once(fd: int) -> None:
        calls.append(fd)
        if len(calls) == 1:
            raise OSError(errno.EIO, "I/O error")
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fail_once)
    with pytest.raises(OSError, match="I/O error"):
        a.sync()
    a.append(b"three\n")
    a.sync()
    a.close()
    assert path.read_bytes().split(b"\n") == [b"one", b"two", b"", b"two", b"three", b""]


def test_replace_is_whole_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    replace_file(path, b"old")

    def no(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_traps_under_a_name_raise_and_never_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    os.symlink(tmp_path / "fifo", tmp_path / "link")
    (tmp_path / "dir").mkdir()
    for name in ("fifo", "link", "dir"):
        with pytest.raises(OSError):  # noqa: PT011
            read_file(tmp_path / name)
    assert exists(tmp_path / "fifo")
    assert not exists(tmp_path / "nothing")


def test_the_lock_names_its_holder_and_can_be_asked_about(tmp_path: Path) -> None:
    assert lock.probe(tmp_path) is None
    fd = lock.acquire(tmp_path)
    holder = lock.probe(tmp_path)
    assert holder is not None
    assert (holder.pid, holder.here, holder.start) == (os.getpid(), True, lock.start_time(os.getpid()))
    code = (
        "import sys; from pathlib import Path; from engine.rundir import lock; from engine.errors import BadInput\n"
        "try: lock.acquire(Path(sys.argv[1]))\nexcept BadInput as e: print(e)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    assert f"is being trained by process {os.getpid()}" in out
    os.close(fd)
    assert lock.probe(tmp_path) is None  # the text is still there: the kernel's word counts


def test_a_reader_that_asks_never_stops_a_trainer_from_starting(tmp_path: Path) -> None:
    os.close(lock.acquire(tmp_path))
    readers = [os.open(tmp_path / ".lock", os.O_RDONLY) for _ in range(5)]
    assert lock.probe(tmp_path) is None
    fd = lock.acquire(tmp_path)
    for r in [fd, *readers]:
        os.close(r)


def test_a_second_acquire_in_the_same_process_is_refused(tmp_path: Path) -> None:
    fd = lock.acquire(tmp_path)
    with pytest.raises(BadInput, match="is being trained by process"):
        lock.acquire(tmp_path)
    os.close(fd)


def test_start_time_tells_a_reused_pid(tmp_path: Path) -> None:
    a = subprocess.Popen(["sleep", "60"])
    assert (lock.start_time(a.pid) or 0) >= (lock.start_time(os.getpid()) or 0)
    a.kill()
    os.waitid(os.P_PID, a.pid, os.WEXITED | os.WNOWAIT)
    assert lock.start_time(a.pid) is None  # a zombie still has a pid, but nobody is there
    a.wait()
    assert lock.start_time(a.pid) is None

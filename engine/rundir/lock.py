"""`.lock`: who trains this run. An open-file-description lock, held as long as the process lives.

Unlike flock and POSIX locks it can be asked about without being taken, and a reader that asks never makes a
starting trainer fail. The text in the file names the holder; the kernel's lock says whether that is still true.
Linux only.
"""

import fcntl
import os
import socket
import struct
from pathlib import Path

import msgspec
from msgspec import Struct

from engine.errors import BadInput
from engine.rundir import names
from engine.rundir.files import open_regular

_FLOCK = "hhqqi0q"  # struct flock: l_type, l_whence, l_start, l_len, l_pid
_HANDED_OVER = "ANDREA_LOCK_FD"
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Holder(Struct, kw_only=True):
    """Who holds the lock. `start` is /proc/PID/stat's start time, so that a reused pid is never taken for him."""

    host: str
    boot_id: str
    pid: int
    start: int

    @property
    def here(self) -> bool:
        """Whether he runs on this machine, since its last boot."""
        return self.host == socket.gethostname() and self.boot_id == boot_id()


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the process's start; None where there is no such process (or only a zombie)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(b")")[2].split()  # the name may hold spaces and parentheses
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def hand_over(fd: int) -> None:
    """Let the lock live through an exec: `acquire` of the new program takes it up. Between them nobody can."""
    os.set_inheritable(fd, True)
    os.environ[_HANDED_OVER] = str(fd)


def _handed_over(path: Path) -> int | None:
    text = os.environ.pop(_HANDED_OVER, "")
    if not text.isdecimal():
        return None
    fd = int(text)
    try:
        there, mine = os.stat(path), os.fstat(fd)
    except OSError:
        return None
    if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
        return None
    os.set_inheritable(fd, False)
    return fd


def acquire(run_dir: Path) -> int:
    """Take the lock and write who we are; the descriptor holds it until it is closed or the process ends.

    Raises BadInput with one line that says who holds it.
    """
    path = run_dir / names.LOCK
    if (mine := _handed_over(path)) is not None:
        return mine
    fd = open_regular(path, _OPEN)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except BlockingIOError:
        os.close(fd)
        holder = probe(run_dir)
        who = f"process {holder.pid} on {holder.host}" if holder else "another process"
        raise BadInput(
            f"{path}: this run is being trained by {who}; `andrea-tui {run_dir}` attaches to it"
        ) from None
    me = Holder(
        host=socket.gethostname(), boot_id=boot_id(), pid=os.getpid(), start=start_time(os.getpid()) or 0
    )
    text = msgspec.json.encode(me) + b"\n"
    try:
        os.pwrite(fd, text, 0)
        os.ftruncate(fd, len(text))
    except OSError:
        os.close(fd)  # who lives on, a cockpit say, would hold the run
        raise
    return fd


def probe(run_dir: Path) -> Holder | None:
    """Who holds the lock now, without taking it. None: nobody. Raises OSError where it can't be told."""
    try:
        fd = open_regular(run_dir / names.LOCK)
    except FileNotFoundError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        answer = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))
        if answer[0] == fcntl.F_UNLCK:
            return None
        data = os.pread(fd, 4096, 0)
    finally:
        os.close(fd)
    try:
        return msgspec.json.decode(data, type=Holder)
    except msgspec.MsgspecError:
        return Holder(host="?", boot_id="?", pid=0, start=0)  # between its lock and its first write

"""Reading and writing the small files of a run directory so that a crash, a full disk or a trap can't hurt.

`os.path.exists` and friends are not used: they take an I/O error for "not there".
"""

import errno
import os
import stat
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def exists(path: Path) -> bool:
    """Whether the name is there. Raises OSError where that can't be told."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


def open_regular(path: Path, flags: int = _READ) -> int:
    """A descriptor of a regular file. A FIFO, device, directory or link raises OSError and never blocks."""
    fd = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path} is not a regular file")
    return fd


def refuse_special(path: Path) -> None:
    """Raises OSError where the name leads to a FIFO, a device or a directory: reading it may wait for ever."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(f"{path} is not a regular file")


def read_file(path: Path, limit: int = 1 << 24) -> bytes:
    """A small regular file whole. Raises OSError, also where it is larger than `limit` bytes."""
    fd = open_regular(path)
    try:
        size = os.fstat(fd).st_size
        if size > limit:
            raise OSError(f"{path} has {size:,} bytes, more than the {limit:,} expected")
        with os.fdopen(os.dup(fd), "rb") as f:
            return f.read(limit + 1)
    finally:
        os.close(fd)


def create_file(path: Path) -> int:
    """A descriptor of a new file, mode 0600; FileExistsError where the name is taken."""
    return os.open(path, _CREATE, 0o600)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """All of the bytes; os.write may take fewer than it is given."""
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(fd, view) :]


def replace_file(path: Path, data: bytes, durable: bool = True) -> None:
    """The file is wholly the old or wholly the new one, whatever happens.

    Not durable, for `.status.json`: no fsync, and on a full disk, which is just what it has to tell of, the new text
    takes the old one's place.
    """
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    unlink_if_there(temporary)
    try:
        fd = create_file(temporary)
        try:
            write_all(fd, data)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except OSError as e:
        with suppress(OSError):  # the first error is the one to tell; the next replace removes it
            unlink_if_there(temporary)
        if durable or e.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _overwrite(path, data)
    if durable:
        fsync_dir(path.parent)


def _overwrite(path: Path, data: bytes) -> None:
    """One write into the block that the file has already; blanks before the newline stand for what was longer."""
    fd = open_regular(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.pwrite(fd, data[:-1].ljust(os.fstat(fd).st_size - 1) + data[-1:], 0)
    finally:
        os.close(fd)


def say(text: str) -> None:
    """A line for trainer.log, which is our stdout. That log lies on the run's disk too: a full one never stops us.

    Not by print: what a failed flush leaves in its buffer fails again at exit and turns the exit code into 120.
    """
    try:
        write_all(1, f"{text}\n".encode(errors="replace"))
    except OSError:
        pass  # what matters is an event as well, and events wait in memory


def fsync_dir(path: Path) -> None:
    """Makes new names in the directory survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def unlink_if_there(path: Path) -> None:
    """Raises OSError where it is there and stays."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


class Appender:
    """Appends lines to one file, one `write` a line, from any thread. A full disk loses nothing.

    What can't be written waits in memory (`behind` lines) and goes out, in order, as soon as there is room. A
    short write leaves the rest of its line first in the queue, so the line completes itself. After a failed
    sync the kernel may have dropped what it was given: everything since the last good sync is written again on
    a fresh descriptor. Readers of these files take a repeated line for the line it repeats.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last_error: OSError | None = None
        self._queue: deque[bytes] = deque()
        self._unsynced: list[bytes] = []
        self._lock = threading.Lock()
        self._fd = open_regular(path, _APPEND)
        self._end_torn_tail()

    @property
    def behind(self) -> int:
        return len(self._queue)

    def append(self, line: bytes) -> None:
        """Write one line that ends with a newline, or queue it. Never raises OSError."""
        with self._lock:
            self._queue.append(line)
            self._unsynced.append(line)
            self._drain()

    def sync(self) -> None:
        """Everything appended so far is on the disk, or OSError."""
        with self._lock:
            self._drain()
            if self._queue:
                raise self.last_error or OSError(
                    f"{self.path.name}: {len(self._queue)} lines could not be written"
                )
            try:
                os.fdatasync(self._fd)
            except OSError as e:
                self._start_over(e)
                raise
            self._unsynced.clear()

    def close(self) -> None:
        with self._lock:
            self._drain()
            self._close()

    def _drain(self) -> None:
        while self._queue:
            data = self._queue[0]
            try:
                if self._fd < 0:
                    self._fd = open_regular(self.path, _APPEND)
                n = os.write(self._fd, data)
            except OSError as e:
                self.last_error = e
                return
            if n < len(data):
                self._queue[0] = data[n:]
            else:
                self._queue.popleft()
        self.last_error = None

    def _start_over(self, error: OSError) -> None:
        self._queue = deque([b"\n", *self._unsynced])  # the newline ends whatever was torn
        self.last_error = error
        with suppress(OSError):  # on Linux the descriptor is gone all the same
            self._close()

    def _close(self) -> None:
        """A closed descriptor's number soon belongs to another file: it is forgotten at once."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _end_torn_tail(self) -> None:
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            self._queue.append(b"\n")
            self._drain()

"""Following a file that another process appends to or replaces. Looking at its stat is the truth."""

import os
from pathlib import Path

from msgspec import Struct

from engine.rundir.files import open_regular
from engine.rundir.records import MAX_LINE

PIECE = 1 << 18
TAIL = 1 << 16  # of a longer file, read first


class Piece(Struct, frozen=True):
    data: bytes
    fresh: bool  # the file was replaced or cut: what was read before does not count any more


class Follower:
    """Reads one file's bytes as they come, at most PIECE at a time. A file that is not there yet is empty.

    A name that points to another file: the old one is read to its end first, then the new one from its start.
    A file shorter than what was read: it starts again.
    """

    def __init__(self, path: Path, tail: int | None = None) -> None:
        """`tail`: of a file that is there already, only the last so many bytes."""
        self.path = path
        self.size = 0  # as last seen
        self.offset = 0
        self._fd: int | None = None
        self._id: tuple[int, int] | None = None
        self._tail = tail
        self._fresh = False

    @property
    def loaded(self) -> float:
        """Part of the file that was read, 0 to 1."""
        return 1.0 if self.offset >= self.size else self.offset / self.size

    def read(self) -> Piece | None:
        """The next bytes, None where there are none now. Raises OSError where the file can't be read."""
        try:
            info = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return self._next(self.size) if self._fd is not None else None
        if self._fd is None:
            self._open()
        elif (info.st_dev, info.st_ino) != self._id:
            self.size = os.fstat(self._fd).st_size
            if piece := self._next(self.size):
                return piece
            self.close()
            self._fresh = True
            self._open()
        else:
            self.size = info.st_size
        if self.size < self.offset:
            self.restart()
        return self._next(self.size)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = self._id = None

    def _open(self) -> None:
        self._fd = open_regular(self.path)
        info = os.fstat(self._fd)
        self._id, self.size, self.offset = (info.st_dev, info.st_ino), info.st_size, 0
        if self._tail is not None:
            self.offset = max(0, self.size - self._tail)
            self._tail = None

    def restart(self) -> None:
        """Read it again; the next piece says so."""
        self.offset, self._fresh = 0, True

    def _next(self, size: int) -> Piece | None:
        fresh = self._fresh
        if self._fd is None or (self.offset >= size and not fresh):
            return None
        data = os.pread(self._fd, PIECE, self.offset)
        self.offset += len(data)
        self._fresh = False
        return Piece(data, fresh) if data or fresh else None


class NewestFirst(Follower):
    """Follows a file of lines from its end on; `older` reads what lies before, backwards and whole lines at a time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._start = 0  # what lies before was not read yet

    @property
    def place(self) -> tuple[int, int, int] | None:
        """(device, inode, offset): everything before it was read. None while older text is not, or without a file."""
        if self._id is None or self._start or self._fresh:
            return None
        return *self._id, self.offset

    def open_at(self, device: int, inode: int, offset: int) -> int | None:
        """Before the first `read`: the descriptor of the file, if it is that one and as long. Raises OSError."""
        try:
            self._open()
        except FileNotFoundError:
            return None
        return self._fd if self._id == (device, inode) and self.size >= offset else None

    def skip(self, offset: int) -> None:
        """What lies before that offset is known already."""
        self.offset, self._start = offset, 0

    @property
    def behind(self) -> bool:
        """Whether there is older text to read; none while a piece is due that says "fresh"."""
        return self._start > 0 and not self._fresh

    @property
    def loaded(self) -> float:
        return (
            1.0 if self.offset >= self.size and not self._start else (self.offset - self._start) / self.size
        )

    def older(self) -> bytes:
        """The lines before those that were read, about PIECE bytes of them; empty where there are none (any more).

        A line longer than MAX_LINE is no record: one that does not parse either stands for it. Raises OSError.
        """
        fd, end = self._fd, self._start
        if fd is None or not self.behind:
            return b""
        near = max(0, end - PIECE)
        start = self._line_start(near)
        giant = near - start > MAX_LINE
        at = near if giant else start
        data = os.pread(fd, end - at, at)
        if len(data) < end - at:  # it was cut meanwhile
            self.restart()
            return b""
        self._start = start
        return b"\0" + data[data.index(b"\n") :] if giant else data

    def restart(self) -> None:
        super().restart()
        self.size = os.fstat(self._fd).st_size if self._fd is not None else 0
        self._begin_at_the_end()

    def _open(self) -> None:
        super()._open()
        self._begin_at_the_end()

    def _begin_at_the_end(self) -> None:
        self.offset = self._start = self._line_start(self.size - TAIL) if self.size > PIECE else 0

    def _line_start(self, at: int) -> int:
        """Where the line begins that the byte at that offset belongs to."""
        assert self._fd is not None
        while at > 0:
            first = max(0, at - PIECE)
            found = os.pread(self._fd, at - first, first).rfind(b"\n")
            if found >= 0:
                return first + found + 1
            at = first
        return 0

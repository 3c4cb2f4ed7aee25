"""Following a file that another process appends to or replaces. Looking at its stat is the truth."""

import os
from dataclasses import dataclass
from pathlib import Path

from engine.rundir.files import open_regular

PIECE = 1 << 18


@dataclass(frozen=True)
class Piece:
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
            if piece := self._next(os.fstat(self._fd).st_size):
                return piece
            self.close()
            self._open()
            self._fresh = True
        else:
            self.size = info.st_size
        if self.size < self.offset:
            self.offset, self._fresh = 0, True
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

    def _next(self, size: int) -> Piece | None:
        fresh = self._fresh
        if self._fd is None or (self.offset >= size and not fresh):
            return None
        data = os.pread(self._fd, PIECE, self.offset)
        self.offset += len(data)
        self._fresh = False
        return Piece(data, fresh) if data or fresh else None

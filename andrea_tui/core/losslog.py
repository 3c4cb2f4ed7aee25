"""`.loss.json`, newest first: what is appended as it comes, and what lies before, piece by piece, backwards.

Read backwards the canonical rule is simple: a line counts iff its step is smaller than that of every line after it.
"""

from pathlib import Path

from andrea_tui.core.deep import KEEP, DeepHistory
from andrea_tui.core.follow import NewestFirst
from andrea_tui.core.recall import HEAD, TAIL, Place, Recall
from engine.rundir.history import History
from engine.rundir.lines import LineDecoder
from engine.rundir.records import LossLine

_PIECES = 2  # in one look
_CHUNK = 1 << 15  # bytes decoded at a time: a record takes five times the memory of its line
_NONE = 2**31  # above every step


class LossLog:
    """Raises OSError where the file can't be read. What `look` and `older` return is to be applied in their order."""

    def __init__(self, path: Path) -> None:
        self._file = NewestFirst(path)
        self._bad = 0  # of files that were replaced
        self._first = _NONE  # the smallest step of all lines that were read
        self._high = 0  # the furthest step that the history reached
        self._head = self._tail = b""  # bytes of the log: its first, and those that were read last
        self._read = 0  # lines: of as few as there are after a new beginning, all rows are kept
        self._newer, self._older = LineDecoder(LossLine), LineDecoder(LossLine)

    @property
    def bad(self) -> int:
        """Lines that don't parse."""
        return self._bad + self._newer.bad + self._older.bad

    @property
    def loaded(self) -> float:
        """Part of the file that was read, 0 to 1."""
        return self._file.loaded

    @property
    def behind(self) -> bool:
        """Whether there are older lines to read."""
        return self._file.behind

    @property
    def more(self) -> bool:
        """Whether there are appended lines to read at once."""
        return self._file.offset < self._file.size

    @property
    def place(self) -> Place | None:
        """Up to where what was returned goes; None where that is not everything, or not without damage."""
        at, unfinished = self._file.place, self._newer.unfinished
        if at is None or unfinished is None or self.bad:
            return None
        tail = self._tail[: max(0, len(self._tail) - unfinished)]
        return Place(at[0], at[1], at[2] - unfinished, self._head, tail) if tail else None

    def recall(self, recall: Recall) -> DeepHistory | None:
        """Before the first look: what an earlier cockpit read, if the log begins with it. Reading goes on behind it."""
        found = recall.load()
        if found is None or not len(found.history):
            return None
        fd = self._file.open_at(found.kept.device, found.kept.inode, found.kept.offset)
        place = found.place(fd) if fd is not None else None
        if place is None:
            return None
        recall.believed(place)
        self._file.skip(place.offset)
        self._head, self._tail = place.head, place.tail
        h = found.history
        self._first, self._read = int(h.step[0]), len(h)
        # The furthest that it got is not known any more; how far the rows of the arms go back is.
        self._high = max(h.last, int(h.step[h.kept]) + KEEP if 0 < h.kept < len(h) else 0)
        return h

    def look(self) -> tuple[list[LossLine], bool]:
        """(the next lines, whether the file starts again: what was read before does not count any more)."""
        out: list[LossLine] = []
        fresh = False
        for _ in range(_PIECES):
            try:
                piece = self._file.read()
            except OSError:
                if out or fresh:  # these first
                    break
                raise
            if piece is None:
                break
            if piece.fresh:
                self._bad = self.bad
                self._newer, self._older = LineDecoder(LossLine), LineDecoder(LossLine)
                self._first, self._high, self._read = _NONE, 0, 0
                self._head = self._tail = b""
                fresh = True
                out.clear()
            if self._file.offset - len(piece.data) == len(self._head):
                self._head = (self._head + piece.data)[:HEAD]
            self._tail = (self._tail + piece.data)[-TAIL:]
            out += self._newer.feed(piece.data)
        if out:
            low = min(x.step for x in out)
            if self._first < low <= self._high - KEEP // 2 and self._read > KEEP // 2:
                # It went far back: of the steps that are the newest now few have their rows kept. Read it again.
                self._file.restart()
                return [], fresh
            self._first = min(self._first, low)
            self._high = max(self._high, out[-1].step)
            self._read += len(out)
        return out, fresh

    def older(self) -> History:
        """The canonical part of the lines before those that were read."""
        part = History()
        data = self._file.older()
        self._head = (data + self._head)[:HEAD]
        for i in range(0, len(data), _CHUNK):
            part.extend([x for x in self._older.feed(data[i : i + _CHUNK]) if x.step < self._first])
        if len(part):
            self._first = int(part.step[0])
            self._read += len(part)
        return part

    def close(self) -> None:
        self._file.close()
